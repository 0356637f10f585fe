//! Small durable state, if the operator granted it. Using this module makes a
//! provider import the `state` interface, i.e. ask for the grant.

use crate::sys;
pub use crate::sys::state::Scope;
use crate::types::ChannelError;
use serde::{Serialize, de::DeserializeOwned};

/// The stored bytes, or `None`.
///
/// # Errors
///
/// `Denied` for session state in a draft instance, `Failed` when the host cannot
/// read it.
pub async fn get(scope: Scope, key: &str) -> Result<Option<Vec<u8>>, ChannelError> {
    sys::state::get(scope, key.to_owned()).await
}

/// Stores bytes; durable when it returns.
///
/// # Errors
///
/// As [`get`], and `Limit` beyond the granted size.
pub async fn set(scope: Scope, key: &str, value: Vec<u8>) -> Result<(), ChannelError> {
    sys::state::set(scope, key.to_owned(), value).await
}

/// Removes the value; no error when there is none.
///
/// # Errors
///
/// As [`get`].
pub async fn delete(scope: Scope, key: &str) -> Result<(), ChannelError> {
    sys::state::delete(scope, key.to_owned()).await
}

/// A value stored by [`save`], or `None`.
///
/// # Errors
///
/// As [`get`], and `Failed` when the bytes are not such a value.
pub async fn load<T: DeserializeOwned>(scope: Scope, key: &str) -> Result<Option<T>, ChannelError> {
    get(scope, key)
        .await?
        .map(|bytes| {
            serde_json::from_slice(&bytes)
                .map_err(|error| ChannelError::Failed(format!("stored state {key:?}: {error}")))
        })
        .transpose()
}

/// Stores a value as JSON; durable when it returns.
///
/// # Errors
///
/// As [`set`], and `Failed` when the value has no JSON form.
pub async fn save<T: Serialize>(scope: Scope, key: &str, value: &T) -> Result<(), ChannelError> {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| ChannelError::Failed(format!("state {key:?}: {error}")))?;
    set(scope, key, bytes).await
}

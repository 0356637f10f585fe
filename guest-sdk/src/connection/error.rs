//! Why a connection cannot be used, for the layers above and for the host.

use crate::types;

/// Why a connection cannot be used. Text is for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// The process could not be started or did not complete its handshake. A
    /// later attempt starts it again.
    Unavailable(String),
    /// The process was there and is gone; so is this instance.
    Disconnected(String),
    /// More waits to be written, or to be done, than the bound allows.
    Congested(String),
}

impl std::fmt::Display for ConnectionError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unavailable(text) | Self::Disconnected(text) | Self::Congested(text) => {
                out.write_str(text)
            }
        }
    }
}

impl std::error::Error for ConnectionError {}

impl From<ConnectionError> for types::Error {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Unavailable(text) => Self::Unavailable(text),
            ConnectionError::Disconnected(text) => Self::Disconnected(text),
            ConnectionError::Congested(text) => Self::Native(text),
        }
    }
}

//! The native state in memory and in the session's durable state.
//!
//! Invariants: a change is durable before anybody sees it; changes are made one
//! after the other, also when calls overlap; whoever comes before the state was
//! loaded waits for it.

use crate::native::Native;
use futures::lock::Mutex;
use harness_guest::prelude::*;
use harness_guest::state::{self, Scope};

/// The key in the session's state.
const KEY: &str = "planner";

/// The native state, shared by all calls.
#[derive(Default)]
pub struct Store {
    native: Watch<Loaded>,
    writing: Mutex<()>,
}

#[derive(Default)]
enum Loaded {
    #[default]
    NotYet,
    Ready(Native),
    Failed(String),
}

impl Store {
    /// Starts with nothing: a draft.
    pub fn load_nothing(&self) {
        self.native
            .change(|native| *native = Loaded::Ready(Native::default()));
    }

    /// Reads the session's state back.
    pub async fn load(&self) {
        let loaded = match state::load::<Native>(Scope::Session, KEY).await {
            Ok(stored) => Loaded::Ready(stored.unwrap_or_default().restored()),
            Err(error) => Loaded::Failed(format!("the demo's state cannot be read: {error:?}")),
        };
        self.native.change(|native| *native = loaded);
    }

    /// The state as it is, once it was loaded.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it could not be loaded.
    pub async fn native(&self) -> Result<Native, Error> {
        self.until(|native| Some(native.clone())).await
    }

    /// Resolves with what `condition` makes of the state, now or after a change.
    ///
    /// # Errors
    ///
    /// As [`native`](Self::native).
    pub async fn until<R>(&self, condition: impl Fn(&Native) -> Option<R>) -> Result<R, Error> {
        self.native
            .until(|loaded| match loaded {
                Loaded::NotYet => None,
                Loaded::Ready(native) => condition(native).map(Ok),
                Loaded::Failed(reason) => Some(Err(Error::Unavailable(reason.clone()))),
            })
            .await
    }

    /// Changes the state, unless `change` refuses. Hold the call around it: half a
    /// change would be durable and unseen.
    ///
    /// # Errors
    ///
    /// The refusal, or why the change is not durable; nothing has changed then.
    pub async fn change<R>(
        &self,
        change: impl FnOnce(&mut Native) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _one_at_a_time = self.writing.lock().await;
        let before = self.native().await?;
        let mut native = before.clone();
        let result = change(&mut native)?;
        if native != before {
            state::save(Scope::Session, KEY, &native).await?;
            self.native.change(|loaded| *loaded = Loaded::Ready(native));
            harness_guest::state_changed();
        }
        Ok(result)
    }
}

//! Who decides over sessions that drifted, as the test says.

use harness_core::configuration::Drift;
use harness_core::ids::SessionId;
use harness_core::provider::BoxFuture;
use harness_session::{DriftDecider, Verdict};
use std::sync::Mutex;

/// What the decider does.
#[derive(Clone, Copy, Default)]
pub enum Script {
    #[default]
    Reject,
    Accept,
    Fails,
    Panics,
    Silent,
}

/// A scripted decider.
#[derive(Default)]
pub struct Decider {
    pub script: Mutex<Script>,
    /// What it was asked, in words.
    pub asked: Mutex<Vec<String>>,
}

impl Decider {
    pub fn does(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }

    pub fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl DriftDecider for Decider {
    fn decide(&self, _: SessionId, drift: Drift) -> BoxFuture<'static, Result<Verdict, String>> {
        self.asked.lock().unwrap().push(drift.to_string());
        let script = *self.script.lock().unwrap();
        Box::pin(async move {
            match script {
                Script::Reject => Ok(Verdict::Reject),
                Script::Accept => Ok(Verdict::Accept),
                Script::Fails => Err("no policy".into()),
                Script::Panics => panic!("on purpose"),
                Script::Silent => std::future::pending().await,
            }
        })
    }
}

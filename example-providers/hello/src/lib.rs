//! The smallest provider: it answers every prompt with a greeting.
use harness_guest::prelude::*;

/// Says hello.
#[derive(Default)]
pub struct Hello;

impl Provider for Hello {
    type Control = ();
    type Exclusive = ();
    type Turn = ();

    fn describe() -> HarnessInfo {
        HarnessInfo {
            id: "demo/hello".into(),
            label: "Hello".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            models: vec![],
            loop_modes: vec![],
            params: vec![],
            workspace: WorkspaceNeed::None,
            timeout: TimeoutStrategy::Activity,
            features: Features::empty(),
        }
    }

    async fn start_prompt(&self, _input: Input, _channel: Channel) -> Result<(), Error> {
        Ok(())
    }

    async fn done(&self, _turn: (), channel: Channel) -> Result<Outcome, Error> {
        channel.say("Hello!").await?;
        Ok(Outcome {
            message: None,
            params: vec![],
        })
    }
}

harness_guest::export!(Hello);

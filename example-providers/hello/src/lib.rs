//! The smallest provider: it answers every prompt with a greeting.
use harness_guest::prelude::*;

/// Says hello.
#[derive(Default)]
pub struct Hello;

impl Provider for Hello {
    type Control = ();
    type Exclusive = ();
    type Turn = String;

    fn describe() -> HarnessInfo {
        HarnessInfo::new("demo/hello", "Hello", env!("CARGO_PKG_VERSION"))
    }

    async fn start_prompt(&self, input: Input, _: Channel) -> Result<String, Error> {
        Ok(harness_guest::input_text(&input.parts))
    }

    async fn done(&self, prompt: String, channel: Channel) -> Result<Outcome, Error> {
        channel.say(format!("Hello! You said: {prompt}")).await?;
        Ok(Outcome::default())
    }
}

harness_guest::export!(Hello);

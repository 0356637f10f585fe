//! What the hostile guests share: a provider on the raw contract that behaves
//! well, so that each guest spells out one misdeed and nothing else.
//!
//! The raw layer is used on purpose: the SDK makes most of these misdeeds hard.

use harness_guest::bindings::exports::harness::provider::provider as wit;
pub use harness_guest::bindings::harness::provider::host::{
    self, Activity, Channel, Discovery, Link, Preparation,
};
pub use harness_guest::types::*;
use std::marker::PhantomData;
pub use wit::{Invocation, StartedTurn};

/// A guest. The defaults are a well-behaved provider with one control, `/go`, and
/// one exclusive, `/work`, that starts a turn.
#[allow(async_fn_in_trait)]
pub trait Guest: Sized + 'static {
    /// The second half of the id, `guest/NAME`.
    const NAME: &'static str;

    /// Static facts.
    fn describe() -> HarnessInfo {
        HarnessInfo {
            features: Features::COMMANDS | Features::STATE_PUSH | Features::NATIVE_TURNS,
            ..HarnessInfo::new(format!("guest/{}", Self::NAME), Self::NAME, "0.0.0")
        }
    }

    /// Nothing to watch.
    async fn run(_link: Link) -> Result<(), Error> {
        Ok(())
    }

    /// Fits.
    async fn detect(_request: Discovery) -> Result<Readiness, Error> {
        Ok(Readiness {
            native_version: None,
            compatibility: Compatibility::Supported,
            models: Vec::new(),
        })
    }

    /// The two commands.
    async fn get_command_state(_request: Discovery) -> Result<Option<CommandState>, Error> {
        Ok(Some(command_state()))
    }

    /// `/work` is exclusive, anything else a control.
    async fn prepare(_request: Preparation, operation: Operation) -> Result<Prep, Error> {
        let text = match operation {
            Operation::Command(text) => text,
            Operation::ModeAction(action) => format!("{}/{}", action.mode_id, action.action_id),
        };
        let execution = if text.starts_with("/work") {
            Execution::Exclusive
        } else {
            Execution::Control
        };
        Ok(Prep { execution, text })
    }

    /// What a prepared operation answers when it is asked how it runs.
    fn execution(prep: &Prep) -> Execution {
        prep.execution
    }

    /// The operation is forgotten.
    fn discard(_prep: Prep) {}

    /// A control completes, an exclusive starts a turn.
    async fn invoke(prep: Prep, _command_id: String, channel: Channel) -> Result<Answer, Error> {
        Ok(match prep.execution {
            Execution::Control => Answer::Completed(Some(prep.text)),
            Execution::Exclusive => Answer::Started(Sess {
                text: prep.text,
                channel,
            }),
        })
    }

    /// A turn that remembers the prompt.
    async fn start_prompt(input: Input, channel: Channel) -> Result<Sess, Error> {
        let text = harness_guest::input_text(&input.parts);
        Ok(Sess { text, channel })
    }

    /// A turn that remembers its native id.
    async fn adopt_turn(id: String, _command_id: String, channel: Channel) -> Result<Sess, Error> {
        Ok(Sess { text: id, channel })
    }

    /// Says that it ran.
    async fn done(session: Sess) -> Result<Outcome, Error> {
        say(&session.channel, &format!("ran {}", session.text)).await?;
        Ok(Outcome::default())
    }

    /// Compacts nothing.
    async fn compact(_command_id: String, _channel: Channel) -> Result<Compaction, Error> {
        Ok(Compaction {
            summary: None,
            usage: None,
        })
    }
}

/// A prepared operation.
pub struct Prep {
    /// How it runs.
    pub execution: Execution,
    /// Its text, or `mode/action`.
    pub text: String,
}

/// A started turn.
pub struct Sess {
    /// What started it.
    pub text: String,
    /// Its channel.
    pub channel: Channel,
}

/// What an invocation came to.
pub enum Answer {
    /// Completed with this message.
    Completed(Option<String>),
    /// A turn was started.
    Started(Sess),
}

/// The commands of the default guest.
#[must_use]
pub fn command_state() -> CommandState {
    let command = |name: &str| Command {
        name: name.to_owned(),
        description: "a command of a test guest".to_owned(),
        argument_help: None,
        composer: None,
        disabled_reason: None,
    };
    CommandState {
        commands: vec![command("/go"), command("/work")],
        modes: Vec::new(),
        slash_commands: true,
        note: None,
    }
}

/// Appends one text message.
///
/// # Errors
///
/// The channel's.
pub async fn say(channel: &Channel, text: &str) -> Result<(), ChannelError> {
    channel
        .append(Message {
            role: Role::Assistant,
            parts: vec![MessagePart::Text(text.to_owned())],
        })
        .await
}

/// Computes without ever yielding.
pub fn spin() -> ! {
    let mut n = 0u64;
    loop {
        n = std::hint::black_box(n.wrapping_add(1));
    }
}

/// The exports of guest `G`.
pub struct Exports<G>(PhantomData<G>);

/// The host's handle of a prepared operation.
pub struct PrepHandle<G>(Prep, PhantomData<G>);

/// The host's handle of a turn.
pub struct SessHandle<G>(Sess, PhantomData<G>);

#[cfg(target_family = "wasm")]
mod exports {
    use super::*;
    use wit::{GuestPrepared, GuestSession, Prepared, Session};

    impl<G: Guest> GuestPrepared for PrepHandle<G> {
        fn execution(&self) -> Execution {
            G::execution(&self.0)
        }
    }

    impl<G: Guest> GuestSession for SessHandle<G> {}

    fn session<G: Guest>(session: Sess) -> Session {
        Session::new(SessHandle::<G>(session, PhantomData))
    }

    impl<G: Guest> wit::Guest for Exports<G> {
        type Prepared = PrepHandle<G>;
        type Session = SessHandle<G>;

        fn describe() -> HarnessInfo {
            G::describe()
        }

        async fn run(link: Link) -> Result<(), Error> {
            G::run(link).await
        }

        async fn detect(request: Discovery) -> Result<Readiness, Error> {
            G::detect(request).await
        }

        async fn get_command_state(request: Discovery) -> Result<Option<CommandState>, Error> {
            G::get_command_state(request).await
        }

        async fn prepare_operation(
            request: Preparation,
            operation: Operation,
        ) -> Result<Prepared, Error> {
            let prep = G::prepare(request, operation).await?;
            Ok(Prepared::new(PrepHandle::<G>(prep, PhantomData)))
        }

        fn discard(prepared: Prepared) {
            G::discard(prepared.into_inner::<PrepHandle<G>>().0);
        }

        async fn invoke(
            prepared: Prepared,
            command_id: String,
            channel: Channel,
        ) -> Result<Invocation, Error> {
            let prep = prepared.into_inner::<PrepHandle<G>>().0;
            Ok(match G::invoke(prep, command_id, channel).await? {
                Answer::Completed(message) => Invocation::Completed(Outcome {
                    message,
                    params: Vec::new(),
                }),
                Answer::Started(turn) => Invocation::Started(StartedTurn {
                    session: session::<G>(turn),
                    params: Vec::new(),
                }),
            })
        }

        async fn start_prompt(input: Input, channel: Channel) -> Result<Session, Error> {
            G::start_prompt(input, channel).await.map(session::<G>)
        }

        async fn adopt_turn(
            id: String,
            command_id: String,
            channel: Channel,
        ) -> Result<Session, Error> {
            G::adopt_turn(id, command_id, channel)
                .await
                .map(session::<G>)
        }

        async fn done(session: Session) -> Result<Outcome, Error> {
            G::done(session.into_inner::<SessHandle<G>>().0).await
        }

        async fn compact(command_id: String, channel: Channel) -> Result<Compaction, Error> {
            G::compact(command_id, channel).await
        }
    }
}

/// Makes a [`Guest`] the component's exports.
#[macro_export]
macro_rules! export {
    ($guest:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Exported = $crate::Exports<$guest>;
    ::harness_guest::bindings::export!(Exported with_types_in ::harness_guest::bindings);
        };
    };
}

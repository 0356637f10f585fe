//! What an author implements.
//!
//! One value of the provider type serves all calls of its instance, concurrently
//! on one thread: keep what they share in [`Shared`](crate::Shared).
//!
//! # Aborts
//!
//! Each call is raced against its abort signal. When the signal fires first the
//! call's future is dropped and `cancelled` is answered, unless the author holds
//! the call with a [`Hold`](crate::Hold), as is right while a native side works
//! for it. Awaiting anything of the channel needs no thought either way: those
//! calls are rejected with `Stopped`.

use crate::types::{
    CommandState, Compaction, Compatibility, Error, HarnessInfo, Input, Operation, Outcome, Param,
    Readiness,
};
use crate::{Channel, Discovery, Link, Preparation};

/// A validated operation, by the way it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared<C, E> {
    /// May run beside a turn; completes within its call.
    Control(C),
    /// Has the session to itself; completes or starts a turn.
    Exclusive(E),
}

/// What an exclusive operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation<T> {
    /// It is done.
    Completed(Outcome),
    /// The native side accepted a turn, which [`Provider::done`] sees to its end.
    Started {
        /// The turn.
        turn: T,
        /// Session parameters to set.
        params: Vec<Param>,
    },
}

impl<T> Invocation<T> {
    /// A started turn that changes no parameter.
    pub fn started(turn: T) -> Self {
        Self::Started {
            turn,
            params: Vec::new(),
        }
    }
}

/// One harness.
///
/// Only [`describe`](Self::describe), [`start_prompt`](Self::start_prompt) and
/// [`done`](Self::done) have no default: a provider without native commands needs
/// no more.
#[allow(async_fn_in_trait)] // one thread: no bound to express
pub trait Provider: Default + 'static {
    /// A prepared control: what [`prepare`](Self::prepare) found out, for
    /// [`control`](Self::control). `()` without native commands.
    type Control: 'static;
    /// A prepared exclusive, for [`exclusive`](Self::exclusive).
    type Exclusive: 'static;
    /// A started turn, for [`done`](Self::done).
    type Turn: 'static;

    /// Static facts. No native contact; the answer is always the same.
    fn describe() -> HarnessInfo;

    /// The life of the instance: called once, first, and left pending beside the
    /// other calls. The place of a native connection's reader. It must not create
    /// or load a native conversation (N4). `Ok` at any time: nothing to watch. An
    /// error: the native side is lost and the instance is replaced.
    async fn run(&self, link: Link) -> Result<(), Error> {
        drop(link);
        Ok(())
    }

    /// Looks whether the native harness is there and fits.
    async fn detect(&self, request: Discovery) -> Result<Readiness, Error> {
        drop(request);
        Ok(Readiness {
            native_version: None,
            compatibility: Compatibility::Supported,
            models: Vec::new(),
        })
    }

    /// Reads native commands and modes, leaving no trace (R14). `None`: there are
    /// none, and text that begins with a slash is an ordinary prompt.
    async fn get_command_state(&self, request: Discovery) -> Result<Option<CommandState>, Error> {
        drop(request);
        Ok(None)
    }

    /// Validates an operation and mutates nothing (R21). Refuse disabled commands
    /// with [`refuse_disabled`](crate::refuse_disabled).
    async fn prepare(
        &self,
        request: Preparation,
        operation: Operation,
    ) -> Result<Prepared<Self::Control, Self::Exclusive>, Error> {
        drop((request, operation));
        Err(Error::Unsupported(
            "this harness has no native commands".to_owned(),
        ))
    }

    /// A prepared operation will not be invoked.
    fn discard(&self, prepared: Prepared<Self::Control, Self::Exclusive>) {
        drop(prepared);
    }

    /// Performs a control, perhaps beside a turn.
    async fn control(&self, operation: Self::Control, channel: Channel) -> Result<Outcome, Error> {
        drop((operation, channel));
        Err(Error::Unsupported(
            "this harness has no controls".to_owned(),
        ))
    }

    /// Performs an exclusive. Returning [`Invocation::Started`] is the
    /// acknowledgement; the turn's work belongs into [`done`](Self::done).
    async fn exclusive(
        &self,
        operation: Self::Exclusive,
        channel: Channel,
    ) -> Result<Invocation<Self::Turn>, Error> {
        drop((operation, channel));
        Err(Error::Unsupported(
            "this harness has no exclusive operations".to_owned(),
        ))
    }

    /// Starts the turn of an ordinary prompt. Its text is literal, also when it
    /// begins with a slash (R10).
    async fn start_prompt(&self, input: Input, channel: Channel) -> Result<Self::Turn, Error>;

    /// Takes over a turn that was announced through the [`Link`]. It may have
    /// ended meanwhile: then [`done`](Self::done) just writes it down.
    async fn adopt_turn(&self, id: String, channel: Channel) -> Result<Self::Turn, Error> {
        drop(channel);
        Err(Error::InvalidOperation(format!(
            "no native turn {id:?} was announced"
        )))
    }

    /// Sees a started turn to its native end: called once, right after it was
    /// started. The turn may run inside this call. It must not return while the
    /// native turn still runs, also after an abort (N14): hold the channel.
    async fn done(&self, turn: Self::Turn, channel: Channel) -> Result<Outcome, Error>;

    /// Compacts the native conversation's context.
    async fn compact(&self, channel: Channel) -> Result<Compaction, Error> {
        drop(channel);
        Err(Error::Unsupported(
            "this harness does not compact".to_owned(),
        ))
    }
}

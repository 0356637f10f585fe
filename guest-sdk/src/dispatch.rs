//! One call of the contract each: from the crate's types to the author's code and
//! back, raced against the abort signal.
//!
//! Invariants: a call that completed wins over an abort that came at the same
//! time (R70); `cancelled` leaves only after an abort, from `done` apart (W4);
//! refusal texts are within their bound (W3). The component's exports and the
//! test doubles both come through here, so tests see what a host would see.

use crate::abort::{AbortSignal, Holds};
use crate::limits;
use crate::provider::{Invocation, Prepared, Provider};
use crate::types::{
    ChannelError, CommandState, Compaction, Error, Input, Operation, Outcome, Readiness,
};
use crate::{Channel, Discovery, Link, Preparation};
use futures::future::{Either, select};
use std::future::Future;
use std::pin::pin;

/// A prepared operation of provider `P`.
pub(crate) type PreparedOf<P> = Prepared<<P as Provider>::Control, <P as Provider>::Exclusive>;

/// A started turn together with the channel it lives on.
pub(crate) struct StartedTurn<P: Provider> {
    turn: P::Turn,
    channel: Channel,
}

pub(crate) async fn run<P: Provider>(provider: &P, link: Link) -> Result<(), Error> {
    let (abort, holds) = (link.abort(), link.holds());
    let call = pin!(provider.run(link));
    let stop = pin!(stopped(&abort, &holds));
    match select(call, stop).await {
        Either::Left((result, _)) => result.map_err(bounded),
        Either::Right(((), _)) => Ok(()),
    }
}

pub(crate) async fn detect<P: Provider>(
    provider: &P,
    request: Discovery,
) -> Result<Readiness, Error> {
    let (abort, holds) = (request.abort.clone(), request.holds.clone());
    raced(&abort, &holds, provider.detect(request)).await
}

pub(crate) async fn get_command_state<P: Provider>(
    provider: &P,
    request: Discovery,
) -> Result<Option<CommandState>, Error> {
    let (abort, holds) = (request.abort.clone(), request.holds.clone());
    raced(&abort, &holds, provider.get_command_state(request)).await
}

pub(crate) async fn prepare<P: Provider>(
    provider: &P,
    request: Preparation,
    operation: Operation,
) -> Result<PreparedOf<P>, Error> {
    let (abort, holds) = (request.abort.clone(), request.holds.clone());
    raced(&abort, &holds, provider.prepare(request, operation)).await
}

pub(crate) async fn invoke<P: Provider>(
    provider: &P,
    prepared: PreparedOf<P>,
    channel: Channel,
) -> Result<Invocation<StartedTurn<P>>, Error> {
    let (abort, holds) = (channel.abort(), channel.holds());
    match prepared {
        Prepared::Control(operation) => raced(&abort, &holds, provider.control(operation, channel))
            .await
            .map(Invocation::Completed),
        Prepared::Exclusive(operation) => {
            let call = provider.exclusive(operation, channel.clone());
            Ok(match raced(&abort, &holds, call).await? {
                Invocation::Completed(outcome) => Invocation::Completed(outcome),
                Invocation::Started { turn, params } => Invocation::Started {
                    turn: StartedTurn { turn, channel },
                    params,
                },
            })
        }
    }
}

pub(crate) async fn start_prompt<P: Provider>(
    provider: &P,
    input: Input,
    channel: Channel,
) -> Result<StartedTurn<P>, Error> {
    let (abort, holds) = (channel.abort(), channel.holds());
    let turn = raced(
        &abort,
        &holds,
        provider.start_prompt(input, channel.clone()),
    )
    .await?;
    Ok(StartedTurn { turn, channel })
}

pub(crate) async fn adopt_turn<P: Provider>(
    provider: &P,
    id: String,
    channel: Channel,
) -> Result<StartedTurn<P>, Error> {
    let (abort, holds) = (channel.abort(), channel.holds());
    let turn = raced(&abort, &holds, provider.adopt_turn(id, channel.clone())).await?;
    Ok(StartedTurn { turn, channel })
}

pub(crate) async fn done<P: Provider>(
    provider: &P,
    started: StartedTurn<P>,
) -> Result<Outcome, Error> {
    let StartedTurn { turn, channel } = started;
    let (abort, holds) = (channel.abort(), channel.holds());
    let call = pin!(provider.done(turn, channel));
    let stop = pin!(stopped(&abort, &holds));
    match select(call, stop).await {
        Either::Left((result, _)) => result.map_err(bounded),
        Either::Right(((), _)) => Err(Error::Cancelled),
    }
}

pub(crate) async fn compact<P: Provider>(
    provider: &P,
    channel: Channel,
) -> Result<Compaction, Error> {
    let (abort, holds) = (channel.abort(), channel.holds());
    raced(&abort, &holds, provider.compact(channel)).await
}

/// Resolves when the call should be dropped: aborted, and no longer held.
async fn stopped(abort: &AbortSignal, holds: &Holds) {
    abort.wait().await;
    holds.released().await;
}

async fn raced<T>(
    abort: &AbortSignal,
    holds: &Holds,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let call = pin!(call);
    let stop = pin!(stopped(abort, holds));
    match select(call, stop).await {
        Either::Left((Err(Error::Cancelled), _)) if abort.aborted().is_none() => {
            Err(Error::Native("cancelled by the native side".to_owned()))
        }
        Either::Left((result, _)) => result.map_err(bounded),
        Either::Right(((), _)) => Err(Error::Cancelled),
    }
}

/// The same refusal with its text within the bound of the contract.
fn bounded(error: Error) -> Error {
    let cut = |text: String| limits::shorten(&text, limits::REFUSAL_BYTES);
    match error {
        Error::InvalidOperation(text) => Error::InvalidOperation(cut(text)),
        Error::NotAllowed(text) => Error::NotAllowed(cut(text)),
        Error::StaleRevision(text) => Error::StaleRevision(cut(text)),
        Error::Unsupported(text) => Error::Unsupported(cut(text)),
        Error::Unavailable(text) => Error::Unavailable(cut(text)),
        Error::Disconnected(text) => Error::Disconnected(cut(text)),
        Error::Native(text) => Error::Native(cut(text)),
        Error::Channel(error) => Error::Channel(match error {
            ChannelError::Denied(text) => ChannelError::Denied(cut(text)),
            ChannelError::Limit(text) => ChannelError::Limit(cut(text)),
            ChannelError::Failed(text) => ChannelError::Failed(cut(text)),
            other @ (ChannelError::Stopped | ChannelError::Closed | ChannelError::Busy) => other,
        }),
        Error::Cancelled => Error::Cancelled,
    }
}

/// `?` on a channel call inside a provider's function.
impl From<ChannelError> for Error {
    fn from(error: ChannelError) -> Self {
        Self::Channel(error)
    }
}

//! The loop of one live turn.
//!
//! Everything a turn waits for meets here: native events, answers of people,
//! inputs, time, and the abort signal. Written by hand this loop is where turns
//! get orphaned, answers lost and connections blocked; so it exists once.
//!
//! Invariants:
//! - after an abort the native side is interrupted first, and the loop ends with
//!   the *native* terminal event (N14), or after a grace period by force;
//! - events are taken all the time, also while gates are open and after an abort:
//!   the reader is never blocked by a turn that waits for a person;
//! - `stopped` and `closed` from the channel are an abort, and an aborted turn
//!   ends as `cancelled`, whatever the native side made of it;
//! - an error in the handler interrupts the native turn before it is returned;
//! - inputs that were taken are given to the handler (N16), and dropping gates
//!   withdraws them (N17).

use super::router::{NativeEvent, Signal, TurnEvents};
use crate::connection::transport::Clock;
use crate::types::{ChannelError, Error, Input, Outcome};
use crate::{Channel, Shared};
use futures::future::{Fuse, FutureExt, LocalBoxFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use std::future::Future;

/// How a turn ends beyond its native terminal event. Times in milliseconds.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Native turns without boundaries: the turn ends when nothing was heard for
    /// so long (and up to twice that) and no gate is open. Default: never.
    pub quiet_ms: Option<u32>,
    /// After the native terminal event: stay until nothing was heard for so long,
    /// for what comes late. Default: leave at once.
    pub linger_ms: Option<u32>,
    /// Time the native side has to end an interrupted turn, below the host's drain
    /// bound; then [`TurnHandler::force`]. Default 3.5 s.
    pub grace_ms: u32,
    /// Takes folded inputs. Default: no.
    pub folding: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            quiet_ms: None,
            linger_ms: None,
            grace_ms: 3_500,
            folding: false,
        }
    }
}

/// What an event means for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on.
    Continue,
    /// It was the native terminal event.
    End(Result<Outcome, Error>),
}

/// Questions to people that are open in this turn.
pub struct Gates<A> {
    opened: Shared<Vec<LocalBoxFuture<'static, A>>>,
    count: Shared<usize>,
}

impl<A> std::fmt::Debug for Gates<A> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Gates").finish_non_exhaustive()
    }
}

impl<A> Gates<A> {
    /// Awaits `answer` beside the turn; what it resolves to goes to
    /// [`TurnHandler::answered`]. Dropped when the turn is aborted or ends.
    pub fn open(&self, answer: impl Future<Output = A> + 'static) {
        self.opened.with(|opened| opened.push(answer.boxed_local()));
        self.count.with(|count| *count += 1);
    }

    /// How many are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.get()
    }
}

/// What one kind of native turn does. All functions take `&self`, because some of
/// them run at the same time: keep state in [`Shared`].
#[allow(async_fn_in_trait)] // one thread: no bound to express
pub trait TurnHandler<E> {
    /// What a gate resolves to.
    type Answer: 'static;

    /// A native event. May await the channel; must not await the native side.
    async fn event(&self, event: E, gates: &Gates<Self::Answer>) -> Result<Flow, Error>;

    /// A gate was answered: tell the native side.
    async fn answered(&self, answer: Self::Answer) -> Result<(), Error>;

    /// Asks the native side to end the turn, after all gates were dropped. Must
    /// not wait for that end.
    async fn interrupt(&self);

    /// An event after the interrupt: look for the terminal one, answer what the
    /// native side asks, write nothing.
    fn ignored(&self, event: E) -> Flow;

    /// The native side ignores the interrupt: end it in another way, or put up
    /// with a turn that goes on.
    fn force(&self);

    /// Inputs folded into the turn (with [`Policy::folding`]).
    async fn inputs(&self, inputs: Vec<Input>) -> Result<(), Error> {
        drop(inputs);
        Ok(())
    }

    /// So many events were lost before the turn was claimed.
    async fn dropped(&self, events: u64) -> Result<(), Error> {
        tracing::warn!("{events} native events of this turn were dropped");
        Ok(())
    }
}

/// Sees a started turn to its native end, as [`Provider::done`] must.
///
/// [`Provider::done`]: crate::Provider::done
///
/// # Errors
///
/// `Cancelled` after an abort, `Disconnected` when the native side is lost, and
/// what the native terminal event or the handler says.
pub async fn drive<E: NativeEvent, H: TurnHandler<E>>(
    channel: &Channel,
    events: &TurnEvents<E>,
    handler: &H,
    policy: &Policy,
    clock: &dyn Clock,
) -> Result<Outcome, Error> {
    // The call outlives the abort: the native end is awaited below.
    let _hold = channel.hold();
    let gates = Gates {
        opened: Shared::default(),
        count: Shared::default(),
    };
    let mut asking: FuturesUnordered<LocalBoxFuture<'static, H::Answer>> = FuturesUnordered::new();
    let signal = channel.abort();
    let mut aborted = Box::pin(signal.wait().fuse());
    let mut input = if policy.folding {
        channel.input_ready().boxed_local().fuse()
    } else {
        Fuse::terminated()
    };
    let mut interrupting: Fuse<LocalBoxFuture<'_, ()>> = Fuse::terminated();
    let mut grace: Fuse<LocalBoxFuture<'static, ()>> = Fuse::terminated();
    let mut quiet = timer(clock, policy.quiet_ms);
    // Why the native turn is being interrupted: what will be returned.
    let mut ending: Option<Error> = None;
    let mut forced = false;
    // The native terminal event came; late events are awaited.
    let mut terminal: Option<Result<Outcome, Error>> = None;
    let mut heard = false;
    loop {
        gates.opened.with(|opened| asking.extend(opened.drain(..)));
        let mut failed = None;
        futures::select_biased! {
            _ = aborted => failed = Some(Error::Cancelled),
            () = interrupting => {}
            () = grace => {
                if forced {
                    return Err(ending.unwrap_or(Error::Cancelled));
                }
                forced = true;
                handler.force();
                grace = clock.sleep(FORCED_MS).fuse();
            }
            answer = asking.select_next_some() => {
                gates.count.with(|count| *count = count.saturating_sub(1));
                failed = handler.answered(answer).await.err();
            }
            // False or an error: closed for good.
            waiting = input => if waiting == Ok(true) {
                failed = match channel.take_input().await {
                    Ok(inputs) if inputs.is_empty() => None,
                    Ok(inputs) => handler.inputs(inputs).await.err(),
                    Err(error) => Some(Error::Channel(error)),
                };
                input = channel.input_ready().boxed_local().fuse();
            },
            next = events.next().boxed_local().fuse() => match next {
                Signal::Lost(reason) => return match (ending, terminal) {
                    (Some(error), _) => Err(error),
                    (None, Some(result)) => result,
                    (None, None) => Err(Error::Disconnected(reason)),
                },
                Signal::Dropped(count) => {
                    if ending.is_none() {
                        failed = handler.dropped(count).await.err();
                    }
                }
                Signal::Event(event) => {
                    heard = true;
                    let flow = if ending.is_some() {
                        Ok(handler.ignored(event))
                    } else {
                        handler.event(event, &gates).await
                    };
                    match flow {
                        Ok(Flow::Continue) => {}
                        Ok(Flow::End(result)) => match (ending.take(), policy.linger_ms) {
                            (Some(error), _) => return Err(error),
                            (None, None) => return result,
                            (None, linger) => {
                                // A second terminal event changes nothing.
                                terminal.get_or_insert(result);
                                quiet = timer(clock, linger);
                                heard = false;
                            }
                        },
                        Err(error) => failed = Some(error),
                    }
                }
            },
            () = quiet => {
                let wait = if terminal.is_some() { policy.linger_ms } else { policy.quiet_ms };
                if heard || gates.count() > 0 {
                    heard = false;
                    quiet = timer(clock, wait);
                } else {
                    return terminal.unwrap_or(Ok(Outcome { message: None, params: Vec::new() }));
                }
            }
        }
        let Some(error) = failed else { continue };
        if ending.is_some() {
            // An abort in a turn that failed already: it is a stop now.
            if signal.aborted().is_some() {
                ending = Some(Error::Cancelled);
            }
            continue;
        }
        asking.clear();
        gates.opened.with(Vec::clear);
        gates.count.replace(0);
        if let Some(result) = terminal {
            // Natively over. A failed write of late events does not undo that.
            return if signal.aborted().is_some() {
                Err(Error::Cancelled)
            } else {
                result
            };
        }
        ending = Some(match error {
            Error::Channel(ChannelError::Stopped | ChannelError::Closed) => Error::Cancelled,
            other => other,
        });
        quiet = Fuse::terminated();
        interrupting = handler.interrupt().boxed_local().fuse();
        // A turn without boundaries has no end that could be awaited or forced.
        forced = policy.quiet_ms.is_some();
        grace = clock
            .sleep(
                policy
                    .quiet_ms
                    .unwrap_or(policy.grace_ms)
                    .min(policy.grace_ms),
            )
            .fuse();
    }
}

/// Milliseconds between [`TurnHandler::force`] and giving up on an end.
const FORCED_MS: u32 = 700;

fn timer(clock: &dyn Clock, ms: Option<u32>) -> Fuse<LocalBoxFuture<'static, ()>> {
    ms.map_or_else(Fuse::terminated, |ms| clock.sleep(ms).fuse())
}

#[cfg(test)]
mod tests;

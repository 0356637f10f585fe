//! Compaction: the provider's `compact`, between turns, for everybody who waits for it (S34, S47,
//! S95).
//!
//! A compaction is an owner without a turn and without a slot: while it runs the loop starts,
//! folds and chains nothing. Whoever asks meanwhile joins it; whoever asks while something else
//! runs waits for the next one.

use super::ending::failure;
use super::{Out, derived};
use crate::abort::AbortReason;
use crate::command::{Agency, Cause, CommandBody};
use crate::content::Message;
use crate::event::{CompactionReason, EventBody};
use crate::gate::CloseReason;
use crate::ids::{CommandId, EventId, LoopId, RunId, TurnId};
use crate::provider::{CallError, ChannelError, Compaction, Refusal};
use crate::refusal::Refused;
use crate::session::decide::operation::Claim;
use crate::session::{Answer, Effect, Invocation, InvocationId, Kind, Origin};

/// Commands that may wait for the compaction of one loop.
pub const MAX_COMPACT_WAITERS: usize = 64;
/// Largest summary, in bytes.
pub const MAX_SUMMARY: usize = 1024 * 1024;

impl Out<'_, '_> {
    pub(super) fn compact(&mut self, origin: Origin, loop_id: Option<LoopId>) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        let loop_id = loop_id.unwrap_or(self.active());
        let Some(of) = self.loop_state(loop_id) else {
            return self.refuse(Refused::LoopNotFound(loop_id.to_string()));
        };
        if of.closed {
            return self.refuse(Refused::LoopExited);
        }
        let full = of.compact_waiters.len() >= MAX_COMPACT_WAITERS;
        let info = self.harness_of(loop_id);
        if !info.is_some_and(|h| h.features.compaction) {
            return self.refuse(Refused::CompactionUnsupported);
        }
        let (session_id, waiter) = (self.session.state.id, origin.command_id);
        self.command(
            origin,
            Agency::User,
            CommandBody::Compact {
                session_id,
                loop_id,
            },
        );
        if full {
            let reason = CompactionReason::LaneFull;
            self.answer_compact(loop_id, waiter, Err(reason));
        }
        Answer::Accepted
    }

    /// Starts the compaction that somebody waits for. True if it was started, or refused.
    pub(super) fn start_compaction(&mut self, loop_id: LoopId) -> bool {
        let of = self.loop_state(loop_id);
        let first = of.and_then(|l| l.compact_waiters.keys().next().copied());
        let Some(command_id) = first else {
            return false;
        };
        let Some(run) = self.cx.ids.mint() else {
            self.reject_compaction(loop_id, CompactionReason::Internal, None);
            return true;
        };
        // The slot of the turn before it is free meanwhile.
        self.give_slot_back(loop_id);
        self.activate();
        self.event(
            loop_id,
            TurnId::ZERO,
            Cause::by(command_id),
            EventBody::CompactionStarted {},
        );
        let invocation = self.claim(Claim {
            run_id: RunId(run),
            loop_id,
            turn: None,
            command_id,
            kind: Kind::Compaction,
            handle: false,
        });
        self.effect(Effect::Compact {
            invocation,
            loop_id,
            command_id,
        });
        true
    }

    /// `compact` returned.
    pub(super) fn compacted(
        &mut self,
        invocation: InvocationId,
        result: Result<Compaction, CallError>,
        messages: Vec<Message>,
    ) -> Answer {
        let Some(owner) = self.live.owner_of(invocation) else {
            return Answer::None;
        };
        let loop_id = owner.loop_id;
        let Some(entry) = owner.invocations.get(&invocation).cloned() else {
            return Answer::None;
        };
        self.close_gates(invocation, CloseReason::Abandoned, &ChannelError::Closed);
        self.step(invocation, messages);
        if self.live.faulted.is_none() {
            match outcome(&entry, result) {
                Ok(compaction) => self.commit_compaction(loop_id, &entry, compaction),
                Err((reason, said)) => self.reject_compaction(loop_id, reason, said),
            }
        }
        self.end_control(invocation);
        Answer::None
    }

    fn commit_compaction(&mut self, loop_id: LoopId, entry: &Invocation, compaction: Compaction) {
        let Compaction { summary, usage } = compaction;
        self.event(
            loop_id,
            TurnId::ZERO,
            Cause::by(entry.command_id),
            EventBody::CompactionCommitted { summary, usage },
        );
        self.answer_compact_waiters(loop_id, Ok(()));
    }

    /// Ends a compaction, or the wait for one, without a summary.
    pub(super) fn reject_compaction(
        &mut self,
        loop_id: LoopId,
        reason: CompactionReason,
        said: Option<CallError>,
    ) {
        let of = self.loop_state(loop_id);
        let first = of.and_then(|l| l.compact_waiters.keys().next().copied());
        let error = said.map(|e| failure(e.code(), e.to_string()));
        self.event(
            loop_id,
            TurnId::ZERO,
            first.map(Cause::by).unwrap_or_default(),
            EventBody::CompactionRejected { reason, error },
        );
        self.answer_compact_waiters(loop_id, Err(reason));
    }

    fn answer_compact_waiters(&mut self, loop_id: LoopId, how: Result<(), CompactionReason>) {
        let of = self.loop_state(loop_id);
        let waiters: Vec<CommandId> = of
            .map(|l| l.compact_waiters.keys().copied().collect())
            .unwrap_or_default();
        for waiter in waiters {
            self.answer_compact(loop_id, waiter, how);
        }
    }

    /// One reply, with a deterministic id: a repair that is retried makes the same (S95).
    pub(super) fn answer_compact(
        &mut self,
        loop_id: LoopId,
        waiter: CommandId,
        how: Result<(), CompactionReason>,
    ) {
        let id = EventId(derived(waiter.0, "compact reply"));
        let body = match how {
            Ok(()) => EventBody::CompactWaiterResolved {},
            Err(reason) => EventBody::CompactWaiterRejected { reason },
        };
        self.push_event(id, loop_id, TurnId::ZERO, Cause::by(waiter), body);
    }
}

type Rejected = (CompactionReason, Option<CallError>);

fn outcome(
    entry: &Invocation,
    result: Result<Compaction, CallError>,
) -> Result<Compaction, Rejected> {
    // A compaction that was done before its abort took effect is done.
    let error = match result {
        Ok(compaction) => {
            let summary = compaction.summary.as_deref();
            return match summary {
                Some(text) if text.trim().is_empty() => {
                    Err((CompactionReason::InvalidSummary, None))
                }
                Some(text) if text.len() > MAX_SUMMARY => {
                    Err((CompactionReason::SummaryTooLarge, None))
                }
                _ => Ok(compaction),
            };
        }
        Err(error) => error,
    };
    let reason = match (entry.aborted, &error) {
        (Some(AbortReason::Shutdown), _) => CompactionReason::ShuttingDown,
        (Some(_), _) => CompactionReason::Interrupted,
        (None, CallError::Unavailable { .. }) => CompactionReason::Unavailable,
        (None, CallError::Refused(Refusal::Cancelled)) => CompactionReason::Cancelled,
        (None, _) => CompactionReason::ExecutionFailed,
    };
    Err((reason, Some(error)))
}

//! Gates that the host itself opens and resolves (S88). They belong to the session, and whatever
//! runs in it or is stopped leaves them alone: they end with their answer, with their opener's word,
//! with the session, or at a restore.

use super::Out;
use crate::command::Cause;
use crate::gate::{CloseReason, Gate, GateAsk};
use crate::ids::{GateId, LoopId, ToolExecutionId, TurnId};
use crate::provider::ChannelError;
use crate::refusal::Refused;
use crate::session::Answer;

/// Host gates that may be open in a session.
pub const MAX_HOST_GATES: usize = 64;

impl Out<'_, '_> {
    /// Opens one at a loop: where its events are, nothing else.
    pub(super) fn open_host_gate(&mut self, ask: GateAsk, loop_id: Option<LoopId>) -> Answer {
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        if !ask.is_hosts() {
            let reason = format!("a gate of kind `{}` is a loop's to open", ask.kind());
            return self.refuse(Refused::InvalidRequest(reason));
        }
        let loop_id = loop_id.unwrap_or_else(|| self.active());
        if self.loop_state(loop_id).is_none() {
            return self.refuse(Refused::LoopNotFound(loop_id.to_string()));
        }
        if self.session.state.host_gates.len() >= MAX_HOST_GATES {
            return self.refuse(Refused::Capacity(
                "the session has 64 open gates of the host",
            ));
        }
        let (Some(gate), Some(execution)) = (self.cx.ids.mint(), self.cx.ids.mint()) else {
            return self.refuse(Refused::Internal);
        };
        let gate = Gate {
            gate_id: GateId(gate),
            ask,
            loop_id,
            turn_id: None,
            tool_execution_id: ToolExecutionId(execution),
            opened_at: self.cx.now,
        };
        let gate_id = gate.gate_id;
        self.open_gate(loop_id, TurnId::ZERO, Cause::default(), gate);
        Answer::Asked(gate_id)
    }

    /// Its opener no longer wants it.
    pub(super) fn close_host_gate(&mut self, gate_id: GateId) -> Answer {
        if let Some(fault) = &self.live.faulted {
            return self.refuse(fault.refused());
        }
        let open = self.session.state.host_gates.contains_key(&gate_id);
        if open {
            self.close_gate(gate_id, CloseReason::Withdrawn, ChannelError::Closed);
        }
        Answer::Bool(open)
    }

    /// The session ends, and with it who waits.
    pub(super) fn close_host_gates(&mut self) {
        let open: Vec<GateId> = self.session.state.host_gates.keys().copied().collect();
        for gate_id in open {
            self.close_gate(gate_id, CloseReason::OwnerClosed, ChannelError::Closed);
        }
    }
}

//! Contract types to domain types and back.
//!
//! Invariants: nothing is dropped or reordered (R6); what breaks a bound of the contract is refused
//! whole (W3, W4), never cut, except a person's text in an error, which R-numbers allow to be cut.
//! Not here: what a value means.

mod delegation;
mod describe;
mod failure;
mod gate;
mod message;
mod operation;

pub(crate) use delegation::{
    cancelled_at, delegate_info, delegate_result, delegate_task, delegation_error,
};
pub(crate) use describe::{harness_info, readiness};
pub(crate) use failure::{abort_reason, channel_error, cut, io_error, refusal, state_error};
pub(crate) use gate::{approval_decision, approval_request, form_answer, question_form};
pub(crate) use message::{history_entry, input, new_message, part, role, usage};
pub(crate) use operation::{
    command_state, compaction, discovery_context, execution, native_turn, operation,
    operation_context, outcome, params_from, workspace_from,
};

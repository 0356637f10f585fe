//! Defects put in on purpose, to show that the simulation finds such defects. Each is what a
//! careless change could do.

#[cfg(not(debug_assertions))]
compile_error!("planted faults are for tests: they are not built into anything optimised");

use crate::actor::Actor;
use bytes::Bytes;
use harness_core::command::CommandBody;
use harness_core::ids::{CommandId, Seq};
use harness_core::operation::Operation;
use harness_core::provider::{CallError, Channel, Instance, Invocation};
use harness_core::session::Record;
use std::sync::Arc;

/// A defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Subscribers see an event before it is durable (against S61).
    ShowBeforeAppend,
    /// An operation whose call failed is sent again (against S54).
    SendAgain,
    /// A delegate's result is handed back twice (against S96).
    HandBackTwice,
    /// A restore loses the inputs that it holds (against S52).
    LoseHeld,
}

impl Actor {
    pub(crate) fn show_early(&mut self, records: &[Record], first: Seq) {
        if self.planted() != Some(Planted::ShowBeforeAppend) {
            return;
        }
        let encoded = records.iter().map(Record::encode);
        let encoded: Vec<Bytes> = encoded.flatten().map(|e| e.bytes.into()).collect();
        self.show(records, &encoded, first);
    }

    pub(crate) async fn hand_back_again(&mut self, records: &[Record]) {
        if self.planted() != Some(Planted::HandBackTwice) {
            return;
        }
        let handed = records.iter().find_map(|r| match r {
            Record::Command(c) if matches!(c.body, CommandBody::SubagentResult { .. }) => Some(c),
            _ => None,
        });
        if let Some(mut again) = handed.cloned() {
            again.header.command_id = CommandId(self.fresh_id());
            self.write_beside(&Record::Command(again)).await;
        }
    }

    pub(crate) fn lose_held(&mut self) {
        if self.planted() == Some(Planted::LoseHeld) {
            self.lose_held_inputs();
        }
    }
}

/// What `invoke` answered; or what it answered when it was asked again.
pub(crate) async fn resend(
    invoked: Result<Invocation, CallError>,
    instance: Arc<dyn Instance>,
    command_id: CommandId,
    (planted, operation, channel): (Option<Planted>, Operation, Arc<dyn Channel>),
) -> Result<Invocation, CallError> {
    if invoked.is_ok() || planted != Some(Planted::SendAgain) {
        return invoked;
    }
    let (context, abort) = (channel.context(), channel.abort());
    match instance.prepare(context, operation, abort).await {
        Ok(prepared) => instance.invoke(prepared, command_id, channel).await,
        Err(_) => invoked,
    }
}

//! What an actor keeps of the host's open gates: what is in no journal, and who gets the answer.

use super::{Actor, Msg};
use crate::requests::{Delivery, OpenGate};
use harness_core::gate::{Gate, GateAsk, GatePolicy, HostAnswer, HostSecrets};
use harness_core::ids::{GateId, LoopId};
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Input};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What opening one answers.
pub(crate) type Opened = Result<(GateId, oneshot::Receiver<HostAnswer>), Refused>;

/// An open gate of the host.
pub(super) struct HostSlot {
    secrets: HostSecrets,
    policy: GatePolicy,
    /// Answers when nobody does.
    _timer: Option<Timer>,
    opener: oneshot::Sender<HostAnswer>,
}

impl Actor {
    pub(super) async fn open_host_gate(
        &mut self,
        ask: GateAsk,
        secrets: HostSecrets,
        policy: GatePolicy,
        loop_id: Option<LoopId>,
        reply: oneshot::Sender<Opened>,
    ) {
        let gate_id = match self.feed(Input::OpenHostGate { ask, loop_id }, None).await {
            Answer::Asked(gate_id) => gate_id,
            Answer::Refused(refused) => {
                let _ = reply.send(Err(*refused));
                return;
            }
            _ => {
                let _ = reply.send(Err(Refused::Internal));
                return;
            }
        };
        let (opener, answer) = oneshot::channel();
        let timer = policy
            .timeout()
            .map(|after| self.host_timer(gate_id, after));
        self.host_gates.insert(
            gate_id,
            HostSlot {
                secrets,
                policy,
                _timer: timer,
                opener,
            },
        );
        if reply.send(Ok((gate_id, answer))).is_err() {
            // No gate is open without a waiter (S87).
            self.feed(Input::CloseHostGate(gate_id), None).await;
        }
    }

    /// The policy's answer comes the usual way; one that could not be recorded is tried again.
    fn host_timer(&self, gate_id: GateId, after: Duration) -> Timer {
        let mailbox = self.mailbox.clone();
        Timer(tokio::spawn(async move {
            loop {
                tokio::time::sleep(after).await;
                if mailbox.send(Msg::HostGateTimeout(gate_id)).await.is_err() {
                    return;
                }
            }
        }))
    }

    /// Hands the answer to the opener, with the values of what was left out.
    pub(super) fn answer_host_gate(&mut self, gate_id: GateId, mut answer: HostAnswer) {
        let Some(slot) = self.host_gates.remove(&gate_id) else {
            self.delivery = Delivery::Uncertain;
            return;
        };
        if let HostAnswer::Filled(values) = &mut answer {
            for (name, value) in slot.secrets.defaults {
                values.entry(name).or_insert(value);
            }
        }
        self.delivery = match slot.opener.send(answer) {
            Ok(()) => Delivery::Acknowledged,
            Err(_) => Delivery::Uncertain,
        };
    }

    /// Open gates with what only memory knows of them.
    pub(super) fn open_gates(&self) -> Vec<OpenGate> {
        let gates = self.session.state.gates();
        gates.into_iter().map(|gate| self.open_gate(gate)).collect()
    }

    fn open_gate(&self, gate: Gate) -> OpenGate {
        let policies = &self.deps.config.gates;
        let after = |timeout: Option<Duration>| {
            let policy = timeout.and_then(|t| GatePolicy::after(t).ok());
            policy.unwrap_or_default()
        };
        let slot = self.host_gates.get(&gate.gate_id);
        let policy = match &gate.ask {
            GateAsk::Permission(_) => after(policies.permission),
            GateAsk::AskUser(_) => after(policies.ask_user),
            GateAsk::Form(_) | GateAsk::OpenUrl(_) => slot.map(|s| s.policy).unwrap_or_default(),
        };
        OpenGate {
            url: slot.and_then(|s| s.secrets.url.clone()),
            policy,
            gate,
        }
    }
}

/// A task that ends with whoever holds it.
struct Timer(JoinHandle<()>);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

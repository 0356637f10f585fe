//! The gate host: the one way to ask a person on behalf of the host itself (S30, S88).
//!
//! It is handed out once, when the host is made, and there is no way to it from a session, from
//! what serves clients, or from a provider. Kinds of gates that belong to loops cannot be asked for
//! here: [`HostAsk`] has none.
//!
//! An answer is kept for its opener until it is taken, once: whoever answers before anybody waits
//! answers all the same. A wait that is dropped takes nothing.

use crate::actor::Msg;
use crate::host::Host;
use dashmap::DashMap;
use harness_core::gate::{CloseReason, GatePolicy, HostAnswer, HostAsk};
use harness_core::ids::{GateId, LoopId, SessionId};
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Input};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};

/// Gates whose answers may be outstanding, over all sessions.
const MAX_OUTSTANDING: usize = 4096;

/// What is asked, and who answers when nobody does.
#[derive(Debug, Clone)]
pub struct HostGate {
    /// The question.
    pub ask: HostAsk,
    /// The loop at which it is shown; the active one when absent.
    pub loop_id: Option<LoopId>,
    /// `wait` or `respond_on_timeout` (S86).
    pub policy: String,
    /// With `respond_on_timeout`: 1 s to 24 h.
    pub timeout: Option<Duration>,
}

impl HostGate {
    /// A question that waits for a person.
    #[must_use]
    pub fn waiting(ask: HostAsk) -> Self {
        Self {
            ask,
            loop_id: None,
            policy: "wait".into(),
            timeout: None,
        }
    }
}

/// Opens gates of the host and hands their answers to their openers. Cheap to clone.
#[derive(Clone)]
pub struct GateHost {
    host: Host,
    // A sharded map: no lock spans two gates.
    outstanding: Arc<DashMap<GateId, Arc<Outstanding>>>,
}

struct Outstanding {
    session: SessionId,
    // A tokio mutex: its holder is the one waiter, across an await. `None` once it was taken.
    answer: Mutex<Option<oneshot::Receiver<HostAnswer>>>,
}

impl GateHost {
    pub(crate) fn new(host: Host) -> Self {
        Self {
            host,
            outstanding: Arc::default(),
        }
    }

    /// Opens a gate; it is durable and listed when this returns.
    ///
    /// # Errors
    /// A question or policy that breaks its rules, an unknown session or loop, a session that
    /// admits nothing, too many open gates, nothing could be recorded.
    pub async fn open_host_gate(
        &self,
        session: SessionId,
        gate: HostGate,
    ) -> Result<GateId, Refused> {
        self.host.admit()?;
        let policy = GatePolicy::named(&gate.policy, gate.timeout)?;
        let (ask, secrets) = gate.ask.gate().map_err(Refused::InvalidRequest)?;
        if self.outstanding.len() >= MAX_OUTSTANDING {
            return Err(Refused::Capacity(
                "4096 gates of the host wait for their answers",
            ));
        }
        let loop_id = gate.loop_id;
        let handle = self.host.live(session).await?;
        let (gate_id, answer) = handle
            .call(|reply| Msg::OpenHostGate {
                ask,
                secrets,
                policy,
                loop_id,
                reply,
            })
            .await??;
        let answer = Mutex::new(Some(answer));
        let outstanding = Arc::new(Outstanding { session, answer });
        self.outstanding.insert(gate_id, outstanding);
        Ok(gate_id)
    }

    /// Waits for the answer of a gate, which is given once. Dropped before that, it leaves the gate
    /// open and its answer for the next wait.
    ///
    /// # Errors
    /// `gate_not_found`: never opened here, or its answer was taken. `gate_not_ready`: somebody
    /// waits for it already.
    pub async fn await_gate_answer(&self, gate_id: GateId) -> Result<HostAnswer, Refused> {
        let outstanding = self.outstanding.get(&gate_id).map(|o| o.value().clone());
        let outstanding = outstanding.ok_or(Refused::GateNotFound)?;
        let mut slot = outstanding
            .answer
            .try_lock()
            .map_err(|_| Refused::GateNotReady)?;
        let answer = slot.as_mut().ok_or(Refused::GateNotFound)?.await;
        *slot = None;
        self.outstanding.remove(&gate_id);
        // Its session's actor is gone, with what it kept.
        Ok(answer.unwrap_or(HostAnswer::Closed(CloseReason::OwnerClosed)))
    }

    /// Closes a gate that is no longer wanted, as `withdrawn`, and forgets an answer that nobody
    /// took. False: it was closed already.
    ///
    /// # Errors
    /// `gate_not_found`: never opened here, or its answer was taken. Nothing could be recorded:
    /// it stays open.
    pub async fn close_gate(&self, gate_id: GateId) -> Result<bool, Refused> {
        let session = self.outstanding.get(&gate_id).map(|o| o.session);
        let session = session.ok_or(Refused::GateNotFound)?;
        let handle = self.host.live(session).await?;
        let input = Input::CloseHostGate(gate_id);
        let fed = crate::acting::feed_keyed(&handle, None, input).await?;
        self.outstanding.remove(&gate_id);
        Ok(fed.answer == Answer::Bool(true))
    }
}

//! Clients that ask for anything at any time, and hold what they are told against the rules.

mod acts;
mod follows;

use crate::life::Life;
use crate::provider::HARNESSES;
use harness_core::content::Block;
use harness_core::ids::{CommandId, HarnessId, LoopId, SessionId};
use harness_core::refusal::Refused;
use harness_session::{Caller, Host, Keyed};
use std::sync::Arc;
use uuid::Uuid;

/// Sessions that a run has at most.
const SESSIONS: usize = 3;

/// A client of one process.
#[derive(Clone)]
pub struct Client {
    life: Arc<Life>,
    host: Host,
}

impl Client {
    /// A client of that host.
    #[must_use]
    pub fn new(life: Arc<Life>, host: Host) -> Self {
        Self { life, host }
    }

    /// Asks for so many things, with pauses between.
    pub async fn acts(self, times: u64) {
        for _ in 0..times {
            tokio::time::sleep(self.life.world.dice.pause()).await;
            self.life.goes_on().await;
            self.act().await;
        }
    }

    /// What was answered; on to the trace.
    fn told<T>(&self, what: &str, answer: &Result<T, Refused>) {
        if self.life.is_alive() {
            let code = answer.as_ref().err().map_or("ok", Refused::code);
            self.life.world.note(format_args!("told {what}: {code}"));
        }
    }

    /// An acknowledged command must be durable.
    fn acknowledged(&self, id: SessionId, answer: &Result<CommandId, Refused>) {
        if let (Ok(command), true) = (answer, self.life.is_alive()) {
            let found = self.life.world.ledger().accepted(id, *command);
            self.life.world.hold(found);
        }
    }

    fn session(&self) -> Option<SessionId> {
        let sessions = self.life.world.store.sessions();
        self.life.world.dice.pick(&sessions).copied()
    }

    fn any_loop(&self, id: SessionId) -> Option<LoopId> {
        let loops = self.life.world.ledger().loops(id);
        self.life.world.dice.pick(&loops).copied()
    }

    /// A loop as often as none.
    fn loop_or_none(&self, id: SessionId) -> Option<LoopId> {
        self.any_loop(id)
            .filter(|_| self.life.world.dice.percent(50))
    }

    fn harness(&self) -> Option<HarnessId> {
        self.life.world.dice.pick(&HARNESSES)?.parse().ok()
    }

    fn blocks(&self) -> Vec<Block> {
        let n = self.life.world.dice.below(u64::MAX);
        let text = format!("asked {n:x}");
        vec![Block::Text { text }]
    }

    /// A caller, with a key as often as none.
    fn caller(&self) -> Caller {
        let dice = &self.life.world.dice;
        if dice.percent(50) {
            return Caller::default();
        }
        let derived = || {
            let bytes = [dice.below(u64::MAX), dice.below(u64::MAX)].map(u64::to_be_bytes);
            Uuid::new_v8(bytes.concat().try_into().unwrap_or_default())
        };
        Caller {
            identity: Some("client".into()),
            key: Some(Keyed {
                command_id: CommandId(derived()),
                session_id: SessionId(derived()),
                body_sha256: [7; 32],
            }),
        }
    }
}

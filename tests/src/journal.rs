//! What a host left behind: its database file, and what its events add up to.

use rusqlite::Connection;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A record of a session's journal.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its place, from 1.
    pub seq: u64,
    /// Whether it is a command.
    pub command: bool,
    /// Whether it is a public event; what is neither is private.
    pub event: bool,
    /// Its content; null when it has none.
    pub body: Value,
}

/// Every journal in the database of a data directory, by session id. No host may have it open.
///
/// # Panics
/// It cannot be read, or a journal has a gap.
#[must_use]
pub fn read_database(data: &Path) -> BTreeMap<String, Vec<Record>> {
    let database = Connection::open(data.join("harness.db")).unwrap();
    let mut select = database
        .prepare(
            "SELECT lower(hex(s.id)), r.seq, r.kind, r.bytes FROM record r
             JOIN session s ON s.n = r.session ORDER BY r.session, r.seq",
        )
        .unwrap();
    let rows = select
        .query_map([], |row| {
            let (id, seq): (String, i64) = (row.get(0)?, row.get(1)?);
            let (kind, bytes): (u8, Vec<u8>) = (row.get(2)?, row.get(3)?);
            Ok((id, seq, kind, bytes))
        })
        .unwrap();
    let mut journals: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for row in rows {
        let (hex, seq, kind, bytes) = row.unwrap();
        let id = format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        );
        let journal = journals.entry(id).or_default();
        let seq = u64::try_from(seq).unwrap();
        assert_eq!(seq, journal.len() as u64 + 1, "a journal has a gap");
        journal.push(Record {
            seq,
            command: kind == 2,
            event: kind == 1,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        });
    }
    journals
}

/// What the public events of one loop add up to.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct LoopFold {
    /// Its harness.
    pub harness: String,
    /// Model and effort of its next turn, as its last change says.
    pub runtime: Value,
    /// Its mode.
    pub mode: String,
    /// Its conversation, oldest first.
    pub messages: Vec<Value>,
}

/// What the public events of a session add up to.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Fold {
    /// Its loops, by id.
    pub loops: BTreeMap<String, LoopFold>,
    /// The active loop.
    pub active_loop: String,
    /// Ids of open gates.
    pub gates: Vec<String>,
    /// Command ids of turns that have begun and not ended.
    pub open_turns: Vec<String>,
    /// Command ids of held inputs.
    pub held: Vec<String>,
    /// Outcomes by command id, in order.
    pub outcomes: BTreeMap<String, Vec<String>>,
    /// Turns by command id: how often they began.
    pub turns: BTreeMap<String, usize>,
    /// Command ids of inputs that were folded into a running turn.
    pub folded: Vec<String>,
    /// Command ids of inputs that left without a turn.
    pub cancelled: Vec<String>,
    /// Replies to compactions by command id.
    pub compactions: BTreeMap<String, usize>,
}

impl Fold {
    /// Of events in order.
    #[must_use]
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut fold = Self::default();
        for event in events {
            fold.apply(event);
        }
        fold
    }

    /// The loop an event belongs to; the active one when it names none.
    fn of_loop(&mut self, event: &Value) -> &mut LoopFold {
        let named = event["loop_id"].as_str();
        let id = named.unwrap_or(&self.active_loop).to_owned();
        self.loops.entry(id).or_default()
    }

    /// The conversation of the active loop.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        let active = self.loops.get(&self.active_loop);
        active.map_or(&[], |l| l.messages.as_slice())
    }

    fn apply(&mut self, event: &Value) {
        let cause = event["cause"]["command_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let gate = || event["gate_id"].as_str().unwrap_or_default();
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap_or_default() {
            "LoopStarted" => {
                self.of_loop(event).harness = text("harness_id");
                self.of_loop(event).runtime["model"] = event["model"].clone();
                if self.active_loop.is_empty() {
                    self.active_loop = text("loop_id");
                }
            }
            "ActiveLoopChanged" => self.active_loop = text("active_loop_id"),
            "LoopModeChanged" => {
                let of = self.of_loop(event);
                (of.mode, of.runtime) = (text("mode"), event["runtime"].clone());
            }
            "LoopInferenceChanged" => self.of_loop(event).runtime = event["runtime"].clone(),
            "CompactionCommitted" if event["summary"].is_string() => {
                let summary = json!({
                    "id": event["id"], "role": "system", "turn_id": null,
                    "created_at": event["at"],
                    "parts": [{"type": "text", "text": event["summary"]}],
                });
                self.of_loop(event).messages = vec![summary];
            }
            "CompactWaiterResolved" | "CompactWaiterRejected" => {
                *self.compactions.entry(cause).or_default() += 1;
            }
            "TurnStarted" => {
                let message = event.get("message").cloned();
                self.of_loop(event).messages.extend(message);
                *self.turns.entry(cause.clone()).or_default() += 1;
                self.held.retain(|id| *id != cause);
                self.open_turns.push(cause);
            }
            "StepDone" => {
                let messages = event["messages"].as_array().into_iter().flatten();
                self.of_loop(event).messages.extend(messages.cloned());
            }
            "TurnFoldedInto" => {
                let message = event.get("message").cloned();
                self.of_loop(event).messages.extend(message);
                self.held.retain(|id| *id != cause);
                self.folded.push(cause);
            }
            "TurnDone" | "TurnFailed" | "TurnInterrupted" => {
                self.open_turns.retain(|id| *id != cause);
            }
            "NativeOperationResolved" => {
                let outcome = event["outcome"].as_str().unwrap_or_default();
                self.outcomes
                    .entry(cause)
                    .or_default()
                    .push(outcome.to_owned());
            }
            "InputHeld" if !self.held.contains(&cause) => self.held.push(cause),
            "InputReleased" => self.held.retain(|id| *id != cause),
            "InputCancelled" | "TurnRejected" => {
                self.held.retain(|id| *id != cause);
                self.cancelled.push(cause);
            }
            "GateOpened" => {
                let id = event["gate"]["gate_id"].as_str().unwrap_or_default();
                self.gates.push(id.to_owned());
            }
            "GateResolved" => self.gates.retain(|id| id != gate()),
            _ => {}
        }
    }
}

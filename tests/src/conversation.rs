//! One session, as a client works with it.

use crate::{Answer, Client, Frames, PATIENCE};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A session of a client.
#[derive(Clone)]
pub struct Conversation {
    /// The client.
    pub client: Client,
    /// Session id.
    pub id: String,
}

impl Conversation {
    pub(crate) fn new(client: Client, id: &str) -> Self {
        Self {
            client,
            id: id.to_owned(),
        }
    }

    /// The same session, seen by another client, e.g. after a restart.
    #[must_use]
    pub fn at(&self, client: &Client) -> Self {
        client.session(&self.id)
    }

    /// A path below the session.
    #[must_use]
    pub fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.id)
    }

    /// The Session resource.
    ///
    /// # Panics
    /// It cannot be read.
    pub async fn row(&self) -> Value {
        self.client.get(&self.path("")).await.ok(200)
    }

    /// Its status.
    ///
    /// # Panics
    /// It cannot be read.
    pub async fn status(&self) -> String {
        self.row().await["status"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt and returns its command id.
    ///
    /// # Panics
    /// It is refused.
    pub async fn prompt(&self, text: &str) -> String {
        self.say(text, json!({})).await
    }

    /// Sends a prompt to one of its loops and returns its command id.
    ///
    /// # Panics
    /// It is refused.
    pub async fn prompt_loop(&self, loop_id: &str, text: &str) -> String {
        self.say(text, json!({"loop_id": loop_id})).await
    }

    /// Sends a prompt with these members besides its text and returns its command id.
    ///
    /// # Panics
    /// It is refused.
    pub async fn say(&self, text: &str, more: Value) -> String {
        let accepted = self.input(text, more).await.ok(202);
        accepted["command_id"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt with these members besides its text.
    pub async fn input(&self, text: &str, more: Value) -> Answer {
        let mut body = more;
        body["blocks"] = json!([{"type": "text", "text": text}]);
        self.client.post(&self.path("/input"), body).await
    }

    /// Begins a loop and returns its id.
    ///
    /// # Panics
    /// It is refused.
    pub async fn begin_loop(&self, body: Value) -> String {
        let begun = self.client.post(&self.path("/loops"), body).await.ok(201);
        begun["loop_id"].as_str().unwrap().to_owned()
    }

    /// Makes a loop the active one.
    ///
    /// # Panics
    /// It is refused.
    pub async fn activate(&self, loop_id: &str) {
        let body = json!({"loop_id": loop_id});
        let path = self.path("/active-loop");
        let active = self.client.post(&path, body).await.ok(200);
        assert_eq!(active["active_loop_id"], loop_id);
    }

    /// Asks for a compaction of the active loop and returns its command id.
    ///
    /// # Panics
    /// It is refused.
    pub async fn compact(&self) -> String {
        let answer = self.client.post(&self.path("/compact"), json!({})).await;
        answer.ok(202)["command_id"].as_str().unwrap().to_owned()
    }

    /// Runs a native command.
    pub async fn command(&self, text: &str) -> Answer {
        self.operate(json!({"kind": "command", "text": text})).await
    }

    /// Runs an action of a native mode.
    pub async fn action(&self, mode: &str, action: &str, argument: Option<&str>) -> Answer {
        let mut operation = json!({"kind": "mode-action", "modeId": mode, "actionId": action});
        if let Some(argument) = argument {
            operation["argument"] = json!(argument);
        }
        self.operate(operation).await
    }

    async fn operate(&self, operation: Value) -> Answer {
        let body = json!({"operation": operation});
        self.client
            .post(&self.path("/harness-commands"), body)
            .await
    }

    /// Its command state.
    ///
    /// # Panics
    /// It cannot be read.
    pub async fn state(&self) -> Value {
        self.client
            .get(&self.path("/harness-commands"))
            .await
            .ok(200)
    }

    /// A native mode of its command state.
    ///
    /// # Panics
    /// The state cannot be read.
    pub async fn mode(&self, id: &str) -> Option<Value> {
        let state = self.state().await;
        let modes = state["modes"].as_array().unwrap();
        modes.iter().find(|mode| mode["id"] == id).cloned()
    }

    /// Stops what runs.
    ///
    /// # Panics
    /// It is refused.
    pub async fn interrupt(&self) -> bool {
        let answer = self.client.post(&self.path("/interrupt"), json!({})).await;
        answer.ok(200)["interrupted"].as_bool().unwrap()
    }

    /// A whole list below the session.
    ///
    /// # Panics
    /// It cannot be read.
    pub async fn list(&self, rest: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let sign = if rest.contains('?') { '&' } else { '?' };
            let path = self.path(&format!("{rest}{sign}limit=1000{cursor}"));
            let page = self.client.get(&path).await.ok(200);
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }

    /// The saved conversation.
    ///
    /// # Panics
    /// It cannot be read.
    pub async fn messages(&self) -> Vec<Value> {
        self.list("/messages").await
    }

    /// What the harness said, one string a message.
    ///
    /// # Panics
    /// The conversation cannot be read.
    pub async fn said(&self) -> Vec<String> {
        said(&self.messages().await)
    }

    /// The saved conversation of one of its loops.
    ///
    /// # Panics
    /// The conversation cannot be read.
    pub async fn messages_of(&self, loop_id: &str) -> Vec<Value> {
        self.list(&format!("/messages?loop_id={loop_id}")).await
    }

    /// What the harness said in one of its loops, one string a message.
    ///
    /// # Panics
    /// The conversation cannot be read.
    pub async fn said_in(&self, loop_id: &str) -> Vec<String> {
        said(&self.messages_of(loop_id).await)
    }

    /// The public journal.
    ///
    /// # Panics
    /// It cannot be read.
    pub async fn journal(&self) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        let mut from = 1;
        loop {
            let path = self.path(&format!("/journal?from_journal_seq={from}&limit=1000"));
            let page = self.client.get(&path).await.ok(200);
            events.extend(page["events"].as_array().unwrap().iter().cloned());
            if page["done"] == true {
                return events;
            }
            from = page["next_seq"].as_u64().unwrap();
        }
    }

    /// Its event stream.
    ///
    /// # Panics
    /// It cannot be opened.
    pub async fn events(&self, after: Option<u64>) -> Frames {
        let path = match after {
            Some(after) => self.path(&format!("/events?after={after}")),
            None => self.path("/events"),
        };
        self.client.stream(&path, None).await.unwrap()
    }

    /// Waits, by its events, until `wanted` says yes to its row.
    ///
    /// # Panics
    /// That does not happen.
    pub async fn until(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let mut events = self.events(None).await;
        let end = Instant::now() + PATIENCE;
        loop {
            let row = self.row().await;
            if wanted(&row) {
                return row;
            }
            assert!(Instant::now() < end, "not {what}: {row}");
            // An event says when to look again; not every change has one (activities).
            let _ = tokio::time::timeout(Duration::from_millis(500), events.next()).await;
        }
    }

    /// Waits until it has this status.
    ///
    /// # Panics
    /// That does not happen.
    pub async fn until_status(&self, status: &str) -> Value {
        self.until(status, |row| row["status"] == status).await
    }

    /// Waits until nothing runs or waits.
    ///
    /// # Panics
    /// That does not happen.
    pub async fn until_idle(&self) -> Value {
        let live = ["queued", "in_progress", "awaiting_input"];
        self.until("idle", |row| {
            !live.iter().any(|status| row["status"] == *status)
        })
        .await
    }

    /// Waits until a command's turn ended, and returns the terminal event.
    ///
    /// # Panics
    /// That does not happen.
    pub async fn turn_end(&self, command_id: &str) -> Value {
        let mut events = self.events(Some(0)).await;
        let frame = events
            .until(|frame| {
                frame.data["cause"]["command_id"] == command_id
                    && matches!(
                        frame.event.as_str(),
                        "TurnDone"
                            | "TurnFailed"
                            | "TurnInterrupted"
                            | "TurnRejected"
                            | "InputCancelled"
                    )
            })
            .await;
        frame.data
    }

    /// Waits for an open gate.
    ///
    /// # Panics
    /// None opens.
    pub async fn gate(&self) -> Value {
        self.until("a gate", |row| row["open_gates"] != 0).await;
        let gates = self.list("/gates").await;
        gates.first().expect("an open gate").clone()
    }

    /// Answers a gate.
    pub async fn answer(&self, gate: &Value, answer: Value) -> Answer {
        let id = gate["gate_id"].as_str().unwrap_or_default();
        self.client
            .post(&self.path(&format!("/gates/{id}")), answer)
            .await
    }
}

fn said(messages: &[Value]) -> Vec<String> {
    let said = messages
        .iter()
        .filter(|message| message["role"] == "assistant");
    said.map(text_of).collect()
}

/// Text of a message's text parts.
fn text_of(message: &Value) -> String {
    let parts = message["parts"].as_array().unwrap();
    parts
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect()
}

//! One session as a client sees it.

use super::{joined, patient};
use harness_core::abort::AbortSignal;
use harness_core::content::{Block, Message, Part};
use harness_core::gate::{Gate, GateReply};
use harness_core::ids::{CommandId, GateId, SessionId};
use harness_core::operation::Operation;
use harness_core::refusal::Refused;
use harness_core::view::{OperationResult, QueuedInput, SessionView, Status};
use harness_journal::PageRequest;
use harness_session::{
    Caller, Delivery, GateAnswer, Host, InputRequest, Keyed, OperationRequest, SettingsRequest,
};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// A session of a host.
#[derive(Clone)]
pub struct Seat {
    pub host: Host,
    pub id: SessionId,
}

/// The operation of a command text.
pub fn command(text: &str) -> Operation {
    Operation::Command { text: text.into() }
}

/// The code of a refusal, or how it went otherwise.
pub fn code<T: std::fmt::Debug>(result: &Result<T, Refused>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(refused) => refused.code(),
    }
}

/// A caller with an idempotency key.
pub fn fixed_key(key: &str, body: u8) -> Caller {
    let derive = |what: &str| {
        let mut bytes = [0u8; 16];
        let name = format!("{what} {key}");
        for (at, byte) in name.bytes().enumerate() {
            bytes[at % 16] = bytes[at % 16].wrapping_mul(31).wrapping_add(byte);
        }
        Uuid::new_v8(bytes)
    };
    Caller {
        identity: Some("tester".into()),
        key: Some(Keyed {
            command_id: CommandId(derive("command")),
            session_id: SessionId(derive("session")),
            body_sha256: [body; 32],
        }),
    }
}

impl Seat {
    /// Sends a prompt.
    pub async fn prompt(&self, text: &str) -> CommandId {
        self.try_prompt(text).await.unwrap()
    }

    pub async fn try_prompt(&self, text: &str) -> Result<CommandId, Refused> {
        self.prompt_as(Caller::default(), text).await
    }

    pub async fn prompt_as(&self, caller: Caller, text: &str) -> Result<CommandId, Refused> {
        self.submit(caller, text, false, false).await
    }

    pub async fn submit(
        &self,
        caller: Caller,
        text: &str,
        no_fold: bool,
        fold_only: bool,
    ) -> Result<CommandId, Refused> {
        let request = InputRequest {
            blocks: vec![Block::Text { text: text.into() }],
            loop_id: None,
            no_fold,
            fold_only,
        };
        patient("a submit", self.host.submit(self.id, caller, request)).await
    }

    /// Runs an operation in the background.
    pub fn operate(&self, text: &str) -> JoinHandle<Result<OperationResult, Refused>> {
        self.operate_as(Caller::default(), request(text), AbortSignal::never())
    }

    pub fn operate_as(
        &self,
        caller: Caller,
        request: OperationRequest,
        gone: AbortSignal,
    ) -> JoinHandle<Result<OperationResult, Refused>> {
        let (host, id) = (self.host.clone(), self.id);
        tokio::spawn(async move { host.invoke(id, caller, request, gone).await })
    }

    /// The code that an operation is refused with.
    pub async fn refusal(&self, text: &str) -> &'static str {
        code(&joined(self.operate(text)).await)
    }

    /// Presses Stop in the background.
    pub fn stop(&self) -> JoinHandle<Result<bool, Refused>> {
        let (host, id) = (self.host.clone(), self.id);
        tokio::spawn(async move { host.interrupt(id, Caller::default(), None).await })
    }

    /// Presses Stop and waits for its end.
    pub async fn stopped(&self) -> bool {
        joined(self.stop()).await.unwrap()
    }

    pub async fn view(&self) -> SessionView {
        self.host.session(self.id).await.unwrap()
    }

    pub async fn status(&self) -> Status {
        self.view().await.status
    }

    /// Waits until the row says so.
    pub async fn until(&self, status: Status) {
        self.until_row(&format!("{status:?}"), |row| row.status == status)
            .await;
    }

    pub async fn until_row(&self, what: &str, mut holds: impl FnMut(&SessionView) -> bool) {
        let mut rows = self.host.rows();
        patient(what, async {
            while !holds(&self.view().await) {
                let _ = rows.recv().await;
            }
        })
        .await;
    }

    pub async fn queue(&self) -> Vec<QueuedInput> {
        self.host.queue(self.id).await.unwrap()
    }

    /// The one open gate.
    pub async fn gate(&self) -> Gate {
        self.until_row("an open gate", |row| row.open_gates > 0)
            .await;
        let mut gates = self.host.gates(self.id).await.unwrap();
        assert_eq!(gates.len(), 1);
        gates.remove(0).gate
    }

    pub async fn answer(&self, gate_id: GateId, reply: GateReply) -> Result<Delivery, Refused> {
        let answer = GateAnswer { gate_id, reply };
        let answering = self.host.answer(self.id, Caller::default(), answer);
        patient("an answer", answering).await
    }

    pub async fn patch(&self, request: SettingsRequest) -> Result<SessionView, Refused> {
        self.host.patch(self.id, Caller::default(), request).await
    }

    /// Swaps the harness.
    pub async fn swap(&self, agent: harness_core::ids::HarnessId) -> Result<SessionView, Refused> {
        self.patch(SettingsRequest {
            agent: Some(agent),
            ..SettingsRequest::default()
        })
        .await
    }

    /// All public events.
    pub async fn events(&self) -> Vec<serde_json::Value> {
        let page = self.host.journal(self.id, 1, 1000).await.unwrap();
        assert!(page.done);
        let parse = |data: &std::sync::Arc<str>| serde_json::from_str(data).unwrap();
        page.events.iter().map(parse).collect()
    }

    /// Types of all public events, with the word that tells how something ended.
    pub async fn types(&self) -> Vec<String> {
        let word = |event: &serde_json::Value| {
            let kind = event["type"].as_str().unwrap();
            let detail = [&event["outcome"], &event["error"]["code"], &event["reason"]]
                .into_iter()
                .find_map(|v| v.as_str());
            detail.map_or_else(|| kind.to_owned(), |d| format!("{kind}:{d}"))
        };
        self.events().await.iter().map(word).collect()
    }

    /// How many events of a type there are.
    pub async fn count(&self, kind: &str) -> usize {
        let types = self.types().await;
        let same = |t: &&String| t.as_str() == kind || t.starts_with(&format!("{kind}:"));
        types.iter().filter(same).count()
    }

    /// The type of the newest event that ends a turn.
    pub async fn last_end(&self) -> String {
        let ends = ["TurnDone", "TurnFailed", "TurnInterrupted"];
        let types = self.types().await;
        let end = types.iter().rev().find(|t| {
            let name = t.split(':').next().unwrap();
            ends.contains(&name)
        });
        end.cloned().unwrap_or_default()
    }

    /// The saved conversation.
    pub async fn messages(&self) -> Vec<Message> {
        let page = PageRequest {
            limit: 1000,
            cursor: None,
        };
        self.host.messages(self.id, None, page).await.unwrap().items
    }

    /// The saved conversation as text.
    pub async fn texts(&self) -> Vec<String> {
        let text = |m: &Message| {
            let parts = m.parts.iter().map(|p| match p {
                Part::Text { text } => text.clone(),
                other => format!("{other:?}"),
            });
            parts.collect::<String>()
        };
        self.messages().await.iter().map(text).collect()
    }
}

/// A plain request for a command text.
pub fn request(text: &str) -> OperationRequest {
    OperationRequest {
        operation: command(text),
        harness_id: None,
        expected_revision: None,
    }
}

//! Ids, times and content that the golden records are made of.

use harness_core::command::{Agency, Cause, CommandHeader};
use harness_core::content::{Block, Message, NoticeLevel, Part, Role, Usage};
use harness_core::gate::{ApprovalRequest, Choice, Gate, GateAsk, Question, QuestionForm};
use harness_core::ids::{CommandId, GateId, LoopId, MessageId, RunId, SessionId, TurnId};
use harness_core::provider::{ParamValue, Params};
use jiff::Timestamp;
use uuid::Uuid;

/// A recognisable id: its number is its last byte.
pub(crate) fn id<T: From<Uuid>>(n: u8) -> T {
    Uuid::from_u128(0x0195_6c3e_7a10_7c41_8000_0000_0000_0000 | u128::from(n)).into()
}

pub(crate) fn at() -> Timestamp {
    "2026-03-01T09:00:00.25Z".parse().unwrap()
}

pub(crate) fn session() -> SessionId {
    id(1)
}

pub(crate) fn the_loop() -> LoopId {
    id(2)
}

pub(crate) fn turn() -> TurnId {
    id(3)
}

pub(crate) fn run() -> RunId {
    id(4)
}

pub(crate) fn gate() -> GateId {
    id(5)
}

pub(crate) fn command() -> CommandId {
    id(6)
}

pub(crate) fn by_user() -> CommandHeader {
    CommandHeader {
        command_id: command(),
        cause: Cause::default(),
        agency: Agency::User,
        created_at: at(),
        caller: Some("token:alice".into()),
    }
}

pub(crate) fn by_machine() -> CommandHeader {
    CommandHeader {
        command_id: command(),
        cause: Cause {
            command_id: Some(id(7)),
            loop_id: Some(id(8)),
            agency: None,
        },
        agency: Agency::Machine,
        created_at: at(),
        caller: None,
    }
}

pub(crate) fn blocks() -> Vec<Block> {
    vec![
        Block::Text {
            text: "Check  the\n\"tree\" \u{1F333}. ".into(),
        },
        Block::File {
            name: "notes.md".into(),
            media_type: "text/markdown".into(),
            uri: "docs/notes.md".into(),
        },
    ]
}

pub(crate) fn params() -> Params {
    [
        ("effort".to_owned(), ParamValue::Text("high".into())),
        ("verbose".to_owned(), ParamValue::Boolean(true)),
    ]
    .into()
}

pub(crate) fn usage() -> Usage {
    Usage {
        input_tokens: 120,
        output_tokens: 45,
        context_used: Some(165),
        context_size: Some(200_000),
    }
}

/// One message with every kind of part.
pub(crate) fn message(turn_id: Option<TurnId>) -> Message {
    let text = || "text".to_owned();
    Message {
        id: id::<MessageId>(9),
        role: Role::Assistant,
        turn_id,
        created_at: at(),
        parts: vec![
            Part::Text { text: text() },
            Part::Reasoning { text: text() },
            Part::Code {
                language: Some("rust".into()),
                text: text(),
            },
            Part::Plan { text: text() },
            Part::ToolCall {
                id: "call-1".into(),
                name: "shell".into(),
                input_json: "{\"cmd\":\"ls\"}".into(),
            },
            Part::ToolResult {
                id: "call-1".into(),
                output: "Cargo.toml".into(),
                is_error: false,
            },
            Part::File {
                name: "a.png".into(),
                media_type: "image/png".into(),
                uri: "data:image/png;base64,AA==".into(),
            },
            Part::Notice {
                level: NoticeLevel::Warning,
                text: text(),
            },
        ],
    }
}

pub(crate) fn permission() -> GateAsk {
    GateAsk::Permission(ApprovalRequest {
        title: "Run ls".into(),
        tool_name: "shell".into(),
        tool_input: "{\"cmd\":\"ls\"}".into(),
        tool_use_id: "call-1".into(),
        rules: vec!["shell:ls".into()],
    })
}

pub(crate) fn form() -> GateAsk {
    GateAsk::AskUser(QuestionForm {
        id: "form-1".into(),
        title: "Which way".into(),
        questions: vec![
            Question {
                id: "way".into(),
                label: "Way".into(),
                description: Some("Left or right".into()),
                choices: vec![Choice {
                    value: "left".into(),
                    label: "Left".into(),
                    description: None,
                }],
                multiple: false,
                custom: true,
                secret: false,
            },
            Question {
                id: "key".into(),
                label: "Key".into(),
                description: None,
                choices: Vec::new(),
                multiple: false,
                custom: true,
                secret: true,
            },
        ],
    })
}

pub(crate) fn open_gate(ask: GateAsk, turn_id: Option<TurnId>) -> Gate {
    Gate {
        gate_id: gate(),
        ask,
        loop_id: the_loop(),
        turn_id,
        tool_execution_id: id(10),
        opened_at: at(),
    }
}

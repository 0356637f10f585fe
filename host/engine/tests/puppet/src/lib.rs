//! A provider that does what it is told, well-behaved or not.
//!
//! Scripts (see [`script`]) come in the text of a prompt (`start | turn`; a text without `|` is all
//! turn), in the text of a command (`prepare | invoke | turn`), in the model of a discovery, or in
//! the configuration under `run`, `detect` and `compact`.

wit_bindgen::generate!({ path: "../../../../wit", world: "harness-provider", generate_all });

mod kept;
mod script;

use exports::harness::provider::provider::{
    Execution, Guest, GuestPrepared, GuestSession, Invocation, Prepared, Session, StartedTurn,
};
use harness::provider::host::{self, AbortSignal, Channel, Discovery, Link, Preparation};
use harness::provider::types::*;
use script::{Said, Stage, spin};

struct Puppet;

struct Ready {
    steps: Vec<String>,
    execution: Execution,
}

impl Ready {
    fn script(&self, n: usize) -> &str {
        self.steps.get(n).map_or("", String::as_str)
    }
}

struct Turn {
    script: String,
    channel: Channel,
}

impl GuestPrepared for Ready {
    fn execution(&self) -> Execution {
        if self.script(0) == "slow-execution" {
            spin();
        }
        self.execution
    }
}

impl GuestSession for Turn {}

fn setting(key: &str) -> String {
    host::config()
        .into_iter()
        .find(|(k, _)| k == key)
        .map(|(_, v)| v)
        .unwrap_or_default()
}

async fn in_channel(script: &str, channel: &Channel) -> Result<Said, Error> {
    let abort = channel.abort();
    Stage {
        channel: Some(channel),
        link: None,
        abort: &abort,
    }
    .play(script)
    .await
}

async fn without_channel(script: &str, abort: &AbortSignal) -> Result<Said, Error> {
    Stage {
        channel: None,
        link: None,
        abort,
    }
    .play(script)
    .await
}

/// Uses a channel whose invocation is over, and tells what every function answered.
async fn use_kept_channel() -> String {
    let Some((channel, abort)) = kept::take_channel() else {
        return "none kept".into();
    };
    let message = Message {
        role: Role::Assistant,
        parts: vec![MessagePart::Text("late".into())],
    };
    let appended = channel.append(message).await;
    channel.touch();
    channel.withdraw("x");
    channel.report_usage(Usage {
        input_tokens: 0,
        output_tokens: 0,
        context_used: None,
        context_size: None,
    });
    let waited = abort.wait().await;
    let opened = channel.open_message(Role::User).await.map(drop);
    let session = channel.context().session_id.len();
    format!(
        "{appended:?} {waited:?} {:?} {opened:?} {session}",
        abort.aborted()
    )
}

impl Guest for Puppet {
    type Prepared = Ready;
    type Session = Turn;

    fn describe() -> HarnessInfo {
        let id = match setting("describe").as_str() {
            "spin" => spin(),
            "trap" => panic!("told to trap"),
            "bad" => "Not An Id",
            _ => "test/puppet",
        };
        let timeout = match setting("timeout").as_str() {
            "provider" => TimeoutStrategy::Provider,
            _ => TimeoutStrategy::Activity,
        };
        HarnessInfo {
            id: id.into(),
            label: "Puppet".into(),
            version: "1".into(),
            models: vec![],
            loop_modes: vec![],
            params: vec![],
            workspace: WorkspaceNeed::None,
            timeout,
            features: Features::COMMANDS | Features::NATIVE_TURNS,
        }
    }

    async fn run(link: Link) -> Result<(), Error> {
        let abort = link.abort();
        if link.context().session_id.is_some() {
            Stage {
                channel: None,
                link: Some(&link),
                abort: &abort,
            }
            .play(&setting("run"))
            .await?;
            if setting("deafrun") == "yes" {
                loop {
                    host::sleep_ms(20).await;
                }
            }
        }
        abort.wait().await;
        Ok(())
    }

    async fn detect(request: Discovery) -> Result<Readiness, Error> {
        without_channel(&setting("detect"), &request.abort()).await?;
        let compatibility = match setting("compat").as_str() {
            "no" => Compatibility::Incompatible("too old".into()),
            _ => Compatibility::Supported,
        };
        Ok(Readiness {
            native_version: Some("9".into()),
            compatibility,
            models: vec![],
        })
    }

    async fn get_command_state(request: Discovery) -> Result<Option<CommandState>, Error> {
        let script = request.context().model.unwrap_or_default();
        Ok(without_channel(&script, &request.abort()).await?.state)
    }

    async fn prepare_operation(
        request: Preparation,
        operation: Operation,
    ) -> Result<Prepared, Error> {
        let Operation::Command(text) = operation else {
            return Err(Error::Unsupported("mode actions".into()));
        };
        let steps: Vec<String> = text.split('|').map(str::to_owned).collect();
        let first = steps.first().map_or("", String::as_str);
        let execution = if first == "exclusive" {
            Execution::Exclusive
        } else {
            Execution::Control
        };
        if !matches!(first, "exclusive" | "slow-execution") {
            without_channel(first, &request.abort()).await?;
        }
        Ok(Prepared::new(Ready { steps, execution }))
    }

    fn discard(prepared: Prepared) {
        if prepared.into_inner::<Ready>().script(1) == "spin-in-discard" {
            spin();
        }
        kept::discarded();
    }

    async fn invoke(
        prepared: Prepared,
        command_id: String,
        channel: Channel,
    ) -> Result<Invocation, Error> {
        let ready = prepared.into_inner::<Ready>();
        let mut said = match ready.script(1) {
            "keep-channel" => {
                kept::channel(channel);
                return Ok(Invocation::Completed(Outcome {
                    message: None,
                    params: vec![],
                }));
            }
            "use-kept-channel" => Said {
                message: Some(use_kept_channel().await),
                ..Said::default()
            },
            script => in_channel(script, &channel).await?,
        };
        if said.message.as_deref() == Some("id") {
            said.message = Some(command_id);
        }
        if said.started {
            let session = Session::new(Turn {
                script: ready.script(2).into(),
                channel,
            });
            return Ok(Invocation::Started(StartedTurn {
                session,
                params: said.params,
            }));
        }
        Ok(Invocation::Completed(Outcome {
            message: said.message,
            params: said.params,
        }))
    }

    async fn start_prompt(input: Input, channel: Channel) -> Result<Session, Error> {
        let Some(MessagePart::Text(text)) = input.parts.first() else {
            return Err(Error::Unsupported("it takes text".into()));
        };
        let (start, turn) = text.split_once('|').unwrap_or(("", text));
        in_channel(start, &channel).await?;
        Ok(Session::new(Turn {
            script: turn.into(),
            channel,
        }))
    }

    async fn adopt_turn(
        id: String,
        _command_id: String,
        channel: Channel,
    ) -> Result<Session, Error> {
        Ok(Session::new(Turn {
            script: format!("say adopted {id}"),
            channel,
        }))
    }

    async fn done(session: Session) -> Result<Outcome, Error> {
        let turn = session.into_inner::<Turn>();
        let said = in_channel(&turn.script, &turn.channel).await;
        kept::done();
        let said = said?;
        Ok(Outcome {
            message: said.message,
            params: said.params,
        })
    }

    async fn compact(_command_id: String, channel: Channel) -> Result<Compaction, Error> {
        in_channel(&setting("compact"), &channel).await?;
        Ok(Compaction {
            summary: Some("short".into()),
            usage: None,
        })
    }
}

export!(Puppet);

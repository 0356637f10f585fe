//! Scripts: steps separated by `;`, each a verb and one argument, played in order.

use crate::harness::provider::host::{self, AbortSignal, Channel, Link};
use crate::harness::provider::http::{self, HttpRequest};
use crate::harness::provider::process::Process;
use crate::harness::provider::state;
use crate::harness::provider::types::*;
use crate::kept;
use futures::FutureExt;

/// What a script leaves behind.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) message: Option<String>,
    pub(crate) params: Vec<Param>,
    pub(crate) state: Option<CommandState>,
    pub(crate) started: bool,
}

/// What a script may use.
pub(crate) struct Stage<'a> {
    pub(crate) channel: Option<&'a Channel>,
    pub(crate) link: Option<&'a Link>,
    pub(crate) abort: &'a AbortSignal,
}

/// Computes for ever without yielding.
pub(crate) fn spin() -> ! {
    let mut n = 0u64;
    loop {
        n = std::hint::black_box(n.wrapping_add(1));
    }
}

fn text(text: String) -> Message {
    Message {
        role: Role::Assistant,
        parts: vec![MessagePart::Text(text)],
    }
}

fn log(text: String) {
    host::log(LogLevel::Info, &text);
}

fn approval() -> ApprovalRequest {
    ApprovalRequest {
        tool_use_id: "t".into(),
        tool_name: "n".into(),
        input_json: "{}".into(),
        title: "t".into(),
        rules: vec![],
    }
}

fn turn(n: usize) -> NativeTurn {
    NativeTurn {
        id: format!("t{n}"),
        start: TurnStart::Running,
        reason: "goal".into(),
        cause: None,
    }
}

fn limited<T>(results: &[Result<T, ChannelError>]) -> usize {
    results
        .iter()
        .filter(|r| matches!(r, Err(ChannelError::Limit(_))))
        .count()
}

impl Stage<'_> {
    pub(crate) async fn play(&self, script: &str) -> Result<Said, Error> {
        let mut said = Said::default();
        for step in script
            .split(';')
            .map(str::trim_start)
            .filter(|s| !s.is_empty())
        {
            let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
            self.step(verb, rest, &mut said).await?;
        }
        Ok(said)
    }

    fn channel(&self) -> &Channel {
        self.channel.expect("this step needs a channel")
    }

    fn link(&self) -> &Link {
        self.link.expect("this step needs the link")
    }

    async fn say(&self, line: String) -> Result<(), Error> {
        self.channel()
            .append(text(line))
            .await
            .map_err(Error::Channel)
    }

    async fn step(&self, verb: &str, rest: &str, said: &mut Said) -> Result<(), Error> {
        let n: usize = rest.trim().parse().unwrap_or(0);
        match verb {
            "nothing" => {}
            // The conversation.
            "say" => self.say(rest.into()).await?,
            "big" => {
                if let Err(refused) = self.channel().append(text("x".repeat(n))).await {
                    self.say(format!("{refused:?}")).await?;
                }
            }
            "huge" => drop(self.channel().append(text("x".repeat(n << 20))).await),
            "stream" | "floodsink" => {
                let writer = self
                    .channel()
                    .open_message(Role::Assistant)
                    .await
                    .map_err(Error::Channel)?;
                if verb == "floodsink" {
                    loop {
                        writer
                            .delta(MessagePart::Text("x".repeat(n)))
                            .await
                            .map_err(Error::Channel)?;
                    }
                }
                for i in 0..n {
                    writer
                        .delta(MessagePart::Text(format!("{i} ")))
                        .await
                        .map_err(Error::Channel)?;
                    host::sleep_ms(10).await;
                }
                writer.finish().await.map_err(Error::Channel)?;
            }
            "ask" => {
                let form = QuestionForm {
                    id: "f".into(),
                    title: "t".into(),
                    questions: vec![],
                };
                let answer = self.channel().ask(form).await.map_err(Error::Channel)?;
                self.say(format!("{answer:?}")).await?;
            }
            "approve" => {
                let answer = self
                    .channel()
                    .request_approval(approval())
                    .await
                    .map_err(Error::Channel)?;
                self.say(format!("{answer:?}")).await?;
            }
            "dropask" => drop(self.channel().request_approval(approval()).now_or_never()),
            "touch" => {
                for _ in 0..n {
                    host::sleep_ms(50).await;
                    self.channel().touch();
                }
            }
            "bind" => self
                .channel()
                .bind_native_session(rest.into())
                .await
                .map_err(Error::Channel)?,
            "take" => {
                let inputs = self.channel().take_input().await.map_err(Error::Channel)?;
                self.say(format!("took {}", inputs.len())).await?;
            }
            "ready" => {
                let ready = self.channel().input_ready().await.map_err(Error::Channel)?;
                self.say(format!("ready {ready}")).await?;
            }
            "dropready" => drop(self.channel().input_ready().now_or_never()),
            "pending" => {
                let all =
                    futures::future::join_all((0..n).map(|_| self.channel().input_ready())).await;
                said.message = Some(format!("{} limited", limited(&all)));
            }
            "history" => {
                let history = self.channel().history(10).await.map_err(Error::Channel)?;
                self.say(format!("history {}", history.len())).await?;
            }
            "usage" => self.channel().report_usage(Usage {
                input_tokens: 1,
                output_tokens: 2,
                context_used: None,
                context_size: None,
            }),
            "context" => {
                let context = self.channel().context();
                self.say(format!("{} {:?}", context.session_id, context.model))
                    .await?;
            }
            // The answer.
            "reply" => said.message = Some("x".repeat(n)),
            "message" => said.message = Some(rest.into()),
            "counts" => said.message = Some(kept::counts()),
            "param" => said.params.push(Param {
                id: rest.into(),
                value: ParamValue::Boolean(true),
            }),
            "state" => said.state = Some(commands(n)),
            "started" => said.started = true,
            "refuse" => return Err(Error::Native("x".repeat(n))),
            "cancelled" => return Err(Error::Cancelled),
            "disconnected" => return Err(Error::Disconnected("told to".into())),
            "stale" => return Err(Error::StaleRevision("old".into())),
            // Time.
            "sleep" => host::sleep_ms(n as u32).await,
            "wait" => {
                let reason = self.abort.wait().await;
                log(format!("aborted {reason:?}"));
                return Err(Error::Cancelled);
            }
            "sleepcancel" => {
                let (sleep, aborted) = (host::sleep_ms(60_000).fuse(), self.abort.wait().fuse());
                futures::pin_mut!(sleep, aborted);
                futures::select! { _ = sleep => {}, _ = aborted => return Err(Error::Cancelled) }
            }
            "thread-sleep" => {
                let start = std::time::Instant::now();
                while start.elapsed().as_millis() < n as u128 {
                    std::thread::sleep(std::time::Duration::from_millis(n as u64));
                }
            }
            "wasi" => said.message = Some(reach_through_wasi()),
            // Misbehaviour.
            "spin" => spin(),
            "spin0" => loop {
                host::sleep_ms(0).await;
            },
            "yieldspin" => loop {
                for _ in 0..20_000 {
                    std::hint::black_box(self.abort.aborted());
                }
                wit_bindgen::yield_async().await;
            },
            "deaf" => loop {
                host::sleep_ms(20).await;
            },
            "trap" => panic!("told to trap"),
            "exit" => std::process::exit(3),
            "bomb" => loop {
                kept::memory(1);
            },
            "alloc" => kept::memory(n),
            "handles" => loop {
                kept::abort(self.channel().abort());
            },
            "own-handles" => loop {
                kept::forget_a_resource();
            },
            // Output.
            "log" => (0..n).for_each(|i| log(format!("line {i} {}", "x".repeat(80)))),
            "print" => println!("{rest}"),
            "eprint" => (0..n).for_each(|_| eprintln!("{}", "x".repeat(100))),
            // The link.
            "changed" => host::state_changed(),
            "announce" => {
                for i in 0..n {
                    let answer = self.link().announce_turn(turn(i)).await;
                    log(format!("announce {answer:?}"));
                }
            }
            "announceflood" => {
                let all =
                    futures::future::join_all((0..n).map(|i| self.link().announce_turn(turn(i))))
                        .await;
                log(format!("{} limited of {n}", limited(&all)));
            }
            "linksay" => log(format!(
                "append {:?}",
                self.link().append(text(rest.into())).await
            )),
            "activity" => kept::activity(self.link().begin_activity(rest).map_err(Error::Channel)?),
            // Grants.
            "set" => {
                let value = rest.as_bytes().to_vec();
                state::set(state::Scope::Session, "k".into(), value)
                    .await
                    .map_err(Error::Channel)?;
            }
            "setbig" => {
                state::set(state::Scope::Provider, "k".into(), vec![0; n])
                    .await
                    .map_err(Error::Channel)?;
            }
            "get" => {
                let value = state::get(state::Scope::Session, "k".into())
                    .await
                    .map_err(Error::Channel)?;
                said.message = value.map(|v| String::from_utf8_lossy(&v).into_owned());
            }
            "spawn" => kept::process(spawn(rest, None).await?),
            "cat" => said.message = Some(cat(rest, self.abort).await?),
            "fetch" => said.message = Some(fetch(rest, self.abort).await),
            other => return Err(Error::InvalidOperation(format!("no step `{other}`"))),
        }
        Ok(())
    }
}

fn commands(n: usize) -> CommandState {
    let command = |i| Command {
        name: format!("/c{i}"),
        description: String::new(),
        argument_help: None,
        composer: None,
        disabled_reason: None,
    };
    CommandState {
        commands: (0..n).map(command).collect(),
        modes: vec![],
        slash_commands: true,
        note: None,
    }
}

async fn spawn(program: &str, abort: Option<&AbortSignal>) -> Result<Process, Error> {
    Process::spawn(program.into(), None, abort)
        .await
        .map_err(|e| Error::Native(format!("{e:?}")))
}

/// Sends `text` through the granted program `cat` and tells what came back and how it ended.
async fn cat(text: &str, abort: &AbortSignal) -> Result<String, Error> {
    let failed = |e| Error::Native(format!("{e:?}"));
    let process = spawn("cat", Some(abort)).await?;
    let (mut out, end) = process.stdout();
    process
        .write_stdin(text.as_bytes().to_vec())
        .await
        .map_err(failed)?;
    process.close_stdin();
    let mut got = Vec::new();
    loop {
        let (_, bytes) = out.read(Vec::with_capacity(1024)).await;
        if bytes.is_empty() {
            break;
        }
        got.extend(bytes);
    }
    let why = end.await;
    let code = process.wait().await;
    Ok(format!(
        "{} {why:?} {code:?}",
        String::from_utf8_lossy(&got)
    ))
}

/// Fetches `url` and tells the answer.
async fn fetch(url: &str, abort: &AbortSignal) -> String {
    let request = HttpRequest {
        method: "GET".into(),
        url: url.into(),
        headers: vec![],
        body: vec![],
        timeout_ms: None,
    };
    match http::fetch(request, Some(abort)).await {
        Err(refused) => format!("{refused:?}"),
        Ok(response) => {
            let (mut body, mut got) = (response.body, Vec::new());
            loop {
                let (_, bytes) = body.read(Vec::with_capacity(1024)).await;
                if bytes.is_empty() {
                    break;
                }
                got.extend(bytes);
            }
            format!(
                "{} {} {:?}",
                response.status,
                String::from_utf8_lossy(&got),
                response.done.await
            )
        }
    }
}

/// Tries everything that WASI could offer, and tells what worked.
fn reach_through_wasi() -> String {
    use std::io::Read;
    let mut input = Vec::new();
    let read = std::io::stdin()
        .take(1)
        .read_to_end(&mut input)
        .unwrap_or(0);
    let file = std::fs::File::open("/etc/passwd").is_ok();
    let directory = std::fs::read_dir(".").is_ok();
    let tcp = std::net::TcpStream::connect("127.0.0.1:22").is_ok();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").is_ok();
    let variables = std::env::vars().count();
    format!(
        "{variables} variables, {read} bytes of input, file {file}, directory {directory}, tcp {tcp}, udp {udp}"
    )
}

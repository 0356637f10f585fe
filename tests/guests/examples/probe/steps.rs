//! What each step does.

use crate::script::Script;
use crate::{Probe, view};
use futures::future::{Either, select};
use harness_guest::prelude::*;
use harness_guest::task::{sleep, spawn};
use std::pin::pin;
use std::time::Duration;

fn ms(text: &str) -> Duration {
    Duration::from_millis(text.trim().parse().unwrap_or(0))
}

fn number(text: &str) -> usize {
    text.trim().parse().unwrap_or(0)
}

fn log(line: &str) {
    harness_guest::telemetry::log(LogLevel::Info, line);
}

/// `kind text` as a refusal.
fn failure(arguments: &str) -> Error {
    let (kind, text) = arguments
        .split_once(' ')
        .unwrap_or((arguments, "refused for the test"));
    let text = text.to_owned();
    match kind {
        "invalid" => Error::InvalidOperation(text),
        "not-allowed" => Error::NotAllowed(text),
        "stale" => Error::StaleRevision(text),
        "unsupported" => Error::Unsupported(text),
        "unavailable" => Error::Unavailable(text),
        "disconnected" => Error::Disconnected(text),
        "cancelled" => Error::Cancelled,
        "channel" => Error::Channel(ChannelError::Failed(text)),
        "stopped" => Error::Channel(ChannelError::Stopped),
        _ => Error::Native(text),
    }
}

fn split(step: &str) -> (&str, &str) {
    step.split_once(' ').unwrap_or((step, ""))
}

/// Steps of a preparation: only those without a channel.
pub async fn prepare(steps: &[String], request: &Preparation) -> Result<(), Error> {
    for step in steps {
        let (word, arguments) = split(step);
        match word {
            "sleep" => sleep(ms(arguments)).await,
            "deaf" => {
                let _deaf = request.hold();
                sleep(ms(arguments)).await;
            }
            "fail" => return Err(failure(arguments)),
            "trap" => panic!("the probe traps in preparation, as asked"),
            "spin" => guests::spin(),
            "log" => log(arguments),
            _ => return Err(Error::InvalidOperation(format!("no step {word:?} here"))),
        }
    }
    Ok(())
}

/// Steps of everything that has a channel.
pub async fn run(probe: &Probe, steps: &[String], channel: &Channel) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    // While one is alive, an abort does not end the steps.
    let mut held = Vec::new();
    for step in steps {
        let (word, arguments) = split(step);
        let reply = match word {
            "reply" => Some(arguments.to_owned()),
            "raw" => {
                outcome.message = Some(arguments.to_owned());
                None
            }
            "params" => {
                outcome.params.extend(params(arguments));
                None
            }
            "hold" => {
                held.push(channel.hold());
                None
            }
            _ => step_of_channel(probe, word, arguments, channel).await?,
        };
        if let Some(reply) = reply {
            channel.say(reply.clone()).await?;
            outcome.message = Some(reply);
        }
    }
    Ok(outcome)
}

fn params(arguments: &str) -> Vec<Param> {
    arguments
        .split(',')
        .filter_map(|pair| pair.trim().split_once('='))
        .map(|(id, value)| match value {
            "true" => Param::boolean(id, true),
            "false" => Param::boolean(id, false),
            text => Param::text(id, text),
        })
        .collect()
}

/// A step's own reply, if it has one.
async fn step_of_channel(
    probe: &Probe,
    word: &str,
    arguments: &str,
    channel: &Channel,
) -> Result<Option<String>, Error> {
    match word {
        "say" => channel.say(arguments).await?,
        "stream" => stream(arguments, channel).await?,
        "sleep" => sleep(ms(arguments)).await,
        "touch" => channel.touch(),
        "deaf" => {
            let _deaf = channel.hold();
            sleep(ms(arguments)).await;
        }
        "wait-abort" => {
            let _until_it_comes = channel.hold();
            let reason = channel.abort().wait().await;
            log(&format!("aborted: {reason:?}"));
        }
        "bind" => channel.bind_native_session(arguments).await?,
        // After an abort the id cannot be told any more; the turn is returned all
        // the same.
        "bind-late" => drop(channel.bind_native_session(arguments).await),
        "history" => {
            let saved = channel.history(10_000).await?.len();
            return Ok(Some(saved.to_string()));
        }
        "context" => return Ok(Some(view::operation_json(&channel.context()))),
        "command-id" => return Ok(Some(channel.command_id().to_owned())),
        "ask" | "ask-secret" | "ask-many" => return ask(word, arguments, channel).await.map(Some),
        "ask-drop" => return ask_drop(arguments, channel).await.map(Some),
        "approve" => return approve(arguments, channel).await.map(Some),
        "usage" => channel.report_usage(Usage {
            input_tokens: 10,
            output_tokens: 20,
            context_used: Some(30),
            context_size: Some(1_000),
        }),
        "input-ready" => {
            let ready = channel.input_ready();
            return Ok(Some(
                match select(pin!(ready), pin!(sleep(ms(arguments)))).await {
                    Either::Left((ready, _)) => format!("ready: {ready:?}"),
                    Either::Right(_) => "dropped".to_owned(),
                },
            ));
        }
        "take-input" => {
            let inputs = channel.take_input().await?;
            let texts = inputs
                .iter()
                .map(|input| harness_guest::input_text(&input.parts));
            let texts: Vec<String> = texts.collect();
            return Ok(Some(format!("took {}: {}", texts.len(), texts.join(", "))));
        }
        "oversize" => {
            let text = MessagePart::Text("o".repeat(number(arguments)));
            let parts = vec![text];
            let role = Role::Assistant;
            let answer = channel.append(Message { role, parts }).await;
            return Ok(Some(match answer {
                Ok(()) => "accepted".to_owned(),
                Err(ChannelError::Limit(_)) => "limit".to_owned(),
                Err(other) => format!("{other:?}"),
            }));
        }
        "late-say" => {
            let (channel, (after, text)) = (channel.clone(), split(arguments));
            let (after, text) = (ms(after), text.to_owned());
            spawn(async move {
                sleep(after).await;
                log(&format!("late-say: {:?}", channel.say(text).await));
            });
        }
        "log" => log(arguments),
        "fail" => return Err(failure(arguments)),
        "trap" => panic!("the probe traps, as asked"),
        "spin" => guests::spin(),
        _ => return step_of_instance(probe, word, arguments, channel).await,
    }
    Ok(None)
}

/// Steps about the instance rather than the call.
async fn step_of_instance(
    probe: &Probe,
    word: &str,
    arguments: &str,
    channel: &Channel,
) -> Result<Option<String>, Error> {
    let link = || {
        let link = probe.memory.with(|memory| memory.link.clone());
        link.ok_or_else(|| Error::Native("run was not called".to_owned()))
    };
    match word {
        "state-changed" => harness_guest::state_changed(),
        "counter" => {
            let counted = probe
                .memory
                .with(|memory| memory.counters.get(arguments).copied());
            return Ok(Some(counted.unwrap_or(0).to_string()));
        }
        "switch-next" => {
            probe.memory.with(|memory| memory.switch += 1);
            harness_guest::state_changed();
        }
        "switch-set" => {
            let value = arguments.parse().unwrap_or(0);
            probe.memory.with(|memory| memory.switch = value);
            harness_guest::state_changed();
        }
        "activity" => {
            let activity = link()?.begin_activity(arguments)?;
            let (memory, label, abort) =
                (probe.memory.clone(), arguments.to_owned(), activity.abort());
            memory.with(|memory| memory.activities.push((label.clone(), activity)));
            spawn(async move {
                let reason = abort.wait().await;
                log(&format!("activity {label}: {reason:?}"));
                memory.with(|memory| memory.activities.retain(|(open, _)| *open != label));
            });
        }
        "activity-end" => probe
            .memory
            .with(|memory| memory.activities.retain(|(open, _)| open != arguments)),
        "link-say" => {
            let parts = vec![MessagePart::Text(arguments.to_owned())];
            let role = Role::Assistant;
            link()?.append(Message { role, parts }).await?;
        }
        // announce ID running|wanted AFTER-MS turn-step, turn-step
        "announce" => announce(probe, link()?, arguments, channel)?,
        _ => return Err(Error::InvalidOperation(format!("no step {word:?}"))),
    }
    Ok(None)
}

fn announce(probe: &Probe, link: Link, arguments: &str, channel: &Channel) -> Result<(), Error> {
    let words: Vec<&str> = arguments.splitn(4, ' ').collect();
    let [id, start, after, steps] = words.as_slice() else {
        return Err(Error::InvalidOperation(
            "announce ID running|wanted MS STEPS".to_owned(),
        ));
    };
    let turn = NativeTurn {
        id: (*id).to_owned(),
        start: if *start == "wanted" {
            TurnStart::Wanted
        } else {
            TurnStart::Running
        },
        reason: "probe".to_owned(),
        cause: Some(channel.command_id().to_owned()),
    };
    let (id, after, script) = (
        turn.id.clone(),
        ms(after),
        Script::turn(&steps.replace(',', ";")),
    );
    let memory = probe.memory.clone();
    memory.with(|memory| memory.native.insert(id.clone(), script));
    spawn(async move {
        sleep(after).await;
        let answer = link.announce_turn(turn).await;
        log(&format!("announce {id}: {answer:?}"));
        if answer.is_err() {
            memory.with(|memory| memory.native.remove(&id));
        }
    });
    Ok(())
}

/// `N MS [TEXT]`: N deltas, MS apart.
async fn stream(arguments: &str, channel: &Channel) -> Result<(), Error> {
    let (count, rest) = split(arguments);
    let (pause, text) = split(rest);
    let writer = channel.open_message(Role::Assistant).await?;
    for n in 1..=number(count) {
        let text = if text.is_empty() {
            format!("{n} ")
        } else {
            text.to_owned()
        };
        writer.text(text).await?;
        if ms(pause) > Duration::ZERO {
            sleep(ms(pause)).await;
        }
    }
    writer.finish().await?;
    Ok(())
}

fn form(word: &str, id: &str) -> QuestionForm {
    let choice = |value: &str| Choice {
        value: value.to_owned(),
        label: value.to_owned(),
        description: None,
    };
    let question = |id: &str, multiple, custom| Question {
        id: id.to_owned(),
        label: id.to_owned(),
        description: None,
        choices: vec![choice("yes"), choice("no")],
        multiple,
        custom,
        secret: word == "ask-secret",
    };
    let questions = match word {
        "ask-many" => vec![
            question("one", false, false),
            question("several", true, false),
            question("free", false, true),
        ],
        _ => vec![question("first", false, true)],
    };
    QuestionForm {
        id: id.to_owned(),
        title: "The probe asks".to_owned(),
        questions,
    }
}

async fn ask(word: &str, id: &str, channel: &Channel) -> Result<String, Error> {
    Ok(match channel.ask(form(word, id)).await? {
        // A secret must not come back in the conversation.
        FormAnswer::Submitted(_) if word == "ask-secret" => "answered".to_owned(),
        FormAnswer::Submitted(answers) => format!("answered {answers:?}"),
        FormAnswer::Dismissed => "dismissed".to_owned(),
        FormAnswer::Timeout => "timeout".to_owned(),
    })
}

/// `ID MS`: asks, and drops the question after MS.
async fn ask_drop(arguments: &str, channel: &Channel) -> Result<String, Error> {
    let (id, after) = split(arguments);
    let ask = channel.ask(form("ask", id));
    Ok(match select(pin!(ask), pin!(sleep(ms(after)))).await {
        Either::Left((answer, _)) => format!("{answer:?}"),
        Either::Right(_) => "withdrawn".to_owned(),
    })
}

/// `ID [RULE]`
async fn approve(arguments: &str, channel: &Channel) -> Result<String, Error> {
    let (id, rule) = split(arguments);
    let rules = (!rule.is_empty()).then(|| rule.to_owned());
    let decision = channel
        .request_approval(ApprovalRequest {
            tool_use_id: id.to_owned(),
            tool_name: "tool".to_owned(),
            input_json: "{}".to_owned(),
            title: "May the probe?".to_owned(),
            rules: rules.into_iter().collect(),
        })
        .await?;
    Ok(match decision {
        ApprovalDecision::ApproveOnce => "once".to_owned(),
        ApprovalDecision::ApproveAlways => "always".to_owned(),
        ApprovalDecision::Deny(reason) => format!("deny {reason:?}"),
        ApprovalDecision::Timeout => "timeout".to_owned(),
    })
}

//! What a turn does, from its first word to its end.
//!
//! Nothing runs anywhere else, so an abort may drop a turn at any await: what it
//! changes, it changes in one step at its end.

use crate::background;
use crate::delegate;
use crate::goal::Step;
use crate::prompt::{HELP, Prompt};
use crate::settings::settings;
use crate::store::Store;
use futures::future::{Either, select};
use harness_guest::background::Process;
use harness_guest::prelude::*;
use harness_guest::task::sleep;
use std::pin::pin;
use std::time::Duration;

/// A started turn.
#[derive(Debug)]
pub enum Turn {
    /// Of a prompt.
    Prompt(Prompt),
    /// Of what a delegate answered in the background.
    HandBack(String),
    /// Of `/work`, in seconds.
    Work(u32),
    /// Of `/plan <objective>`.
    Plan(String),
    /// Of an approval: the plan.
    Approved(String),
    /// Of a goal, autonomous.
    Step(Step),
    /// That tells of the end of a background process.
    Ended(Process),
}

/// Binds the session to the native conversation that the demo pretends to have.
///
/// # Errors
///
/// As [`Channel::bind_native_session`].
pub async fn bind(channel: &Channel) -> Result<(), Error> {
    let context = channel.context();
    if context.native_session_id.is_none() {
        let id = format!("planner-{}", context.loop_id);
        channel.bind_native_session(id).await?;
    }
    Ok(())
}

impl Turn {
    /// Runs the turn to its end.
    ///
    /// # Errors
    ///
    /// What the conversation, a person or the prompt `demo:fail` makes of it.
    pub async fn run(self, store: &Store, channel: &Channel) -> Result<Outcome, Error> {
        match self {
            Self::Prompt(prompt) => run_prompt(prompt, channel).await?,
            Self::HandBack(text) => {
                let quote = harness_guest::limits::shorten(text.trim(), 4_096);
                stream(&format!("A delegate came back: “{quote}”."), channel).await?;
            }
            Self::Work(seconds) => count(seconds, "Working", channel).await?,
            Self::Plan(objective) => return plan(objective, store, channel).await,
            Self::Approved(plan) => carry_out(&plan, channel).await?,
            Self::Ended(process) => background::tell(&process, channel).await?,
            Self::Step(step) => return run_step(step, store, channel).await,
        }
        remember_turn(store, channel).await?;
        Ok(Outcome::default())
    }
}

/// Forgets the turns of the native context and says in a sentence what they were.
///
/// # Errors
///
/// The state cannot be written.
pub async fn compact(store: &Store, channel: &Channel) -> Result<Compaction, Error> {
    let _whole = channel.hold();
    let turns = store
        .change(|native| Ok(std::mem::take(&mut native.context_turns)))
        .await?;
    let summary = format!("Summary of the demo: {turns} turns came before this.");
    Ok(Compaction {
        summary: Some(summary),
        usage: None,
    })
}

/// The context grows by one turn.
async fn remember_turn(store: &Store, channel: &Channel) -> Result<(), Error> {
    let _whole = channel.hold();
    store
        .change(|native| {
            native.context_turns = native.context_turns.saturating_add(1);
            Ok(())
        })
        .await
}

async fn run_prompt(prompt: Prompt, channel: &Channel) -> Result<(), Error> {
    match prompt {
        Prompt::Ordinary(text) => {
            let context = channel.context();
            let (model, mode) = (context.model.as_deref(), context.loop_mode.as_deref());
            stream(&answer(&text, model, mode), channel).await
        }
        Prompt::Approval => approval("echo demo", channel).await,
        Prompt::Remember => approval("echo remember", channel).await,
        Prompt::Question => question(channel).await,
        Prompt::Secret => secret(channel).await,
        Prompt::Steps(number) => steps(number, channel).await,
        Prompt::Slow(seconds) => count(seconds, "Slowly", channel).await,
        Prompt::Delegate(order) => delegate::order(order, channel).await,
        Prompt::Burst(deltas) => burst(deltas, channel).await,
        Prompt::Background(seconds) => background::start(seconds, channel).await,
        Prompt::Fail => Err(Error::Native(
            "demo:fail: the turn fails, as asked".to_owned(),
        )),
        #[allow(clippy::panic)] // what the prompt asks for
        Prompt::Trap => panic!("demo:trap: the component traps, as asked"),
        Prompt::Unknown => stream(HELP, channel).await,
    }
}

fn answer(text: &str, model: Option<&str>, mode: Option<&str>) -> String {
    let words = text.split_whitespace().count();
    let model = model.map_or_else(String::new, |model| format!(" (the session chose {model})"));
    let mode = mode.map_or_else(String::new, |mode| format!(" (in loop mode {mode})"));
    let quote = harness_guest::limits::shorten(text.trim(), 1_024);
    format!(
        "This is a demo without a model{model}{mode}. Your prompt has {words} words: “{quote}”. \
         Try demo:approval, demo:question, /goal or /plan."
    )
}

/// Streams a text word by word.
async fn stream(text: &str, channel: &Channel) -> Result<(), Error> {
    let pace = settings().delta;
    let writer = channel.open_message(Role::Assistant).await?;
    for word in text.split_inclusive(' ') {
        writer.text(word).await?;
        sleep(pace).await;
    }
    writer.finish().await?;
    Ok(())
}

/// One delta a second.
async fn count(seconds: u32, word: &str, channel: &Channel) -> Result<(), Error> {
    let writer = channel.open_message(Role::Assistant).await?;
    for second in 1..=seconds {
        sleep(Duration::from_secs(1)).await;
        writer
            .text(format!("{word}: {second} of {seconds}.\n"))
            .await?;
    }
    writer.finish().await?;
    Ok(())
}

async fn burst(deltas: u32, channel: &Channel) -> Result<(), Error> {
    let writer = channel.open_message(Role::Assistant).await?;
    for delta in 1..=deltas {
        writer.text(format!("{delta} ")).await?;
    }
    writer.finish().await?;
    Ok(())
}

/// Asks for a tool that would run this command, offering a rule for it.
async fn approval(command: &str, channel: &Channel) -> Result<(), Error> {
    let input = format!(r#"{{"command":"{command}"}}"#);
    let id = format!("tool-{}", channel.command_id());
    let writer = channel.open_message(Role::Assistant).await?;
    writer
        .delta(MessagePart::ToolCall(ToolCallPart {
            id: id.clone(),
            name: "shell".to_owned(),
            input_json: input.clone(),
        }))
        .await?;
    let decision = channel
        .request_approval(ApprovalRequest {
            tool_use_id: id.clone(),
            tool_name: "shell".to_owned(),
            input_json: input,
            title: format!("Run “{command}”? (the demo will not really run it)"),
            rules: vec![format!("shell:{command}")],
        })
        .await?;
    let (output, is_error) = match decision {
        ApprovalDecision::ApproveOnce => ("approved once; nothing was run".to_owned(), false),
        ApprovalDecision::ApproveAlways => ("approved for good; nothing was run".to_owned(), false),
        ApprovalDecision::Deny(None) => ("denied".to_owned(), true),
        ApprovalDecision::Deny(Some(reason)) => (format!("denied: {reason}"), true),
        ApprovalDecision::Timeout => ("nobody decided in time".to_owned(), true),
    };
    let text = format!("The tool was {output}.");
    writer
        .delta(MessagePart::ToolResult(ToolResultPart {
            id,
            output,
            is_error,
        }))
        .await?;
    writer.text(text).await?;
    writer.finish().await?;
    Ok(())
}

async fn question(channel: &Channel) -> Result<(), Error> {
    let choice = |value: &str, label: &str| Choice {
        value: value.to_owned(),
        label: label.to_owned(),
        description: None,
    };
    let answer = channel
        .ask(QuestionForm {
            id: format!("form-{}", channel.command_id()),
            title: "A question of the demo".to_owned(),
            questions: vec![Question {
                id: "colour".to_owned(),
                label: "Which colour?".to_owned(),
                description: Some("Choose one, or type another.".to_owned()),
                choices: vec![
                    choice("red", "Red"),
                    choice("green", "Green"),
                    choice("blue", "Blue"),
                ],
                multiple: false,
                custom: true,
                secret: false,
            }],
        })
        .await?;
    let text = match answer {
        FormAnswer::Submitted(answers) => match answers.into_iter().flatten().next() {
            Some(colour) => format!("You answered “{colour}”."),
            None => "You skipped the question.".to_owned(),
        },
        FormAnswer::Dismissed => "You dismissed the question.".to_owned(),
        FormAnswer::Timeout => "Nobody answered in time.".to_owned(),
    };
    channel.say(text).await?;
    Ok(())
}

/// Asks for a secret and tells its length alone: nothing of it may be written anywhere.
async fn secret(channel: &Channel) -> Result<(), Error> {
    let answer = channel
        .ask(QuestionForm {
            id: format!("form-{}", channel.command_id()),
            title: "A secret for the demo".to_owned(),
            questions: vec![Question {
                id: "secret".to_owned(),
                label: "Which secret?".to_owned(),
                description: Some("The demo forgets it at once.".to_owned()),
                choices: Vec::new(),
                multiple: false,
                custom: true,
                secret: true,
            }],
        })
        .await?;
    let text = match answer {
        FormAnswer::Submitted(answers) => match answers.into_iter().flatten().next() {
            Some(secret) => format!("Your secret has {} bytes.", secret.len()),
            None => "You kept your secret.".to_owned(),
        },
        FormAnswer::Dismissed => "You dismissed the question.".to_owned(),
        FormAnswer::Timeout => "Nobody answered in time.".to_owned(),
    };
    channel.say(text).await?;
    Ok(())
}

/// Makes tool steps. At the boundary between two of them it takes what was said meanwhile.
async fn steps(number: u32, channel: &Channel) -> Result<(), Error> {
    for step in 1..=number {
        let id = format!("step-{step}-{}", channel.command_id());
        let writer = channel.open_message(Role::Assistant).await?;
        writer
            .delta(MessagePart::ToolCall(ToolCallPart {
                id: id.clone(),
                name: "step".to_owned(),
                input_json: format!(r#"{{"step":{step},"of":{number}}}"#),
            }))
            .await?;
        sleep(Duration::from_secs(1)).await;
        writer
            .delta(MessagePart::ToolResult(ToolResultPart {
                id,
                output: format!("step {step} of {number} (demo: nothing was really done)"),
                is_error: false,
            }))
            .await?;
        writer.finish().await?;
        if step < number {
            for input in channel.take_input().await? {
                let text = harness_guest::input_text(&input.parts);
                let quote = harness_guest::limits::shorten(text.trim(), 1_024);
                channel.say(format!("Taken up: “{quote}”.")).await?;
            }
        }
    }
    channel.say(format!("All {number} steps are made.")).await?;
    Ok(())
}

/// Streams a plan, then publishes it for decision.
async fn plan(objective: String, store: &Store, channel: &Channel) -> Result<Outcome, Error> {
    let steps = [
        format!("1. Look at “{objective}” from all sides.\n"),
        "2. Do the smallest thing that could work.\n".to_owned(),
        "3. Check it and tell what was done.\n".to_owned(),
    ];
    let pace = settings().delta;
    let writer = channel.open_message(Role::Assistant).await?;
    for step in &steps {
        sleep(pace).await;
        writer.delta(MessagePart::Plan(step.clone())).await?;
    }
    writer.finish().await?;
    let model = channel.context().model;
    let _whole = channel.hold();
    store
        .change(|native| {
            native.context_turns = native.context_turns.saturating_add(1);
            // Whoever left plan mode meanwhile does not want the proposal.
            if native.plan.is_some() {
                native.propose(objective, steps.concat(), model);
            }
            Ok(())
        })
        .await?;
    Ok(Outcome::default())
}

async fn carry_out(plan: &str, channel: &Channel) -> Result<(), Error> {
    let pace = settings().delta;
    let writer = channel.open_message(Role::Assistant).await?;
    writer
        .text("Carrying out the plan (demo: nothing is really done).\n")
        .await?;
    for step in plan.lines() {
        sleep(pace).await;
        writer.text(format!("Done: {step}\n")).await?;
    }
    writer.finish().await?;
    Ok(())
}

/// One autonomous step. A goal that is paused, cleared or replaced ends it early.
async fn run_step(step: Step, store: &Store, channel: &Channel) -> Result<Outcome, Error> {
    let number = step.number();
    let of = settings().goal_steps;
    let writer = channel.open_message(Role::Assistant).await?;
    let over = store.until(|native| (!step.belongs_to(native)).then_some(()));
    let work = async {
        let objective = store
            .until(|native| Some(native.active_goal().map(|goal| goal.objective.clone())))
            .await?
            .unwrap_or_default();
        writer
            .text(format!("Step {number} of {of} towards “{objective}” "))
            .await?;
        sleep(settings().goal_step).await;
        writer.text("(demo: nothing was really done).").await?;
        Ok::<_, Error>(())
    };
    let made = match select(pin!(work), pin!(over)).await {
        Either::Left((result, _)) => {
            result?;
            true
        }
        Either::Right((result, _)) => {
            result?;
            writer.text("Left undone: the goal changed.").await?;
            false
        }
    };
    writer.finish().await?;
    let _whole = channel.hold();
    if made {
        let goal = step.goal();
        store
            .change(|native| {
                native.step_made(goal, number, of);
                native.context_turns = native.context_turns.saturating_add(1);
                Ok(())
            })
            .await?;
    }
    step.finished();
    Ok(Outcome::default())
}

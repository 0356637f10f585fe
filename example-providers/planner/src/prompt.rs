//! What a prompt asks of the demo.

use crate::delegate::Order;

/// One path of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Anything else: answered with a description of itself.
    Ordinary(String),
    /// Ask for an approval.
    Approval,
    /// Ask for an approval that can be given for good.
    Remember,
    /// Ask a question.
    Question,
    /// Ask for a secret.
    Secret,
    /// So many tool steps, a second each, with a boundary between them.
    Steps(u32),
    /// A turn of so many seconds.
    Slow(u32),
    /// So many deltas without a pause.
    Burst(u32),
    /// Let a delegate work.
    Delegate(Order),
    /// A program that runs so many seconds in the background.
    Background(u32),
    /// The turn fails.
    Fail,
    /// The component traps.
    Trap,
    /// Begins with `demo:` and is none of these: answered with what there is.
    Unknown,
}

/// Reads a prompt. The text is literal: a leading slash means nothing (R10).
#[must_use]
pub fn parse(text: &str) -> Prompt {
    let Some(demo) = text.trim().strip_prefix("demo:") else {
        return Prompt::Ordinary(text.to_owned());
    };
    if let Some(order) = order(demo.trim_start()) {
        return Prompt::Delegate(order);
    }
    let words: Vec<&str> = demo.split_whitespace().collect();
    match words.as_slice() {
        ["approval"] => Prompt::Approval,
        ["remember"] => Prompt::Remember,
        ["question"] => Prompt::Question,
        ["secret"] => Prompt::Secret,
        ["steps", steps] => match steps.parse() {
            Ok(steps @ 1..=100) => Prompt::Steps(steps),
            _ => Prompt::Unknown,
        },
        ["fail"] => Prompt::Fail,
        ["trap"] => Prompt::Trap,
        ["slow", seconds] => match seconds.parse() {
            Ok(seconds @ 1..=3_600) => Prompt::Slow(seconds),
            _ => Prompt::Unknown,
        },
        ["background", seconds] => match seconds.parse() {
            Ok(seconds @ 1..=3_600) => Prompt::Background(seconds),
            _ => Prompt::Unknown,
        },
        ["burst", deltas] => match deltas.parse() {
            Ok(deltas @ 1..=100_000) => Prompt::Burst(deltas),
            _ => Prompt::Unknown,
        },
        _ => Prompt::Unknown,
    }
}

/// A task for a delegate, taken literally.
fn order(demo: &str) -> Option<Order> {
    let (verb, rest) = demo.split_once(char::is_whitespace)?;
    let (harness, task) = match verb {
        "delegate" | "delegate-bg" => (None, rest),
        "delegate-to" => {
            let (harness, task) = rest.trim_start().split_once(char::is_whitespace)?;
            (Some(harness.to_owned()), task)
        }
        _ => return None,
    };
    let task = task.trim();
    (!task.is_empty()).then(|| Order {
        harness,
        task: task.to_owned(),
        background: verb == "delegate-bg",
    })
}

/// Answer to [`Prompt::Unknown`].
pub const HELP: &str = "This demo knows demo:approval, demo:remember, demo:question, demo:secret, \
                        demo:steps <steps, 1 to 100>, demo:slow <seconds, 1 to 3600>, demo:burst \
                        <deltas, 1 to 100000>, demo:delegate <task>, demo:delegate-bg <task>, \
                        demo:delegate-to <harness> <task>, demo:background <seconds, 1 to 3600>, \
                        demo:fail and demo:trap.";

#[cfg(test)]
mod tests {
    use super::{Order, Prompt, parse};

    #[test]
    fn a_delegate_gets_its_task_as_it_was_written() {
        let ordered = |text: &str| match parse(text) {
            Prompt::Delegate(Order {
                harness,
                task,
                background,
            }) => (harness, task, background),
            other => panic!("{text:?} is {other:?}"),
        };
        let task = || "demo:slow  2".to_owned();
        assert_eq!(ordered("demo:delegate demo:slow  2"), (None, task(), false));
        assert_eq!(
            ordered("demo:delegate-bg demo:slow  2"),
            (None, task(), true)
        );
        assert_eq!(
            ordered("demo:delegate-to demo/acp demo:slow  2"),
            (Some("demo/acp".to_owned()), task(), false)
        );
    }

    #[test]
    fn every_documented_prompt_is_read() {
        for (text, prompt) in [
            ("demo:approval", Prompt::Approval),
            ("demo:remember", Prompt::Remember),
            (" demo:question\n", Prompt::Question),
            ("demo:secret", Prompt::Secret),
            ("demo:steps 100", Prompt::Steps(100)),
            ("demo:steps 101", Prompt::Unknown),
            ("demo:slow 3", Prompt::Slow(3)),
            ("demo:slow", Prompt::Unknown),
            ("demo:slow 0", Prompt::Unknown),
            ("demo:slow 3601", Prompt::Unknown),
            ("demo:burst 100000", Prompt::Burst(100_000)),
            ("demo:background 3600", Prompt::Background(3_600)),
            ("demo:background 0", Prompt::Unknown),
            ("demo:background", Prompt::Unknown),
            ("demo:burst -1", Prompt::Unknown),
            ("demo:delegate", Prompt::Unknown),
            ("demo:delegate-to a/b", Prompt::Unknown),
            ("demo:fail", Prompt::Fail),
            ("demo:trap", Prompt::Trap),
            ("demo: trap", Prompt::Trap),
            ("demo:", Prompt::Unknown),
            ("a demo:trap", Prompt::Ordinary("a demo:trap".to_owned())),
            ("/goal x", Prompt::Ordinary("/goal x".to_owned())),
        ] {
            assert_eq!(parse(text), prompt, "{text:?}");
        }
    }
}

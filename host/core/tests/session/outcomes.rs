//! How a failed call ends, by refusal and by failure: invoke (R42, §3.1, S54), the startup of a
//! prompt and done (R28, W1-W5).

use crate::scenes::{idle, prompt_starting, turn_running};
use crate::support::{Sim, refused};
use harness_core::abort::AbortReason;
use harness_core::operation::Execution;
use harness_core::provider::{CallError, ChannelError, Outcome, Refusal};
use harness_core::view::Status;

fn text() -> String {
    "because".into()
}

fn refusals() -> Vec<(Refusal, &'static str, &'static str, Status)> {
    use Refusal as R;
    use Status::{Disconnected, Failed};
    vec![
        (
            R::Unsupported(text()),
            "rejected",
            "unsupported_operation",
            Failed,
        ),
        (
            R::InvalidOperation(text()),
            "rejected",
            "invalid_argument",
            Failed,
        ),
        (
            R::NotAllowed(text()),
            "rejected",
            "command_disabled",
            Failed,
        ),
        (R::StaleRevision(text()), "rejected", "stale_state", Failed),
        (
            R::Unavailable(text()),
            "uncertain",
            "provider_unavailable",
            Failed,
        ),
        (
            R::Disconnected(text()),
            "uncertain",
            "provider_unavailable",
            Disconnected,
        ),
        (R::Native(text()), "uncertain", "provider_failed", Failed),
        (
            R::Channel(ChannelError::Busy),
            "uncertain",
            "provider_failed",
            Failed,
        ),
        (
            R::Channel(ChannelError::Stopped),
            "uncertain",
            "provider_failed",
            Failed,
        ),
        (
            R::Channel(ChannelError::Closed),
            "uncertain",
            "provider_failed",
            Failed,
        ),
    ]
}

fn failures() -> Vec<(CallError, &'static str, &'static str, Status)> {
    vec![
        (
            CallError::Trap(text()),
            "uncertain",
            "provider_trap",
            Status::Failed,
        ),
        (
            CallError::Timeout(text()),
            "uncertain",
            "provider_timeout",
            Status::Failed,
        ),
        (
            CallError::Lost(text()),
            "uncertain",
            "provider_unavailable",
            Status::Failed,
        ),
        (
            CallError::Terminated(AbortReason::Deadline),
            "uncertain",
            "provider_unavailable",
            Status::Failed,
        ),
    ]
}

fn every_failure() -> Vec<(CallError, &'static str, &'static str, Status)> {
    let refusals = refusals().into_iter();
    let mut all: Vec<_> = refusals
        .map(|(r, o, c, s)| (CallError::Refused(r), o, c, s))
        .collect();
    all.extend(failures());
    all
}

fn ended(sim: &Sim) {
    assert!(sim.live().owner.is_none(), "the owner is gone");
    assert_eq!((sim.free, sim.live().slot), (1, false), "the slot is free");
    assert!(sim.session.state.gates().is_empty());
}

#[test]
fn r42_s54_what_a_failed_invoke_means() {
    for execution in [Execution::Control, Execution::Exclusive] {
        for (error, outcome, code, row) in every_failure() {
            let mut sim = idle().sim;
            let (command, invocation) = sim.operation(execution);
            sim.ask(invocation, crate::support::form());
            sim.invoked(invocation, Err(error.clone()));
            let expected = (outcome.to_owned(), Some(code.to_owned()));
            assert_eq!(sim.outcome(command), expected, "{execution:?} {error:?}");
            assert_eq!(sim.status(), row, "{execution:?} {error:?}");
            ended(&sim);
            let said = sim
                .result(command)
                .as_ref()
                .unwrap()
                .message
                .clone()
                .unwrap();
            assert!(
                said.contains("because")
                    || matches!(
                        error,
                        CallError::Terminated(_) | CallError::Refused(Refusal::Channel(_))
                    )
            );
        }
    }
}

#[test]
fn r42_an_attached_control_never_changes_the_row() {
    for (error, outcome, code, _) in every_failure() {
        let mut scene = turn_running();
        let (command, control) = scene.sim.control();
        scene.sim.invoked(control, Err(error));
        assert_eq!(
            scene.sim.outcome(command),
            (outcome.into(), Some(code.into()))
        );
        assert_eq!(scene.sim.status(), Status::InProgress);
        scene
            .sim
            .done(scene.runner.unwrap(), Ok(Outcome::default()));
        assert_eq!(scene.sim.status(), Status::Completed);
    }
}

#[test]
fn r42_after_the_abort_a_stopped_channel_is_cancelled() {
    for execution in [Execution::Control, Execution::Exclusive] {
        for refusal in [
            Refusal::Cancelled,
            Refusal::Channel(ChannelError::Stopped),
            Refusal::Channel(ChannelError::Closed),
        ] {
            let mut sim = idle().sim;
            let (command, invocation) = sim.operation(execution);
            sim.interrupt();
            sim.invoked(invocation, refused(refusal));
            assert_eq!(sim.outcome(command), ("cancelled".into(), None));
            assert_eq!(sim.status(), Status::Cancelled);
            ended(&sim);
        }
    }
}

#[test]
fn w5_a_stop_that_had_to_force_its_end_is_uncertain_and_cancelled() {
    for execution in [Execution::Control, Execution::Exclusive] {
        let mut sim = idle().sim;
        let (command, invocation) = sim.operation(execution);
        sim.interrupt();
        sim.invoked(
            invocation,
            Err(CallError::Terminated(AbortReason::UserStop)),
        );
        assert_eq!(sim.outcome(command).0, "uncertain");
        assert_eq!(sim.status(), Status::Cancelled, "a stop forced it");
        ended(&sim);
    }
}

#[test]
fn r51_a_lost_conversation_is_authoritative_over_a_stop() {
    for execution in [Execution::Control, Execution::Exclusive] {
        let mut sim = idle().sim;
        let (_, invocation) = sim.operation(execution);
        sim.interrupt();
        sim.invoked(invocation, refused(Refusal::Disconnected(text())));
        assert_eq!(sim.status(), Status::Disconnected);
    }
    let mut scene = prompt_starting();
    scene.sim.interrupt();
    let runner = scene.runner.unwrap();
    scene.sim.started(runner, Ok(Default::default()));
    scene
        .sim
        .done(runner, refused(Refusal::Disconnected(text())));
    assert_eq!(scene.sim.status(), Status::Disconnected);
}

#[test]
fn w4_cancelled_without_an_abort_breaks_the_contract() {
    for execution in [Execution::Control, Execution::Exclusive] {
        let mut sim = idle().sim;
        let (command, invocation) = sim.operation(execution);
        sim.invoked(invocation, refused(Refusal::Cancelled));
        assert_eq!(sim.problem(command).code(), "provider_contract_violation");
        assert_eq!(sim.status(), Status::Failed);
    }
    let mut scene = prompt_starting();
    scene
        .sim
        .started(scene.runner.unwrap(), refused(Refusal::Cancelled));
    assert_eq!(
        scene.sim.session.view().error.unwrap().code,
        "provider_contract_violation"
    );
}

#[test]
fn r28_how_done_settles() {
    use Status::{Cancelled, Completed, Disconnected, Failed};
    let table: Vec<(Result<Outcome, CallError>, Status, &str)> = vec![
        (Ok(Outcome::default()), Completed, ""),
        (refused(Refusal::Cancelled), Cancelled, ""),
        (
            refused(Refusal::Disconnected(text())),
            Disconnected,
            "disconnected",
        ),
        (refused(Refusal::Native(text())), Failed, "provider_failed"),
        (
            refused(Refusal::Unavailable(text())),
            Failed,
            "provider_unavailable",
        ),
        (
            refused(Refusal::NotAllowed(text())),
            Failed,
            "command_disabled",
        ),
        (
            refused(Refusal::Channel(ChannelError::Stopped)),
            Failed,
            "provider_failed",
        ),
        (Err(CallError::Trap(text())), Failed, "provider_trap"),
        (Err(CallError::Timeout(text())), Failed, "provider_timeout"),
        (
            Err(CallError::Violation(text())),
            Failed,
            "provider_contract_violation",
        ),
        (Err(CallError::Lost(text())), Failed, "provider_unavailable"),
    ];
    for (result, status, code) in table {
        let mut scene = turn_running();
        let runner = scene.runner.unwrap();
        assert_eq!(scene.sim.called_done(runner), 1, "at once and exactly once");
        scene.sim.done(runner, result.clone());
        assert_eq!(scene.sim.status(), status, "{result:?}");
        let error = scene
            .sim
            .session
            .view()
            .error
            .map(|e| e.code)
            .unwrap_or_default();
        assert_eq!(error, code, "{result:?}");
        ended(&scene.sim);
        let next = scene.sim.prompt("next");
        assert_eq!(
            scene.sim.ledger.resolution(next),
            Some("TurnStarted"),
            "I17: it never wedges"
        );
    }
}

#[test]
fn r28_how_done_settles_after_a_stop() {
    use Status::{Cancelled, Completed, Disconnected, Failed};
    for (result, status) in [
        (Ok(Outcome::default()), Completed),
        (refused(Refusal::Cancelled), Cancelled),
        (refused(Refusal::Channel(ChannelError::Closed)), Cancelled),
        (Err(CallError::Terminated(AbortReason::UserStop)), Cancelled),
        (refused(Refusal::Disconnected(text())), Disconnected),
        (Err(CallError::Violation(text())), Failed),
    ] {
        let mut scene = turn_running();
        scene.sim.interrupt();
        scene.sim.done(scene.runner.unwrap(), result.clone());
        assert_eq!(scene.sim.status(), status, "{result:?}");
        ended(&scene.sim);
    }
}

#[test]
fn s68_a_stored_error_is_cut_at_a_character() {
    let mut scene = turn_running();
    let long = format!("x{}", "\u{1F333}".repeat(4_000));
    scene.sim.done(
        scene.runner.unwrap(),
        refused(Refusal::Native(long.clone())),
    );
    let error = scene.sim.session.view().error.unwrap();
    assert!(error.message.len() <= 4096 && error.message.len() > 4090);
    assert!(long.starts_with(&error.message));
}

#[test]
fn s108_the_latest_64_uncertain_operations_are_listed() {
    let mut sim = idle().sim;
    let mut ids = Vec::new();
    for _ in 0..66 {
        let (command, control) = sim.operation(Execution::Control);
        sim.invoked(control, Err(CallError::Trap(text())));
        ids.push(command);
    }
    let listed = sim.session.snapshot().uncertain_operations;
    let listed: Vec<_> = listed.iter().map(|u| u.command_id).collect();
    assert_eq!(listed, ids[2..], "oldest first");
}

//! What becomes of an operation after its reserve: results, settings, ends and aborts
//! (R25-R31, R66-R71, R79, S54, W1, W4, W5).

use crate::scenes::{Runner, exclusive_starting, idle, idle_control, say, turn_running};
use crate::support::seat::request;
use crate::support::{World, code, joined};
use harness_core::abort::{AbortHandle, AbortReason};
use harness_core::provider::{CallError, ChannelError, ParamValue, Params, Refusal};
use harness_core::refusal::Refused;
use harness_core::view::{OutcomeStatus, ParamsEffective, Status};
use harness_session::Caller;

fn plan() -> Params {
    Params::from([("plan".into(), ParamValue::Boolean(true))])
}

#[tokio::test]
async fn r30_a_patch_during_a_turn_takes_effect_with_the_next() {
    let scene = turn_running().await;
    let Runner::Running(turn) = &scene.runner else {
        unreachable!()
    };
    let operation = scene.seat.operate("/c plan");
    scene
        .world
        .probe
        .invokes
        .next()
        .await
        .completes_with("", plan());
    let result = joined(operation).await.unwrap();
    assert_eq!(result.params_effective, Some(ParamsEffective::NextTurn));
    let row = scene.seat.view().await;
    assert_eq!(
        row.params["plan"],
        ParamValue::Boolean(true),
        "durable at once"
    );
    let context = turn.channel().context();
    assert_eq!(
        context.params["plan"],
        ParamValue::Boolean(false),
        "unchanged for the turn"
    );
    scene.finish().await;
}

#[tokio::test]
async fn r79_an_invalid_patch_is_a_violation_and_writes_nothing() {
    let scene = idle_control().await;
    let Runner::Invoking(call, operation) = scene.runner else {
        unreachable!()
    };
    call.completes_with("", Params::from([("no".into(), ParamValue::Boolean(true))]));
    match joined(operation).await {
        Err(Refused::Violation { result, .. }) => {
            assert_eq!(result.status, OutcomeStatus::Uncertain);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.seat.status().await, Status::Failed);
    assert_eq!(scene.seat.count("SessionParamsChanged").await, 0);
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn r26_i20_a_control_that_starts_is_ended_and_broke_its_contract() {
    let scene = idle_control().await;
    let Runner::Invoking(call, operation) = scene.runner else {
        unreachable!()
    };
    scene.world.probe.hold(&scene.world.probe.ignore_aborts);
    call.starts_with(plan());
    let done = scene.world.probe.dones.next().await;
    assert_eq!(done.abort_reason(), Some(AbortReason::OwnerStopped));
    assert!(!operation.is_finished(), "it is awaited");
    done.ends();
    let refused = joined(operation).await;
    assert_eq!(code(&refused), "provider_contract_violation");
    let row = scene.seat.view().await;
    assert_eq!(row.status, Status::Failed);
    assert_eq!(
        row.params["plan"],
        ParamValue::Boolean(false),
        "nothing saved"
    );
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn r25_r28_i16_a_started_operation_keeps_its_channels_until_it_ends() {
    let scene = exclusive_starting().await;
    let Runner::Invoking(call, operation) = scene.runner else {
        unreachable!()
    };
    let channel = call.channel();
    call.starts();
    let started = joined(operation).await.unwrap();
    let done = scene.world.probe.dones.next().await;
    assert_eq!(scene.world.probe.dones.count(), 1, "exactly once");
    let approval = crate::scenes::ask(channel.clone());
    let gate = scene.seat.gate().await;
    assert_eq!(scene.seat.view().await.run_id, started.run_id);
    let reply = harness_core::gate::GateReply::ApproveOnce;
    scene.seat.answer(gate.gate_id, reply).await.unwrap();
    joined(approval).await.unwrap();
    say(&channel, "final").await.unwrap();
    assert_eq!(
        scene.seat.view().await.run_id,
        started.run_id,
        "no new run (R45)"
    );
    done.ends();
    scene.seat.until(Status::Completed).await;
    assert_eq!(scene.seat.texts().await, ["final"]);
    // After its end: closed, and no effect (W6, I45).
    assert_eq!(say(&channel, "late").await, Err(ChannelError::Closed));
    assert!(channel.history(1).await.is_err());
    let late = joined(crate::scenes::ask(channel.clone())).await;
    assert_eq!(late, Err(ChannelError::Closed));
    assert!(channel.bind_native_session("x".into()).await.is_err());
    assert!(
        channel
            .open_message(harness_core::content::Role::Assistant)
            .await
            .is_err()
    );
    channel.withdraw("tool-1".into());
    channel.report_usage(Default::default());
    channel.abandon_writer(7);
    assert_eq!(scene.seat.texts().await, ["final"]);
    let events = scene.seat.events().await;
    let command = started.command_id.to_string();
    let of = |kind: &str| {
        let found = events.iter().find(|e| e["type"] == kind).unwrap();
        found["cause"]["command_id"].as_str().map(str::to_owned)
    };
    assert_eq!(
        of("TurnDone"),
        Some(command),
        "the terminal carries the command"
    );
}

#[tokio::test]
async fn r27_an_exclusive_may_complete_at_once() {
    let scene = exclusive_starting().await;
    let seat = scene.seat.clone();
    scene.finish().await;
    assert_eq!(seat.last_end().await, "TurnDone");
    assert_eq!(seat.status().await, Status::Completed);
}

#[tokio::test]
async fn r28_i17_every_way_in_which_done_settles() {
    let table = [
        (Ok(()), Status::Completed, "TurnDone"),
        (
            Err(CallError::Refused(Refusal::Native("n".into()))),
            Status::Failed,
            "TurnFailed:provider_failed",
        ),
        (
            Err(CallError::Refused(Refusal::Cancelled)),
            Status::Cancelled,
            "TurnInterrupted:native",
        ),
        (
            Err(CallError::Refused(Refusal::Disconnected("d".into()))),
            Status::Disconnected,
            "TurnFailed:disconnected",
        ),
        (
            Err(CallError::Trap("t".into())),
            Status::Failed,
            "TurnFailed:provider_trap",
        ),
        (
            Err(CallError::Timeout("silent".into())),
            Status::Failed,
            "TurnFailed:provider_timeout",
        ),
        (
            Err(CallError::Violation("v".into())),
            Status::Failed,
            "TurnFailed:provider_contract_violation",
        ),
    ];
    for (result, status, end) in table {
        let scene = turn_running().await;
        let Runner::Running(call) = scene.runner else {
            unreachable!()
        };
        call.answer(result.map(|()| Default::default()));
        scene.seat.until(status).await;
        assert_eq!(scene.seat.last_end().await, end);
        scene.world.pool_is_whole().await;
        // The next prompt starts.
        scene.seat.prompt("next").await;
        scene.world.probe.prompts.next().await.starts();
        scene.world.probe.dones.next().await.ends();
        scene.seat.until(Status::Completed).await;
    }
}

#[tokio::test]
async fn s54_r71_every_way_in_which_invoke_fails() {
    use OutcomeStatus::{Rejected, Uncertain};
    let refused = |r| CallError::Refused(r);
    let table = [
        (
            refused(Refusal::Unsupported("x".into())),
            Rejected,
            "unsupported_operation",
            Status::Failed,
        ),
        (
            refused(Refusal::NotAllowed("x".into())),
            Rejected,
            "command_disabled",
            Status::Failed,
        ),
        (
            refused(Refusal::Unavailable("x".into())),
            Uncertain,
            "provider_unavailable",
            Status::Failed,
        ),
        (
            refused(Refusal::Disconnected("x".into())),
            Uncertain,
            "provider_unavailable",
            Status::Disconnected,
        ),
        (
            refused(Refusal::Native("x".into())),
            Uncertain,
            "provider_failed",
            Status::Failed,
        ),
        (
            CallError::Trap("x".into()),
            Uncertain,
            "provider_trap",
            Status::Failed,
        ),
        (
            CallError::Timeout("x".into()),
            Uncertain,
            "provider_timeout",
            Status::Failed,
        ),
        (
            CallError::Lost("x".into()),
            Uncertain,
            "provider_unavailable",
            Status::Failed,
        ),
    ];
    for (error, outcome, expected, status) in table {
        for text in ["/x go", "/c go"] {
            let scene = idle().await;
            let operation = scene.seat.operate(text);
            scene.world.probe.invokes.next().await.fails(error.clone());
            let result = joined(operation).await.unwrap();
            assert_eq!(result.status, outcome, "{error:?}");
            assert_eq!(result.code.as_deref(), Some(expected));
            assert_eq!(scene.seat.status().await, status, "{text} {error:?}");
            scene.world.pool_is_whole().await;
        }
    }
}

#[tokio::test]
async fn r31_i19_a_provider_disposed_during_invoke() {
    let scene = exclusive_starting().await;
    let Runner::Invoking(call, operation) = scene.runner else {
        unreachable!()
    };
    call.instance.dies(CallError::Lost("replaced".into()));
    let result = joined(operation).await.unwrap();
    assert_eq!(result.status, OutcomeStatus::Uncertain);
    assert_eq!(scene.seat.status().await, Status::Failed);
    scene.world.pool_is_whole().await;
    // The next call gets a fresh instance.
    let instances = scene.world.probe.loop_instances();
    let operation = scene.seat.operate("/c again");
    scene.world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    assert_eq!(scene.world.probe.loop_instances(), instances + 1);
}

#[tokio::test]
async fn r31_a_provider_disposed_after_prepare() {
    let scene = idle().await;
    let probe = &scene.world.probe;
    probe.hold(&probe.hold_preparation);
    let operation = scene.seat.operate("/x go");
    let preparation = probe.preparations.next().await;
    let invokes = probe.invokes.count();
    let instance = preparation.instance.clone();
    preparation.prepares();
    instance.dies(CallError::Lost("replaced".into()));
    let result = joined(operation).await;
    match result {
        // Before reserve, or after it: in both cases invoke is never called.
        Err(refused) => assert_eq!(refused.code(), "provider_unavailable"),
        Ok(result) => {
            assert_eq!(result.status, OutcomeStatus::Rejected);
            assert_eq!(scene.seat.status().await, Status::Failed);
        }
    }
    assert_eq!(probe.invokes.count(), invokes);
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn r69_r70_a_caller_that_leaves_during_an_attached_control_aborts_only_it() {
    let scene = turn_running().await;
    let gone = AbortHandle::new();
    let operation = scene
        .seat
        .operate_as(Caller::default(), request("/c go"), gone.signal());
    let call = scene.world.probe.invokes.next().await;
    gone.abort(AbortReason::CallerGone);
    assert_eq!(call.aborted().await, AbortReason::CallerGone);
    let result = joined(operation).await.unwrap();
    assert_eq!(result.status, OutcomeStatus::Cancelled);
    assert_eq!(scene.seat.status().await, Status::InProgress);
    scene.finish().await;
}

#[tokio::test]
async fn r68_r72_a_prompt_that_starts_after_its_stop_is_ended() {
    let scene = crate::scenes::prompt_starting().await;
    let Runner::Starting(call) = scene.runner else {
        unreachable!()
    };
    let probe = scene.world.probe.clone();
    probe.hold(&probe.ignore_aborts);
    call.ignores_abort();
    let stop = scene.seat.stop();
    call.aborted().await;
    let late = call.channel();
    call.starts();
    let done = probe.dones.next().await;
    assert_eq!(done.abort_reason(), Some(AbortReason::UserStop));
    done.ends();
    assert!(joined(stop).await.unwrap());
    assert_eq!(scene.seat.last_end().await, "TurnInterrupted:user");
    // What comes later from it finds nothing to change, whoever owns the session then.
    scene.seat.prompt("next").await;
    let next = probe.prompts.next().await;
    assert_eq!(say(&late, "late").await, Err(ChannelError::Closed));
    assert!(late.bind_native_session("late".into()).await.is_err());
    assert_eq!(scene.seat.view().await.agent_session_id, None);
    next.starts();
    probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    assert_eq!(scene.seat.texts().await, ["starts", "next"]);
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn r69_after_started_the_callers_departure_is_void() {
    let scene = idle().await;
    let gone = AbortHandle::new();
    let operation = scene
        .seat
        .operate_as(Caller::default(), request("/x go"), gone.signal());
    scene.world.probe.invokes.next().await.starts();
    joined(operation).await.unwrap();
    let done = scene.world.probe.dones.next().await;
    gone.abort(AbortReason::CallerGone);
    crate::support::breathe().await;
    assert_eq!(done.abort_reason(), None);
    done.ends();
    scene.seat.until(Status::Completed).await;
}

#[tokio::test]
async fn r70_a_completed_outcome_stands_against_a_late_abort() {
    let scene = idle().await;
    for text in ["/c go", "/x go"] {
        let gone = AbortHandle::new();
        let operation = scene
            .seat
            .operate_as(Caller::default(), request(text), gone.signal());
        let call = scene.world.probe.invokes.next().await;
        call.ignores_abort();
        gone.abort(AbortReason::CallerGone);
        call.aborted().await;
        call.completes_with("", plan());
        let result = joined(operation).await.unwrap();
        assert_eq!(result.status, OutcomeStatus::Completed);
        assert!(result.params_effective.is_some());
    }
}

#[tokio::test]
async fn r66_i10_a_late_control_is_in_history_before_the_terminal() {
    let mut scene = crate::scenes::turn_ended().await;
    let (call, operation) = scene.beside.take().unwrap();
    call.completes("late reply");
    assert_eq!(
        joined(operation).await.unwrap().status,
        OutcomeStatus::Completed
    );
    scene.seat.until(Status::Completed).await;
    let types = scene.seat.types().await;
    let at = |kind: &str| types.iter().rposition(|t| t.starts_with(kind)).unwrap();
    assert!(at("StepDone") < at("NativeOperationResolved"));
    assert!(at("NativeOperationResolved") < at("TurnDone"));
    assert_eq!(scene.seat.texts().await, ["runs", "beside"]);
    scene.finish().await;
}

#[tokio::test]
async fn w1_i41_a_trap_in_invoke_leaves_a_concurrent_session_alone() {
    let world = World::with(|c| c.slots = 2).await;
    let (one, two) = (world.idle().await, world.idle().await);
    two.prompt("goes on").await;
    world.probe.prompts.next().await.starts();
    let going = world.probe.dones.next().await;
    let operation = one.operate("/x go");
    let call = world.probe.invokes.next().await;
    let approval = crate::scenes::ask(call.channel());
    one.gate().await;
    call.fails(CallError::Trap("boom".into()));
    let result = joined(operation).await.unwrap();
    assert_eq!(result.status, OutcomeStatus::Uncertain);
    assert!(joined(approval).await.is_err());
    assert_eq!(one.count("GateResolved:abandoned").await, 1);
    say(&going.channel(), "undisturbed").await.unwrap();
    going.ends();
    two.until(Status::Completed).await;
    world.pool_is_whole().await;
}

#[tokio::test]
async fn w5_i43_s93_a_deaf_component_cannot_hold_a_stop() {
    let scene = turn_running().await;
    let Runner::Running(call) = scene.runner else {
        unreachable!()
    };
    call.ignores_abort();
    let stop = scene.seat.stop();
    call.aborted().await;
    let waiting = scene.seat.prompt("afterwards").await;
    // What the engine answers when the drain bound has passed.
    call.fails(CallError::Terminated(AbortReason::UserStop));
    assert!(joined(stop).await.unwrap());
    assert_eq!(scene.seat.last_end().await, "TurnInterrupted:user");
    let next = scene.world.probe.prompts.next().await;
    assert_eq!(next.command, waiting);
    next.starts();
    scene.world.probe.dones.next().await.ends();
    scene.seat.until(Status::Completed).await;
    scene.world.pool_is_whole().await;
}

//! Gates: opened by a provider, answered once by a person (R44, R45, R75-R77, S80-S85, N17, I12, I37).

use crate::scenes::{
    Runner, Scene, ask, ask_with, awaiting_gate, idle_control, say, turn_running, turn_running_in,
};
use crate::support::{World, code, joined};
use harness_core::gate::{
    ApprovalDecision, Choice, FormAnswer, GateAsk, GateReply, Question, QuestionForm,
};
use harness_core::provider::{CallError, Channel, ChannelError};
use harness_core::view::Status;
use harness_journal::RecordKind;
use harness_journal::fault::Fault;
use harness_session::GatePolicies;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

fn question(id: &str) -> Question {
    Question {
        id: id.into(),
        label: id.into(),
        description: None,
        choices: Vec::new(),
        multiple: false,
        custom: true,
        secret: false,
    }
}

fn choices(id: &str) -> Question {
    let choice = |value: &str| Choice {
        value: value.into(),
        label: value.into(),
        description: None,
    };
    Question {
        choices: vec![choice("red"), choice("blue")],
        custom: false,
        ..question(id)
    }
}

fn form(
    channel: Arc<dyn Channel>,
    questions: Vec<Question>,
) -> JoinHandle<Result<FormAnswer, ChannelError>> {
    let form = QuestionForm {
        id: "form-1".into(),
        title: "Which?".into(),
        questions,
    };
    tokio::spawn(async move { channel.ask(form).await })
}

fn channel(scene: &Scene) -> Arc<dyn Channel> {
    match &scene.runner {
        Runner::Running(call) => call.channel(),
        Runner::Invoking(call, _) => call.channel(),
        Runner::Starting(call) => call.channel(),
        Runner::None => unreachable!(),
    }
}

fn lists(values: &[&[&str]]) -> GateReply {
    let list = |l: &&[&str]| l.iter().map(|v| (*v).to_owned()).collect();
    GateReply::Answer(values.iter().map(list).collect())
}

#[tokio::test]
async fn r75_awaiting_input_lasts_until_the_last_answer() {
    let scene = turn_running().await;
    let first = ask(channel(&scene));
    let gate = scene.seat.gate().await;
    let second = form(channel(&scene), vec![question("q")]);
    scene
        .seat
        .until_row("two gates", |r| r.open_gates == 2)
        .await;
    scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveOnce)
        .await
        .unwrap();
    assert_eq!(scene.seat.status().await, Status::AwaitingInput);
    let gate = scene.seat.gate().await;
    scene
        .seat
        .answer(gate.gate_id, GateReply::Decline)
        .await
        .unwrap();
    assert_eq!(scene.seat.status().await, Status::InProgress);
    joined(first).await.unwrap();
    assert_eq!(joined(second).await.unwrap(), FormAnswer::Dismissed);
    scene.finish().await;
}

#[tokio::test]
async fn r62_r75_an_attached_controls_ask_counts() {
    let scene = turn_running().await;
    let operation = scene.seat.operate("/c asks");
    let call = scene.world.probe.invokes.next().await;
    let approval = ask(call.channel());
    let gate = scene.seat.gate().await;
    assert_eq!(scene.seat.status().await, Status::AwaitingInput);
    scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveOnce)
        .await
        .unwrap();
    joined(approval).await.unwrap();
    // One it leaves open when it returns is abandoned.
    let left = ask(call.channel());
    scene.seat.gate().await;
    call.completes("");
    joined(operation).await.unwrap();
    assert!(joined(left).await.is_err());
    assert_eq!(scene.seat.status().await, Status::InProgress);
    scene.finish().await;
}

#[tokio::test]
async fn r45_r76_an_answer_has_one_list_a_question() {
    let scene = turn_running().await;
    let asked = form(channel(&scene), vec![choices("colour"), question("name")]);
    let gate = scene.seat.gate().await;
    let long = "x".repeat(16 * 1024 + 1);
    let table = [
        (lists(&[&["red"]]), "invalid_request"),
        (lists(&[&["red", "blue"], &[]]), "invalid_request"),
        (lists(&[&["green"], &[]]), "invalid_request"),
        (lists(&[&[], &[&long]]), "payload_too_large"),
        (GateReply::ApproveOnce, "gate_kind_mismatch"),
        (GateReply::Deny(None), "gate_kind_mismatch"),
    ];
    for (reply, expected) in table {
        let refused = scene.seat.answer(gate.gate_id, reply).await;
        assert_eq!(code(&refused), expected);
        assert_eq!(
            scene.seat.gate().await.gate_id,
            gate.gate_id,
            "it stays open"
        );
    }
    let delivery = scene
        .seat
        .answer(gate.gate_id, lists(&[&["red"], &["Ada"]]))
        .await;
    assert_eq!(delivery.unwrap(), harness_session::Delivery::Acknowledged);
    let expected = vec![vec!["red".to_owned()], vec!["Ada".to_owned()]];
    assert_eq!(
        joined(asked).await.unwrap(),
        FormAnswer::Submitted(expected)
    );
    let stale = scene.seat.answer(gate.gate_id, GateReply::Decline).await;
    assert_eq!(code(&stale), "gate_not_found");
    scene.finish().await;
}

#[tokio::test]
async fn r77_s83_always_is_offered_with_rules_and_remembered() {
    let scene = turn_running().await;
    let approval = ask(channel(&scene));
    let gate = scene.seat.gate().await;
    let refused = scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveAlways)
        .await;
    assert_eq!(code(&refused), "gate_action_invalid");
    scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveOnce)
        .await
        .unwrap();
    joined(approval).await.unwrap();
    let rules = vec!["ls *".to_owned()];
    let approval = ask_with(channel(&scene), rules.clone());
    let gate = scene.seat.gate().await;
    scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveAlways)
        .await
        .unwrap();
    assert_eq!(joined(approval).await, Ok(ApprovalDecision::ApproveAlways));
    // The same rules again: answered by policy, nobody is asked.
    let again = joined(ask_with(channel(&scene), rules)).await;
    assert_eq!(again, Ok(ApprovalDecision::ApproveAlways));
    assert_eq!(scene.seat.count("GateOpened").await, 2);
    // One more rule: asked again.
    let more = ask_with(channel(&scene), vec!["ls *".into(), "rm *".into()]);
    scene.seat.gate().await;
    assert!(scene.seat.stopped().await);
    assert!(joined(more).await.is_err());
}

#[tokio::test]
async fn s80_i37_a_failed_resolve_leaves_the_gate_answerable() {
    let mut scene = awaiting_gate().await;
    let (gate, approval) = scene.gate.take().unwrap();
    scene.world.faults.fail_next(Fault::Full);
    let failed = scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveOnce)
        .await;
    assert_eq!(code(&failed), "store_unavailable");
    assert!(!approval.is_finished());
    assert_eq!(scene.seat.gate().await.gate_id, gate.gate_id);
    scene
        .seat
        .answer(gate.gate_id, GateReply::Deny(None))
        .await
        .unwrap();
    assert_eq!(joined(approval).await, Ok(ApprovalDecision::Deny(None)));
    assert_eq!(scene.seat.count("GateResolved").await, 1);
    scene.finish().await;
}

#[tokio::test]
async fn s86_a_gate_nobody_answers_closes_by_its_policy() {
    let world = World::with(|config| {
        config.gates = GatePolicies {
            permission: Some(Duration::from_millis(30)),
            ask_user: None,
        };
    })
    .await;
    let scene = turn_running_in(world).await;
    let waits = form(channel(&scene), vec![question("name")]);
    let asked = scene.seat.gate().await.gate_id;
    assert_eq!(
        joined(ask(channel(&scene))).await,
        Ok(ApprovalDecision::Timeout)
    );
    assert_eq!(scene.seat.count("PermissionDecided").await, 1);
    assert_eq!(scene.seat.count("GateResolved").await, 1);
    // Each kind has its own: a question without one waits for a person.
    assert!(!waits.is_finished());
    let reply = lists(&[&["for long"]]);
    scene.seat.answer(asked, reply).await.unwrap();
    assert!(matches!(joined(waits).await, Ok(FormAnswer::Submitted(_))));
    scene.finish().await;
}

#[tokio::test]
async fn s86_an_answer_in_time_is_the_persons() {
    let world = World::with(|config| config.gates.ask_user = Some(Duration::from_secs(60))).await;
    let scene = turn_running_in(world).await;
    let asked = form(channel(&scene), vec![question("name")]);
    let gate = scene.seat.gate().await.gate_id;
    scene.seat.answer(gate, GateReply::Decline).await.unwrap();
    assert_eq!(joined(asked).await, Ok(FormAnswer::Dismissed));
    scene.finish().await;
}

#[tokio::test]
async fn s80_a_gate_that_cannot_be_written_does_not_open() {
    let scene = turn_running().await;
    scene.world.faults.fail_next(Fault::Full);
    let refused = joined(ask(channel(&scene))).await;
    assert!(
        matches!(refused, Err(ChannelError::Failed(_))),
        "{refused:?}"
    );
    assert_eq!(scene.seat.count("GateOpened").await, 0);
    scene.finish_faulted().await;
}

#[tokio::test]
async fn s81_i37_a_secret_reaches_the_provider_only() {
    let scene = turn_running().await;
    let secret = Question {
        secret: true,
        ..question("password")
    };
    let mut subscription = scene
        .seat
        .host
        .subscribe(scene.seat.id, harness_session::Start::After(0))
        .await
        .unwrap();
    let asked = form(channel(&scene), vec![secret, question("name")]);
    let gate = scene.seat.gate().await;
    let reply = lists(&[&["hunter2-hunter2"], &["plainly-visible"]]);
    scene.seat.answer(gate.gate_id, reply).await.unwrap();
    let FormAnswer::Submitted(answer) = joined(asked).await.unwrap() else {
        panic!("no answer");
    };
    assert_eq!(answer[0], ["hunter2-hunter2"]);
    scene.finish().await;
    let mut frames = String::new();
    while let Ok(Some(harness_session::Item::Frame(frame))) =
        tokio::time::timeout(std::time::Duration::from_millis(100), subscription.next()).await
    {
        frames.push_str(&frame.data);
    }
    assert!(frames.contains("GateResolved"));
    assert!(!frames.contains("hunter2"));
}

#[tokio::test]
async fn s81_i37_a_secret_is_nowhere_in_the_store() {
    let scene = turn_running().await;
    let secret = Question {
        secret: true,
        ..question("password")
    };
    let asked = form(channel(&scene), vec![secret, question("name")]);
    let gate = scene.seat.gate().await;
    let reply = lists(&[&["hunter2-hunter2"], &["plainly-visible"]]);
    scene.seat.answer(gate.gate_id, reply).await.unwrap();
    joined(asked).await.unwrap();
    assert!(scene.world.stored_anywhere("plainly-visible"));
    assert!(scene.world.stored_anywhere("redacted"));
    assert!(!scene.world.stored_anywhere("hunter2"));
    scene.finish().await;
}

#[tokio::test]
async fn n17_a_dropped_call_or_a_withdrawal_closes_its_gate() {
    let scene = turn_running().await;
    let approval = ask(channel(&scene));
    let gate = scene.seat.gate().await;
    approval.abort();
    scene.seat.until(Status::InProgress).await;
    let late = scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveOnce)
        .await;
    assert_eq!(code(&late), "gate_not_found");
    let approval = ask(channel(&scene));
    scene.seat.gate().await;
    channel(&scene).withdraw("tool-1".into());
    assert!(joined(approval).await.is_err());
    scene.seat.until(Status::InProgress).await;
    let asked = form(channel(&scene), vec![question("q")]);
    scene.seat.gate().await;
    channel(&scene).withdraw("form-1".into());
    assert!(joined(asked).await.is_err());
    scene.seat.until(Status::InProgress).await;
    assert_eq!(scene.seat.count("GateResolved:withdrawn").await, 3);
    scene.finish().await;
}

#[tokio::test]
async fn n17_a_call_dropped_before_it_learns_its_gate_leaves_none() {
    let scene = turn_running().await;
    let seat = scene.seat.clone();
    for polls in 0..12 {
        // The call is polled a few times and dropped, wherever it stands then.
        let channel = channel(&scene);
        let task = ask(channel.clone());
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
        // Whatever the call had sent is taken before this write.
        say(&channel, "after").await.unwrap();
        assert_eq!(seat.view().await.open_gates, 0, "{polls} polls");
    }
    assert_eq!(seat.status().await, Status::InProgress);
    scene.finish().await;
}

#[tokio::test]
async fn i12_stop_while_a_control_waits_on_a_question() {
    let mut scene = idle_control().await;
    let asked = form(channel(&scene), vec![question("q")]);
    scene.seat.gate().await;
    let Runner::Invoking(_call, operation) = std::mem::replace(&mut scene.runner, Runner::None)
    else {
        unreachable!()
    };
    assert!(scene.seat.stopped().await);
    assert!(joined(asked).await.is_err());
    assert_eq!(
        joined(operation).await.unwrap().status,
        harness_core::view::OutcomeStatus::Cancelled
    );
    assert_eq!(scene.seat.count("GateResolved:abandoned").await, 1);
    assert!(
        scene
            .seat
            .host
            .gates(scene.seat.id)
            .await
            .unwrap()
            .is_empty()
    );
    scene.finish().await;
}

#[tokio::test]
async fn r76_an_answer_to_a_component_that_was_lost_is_uncertain() {
    let scene = turn_running().await;
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    // The waiter goes away without a word to the session: its task is stuck in the engine.
    let approval = ask(channel(&scene));
    let gate = scene.seat.gate().await;
    call.instance.dies(CallError::Lost("gone".into()));
    let answered = scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveOnce)
        .await;
    assert!(matches!(code(&answered), "ok" | "gate_not_found"));
    scene.seat.until(Status::Failed).await;
    let _ = joined(approval).await;
    scene.world.pool_is_whole().await;
}

#[tokio::test]
async fn s80_the_prepared_record_is_private() {
    let scene = awaiting_gate().await;
    let kinds = scene.world.kinds(scene.seat.id).await;
    assert_eq!(
        kinds
            .iter()
            .filter(|k| **k == RecordKind::GatePrepared)
            .count(),
        1
    );
    assert_eq!(scene.seat.count("GatePrepared").await, 0);
    let gate = scene.seat.gate().await;
    assert!(matches!(gate.ask, GateAsk::Permission(_)));
    scene.finish().await;
}

#[tokio::test]
async fn s83_a_store_that_fails_blocks_the_execution() {
    let scene = turn_running().await;
    let approval = ask_with(channel(&scene), vec!["shell:git status".into()]);
    let gate = scene.seat.gate().await;
    // The rules cannot be stored: whoever waits for the decision goes on waiting.
    scene.world.store.close().await;
    let refused = scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveAlways)
        .await;
    assert_eq!(code(&refused), "store_unavailable");
    crate::support::breathe().await;
    assert!(!approval.is_finished(), "nothing is executed");
    let open = scene.seat.host.gates(scene.seat.id).await.unwrap();
    assert_eq!(open.len(), 1, "the gate is open, and not claimed any more");
    let again = scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveAlways)
        .await;
    assert_eq!(code(&again), "store_unavailable", "not gate_not_ready");
    approval.abort();
}

#[tokio::test]
async fn s83_rules_hold_for_their_harness_and_workspace_alone() {
    let scene = turn_running().await;
    let rules = vec!["shell:git status".to_owned()];
    let first = ask_with(channel(&scene), rules.clone());
    let gate = scene.seat.gate().await;
    scene
        .seat
        .answer(gate.gate_id, GateReply::ApproveAlways)
        .await
        .unwrap();
    assert_eq!(
        joined(first).await.unwrap(),
        ApprovalDecision::ApproveAlways
    );
    let catalog = scene.world.host.catalog();
    let rule = |harness: &str, workspace: &str| harness_journal::PermissionRule {
        harness_id: harness.parse().unwrap(),
        workspace_id: workspace.parse().unwrap(),
        rule: rules[0].clone(),
    };
    for (harness, workspace, stored) in [
        ("demo/probe", "default", true),
        ("demo/other", "default", false),
        ("demo/probe", "elsewhere", false),
    ] {
        let known = catalog.rules_stored(vec![rule(harness, workspace)]).await;
        assert_eq!(known.unwrap(), stored, "{harness} in {workspace}");
    }
    // All of a later request's rules, or it is asked.
    let asked = ask_with(
        channel(&scene),
        vec!["shell:git status".into(), "shell:rm".into()],
    );
    let gate = scene.seat.gate().await;
    scene
        .seat
        .answer(gate.gate_id, GateReply::Deny(None))
        .await
        .unwrap();
    joined(asked).await.unwrap();
    let again = ask_with(channel(&scene), rules.clone());
    assert_eq!(
        joined(again).await.unwrap(),
        ApprovalDecision::ApproveAlways
    );
    let decided = scene.seat.events().await;
    let decided = decided
        .iter()
        .rev()
        .find(|e| e["type"] == "PermissionDecided");
    assert_eq!(decided.unwrap()["source"], "policy");
    scene.finish().await;
}

#[tokio::test]
async fn s82_success_is_returned_even_if_who_asked_has_gone() {
    let scene = turn_running().await;
    let asked = form(channel(&scene), vec![question("q")]);
    let gate = scene.seat.gate().await;
    // The runner goes while the answer is on its way: the answer is durable first.
    scene.world.faults.hold();
    let answering = {
        let seat = scene.seat.clone();
        tokio::spawn(async move { seat.answer(gate.gate_id, GateReply::Decline).await })
    };
    crate::support::breathe().await;
    asked.abort();
    let _ = asked.await;
    scene.world.faults.resume();
    let delivery = joined(answering).await.unwrap();
    assert_eq!(delivery, harness_session::Delivery::Uncertain);
    let types = scene.seat.types().await;
    assert!(types.contains(&"GateResolved:answered".to_owned()));
    scene.finish().await;
}

//! Gates: order of records, answers, redaction, withdrawal, end (R75-R77, S80-S85, N17).

use crate::scenes::{exclusive_starting, idle_control, turn_ended, turn_running};
use crate::support::{Sim, code, completed, form, permission, stopped};
use harness_core::event::{Decided, EventBody};
use harness_core::gate::{
    AnswerSource, ApprovalDecision, CloseReason, FormAnswer, GateAsk, GateReply, MAX_ANSWER,
};
use harness_core::ids::GateId;
use harness_core::provider::{ChannelError, Outcome, Params};
use harness_core::session::{Answer, GateValue, Input, InvocationId, Invoked};
use harness_core::view::Status;

fn running() -> (Sim, InvocationId) {
    let scene = turn_running();
    (scene.sim, scene.runner.unwrap())
}

fn reply(lists: &[&[&str]]) -> GateReply {
    let list = |l: &&[&str]| l.iter().map(|&v| v.to_owned()).collect();
    GateReply::Answer(lists.iter().map(list).collect())
}

fn closed_as(sim: &Sim, gate: GateId) -> CloseReason {
    let found = sim.events().find_map(|e| match &e.body {
        EventBody::GateResolved {
            gate_id, reason, ..
        } if *gate_id == gate => Some(*reason),
        _ => None,
    });
    found.expect("the gate is resolved")
}

#[test]
fn s80_a_gate_is_prepared_in_private_before_it_opens() {
    for (ask, requested) in [
        (form(), "UserInputRequested"),
        (permission(&[]), "PermissionRequested"),
    ] {
        let (mut sim, runner) = running();
        let mark = sim.mark();
        sim.ask(runner, ask);
        assert_eq!(
            sim.names_since(mark),
            ["GatePrepared", requested, "GateOpened"]
        );
        assert_eq!(sim.session.state.gates().len(), 1, "listed");
    }
}

#[test]
fn s80_a_gate_that_cannot_be_written_is_not_open() {
    let (mut sim, runner) = running();
    sim.disk_full = true;
    let ask = form();
    sim.feed(Input::Ask {
        invocation: runner,
        ask,
        stored_rules: false,
    });
    assert!(sim.session.state.gates().is_empty());
    assert!(sim.session.live.gates.is_empty());
}

#[test]
fn s80_i37_a_failed_resolve_leaves_the_gate_answerable() {
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, form());
    sim.disk_full = true;
    assert_eq!(
        code(&sim.answer(gate, GateReply::Decline)),
        "store_unavailable"
    );
    assert!(!sim.gates.contains_key(&gate), "nobody was told anything");
    sim.disk_full = false;
    assert_eq!(sim.answer(gate, GateReply::Decline), Answer::Accepted);
    assert_eq!(sim.gates[&gate], GateValue::Form(FormAnswer::Dismissed));
}

#[test]
fn s86_a_policy_answers_once_its_time_is_up() {
    for (ask, recorded, value) in [
        (
            permission(&["r"]),
            &["GateResolved", "PermissionDecided"][..],
            GateValue::Approval(ApprovalDecision::Timeout),
        ),
        (
            form(),
            &["GateResolved"],
            GateValue::Form(FormAnswer::Timeout),
        ),
    ] {
        let (mut sim, runner) = running();
        let gate = sim.ask(runner, ask);
        sim.disk_full = true;
        sim.feed(Input::GateTimeout(gate));
        assert!(!sim.gates.contains_key(&gate), "nobody was told anything");
        sim.disk_full = false;
        let mark = sim.mark();
        sim.feed(Input::GateTimeout(gate));
        assert_eq!(sim.names_since(mark), recorded);
        assert_eq!(sim.gates[&gate], value);
        assert_eq!(closed_as(&sim, gate), CloseReason::PolicyResponse);
        assert_eq!(
            code(&sim.answer(gate, GateReply::Decline)),
            "gate_not_found"
        );
        assert_eq!(sim.status(), Status::InProgress, "the run goes on");
    }
}

#[test]
fn s86_i37_a_person_who_was_earlier_has_won() {
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, permission(&[]));
    sim.answer(gate, GateReply::Deny(None));
    let mark = sim.mark();
    assert_eq!(sim.feed(Input::GateTimeout(gate)), Answer::None);
    assert!(sim.names_since(mark).is_empty());
    assert_eq!(closed_as(&sim, gate), CloseReason::Answered);
}

#[test]
fn s82_r76_the_answer_is_durable_before_it_is_dispatched() {
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, form());
    let mark = sim.mark();
    sim.answer(gate, reply(&[&["left"], &["hush"]]));
    assert_eq!(sim.names_since(mark), ["ProvideUserInput", "GateResolved"]);
    let given = FormAnswer::Submitted(vec![vec!["left".into()], vec!["hush".into()]]);
    assert_eq!(sim.gates[&gate], GateValue::Form(given));
    assert_eq!(closed_as(&sim, gate), CloseReason::Answered);
}

#[test]
fn s81_i37_a_secret_answer_is_nowhere_in_the_journal() {
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, form());
    sim.answer(gate, reply(&[&["left"], &["hunter2-secret"]]));
    sim.done(runner, Ok(Outcome::default()));
    let stored: Vec<String> = sim
        .journal
        .iter()
        .map(|r| String::from_utf8(r.encode().unwrap().bytes).unwrap())
        .collect();
    assert!(
        stored.iter().all(|r| !r.contains("hunter2")),
        "the secret leaked"
    );
    assert!(stored.iter().any(|r| r.contains("{\"redacted\":true}")));
    assert!(
        stored
            .iter()
            .any(|r| r.contains("[[\"left\"],{\"redacted\":true}]")),
        "others are verbatim"
    );
    let shown = serde_json::to_string(&sim.session.snapshot()).unwrap();
    assert!(!shown.contains("hunter2"));
}

#[test]
fn r76_a_wrong_answer_leaves_the_gate_open() {
    let long = "x".repeat(MAX_ANSWER + 1);
    let table = [
        (reply(&[&["left"]]), "invalid_request"),
        (reply(&[&["left"], &[], &[]]), "invalid_request"),
        (reply(&[&["left", "right"], &[]]), "invalid_request"),
        (reply(&[&["middle"], &[]]), "invalid_request"),
        (reply(&[&["left"], &["a", "b"]]), "invalid_request"),
        (reply(&[&["left"], &[&long]]), "payload_too_large"),
        (GateReply::ApproveOnce, "gate_kind_mismatch"),
        (GateReply::Deny(None), "gate_kind_mismatch"),
    ];
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, form());
    let mark = sim.mark();
    for (wrong, expected) in table {
        assert_eq!(code(&sim.answer(gate, wrong)), expected);
        assert_eq!((sim.mark(), sim.status()), (mark, Status::AwaitingInput));
    }
    assert_eq!(
        sim.answer(gate, reply(&[&[], &[]])),
        Answer::Accepted,
        "S84: a valid one still works"
    );
}

#[test]
fn s83_how_an_approval_is_decided() {
    let deny = || GateReply::Deny(Some("not here".into()));
    let table = [
        (
            GateReply::ApproveOnce,
            ApprovalDecision::ApproveOnce,
            Decided::ApproveOnce,
            "ApproveToolCall",
        ),
        (
            GateReply::ApproveAlways,
            ApprovalDecision::ApproveAlways,
            Decided::ApproveAlwaysWorkspace,
            "ApproveToolCall",
        ),
        (
            deny(),
            ApprovalDecision::Deny(Some("not here".into())),
            Decided::Deny,
            "DenyToolCall",
        ),
    ];
    for (reply, decision, decided, command) in table {
        let (mut sim, runner) = running();
        let gate = sim.ask(runner, permission(&["shell:ls"]));
        let mark = sim.mark();
        assert_eq!(sim.answer(gate, reply), Answer::Accepted);
        assert_eq!(
            sim.names_since(mark),
            [command, "GateResolved", "PermissionDecided"]
        );
        assert_eq!(sim.gates[&gate], GateValue::Approval(decision));
        let expected = EventBody::PermissionDecided {
            gate_id: gate,
            tool_use_id: "call-1".into(),
            decision: decided,
            source: AnswerSource::Human,
        };
        assert_eq!(*sim.last("PermissionDecided"), expected, "S89");
    }
}

#[test]
fn s83_always_is_refused_where_it_is_not_offered() {
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, permission(&[]));
    assert_eq!(
        code(&sim.answer(gate, GateReply::ApproveAlways)),
        "gate_action_invalid"
    );
    assert_eq!(sim.status(), Status::AwaitingInput);
}

#[test]
fn s83_stored_rules_answer_without_a_gate_but_never_an_empty_list() {
    let (mut sim, runner) = running();
    let mark = sim.mark();
    let answer = sim.feed(Input::Ask {
        invocation: runner,
        ask: permission(&["shell:ls"]),
        stored_rules: true,
    });
    assert_eq!(answer, Answer::Approved(ApprovalDecision::ApproveAlways));
    assert_eq!(sim.names_since(mark), ["PermissionDecided"]);
    let without_rules = sim.feed(Input::Ask {
        invocation: runner,
        ask: permission(&[]),
        stored_rules: true,
    });
    assert!(
        matches!(without_rules, Answer::Asked(_)),
        "nothing was ever approved there"
    );
}

#[test]
fn r75_the_session_awaits_input_until_the_last_gate_is_answered() {
    let (mut sim, runner) = running();
    let (first, second) = (sim.ask(runner, form()), sim.ask(runner, permission(&[])));
    sim.answer(first, GateReply::Decline);
    assert_eq!(sim.status(), Status::AwaitingInput);
    sim.answer(second, GateReply::ApproveOnce);
    assert_eq!(sim.status(), Status::InProgress);
    sim.ask(runner, form());
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(
        sim.status(),
        Status::Completed,
        "asks reject when the run ends"
    );
}

#[test]
fn s85_gates_close_with_what_opened_them() {
    let (mut sim, runner) = running();
    let (_, control) = sim.control();
    let (of_turn, of_control) = (sim.ask(runner, form()), sim.ask(control, form()));
    sim.invoked(control, completed());
    assert_eq!(closed_as(&sim, of_control), CloseReason::Abandoned);
    assert!(
        !sim.gates.contains_key(&of_turn),
        "the other one is untouched"
    );
    sim.done(runner, Ok(Outcome::default()));
    assert_eq!(closed_as(&sim, of_turn), CloseReason::Abandoned);
    assert_eq!(
        sim.gates[&of_turn],
        GateValue::Rejected(ChannelError::Closed)
    );
}

#[test]
fn s85_a_gate_of_a_control_outlives_the_turns_runner() {
    let mut scene = turn_ended();
    let (_, control) = scene.beside.unwrap();
    let gate = scene.sim.ask(control, form());
    assert_eq!(scene.sim.status(), Status::AwaitingInput);
    assert_eq!(scene.sim.answer(gate, GateReply::Decline), Answer::Accepted);
}

#[test]
fn r25_gates_go_on_after_started_was_returned() {
    let mut scene = exclusive_starting();
    let runner = scene.runner.unwrap();
    let gate = scene.sim.ask(runner, form());
    scene
        .sim
        .invoked(runner, Ok(Invoked::Started(Params::new())));
    assert_eq!(scene.sim.status(), Status::AwaitingInput);
    assert_eq!(scene.sim.answer(gate, GateReply::Decline), Answer::Accepted);
}

#[test]
fn n17_a_dropped_or_withdrawn_request_closes_its_gate() {
    for dropped in [true, false] {
        let mut scene = idle_control();
        let runner = scene.runner.unwrap();
        let gate = scene.sim.ask(runner, permission(&[]));
        scene.sim.feed(if dropped {
            Input::Unasked(gate)
        } else {
            Input::Withdraw {
                invocation: runner,
                provider_id: "call-1".into(),
            }
        });
        assert_eq!(closed_as(&scene.sim, gate), CloseReason::Withdrawn);
        assert_eq!(scene.sim.status(), Status::InProgress);
        assert_eq!(
            code(&scene.sim.answer(gate, GateReply::ApproveOnce)),
            "gate_not_found"
        );
        scene.sim.feed(Input::Unasked(gate));
        assert_eq!(scene.sim.count("GateResolved"), 1, "a late drop is nothing");
    }
}

#[test]
fn n17_withdrawing_reaches_ones_own_gates_only() {
    let (mut sim, runner) = running();
    let (_, control) = sim.control();
    let gate = sim.ask(runner, form());
    sim.feed(Input::Withdraw {
        invocation: control,
        provider_id: "form-1".into(),
    });
    sim.feed(Input::Withdraw {
        invocation: runner,
        provider_id: "other".into(),
    });
    assert_eq!(sim.session.state.gates()[0].gate_id, gate);
}

#[test]
fn s56_i45_handles_of_an_invocation_that_is_over_are_closed() {
    let (mut sim, runner) = running();
    sim.done(runner, Ok(Outcome::default()));
    let mark = sim.mark();
    let ask = |ask: GateAsk| Input::Ask {
        invocation: runner,
        ask,
        stored_rules: false,
    };
    assert_eq!(sim.feed(ask(form())), Answer::Channel(ChannelError::Closed));
    assert_eq!(
        sim.feed(Input::TakeInput(runner)),
        Answer::Channel(ChannelError::Closed)
    );
    let bind = Input::Bind {
        invocation: runner,
        native_session_id: "x".into(),
    };
    assert_eq!(sim.feed(bind), Answer::Channel(ChannelError::Closed));
    let message = sim.message("late");
    sim.feed(Input::Step {
        invocation: runner,
        messages: vec![message],
    });
    assert_eq!(sim.mark(), mark, "no effect");
}

#[test]
fn r67_a_stopped_invocation_asks_nobody_any_more() {
    let (mut sim, runner) = running();
    sim.interrupt();
    let ask = Input::Ask {
        invocation: runner,
        ask: form(),
        stored_rules: false,
    };
    assert_eq!(sim.feed(ask), Answer::Channel(ChannelError::Stopped));
    sim.done(runner, stopped());
}

#[test]
fn w3_a_request_beyond_its_bounds_opens_no_gate() {
    let (mut sim, runner) = running();
    let GateAsk::Permission(mut request) = permission(&[]) else {
        panic!()
    };
    request.tool_input = "x".repeat(256 * 1024 + 1);
    let input = Input::Ask {
        invocation: runner,
        ask: GateAsk::Permission(request),
        stored_rules: false,
    };
    assert!(matches!(
        sim.feed(input),
        Answer::Channel(ChannelError::Limit(_))
    ));
    for _ in 0..64 {
        sim.ask(runner, form());
    }
    let more = Input::Ask {
        invocation: runner,
        ask: form(),
        stored_rules: false,
    };
    assert!(matches!(
        sim.feed(more),
        Answer::Channel(ChannelError::Limit(_))
    ));
}

#[test]
fn s68_a_form_that_fits_no_record_opens_no_gate() {
    let (mut sim, runner) = running();
    let GateAsk::AskUser(mut form) = form() else {
        panic!()
    };
    form.questions[0].label = "x".repeat(4096);
    let question = form.questions[0].clone();
    form.questions = vec![question.clone(); 64];
    for question in &mut form.questions {
        let mut choice = question.choices[0].clone();
        choice.description = Some("x".repeat(4096));
        question.choices = vec![choice; 8];
    }
    let ask = GateAsk::AskUser(form);
    let input = Input::Ask {
        invocation: runner,
        ask,
        stored_rules: false,
    };
    assert!(matches!(
        sim.feed(input),
        Answer::Channel(ChannelError::Limit(_))
    ));
    assert!(sim.session.live.faulted.is_none());
}

#[test]
fn s80_s82_a_gate_that_is_being_claimed_is_not_ready_for_anybody_else() {
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, permission(&["shell:ls"]));
    let claim = |sim: &mut Sim| {
        sim.feed(Input::ClaimGate {
            gate_id: gate,
            reply: GateReply::ApproveAlways,
        })
    };
    let mark = sim.mark();
    assert!(matches!(claim(&mut sim), Answer::Claimed(found) if found.gate_id == gate));
    assert!(sim.names_since(mark).is_empty(), "in memory only");
    assert_eq!(code(&claim(&mut sim)), "gate_not_ready");
    let other = sim.answer(gate, GateReply::Deny(None));
    assert_eq!(code(&other), "gate_not_ready");
    let Answer::Refused(refused) = other else {
        unreachable!()
    };
    assert!(refused.retryable());
    assert_eq!(
        sim.feed(Input::GateTimeout(gate)),
        Answer::None,
        "S86: the person was earlier"
    );
    // Given back, it is answerable again.
    sim.feed(Input::UnclaimGate(gate));
    assert!(matches!(claim(&mut sim), Answer::Claimed(_)));
    let origin = sim.origin();
    let input = Input::AnswerClaimed {
        origin,
        gate_id: gate,
        reply: GateReply::ApproveAlways,
    };
    assert_eq!(sim.feed(input), Answer::Accepted);
    assert_eq!(
        sim.gates[&gate],
        GateValue::Approval(ApprovalDecision::ApproveAlways)
    );
    assert!(sim.session.live.claimed.is_empty());
    assert_eq!(code(&claim(&mut sim)), "gate_not_found");
}

#[test]
fn s80_a_stop_closes_a_gate_that_is_being_claimed() {
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, permission(&["shell:ls"]));
    sim.feed(Input::ClaimGate {
        gate_id: gate,
        reply: GateReply::ApproveAlways,
    });
    sim.interrupt();
    assert_eq!(closed_as(&sim, gate), CloseReason::Abandoned);
    let origin = sim.origin();
    let late = sim.feed(Input::AnswerClaimed {
        origin,
        gate_id: gate,
        reply: GateReply::ApproveAlways,
    });
    assert_eq!(code(&late), "gate_not_found");
    assert!(sim.session.live.claimed.is_empty());
    sim.done(runner, stopped());
}

#[test]
fn s80_an_answer_that_does_not_fit_claims_nothing() {
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, permission(&[]));
    let claim = sim.feed(Input::ClaimGate {
        gate_id: gate,
        reply: GateReply::ApproveAlways,
    });
    assert_eq!(code(&claim), "gate_action_invalid");
    assert_eq!(sim.answer(gate, GateReply::ApproveOnce), Answer::Accepted);
}

#[test]
fn s84_a_reply_is_routed_by_its_gate_and_reaches_no_sibling() {
    let mut sim = Sim::new();
    sim.free = 2;
    sim.running();
    let second = sim.create_loop(None);
    sim.submit_to(second, "too");
    let other = sim.session.live.of(second).owner.as_ref().unwrap().runner;
    sim.started(other, Ok(Params::new()));
    let first = sim.runner();
    let mine = sim.ask(first, permission(&[]));
    let theirs = sim.ask(other, form());
    // A wrong kind or an unknown id is dropped, and a valid reply works afterwards.
    assert_eq!(
        code(&sim.answer(theirs, GateReply::ApproveOnce)),
        "gate_kind_mismatch"
    );
    let unknown = GateId(uuid::Uuid::max());
    assert_eq!(
        code(&sim.answer(unknown, GateReply::Decline)),
        "gate_not_found"
    );
    assert!(sim.gates.is_empty());
    assert_eq!(sim.answer(theirs, GateReply::Decline), Answer::Accepted);
    assert_eq!(sim.gates.keys().copied().collect::<Vec<_>>(), [theirs]);
    assert!(sim.session.state.gates().iter().any(|g| g.gate_id == mine));
    let resolved = sim
        .events()
        .rev()
        .find(|e| e.body.meta().name == "GateResolved");
    assert_eq!(resolved.unwrap().loop_id, second);
}

#[test]
fn s83_all_rules_of_a_call_are_one_prompt_and_an_empty_rule_is_none() {
    let (mut sim, runner) = running();
    let mark = sim.mark();
    sim.ask(runner, permission(&["shell:ls", "net:a.example"]));
    let prompts = sim.names_since(mark);
    assert_eq!(prompts.iter().filter(|n| **n == "GateOpened").count(), 1);
    let empty = sim.feed(Input::Ask {
        invocation: runner,
        ask: permission(&["shell:ls", ""]),
        stored_rules: false,
    });
    assert!(matches!(empty, Answer::Channel(ChannelError::Limit(_))));
}

#[test]
fn s89_who_answered_is_stamped_by_the_host() {
    let (mut sim, runner) = running();
    for (gate, source) in [
        (sim.ask(runner, form()), AnswerSource::Human),
        (sim.ask(runner, form()), AnswerSource::Policy),
    ] {
        match source {
            AnswerSource::Human => drop(sim.answer(gate, GateReply::Decline)),
            _ => drop(sim.feed(Input::GateTimeout(gate))),
        }
        let stamped = sim.events().find_map(|e| match &e.body {
            EventBody::GateResolved {
                gate_id, source, ..
            } if *gate_id == gate => *source,
            _ => None,
        });
        assert_eq!(stamped, Some(source));
    }
}

#[test]
fn s84_an_execution_routes_to_its_gate() {
    let (mut sim, runner) = running();
    let gate = sim.ask(runner, form());
    let open = sim.session.state.gates();
    let execution = GateId(open[0].tool_execution_id.0);
    assert_eq!(
        code(&sim.answer(execution, GateReply::ApproveOnce)),
        "gate_kind_mismatch",
        "plus its kind"
    );
    assert_eq!(sim.answer(execution, GateReply::Decline), Answer::Accepted);
    assert_eq!(sim.gates[&gate], GateValue::Form(FormAnswer::Dismissed));
    assert_eq!(
        code(&sim.answer(execution, GateReply::Decline)),
        "gate_not_found"
    );
}

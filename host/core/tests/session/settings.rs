//! The one owner of a session's settings (R13, R28, R30, S55, S77).

use crate::scenes::{idle, idle_control, queued, turn_running};
use crate::support::{LOOP, Sim, code, harness, patch};
use harness_core::event::EventBody;
use harness_core::provider::{ModelSpec, ParamValue, Params};
use harness_core::session::{Answer, Effect, Input, check_model, effective_params, merge_params};

fn set_model(sim: &mut Sim, model: Option<&str>) -> Answer {
    let origin = sim.origin();
    let model = Some(model.map(str::to_owned));
    sim.feed(Input::Settings {
        origin,
        title: None,
        model,
        params: None,
        agent: None,
    })
}

#[test]
fn s55_model_and_agent_wait_for_a_session_at_rest() {
    for mut sim in [turn_running().sim, queued().sim] {
        let mark = sim.mark();
        assert_eq!(code(&set_model(&mut sim, Some("large"))), "session_busy");
        assert_eq!(
            code(&sim.set(None, None, Some("demo/other"))),
            "session_busy"
        );
        assert_eq!(sim.mark(), mark);
        assert_eq!(
            sim.set(Some("New"), Some(patch("plan")), None),
            Answer::Accepted
        );
        assert_eq!(sim.session.view().title, "New");
    }
    let mut sim = idle_control().sim;
    assert_eq!(
        sim.set(None, None, Some("demo/other")),
        Answer::Accepted,
        "I14"
    );
}

#[test]
fn s55_a_change_that_changes_nothing_writes_nothing() {
    let mut sim = idle().sim;
    let mark = sim.mark();
    assert_eq!(
        sim.set(
            Some("Test"),
            Some(Params::new()),
            Some(crate::support::HARNESS)
        ),
        Answer::Accepted
    );
    assert_eq!(set_model(&mut sim, None), Answer::Accepted);
    assert_eq!(sim.mark(), mark);
}

#[test]
fn s69a_a_model_is_set_and_cleared() {
    let mut sim = idle().sim;
    set_model(&mut sim, Some("large"));
    assert_eq!(sim.session.view().model.as_deref(), Some("large"));
    set_model(&mut sim, None);
    assert_eq!(sim.session.view().model, None);
    assert!(
        matches!(sim.last("SessionParamsChanged"), EventBody::SessionParamsChanged { model: Some(m), .. } if m.is_empty())
    );
}

#[test]
fn s77_another_harness_begins_without_a_native_conversation() {
    let mut sim = idle().sim;
    let (_, runner) = sim.running();
    let bind = |id: &str| Input::Bind {
        invocation: runner,
        native_session_id: id.into(),
    };
    sim.feed(bind("n-1"));
    sim.feed(bind("n-1"));
    assert_eq!(sim.count("NativeSessionBound"), 1, "the same id is no news");
    sim.feed(bind("n-2"));
    assert_eq!(
        sim.session.view().agent_session_id.as_deref(),
        Some("n-2"),
        "the last one"
    );
    for wrong in [String::new(), "x".repeat(1025)] {
        assert!(matches!(sim.feed(bind(&wrong)), Answer::Channel(_)));
    }
    sim.done(runner, Ok(Default::default()));
    sim.native(1, "turn-1");
    let native = sim.runner();
    sim.done(native, Ok(Default::default()));
    let mark = sim.mark();
    sim.set(None, None, Some("demo/other"));
    assert_eq!(
        sim.names_since(mark),
        ["SessionParamsChanged", "ConfigurationAdopted"]
    );
    assert_eq!(sim.session.view().agent_session_id, None);
    assert_eq!(sim.session.view().agent.as_str(), "demo/other");
    assert_eq!(sim.effect(|e| matches!(e, Effect::DisposeInstance(_))), 1);
    sim.harness = Some(harness("demo/other"));
    sim.native(2, "turn-1");
}

#[test]
fn r30_a_patch_is_merged_one_level_deep() {
    let mut info = harness("demo/planner");
    let stored: Params = [("kept".to_owned(), ParamValue::Boolean(true))].into();
    let merged = merge_params(&info, &stored, &patch("plan")).unwrap();
    assert_eq!(merged.len(), 2);
    assert_eq!(merged["mode"], ParamValue::Text("plan".into()));
    let unknown: Params = [("nope".to_owned(), ParamValue::Boolean(true))].into();
    let error = merge_params(&info, &stored, &unknown).unwrap_err();
    assert!(
        error.contains("nope") && error.contains("mode"),
        "it names the key and what there is: {error}"
    );
    let error = merge_params(&info, &stored, &patch("sleep")).unwrap_err();
    assert!(
        error.contains("work, plan"),
        "it names the choices: {error}"
    );
    let boolean: Params = [("mode".to_owned(), ParamValue::Boolean(true))].into();
    info.params[0].choices.clear();
    assert!(merge_params(&info, &stored, &patch(&"x".repeat(65_536))).is_ok());
    let error = merge_params(&info, &stored, &patch(&"x".repeat(65_537))).unwrap_err();
    assert!(error.contains("65537"), "{error}");
    assert!(
        merge_params(&info, &stored, &boolean)
            .unwrap_err()
            .contains("takes a text")
    );
}

#[test]
fn r13_defaults_stay_in_force_whoever_owns_the_control() {
    let info = harness("demo/planner");
    let defaults = effective_params(&info, &Params::new()).unwrap();
    assert_eq!(defaults, patch("work"));
    assert_eq!(
        effective_params(&info, &patch("plan")).unwrap(),
        patch("plan")
    );
}

#[test]
fn r40_a_model_is_checked_against_what_the_harness_offers() {
    let model = |id: &str| ModelSpec {
        id: id.into(),
        label: id.into(),
        efforts: vec![],
    };
    let mut info = harness("demo/planner");
    assert!(
        check_model(&info, &[], "anything").is_ok(),
        "none named: all taken"
    );
    info.models = vec![model("large")];
    assert!(check_model(&info, &[], "large").is_ok());
    assert!(
        check_model(&info, &[], "small")
            .unwrap_err()
            .contains("large")
    );
    assert!(
        check_model(&info, &[model("small")], "small").is_ok(),
        "what detection found replaces it"
    );
    assert!(check_model(&info, &[model("small")], "large").is_err());
}

#[test]
fn g7_a_change_of_state_is_told_and_counted() {
    let mut sim = idle().sim;
    let epoch = sim.live().state_epoch;
    sim.feed(Input::StateChanged(LOOP));
    assert_eq!(sim.live().state_epoch, epoch + 1);
    assert_eq!(sim.effect(|e| matches!(e, Effect::NotifyState(_))), 1);
    let (_, control) = sim.control();
    sim.invoked(control, crate::support::completed());
    assert_eq!(
        sim.effect(|e| matches!(e, Effect::NotifyState(_))),
        2,
        "after every settled operation"
    );
    sim.set(None, None, Some("demo/other"));
    assert_eq!(
        sim.effect(|e| matches!(e, Effect::NotifyState(_))),
        3,
        "and after a harness change"
    );
}

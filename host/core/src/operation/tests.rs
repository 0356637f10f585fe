use super::*;
use serde_json::json;

fn state() -> CommandState {
    serde_json::from_value(json!({
        "slashCommands": true,
        "commands": [
            {"name": "/goal", "description": "Work", "argumentHelp": "<objective>",
             "composer": {"label": "Goal", "modeId": "goal", "reservedArguments": ["pause"]}},
            {"name": "/plan", "description": "Plan", "disabledReason": "Clear the goal first"},
            {"name": "/bare", "description": ""}
        ],
        "modes": [
            {"id": "goal", "label": "Goal", "description": "Ship", "state": "active", "tagText": "Ship",
             "indicator": {"label": "running", "tone": "success"}, "closeActionId": "clear",
             "actions": [{"id": "edit", "label": "Edit", "icon": "pencil",
                          "argument": {"label": "Objective", "value": "Ship"}},
                         {"id": "clear", "label": "Clear"}],
             "confirmation": {"id": "rev-1", "title": "Approve?", "actionId": "edit", "model": "m1"}}
        ]
    }))
    .unwrap()
}

fn harness() -> HarnessId {
    "demo/planner".parse().unwrap()
}

#[test]
fn r2_a_command_needs_only_name_and_description() {
    assert_eq!(state().commands[2].composer, None);
    assert_eq!(state().check(), Ok(()));
}

#[test]
fn r6_every_field_survives_parse_and_serialise() {
    let state = state();
    let json = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<CommandState>(&json).unwrap(), state);
    assert!(
        !json.contains("null"),
        "absent members are absent, never null: {json}"
    );
    let at = |id: &str| json.find(&format!("{{\"id\":\"{id}\"")).unwrap();
    assert!(at("edit") < at("clear"), "in list order: {json}");
}

#[test]
fn r1_revision_changes_with_its_inputs_only() {
    let base = state();
    let revision = base.revision(&harness());
    assert!(revision.len() <= 128);
    assert_eq!(
        revision,
        state().revision(&harness()),
        "equal inputs, equal tokens"
    );

    type Change = fn(&mut CommandState);
    let inputs: [Change; 9] = [
        |s| s.slash_commands = false,
        |s| s.commands[0].name = "/goals".into(),
        |s| s.commands[0].composer = None,
        |s| s.commands[1].disabled_reason = None,
        |s| s.modes[0].id = "goal2".into(),
        |s| s.modes[0].description = "Sail".into(),
        |s| drop(s.modes[0].actions.pop()),
        |s| s.modes[0].close_action_id = None,
        |s| s.modes[0].confirmation = None,
    ];
    for (n, change) in inputs.iter().enumerate() {
        let mut changed = state();
        change(&mut changed);
        assert_ne!(
            changed.revision(&harness()),
            revision,
            "input {n} must count"
        );
    }
    let others: [Change; 6] = [
        |s| s.commands[0].description = "other".into(),
        |s| s.commands[0].argument_help = None,
        |s| s.modes[0].label = "other".into(),
        |s| s.modes[0].state = "paused".into(),
        |s| s.modes[0].tag_text = None,
        |s| s.modes[0].indicator = None,
    ];
    for (n, change) in others.iter().enumerate() {
        let mut changed = state();
        change(&mut changed);
        assert_eq!(
            changed.revision(&harness()),
            revision,
            "field {n} must not count"
        );
    }
    assert_ne!(base.revision(&"other/one".parse().unwrap()), revision);
}

#[test]
fn r7_i44_each_limit_refuses_the_whole_state() {
    type Change = fn(&mut CommandState);
    let breaches: [(&str, Change); 19] = [
        ("256", |s| {
            s.commands = (0..257)
                .map(|n| NativeCommand {
                    name: format!("/c{n}"),
                    ..s.commands[2].clone()
                })
                .collect();
        }),
        ("64", |s| {
            s.modes = (0..65)
                .map(|n| NativeMode {
                    id: format!("m{n}"),
                    ..s.modes[0].clone()
                })
                .collect()
        }),
        ("64", |s| {
            s.modes[0].actions = (0..65)
                .map(|n| ModeAction {
                    id: format!("a{n}"),
                    ..s.modes[0].actions[1].clone()
                })
                .collect();
        }),
        ("64", |s| {
            s.commands[0].composer.as_mut().unwrap().reserved_arguments = vec!["w".into(); 65]
        }),
        ("128", |s| {
            s.commands[0].name = format!("/{}", "x".repeat(128))
        }),
        ("does not match", |s| s.commands[0].name = "goal".into()),
        ("does not match", |s| s.commands[0].name = "/a/b".into()),
        ("does not match", |s| s.commands[0].name = "/a b".into()),
        ("listed twice", |s| s.commands[1].name = "/goal".into()),
        ("listed twice", |s| s.modes.push(s.modes[0].clone())),
        ("listed twice", |s| s.modes[0].actions[1].id = "edit".into()),
        ("4096", |s| s.commands[0].description = "x".repeat(4097)),
        ("4096", |s| {
            s.commands[1].disabled_reason = Some("x".repeat(4097))
        }),
        ("4096", |s| s.modes[0].state = "x".repeat(4097)),
        ("4096", |s| s.note = Some("x".repeat(4097))),
        ("262144", |s| {
            s.modes[0].description = "x".repeat(256 * 1024 + 1)
        }),
        ("empty", |s| s.modes[0].label = String::new()),
        ("128", |s| {
            s.modes[0].confirmation.as_mut().unwrap().title = "x".repeat(129)
        }),
        ("serialised", |s| {
            s.modes = (0..32)
                .map(|n| NativeMode {
                    id: format!("m{n}"),
                    description: "x".repeat(200_000),
                    ..s.modes[0].clone()
                })
                .collect();
        }),
    ];
    for (n, (expected, change)) in breaches.iter().enumerate() {
        let mut broken = state();
        change(&mut broken);
        let error = broken
            .check()
            .expect_err(&format!("breach {n} must be refused"));
        assert!(error.contains(expected), "breach {n}: {error}");
    }
}

#[test]
fn r20_operations_are_a_closed_strict_union() {
    for good in [
        json!({"kind": "command", "text": "/goal  ship it \n"}),
        json!({"kind": "mode-action", "modeId": "plan", "actionId": "approve", "argument": "rev-7"}),
        json!({"kind": "mode-action", "modeId": "plan", "actionId": "exit"}),
    ] {
        let operation: Operation = serde_json::from_value(good.clone()).unwrap();
        assert_eq!(serde_json::to_value(&operation).unwrap(), good);
        assert_eq!(operation.check(), Ok(()));
    }
    for bad in [
        json!({"kind": "prompt", "text": "x"}),
        json!({"kind": "command", "text": "/x", "extra": 1}),
        json!({"kind": "mode-action", "mode_id": "x", "actionId": "y"}),
        json!({"text": "/x"}),
    ] {
        assert!(
            serde_json::from_value::<Operation>(bad.clone()).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn r7_operation_input_has_bounds() {
    let command = |n| Operation::Command {
        text: "x".repeat(n),
    };
    assert!(matches!(
        command(0).check(),
        Err(OperationLimit::Empty { .. })
    ));
    assert_eq!(command(MAX_COMMAND_TEXT).check(), Ok(()));
    assert!(matches!(
        command(MAX_COMMAND_TEXT + 1).check(),
        Err(OperationLimit::TooLarge { .. })
    ));
    let action = |n| Operation::ModeAction {
        mode_id: "m".into(),
        action_id: "a".into(),
        argument: Some("x".repeat(n)),
    };
    assert_eq!(action(MAX_ARGUMENT).check(), Ok(()));
    assert!(matches!(
        action(MAX_ARGUMENT + 1).check(),
        Err(OperationLimit::TooLarge { .. })
    ));
}

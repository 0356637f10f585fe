//! Every event: golden bytes, round trip, coverage, class, scope and visibility (S60, S61, S68).

use crate::golden;
use crate::samples::{
    at, command, form, gate, id, message, open_gate, params, permission, run, session, the_loop,
    turn, usage,
};
use harness_core::codec::{CodecError, decode_event, encode_ephemeral, encode_event};
use harness_core::command::{Agency, Cause, ProcessState};
use harness_core::configuration::{Configuration, HarnessConfiguration};
use harness_core::content::{Part, Role};
use harness_core::event::{
    CancelReason, Class, CompactionReason, Decided, DeliveryState, DeltaOp, Event, EventBody,
    Failure, InterruptReason, NativeOrigin, RejectReason, Runtime, Scope, Visibility,
};
use harness_core::gate::{AnswerSource, CloseReason};
use harness_core::ids::{EventId, GateId, LoopId, TurnId};
use harness_core::provider::TurnStart;
use harness_core::view::{OutcomeStatus, ParamsEffective, Status};
use harness_core::workspace::WorkspaceRef;
use jiff::SignedDuration;
use std::collections::BTreeSet;

fn failure() -> Failure {
    Failure {
        code: "provider_trap".into(),
        message: "unreachable".into(),
    }
}

fn configuration() -> Configuration {
    Configuration {
        workspace_root: Some("/work".into()),
        harnesses: [(
            "demo/planner".parse().unwrap(),
            HarnessConfiguration {
                declares: "demo/planner".parse().unwrap(),
                version: "1.2.0".into(),
                contract: Some("0.1.0".into()),
                loop_modes: vec!["review".into()],
            },
        )]
        .into(),
    }
}

fn reference() -> WorkspaceRef {
    format!("v1:sha256:{}", "0a".repeat(32)).parse().unwrap()
}

fn bodies() -> Vec<(&'static str, EventBody)> {
    let (run_id, gate_id) = (run(), gate());
    let agent = "demo/planner".parse().unwrap();
    let planner: harness_core::ids::HarnessId = "demo/planner".parse().unwrap();
    vec![
        (
            "SessionStarted",
            EventBody::SessionStarted {
                project_id: "default".parse().unwrap(),
                title: "Ship".into(),
                agent,
                model: Some("large".into()),
                params: params(),
                workspace_id: "main".parse().unwrap(),
                configuration: None,
            },
        ),
        (
            "SessionStarted-configuration",
            EventBody::SessionStarted {
                project_id: "default".parse().unwrap(),
                title: "Ship".into(),
                agent: planner.clone(),
                model: None,
                params: params(),
                workspace_id: "main".parse().unwrap(),
                configuration: Some(configuration()),
            },
        ),
        ("SessionActive", EventBody::SessionActive {}),
        ("SessionIdle", EventBody::SessionIdle {}),
        ("SessionStopped", EventBody::SessionStopped {}),
        ("RestoreStarted", EventBody::RestoreStarted {}),
        ("RestoreDone", EventBody::RestoreDone {}),
        (
            "RestoreErrored",
            EventBody::RestoreErrored { error: failure() },
        ),
        (
            "ConfigurationAdopted",
            EventBody::ConfigurationAdopted {
                epoch: 2,
                agent: planner.clone(),
                configuration: None,
            },
        ),
        (
            "ConfigurationAdopted-restored",
            EventBody::ConfigurationAdopted {
                epoch: 3,
                agent: planner.clone(),
                configuration: Some(configuration()),
            },
        ),
        (
            "SessionParamsChanged",
            EventBody::SessionParamsChanged {
                title: Some("New".into()),
                model: Some(String::new()),
                params: Some(params()),
                agent: Some(planner.clone()),
            },
        ),
        (
            "SessionParamsChanged-title",
            EventBody::SessionParamsChanged {
                title: Some("New".into()),
                model: None,
                params: None,
                agent: None,
            },
        ),
        (
            "ActiveLoopChanged",
            EventBody::ActiveLoopChanged {
                active_loop_id: id(31),
                previous_loop_id: the_loop(),
            },
        ),
        (
            "LoopStarted-model",
            EventBody::LoopStarted {
                harness_id: planner.clone(),
                parent_loop_id: None,
                model: Some("small".into()),
            },
        ),
        (
            "LoopModeChanged",
            EventBody::LoopModeChanged {
                previous: String::new(),
                mode: "review".into(),
                runtime: Runtime::default(),
            },
        ),
        (
            "LoopInferenceChanged",
            EventBody::LoopInferenceChanged {
                runtime: Runtime {
                    model: Some("small".into()),
                    effort: Some("high".into()),
                },
            },
        ),
        (
            "DelegateRequestAccepted",
            EventBody::DelegateRequestAccepted {
                parent_loop_id: the_loop(),
                background_hand_back: true,
            },
        ),
        (
            "DelegateDeliveryStateChanged",
            EventBody::DelegateDeliveryStateChanged {
                state: DeliveryState::Completed,
                error: None,
            },
        ),
        (
            "DelegateDeliveryStateChanged-failed",
            EventBody::DelegateDeliveryStateChanged {
                state: DeliveryState::Failed,
                error: Some(failure()),
            },
        ),
        (
            "LoopTombstoned",
            EventBody::LoopTombstoned { error: failure() },
        ),
        (
            "WorkspaceCheckpointed",
            EventBody::WorkspaceCheckpointed {
                reference: reference(),
                entries: 12,
                bytes: 3456,
            },
        ),
        (
            "WorkspaceRestored",
            EventBody::WorkspaceRestored {
                reference: reference(),
                exact: true,
            },
        ),
        ("CompactionStarted", EventBody::CompactionStarted {}),
        (
            "CompactionCommitted",
            EventBody::CompactionCommitted {
                summary: Some("Shipped.".into()),
                usage: Some(usage()),
            },
        ),
        (
            "CompactionCommitted-bare",
            EventBody::CompactionCommitted {
                summary: None,
                usage: None,
            },
        ),
        (
            "CompactionRejected",
            EventBody::CompactionRejected {
                reason: CompactionReason::ExecutionFailed,
                error: Some(failure()),
            },
        ),
        ("CompactWaiterResolved", EventBody::CompactWaiterResolved {}),
        (
            "CompactWaiterRejected",
            EventBody::CompactWaiterRejected {
                reason: CompactionReason::LaneFull,
            },
        ),
        (
            "LoopStarted",
            EventBody::LoopStarted {
                harness_id: planner.clone(),
                parent_loop_id: None,
                model: None,
            },
        ),
        (
            "LoopStarted-child",
            EventBody::LoopStarted {
                harness_id: planner.clone(),
                parent_loop_id: Some(id(8)),
                model: None,
            },
        ),
        ("LoopIdle", EventBody::LoopIdle {}),
        (
            "NativeSessionBound",
            EventBody::NativeSessionBound {
                native_session_id: "n-1".into(),
            },
        ),
        (
            "ProcessStarted",
            EventBody::ProcessStarted {
                process_handle: "build".into(),
                program: "make".into(),
            },
        ),
        (
            "ProcessFinished",
            EventBody::ProcessFinished {
                process_handle: "build".into(),
                state: ProcessState::Failed,
                reason: "exit code 2".into(),
                exit_code: Some(2),
            },
        ),
        (
            "ProcessFinished-stopped",
            EventBody::ProcessFinished {
                process_handle: "build".into(),
                state: ProcessState::Stopped,
                reason: "it was stopped".into(),
                exit_code: None,
            },
        ),
        (
            "ProcessLost",
            EventBody::ProcessLost {
                process_handle: "build".into(),
                reason: "its host was lost".into(),
            },
        ),
        (
            "TurnStarted",
            EventBody::TurnStarted {
                run_id,
                message: Some(message(Some(turn()))),
                native: None,
            },
        ),
        (
            "TurnStarted-native",
            EventBody::TurnStarted {
                run_id,
                message: None,
                native: Some(NativeOrigin {
                    native_turn_id: "goal-7".into(),
                    reason: "goal".into(),
                    start: TurnStart::Wanted,
                    cause_command_id: Some(id(11)),
                }),
            },
        ),
        (
            "StepDone",
            EventBody::StepDone {
                messages: vec![message(Some(turn()))],
                usage: Some(usage()),
            },
        ),
        (
            "StepDone-turnless",
            EventBody::StepDone {
                messages: vec![message(None)],
                usage: None,
            },
        ),
        (
            "TurnFoldedInto",
            EventBody::TurnFoldedInto {
                message: message(Some(turn())),
            },
        ),
        (
            "InputCancelled",
            EventBody::InputCancelled {
                reason: CancelReason::ClientRetracted,
            },
        ),
        ("InputHeld", EventBody::InputHeld {}),
        ("InputReleased", EventBody::InputReleased {}),
        (
            "TurnRejected",
            EventBody::TurnRejected {
                reason: RejectReason::QueueFull,
                retryable: true,
            },
        ),
        (
            "TurnDone",
            EventBody::TurnDone {
                run_id,
                usage: Some(usage()),
            },
        ),
        (
            "TurnFailed",
            EventBody::TurnFailed {
                run_id,
                error: failure(),
                usage: None,
            },
        ),
        (
            "TurnInterrupted",
            EventBody::TurnInterrupted {
                run_id,
                reason: InterruptReason::HostLost,
                usage: None,
            },
        ),
        (
            "NativeOperationResolved",
            EventBody::NativeOperationResolved {
                outcome: OutcomeStatus::Uncertain,
                reason: Some("provider_trap".into()),
                message: Some("unreachable".into()),
                run_id: Some(run_id),
                row: Some(Status::Failed),
                effective: Some(ParamsEffective::NextTurn),
                native_session_id: Some("n-1".into()),
            },
        ),
        (
            "NativeOperationResolved-bare",
            EventBody::NativeOperationResolved {
                outcome: OutcomeStatus::Completed,
                reason: None,
                message: None,
                run_id: None,
                row: None,
                effective: None,
                native_session_id: None,
            },
        ),
        (
            "GatePrepared",
            EventBody::GatePrepared {
                gate_id,
                tool_execution_id: id(10),
                ask: permission(),
            },
        ),
        (
            "PermissionRequested",
            EventBody::PermissionRequested {
                gate_id,
                tool_use_id: "call-1".into(),
                tool_name: "shell".into(),
            },
        ),
        (
            "UserInputRequested",
            EventBody::UserInputRequested {
                gate_id,
                title: "Which way".into(),
            },
        ),
        (
            "GateOpened",
            EventBody::GateOpened {
                gate: open_gate(permission(), Some(turn())),
            },
        ),
        (
            "GateOpened-form",
            EventBody::GateOpened {
                gate: open_gate(form(), None),
            },
        ),
        (
            "GateResolved",
            EventBody::GateResolved {
                gate_id,
                reason: CloseReason::Answered,
                source: Some(AnswerSource::Human),
            },
        ),
        (
            "PermissionDecided",
            EventBody::PermissionDecided {
                gate_id,
                tool_use_id: "call-1".into(),
                decision: Decided::ApproveOnce,
                source: AnswerSource::Human,
            },
        ),
        (
            "PermissionDecided-rule",
            EventBody::PermissionDecided {
                gate_id: GateId::ZERO,
                tool_use_id: "call-1".into(),
                decision: Decided::ApproveAlwaysWorkspace,
                source: AnswerSource::Policy,
            },
        ),
        (
            "TokenDelta",
            EventBody::TokenDelta {
                message_id: id(9),
                role: Some(Role::Assistant),
                index: 1,
                op: DeltaOp::Append,
                part: Some(Part::Text { text: "he".into() }),
            },
        ),
        (
            "ToolStarted",
            EventBody::ToolStarted {
                tool_use_id: "call-1".into(),
                tool_name: "shell".into(),
            },
        ),
        (
            "ToolCompleted",
            EventBody::ToolCompleted {
                tool_use_id: "call-1".into(),
                is_error: true,
            },
        ),
        ("InputQueued", EventBody::InputQueued {}),
        (
            "command_state_changed",
            EventBody::CommandStateChanged {
                harness_id: planner,
            },
        ),
    ]
}

fn event(body: EventBody) -> Event {
    let meta = body.meta();
    let of_loop = meta.scope == Scope::Loop;
    let ephemeral = meta.class == Class::Ephemeral;
    let turnless = matches!(&body, EventBody::StepDone { usage: None, .. });
    let shows_agency = matches!(
        &body,
        EventBody::TurnStarted { .. }
            | EventBody::TurnFoldedInto { .. }
            | EventBody::InputCancelled { .. }
    );
    Event {
        id: if ephemeral { EventId::ZERO } else { id(12) },
        session_id: session(),
        loop_id: if of_loop { the_loop() } else { LoopId::ZERO },
        turn_id: if of_loop && !turnless {
            turn()
        } else {
            TurnId::ZERO
        },
        at: at(),
        cause: if shows_agency {
            Cause::by_agency(command(), Agency::User)
        } else if of_loop {
            Cause::by(command())
        } else {
            Cause::default()
        },
        body,
    }
}

/// Every event type, in every shape that has bytes of its own.
pub(crate) fn all() -> Vec<(String, Event)> {
    bodies()
        .into_iter()
        .map(|(name, body)| (name.to_owned(), event(body)))
        .collect()
}

pub(crate) fn is_stored(event: &Event) -> bool {
    event.body.meta().class != Class::Ephemeral
}

#[test]
fn i25_every_event_has_its_golden_bytes() {
    for (name, event) in all() {
        let bytes = if is_stored(&event) {
            encode_event(&event).unwrap().bytes
        } else {
            encode_ephemeral(&event).unwrap().into_bytes()
        };
        let golden = golden::bytes("events", &name, &bytes);
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            String::from_utf8(golden.clone()).unwrap(),
            "{name}"
        );
        if is_stored(&event) {
            assert_eq!(decode_event(&golden).unwrap(), event, "{name}");
        }
    }
}

#[test]
fn s15_every_event_type_has_a_fixture() {
    let names: Vec<String> = all().into_iter().map(|(name, _)| name).collect();
    golden::cover("events", &EventBody::TYPES, &names);
}

#[test]
fn s60_the_list_of_event_types_is_complete_and_unique() {
    let listed: BTreeSet<_> = EventBody::TYPES.into_iter().collect();
    assert_eq!(listed.len(), EventBody::TYPES.len());
    let sampled: BTreeSet<_> = all().iter().map(|(_, e)| e.body.meta().name).collect();
    assert_eq!(listed, sampled);
}

#[test]
fn s60_class_scope_and_visibility_are_those_of_the_table() {
    let session = [
        "SessionStarted",
        "SessionActive",
        "SessionIdle",
        "SessionStopped",
        "RestoreStarted",
        "RestoreDone",
        "RestoreErrored",
        "ConfigurationAdopted",
        "SessionParamsChanged",
        "ActiveLoopChanged",
        "WorkspaceCheckpointed",
        "WorkspaceRestored",
        "command_state_changed",
    ];
    let terminal = [
        "SessionStopped",
        "RestoreErrored",
        "TurnDone",
        "TurnFailed",
        "TurnInterrupted",
        "CompactionCommitted",
        "CompactionRejected",
        "LoopTombstoned",
        "ProcessFinished",
        "ProcessLost",
    ];
    let ephemeral = [
        "TokenDelta",
        "ToolStarted",
        "ToolCompleted",
        "InputQueued",
        "CompactionStarted",
        "command_state_changed",
    ];
    for (_, event) in all() {
        let meta = event.body.meta();
        let is = |list: &[&str]| list.contains(&meta.name);
        let class = match (is(&terminal), is(&ephemeral)) {
            (true, _) => Class::Terminal,
            (_, true) => Class::Ephemeral,
            _ => Class::Enduring,
        };
        assert_eq!(meta.class, class, "{}", meta.name);
        let scope = if is(&session) {
            Scope::Session
        } else {
            Scope::Loop
        };
        assert_eq!(meta.scope, scope, "{}", meta.name);
        let visibility = if meta.name == "GatePrepared" {
            Visibility::Internal
        } else {
            Visibility::Public
        };
        assert_eq!(meta.visibility, visibility, "{}", meta.name);
    }
}

#[test]
fn s68_i26_an_ephemeral_event_has_no_stored_form() {
    for (name, event) in all().into_iter().filter(|(_, e)| !is_stored(e)) {
        let tag = event.body.meta().name;
        assert_eq!(
            encode_event(&event),
            Err(CodecError::Ephemeral(tag)),
            "{name}"
        );
        let frame = encode_ephemeral(&event).unwrap();
        assert_eq!(
            decode_event(frame.as_bytes()),
            Err(CodecError::Ephemeral(tag)),
            "{name}"
        );
        assert!(!frame.contains("\"seq\""), "{name} has no sequence (S61)");
        assert!(!frame.contains("\"id\""), "{name} has no id (S61)");
    }
}

#[test]
fn s65_an_events_fingerprint_leaves_out_its_time_alone() {
    for (name, event) in all().into_iter().filter(|(_, e)| is_stored(e)) {
        let print = |e: &Event| encode_event(e).unwrap().fingerprint;
        let later = Event {
            at: at() + SignedDuration::from_secs(5),
            ..event.clone()
        };
        assert_eq!(print(&event), print(&later), "{name}");
        let other = Event {
            turn_id: id(99),
            ..event.clone()
        };
        assert_ne!(print(&event), print(&other), "{name}");
    }
}

//! The states of the race matrix (requirements-operations §7.2), each reached as clients and
//! providers reach it.

use crate::support::{LOOP, Sim, form};
use harness_core::ids::{CommandId, GateId};
use harness_core::operation::Execution;
use harness_core::provider::{Compaction, Outcome, Params};
use harness_core::session::InvocationId;
use harness_core::view::Status;
use harness_core::workspace::CheckpointPolicy;

/// A session in one state of the matrix.
pub(crate) struct Scene {
    pub(crate) sim: Sim,
    /// What runs: the turn's invocation or the idle control.
    pub(crate) runner: Option<InvocationId>,
    /// A control that is in flight beside a turn.
    pub(crate) beside: Option<(CommandId, InvocationId)>,
    /// A gate that is open.
    pub(crate) gate: Option<GateId>,
}

impl Scene {
    fn of(sim: Sim, status: Status) -> Self {
        assert_eq!(sim.status(), status);
        let runner = sim.live().owner.as_ref().map(|o| o.runner);
        Self {
            sim,
            runner,
            beside: None,
            gate: None,
        }
    }
}

pub(crate) fn idle() -> Scene {
    Scene::of(Sim::new(), Status::Completed)
}

/// Idle, with a prompt that waits for a slot.
pub(crate) fn queued() -> Scene {
    let mut sim = Sim::new();
    sim.free = 0;
    sim.prompt("waits");
    Scene::of(sim, Status::Queued)
}

/// A prompt is starting: `start-prompt` has not returned.
pub(crate) fn prompt_starting() -> Scene {
    let mut sim = Sim::new();
    sim.prompt("starts");
    Scene::of(sim, Status::InProgress)
}

/// An exclusive is starting: `invoke` has not returned.
pub(crate) fn exclusive_starting() -> Scene {
    let mut sim = Sim::new();
    sim.exclusive();
    Scene::of(sim, Status::InProgress)
}

pub(crate) fn turn_running() -> Scene {
    let mut sim = Sim::new();
    sim.running();
    Scene::of(sim, Status::InProgress)
}

pub(crate) fn idle_control() -> Scene {
    let mut sim = Sim::new();
    sim.control();
    Scene::of(sim, Status::InProgress)
}

/// A turn runs and waits for a person.
pub(crate) fn awaiting_gate() -> Scene {
    let mut sim = Sim::new();
    let (_, runner) = sim.running();
    let gate = sim.ask(runner, form());
    Scene {
        gate: Some(gate),
        ..Scene::of(sim, Status::AwaitingInput)
    }
}

/// The turn's `done` has returned; a control that attached to it is in flight.
pub(crate) fn turn_ended() -> Scene {
    let mut sim = Sim::new();
    let (_, runner) = sim.running();
    let beside = sim.control();
    sim.done(runner, Ok(Outcome::default()));
    Scene {
        beside: Some(beside),
        ..Scene::of(sim, Status::InProgress)
    }
}

/// A turn was stopped and has not returned yet; it had a gate open.
pub(crate) fn stopping() -> Scene {
    let mut scene = awaiting_gate();
    scene.sim.interrupt();
    assert!(scene.sim.session.live.is_marked(LOOP), "a stop is claimed");
    scene
}

/// A snapshot of the workspace is being taken.
pub(crate) fn snapshot() -> Scene {
    let mut sim = Sim::new();
    sim.checkpoint();
    assert!(sim.session.live.workspace.job.is_some());
    Scene::of(sim, Status::Completed)
}

/// The workspace is being rewound.
pub(crate) fn rewinding() -> Scene {
    let mut sim = Sim::new();
    sim.rewind(1);
    assert!(sim.session.live.workspace.job.is_some());
    Scene::of(sim, Status::Completed)
}

/// The checkpoint of the last idle edge was required and failed.
pub(crate) fn checkpoint_faulted() -> Scene {
    let mut sim = Sim::new();
    sim.policy = CheckpointPolicy::Required;
    let (_, runner) = sim.running();
    sim.done(runner, Ok(Outcome::default()));
    sim.no_checkpoint();
    assert!(sim.session.live.workspace.fault.is_some());
    Scene::of(sim, Status::Completed)
}

/// The journal refused a durable event while a turn ran with a gate open.
pub(crate) fn faulted() -> Scene {
    let mut scene = awaiting_gate();
    scene.sim.disk_full = true;
    let runner = scene.runner.unwrap();
    let message = scene.sim.message("lost");
    scene.sim.feed(harness_core::session::Input::Step {
        invocation: runner,
        messages: vec![message],
    });
    assert!(scene.sim.session.live.faulted.is_some());
    scene
}

/// Ends what runs in a scene, whatever it is.
pub(crate) fn end(scene: &mut Scene) {
    use crate::support::completed;
    let sim = &mut scene.sim;
    let Some(owner) = sim.live().owner.clone() else {
        return;
    };
    for (id, entry) in owner.invocations {
        use harness_core::session::Kind;
        match entry.kind {
            Kind::Operation(Execution::Control) => sim.invoked(id, completed()),
            _ if entry.started => sim.done(id, Ok(Outcome::default())),
            Kind::Operation(Execution::Exclusive) => sim.invoked(id, completed()),
            Kind::Compaction => sim.compacted(id, Ok(Compaction::default())),
            Kind::Prompt | Kind::Native => {
                sim.started(id, Ok(Params::new()));
                sim.done(id, Ok(Outcome::default()));
            }
        }
    }
}

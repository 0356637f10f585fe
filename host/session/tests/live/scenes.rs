//! The states of the race matrix (requirements-operations §7.2), each reached as clients and
//! providers reach it.

use crate::support::probe::Call;
use crate::support::{Seat, World, joined};
use harness_core::gate::{ApprovalDecision, ApprovalRequest, Gate};
use harness_core::provider::{ChannelError, Invocation, Outcome, Refusal, Started};
use harness_core::refusal::Refused;
use harness_core::view::{OperationResult, Status};
use harness_journal::fault::Fault;
use std::sync::Arc;
use tokio::task::JoinHandle;

pub type Operation = JoinHandle<Result<OperationResult, Refused>>;
pub type Approval = JoinHandle<Result<ApprovalDecision, ChannelError>>;

/// What the session's owner waits for.
pub enum Runner {
    None,
    Starting(Call<Started>),
    Invoking(Call<Invocation>, Operation),
    Running(Call<Outcome>),
}

/// A session in one state of the matrix.
pub struct Scene {
    pub world: World,
    pub seat: Seat,
    pub runner: Runner,
    /// A control in flight beside the turn.
    pub beside: Option<(Call<Invocation>, Operation)>,
    /// A gate that is open, and who waits for it.
    pub gate: Option<(Gate, Approval)>,
    /// A stop that has not ended.
    pub stop: Option<JoinHandle<Result<bool, Refused>>>,
}

impl Scene {
    async fn of(world: World, seat: Seat, runner: Runner, status: Status) -> Self {
        seat.until(status).await;
        Self {
            world,
            seat,
            runner,
            beside: None,
            gate: None,
            stop: None,
        }
    }

    /// Everything that runs is let go; nothing is left behind.
    pub async fn finish(self) {
        if let Some((gate, _)) = &self.gate {
            let _ = self
                .seat
                .answer(gate.gate_id, harness_core::gate::GateReply::ApproveOnce)
                .await;
        }
        if let Some((call, operation)) = self.beside {
            call.completes("");
            let _ = joined(operation).await;
        }
        match self.runner {
            Runner::None => {}
            Runner::Starting(call) => {
                call.starts();
                self.world.probe.dones.next().await.ends();
            }
            Runner::Invoking(call, operation) => {
                call.completes("");
                let _ = joined(operation).await;
            }
            Runner::Running(call) if call.abort_reason().is_some() => {
                call.refuses(Refusal::Cancelled);
            }
            Runner::Running(call) => call.ends(),
        }
        if let Some(stop) = self.stop {
            let _ = joined(stop).await;
        }
        self.world.pool_is_whole().await;
        let live = [Status::InProgress, Status::AwaitingInput, Status::Queued];
        self.seat
            .until_row("the end of the run", |row| !live.contains(&row.status))
            .await;
    }
}

pub async fn idle() -> Scene {
    let world = World::new().await;
    let seat = world.idle().await;
    Scene::of(world, seat, Runner::None, Status::Completed).await
}

/// Idle, with a prompt that waits for the slot that another session holds.
pub async fn queued() -> (Scene, Scene) {
    let world = World::new().await;
    let holder = world.idle().await;
    holder.prompt("holds the slot").await;
    world.probe.prompts.next().await.starts();
    let running = Runner::Running(world.probe.dones.next().await);
    let seat = world.idle().await;
    seat.prompt("waits").await;
    let spare = World::new().await;
    let waiting = Scene::of(world, seat, Runner::None, Status::Queued).await;
    let holding = Scene::of(spare, holder, running, Status::InProgress).await;
    (waiting, holding)
}

/// A prompt is starting: `start-prompt` has not returned.
pub async fn prompt_starting() -> Scene {
    let world = World::new().await;
    let seat = world.idle().await;
    seat.prompt("starts").await;
    let call = world.probe.prompts.next().await;
    Scene::of(world, seat, Runner::Starting(call), Status::InProgress).await
}

/// An exclusive is starting: `invoke` has not returned.
pub async fn exclusive_starting() -> Scene {
    let world = World::new().await;
    let seat = world.idle().await;
    let operation = seat.operate("/x work");
    let call = world.probe.invokes.next().await;
    let runner = Runner::Invoking(call, operation);
    Scene::of(world, seat, runner, Status::InProgress).await
}

/// A turn runs: `done` is called and has not returned.
pub async fn turn_running() -> Scene {
    turn_running_in(World::new().await).await
}

/// As [`turn_running`], in a world of one's own.
pub async fn turn_running_in(world: World) -> Scene {
    let seat = world.idle().await;
    seat.prompt("runs").await;
    world.probe.prompts.next().await.starts();
    let call = world.probe.dones.next().await;
    Scene::of(world, seat, Runner::Running(call), Status::InProgress).await
}

/// An idle control runs.
pub async fn idle_control() -> Scene {
    let world = World::new().await;
    let seat = world.idle().await;
    let operation = seat.operate("/c slow");
    let call = world.probe.invokes.next().await;
    let runner = Runner::Invoking(call, operation);
    Scene::of(world, seat, runner, Status::InProgress).await
}

/// A turn waits for an approval.
pub async fn awaiting_gate() -> Scene {
    let mut scene = turn_running().await;
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    let approval = ask(call.channel());
    scene.gate = Some((scene.seat.gate().await, approval));
    scene.seat.until(Status::AwaitingInput).await;
    scene
}

/// The turn's runner has ended and a control that joined it has not.
pub async fn turn_ended() -> Scene {
    let mut scene = turn_running().await;
    let operation = scene.seat.operate("/c beside");
    let call = scene.world.probe.invokes.next().await;
    scene.beside = Some((call, operation));
    if let Runner::Running(call) = std::mem::replace(&mut scene.runner, Runner::None) {
        call.ends();
    }
    // A message from the control is taken after the turn's runner has returned.
    let (call, _) = scene.beside.as_ref().unwrap();
    say(&call.channel(), "beside").await.unwrap();
    scene
}

/// Stop is claimed and the runner ignores it.
pub async fn stopping() -> Scene {
    let mut scene = turn_running().await;
    if let Runner::Running(call) = &scene.runner {
        call.ignores_abort();
        let stop = scene.seat.stop();
        call.aborted().await;
        scene.stop = Some(stop);
    }
    scene
}

/// The journal refused what a running turn wrote; the runner has not returned.
pub async fn faulted() -> Scene {
    let scene = turn_running().await;
    if let Runner::Running(call) = &scene.runner {
        call.ignores_abort();
        scene.world.faults.fail_next(Fault::Full);
        assert!(say(&call.channel(), "lost").await.is_err());
        call.aborted().await;
    }
    scene
}

/// Asks for an approval in the background.
pub fn ask(channel: Arc<dyn harness_core::provider::Channel>) -> Approval {
    ask_with(channel, Vec::new())
}

pub fn ask_with(channel: Arc<dyn harness_core::provider::Channel>, rules: Vec<String>) -> Approval {
    let request = ApprovalRequest {
        title: "May it?".into(),
        tool_name: "shell".into(),
        tool_input: "{}".into(),
        tool_use_id: "tool-1".into(),
        rules,
    };
    tokio::spawn(async move { channel.request_approval(request).await })
}

/// Writes a whole message.
pub async fn say(
    channel: &Arc<dyn harness_core::provider::Channel>,
    text: &str,
) -> Result<(), ChannelError> {
    let message = harness_core::content::NewMessage {
        role: harness_core::content::Role::Assistant,
        parts: vec![harness_core::content::Part::Text { text: text.into() }],
    };
    crate::support::patient("a write", channel.append(message)).await
}

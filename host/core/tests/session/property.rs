//! Random lives of a session: clients, a provider that may answer anything, a pool of slots, a
//! disk that fills and a host that dies at every step.
//!
//! A life is a list of acts; an act picks its object among those that are there, so that a list
//! stays valid when the shrinker takes acts out. What must hold is checked by the ledger after
//! every commit; here is only what must hold at the end of a life. `PROPTEST_CASES` sets how many
//! lives are lived.

use crate::acts::{Act, Pick, act};
use crate::support::{LOOP, Sim, completed, form, patch, permission, refused, stopped};
use harness_core::abort::AbortReason;
use harness_core::command::{Command, CommandBody};
use harness_core::content::{NewMessage, Part, Role};
use harness_core::gate::{Field, FieldKind, GateReply, HostAsk};
use harness_core::ids::{CommandId, GateId, LoopId};
use harness_core::operation::Execution;
use harness_core::provider::{
    CallError, ChannelError, Compaction, InputOrigin, IoError, NativeTurn, Outcome, Params,
    ProgramEnd, Refusal, TurnStart,
};
use harness_core::session::{
    Answer, DelegateAct, Effect, Input, InvocationId, Invoked, Kind, LoopState, Record, Reserve,
    WorkspaceJob,
};
use harness_core::view::Status;
use harness_core::workspace::{CheckpointPolicy, SnapshotError};
use proptest::prelude::*;

struct Life {
    sim: Sim,
    /// Operations that are prepared and not reserved; a process keeps them, a crash does not.
    prepared: Vec<Reserve>,
    /// Operations reserved in this life of the host.
    reserved: Vec<CommandId>,
    link: u64,
}

/// Background processes that run.
fn running(sim: &Sim) -> Vec<(LoopId, String)> {
    let loops = sim.session.state.loops.values();
    loops
        .flat_map(|l| {
            l.running_processes()
                .map(|(handle, _)| (l.id, handle.clone()))
        })
        .collect()
}

fn pick<T: Clone>(of: &[T], at: Pick) -> Option<T> {
    of.get(at % of.len().max(1)).cloned()
}

fn open_gates(sim: &Sim) -> Vec<GateId> {
    let gates = sim.session.state.gates();
    gates.iter().map(|g| g.gate_id).collect()
}

fn text_field(name: &str) -> Field {
    Field {
        name: name.into(),
        label: name.into(),
        description: None,
        kind: FieldKind::Text {},
        required: true,
        secret: true,
        default: None,
    }
}

fn failure(how: usize) -> CallError {
    let text = || "x".to_owned();
    match how {
        0 => CallError::Refused(Refusal::Cancelled),
        1 => CallError::Refused(Refusal::Channel(ChannelError::Stopped)),
        2 => CallError::Refused(Refusal::Disconnected(text())),
        3 => CallError::Refused(Refusal::NotAllowed(text())),
        4 => CallError::Refused(Refusal::Native(text())),
        5 => CallError::Trap(text()),
        6 => CallError::Violation(text()),
        7 => CallError::Unavailable {
            reason: text(),
            loading: false,
        },
        _ => CallError::Terminated(AbortReason::UserStop),
    }
}

/// What a call returns: well, with a patch, with an invalid patch, or one of the failures.
fn params(how: usize) -> Result<Params, CallError> {
    match how {
        0 => Ok(Params::new()),
        1 => Ok(patch("plan")),
        2 => Ok(patch("sleep")),
        how => Err(failure(how - 3)),
    }
}

fn children(sim: &Sim) -> Vec<(LoopId, LoopId)> {
    let loops = sim.session.state.loops.values();
    loops.filter_map(|l| Some((l.parent?, l.id))).collect()
}

fn requests(sim: &Sim) -> Vec<(LoopId, CommandId)> {
    let loops = sim.session.state.loops.values();
    let sent = loops.flat_map(|l| l.requests.iter().map(|(id, r)| (r.parent, *id)));
    sent.collect()
}

/// What works on the workspace comes to its end; each failure of a rewind in its turn.
fn end_job(sim: &mut Sim, well: bool) {
    match sim.session.live.workspace.job.clone() {
        Some(WorkspaceJob::Checkpoint { .. }) if well => sim.checkpointed(1),
        Some(WorkspaceJob::Checkpoint { .. }) => sim.no_checkpoint(),
        Some(WorkspaceJob::Rewind { .. }) if well => sim.rewound(2),
        Some(WorkspaceJob::Rewind { reference, .. }) => {
            let gone = SnapshotError::RefNotFound(reference.to_string());
            sim.feed(Input::Rewound(Err(gone)));
        }
        None => {}
    }
}

impl Life {
    fn in_flight(&self) -> Vec<InvocationId> {
        let owners = self.sim.session.live.owners();
        owners.flat_map(|o| o.invocations.keys().copied()).collect()
    }

    /// The call that an invocation is in returns.
    fn give(&mut self, invocation: InvocationId, how: usize) {
        let sim = &mut self.sim;
        let message = sim.message("said");
        let messages = if how.is_multiple_of(2) {
            vec![message]
        } else {
            Vec::new()
        };
        let entry = sim.session.live.invocation(invocation).cloned();
        let outcome = |params| Outcome {
            message: None,
            params,
        };
        let input = match entry.map(|e| (e.kind, e.started)) {
            Some((_, true)) | None => Input::Done {
                invocation,
                result: params(how).map(outcome),
                messages,
            },
            Some((Kind::Prompt | Kind::Native, false)) => Input::Started {
                invocation,
                result: params(how),
                messages,
            },
            Some((Kind::Compaction, false)) => Input::Compacted {
                invocation,
                result: params(how).map(|p| Compaction {
                    summary: p.is_empty().then(|| "so far".into()),
                    usage: None,
                }),
                messages,
            },
            Some((Kind::Operation(_), false)) => {
                // A control may break the contract and answer `started` as well.
                let result = params(how).map(|p| {
                    if messages.is_empty() {
                        Invoked::Completed(outcome(p))
                    } else {
                        Invoked::Started(p)
                    }
                });
                Input::Invoked {
                    invocation,
                    result,
                    messages,
                }
            }
        };
        sim.feed(input);
    }

    fn live(&mut self, act: Act) {
        let in_flight = self.in_flight();
        let flying = |at| pick(&in_flight, at);
        let sim = &mut self.sim;
        match act {
            Act::Submit { no_fold, fold_only } => {
                sim.submit_as("prompt", no_fold, fold_only);
            }
            Act::Prepare { exclusive } => {
                let how = if exclusive {
                    Execution::Exclusive
                } else {
                    Execution::Control
                };
                let prepared = sim.prepared(how);
                self.prepared.push(prepared);
            }
            Act::Reserve { pick: at, waited } => {
                if self.prepared.is_empty() {
                    return;
                }
                let at = at % self.prepared.len();
                let mut reserve = self.prepared.swap_remove(at);
                reserve.waited = waited;
                let id = reserve.origin.command_id;
                match sim.reserve(reserve.clone()) {
                    Answer::Reserved(_) if sim.session.live.faulted.is_none() => {
                        self.reserved.push(id)
                    }
                    Answer::WaitForHandle | Answer::WaitForWorkspace => {
                        self.prepared.push(reserve);
                    }
                    _ => {}
                }
            }
            Act::Interrupt => {
                sim.interrupt();
            }
            Act::CreateLoop => {
                if sim.session.state.loops.len() < 4 {
                    sim.create_loop(None);
                }
            }
            Act::Activate(at) => {
                let loop_id = sim.nth_loop(at);
                sim.feed(Input::SetActiveLoop(loop_id));
            }
            Act::SubmitTo(at) => {
                let loop_id = sim.nth_loop(at);
                sim.submit_to(loop_id, "prompt");
            }
            Act::InterruptLoop(at) => {
                let loop_id = sim.nth_loop(at);
                sim.interrupt_loop(loop_id);
            }
            Act::Mode(at) => {
                let loop_id = sim.nth_loop(at);
                let mode = ["", "review", "no such"][at % 3].to_owned();
                sim.feed(Input::SetLoopMode { loop_id, mode });
            }
            Act::Compact(at) => {
                let loop_id = sim.nth_loop(at);
                sim.compact(loop_id);
            }
            Act::Checkpoint => {
                sim.checkpoint();
            }
            Act::Rewind(to) => {
                sim.rewind(to);
            }
            Act::JobEnds { well } => end_job(sim, well),
            Act::Others { work, hold } => {
                (sim.others_work, sim.others_hold) = (work, hold);
                if sim.session.live.workspace.watches {
                    sim.feed(Input::WorkspaceChanged);
                }
            }
            Act::BarrierExpires => {
                if let Some(stop) = sim.session.live.stops.first() {
                    let stop = stop.command_id;
                    sim.feed(Input::BarrierExpired(stop));
                }
            }
            Act::Child {
                pick: at,
                background,
            } => {
                if sim.session.state.loops.len() < 6 {
                    let parent = sim.nth_loop(at);
                    let _ = sim.try_child(parent, background);
                }
            }
            Act::Tell {
                pick: at,
                background,
                fold,
            } => {
                if let Some((parent, child)) = pick(&children(sim), at) {
                    let _ = sim.send_child(parent, child, background, fold);
                }
            }
            Act::AwaitRequest(at) => {
                self.link += 1;
                let id = self.link;
                if let Some((parent, request)) = pick(&requests(sim), at) {
                    let _ = sim.delegate(parent, DelegateAct::Await { id, request });
                }
            }
            Act::CancelRequest(at) => {
                if let Some((parent, request)) = pick(&requests(sim), at) {
                    let _ = sim.delegate(parent, DelegateAct::Cancel(request));
                }
            }
            Act::StopChild(at) => {
                if let Some((parent, child)) = pick(&children(sim), at) {
                    let _ = sim.delegate(parent, DelegateAct::Stop(child));
                }
            }
            Act::Answer { pick: at, reply } => {
                let Some(gate) = pick(&open_gates(sim), at) else {
                    return;
                };
                let lists = |v: &[&str]| v.iter().map(|s| vec![(*s).to_owned()]).collect();
                let replies = [
                    GateReply::ApproveOnce,
                    GateReply::ApproveAlways,
                    GateReply::Deny(None),
                    GateReply::Answer(lists(&["left", "hush"])),
                    GateReply::Decline,
                    GateReply::Confirm,
                    GateReply::Fill([("name".to_owned(), "Ada".into())].into_iter().collect()),
                ];
                sim.answer(gate, replies[reply].clone());
            }
            Act::AskAsHost { page } => {
                let message = "x".to_owned();
                let asked = if page {
                    let url = "https://a.example".to_owned();
                    HostAsk::OpenUrl { message, url }
                } else {
                    let fields = vec![text_field("name")];
                    HostAsk::Form { message, fields }
                };
                let (ask, _) = asked.gate().unwrap();
                sim.feed(Input::OpenHostGate { ask, loop_id: None });
            }
            Act::CloseHostGate(at) => {
                if let Some(gate) = pick(&open_gates(sim), at) {
                    sim.feed(Input::CloseHostGate(gate));
                }
            }
            Act::Claim(at) => {
                if let Some(gate_id) = pick(&open_gates(sim), at) {
                    let reply = GateReply::ApproveAlways;
                    sim.feed(Input::ClaimGate { gate_id, reply });
                }
            }
            Act::AnswerClaimed(at) => {
                let claimed: Vec<_> = sim.session.live.claimed.iter().copied().collect();
                let Some(gate_id) = pick(&claimed, at) else {
                    return;
                };
                if at % 2 == 0 {
                    sim.feed(Input::UnclaimGate(gate_id));
                    return;
                }
                let origin = sim.origin();
                sim.feed(Input::AnswerClaimed {
                    origin,
                    gate_id,
                    reply: GateReply::ApproveAlways,
                });
            }
            Act::GateTimeout(at) => {
                if let Some(gate) = pick(&open_gates(sim), at) {
                    sim.feed(Input::GateTimeout(gate));
                }
            }
            Act::Retract(at) => {
                let waiting: Vec<_> = sim.ledger.unresolved().collect();
                if let Some(id) = pick(&waiting, at) {
                    sim.retract(id);
                }
            }
            Act::Release { pick: at, all } => {
                let waiting: Vec<_> = sim.ledger.unresolved().collect();
                let targets = pick(&waiting, at).filter(|_| !all);
                sim.release(targets.as_slice());
            }
            Act::Settings(which) => {
                match which {
                    0 => sim.set(Some("title"), None, None),
                    1 => sim.set(None, Some(patch("plan")), None),
                    2 => sim.set(None, None, Some("demo/other")),
                    _ => sim.set(None, None, Some(crate::support::HARNESS)),
                };
            }
            Act::CallerGone(at) => {
                let commands: Vec<_> = in_flight
                    .iter()
                    .filter_map(|i| sim.session.live.invocation(*i))
                    .map(|i| i.command_id)
                    .collect();
                if let Some(command) = pick(&commands, at) {
                    sim.feed(Input::CallerGone(command));
                }
            }
            Act::Entered(at) => {
                if let Some(invocation) = flying(at) {
                    sim.feed(Input::Entered(invocation));
                }
            }
            Act::Return { pick: at, how } => {
                if let Some(invocation) = flying(at) {
                    self.give(invocation, how);
                }
            }
            Act::Late { invocation, how } => {
                if !in_flight.contains(&invocation) {
                    self.give(invocation, how);
                }
            }
            Act::Write(at) => {
                if let Some(invocation) = flying(at) {
                    let messages = vec![sim.message("step")];
                    sim.feed(Input::Step {
                        invocation,
                        messages,
                    });
                }
            }
            Act::Bind { pick: at, id } => {
                if let Some(invocation) = flying(at) {
                    sim.feed(Input::Bind {
                        invocation,
                        native_session_id: format!("native-{id}"),
                    });
                }
            }
            Act::Ask { pick: at, stored } => {
                if let Some(invocation) = flying(at) {
                    let ask = if at.is_multiple_of(2) {
                        form()
                    } else {
                        permission(&["shell:ls"])
                    };
                    sim.feed(Input::Ask {
                        invocation,
                        ask,
                        stored_rules: stored,
                    });
                }
            }
            Act::Unask { pick: at, withdraw } => {
                let gates: Vec<_> = sim
                    .session
                    .live
                    .gates
                    .iter()
                    .map(|(g, i)| (*g, *i))
                    .collect();
                if let Some((gate, invocation)) = pick(&gates, at) {
                    sim.feed(if withdraw {
                        Input::Withdraw {
                            invocation,
                            provider_id: "form-1".into(),
                        }
                    } else {
                        Input::Unasked(gate)
                    });
                }
            }
            Act::Take(at) => {
                if let Some(invocation) = flying(at) {
                    sim.feed(Input::TakeInput(invocation));
                }
            }
            Act::Announce { native, wanted } => {
                self.link += 1;
                let turn = NativeTurn {
                    id: format!("turn-{native}"),
                    start: if wanted {
                        TurnStart::Wanted
                    } else {
                        TurnStart::Running
                    },
                    reason: "goal".into(),
                    cause: None,
                };
                sim.feed(Input::Announce {
                    loop_id: LOOP,
                    id: self.link,
                    turn,
                });
            }
            Act::Unannounce(at) => {
                let pending: Vec<_> = sim.live().announced.iter().map(|a| a.id).collect();
                if let Some(id) = pick(&pending, at) {
                    sim.feed(Input::Unannounce(id));
                }
            }
            Act::LinkAppend => {
                let parts = vec![Part::Text {
                    text: "late".into(),
                }];
                sim.feed(Input::LinkAppend {
                    loop_id: LOOP,
                    message: NewMessage {
                        role: Role::Assistant,
                        parts,
                    },
                });
            }
            Act::ActivityBegan => {
                self.link += 1;
                sim.feed(Input::ActivityBegan {
                    loop_id: LOOP,
                    id: self.link,
                    label: "goal".into(),
                });
            }
            Act::ActivityEnded(at) => {
                let open: Vec<_> = sim.live().activities.keys().copied().collect();
                if let Some(id) = pick(&open, at) {
                    sim.feed(Input::ActivityEnded { loop_id: LOOP, id });
                }
            }
            Act::ActivitiesSettled => {
                sim.feed(Input::ActivitiesSettled(LOOP));
            }
            Act::SlotFreed { told: true } => sim.slot_comes_free(),
            Act::SlotFreed { told: false } => sim.free += 1,
            Act::SlotTaken => sim.free -= i32::from(sim.free > 0),
            Act::StateChanged => {
                sim.feed(Input::StateChanged(LOOP));
            }
            Act::Ids { broken } => sim.ids.broken = broken,
            Act::ProcessStarts(at) => {
                let loop_id = sim.nth_loop(at);
                sim.try_process(loop_id, "make");
            }
            Act::ProcessEnds { pick: at, how } => {
                if let Some((loop_id, process_handle)) = pick(&running(sim), at) {
                    let ends = [
                        ProgramEnd::Exited(0),
                        ProgramEnd::Exited(137),
                        ProgramEnd::Stopped,
                        ProgramEnd::Lost,
                        ProgramEnd::NotStarted(IoError::NotFound("make".into())),
                    ];
                    sim.feed(Input::ProcessEnded {
                        loop_id,
                        process_handle,
                        end: ends[how].clone(),
                    });
                }
            }
            Act::ProcessesExpire => {
                sim.feed(Input::ProcessesExpired);
            }
            Act::SaidAgain(at) => {
                let said = sim.journal.iter().filter_map(|record| match record {
                    Record::Command(Command {
                        body: CommandBody::ProcessNotification { notification },
                        ..
                    }) => Some(notification.clone()),
                    _ => None,
                });
                if let Some(notice) = pick(&said.collect::<Vec<_>>(), at) {
                    sim.feed(Input::NotifyProcess(notice));
                }
            }
            Act::DiskFull => sim.disk_full = true,
            Act::Shutdown => {
                let origin = sim.origin();
                sim.feed(Input::Shutdown(origin));
            }
            Act::ShutdownExpires => {
                sim.feed(Input::ShutdownExpired);
            }
            Act::Reopen => {
                sim.feed(Input::Reopen(None));
            }
            Act::Close => {
                sim.feed(Input::Close);
            }
            Act::Crash => self.crash(),
        }
    }

    fn crash(&mut self) {
        self.sim.crash();
        self.prepared.clear();
        self.reserved.clear();
    }

    /// Every loop hears of the ends of its processes, once nobody is in the way.
    fn tell_all(&mut self) {
        (self.sim.others_work, self.sim.others_hold) = (false, false);
        self.sim.feed(Input::Advance);
        for _ in 0..500 {
            if self.sim.session.live.workspace.job.is_some() {
                end_job(&mut self.sim, true);
            } else if let Some(invocation) = self.in_flight().first().copied() {
                if self
                    .sim
                    .session
                    .live
                    .invocation(invocation)
                    .unwrap()
                    .started
                {
                    self.sim.done(invocation, Ok(Outcome::default()));
                } else {
                    self.sim.started(invocation, Ok(Params::new()));
                }
            } else if self.sim.session.status() == Status::Queued {
                self.sim.slot_comes_free();
            } else {
                break;
            }
        }
        let untold = self
            .sim
            .session
            .state
            .loops
            .values()
            .map(|l| l.notices.len());
        assert_eq!(untold.sum::<usize>(), 0, "every end is told");
        assert!(
            running(&self.sim).is_empty(),
            "what was lost is known to be"
        );
    }

    /// Everything that runs comes to its end; then nothing may be left over.
    fn wind_up(mut self) {
        let well = self.sim.session.live.faulted.is_none() && !self.sim.disk_full;
        self.sim.ids.broken = false;
        self.sim.feed(Input::Close);
        for _ in 0..200 {
            let Some(invocation) = self.in_flight().first().copied() else {
                break;
            };
            let entry = self
                .sim
                .session
                .live
                .invocation(invocation)
                .cloned()
                .unwrap();
            match entry.kind {
                _ if entry.started => self.sim.done(invocation, stopped()),
                Kind::Operation(Execution::Control) => self.sim.invoked(invocation, completed()),
                Kind::Operation(Execution::Exclusive) => self.sim.invoked(invocation, stopped()),
                Kind::Compaction => self.sim.compacted(invocation, refused(Refusal::Cancelled)),
                Kind::Prompt | Kind::Native => {
                    self.sim.started(invocation, refused(Refusal::Cancelled))
                }
            }
        }
        end_job(&mut self.sim, true);
        self.sim.feed(Input::ActivitiesSettled(LOOP));
        let waiters = |l: &LoopState| l.compact_waiters.len();
        let live = &self.sim.session.live;
        let checkpoints = live.workspace.fault.is_none();
        assert!(
            live.is_quiet() || !checkpoints,
            "something never ends: {live:?}"
        );
        let holds = |l: &harness_core::session::LiveLoop| l.slot || l.waits_for_slot;
        assert!(live.gates.is_empty() && !live.loops.values().any(holds));
        if well {
            for command in &self.reserved {
                assert!(
                    self.sim.results.contains_key(command),
                    "{command} was never answered"
                );
            }
        }
        // The end of a process is told again to who was not told (S72); nothing else is.
        let sent = |e: &&Effect| match e {
            Effect::StartPrompt { input, .. } => input.origin == InputOrigin::User,
            Effect::Invoke { .. } | Effect::Adopt { .. } => true,
            _ => false,
        };
        let calls = self.sim.effects.iter().filter(sent).count();
        let loops = self.sim.session.state.loops.values();
        // Messages between loops are delivered by the next life (S72).
        let redelivers = loops.into_iter().any(|l| {
            l.inbox.iter().any(|w| w.redeliver) || l.requests.values().any(|r| r.owes_hand_back())
        });
        self.crash();
        let sim = &self.sim;
        let sends = sim.effects.iter().filter(sent).count() - calls;
        assert!(sends == 0 || redelivers, "a restart sends nothing");
        self.tell_all();
        let sim = &self.sim;
        let settled = [
            Status::Completed,
            Status::Failed,
            Status::Cancelled,
            Status::Disconnected,
            Status::Stopped,
        ];
        let status = sim.status();
        assert!(redelivers || settled.contains(&status), "{status:?}");
        let waiting = sim.session.state.loops.values().map(waiters);
        assert_eq!(
            waiting.sum::<usize>(),
            0,
            "who asked to compact is told (S72)"
        );
        let queue = sim.session.state.queued_inputs();
        let held = queue.iter().all(|q| q.held);
        assert!(redelivers || held, "what waits is held (S52)");
        assert_eq!(queue.len(), sim.ledger.unresolved().count());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn i38_i39_a_session_survives_any_life(
        acts in prop::collection::vec(act(), 1..80),
        folding in any::<bool>(),
        slots in 0..2_i32,
        policy in 0..3_usize,
    ) {
        let mut sim = Sim::new();
        sim.free = slots;
        sim.inbox = 4;
        sim.harness.as_mut().unwrap().features.folding = folding;
        sim.harness.as_mut().unwrap().features.compaction = true;
        sim.harness.as_mut().unwrap().features.delegation = true;
        sim.policy = [CheckpointPolicy::Off, CheckpointPolicy::BestEffort, CheckpointPolicy::Required][policy];
        let mut life = Life { sim, prepared: Vec::new(), reserved: Vec::new(), link: 0 };
        for act in acts {
            life.live(act);
        }
        life.wind_up();
    }
}

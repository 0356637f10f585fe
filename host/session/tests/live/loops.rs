//! Several loops in one live session, and compaction (S20, S21, S26, S34-S36, S47, S90, S95).

use crate::support::{Seat, World, code, forward, joined, patient};
use harness_core::ids::LoopId;
use harness_core::provider::{Compaction, LoopMode, ModelSpec, Refusal};
use harness_core::refusal::Refused;
use harness_core::view::Status;
use harness_journal::PageRequest;
use harness_session::{Caller, EventFilter, Follow, InputRequest, Item, LoopRequest, Loops, Start};
use std::time::Duration;

/// A session with a second loop on another harness.
async fn two() -> (World, Seat, LoopId, LoopId) {
    let world = World::with(|config| config.slots = 4).await;
    let declare = |info: &mut harness_core::provider::HarnessInfo| {
        info.features.compaction = true;
        info.loop_modes = vec![LoopMode {
            name: "review".into(),
            label: "Review".into(),
        }];
        info.models = ["large", "small"]
            .map(|id| ModelSpec {
                id: id.into(),
                label: id.into(),
                efforts: vec!["high".into()],
            })
            .into();
    };
    world.probe.declare(declare);
    world.other.declare(declare);
    let seat = world.idle().await;
    let first = seat.view().await.active_loop_id;
    let second = seat.begin(&world, Some("small")).await.unwrap();
    (world, seat, first, second)
}

impl Seat {
    async fn begin(&self, world: &World, model: Option<&str>) -> Result<LoopId, Refused> {
        let request = LoopRequest {
            agent: world.other.harness_id(),
            model: model.map(str::to_owned),
            mode: None,
        };
        let begin = self.host.create_loop(self.id, Caller::default(), request);
        patient("a loop", begin).await
    }

    async fn say(&self, loop_id: LoopId, text: &str) {
        let request = InputRequest {
            blocks: vec![harness_core::content::Block::Text { text: text.into() }],
            loop_id: Some(loop_id),
            no_fold: false,
            fold_only: false,
        };
        let submit = self.host.submit(self.id, Caller::default(), request);
        patient("a submit", submit).await.unwrap();
    }

    async fn activate(&self, loop_id: LoopId) -> Result<(), Refused> {
        let activate = self.host.activate_loop(self.id, Caller::default(), loop_id);
        patient("an active loop", activate).await
    }

    async fn said(&self, loop_id: LoopId) -> usize {
        let page = PageRequest {
            limit: 100,
            cursor: None,
        };
        let said = self.host.messages(self.id, Some(loop_id), page).await;
        said.unwrap().items.len()
    }
}

#[tokio::test]
async fn w7_each_loop_has_an_instance_of_its_own_harness() {
    let (world, seat, first, second) = two().await;
    seat.say(first, "one").await;
    seat.say(second, "two").await;
    let one = world.probe.prompts.next().await;
    let two = world.other.prompts.next().await;
    assert!(one.text.contains("one") && two.text.contains("two"));
    let scope = |call: &crate::support::probe::Call<_>| call.instance.scope.clone();
    assert_ne!(scope(&one), scope(&two));
    assert_eq!(
        two.channel().context().model.as_deref(),
        Some("small"),
        "each loop has its model"
    );
    one.starts();
    two.starts();
    world.probe.dones.next().await.ends();
    seat.until_row("the other loop works on", |row| {
        row.status == Status::InProgress
    })
    .await;
    world.other.dones.next().await.ends();
    seat.until(Status::Completed).await;
    assert_eq!((seat.said(first).await, seat.said(second).await), (1, 1));
    assert_eq!(seat.count("SessionIdle").await, 2, "one for each busy time");
    world.pool_is_whole().await;
}

#[tokio::test]
async fn s35_the_active_loop_takes_prompts_and_operations() {
    let (world, seat, first, second) = two().await;
    assert_eq!(code(&seat.activate(LoopId::ZERO).await), "loop_not_found");
    seat.activate(second).await.unwrap();
    assert_eq!(seat.view().await.active_loop_id, second);
    let control = seat.operate("/c on the other");
    world.other.invokes.next().await.completes("there");
    assert_eq!(
        joined(control).await.unwrap().message.as_deref(),
        Some("there")
    );
    let discovered = world.other.discovered.lock().unwrap().len();
    seat.host.command_state(seat.id).await.unwrap();
    assert_eq!(world.other.discovered.lock().unwrap().len(), discovered + 1);
    seat.prompt("there too").await;
    let call = world.other.prompts.next().await;
    assert_eq!(
        call.channel().context().loop_id,
        second,
        "S32: the active loop is sampled once"
    );
    seat.activate(first).await.unwrap();
    call.starts();
    world.other.dones.next().await.ends();
    seat.until(Status::Completed).await;
    assert_eq!(seat.said(second).await, 1);
    let world = world.restart().await;
    let seat = world.seat(seat.id);
    assert_eq!(seat.view().await.active_loop_id, first);
    assert_eq!(seat.host.loops(seat.id).await.unwrap().len(), 2);
}

#[tokio::test]
async fn s20_s26_mode_and_model_hold_from_the_next_turn_on() {
    let (world, seat, first, _) = two().await;
    seat.say(first, "runs").await;
    let running = world.probe.prompts.next().await;
    let caller = Caller::default;
    let host = &seat.host;
    let unknown = host.set_loop_mode(seat.id, caller(), first, "nothing".into());
    assert_eq!(code(&unknown.await), "invalid_mode");
    let set = host.set_loop_mode(seat.id, caller(), first, "review".into());
    assert_eq!(set.await.unwrap().mode, "review");
    let large = Some("large".into());
    let change = host.change_inference(seat.id, caller(), first, large, Some("high".into()));
    let change = change.await.unwrap();
    assert_eq!(change.runtime.model.as_deref(), Some("large"));
    assert_eq!(
        running.channel().context().loop_mode,
        None,
        "I34: the running turn keeps what it started with"
    );
    running.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    seat.say(first, "next").await;
    let next = world.probe.prompts.next().await;
    let context = next.channel().context();
    assert_eq!(context.loop_mode.as_deref(), Some("review"));
    assert_eq!(context.model.as_deref(), Some("large"));
    assert_eq!(context.effort.as_deref(), Some("high"));
    next.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    let loops = seat.host.loops(seat.id).await.unwrap();
    assert_eq!(loops[0].view.mode, "review", "S36");
    assert_eq!(
        loops[0].modes.len(),
        2,
        "the base mode and the declared one"
    );
}

#[tokio::test]
async fn s90_s92_one_loop_is_stopped_and_its_sibling_works_on() {
    let (world, seat, first, second) = two().await;
    seat.say(first, "one").await;
    seat.say(second, "two").await;
    world.probe.prompts.next().await.starts();
    world.other.prompts.next().await.starts();
    let one = world.probe.dones.next().await;
    let two = world.other.dones.next().await;
    let stop = seat
        .host
        .interrupt(seat.id, Caller::default(), Some(second))
        .await;
    assert!(stop.unwrap());
    drop(two);
    assert_eq!(one.abort_reason(), None);
    one.ends();
    seat.until(Status::Completed).await;
    let unknown = seat
        .host
        .interrupt(seat.id, Caller::default(), Some(LoopId::ZERO))
        .await;
    assert_eq!(code(&unknown), "loop_not_found");
    world.pool_is_whole().await;
}

#[tokio::test]
async fn s29_s90_a_stop_of_the_session_ends_every_loop() {
    let (world, seat, first, second) = two().await;
    seat.say(first, "one").await;
    seat.say(second, "two").await;
    let one = world.probe.prompts.next().await;
    let two = world.other.prompts.next().await;
    let stop = seat.stop();
    one.aborted().await;
    two.aborted().await;
    one.refuses(Refusal::Cancelled);
    two.refuses(Refusal::Cancelled);
    assert!(joined(stop).await.unwrap());
    assert_eq!(seat.count("TurnInterrupted").await, 2);
    assert_eq!(seat.status().await, Status::Cancelled);
    world.pool_is_whole().await;
}

#[tokio::test(start_paused = true)]
async fn s91_i33_a_wedged_loop_holds_the_barrier_for_thirty_seconds() {
    let world = World::still(|config| {
        config.slots = 4;
        config.interrupt_barrier = Duration::from_secs(30);
    })
    .await;
    let seat = world.idle().await;
    let first = seat.view().await.active_loop_id;
    let second = seat.begin(&world, None).await.unwrap();
    seat.say(first, "wedged").await;
    seat.say(second, "two").await;
    let wedged = world.probe.prompts.next().await;
    wedged.ignores_abort();
    let two = world.other.prompts.next().await;
    let stop = seat.stop();
    wedged.aborted().await;
    two.refuses(Refusal::Cancelled);
    seat.say(second, "waits").await;
    forward(Duration::from_millis(29_900)).await;
    seat.host.session(seat.id).await.unwrap();
    assert!(!stop.is_finished(), "the barrier is closed");
    assert_eq!(seat.queue().await.len(), 1);
    forward(Duration::from_millis(200)).await;
    assert!(joined(stop).await.unwrap());
    let next = world.other.prompts.next().await;
    assert!(next.text.contains("waits"));
    next.starts();
    world.other.dones.next().await.ends();
    wedged.refuses(Refusal::Cancelled);
    world.pool_is_whole().await;
}

#[tokio::test]
async fn s95_a_compaction_runs_between_turns_and_tells_who_asked() {
    let (world, seat, first, _) = two().await;
    seat.say(first, "runs").await;
    world.probe.prompts.next().await.starts();
    let running = world.probe.dones.next().await;
    let compact = seat.host.compact(seat.id, Caller::default(), None);
    let asked = compact.await.unwrap();
    assert_eq!(world.probe.compactions.count(), 0, "not inside a turn");
    running.ends();
    let call = world.probe.compactions.next().await;
    assert_eq!(call.command, asked);
    assert_eq!(seat.refusal("/c no").await, "session_busy");
    seat.say(first, "queued").await;
    assert_eq!(seat.queue().await.len(), 1, "S47");
    call.answer(Ok(Compaction {
        summary: Some("so far".into()),
        usage: None,
    }));
    world.probe.prompts.next().await.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    assert_eq!(seat.texts().await, ["so far", "queued"]);
    let events = seat.events().await;
    let told = events
        .iter()
        .find(|e| e["type"] == "CompactWaiterResolved")
        .unwrap();
    assert_eq!(told["cause"]["command_id"], asked.to_string());
    world.pool_is_whole().await;
}

#[tokio::test]
async fn s34_s95_a_compaction_that_comes_to_nothing() {
    let (world, seat, _, second) = two().await;
    world.other.declare(|info| info.features.compaction = false);
    let refused = seat
        .host
        .compact(seat.id, Caller::default(), Some(second))
        .await;
    assert_eq!(code(&refused), "compaction_unsupported");
    let compact = seat.host.compact(seat.id, Caller::default(), None);
    compact.await.unwrap();
    let call = world.probe.compactions.next().await;
    let stop = seat.stop();
    call.aborted().await;
    call.refuses(Refusal::Cancelled);
    assert!(joined(stop).await.unwrap());
    assert_eq!(
        seat.types().await.iter().rev().nth(1).unwrap(),
        "CompactWaiterRejected:interrupted"
    );
    // A crash in the middle: told once, never repeated.
    let compact = seat.host.compact(seat.id, Caller::default(), None);
    compact.await.unwrap();
    let _held = world.probe.compactions.next().await;
    let calls = world.probe.compactions.count();
    let world = world.restart().await;
    let seat = world.seat(seat.id);
    assert_eq!(seat.count("CompactWaiterRejected").await, 2);
    assert_eq!(world.probe.compactions.count(), calls);
}

/// Enduring frames that pass a filter, up to the first of this name.
async fn filtered(seat: &Seat, follow: Follow, last: &str) -> Vec<(Option<LoopId>, &'static str)> {
    let mut subscription = seat.host.subscribe(seat.id, follow).await.unwrap();
    patient("the frames", async {
        let mut names = Vec::new();
        loop {
            match subscription.next().await {
                Some(Item::Frame(frame)) => {
                    if frame.seq.is_some() {
                        names.push((frame.loop_id, frame.name));
                    }
                    if frame.name == last {
                        return names;
                    }
                }
                Some(Item::Snapshot { snapshot, .. }) => {
                    assert_eq!(snapshot.loops.len(), 2, "a snapshot is whole");
                }
                other => panic!("{other:?} after {names:?}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn s63_s64_s106_a_filter_holds_for_replay_and_live_and_its_queue() {
    let (world, seat, first, second) = two().await;
    let begun = seat.view().await.last_seq;
    let only = |loop_id: LoopId| EventFilter {
        enduring: Loops::These([loop_id].into()),
        ephemeral: Loops::default(),
    };
    let live = Follow {
        start: Start::Now,
        filter: only(second),
    };
    // It does not read while the other loop says more than a queue holds.
    let mut stalled = seat.host.subscribe(seat.id, live.clone()).await.unwrap();
    seat.say(first, "one").await;
    let one = world.probe.prompts.next().await;
    let channel = one.channel();
    for n in 0..300 {
        crate::scenes::say(&channel, &format!("{n}")).await.unwrap();
    }
    seat.say(second, "two").await;
    world.other.prompts.next().await.starts();
    world.other.dones.next().await.ends();
    one.starts();
    world.probe.dones.next().await.ends();
    seat.until(Status::Completed).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&"SessionIdle") {
        match patient("a frame", stalled.next()).await {
            Some(Item::Frame(frame)) => {
                assert!(frame.loop_id.is_none_or(|id| id == second));
                assert!(frame.seq.is_some() || frame.loop_id.is_none());
                if frame.seq.is_some() {
                    seen.push(frame.name);
                }
            }
            Some(Item::Snapshot { .. }) => {}
            other => panic!("{other:?} after {seen:?}"),
        }
    }
    assert!(seen.contains(&"TurnStarted") && seen.contains(&"TurnDone"));
    let replayed = Follow {
        start: Start::After(begun),
        filter: only(second),
    };
    let replayed = filtered(&seat, replayed, "SessionIdle").await;
    let names: Vec<_> = replayed.iter().map(|(_, name)| *name).collect();
    assert_eq!(names, seen, "replay and live show the same");
    // Nothing of any loop: the session itself is still told of.
    let session = Follow {
        start: Start::After(0),
        filter: EventFilter::default(),
    };
    let session = filtered(&seat, session, "SessionIdle").await;
    assert!(session.iter().all(|(loop_id, _)| loop_id.is_none()));
    assert_eq!(session[0].1, "SessionStarted");
    world.pool_is_whole().await;
}

#[tokio::test]
async fn n12_s90_a_stopped_loop_does_not_disarm_its_sibling() {
    let (world, seat, first, second) = two().await;
    for probe in [&world.probe, &world.other] {
        probe.declare(|info| info.features.native_turns = true);
    }
    seat.say(first, "one").await;
    world.probe.prompts.next().await.starts();
    let runs = world.probe.dones.next().await;
    seat.say(second, "two").await;
    world.other.prompts.next().await.starts();
    world.other.dones.next().await.ends();
    let stopping = {
        let (host, id) = (seat.host.clone(), seat.id);
        tokio::spawn(async move { host.interrupt(id, Caller::default(), Some(first)).await })
    };
    runs.aborted().await;
    runs.refuses(Refusal::Cancelled);
    assert!(joined(stopping).await.unwrap());
    let running = harness_core::provider::TurnStart::Running;
    let (stopped, other) = (world.probe.instance(), world.other.instance());
    let refused = joined(stopped.announce("n-1", running)).await;
    assert_eq!(
        refused,
        Err(harness_core::provider::ChannelError::Stopped),
        "the loop that was stopped"
    );
    let announced = other.announce("n-2", running);
    world.other.adoptions.next().await.starts();
    assert_eq!(joined(announced).await, Ok(()), "its sibling goes on");
    world.other.dones.next().await.ends();
    seat.until_row("rest", |row| row.status == Status::Completed)
        .await;
    // The same after a restart.
    let world = world.restart().await;
    let seat = world.seat(seat.id);
    seat.host.command_state(seat.id).await.unwrap();
    let refused = joined(world.probe.instance().announce("n-3", running)).await;
    assert_eq!(refused, Err(harness_core::provider::ChannelError::Stopped));
    seat.activate(second).await.unwrap();
    seat.host.command_state(seat.id).await.unwrap();
    let announced = world.other.instance().announce("n-4", running);
    world.other.adoptions.next().await.starts();
    assert_eq!(joined(announced).await, Ok(()));
    world.other.dones.next().await.ends();
    seat.until(Status::Completed).await;
}

//! Crashes at every append (I38, S52, S54, S70, S72, S78, R80): the scenario runs once to count
//! its writes, then once for each of them with a crash there, the write lost or kept. A fresh host
//! over the reopened store must have lost nothing that was acknowledged, send nothing again, and
//! show what it cannot know as uncertain or held.

use crate::scenes::{ask, say};
use crate::support::{Seat, World, joined, patient};
use harness_core::gate::GateReply;
use harness_core::view::{OutcomeStatus, Status};
use harness_journal::fault::Fault;
use std::sync::{Arc, Mutex};

/// What the client was told before the crash.
#[derive(Default, Clone)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn was(&self, what: &str) -> bool {
        self.0.lock().unwrap().iter().any(|t| t == what)
    }
}

/// Runs the scenario to its end or to the crash.
async fn run(world: &World, told: &Told, scenario: &Scenario) -> (Seat, bool) {
    let seat = world.idle().await;
    seat.host.command_state(seat.id).await.unwrap();
    let (at, faults) = (world.faults.writes(), world.faults.clone());
    if let Some((n, written)) = scenario.crash {
        faults.fail_at(at + n, Fault::Crash { written });
    }
    let play = (scenario.play)(seat.clone(), world.probe.clone(), told.clone());
    let ended = tokio::select! {
        biased;
        () = faults.crashed() => false,
        () = patient("the scenario", play) => true,
    };
    (seat, ended)
}

type Probe = Arc<crate::support::probe::Probe>;
type Play = fn(Seat, Probe, Told) -> futures::future::BoxFuture<'static, ()>;

struct Scenario {
    play: Play,
    crash: Option<(u64, bool)>,
}

/// Crashes at every write and checks what the next process finds.
async fn everywhere(play: Play, check: impl AsyncFn(&World, &Seat, &Told, &str)) {
    let writes = {
        let world = World::new().await;
        let scenario = Scenario { play, crash: None };
        let before = Mutex::new(0);
        let (seat, ended) = run(&world, &Told::default(), &scenario).await;
        assert!(ended);
        crate::support::breathe().await;
        *before.lock().unwrap() = world.faults.writes();
        let own = world.faults.writes() - idle_writes().await;
        assert!(seat.view().await.last_seq > 0);
        own
    };
    assert!(writes >= 2, "the scenario writes");
    for n in 1..=writes {
        for written in [false, true] {
            let at = format!("write {n} of {writes}, written: {written}");
            let (world, told) = (World::new().await, Told::default());
            let crash = Some((n, written));
            let (seat, ended) = run(&world, &told, &Scenario { play, crash }).await;
            if ended {
                // The crash came after everything was told.
                patient("the crash", world.faults.crashed()).await;
            }
            let sent = world.probe.native_calls();
            let id = seat.id;
            let world = world.restart().await;
            let seat = world.seat(id);
            let live = [Status::InProgress, Status::AwaitingInput, Status::Queued];
            assert!(!live.contains(&seat.status().await), "{at}");
            assert_eq!(seat.count("SessionStarted").await, 1, "S78 {at}");
            assert_eq!(
                world.probe.native_calls(),
                sent,
                "nothing is sent again, {at}"
            );
            assert!(seat.host.gates(id).await.unwrap().is_empty(), "{at}");
            let starts = seat.count("TurnStarted").await;
            let ends = seat.count("TurnDone").await
                + seat.count("TurnFailed").await
                + seat.count("TurnInterrupted").await;
            assert_eq!(starts, ends, "each turn is closed once, {at}");
            check(&world, &seat, &told, &at).await;
            // Twice restarted is the same as once.
            let (types, texts) = (seat.types().await, seat.texts().await);
            let world = world.restart().await;
            let seat = world.seat(id);
            assert_eq!(seat.texts().await, texts, "S70 {at}");
            let again: Vec<_> = seat.types().await.split_off(types.len());
            let repairs = ["RestoreStarted", "RestoreDone"];
            assert!(
                again.iter().all(|t| repairs.contains(&t.as_str())),
                "{again:?} {at}"
            );
            world.pool_is_whole().await;
        }
    }
}

/// Writes of a world with one idle session.
async fn idle_writes() -> u64 {
    let world = World::new().await;
    let seat = world.idle().await;
    seat.host.command_state(seat.id).await.unwrap();
    crate::support::breathe().await;
    world.faults.writes()
}

/// The outcomes of the session's second operation (the first made the session).
async fn outcome(seat: &Seat) -> Option<String> {
    let types = seat.types().await;
    let outcomes: Vec<_> = types
        .iter()
        .filter_map(|t| t.strip_prefix("NativeOperationResolved:"))
        .collect();
    assert!(outcomes.len() <= 2, "exactly one an operation: {types:?}");
    outcomes.get(1).map(|o| (*o).to_owned())
}

#[tokio::test]
async fn i38_s54_r80_a_control() {
    let play: Play = |seat, probe, told| {
        Box::pin(async move {
            let running = seat.operate("/c go");
            let call = probe.invokes.next().await;
            told.note("invoked");
            if say(&call.channel(), "reply").await.is_ok() {
                told.note("reply");
            }
            call.completes("done");
            let result = joined(running).await.unwrap();
            assert_eq!(result.status, OutcomeStatus::Completed);
            told.note("completed");
        })
    };
    everywhere(play, async |_, seat, told, at| {
        let outcome = outcome(seat).await;
        match outcome.as_deref() {
            None => assert!(!told.was("invoked"), "not started, {at}"),
            Some("uncertain") => {
                assert!(!told.was("completed"), "{at}");
                assert_eq!(seat.status().await, Status::Disconnected, "{at}");
                let snapshot = seat.host.snapshot(seat.id).await.unwrap();
                assert_eq!(snapshot.uncertain_operations.len(), 1, "{at}");
            }
            Some("completed") => {}
            other => panic!("{other:?} {at}"),
        }
        assert!(
            !told.was("completed") || outcome.as_deref() == Some("completed"),
            "{at}"
        );
        // A control's reply is durable together with its outcome, never without it.
        let replied = seat.texts().await == ["reply"];
        assert_eq!(replied, outcome.as_deref() == Some("completed"), "{at}");
    })
    .await;
}

#[tokio::test]
async fn i38_s54_r80_an_exclusive_and_its_turn() {
    let play: Play = |seat, probe, told| {
        Box::pin(async move {
            let running = seat.operate("/x go");
            let call = probe.invokes.next().await;
            told.note("invoked");
            if call
                .channel()
                .bind_native_session("n-1".into())
                .await
                .is_ok()
            {
                told.note("bound");
            }
            call.starts();
            assert_eq!(
                joined(running).await.unwrap().status,
                OutcomeStatus::Started
            );
            told.note("started");
            let done = probe.dones.next().await;
            if say(&done.channel(), "reply").await.is_ok() {
                told.note("reply");
            }
            done.ends();
            seat.until(Status::Completed).await;
            told.note("done");
        })
    };
    everywhere(play, async |_, seat, told, at| {
        let outcome = outcome(seat).await;
        match outcome.as_deref() {
            None => assert!(!told.was("invoked"), "{at}"),
            Some("uncertain") => assert!(!told.was("started"), "{at}"),
            Some("started") => {}
            other => panic!("{other:?} {at}"),
        }
        let end = seat.last_end().await;
        assert!(!told.was("done") || end == "TurnDone", "{end} {at}");
        if !told.was("done") && outcome.is_some() {
            assert!(
                ["TurnDone", "TurnInterrupted:host_lost"].contains(&end.as_str()),
                "{end} {at}"
            );
        }
        assert!(
            !told.was("reply") || seat.texts().await == ["reply"],
            "{at}"
        );
        let native = seat.view().await.agent_session_id;
        assert!(
            !told.was("bound") || native.as_deref() == Some("n-1"),
            "S77 {at}"
        );
    })
    .await;
}

#[tokio::test]
async fn i38_s52_s32_i27_prompts_are_held_or_resolved_never_absent() {
    let play: Play = |seat, probe, told| {
        Box::pin(async move {
            let one = seat.prompt("one").await;
            told.note(one.to_string());
            let start = probe.prompts.next().await;
            let two = seat.prompt("two").await;
            told.note(two.to_string());
            start.starts();
            let done = probe.dones.next().await;
            if say(&done.channel(), "reply").await.is_ok() {
                told.note("reply");
            }
            done.ends();
            probe.prompts.next().await.starts();
            probe.dones.next().await.ends();
            seat.until(Status::Completed).await;
        })
    };
    everywhere(play, async |world, seat, told, at| {
        let held: Vec<String> = {
            let queue = seat.queue().await;
            assert!(queue.iter().all(|q| q.held), "{at}");
            queue.iter().map(|q| q.command_id.to_string()).collect()
        };
        let events = seat.events().await;
        let resolved = |id: &String| {
            let ends = [
                "TurnStarted",
                "TurnFoldedInto",
                "InputCancelled",
                "TurnRejected",
            ];
            events
                .iter()
                .filter(|e| {
                    let kind = e["type"].as_str().unwrap();
                    ends.contains(&kind) && e["cause"]["command_id"] == **id
                })
                .count()
        };
        for id in told.0.lock().unwrap().iter().filter(|t| *t != "reply") {
            let count = resolved(id) + usize::from(held.contains(id));
            assert_eq!(count, 1, "{id} is held or resolved, once: {at}");
        }
        // Held inputs go on when they are released, oldest first.
        let prompts = world.probe.prompts.count();
        let host = &seat.host;
        let released = host
            .release(seat.id, Default::default(), None, Vec::new())
            .await
            .unwrap();
        assert_eq!(released.len(), held.len(), "{at}");
        for id in &held {
            let call = world.probe.prompts.next().await;
            assert_eq!(call.command.to_string(), *id, "{at}");
            call.starts();
            world.probe.dones.next().await.ends();
        }
        assert_eq!(world.probe.prompts.count(), prompts + held.len());
        if !held.is_empty() {
            seat.until(Status::Completed).await;
        }
    })
    .await;
}

#[tokio::test]
async fn i38_n10_s72_a_native_turn() {
    let play: Play = |seat, probe, told| {
        Box::pin(async move {
            let announced = probe
                .instance()
                .announce("n-1", harness_core::provider::TurnStart::Running);
            let call = probe.adoptions.next().await;
            if joined(announced).await.is_ok() {
                told.note("announced");
            }
            call.starts();
            let done = probe.dones.next().await;
            if say(&done.channel(), "step").await.is_ok() {
                told.note("step");
            }
            done.ends();
            seat.until(Status::Completed).await;
            // The row shows the end only when it is durable.
            told.note("done");
        })
    };
    everywhere(play, async |_, seat, told, at| {
        let end = seat.last_end().await;
        let known = ["", "TurnDone", "TurnInterrupted:host_lost"];
        assert!(known.contains(&end.as_str()), "{end} {at}");
        assert!(!told.was("announced") || !end.is_empty(), "{at}");
        assert!(!told.was("done") || end == "TurnDone", "{at}");
        assert!(!told.was("step") || seat.texts().await == ["step"], "{at}");
    })
    .await;
}

#[tokio::test]
async fn i38_r80_s87_a_gate_and_its_answer() {
    let play: Play = |seat, probe, told| {
        Box::pin(async move {
            seat.prompt("asks").await;
            probe.prompts.next().await.starts();
            let done = probe.dones.next().await;
            let approval = ask(done.channel());
            let gate = seat.gate().await;
            told.note("open");
            seat.answer(gate.gate_id, GateReply::ApproveOnce)
                .await
                .unwrap();
            told.note("answered");
            joined(approval).await.unwrap();
            done.ends();
            seat.until(Status::Completed).await;
        })
    };
    everywhere(play, async |_, seat, told, at| {
        let types = seat.types().await;
        let count = |what: &str| types.iter().filter(|t| *t == what).count();
        let closed = count("GateResolved:answered") + count("GateResolved:restore_unavailable");
        assert_eq!(count("GateOpened"), closed, "{at}");
        assert!(!told.was("open") || closed == 1, "{at}");
        assert!(
            !told.was("answered") || count("GateResolved:answered") == 1,
            "{at}"
        );
    })
    .await;
}

#[tokio::test]
async fn s52_a_hold_ends_by_the_next_prompt_and_comes_back_after_a_crash() {
    let scene = crate::scenes::turn_running().await;
    let waiting = scene.seat.prompt("waits").await;
    let id = scene.seat.id;
    let mut world = scene.world;
    for _ in 0..3 {
        world = world.restart().await;
        let seat = world.seat(id);
        assert_eq!(seat.view().await.held, 1);
        assert_eq!(seat.count("InputHeld").await, 1, "one a hold");
        assert_eq!(seat.status().await, Status::Disconnected);
        // A control runs, an exclusive is refused (the row "idle, held inputs").
        assert_eq!(seat.refusal("/x go").await, "session_busy");
    }
    let seat = world.seat(id);
    assert!(!seat.stopped().await, "held inputs are nothing to stop");
    let operation = seat.operate("/c go");
    world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    assert_eq!(seat.view().await.held, 1);
    let next = seat.prompt("next").await;
    for expected in [waiting, next] {
        let call = world.probe.prompts.next().await;
        assert_eq!(call.command, expected, "oldest first, the new one behind");
        call.starts();
        world.probe.dones.next().await.ends();
    }
    seat.until(Status::Completed).await;
}

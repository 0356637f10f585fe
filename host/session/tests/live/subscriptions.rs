//! Following a session (S61, S64, S109, I36) and notifications of changed command state (G7, S69).

use crate::scenes::{Runner, idle, say, turn_running};
use crate::support::{World, forward, joined, patient};
use harness_core::content::{Part, Role};
use harness_session::{Item, Start, Subscription};
use std::time::Duration;

/// Sequences of the enduring frames until one of this name has come.
async fn enduring_until(subscription: &mut Subscription, last: &str) -> Vec<u64> {
    patient("the frames", async {
        let mut seqs = Vec::new();
        loop {
            match subscription.next().await {
                Some(Item::Frame(frame)) => {
                    seqs.extend(frame.seq);
                    if frame.name == last {
                        return seqs;
                    }
                }
                Some(Item::Snapshot { .. }) => {}
                other => panic!("{other:?} after {seqs:?}"),
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s109_replay_and_live_join_without_gap_or_duplicate_from_every_sequence() {
    let scene = turn_running().await;
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    let channel = call.channel();
    let writing = tokio::spawn(async move {
        for n in 0..120 {
            say(&channel, &format!("{n}")).await.unwrap();
        }
    });
    let mut readers = Vec::new();
    // From everywhere between the start and the tip, while it is being written.
    for n in 0..60 {
        let from = n % (scene.seat.view().await.last_seq + 1);
        let start = Start::After(from);
        let subscribing = scene.seat.host.subscribe(scene.seat.id, start);
        let mut subscription = subscribing.await.unwrap();
        readers.push(tokio::spawn(async move {
            let seqs = enduring_until(&mut subscription, "TurnDone").await;
            (from, seqs)
        }));
        tokio::task::yield_now().await;
    }
    joined(writing).await;
    let seat = scene.seat.clone();
    scene.finish().await;
    let events = seat.events().await;
    let seq_of = |e: &serde_json::Value| e["seq"].as_u64().unwrap();
    let end = seq_of(events.iter().rfind(|e| e["type"] == "TurnDone").unwrap());
    let all: Vec<u64> = events.iter().map(seq_of).collect();
    for reader in readers {
        let (from, seqs) = joined(reader).await;
        let wanted = all.iter().copied().filter(|s| (from + 1..=end).contains(s));
        assert_eq!(seqs, wanted.collect::<Vec<_>>(), "from {from}");
    }
    // A sequence from elsewhere, beyond the tip, hides nothing that comes later.
    let beyond = seat.host.subscribe(seat.id, Start::After(1_000_000)).await;
    let mut beyond = beyond.unwrap();
    seat.prompt("more").await;
    let accepted = patient("a frame", beyond.next()).await;
    assert!(matches!(accepted, Some(Item::Frame(_))));
}

#[tokio::test]
async fn s109_a_snapshot_then_everything_that_follows() {
    let scene = turn_running().await;
    let seat = scene.seat.clone();
    let mut subscription = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    let Some(Item::Snapshot { seq, snapshot }) = subscription.next().await else {
        panic!("no snapshot");
    };
    assert_eq!(snapshot.session, seat.view().await);
    scene.finish().await;
    let seqs = enduring_until(&mut subscription, "TurnDone").await;
    assert!(seqs.iter().all(|s| *s > seq));
    let events = seat.events().await;
    let after = events.iter().filter(|e| e["seq"].as_u64().unwrap() > seq);
    let upto = after.take_while(|e| e["type"] != "TurnDone").count() + 1;
    assert_eq!(seqs.len(), upto);
}

#[tokio::test]
async fn s64_i36_of_a_hundred_subscribers_the_stalled_one_alone_is_cut() {
    let scene = turn_running().await;
    let seat = scene.seat.clone();
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    let mut stalled = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..99 {
        let mut subscription = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
        readers.push(tokio::spawn(async move {
            enduring_until(&mut subscription, "TurnDone").await.len()
        }));
    }
    let channel = call.channel();
    for n in 0..300 {
        say(&channel, &format!("{n}")).await.unwrap();
    }
    scene.finish().await;
    for reader in readers {
        assert_eq!(joined(reader).await, 301, "every step and the end");
    }
    let mut seen = 0;
    let last = loop {
        match patient("the stalled one", stalled.next()).await {
            Some(Item::Frame(frame)) => seen = frame.seq.unwrap_or(seen),
            Some(Item::Snapshot { seq, .. }) => seen = seq,
            Some(Item::Lagged { last_seq }) => break last_seq,
            None => panic!("it must say that it lagged"),
        }
    };
    assert_eq!(last, seen, "it knows where to go on from");
    // From there a replay continues without a gap.
    let mut again = seat
        .host
        .subscribe(seat.id, Start::After(last))
        .await
        .unwrap();
    let rest = enduring_until(&mut again, "TurnDone").await;
    assert_eq!(rest.first(), Some(&(last + 1)));
}

#[tokio::test]
async fn r74_s56_what_is_streamed_keeps_its_id_into_the_saved_message() {
    let scene = turn_running().await;
    let seat = scene.seat.clone();
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    let mut subscription = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    let channel = call.channel();
    let text = |t: &str| Part::Text { text: t.into() };
    let writer = channel.open_message(Role::Assistant).await.unwrap();
    channel.delta(writer, text("hel")).await.unwrap();
    let index = channel.delta(writer, text("lo")).await.unwrap();
    channel
        .replace(writer, index, text("hello!"))
        .await
        .unwrap();
    assert_eq!(seat.texts().await, ["runs"], "not saved yet");
    channel.finish(writer).await.unwrap();
    assert_eq!(seat.texts().await, ["runs", "hello!"]);
    let left = channel.open_message(Role::Assistant).await.unwrap();
    channel.delta(left, text("dropped handle")).await.unwrap();
    channel.abandon_writer(left);
    crate::support::breathe().await;
    assert_eq!(seat.texts().await, ["runs", "hello!", "dropped handle"]);
    let ids: Vec<String> = seat
        .messages()
        .await
        .iter()
        .map(|m| m.id.to_string())
        .collect();
    scene.finish().await;
    let mut streamed = Vec::new();
    loop {
        match patient("a frame", subscription.next()).await {
            Some(Item::Frame(frame)) if frame.name == "TokenDelta" => {
                let data: serde_json::Value = serde_json::from_str(&frame.data).unwrap();
                streamed.push(data["message_id"].as_str().unwrap().to_owned());
            }
            Some(Item::Frame(frame)) if frame.name == "TurnDone" => break,
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
    streamed.dedup();
    assert_eq!(streamed, ids[1..], "one id from the first delta on");
}

#[tokio::test]
async fn s49_an_interrupted_turn_keeps_what_it_committed() {
    let scene = turn_running().await;
    let seat = scene.seat.clone();
    let Runner::Running(call) = &scene.runner else {
        unreachable!()
    };
    say(&call.channel(), "committed").await.unwrap();
    assert!(seat.stopped().await);
    assert_eq!(seat.texts().await, ["runs", "committed"]);
    let id = seat.id;
    let history = seat.messages().await;
    let world = scene.world.restart().await;
    assert_eq!(
        world.seat(id).messages().await,
        history,
        "S70: byte for byte"
    );
}

#[tokio::test(start_paused = true)]
async fn g7_notifications_are_coalesced_and_the_last_is_delivered() {
    let world = World::still(|_| {}).await;
    let seat = world.idle().await;
    forward(Duration::from_secs(1)).await;
    let mut subscription = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    subscription.next().await.unwrap();
    let instance = world.probe.instance();
    let mut frames = 0;
    for _ in 0..10 {
        for _ in 0..100 {
            instance.host.state_changed();
        }
        forward(Duration::from_millis(50)).await;
        while let std::task::Poll::Ready(Some(Item::Frame(frame))) =
            futures::poll!(Box::pin(subscription.next()))
        {
            assert_eq!(frame.name, "command_state_changed");
            assert_eq!(frame.seq, None);
            frames += 1;
        }
    }
    assert!((2..=3).contains(&frames), "{frames} in half a second");
    instance.host.state_changed();
    forward(Duration::from_millis(300)).await;
    let last = futures::poll!(Box::pin(subscription.next()));
    assert!(
        matches!(last, std::task::Poll::Ready(Some(Item::Frame(_)))),
        "the last one"
    );
    forward(Duration::from_secs(1)).await;
    assert!(futures::poll!(Box::pin(subscription.next())).is_pending());
}

#[tokio::test]
async fn g7_every_settled_operation_and_harness_change_notifies() {
    let scene = idle().await;
    let seat = scene.seat.clone();
    tokio::time::sleep(Duration::from_millis(260)).await;
    let mut subscription = seat.host.subscribe(seat.id, Start::Now).await.unwrap();
    let operation = seat.operate("/c go");
    scene.world.probe.invokes.next().await.completes("");
    joined(operation).await.unwrap();
    let state_changed = async |s: &mut Subscription| {
        loop {
            if let Some(Item::Frame(frame)) = patient("a frame", s.next()).await
                && frame.name == "command_state_changed"
            {
                let data: serde_json::Value = serde_json::from_str(&frame.data).unwrap();
                return data["harnessId"].as_str().unwrap().to_owned();
            }
        }
    };
    assert_eq!(state_changed(&mut subscription).await, "demo/probe");
    seat.swap(scene.world.other.harness_id()).await.unwrap();
    assert_eq!(state_changed(&mut subscription).await, "demo/other");
}

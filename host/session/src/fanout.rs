//! Delivery of events to subscribers (S61, S64).
//!
//! Each subscriber has a queue of 256 frames of its own. Publishing never blocks: a full queue
//! loses an ephemeral frame, and ends that subscription on an enduring one. What a subscriber does
//! not want never enters its queue. Frames are serialised once and shared.

use crate::filter::EventFilter;
use crate::requests::Frame;
use harness_core::ids::Seq;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Frames a subscriber may be behind (§0 "subscriber egress buffer").
const EGRESS: usize = 256;

/// The subscribers of one session.
#[derive(Default)]
pub(crate) struct Fanout {
    subscribers: Vec<Subscriber>,
}

struct Subscriber {
    filter: EventFilter,
    queue: mpsc::Sender<Arc<Frame>>,
    lagged: Arc<AtomicBool>,
}

/// A subscriber's end.
pub(crate) struct Feed {
    pub(crate) queue: mpsc::Receiver<Arc<Frame>>,
    /// It was too slow for an enduring event.
    pub(crate) lagged: Arc<AtomicBool>,
    /// Newest sequence when it subscribed: what is older comes from the journal.
    pub(crate) tip: Seq,
}

impl Fanout {
    /// Whether anybody listens.
    pub(crate) fn is_empty(&self) -> bool {
        self.subscribers.is_empty()
    }

    /// A new subscriber: what passes its filter reaches it from now on.
    pub(crate) fn subscribe(&mut self, tip: Seq, filter: EventFilter) -> Feed {
        // Who came and went while nothing was published leaves nothing behind.
        self.sweep();
        let (queue, receiver) = mpsc::channel(EGRESS);
        let lagged = Arc::new(AtomicBool::new(false));
        self.subscribers.push(Subscriber {
            filter,
            queue,
            lagged: lagged.clone(),
        });
        Feed {
            queue: receiver,
            lagged,
            tip,
        }
    }

    /// Hands a frame to everybody who wants it; ends who is too slow for an enduring one.
    pub(crate) fn publish(&mut self, frame: &Arc<Frame>) {
        self.subscribers.retain(|s| {
            if !s.filter.passes(frame) {
                return !s.queue.is_closed();
            }
            match s.queue.try_send(frame.clone()) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                Err(mpsc::error::TrySendError::Full(_)) if frame.seq.is_none() => true,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    s.lagged.store(true, Ordering::Release);
                    metrics::counter!("harness_subscribers_lagged_total").increment(1);
                    false
                }
            }
        });
    }

    /// Forgets who has gone.
    pub(crate) fn sweep(&mut self) {
        self.subscribers.retain(|s| !s.queue.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness_core::ids::LoopId;

    fn frame(seq: Option<Seq>) -> Arc<Frame> {
        of(None, seq)
    }

    fn of(loop_id: Option<LoopId>, seq: Option<Seq>) -> Arc<Frame> {
        Arc::new(Frame {
            seq,
            name: "X",
            loop_id,
            data: "{}".into(),
        })
    }

    #[tokio::test]
    async fn s64_i36_a_stalled_subscriber_loses_only_its_own_subscription() {
        let mut fanout = Fanout::default();
        let mut stalled = fanout.subscribe(0, EventFilter::ALL);
        let mut reader = fanout.subscribe(0, EventFilter::ALL);
        for n in 0..EGRESS as u64 {
            fanout.publish(&frame(Some(n + 1)));
            assert_eq!(reader.queue.recv().await.unwrap().seq, Some(n + 1));
        }
        fanout.publish(&frame(None));
        assert!(
            !stalled.lagged.load(Ordering::Acquire),
            "an ephemeral frame is dropped silently"
        );
        assert_eq!(reader.queue.recv().await.unwrap().seq, None);
        fanout.publish(&frame(Some(1000)));
        assert_eq!(reader.queue.recv().await.unwrap().seq, Some(1000));
        let mut seen = 0;
        while let Some(frame) = stalled.queue.recv().await {
            seen += 1;
            assert_eq!(frame.seq, Some(seen));
        }
        assert_eq!(seen, EGRESS as u64);
        assert!(stalled.lagged.load(Ordering::Acquire));
    }

    #[tokio::test]
    async fn s63_s64_what_is_not_wanted_takes_no_place_in_the_queue() {
        let mut fanout = Fanout::default();
        let mut feed = fanout.subscribe(0, EventFilter::default());
        for n in 0..4 * EGRESS as u64 {
            let seq = (n % 2 == 0).then_some(n + 1);
            fanout.publish(&of(Some(LoopId::ZERO), seq));
        }
        fanout.publish(&frame(Some(5000)));
        assert!(!feed.lagged.load(Ordering::Acquire));
        assert_eq!(feed.queue.recv().await.unwrap().seq, Some(5000));
        assert!(feed.queue.try_recv().is_err(), "nothing else came");
        drop(feed);
        fanout.publish(&of(Some(LoopId::ZERO), None));
        assert!(fanout.is_empty(), "who has gone is forgotten all the same");
    }
}

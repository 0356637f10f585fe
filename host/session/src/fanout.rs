//! Delivery of events to subscribers (S61, S64).
//!
//! Each subscriber has a queue of 256 frames of its own. Publishing never blocks: a full queue
//! loses an ephemeral frame, and ends that subscription on an enduring one. Frames are serialised
//! once and shared.

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

    /// A new subscriber: everything published from now on reaches it.
    pub(crate) fn subscribe(&mut self, tip: Seq) -> Feed {
        // Who came and went while nothing was published leaves nothing behind.
        self.sweep();
        let (queue, receiver) = mpsc::channel(EGRESS);
        let lagged = Arc::new(AtomicBool::new(false));
        self.subscribers.push(Subscriber {
            queue,
            lagged: lagged.clone(),
        });
        Feed {
            queue: receiver,
            lagged,
            tip,
        }
    }

    /// Hands a frame to everybody; ends who is too slow for an enduring one.
    pub(crate) fn publish(&mut self, frame: &Arc<Frame>) {
        self.subscribers
            .retain(|s| match s.queue.try_send(frame.clone()) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                Err(mpsc::error::TrySendError::Full(_)) if frame.seq.is_none() => true,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    s.lagged.store(true, Ordering::Release);
                    metrics::counter!("harness_subscribers_lagged_total").increment(1);
                    false
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

    fn frame(seq: Option<Seq>) -> Arc<Frame> {
        Arc::new(Frame {
            seq,
            name: "X",
            loop_id: None,
            data: "{}".into(),
        })
    }

    #[tokio::test]
    async fn s64_i36_a_stalled_subscriber_loses_only_its_own_subscription() {
        let mut fanout = Fanout::default();
        let mut stalled = fanout.subscribe(0);
        let mut reader = fanout.subscribe(0);
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
}

//! What the session lends to the life of an instance (`run`): announcements, activities, messages
//! outside any turn, notifications.

use crate::actor::Msg;
use crate::delegation::LoopDelegates;
use crate::deps::Deps;
use crate::handle::Published;
use crate::signals::Signals;
use arc_swap::ArcSwap;
use harness_core::abort::{AbortHandle, AbortReason, AbortSignal};
use harness_core::content::NewMessage;
use harness_core::ids::{HarnessId, LoopId};
use harness_core::provider::{
    Activity, Background, BoxFuture, ChannelError, Delegation, DiscoveryContext, InstanceHost,
    NativeTurn,
};
use harness_core::session::{Answer, Input, LinkId};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

/// The link of one loop's instances.
pub(crate) struct SessionLink {
    pub(crate) loop_id: LoopId,
    /// The harness of those instances.
    pub(crate) harness: HarnessId,
    pub(crate) mailbox: mpsc::Sender<Msg>,
    signals: Arc<Signals>,
    published: Arc<ArcSwap<Published>>,
    deps: Arc<Deps>,
    /// One announcement at a time; more wait (N11).
    announcing: Semaphore,
    turns: Pace,
    messages: Pace,
}

impl SessionLink {
    pub(crate) fn new(
        loop_id: LoopId,
        harness: HarnessId,
        mailbox: mpsc::Sender<Msg>,
        signals: Arc<Signals>,
        published: Arc<ArcSwap<Published>>,
        deps: Arc<Deps>,
    ) -> Self {
        let config = &deps.config;
        let turns = Pace::new(Duration::from_secs(60), config.native_turns_per_minute);
        let messages = Pace::new(Duration::from_secs(1), config.link_messages_per_second);
        Self {
            loop_id,
            harness,
            mailbox,
            signals,
            published,
            deps,
            announcing: Semaphore::new(1),
            turns,
            messages,
        }
    }
}

/// Back-pressure: at most `n` passes in a period, a burst of `n` included.
struct Pace {
    step: Duration,
    burst: Duration,
    // A std mutex: held for a comparison, never across an await.
    next: Mutex<Instant>,
}

impl Pace {
    fn new(period: Duration, n: u32) -> Self {
        let now = Instant::now();
        let next = Mutex::new(now.checked_sub(period).unwrap_or(now));
        Self {
            step: period / n.max(1),
            burst: period,
            next,
        }
    }

    async fn pass(&self) {
        let until = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let earliest = now.checked_sub(self.burst).unwrap_or(now);
            let slot = (*next).max(earliest) + self.step;
            *next = slot;
            slot
        };
        tokio::time::sleep_until(until).await;
    }
}

impl InstanceHost for SessionLink {
    fn context(&self) -> DiscoveryContext {
        self.published.load().discovery_context(self.loop_id)
    }

    fn announce_turn(&self, turn: NativeTurn) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async move {
            let paced = self.signals.pace_turn();
            let _one = self
                .announcing
                .acquire()
                .await
                .map_err(|_| ChannelError::Closed)?;
            self.turns.pass().await;
            let (reply, answer) = oneshot::channel();
            self.mailbox
                .send(Msg::Announce {
                    loop_id: self.loop_id,
                    turn,
                    reply,
                })
                .await
                .map_err(|_| ChannelError::Closed)?;
            let accepted = answer.await.unwrap_or(Err(ChannelError::Closed));
            // The actor knows it now.
            drop(paced);
            let (decided, guard) = accepted?;
            let result = decided.await.unwrap_or(Err(ChannelError::Closed));
            guard.disarm();
            result
        })
    }

    fn append(&self, message: NewMessage) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async move {
            self.messages.pass().await;
            let (reply, answer) = oneshot::channel();
            let input = Input::LinkAppend {
                loop_id: self.loop_id,
                message,
            };
            self.mailbox
                .send(Msg::Import { input, reply })
                .await
                .map_err(|_| ChannelError::Closed)?;
            match answer.await.unwrap_or(Err(ChannelError::Closed))? {
                Answer::Channel(error) => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn begin_activity(&self, label: String) -> Result<Box<dyn Activity>, ChannelError> {
        let (id, abort) = self.signals.begin_activity(label)?;
        let life = self.deps.config.activity_life;
        let (expiry, drain, mailbox) =
            (abort.clone(), self.deps.config.drain, self.mailbox.clone());
        let loop_id = self.loop_id;
        // N5: an activity that outlives its bound is asked to end, and made to if it does not.
        let timer = tokio::spawn(async move {
            tokio::time::sleep(life).await;
            expiry.abort(AbortReason::Deadline);
            tokio::time::sleep(drain).await;
            let _ = mailbox.send(Msg::DrainExpired(loop_id, vec![id])).await;
        });
        Ok(Box::new(OpenActivity {
            id,
            abort,
            signals: self.signals.clone(),
            timer,
        }))
    }

    fn state_changed(&self) {
        self.signals.mark(|m| m.state_changed = true);
    }

    fn delegation(&self) -> Option<Arc<dyn Delegation>> {
        Some(Arc::new(LoopDelegates {
            parent: self.loop_id,
            invocation: None,
            mailbox: self.mailbox.clone(),
            deps: self.deps.clone(),
        }))
    }

    fn background(&self) -> Option<&dyn Background> {
        Some(self)
    }
}

struct OpenActivity {
    id: LinkId,
    abort: AbortHandle,
    signals: Arc<Signals>,
    timer: tokio::task::JoinHandle<()>,
}

impl Activity for OpenActivity {
    fn abort(&self) -> AbortSignal {
        self.abort.signal()
    }
}

impl Drop for OpenActivity {
    fn drop(&mut self) {
        self.timer.abort();
        self.signals.end_activity(self.id);
    }
}

/// The link of a draft instance: it belongs to no session (N6, W7).
pub(crate) struct DraftLink {
    pub(crate) context: DiscoveryContext,
}

impl InstanceHost for DraftLink {
    fn context(&self) -> DiscoveryContext {
        self.context.clone()
    }

    fn announce_turn(&self, _: NativeTurn) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async { Err(ChannelError::Closed) })
    }

    fn append(&self, _: NewMessage) -> BoxFuture<'_, Result<(), ChannelError>> {
        Box::pin(async { Err(ChannelError::Closed) })
    }

    fn begin_activity(&self, _: String) -> Result<Box<dyn Activity>, ChannelError> {
        Err(ChannelError::Closed)
    }

    fn state_changed(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn n11_pace_lets_a_burst_through_and_then_holds_back() {
        let pace = Pace::new(Duration::from_secs(60), 60);
        let start = Instant::now();
        for _ in 0..60 {
            pace.pass().await;
        }
        let burst = start.elapsed();
        for _ in 0..60 {
            pace.pass().await;
        }
        assert!(
            start.elapsed() - burst >= Duration::from_secs(59),
            "{:?}",
            start.elapsed()
        );
    }
}

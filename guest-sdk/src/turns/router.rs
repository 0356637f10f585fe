//! Queues between the reader and the turns it feeds.
//!
//! Keyed by what the native protocol addresses events with: a turn id, or a
//! conversation id where turns have none.
//!
//! Invariants:
//! - routing never waits and never fails; each queue has a bound in bytes and in
//!   events, after merging neighbours ([`NativeEvent::merge`]);
//! - a *claimed* queue that is behind slows the reader ([`TurnRouter::pressure`]);
//!   its consumer must therefore not wait for the reader while it leaves events
//!   in the queue (as [`drive`](fn@super::drive) does not);
//! - an *unclaimed* queue must not slow the reader, because what will claim it may
//!   wait for the reader: beyond its bound the oldest events go, and the claimer
//!   is told how many ([`Signal::Dropped`]);
//! - events for keys that nobody knows are kept only while an answer that may
//!   introduce them is awaited ([`TurnRouter::expect`]).

use crate::Shared;
use futures::channel::oneshot;
use futures::future::{FutureExt, LocalBoxFuture};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Bytes of a claimed queue above which the reader pauses.
const HIGH_WATER_BYTES: usize = 512 * 1024;
/// Events of a claimed queue above which the reader pauses.
const HIGH_WATER_EVENTS: usize = 1024;
/// Bytes an unclaimed queue keeps.
const UNCLAIMED_BYTES: usize = 1024 * 1024;
/// Events an unclaimed queue keeps.
const UNCLAIMED_EVENTS: usize = 1024;
/// Events kept for keys nobody knows yet, over all keys.
const EARLY_EVENTS: usize = 1024;
/// Bytes kept for keys nobody knows yet, over all keys.
const EARLY_BYTES: usize = 1024 * 1024;

/// An event of the native protocol, as the queues see it.
pub trait NativeEvent: Sized + 'static {
    /// Takes `next` in when the two are as good as one (two pieces of the same
    /// text, a newer state of the same thing); gives it back otherwise.
    ///
    /// # Errors
    ///
    /// `next` itself, when it must stay an event of its own.
    fn merge(&mut self, next: Self) -> Result<(), Self>;
    /// About how many bytes it holds.
    fn weight(&self) -> usize;
}

/// What a claimed queue delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal<E> {
    /// The next event.
    Event(E),
    /// So many older events were given up before the queue was claimed.
    Dropped(u64),
    /// The native side is gone; nothing follows.
    Lost(String),
}

/// Where an event went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    /// Into the queue of a live turn.
    Claimed,
    /// Into the slot of a turn that nobody has claimed; `first`: the slot was
    /// empty, i.e. somebody should hear of it.
    Unclaimed {
        /// The slot was empty.
        first: bool,
    },
    /// Kept until the key becomes known.
    Early,
    /// Dropped: the key is unknown.
    Unknown,
}

struct Slot<E> {
    events: VecDeque<E>,
    bytes: usize,
    dropped: u64,
    claimed: bool,
    lost: Option<String>,
    waker: Option<Waker>,
}

impl<E> Default for Slot<E> {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            claimed: false,
            lost: None,
            waker: None,
        }
    }
}

impl<E: NativeEvent> Slot<E> {
    fn push(&mut self, event: E) {
        let event = match self.events.back_mut() {
            Some(last) => {
                let before = last.weight();
                let merged = last.merge(event);
                self.bytes = (self.bytes + last.weight()).saturating_sub(before);
                match merged {
                    Ok(()) => return,
                    Err(event) => event,
                }
            }
            None => event,
        };
        self.bytes += event.weight();
        self.events.push_back(event);
    }

    fn pop(&mut self) -> Option<E> {
        let event = self.events.pop_front()?;
        self.bytes = self.bytes.saturating_sub(event.weight());
        Some(event)
    }

    fn shrink(&mut self) {
        while self.events.len() > 1
            && (self.bytes > UNCLAIMED_BYTES || self.events.len() > UNCLAIMED_EVENTS)
        {
            self.pop();
            self.dropped += 1;
        }
    }

    fn behind(&self) -> bool {
        self.claimed && (self.bytes > HIGH_WATER_BYTES || self.events.len() > HIGH_WATER_EVENTS)
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

struct State<E> {
    slots: HashMap<String, Slot<E>>,
    early: VecDeque<(String, E)>,
    early_bytes: usize,
    expecting: usize,
    lost: Option<String>,
    paused: Vec<oneshot::Sender<()>>,
}

impl<E: NativeEvent> State<E> {
    fn behind(&self) -> bool {
        self.slots.values().any(Slot::behind)
    }

    fn resume(&mut self) {
        if !self.paused.is_empty() && !self.behind() {
            for reader in self.paused.drain(..) {
                // A reader that went away needs no wake-up.
                let _ = reader.send(());
            }
        }
    }

    fn forget_early(&mut self) -> usize {
        self.early_bytes = 0;
        self.early.drain(..).count()
    }
}

/// Called with the key of a slot that got its first event while unclaimed.
type OnUnclaimed = Rc<dyn Fn(&str)>;

/// The queues of one connection; clones are the same queues.
pub struct TurnRouter<E> {
    state: Shared<State<E>>,
    on_unclaimed: Shared<Option<OnUnclaimed>>,
}

impl<E> Clone for TurnRouter<E> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            on_unclaimed: self.on_unclaimed.clone(),
        }
    }
}

impl<E> std::fmt::Debug for TurnRouter<E> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TurnRouter").finish_non_exhaustive()
    }
}

impl<E: NativeEvent> Default for TurnRouter<E> {
    fn default() -> Self {
        Self {
            state: Shared::new(State {
                slots: HashMap::new(),
                early: VecDeque::new(),
                early_bytes: 0,
                expecting: 0,
                lost: None,
                paused: Vec::new(),
            }),
            on_unclaimed: Shared::new(None),
        }
    }
}

impl<E: NativeEvent> TurnRouter<E> {
    /// `hook` hears of every slot that gets its first event while unclaimed, also
    /// of events that a turn left behind when it ended. It must not wait.
    pub fn on_unclaimed(&self, hook: impl Fn(&str) + 'static) {
        self.on_unclaimed.replace(Some(Rc::new(hook)));
    }

    /// Makes a key known: from now on its events are kept. Gives back those that
    /// came early, in order, to be routed again.
    pub fn learn(&self, key: &str) -> Vec<E> {
        self.state.with(|state| {
            state.slots.entry(key.to_owned()).or_default();
            let (mine, others) = std::mem::take(&mut state.early)
                .into_iter()
                .partition::<VecDeque<_>, _>(|(of, _)| of == key);
            state.early = others;
            state.early_bytes = state.early.iter().map(|(_, event)| event.weight()).sum();
            mine.into_iter().map(|(_, event)| event).collect()
        })
    }

    /// Whether the key is known.
    #[must_use]
    pub fn knows(&self, key: &str) -> bool {
        self.state.with(|state| state.slots.contains_key(key))
    }

    /// While the guard lives an answer may introduce a new key: events of unknown
    /// keys are kept (bounded). The last guard that drops forgets them.
    #[must_use]
    pub fn expect(&self) -> Expecting<E> {
        self.state.with(|state| state.expecting += 1);
        Expecting(self.clone())
    }

    /// Puts an event where it belongs.
    pub fn route(&self, key: &str, event: E) -> Routed {
        let routed = self.state.with(|state| {
            let Some(slot) = state.slots.get_mut(key) else {
                if state.expecting == 0 {
                    return Routed::Unknown;
                }
                let weight = event.weight() + key.len();
                if state.early.len() >= EARLY_EVENTS || state.early_bytes + weight > EARLY_BYTES {
                    return Routed::Unknown;
                }
                state.early_bytes += weight;
                state.early.push_back((key.to_owned(), event));
                return Routed::Early;
            };
            let first = slot.events.is_empty() && slot.dropped == 0;
            slot.push(event);
            slot.wake();
            if slot.claimed {
                return Routed::Claimed;
            }
            slot.shrink();
            Routed::Unclaimed { first }
        });
        if routed == (Routed::Unclaimed { first: true }) {
            self.tell_unclaimed(key);
        }
        routed
    }

    /// Takes the queue of a known key, with what is in it. `None` while another
    /// turn holds it, or when the key is unknown.
    #[must_use]
    pub fn claim(&self, key: &str) -> Option<TurnEvents<E>> {
        self.state.with(|state| {
            let lost = state.lost.clone();
            let slot = state.slots.get_mut(key)?;
            if slot.claimed {
                return None;
            }
            slot.claimed = true;
            slot.lost = slot.lost.take().or(lost);
            Some(())
        })?;
        Some(TurnEvents {
            router: self.clone(),
            key: key.to_owned(),
        })
    }

    /// Whether events wait in an unclaimed slot.
    #[must_use]
    pub fn has_unclaimed(&self, key: &str) -> bool {
        self.state.with(|state| {
            state
                .slots
                .get(key)
                .is_some_and(|slot| !slot.claimed && (!slot.events.is_empty() || slot.dropped > 0))
        })
    }

    /// Takes what waits in an unclaimed slot, giving up the idea of a turn.
    pub fn take_unclaimed(&self, key: &str) -> Vec<E> {
        self.state.with(|state| {
            let Some(slot) = state.slots.get_mut(key) else {
                return Vec::new();
            };
            if slot.claimed {
                return Vec::new();
            }
            slot.bytes = 0;
            slot.dropped = 0;
            slot.events.drain(..).collect()
        })
    }

    /// While a claimed queue is behind: resolves when none is any more.
    #[must_use]
    pub fn pressure(&self) -> Option<LocalBoxFuture<'static, ()>> {
        self.state.with(|state| {
            if !state.behind() {
                return None;
            }
            let (sender, resumed) = oneshot::channel();
            state.paused.push(sender);
            Some(resumed.map(drop).boxed_local())
        })
    }

    /// The native side is gone: every turn is told, now or when it claims.
    pub fn lose(&self, reason: &str) {
        self.state.with(|state| {
            state.lost = Some(reason.to_owned());
            for slot in state.slots.values_mut() {
                slot.lost = Some(reason.to_owned());
                slot.wake();
            }
            for reader in state.paused.drain(..) {
                let _ = reader.send(());
            }
        });
    }

    /// A new native process: keys and losses of the former one are forgotten.
    pub fn reset(&self) {
        self.state.with(|state| {
            state.lost = None;
            state.slots.retain(|_, slot| slot.claimed);
            state.forget_early();
        });
    }

    fn tell_unclaimed(&self, key: &str) {
        if let Some(hook) = self.on_unclaimed.get() {
            hook(key);
        }
    }
}

/// See [`TurnRouter::expect`].
#[derive(Debug)]
pub struct Expecting<E: NativeEvent>(TurnRouter<E>);

impl<E: NativeEvent> Drop for Expecting<E> {
    fn drop(&mut self) {
        let forgotten = self.0.state.with(|state| {
            state.expecting = state.expecting.saturating_sub(1);
            if state.expecting == 0 {
                state.forget_early()
            } else {
                0
            }
        });
        if forgotten > 0 {
            tracing::warn!("{forgotten} native events of unknown conversations were dropped");
        }
    }
}

/// The claimed queue of one live turn. Dropped, the queue is free again; events
/// that are left in it wait for the next claim.
#[derive(Debug)]
pub struct TurnEvents<E: NativeEvent> {
    router: TurnRouter<E>,
    key: String,
}

impl<E: NativeEvent> TurnEvents<E> {
    /// The key of the queue.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The next signal. May be dropped: nothing is taken before it resolves.
    pub async fn next(&self) -> Signal<E> {
        poll_fn(|cx| match self.try_next() {
            Some(signal) => Poll::Ready(signal),
            None => {
                self.router.state.with(|state| {
                    if let Some(slot) = state.slots.get_mut(&self.key) {
                        slot.waker = Some(cx.waker().clone());
                    }
                });
                Poll::Pending
            }
        })
        .await
    }

    /// The next signal, if one is there.
    pub fn try_next(&self) -> Option<Signal<E>> {
        self.router.state.with(|state| {
            let Some(slot) = state.slots.get_mut(&self.key) else {
                return Some(Signal::Lost("the native turn is gone".to_owned()));
            };
            if slot.dropped > 0 {
                return Some(Signal::Dropped(std::mem::take(&mut slot.dropped)));
            }
            let signal = match slot.pop() {
                Some(event) => Some(Signal::Event(event)),
                None => slot.lost.clone().map(Signal::Lost),
            };
            state.resume();
            signal
        })
    }
}

impl<E: NativeEvent> Drop for TurnEvents<E> {
    fn drop(&mut self) {
        let left = self.router.state.with(|state| {
            let Some(slot) = state.slots.get_mut(&self.key) else {
                return false;
            };
            slot.claimed = false;
            slot.waker = None;
            slot.shrink();
            let left = !slot.events.is_empty() && slot.lost.is_none();
            state.resume();
            left
        });
        if left {
            self.router.tell_unclaimed(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Event {
        Text(String),
        Mark(u32),
    }

    impl NativeEvent for Event {
        fn merge(&mut self, next: Self) -> Result<(), Self> {
            match (self, next) {
                (Self::Text(text), Self::Text(more)) if text.len() < 100_000 => {
                    text.push_str(&more);
                    Ok(())
                }
                (_, next) => Err(next),
            }
        }

        fn weight(&self) -> usize {
            match self {
                Self::Text(text) => text.len(),
                Self::Mark(_) => 1,
            }
        }
    }

    fn text(text: &str) -> Event {
        Event::Text(text.to_owned())
    }

    fn router() -> (TurnRouter<Event>, Shared<Vec<String>>) {
        let router = TurnRouter::default();
        let heard = Shared::new(Vec::new());
        let hook = heard.clone();
        router.on_unclaimed(move |key| hook.with(|heard: &mut Vec<String>| heard.push(key.into())));
        (router, heard)
    }

    #[test]
    fn neighbouring_deltas_are_merged_and_order_is_kept() {
        let (router, _) = router();
        router.learn("a");
        let turn = router.claim("a").unwrap();
        for event in [text("x"), text("y"), Event::Mark(1), text("z")] {
            assert_eq!(router.route("a", event), Routed::Claimed);
        }
        assert_eq!(block_on(turn.next()), Signal::Event(text("xy")));
        assert_eq!(block_on(turn.next()), Signal::Event(Event::Mark(1)));
        assert_eq!(block_on(turn.next()), Signal::Event(text("z")));
        assert_eq!(turn.try_next(), None);
    }

    #[test]
    fn unclaimed_events_wait_for_their_turn_and_are_told_of_once() {
        let (router, heard) = router();
        router.learn("a");
        assert_eq!(
            router.route("a", text("x")),
            Routed::Unclaimed { first: true }
        );
        assert_eq!(
            router.route("a", Event::Mark(1)),
            Routed::Unclaimed { first: false }
        );
        assert_eq!(heard.get(), ["a"]);
        let turn = router.claim("a").unwrap();
        assert_eq!(turn.try_next(), Some(Signal::Event(text("x"))));
        assert!(router.claim("a").is_none(), "one turn at a time");
        drop(turn);
        assert_eq!(
            heard.get(),
            ["a", "a"],
            "what a turn left behind is unclaimed"
        );
        assert_eq!(router.take_unclaimed("a"), [Event::Mark(1)]);
        assert!(!router.has_unclaimed("a"));
    }

    #[test]
    fn an_unclaimed_slot_is_bounded_and_says_what_it_lost() {
        let (router, _) = router();
        router.learn("a");
        for number in 0..5_000 {
            router.route("a", Event::Mark(number));
        }
        let turn = router.claim("a").unwrap();
        assert_eq!(turn.try_next(), Some(Signal::Dropped(5_000 - 1024)));
        assert_eq!(
            turn.try_next(),
            Some(Signal::Event(Event::Mark(5_000 - 1024)))
        );
    }

    #[test]
    fn only_a_claimed_queue_slows_the_reader() {
        let (router, _) = router();
        router.learn("a");
        for _ in 0..20 {
            router.route("a", text(&"x".repeat(90_000)));
        }
        assert!(router.pressure().is_none(), "unclaimed");
        let turn = router.claim("a").unwrap();
        let resumed = router.pressure().expect("behind");
        while turn.try_next().is_some() {}
        block_on(resumed);
        assert!(router.pressure().is_none());
    }

    #[test]
    fn a_turn_that_ends_while_behind_releases_the_reader() {
        let (router, _) = router();
        router.learn("a");
        let turn = router.claim("a").unwrap();
        for _ in 0..20 {
            router.route("a", text(&"x".repeat(90_000)));
        }
        let resumed = router.pressure().expect("behind");
        drop(turn);
        block_on(resumed);
    }

    #[test]
    fn early_events_are_kept_only_while_a_key_is_expected() {
        let (router, _) = router();
        assert_eq!(router.route("new", text("x")), Routed::Unknown);
        let expecting = router.expect();
        assert_eq!(router.route("new", text("y")), Routed::Early);
        assert_eq!(router.route("other", text("z")), Routed::Early);
        assert_eq!(router.learn("new"), [text("y")]);
        drop(expecting);
        assert_eq!(router.learn("other"), []);
    }

    #[test]
    fn early_events_are_bounded_over_all_keys() {
        let (router, _) = router();
        let _expecting = router.expect();
        let kept = (0..10_000)
            .filter(|n| router.route(&format!("key-{n}"), Event::Mark(1)) == Routed::Early)
            .count();
        assert_eq!(kept, EARLY_EVENTS);
    }

    #[test]
    fn a_loss_comes_after_what_was_received() {
        let (router, _) = router();
        router.learn("a");
        let turn = router.claim("a").unwrap();
        router.route("a", text("last words"));
        router.lose("gone");
        assert_eq!(block_on(turn.next()), Signal::Event(text("last words")));
        assert_eq!(block_on(turn.next()), Signal::Lost("gone".into()));
        drop(turn);
        let late = router.claim("a").unwrap();
        assert_eq!(late.try_next(), Some(Signal::Lost("gone".into())));
    }
}

//! Following a session: a snapshot or a replay, then live frames, without gap or duplicate (S109).

use crate::fanout::Feed;
use crate::filter::EventFilter;
use crate::handle::Handle;
use crate::requests::Frame;
use harness_core::codec::{decode_event, event_frame};
use harness_core::event::{Event, Scope, Visibility};
use harness_core::ids::{Seq, SessionId};
use harness_core::refusal::Refused;
use harness_core::view::Snapshot;
use harness_journal::{Journal, JournalError, Record, RecordKind};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Records read at a time while replaying.
const PAGE: usize = 500;

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Now; the first item is a snapshot.
    Now,
    /// After this journal sequence: replay, then live.
    After(Seq),
}

/// From where on to follow a session, and what of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow {
    /// Where to begin.
    pub start: Start,
    /// What to see, of the replay and of what follows. A snapshot is whole.
    pub filter: EventFilter,
}

impl From<Start> for Follow {
    /// Everything from there on.
    fn from(start: Start) -> Self {
        Self {
            start,
            filter: EventFilter::ALL,
        }
    }
}

/// What a subscription yields.
#[derive(Debug, Clone)]
pub enum Item {
    /// The state everything that follows builds on.
    Snapshot {
        /// Newest sequence it contains.
        seq: Seq,
        /// The state.
        snapshot: Box<Snapshot>,
    },
    /// An event.
    Frame(Arc<Frame>),
    /// The subscriber was too slow; nothing follows (S64).
    Lagged {
        /// The last sequence it got.
        last_seq: Seq,
    },
}

/// A page of a journal (S107).
#[derive(Debug, Clone, Default)]
pub struct JournalPage {
    /// Public events, each as the `data` of its frame.
    pub events: Vec<Arc<str>>,
    /// Where the next page begins.
    pub next_seq: Seq,
    /// Whether the tip was reached.
    pub done: bool,
}

/// A client that follows a session. Holding it keeps the session live.
pub struct Subscription {
    id: SessionId,
    journal: Arc<dyn Journal>,
    _handle: Arc<Handle>,
    /// Of the replay; the feed has one of its own.
    filter: EventFilter,
    feed: Feed,
    snapshot: Option<Box<Snapshot>>,
    /// Next sequence to read from the journal; `None` once it is read up to the tip.
    replay: Option<Seq>,
    ready: VecDeque<Arc<Frame>>,
    last: Seq,
    ended: bool,
}

impl Subscription {
    pub(crate) fn new(
        id: SessionId,
        journal: Arc<dyn Journal>,
        handle: Arc<Handle>,
        feed: Feed,
        snapshot: Snapshot,
        Follow { start, filter }: Follow,
    ) -> Self {
        let tip = feed.tip;
        let (snapshot, replay, last) = match start {
            Start::Now => (Some(Box::new(snapshot)), None, tip),
            // A sequence from elsewhere, beyond the tip, hides nothing that follows.
            Start::After(seq) => (None, (seq < tip).then(|| seq + 1), seq.min(tip)),
        };
        Self {
            id,
            journal,
            _handle: handle,
            filter,
            feed,
            snapshot,
            replay,
            ready: VecDeque::new(),
            last,
            ended: false,
        }
    }

    /// The next item; `None` at the end.
    pub async fn next(&mut self) -> Option<Item> {
        if let Some(snapshot) = self.snapshot.take() {
            return Some(Item::Snapshot {
                seq: self.last,
                snapshot,
            });
        }
        while self.ready.is_empty() {
            let Some(from) = self.replay else { break };
            if let Err(error) = self.read(from).await {
                tracing::warn!(session = %self.id, %error, "a replay was cut");
                return self.lagged();
            }
        }
        if let Some(frame) = self.ready.pop_front() {
            self.last = frame.seq.unwrap_or(self.last);
            return Some(Item::Frame(frame));
        }
        loop {
            let Some(frame) = self.feed.queue.recv().await else {
                let lagged = self.feed.lagged.load(Ordering::Acquire);
                return if lagged { self.lagged() } else { None };
            };
            match frame.seq {
                Some(seq) if seq <= self.last => {}
                Some(seq) => {
                    self.last = seq;
                    return Some(Item::Frame(frame));
                }
                None => return Some(Item::Frame(frame)),
            }
        }
    }

    fn lagged(&mut self) -> Option<Item> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        Some(Item::Lagged {
            last_seq: self.last,
        })
    }

    async fn read(&mut self, from: Seq) -> Result<(), JournalError> {
        let page = self.journal.read(self.id, from, PAGE).await?;
        let mut next = page.next;
        for record in &page.records {
            if record.seq > self.feed.tip {
                next = None;
                break;
            }
            if let Some((event, data)) = public(record) {
                let frame = frame(&event, record.seq, data);
                if self.filter.passes(&frame) {
                    self.ready.push_back(Arc::new(frame));
                }
            }
        }
        self.replay = next.filter(|seq| *seq <= self.feed.tip);
        Ok(())
    }
}

/// The public event of a record and the `data` of its frame.
fn public(record: &Record) -> Option<(Event, String)> {
    if record.kind != RecordKind::Event {
        return None;
    }
    let event = decode_event(&record.bytes).ok()?;
    if event.body.meta().visibility != Visibility::Public {
        return None;
    }
    Some((event, event_frame(&record.bytes, record.seq).ok()?))
}

fn frame(event: &Event, seq: Seq, data: String) -> Frame {
    let meta = event.body.meta();
    Frame {
        seq: Some(seq),
        name: meta.name,
        loop_id: (meta.scope == Scope::Loop).then_some(event.loop_id),
        data: data.into(),
    }
}

/// At most `limit` public events from a sequence on.
pub(crate) async fn journal_page(
    journal: &dyn Journal,
    id: SessionId,
    from: Seq,
    limit: usize,
) -> Result<JournalPage, Refused> {
    let mut page = JournalPage {
        events: Vec::new(),
        next_seq: from.max(1),
        done: false,
    };
    loop {
        let read = match journal.read(id, page.next_seq, PAGE).await {
            Ok(read) => read,
            Err(JournalError::NotFound { .. }) => {
                return Err(Refused::SessionNotFound(id.to_string()));
            }
            Err(_) => return Err(Refused::StoreUnavailable),
        };
        for record in &read.records {
            if page.events.len() >= limit {
                return Ok(page);
            }
            page.next_seq = record.seq + 1;
            page.events
                .extend(public(record).map(|(_, data)| data.into()));
        }
        match read.next {
            Some(next) => page.next_seq = next,
            None => {
                page.done = true;
                return Ok(page);
            }
        }
    }
}

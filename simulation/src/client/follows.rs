//! Clients that look, and clients that follow: nothing is shown that is not durable, nothing is
//! missing, and nothing comes twice.

use super::Client;
use harness_core::ids::{LoopId, Seq, SessionId};
use harness_journal::PageRequest;
use harness_session::{Item, RowChange, Start, Subscription};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

impl Client {
    /// Follows a session for a while.
    pub(super) async fn follow(&self, id: SessionId) {
        let dice = &self.life.world.dice;
        let start = match dice.below(3) {
            0 => Start::Now,
            1 => Start::After(0),
            _ => Start::After(dice.below(self.life.world.ledger().tail(id) + 1)),
        };
        let Ok(feed) = self.host.subscribe(id, start).await else {
            return;
        };
        let leaves = Instant::now() + dice.pause() * 4;
        tokio::spawn(self.clone().follows(id, start, feed, leaves));
    }

    async fn follows(self, id: SessionId, start: Start, mut feed: Subscription, leaves: Instant) {
        let mut last = match start {
            Start::After(seq) => Some(seq),
            Start::Now => None,
        };
        let mut stopped = false;
        loop {
            let item = tokio::select! {
                biased;
                () = sleep_until(leaves) => return,
                item = feed.next() => item,
            };
            let life = &self.life;
            let Some(item) = item.filter(|_| life.is_alive()) else {
                return;
            };
            life.step();
            match item {
                Item::Snapshot { seq, snapshot } => {
                    last = Some(seq);
                    let found = life.world.ledger().snapshot_shown(&life.world, &snapshot);
                    life.world.hold(found);
                }
                Item::Frame(frame) => match frame.seq {
                    Some(seq) => {
                        let found = self.frame(id, last, seq, frame.name);
                        life.world.hold(found);
                        last = Some(seq);
                        stopped = frame.name == "SessionStopped";
                    }
                    None if stopped => {
                        let what = format!("{} was shown after SessionStopped (S94)", frame.name);
                        life.world.violated(what);
                    }
                    None => {}
                },
                Item::Lagged { .. } => return,
            }
        }
    }

    fn frame(&self, id: SessionId, last: Option<Seq>, seq: Seq, name: &str) -> Result<(), String> {
        let ledger = self.life.world.ledger();
        ledger.event_shown(id, seq, name)?;
        let (Some(last), Some(session)) = (last, ledger.session(id)) else {
            return Ok(());
        };
        if seq <= last {
            return Err(format!("S109: {seq} was shown after {last}"));
        }
        match session.events_between(last, seq) {
            0 => Ok(()),
            missed => Err(format!(
                "S109: {missed} events between {last} and {seq} were not shown"
            )),
        }
    }

    /// Looks at a session: what is shown live is what its journal says.
    pub async fn look(&self, id: SessionId) {
        let Ok(before) = self.host.snapshot(id).await else {
            return;
        };
        let life = &self.life;
        if life.is_alive() {
            let found = life.world.ledger().snapshot_shown(&life.world, &before);
            life.world.hold(found);
        }
        for of in &before.loops {
            self.look_at_messages(id, of.loop_id).await;
        }
    }

    async fn look_at_messages(&self, id: SessionId, of: LoopId) {
        let page = PageRequest {
            limit: 1000,
            cursor: None,
        };
        let seq = self.host.snapshot(id).await.map(|s| s.session.last_seq);
        let shown = self.host.messages(id, Some(of), page).await;
        let after = self.host.snapshot(id).await.map(|s| s.session.last_seq);
        let (Ok(seq), Ok(shown), Ok(after), true) = (seq, shown, after, self.life.is_alive())
        else {
            return;
        };
        if seq == after && shown.next_cursor.is_none() {
            let world = &self.life.world;
            let found = world.ledger().session(id).map_or(Ok(()), |session| {
                session.check_messages(seq, of, &shown.items)
            });
            world.hold(found);
        }
    }

    /// Follows every row, for as long as the process lives.
    pub async fn follows_rows(self) {
        let mut rows = self.host.rows();
        loop {
            match rows.recv().await {
                Ok(RowChange::Now(row)) if self.life.is_alive() => {
                    let found = self.life.world.ledger().row_shown(&row);
                    self.life.world.hold(found);
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }
}

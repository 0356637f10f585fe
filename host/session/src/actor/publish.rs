//! What an actor shows: the picture that others read without asking it.

use super::Actor;
use crate::handle::{Published, PublishedLoop};
use crate::requests::RowChange;
use harness_core::session::LoopState;
use std::sync::Arc;

impl Actor {
    /// Shows what others may read without asking, and tells list readers of a changed row.
    pub(super) fn publish(&mut self) {
        let before = self.published.load();
        let view = self.session.view();
        let changed = *before.view != view;
        let mut same = !changed;
        let mut loops = Vec::with_capacity(self.session.state.loops.len());
        for (at, of) in self.session.state.loops.values().enumerate() {
            let now = self.published_loop(of);
            match before.loops.get(at).filter(|shown| ***shown == now) {
                Some(shown) => loops.push(shown.clone()),
                None => {
                    same = false;
                    loops.push(Arc::new(now));
                }
            }
        }
        let state = &self.session.state;
        let active = loops.iter().find(|l| l.id == state.active_loop);
        let next = Published {
            view: if changed {
                Arc::new(view)
            } else {
                before.view.clone()
            },
            active: active.unwrap_or(&before.active).clone(),
            loops,
            settings_epoch: state.settings_epoch,
            run_id: state.run_id,
            faulted: self.session.live.faulted.is_some(),
            born: self.birth.is_none(),
        };
        let unchanged = same
            && Arc::ptr_eq(&before.active, &next.active)
            && before.born == next.born
            && before.run_id == next.run_id
            && before.settings_epoch == next.settings_epoch
            && before.faulted == next.faulted;
        if !unchanged {
            if changed && next.born {
                let _ = self.deps.rows.send(RowChange::Now(next.view.clone()));
            }
            self.published.store(Arc::new(next));
        }
        for (loop_id, seat) in &self.seats {
            let of = self.session.state.loops.get(loop_id);
            let first = of.and_then(|l| l.inbox.iter().find(|w| !w.held));
            let said = first.is_some_and(|w| !w.no_fold);
            let live = self.session.live.of(*loop_id);
            let waits = said || of.is_some_and(|l| live.next_notice(l).is_some());
            seat.input_waits
                .send_if_modified(|now| std::mem::replace(now, waits) != waits);
        }
    }

    fn published_loop(&self, of: &LoopState) -> PublishedLoop {
        let seat = self.seats.get(&of.id);
        let runtime = self.session.state.runtime_of(of);
        PublishedLoop {
            id: of.id,
            harness: of.harness.clone(),
            native_session_id: of.native_session_id.clone(),
            workspace: self.workspace_for(&of.harness),
            runtime,
            mode: of.mode.clone(),
            params: self.params_for(&of.harness),
            state_epoch: self.session.live.of(of.id).state_epoch,
            stopping: self.session.live.is_marked(of.id),
            instance: seat.and_then(|s| s.instance.live()),
        }
    }
}

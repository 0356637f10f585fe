//! A provider that lets others work for it.

use super::{HARNESSES, SimInstance};
use harness_core::content::Part;
use harness_core::ids::{CommandId, LoopId};
use harness_core::provider::{DelegateStart, DelegateTask, Delegation};
use std::sync::Arc;

/// Loops of a session beyond which no more are started.
const LOOPS: usize = 8;

impl SimInstance {
    /// One thing of a parent: a new child, another task, a wait, a request or a child given up.
    pub(super) async fn delegates(&self, authority: Option<Arc<dyn Delegation>>) {
        let (Some(of), Some(session)) = (authority, self.session()) else {
            return;
        };
        let world = &self.life().world;
        let (dice, calm) = (&world.dice, self.life().plan.calm);
        let children = of.list().await.unwrap_or_default();
        let child = dice.pick(&children);
        let open = child.and_then(|c| dice.pick(&c.open_requests)).copied();
        let room = world.ledger().loops(session).len() < LOOPS && !calm;
        match (dice.below(8), child, open) {
            (0..3, _, _) if room => self.starts_child(&of).await,
            (0..5, Some(child), _) if !calm => {
                let sent = of.send(child.loop_id, self.task()).await.ok();
                self.waits_for(&of, sent).await;
            }
            (5, _, Some(request)) => drop(of.cancel(request).await),
            (6, Some(child), _) => drop(of.stop(child.loop_id).await),
            (_, _, request) => self.waits_for(&of, request).await,
        }
    }

    async fn starts_child(&self, of: &Arc<dyn Delegation>) {
        let dice = &self.life().world.dice;
        let Some(harness) = dice.pick(&HARNESSES).and_then(|id| id.parse().ok()) else {
            return;
        };
        let started = of
            .start(DelegateStart {
                harness,
                model: dice.percent(20).then(|| "big".into()),
                mode: String::new(),
                task: self.task(),
            })
            .await;
        let started = started.ok().map(|s| (s.loop_id, s.request_id));
        let (child, request): (Option<LoopId>, Option<CommandId>) = started.unzip();
        if child.is_some() {
            self.life().world.note("a delegate began");
        }
        self.waits_for(of, request).await;
    }

    fn task(&self) -> DelegateTask {
        let dice = &self.life().world.dice;
        DelegateTask {
            parts: vec![Part::Text { text: self.text() }],
            background: dice.percent(50),
            fold: dice.percent(30),
        }
    }

    async fn waits_for(&self, of: &Arc<dyn Delegation>, request: Option<CommandId>) {
        let dice = &self.life().world.dice;
        if let Some(request) = request.filter(|_| dice.percent(50)) {
            let _ = of.await_result(request, dice.millis(60_000)).await;
        }
    }
}

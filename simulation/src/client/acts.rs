//! What a client can ask for.

use super::{Client, SESSIONS};
use harness_core::abort::{AbortHandle, AbortReason, AbortSignal};
use harness_core::gate::{Gate, GateAsk, GateReply};
use harness_core::ids::{CommandId, SessionId};
use harness_core::operation::Operation;
use harness_core::provider::{ParamValue, Params};
use harness_session::{
    Caller, CreateRequest, DraftRequest, First, GateAnswer, InputRequest, KeyState, LoopRequest,
    OperationRequest, SettingsRequest,
};

impl Client {
    pub(super) async fn act(&self) {
        let dice = &self.life.world.dice;
        let Some(id) = self.session() else {
            return self.create().await;
        };
        match dice.below(100) {
            0..4 => self.create().await,
            4..26 => self.submit(id).await,
            26..44 => self.operate(id).await,
            44..52 => self.stop(id).await,
            52..66 => self.answer(id).await,
            66..70 => self.retract(id).await,
            70..74 => self.release(id).await,
            74..77 => self.compact(id).await,
            77..80 => self.create_loop(id).await,
            80..84 => self.change_loop(id).await,
            84..87 => self.patch(id).await,
            87..89 => self.shut_down(id).await,
            89..92 => self.restore(id).await,
            92..95 => self.follow(id).await,
            95..98 => self.look(id).await,
            _ => self.read_state(id).await,
        }
    }

    fn operation(&self) -> Operation {
        let dice = &self.life.world.dice;
        let kind = ["/c", "/c", "/x", "/x", "/refused"];
        let kind = dice.pick(&kind).copied().unwrap_or("/c");
        let text = format!("{kind} {:x}", dice.below(u64::MAX));
        Operation::Command { text }
    }

    async fn create(&self) {
        let world = &self.life.world;
        let Some(agent) = self.harness() else { return };
        let Ok(project_id) = "default".parse() else {
            return;
        };
        if world.store.sessions().len() >= SESSIONS {
            return;
        }
        let first = if world.dice.percent(50) {
            First::Prompt(self.blocks())
        } else {
            First::Operation {
                operation: self.operation(),
                expected_revision: None,
            }
        };
        let request = CreateRequest {
            draft: DraftRequest {
                project_id,
                agent,
                workspace_id: None,
                model: None,
                params: Params::new(),
            },
            title: "A session".into(),
            first,
        };
        let (me, caller) = (self.clone(), self.caller());
        tokio::spawn(async move {
            let created = me.host.create(caller, request, AbortSignal::never()).await;
            me.told("create", &created);
            if let Ok(created) = &created {
                me.acknowledged(created.session.id, &Ok(created.command_id));
            }
        });
    }

    async fn submit(&self, id: SessionId) {
        let dice = &self.life.world.dice;
        let request = InputRequest {
            blocks: self.blocks(),
            loop_id: self.loop_or_none(id),
            no_fold: dice.percent(20),
            fold_only: dice.percent(10),
        };
        if request.no_fold && request.fold_only {
            return;
        }
        let caller = self.caller();
        let submitted = self.host.submit(id, caller.clone(), request.clone()).await;
        self.told("submit", &submitted);
        self.acknowledged(id, &submitted);
        if dice.percent(50) {
            self.submit_again(id, caller, request).await;
        }
    }

    /// A keyed request again, as the edge repeats it: what is known of it is not done twice.
    async fn submit_again(&self, id: SessionId, caller: Caller, request: InputRequest) {
        let Some(key) = caller.key else { return };
        let known = self.host.keyed(Some(id), key).await;
        self.told("a repeat", &known);
        if let Ok(KeyState::Fresh) = known {
            let submitted = self.host.submit(id, caller, request).await;
            self.told("submit again", &submitted);
            self.acknowledged(id, &submitted);
        }
    }

    async fn operate(&self, id: SessionId) {
        let dice = &self.life.world.dice;
        let expected_revision = match dice.below(4) {
            0 => self
                .host
                .command_state(id)
                .await
                .ok()
                .map(|s| s.view.revision.clone()),
            _ => None,
        };
        let request = OperationRequest {
            operation: self.operation(),
            harness_id: self.harness().filter(|_| dice.percent(10)),
            expected_revision,
        };
        let gone = AbortHandle::new();
        let (me, caller, signal) = (self.clone(), self.caller(), gone.signal());
        tokio::spawn(async move {
            let invoked = me.host.invoke(id, caller, request, signal).await;
            me.told("invoke", &invoked);
            if let Ok(result) = &invoked {
                me.acknowledged(id, &Ok(result.command_id));
            }
        });
        if dice.percent(15) {
            let patience = dice.pause();
            tokio::spawn(async move {
                tokio::time::sleep(patience).await;
                gone.abort(AbortReason::CallerGone);
            });
        }
    }

    async fn stop(&self, id: SessionId) {
        let (me, of) = (self.clone(), self.loop_or_none(id));
        tokio::spawn(async move {
            let stopped = me.host.interrupt(id, me.caller(), of).await;
            me.told("stop", &stopped);
        });
    }

    async fn answer(&self, id: SessionId) {
        let dice = &self.life.world.dice;
        let gates = self.host.gates(id).await.unwrap_or_default();
        let Some(gate) = dice.pick(&gates).map(|open| open.gate.clone()) else {
            return;
        };
        let twice = dice.percent(30);
        let first = self.reply_to(id, &gate);
        if twice {
            // Two people at once: one of them wins.
            tokio::join!(first, self.reply_to(id, &gate));
        } else {
            first.await;
        }
    }

    async fn reply_to(&self, id: SessionId, gate: &Gate) {
        let dice = &self.life.world.dice;
        let reply = match (&gate.ask, dice.below(8)) {
            (_, 0) => GateReply::Decline,
            (GateAsk::Permission(_), 1..4) => GateReply::ApproveOnce,
            (GateAsk::Permission(_), 4..6) => GateReply::ApproveAlways,
            (GateAsk::Permission(_), _) => GateReply::Deny(None),
            (GateAsk::AskUser(_), 1) => GateReply::ApproveOnce,
            (GateAsk::AskUser(_), _) => GateReply::Answer(vec![vec!["one".into()]]),
            // Nobody opens gates of the host here.
            (GateAsk::Form(_) | GateAsk::OpenUrl(_), _) => GateReply::Decline,
        };
        let gate_id = gate.gate_id;
        let answer = GateAnswer { gate_id, reply };
        let answered = self.host.answer(id, self.caller(), answer).await;
        self.told("answer", &answered);
        if answered.is_ok() && self.life.is_alive() {
            let found = self.life.world.ledger().answered(id, gate_id);
            self.life.world.hold(found);
        }
    }

    /// Answers every open gate, if it can.
    pub async fn answers_all(&self, id: SessionId) {
        for open in self.host.gates(id).await.unwrap_or_default() {
            let gate = open.gate;
            let reply = match gate.ask {
                GateAsk::Permission(_) => GateReply::ApproveOnce,
                GateAsk::AskUser(_) => GateReply::Answer(vec![vec!["one".into()]]),
                GateAsk::Form(_) | GateAsk::OpenUrl(_) => GateReply::Decline,
            };
            let gate_id = gate.gate_id;
            let answer = GateAnswer { gate_id, reply };
            let answered = self.host.answer(id, Caller::default(), answer).await;
            self.told("answer", &answered);
        }
    }

    fn an_input(&self, id: SessionId) -> Option<CommandId> {
        let inputs = self.life.world.ledger().inputs(id);
        self.life.world.dice.pick(&inputs).copied()
    }

    async fn retract(&self, id: SessionId) {
        let Some(target) = self.an_input(id) else {
            return;
        };
        let retracted = self.host.retract(id, self.caller(), target).await;
        self.told("retract", &retracted);
    }

    async fn release(&self, id: SessionId) {
        let dice = &self.life.world.dice;
        let targets = self.an_input(id).filter(|_| dice.percent(50));
        let targets = targets.into_iter().collect();
        let of = self.loop_or_none(id);
        let released = self.host.release(id, self.caller(), of, targets).await;
        self.told("release", &released);
    }

    async fn compact(&self, id: SessionId) {
        let of = self.loop_or_none(id);
        let compacted = self.host.compact(id, self.caller(), of).await;
        self.told("compact", &compacted);
        self.acknowledged(id, &compacted);
    }

    async fn create_loop(&self, id: SessionId) {
        let world = &self.life.world;
        let Some(agent) = self.harness() else { return };
        if world.ledger().loops(id).len() >= 4 {
            return;
        }
        let request = LoopRequest {
            agent,
            model: world.dice.percent(30).then(|| "big".into()),
            mode: world.dice.percent(30).then(|| "plan".into()),
        };
        let created = self.host.create_loop(id, self.caller(), request).await;
        self.told("create loop", &created);
    }

    async fn change_loop(&self, id: SessionId) {
        let dice = &self.life.world.dice;
        let Some(of) = self.any_loop(id) else { return };
        let caller = self.caller();
        match dice.below(3) {
            0 => self.told("activate", &self.host.activate_loop(id, caller, of).await),
            1 => {
                let modes = ["", "plan", "build", "none"];
                let mode = dice.pick(&modes).copied().unwrap_or_default().to_owned();
                self.told("mode", &self.host.set_loop_mode(id, caller, of, mode).await);
            }
            _ => {
                let model = dice.percent(50).then(|| "big".to_owned());
                let effort = dice.percent(50).then(|| "low".to_owned());
                let changed = self
                    .host
                    .change_inference(id, caller, of, model, effort)
                    .await;
                self.told("inference", &changed);
            }
        }
    }

    async fn patch(&self, id: SessionId) {
        let dice = &self.life.world.dice;
        let plan = ParamValue::Boolean(dice.percent(50));
        let request = SettingsRequest {
            title: dice.percent(30).then(|| "Another".into()),
            model: None,
            params: dice
                .percent(50)
                .then(|| Params::from([("plan".into(), plan)])),
            agent: self.harness().filter(|_| dice.percent(40)),
        };
        let patched = self.host.patch(id, self.caller(), request).await;
        self.told("patch", &patched);
    }

    async fn shut_down(&self, id: SessionId) {
        let me = self.clone();
        tokio::spawn(async move {
            let stopped = me.host.shutdown_session(id, me.caller()).await;
            me.told("shut down", &stopped);
        });
    }

    async fn restore(&self, id: SessionId) {
        let restored = self.host.restore(id, self.caller()).await;
        self.told("restore", &restored);
    }

    async fn read_state(&self, id: SessionId) {
        let read = self.host.command_state(id).await;
        self.told("command state", &read);
    }
}

//! The loop on the in-memory host.

use super::*;
use crate::connection::transport::HostClock;
use crate::testing::{Host, run_until_stalled};
use crate::turns::TurnRouter;
use crate::types::{
    ApprovalDecision, ApprovalRequest, Features, HarnessInfo, MessagePart, TimeoutStrategy,
    WorkspaceNeed,
};
use crate::{Channel, Provider};
use std::cell::RefCell;
use std::time::Duration;

/// What the scripted native side says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Text(&'static str),
    Ask(&'static str),
    Fail,
    End,
}

impl NativeEvent for Event {
    fn merge(&mut self, next: Self) -> Result<(), Self> {
        Err(next)
    }
    fn weight(&self) -> usize {
        1
    }
}

thread_local! {
    static ROUTER: TurnRouter<Event> = TurnRouter::default();
    static POLICY: RefCell<Policy> = RefCell::new(Policy::default());
    static LOG: Shared<Vec<String>> = Shared::default();
}

fn log(line: impl Into<String>) {
    LOG.with(|log| log.with(|log| log.push(line.into())));
}

fn logged() -> Vec<String> {
    LOG.with(Shared::get)
}

fn say(event: Event) {
    ROUTER.with(|router| router.route("k", event));
    run_until_stalled();
}

#[derive(Default)]
struct Driven;

struct Handler(Channel);

impl TurnHandler<Event> for Handler {
    type Answer = Result<ApprovalDecision, ChannelError>;

    async fn event(&self, event: Event, gates: &Gates<Self::Answer>) -> Result<Flow, Error> {
        match event {
            Event::Text(text) => self.0.say(text).await?,
            Event::Ask(id) => {
                let channel = self.0.clone();
                let request = ApprovalRequest {
                    tool_use_id: id.into(),
                    tool_name: "tool".into(),
                    input_json: "{}".into(),
                    title: id.into(),
                    rules: Vec::new(),
                };
                gates.open(async move { channel.request_approval(request).await });
            }
            Event::Fail => return Err(Error::Native("broken".into())),
            Event::End => return Ok(Flow::End(Ok(none()))),
        }
        Ok(Flow::Continue)
    }

    async fn answered(&self, answer: Self::Answer) -> Result<(), Error> {
        log(format!("answered {:?}", answer?));
        Ok(())
    }

    async fn interrupt(&self) {
        log("interrupt");
    }

    fn ignored(&self, event: Event) -> Flow {
        log(format!("ignored {event:?}"));
        match event {
            Event::End => Flow::End(Ok(none())),
            _ => Flow::Continue,
        }
    }

    fn force(&self) {
        log("force");
    }

    async fn inputs(&self, inputs: Vec<Input>) -> Result<(), Error> {
        for input in inputs {
            log(format!("input {:?}", input.parts));
        }
        Ok(())
    }
}

impl Provider for Driven {
    type Control = ();
    type Exclusive = ();
    type Turn = TurnEvents<Event>;

    fn describe() -> HarnessInfo {
        HarnessInfo {
            id: "test/driven".into(),
            label: "driven".into(),
            version: "0".into(),
            models: Vec::new(),
            loop_modes: Vec::new(),
            params: Vec::new(),
            workspace: WorkspaceNeed::None,
            timeout: TimeoutStrategy::Activity,
            features: Features::FOLDING,
        }
    }

    async fn start_prompt(&self, _: Input, _: Channel) -> Result<Self::Turn, Error> {
        ROUTER.with(|router| {
            router.learn("k");
            router
                .claim("k")
                .ok_or_else(|| Error::NotAllowed("taken".into()))
        })
    }

    async fn done(&self, turn: Self::Turn, channel: Channel) -> Result<Outcome, Error> {
        let policy = POLICY.with_borrow(Clone::clone);
        drive(
            &channel,
            &turn,
            &Handler(channel.clone()),
            &policy,
            &HostClock,
        )
        .await
    }
}

fn none() -> Outcome {
    Outcome {
        message: None,
        params: Vec::new(),
    }
}

fn started(policy: Policy) -> (Host<Driven>, crate::testing::Turn) {
    POLICY.set(policy);
    let host = Host::<Driven>::start();
    let turn = host.prompt("go").expect("a turn");
    run_until_stalled();
    (host, turn)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn n14_an_abort_interrupts_and_awaits_the_native_end() {
    let (host, turn) = started(Policy::default());
    say(Event::Text("before"));
    host.stop();
    host.advance(ms(1_000));
    assert_eq!(host.ended(&turn), None, "the native turn still runs");
    say(Event::Text("after"));
    say(Event::End);
    assert_eq!(host.ended(&turn), Some(Err(Error::Cancelled)));
    assert_eq!(host.transcript(), ["before"]);
    assert_eq!(
        logged(),
        ["interrupt", "ignored Text(\"after\")", "ignored End"]
    );
}

#[test]
fn a_native_side_that_ignores_the_interrupt_is_forced_within_the_drain_bound() {
    let (host, turn) = started(Policy::default());
    host.stop();
    host.advance(ms(4_500));
    assert_eq!(host.ended(&turn), Some(Err(Error::Cancelled)));
    assert_eq!(logged(), ["interrupt", "force"]);
}

#[test]
fn n17_an_abort_withdraws_open_gates() {
    let (host, turn) = started(Policy::default());
    say(Event::Ask("a"));
    say(Event::Ask("b"));
    assert_eq!(host.gates().len(), 2);
    host.stop();
    assert!(host.gates().is_empty());
    say(Event::End);
    assert_eq!(host.ended(&turn), Some(Err(Error::Cancelled)));
}

#[test]
fn gates_are_answered_while_events_stream() {
    let (host, turn) = started(Policy::default());
    say(Event::Ask("a"));
    say(Event::Text("meanwhile"));
    host.decide("a", ApprovalDecision::ApproveOnce);
    say(Event::End);
    assert_eq!(host.ended(&turn), Some(Ok(none())));
    assert_eq!(host.transcript(), ["meanwhile"]);
    assert_eq!(logged(), ["answered ApprovalDecision::ApproveOnce"]);
}

#[test]
fn an_error_in_the_handler_interrupts_natively_before_it_is_returned() {
    let (host, turn) = started(Policy::default());
    say(Event::Fail);
    assert_eq!(host.ended(&turn), None);
    assert_eq!(logged(), ["interrupt"]);
    say(Event::End);
    assert_eq!(host.ended(&turn), Some(Err(Error::Native("broken".into()))));
}

#[test]
fn a_lost_native_side_disconnects_or_completes_what_had_ended() {
    let (host, turn) = started(Policy::default());
    say(Event::Text("x"));
    ROUTER.with(|router| router.lose("gone"));
    assert_eq!(host.finish(turn), Err(Error::Disconnected("gone".into())));
    let policy = Policy {
        linger_ms: Some(1_000),
        ..Policy::default()
    };
    ROUTER.with(TurnRouter::reset);
    let (host, turn) = started(policy);
    say(Event::End);
    ROUTER.with(|router| router.lose("gone"));
    assert_eq!(host.finish(turn), Ok(none()));
}

#[test]
fn a_turn_without_boundaries_ends_by_quiet_but_not_with_an_open_gate() {
    let policy = Policy {
        quiet_ms: Some(1_000),
        ..Policy::default()
    };
    let (host, turn) = started(policy);
    for _ in 0..5 {
        say(Event::Text("busy"));
        host.advance(ms(800));
        assert_eq!(host.ended(&turn), None);
    }
    say(Event::Ask("a"));
    host.advance(ms(60_000));
    assert_eq!(host.ended(&turn), None, "a person is asked");
    host.decide("a", ApprovalDecision::Deny(None));
    host.advance(ms(2_000));
    assert_eq!(host.ended(&turn), Some(Ok(none())));
}

#[test]
fn a_turn_without_boundaries_stops_by_quiet_too() {
    let policy = Policy {
        quiet_ms: Some(500),
        ..Policy::default()
    };
    let (host, turn) = started(policy);
    say(Event::Text("busy"));
    host.stop();
    host.advance(ms(1_000));
    assert_eq!(host.ended(&turn), Some(Err(Error::Cancelled)));
    assert_eq!(logged(), ["interrupt"], "there is no turn to be forced");
}

#[test]
fn what_comes_shortly_after_the_end_belongs_to_the_turn() {
    let policy = Policy {
        linger_ms: Some(100),
        ..Policy::default()
    };
    let (host, turn) = started(policy);
    say(Event::End);
    host.advance(ms(50));
    say(Event::Text("late"));
    say(Event::End);
    host.advance(ms(300));
    assert_eq!(host.ended(&turn), Some(Ok(none())));
    assert_eq!(host.transcript(), ["late"]);
}

#[test]
fn n16_folded_inputs_reach_the_handler() {
    let policy = Policy {
        folding: true,
        ..Policy::default()
    };
    let (host, turn) = started(policy);
    host.offer_input("one");
    say(Event::Text("between"));
    host.offer_input("two");
    say(Event::End);
    assert_eq!(host.ended(&turn), Some(Ok(none())));
    let text = |text: &str| format!("input {:?}", [MessagePart::Text(text.into())]);
    assert_eq!(logged(), [text("one"), text("two")]);
}

//! What the crate promises about calls, against the in-memory host.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // a failed test

use futures::FutureExt;
use harness_guest::prelude::*;
use harness_guest::task::sleep;
use harness_guest::testing::{Host, now};
use std::time::Duration;

/// Does what its prompts and commands say.
#[derive(Default)]
struct Scripted {
    link: Shared<Option<Link>>,
    open: Shared<Vec<Activity>>,
}

const HOUR: Duration = Duration::from_secs(3_600);

impl Provider for Scripted {
    type Control = String;
    type Exclusive = String;
    type Turn = String;

    fn describe() -> HarnessInfo {
        HarnessInfo {
            features: Features::COMMANDS | Features::NATIVE_TURNS,
            ..HarnessInfo::new("test/scripted", "Scripted", "0")
        }
    }

    async fn run(&self, link: Link) -> Result<(), Error> {
        self.link.replace(Some(link));
        Ok(())
    }

    async fn prepare(
        &self,
        _: Preparation,
        operation: Operation,
    ) -> Result<Prepared<String, String>, Error> {
        let Operation::Command(text) = operation else {
            return Err(Error::Unsupported("no actions".to_owned()));
        };
        match text.as_str() {
            "cancelled" => Err(Error::Cancelled),
            "long" => Err(Error::InvalidOperation("ä".repeat(10_000))),
            _ if text.starts_with('!') => Ok(Prepared::Exclusive(text)),
            _ => Ok(Prepared::Control(text)),
        }
    }

    async fn control(&self, text: String, channel: Channel) -> Result<Outcome, Error> {
        match text.as_str() {
            "sleep" => sleep(HOUR).await,
            "cancelled control" => return Err(Error::Cancelled),
            "activities" => {
                let link = self.link.get().unwrap();
                let limit = loop {
                    match link.begin_activity("one of many") {
                        Ok(activity) => self.open.with(|open| open.push(activity)),
                        Err(error) => break error,
                    }
                };
                let open = self.open.with(|open| open.len());
                return Ok(Outcome::reply(format!("{open} {limit:?}")));
            }
            "announce" => {
                let link = self.link.get().unwrap();
                let turn = NativeTurn {
                    id: "native-1".to_owned(),
                    start: TurnStart::Running,
                    reason: "test".to_owned(),
                    cause: None,
                };
                // Detached: a control must not wait for a turn that waits for it.
                harness_guest::task::spawn(async move {
                    drop(link.announce_turn(turn).await);
                });
            }
            _ => {}
        }
        Ok(Outcome::reply(channel.command_id()))
    }

    async fn exclusive(&self, _: String, _: Channel) -> Result<Invocation<String>, Error> {
        Ok(Invocation::started("exclusive".to_owned()))
    }

    async fn start_prompt(&self, input: Input, _: Channel) -> Result<String, Error> {
        Ok(harness_guest::input_text(&input.parts))
    }

    async fn adopt_turn(&self, id: String, _: Channel) -> Result<String, Error> {
        Ok(id)
    }

    async fn done(&self, turn: String, channel: Channel) -> Result<Outcome, Error> {
        match turn.as_str() {
            "sleep" => sleep(HOUR).await,
            "held" => {
                // A native side that takes a second to end an interrupted turn.
                let _native = channel.hold();
                channel.abort().wait().await;
                sleep(Duration::from_secs(1)).await;
                return Ok(Outcome::reply("ended natively"));
            }
            "cancelled" => return Err(Error::Cancelled),
            "fold" => {
                assert!(channel.input_ready().await?);
                // Dropped with the inputs on their way.
                assert!(channel.take_input().now_or_never().is_none());
                let inputs = channel.take_input().await?;
                assert!(channel.take_input().await?.is_empty());
                return Ok(Outcome::reply(inputs.len().to_string()));
            }
            _ => {}
        }
        channel.say(turn).await?;
        Ok(Outcome::default())
    }
}

#[test]
fn a_call_that_ignores_its_abort_is_dropped_as_cancelled() {
    let host = Host::<Scripted>::start();
    let turn = host.prompt("sleep").unwrap();
    host.advance(Duration::from_secs(1));
    assert!(host.stop());
    assert_eq!(host.ended(&turn), Some(Err(Error::Cancelled)));
    assert_eq!(now(), Duration::from_secs(1));
}

#[test]
fn n14_a_held_call_ends_with_its_native_turn() {
    let host = Host::<Scripted>::start();
    let turn = host.prompt("held").unwrap();
    host.advance(Duration::from_secs(1));
    host.stop();
    assert_eq!(host.ended(&turn), None);
    let outcome = host.finish(turn).unwrap();
    assert_eq!(outcome.message.as_deref(), Some("ended natively"));
    assert_eq!(now(), Duration::from_secs(2));
}

#[test]
fn w4_cancelled_without_an_abort_leaves_only_from_done() {
    let host = Host::<Scripted>::start();
    assert!(matches!(host.command("cancelled"), Err(Error::Native(_))));
    assert!(matches!(
        host.command("cancelled control"),
        Err(Error::Native(_))
    ));
    let turn = host.prompt("cancelled").unwrap();
    assert_eq!(host.finish(turn), Err(Error::Cancelled));
}

#[test]
fn w3_refusals_are_shortened_to_their_bound() {
    let host = Host::<Scripted>::start();
    let Err(Error::InvalidOperation(text)) = host.command("long") else {
        panic!("refused");
    };
    assert!(text.len() <= harness_guest::limits::REFUSAL_BYTES);
    assert!(text.ends_with('…'));
}

#[test]
fn n16_inputs_survive_a_dropped_take() {
    let host = Host::<Scripted>::start();
    let turn = host.prompt("fold").unwrap();
    host.offer_input("one");
    let outcome = host.finish(turn).unwrap();
    assert_eq!(outcome.message.as_deref(), Some("1"));
}

#[test]
fn n5_activities_have_a_bound_and_a_stop_reaches_them() {
    let host = Host::<Scripted>::start();
    let reply = host.command("activities").unwrap().completed();
    let reply = reply.message.unwrap();
    assert!(reply.starts_with("8 ChannelError::Limit"), "{reply}");
    assert_eq!(host.activities().len(), 8);
    assert!(host.stop());
}

#[test]
fn r60_r62_an_exclusive_waits_for_nobody_and_a_control_for_nothing() {
    let host = Host::<Scripted>::start();
    let turn = host.prompt("sleep").unwrap();
    assert!(host.command("!x").is_err());
    host.command("x").unwrap();
    assert_eq!(host.ended(&turn), None);
}

#[test]
fn n9_an_announced_turn_is_adopted_and_seen_to_its_end() {
    let host = Host::<Scripted>::start();
    host.command("announce").unwrap();
    host.advance(Duration::from_millis(1));
    assert_eq!(host.native_turns()[0].answer, Ok(()));
    assert_eq!(host.transcript(), ["native-1"]);
    assert!(!host.turn_live());
}

#[test]
fn n6_a_running_announcement_during_a_turn_is_busy() {
    let host = Host::<Scripted>::start();
    let turn = host.prompt("sleep").unwrap();
    host.command("announce").unwrap();
    host.advance(Duration::from_millis(1));
    assert_eq!(host.native_turns()[0].answer, Err(ChannelError::Busy));
    assert_eq!(host.ended(&turn), None);
}

#[test]
fn n12_after_a_stop_announcements_are_refused_until_a_person_begins_something() {
    let host = Host::<Scripted>::start();
    let turn = host.prompt("sleep").unwrap();
    host.stop();
    assert!(host.ended(&turn).is_some());
    assert!(!host.turn_live());
    host.command("announce").unwrap();
    host.advance(Duration::from_millis(1));
    assert_eq!(host.native_turns().len(), 1);
    assert_eq!(host.native_turns()[0].answer, Ok(()));
}

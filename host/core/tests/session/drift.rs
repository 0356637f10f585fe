//! The configuration that a session remembers, and what a restore makes of another one (§6.1, I39).

use crate::support::{LOOP, Sim, code, restore_of};
use harness_core::configuration::{Configuration, HarnessConfiguration};
use harness_core::event::{EventBody, Failure};
use harness_core::ids::HarnessId;
use harness_core::provider::Outcome;
use harness_core::refusal::Refused;
use harness_core::session::{Answer, Input, Record};
use harness_core::view::Status;

fn id(name: &str) -> HarnessId {
    name.parse().unwrap()
}

fn harness(declares: &str, version: &str) -> HarnessConfiguration {
    HarnessConfiguration {
        declares: id(declares),
        version: version.into(),
        contract: Some("0.1.0".into()),
        loop_modes: vec!["review".into()],
    }
}

fn configuration(root: &str, version: &str) -> Configuration {
    Configuration {
        workspace_root: Some(root.into()),
        harnesses: [(id("demo/planner"), harness("demo/planner", version))].into(),
    }
}

/// A session that was begun under a configuration.
fn configured() -> Sim {
    let mut sim = Sim::new();
    let Some(Record::Event(begin)) = sim.journal.first_mut() else {
        panic!("a journal begins with an event");
    };
    let EventBody::SessionStarted {
        configuration: known,
        ..
    } = &mut begin.body
    else {
        panic!("a journal begins with SessionStarted");
    };
    *known = Some(configuration("/work", "1"));
    sim.session = restore_of(&sim.journal);
    sim.ledger = crate::support::Ledger::new(&sim.journal);
    sim
}

/// The process is lost and another comes up with this configuration.
fn restarted(sim: &mut Sim, now: Configuration) -> Vec<&'static str> {
    let mark = sim.mark();
    sim.free = 1;
    sim.session = restore_of(&sim.journal);
    sim.feed(Input::Restore {
        lost: Vec::new(),
        now: Some(Box::new(now)),
    });
    sim.names_since(mark)
}

#[test]
fn i39_a_settled_session_with_the_same_configuration_writes_nothing() {
    let mut sim = configured();
    assert!(restarted(&mut sim, configuration("/work", "1")).is_empty());
    let nothing = Configuration::default();
    assert!(restarted(&mut sim, nothing).is_empty(), "nothing is known");
}

#[test]
fn i39_another_configuration_is_adopted_before_the_repairs() {
    let mut sim = configured();
    let (_, runner) = sim.running();
    sim.ask(runner, crate::support::form());
    let now = configuration("/work", "2");
    assert!(sim.session.state.drift(&now).is_empty());
    assert_eq!(
        restarted(&mut sim, now.clone())[..3],
        ["RestoreStarted", "ConfigurationAdopted", "GateResolved"]
    );
    let EventBody::ConfigurationAdopted {
        epoch,
        configuration,
        ..
    } = sim.last("ConfigurationAdopted")
    else {
        panic!("it is adopted");
    };
    assert_eq!((*epoch, configuration.as_ref()), (1, Some(&now)));
    assert!(restarted(&mut sim, now).is_empty(), "once");
    let names = restarted(&mut sim, self::configuration("/work", "3"));
    assert_eq!(
        names,
        ["RestoreStarted", "ConfigurationAdopted", "RestoreDone"]
    );
    assert_eq!(sim.session.state.config_epoch, 2, "the epoch counts up");
}

#[test]
fn i39_a_journal_without_a_configuration_adopts_one() {
    let mut sim = Sim::new();
    let now = configuration("/work", "1");
    assert!(
        sim.session.state.drift(&now).is_empty(),
        "nothing to drift from"
    );
    assert_eq!(
        restarted(&mut sim, now.clone()),
        ["RestoreStarted", "ConfigurationAdopted", "RestoreDone"]
    );
    assert_eq!(sim.session.state.configuration, Some(now));
}

#[test]
fn i39_an_adoption_that_is_cut_is_the_same_when_it_is_tried_again() {
    let mut sim = configured();
    sim.running();
    sim.session = restore_of(&sim.journal);
    let now = || Some(Box::new(configuration("/work", "2")));
    let ids = |sim: &mut Sim| {
        let decision = sim.decide(Input::Restore {
            lost: Vec::new(),
            now: now(),
        });
        decision.records.iter().map(Record::key).collect::<Vec<_>>()
    };
    assert_eq!(ids(&mut sim), ids(&mut sim));
}

#[test]
fn i39_a_swap_and_a_loop_on_another_harness_adopt_it() {
    let mut sim = configured();
    for (name, version) in [("demo/planner", "1"), ("demo/other", "7")] {
        sim.configurations.insert(id(name), harness(name, version));
    }
    let mark = sim.mark();
    sim.create_loop(None);
    assert_eq!(sim.names_since(mark), ["LoopStarted"], "known already");
    let mark = sim.mark();
    let loop_id = harness_core::ids::LoopId(uuid::Uuid::from_u128(0xabc));
    let created = sim.feed(Input::CreateLoop {
        loop_id,
        harness_id: id("demo/other"),
        model: None,
        mode: String::new(),
    });
    assert_eq!(created, Answer::Accepted);
    assert_eq!(
        sim.names_since(mark),
        ["LoopStarted", "ConfigurationAdopted"]
    );
    let known = sim.session.state.configuration.clone().unwrap();
    assert_eq!(known.harnesses[&id("demo/other")].version, "7");
    assert_eq!(known.workspace_root.as_deref(), Some("/work"));
    // From then on another harness of that id is a drift.
    let mut now = known.clone();
    now.harnesses
        .insert(id("demo/other"), harness("else/where", "7"));
    assert_eq!(sim.session.state.drift(&now).0.len(), 1);
    sim.configurations
        .insert(id("demo/third"), harness("demo/third", "1"));
    sim.set(None, None, Some("demo/third"));
    let known = sim.session.state.configuration.clone().unwrap();
    assert!(known.harnesses.contains_key(&id("demo/third")));
}

#[test]
fn i39_a_stopped_session_adopts_when_it_is_restored_not_when_it_is_read() {
    let mut sim = configured();
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin));
    assert_eq!(sim.status(), Status::Stopped);
    assert!(restarted(&mut sim, configuration("/work", "2")).is_empty());
    assert_eq!(sim.status(), Status::Stopped, "reading restores nothing");
    // A drift that nobody accepted is not adopted on the way.
    let mark = sim.mark();
    let drifted = Some(Box::new(configuration("/else", "2")));
    assert_eq!(sim.feed(Input::Reopen(drifted)), Answer::Accepted);
    assert_eq!(sim.names_since(mark), ["RestoreStarted", "RestoreDone"]);
    let origin = sim.origin();
    sim.feed(Input::Shutdown(origin));
    let mark = sim.mark();
    let now = Some(Box::new(configuration("/work", "2")));
    assert_eq!(sim.feed(Input::Reopen(now)), Answer::Accepted);
    assert_eq!(
        sim.names_since(mark),
        ["RestoreStarted", "ConfigurationAdopted", "RestoreDone"]
    );
}

#[test]
fn i39_a_failed_restore_shows_in_the_row_until_one_succeeds() {
    let mut sim = configured();
    let (_, runner) = sim.running();
    sim.done(runner, Ok(Outcome::default()));
    let status = sim.status();
    let error = Failure {
        code: "restore_failed".into(),
        message: "the workspace is somewhere else".into(),
    };
    let record = Record::Event(harness_core::event::Event {
        id: harness_core::ids::EventId(uuid::Uuid::from_u128(0xe)),
        session_id: sim.session.state.id,
        loop_id: harness_core::ids::LoopId::ZERO,
        turn_id: harness_core::ids::TurnId::ZERO,
        at: sim.now,
        cause: Default::default(),
        body: EventBody::RestoreErrored { error },
    });
    sim.journal.push(record);
    sim.session = restore_of(&sim.journal);
    sim.ledger = crate::support::Ledger::new(&sim.journal);
    let row = sim.session.view();
    assert_eq!(row.error.unwrap().code, "restore_failed");
    assert_eq!(row.status, status, "how its last unit ended stays");
    sim.feed(Input::Restore {
        lost: Vec::new(),
        now: Some(Box::new(configuration("/work", "2"))),
    });
    assert_eq!(sim.session.view().error, None);
}

#[test]
fn s66_a_session_that_was_taken_over_says_by_whom_and_writes_nothing() {
    let mut sim = configured();
    let (_, runner) = sim.running();
    let holder = "process 7 on elsewhere holds it";
    let mark = sim.mark();
    sim.feed(Input::LeaseLost(holder.into()));
    assert!(sim.is_aborted(runner));
    let row = sim.session.view().error.unwrap();
    assert_eq!(row.code, "session_faulted");
    assert!(row.message.contains(holder), "{}", row.message);
    let (_, refused) = sim.submit("more");
    assert_eq!(code(&refused), "session_faulted");
    let Answer::Refused(refused) = refused else {
        panic!("it is refused");
    };
    assert!(matches!(*refused, Refused::SessionTakenOver { .. }));
    sim.done(runner, crate::support::stopped());
    assert!(sim.names_since(mark).is_empty());
    assert!(
        sim.session.live.of(LOOP).owner.is_none(),
        "the run is freed"
    );
}

//! Random interleavings over many sessions, with reopenings in between, against a model that is
//! nothing but a list of keys a session.

use crate::support::Directory;
use harness_journal::conformance::{
    Backend, Store, append, creation, event, records, row, session,
};
use harness_journal::{Epoch, JournalError};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Step {
    /// Appends records of these keys (with these texts) under the lease of the session.
    Append {
        session: u64,
        records: Vec<(u8, u8)>,
    },
    /// Appends under an epoch that is not the session's.
    Stale { session: u64 },
    /// Opens the session.
    Open { session: u64 },
    /// Removes it.
    Delete { session: u64 },
    /// Ends the process and starts another.
    Restart,
    /// Several appends at once, one a session.
    Together { sessions: Vec<u64>, key: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let session = 0u64..5;
    prop_oneof![
        8 => (session.clone(), prop::collection::vec((0u8..12, 0u8..2), 1..4))
            .prop_map(|(session, records)| Step::Append { session, records }),
        1 => session.clone().prop_map(|session| Step::Stale { session }),
        2 => session.clone().prop_map(|session| Step::Open { session }),
        1 => session.clone().prop_map(|session| Step::Delete { session }),
        1 => Just(Step::Restart),
        3 => (prop::collection::vec(session, 1..6), 12u8..200)
            .prop_map(|(sessions, key)| Step::Together { sessions, key }),
    ]
}

/// What a session should hold.
#[derive(Debug, Clone, Default)]
struct Model {
    epoch: u64,
    held: bool,
    /// Keys and texts in order; a fence has text 0.
    records: Vec<(String, u8)>,
}

impl Model {
    /// The records after an append, or `None` for a collision.
    fn appended(&self, new: &[(u8, u8)]) -> Option<Vec<(String, u8)>> {
        let mut records = self.records.clone();
        for (key, text) in new {
            let key = key.to_string();
            match records.iter().find(|(stored, _)| *stored == key) {
                Some((_, stored)) if stored != text => return None,
                Some(_) => {}
                None => records.push((key, *text)),
            }
        }
        Some(records)
    }
}

struct World {
    directory: Directory,
    store: Arc<dyn Store>,
    models: BTreeMap<u64, Model>,
}

impl World {
    async fn run(&mut self, step: Step) {
        match step {
            Step::Append {
                session: n,
                records,
            } => self.append(n, &records).await,
            Step::Stale { session: n } => {
                let Some(model) = self.models.get(&n) else {
                    return;
                };
                let stale = append(session(n), Epoch(model.epoch + 1), vec![event("x", "x")]);
                let answer = self.store.append(stale).await;
                assert!(
                    matches!(answer, Err(JournalError::LeaseLost { .. })),
                    "{answer:?}"
                );
            }
            Step::Open { session: n } => {
                let answer = self.store.open(session(n), 1).await;
                match self.models.get_mut(&n) {
                    None => assert_eq!(answer, Err(JournalError::NotFound { what: "session" })),
                    Some(model) => {
                        model.epoch += 1;
                        model.held = true;
                        model.records.push((format!("fence:{}", model.epoch), 0));
                        let lease = answer.unwrap();
                        assert_eq!(lease.epoch, Epoch(model.epoch));
                        assert_eq!(lease.fence_seq, model.records.len() as u64);
                    }
                }
            }
            Step::Delete { session: n } => {
                let answer = harness_journal::Journal::delete(&*self.store, session(n)).await;
                assert_eq!(answer.is_ok(), self.models.remove(&n).is_some());
            }
            Step::Restart => {
                self.store = self.directory.reopen(Arc::clone(&self.store)).await;
                self.models
                    .values_mut()
                    .for_each(|model| model.held = false);
            }
            Step::Together { mut sessions, key } => {
                sessions.sort_unstable();
                sessions.dedup();
                let all = sessions
                    .iter()
                    .filter_map(|n| Some((*n, self.models.get(n)?.clone())));
                let all: Vec<_> = all.filter(|(_, model)| model.held).collect();
                let writes = all.iter().map(|(n, model)| {
                    let record = event(&key.to_string(), "1");
                    self.store
                        .append(append(session(*n), Epoch(model.epoch), vec![record]))
                });
                for (answer, (n, model)) in futures::future::join_all(writes)
                    .await
                    .into_iter()
                    .zip(&all)
                {
                    answer.unwrap();
                    let records = model.appended(&[(key, 1)]).unwrap();
                    self.models.get_mut(n).unwrap().records = records;
                }
            }
        }
    }

    async fn append(&mut self, n: u64, new: &[(u8, u8)]) {
        let records: Vec<_> = new
            .iter()
            .map(|(key, text)| event(&key.to_string(), &text.to_string()))
            .collect();
        let Some(model) = self.models.get_mut(&n) else {
            self.store.append(creation(session(n), 1)).await.unwrap();
            let records = vec![("fence:1".to_owned(), 0), ("first".to_owned(), 0)];
            self.models.insert(
                n,
                Model {
                    epoch: 1,
                    held: true,
                    records,
                },
            );
            return;
        };
        let mut write = append(session(n), Epoch(model.epoch), records);
        write.projection = Some(row("default", "completed", model.records.len() as i64));
        let answer = self.store.append(write).await;
        match (model.held, model.appended(new)) {
            (false, _) => assert_eq!(answer, Err(JournalError::LeaseLost { holder: None })),
            (true, None) => assert!(matches!(answer, Err(JournalError::Collision { .. }))),
            (true, Some(records)) => {
                let appended = answer.unwrap();
                for (place, (key, _)) in appended.records.iter().zip(new) {
                    let at = records
                        .iter()
                        .position(|(stored, _)| *stored == key.to_string());
                    assert_eq!(place.seq, at.unwrap() as u64 + 1);
                }
                assert_eq!(appended.next_seq, records.len() as u64 + 1);
                model.records = records;
            }
        }
    }

    async fn check(&self) {
        for n in 0..5 {
            let Some(model) = self.models.get(&n) else {
                assert!(self.store.projection(session(n)).await.unwrap().is_none());
                continue;
            };
            let stored = records(&*self.store, session(n), 3).await;
            let keys: Vec<_> = stored.iter().map(|record| record.key.clone()).collect();
            let expected: Vec<_> = model.records.iter().map(|(key, _)| key.clone()).collect();
            assert_eq!(keys, expected, "session {n}");
            let gap_free = stored
                .iter()
                .zip(1..)
                .all(|(record, seq)| record.seq == seq);
            assert!(gap_free, "session {n}: {stored:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn s65_random_interleavings_keep_order_without_gaps(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        runtime.block_on(async {
            let directory = Directory::new();
            let store = directory.open().await;
            let mut world = World { directory, store, models: BTreeMap::new() };
            for step in steps {
                world.run(step).await;
            }
            world.check().await;
            world.run(Step::Restart).await;
            world.check().await;
        });
    }
}

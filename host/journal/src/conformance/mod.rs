//! What every backend must do. A backend's tests call [`crate::conformance!`] with an expression
//! that makes a [`Backend`]; each case becomes a test of its own, on a store of its own.
//!
//! Only what the port promises is tested here: files, locks and crashes of one backend are in its
//! own tests.

// Test code: a panic here is a failed test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![allow(missing_docs)]

pub mod answers;
pub mod appending;
pub mod catalog;
pub mod leases;
pub mod sessions;
pub mod state;

use crate::{
    Append, BoxFuture, Catalog, Epoch, Journal, JournalError, NewRecord, NewSession, Projection,
    Record, RecordKind,
};
use bytes::Bytes;
use harness_core::ids::{SessionId, TokenId};
use harness_core::state_store::StateStore;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use uuid::Uuid;

/// Everything a backend is.
pub trait Store: Journal + Catalog + StateStore {}
impl<T: Journal + Catalog + StateStore> Store for T {}

/// Where stores come from.
pub trait Backend: Send + Sync {
    /// Opens the store, an empty one the first time.
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>>;
    /// Ends the process that has it open and opens it again with what was durable.
    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<'_, Arc<dyn Store>>;
}

/// Makes a test of each case. The expression is evaluated once a test.
#[macro_export]
macro_rules! conformance {
    ($backend:expr) => {
        $crate::conformance!(@cases $backend;
            appending: s65_sequence_starts_at_1_without_gaps,
            appending: s65_identical_retry_gets_the_first_sequence,
            appending: s65_same_key_other_content_is_a_collision,
            appending: s65_same_key_other_kind_is_a_collision,
            appending: s65_append_is_all_or_nothing,
            appending: s65_a_repeated_append_leaves_a_newer_row_alone,
            appending: s65_retry_with_one_new_record_writes_that_one,
            appending: s65_expected_sequence_is_checked,
            appending: s65_keys_are_unique_per_session_only,
            appending: s65_concurrent_sessions_keep_their_order,
            appending: s61_stored_bytes_are_the_given_bytes,
            appending: s68_record_bounds_are_enforced,
            appending: s33_acknowledged_is_there_after_a_restart,
            leases: s66_fence_is_the_first_append_of_an_opening,
            leases: s66_stale_epoch_is_refused_and_names_the_holder,
            leases: s66_released_lease_refuses_appends,
            leases: s66_reopening_the_store_takes_over_every_lease,
            leases: s66_fence_cannot_be_appended,
            leases: s66_unknown_session_cannot_be_opened,
            sessions: s101_session_and_first_records_are_one_unit,
            sessions: s101_repeated_create_is_the_same_create,
            sessions: s101_create_over_another_session_is_a_collision,
            sessions: s108_row_follows_the_append,
            sessions: s108_list_is_newest_first_and_filtered,
            sessions: s108_pages_are_complete_and_bounded,
            sessions: s107_journal_pages_join_without_gap,
            sessions: s78_sessions_with_open_work_are_found,
            sessions: deleted_session_leaves_nothing,
            answers: g5_intent_then_answer,
            answers: g5_first_answer_stays,
            answers: g5_other_body_is_a_collision_and_writes_nothing,
            answers: s120_create_is_found_without_its_session,
            answers: s120_answers_survive_a_restart_and_go_with_the_session,
            catalog: projects_and_workspaces,
            catalog: project_with_workspace_is_all_or_nothing,
            catalog: lists_page_with_opaque_cursors,
            catalog: tokens_are_found_by_hash_only,
            catalog: s83_rules_are_stored_whole,
            catalog: named_values,
            state: state_is_kept_per_provider_and_scope,
            state: state_limit_counts_keys_and_values,
            state: n19_session_state_goes_with_its_session,
        );
    };
    (@cases $backend:expr; $($module:ident: $name:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let backend = $backend;
                $crate::conformance::$module::$name(&backend).await;
            }
        )*
    };
}

/// The n-th id of a kind: time-ordered like a UUIDv7.
pub(crate) fn id(n: u64) -> Uuid {
    Uuid::from_u64_pair(0x0193_0000_0000_7000 + (n << 20), 0x8000_0000_0000_0000 + n)
}

pub fn session(n: u64) -> SessionId {
    SessionId(id(n))
}

pub(crate) fn token_id(n: u64) -> TokenId {
    TokenId(id(n))
}

/// An event record whose content is its text.
pub fn event(key: &str, text: &str) -> NewRecord {
    NewRecord {
        kind: RecordKind::Event,
        key: key.to_owned(),
        fingerprint: Sha256::digest(text).into(),
        bytes: Bytes::copy_from_slice(text.as_bytes()),
    }
}

pub fn row(project: &str, status: &str, at: i64) -> Projection {
    Projection {
        project_id: project.parse().unwrap(),
        status: status.to_owned(),
        updated_at_ms: at,
        body: Bytes::from(format!("{{\"at\":{at}}}")),
        needs_recovery: false,
    }
}

/// An append without extras.
pub fn append(session: SessionId, epoch: Epoch, records: Vec<NewRecord>) -> Append {
    Append {
        session,
        epoch,
        expected_next: None,
        create: None,
        records,
        projection: None,
        idempotency: Vec::new(),
    }
}

/// The append that creates a session with one event of key `first`.
pub fn creation(session: SessionId, at: i64) -> Append {
    Append {
        create: Some(NewSession { created_at_ms: at }),
        projection: Some(row("default", "completed", at)),
        ..append(session, Epoch::FIRST, vec![event("first", "started")])
    }
}

/// A store with session 1: its fence is record 1, its first event record 2.
pub async fn with_session(backend: &dyn Backend) -> (Arc<dyn Store>, SessionId) {
    let store = backend.open().await;
    store.append(creation(session(1), 1)).await.unwrap();
    (store, session(1))
}

/// The whole journal, read in pages of `limit`.
pub async fn records(store: &dyn Store, session: SessionId, limit: usize) -> Vec<Record> {
    let mut all = Vec::new();
    let mut from = 1;
    loop {
        let page = store.read(session, from, limit).await.unwrap();
        assert!(page.records.len() <= limit, "a page is bounded");
        all.extend(page.records);
        match page.next {
            Some(next) => from = next,
            None => return all,
        }
    }
}

/// Checks that the journal is 1, 2, 3 … with these keys.
pub async fn check_keys(store: &dyn Store, session: SessionId, keys: &[&str]) {
    let records = records(store, session, 100).await;
    let sequence: Vec<_> = records.iter().map(|record| record.seq).collect();
    assert_eq!(
        sequence,
        (1..=keys.len() as u64).collect::<Vec<_>>(),
        "from 1 without gaps"
    );
    let stored: Vec<_> = records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(stored, keys);
}

pub fn check_code<T: std::fmt::Debug>(answer: Result<T, JournalError>, code: &str) {
    let error = answer.expect_err(code);
    assert_eq!(error.code(), code, "{error}");
}

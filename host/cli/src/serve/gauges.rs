//! Metrics that are looked up when somebody reads them, instead of being kept up to date.

use harness_journal::Metrics;
use harness_session::HostLoad;

/// Sets them to what holds now.
pub(super) fn set(load: &HostLoad, journal: &Metrics) {
    for (name, value) in [
        ("harness_slots", load.slots as f64),
        ("harness_slots_used", load.slots_used as f64),
        ("harness_sessions_live", load.sessions_live as f64),
        ("harness_sessions_running", load.sessions_running as f64),
        ("harness_gates_open", load.open_gates as f64),
    ] {
        metrics::gauge!(name).set(value);
    }
    for (name, value) in [
        ("harness_journal_commits_total", journal.commits),
        ("harness_journal_writes_total", journal.writes),
        ("harness_journal_failures_total", journal.failures),
    ] {
        metrics::counter!(name).absolute(value);
    }
}

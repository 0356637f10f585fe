//! Every bound of one provider, with its default (requirements §7.3, the sandbox limits).
//!
//! Fixed bounds of the contract (sizes of R7, W3) are not here: an operator cannot move them.

use std::time::Duration;

const MIB: u64 = 1024 * 1024;

/// Bounds of one provider. All can be set by the operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Bytes of linear memory and tables, summed over a store. Default 256 MiB.
    pub memory: u64,
    /// Bytes of a component file. Default 64 MiB.
    pub component_size: u64,
    /// Wall clock of a compilation. Default 60 s.
    pub compile: Duration,
    /// Instantiate and describe. Default 5 s.
    pub describe_deadline: Duration,
    /// Discovery. Default 5 s.
    pub discover_deadline: Duration,
    /// Detection. Default 15 s.
    pub detect_deadline: Duration,
    /// Preparation. Default 10 s.
    pub prepare_deadline: Duration,
    /// Discard, and reading `execution`. Default 1 s.
    pub discard_deadline: Duration,
    /// Invoke, start-prompt and adopt-turn, until they answer. Default 120 s.
    pub invoke_deadline: Duration,
    /// Compaction. Default 10 min.
    pub compact_deadline: Duration,
    /// Return of an aborted call. Default 5 s.
    pub drain: Duration,
    /// Silence of a turn under the `activity` timeout strategy (R28). Default 30 min.
    pub inactivity: Duration,
    /// Longest life of an activity (N5). Default 24 h.
    pub activity: Duration,
    /// Processor time without yielding, in any call. Default 1 s.
    pub cpu_slice: Duration,
    /// Share of one core an instance may use in the long run, above 0. Default 0.5.
    pub cpu_rate: f64,
    /// Processor time above the rate an instance may save up. Default 10 s.
    pub cpu_burst: Duration,
    /// Bytes of log a second, with one second's worth of burst. Default 64 KiB.
    pub log_rate: u64,
    /// Processes of one instance at a time. Default 4.
    pub processes: usize,
    /// Bytes of output that are kept of one background process. Default 1 MiB.
    pub background_output: u64,
    /// Bytes of one response body. Default 16 MiB.
    pub http_body: u64,
    /// Requests of one instance at a time. Default 8.
    pub http_concurrent: usize,
    /// Bytes one turn writes to its sink. Default 64 MiB.
    pub turn_output: u64,
    /// Pending host calls of one channel. Default 64.
    pub pending_calls: usize,
    /// Handles of host resources a guest holds at a time. Default 4096.
    pub handles: usize,
    /// Failures within [`Limits::failure_window`] that quarantine the provider. Default 5.
    pub failures: u32,
    /// Window of the failure count. Default 10 min.
    pub failure_window: Duration,
    /// First wait after a second failure; it doubles from there. Default 500 ms.
    pub backoff: Duration,
    /// Longest wait between restarts. Default 60 s.
    pub backoff_max: Duration,
    /// Time without a failure after which backoff starts over. Default 5 min.
    pub healthy: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256 * MIB,
            component_size: 64 * MIB,
            compile: Duration::from_secs(60),
            describe_deadline: Duration::from_secs(5),
            discover_deadline: Duration::from_secs(5),
            detect_deadline: Duration::from_secs(15),
            prepare_deadline: Duration::from_secs(10),
            discard_deadline: Duration::from_secs(1),
            invoke_deadline: Duration::from_secs(120),
            compact_deadline: Duration::from_secs(600),
            drain: Duration::from_secs(5),
            inactivity: Duration::from_secs(30 * 60),
            activity: Duration::from_secs(24 * 3600),
            cpu_slice: Duration::from_secs(1),
            cpu_rate: 0.5,
            cpu_burst: Duration::from_secs(10),
            log_rate: 64 * 1024,
            processes: 4,
            background_output: MIB,
            http_body: 16 * MIB,
            http_concurrent: 8,
            turn_output: 64 * MIB,
            pending_calls: 64,
            handles: 4096,
            failures: 5,
            failure_window: Duration::from_secs(600),
            backoff: Duration::from_millis(500),
            backoff_max: Duration::from_secs(60),
            healthy: Duration::from_secs(300),
        }
    }
}

impl Limits {
    /// Name and value of every bound, with its unit, for reports.
    #[must_use]
    pub fn describe(&self) -> Vec<(String, String)> {
        let time = |d: Duration| format!("{} ms", d.as_millis());
        let bytes = |n: u64| format!("{n} bytes");
        [
            ("memory", bytes(self.memory)),
            ("component_size", bytes(self.component_size)),
            ("compile", time(self.compile)),
            ("describe_deadline", time(self.describe_deadline)),
            ("discover_deadline", time(self.discover_deadline)),
            ("detect_deadline", time(self.detect_deadline)),
            ("prepare_deadline", time(self.prepare_deadline)),
            ("discard_deadline", time(self.discard_deadline)),
            ("invoke_deadline", time(self.invoke_deadline)),
            ("compact_deadline", time(self.compact_deadline)),
            ("drain", time(self.drain)),
            ("inactivity", time(self.inactivity)),
            ("activity", time(self.activity)),
            ("cpu_slice", time(self.cpu_slice)),
            ("cpu_rate", format!("{} of one core", self.cpu_rate)),
            ("cpu_burst", time(self.cpu_burst)),
            ("log_rate", format!("{} bytes/s", self.log_rate)),
            ("processes", self.processes.to_string()),
            ("background_output", bytes(self.background_output)),
            ("http_body", bytes(self.http_body)),
            ("http_concurrent", self.http_concurrent.to_string()),
            ("turn_output", bytes(self.turn_output)),
            ("pending_calls", self.pending_calls.to_string()),
            ("handles", self.handles.to_string()),
            ("failures", self.failures.to_string()),
            ("failure_window", time(self.failure_window)),
            ("backoff", time(self.backoff)),
            ("backoff_max", time(self.backoff_max)),
            ("healthy", time(self.healthy)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }
}

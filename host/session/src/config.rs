//! What an operator can set for sessions; values are resolved and in range.

use harness_core::workspace::CheckpointPolicy;
use std::time::Duration;

/// Settings of the session layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// Execution slots of the host, at least 1.
    pub slots: usize,
    /// Inputs an inbox holds (S40).
    pub inbox: usize,
    /// Background processes that may run in a session at a time (S97).
    pub background_processes: usize,
    /// How long an operation waits for an initialising workspace (§7.1 step 3).
    pub workspace_wait: Duration,
    /// How long a control waits for a starting prompt (R65).
    pub handle_wait: Duration,
    /// A quiet session's instance is dropped after this.
    pub instance_idle: Duration,
    /// A quiet session without instance is parked after this.
    pub park_after: Duration,
    /// How long open activities may take to end after a stop (N13).
    pub drain: Duration,
    /// When the barrier of a stop fails open (S91).
    pub interrupt_barrier: Duration,
    /// How long one phase of a session's shutdown may take (S94).
    pub shutdown_phase: Duration,
    /// Longest life of an activity (N5).
    pub activity_life: Duration,
    /// Whether native turns are allowed (N11).
    pub native_turns: bool,
    /// Native turns a minute and instance (N11).
    pub native_turns_per_minute: u32,
    /// Messages outside any turn, a second and instance (N11).
    pub link_messages_per_second: u32,
    /// How long a draft instance is kept without use (W7).
    pub draft_idle: Duration,
    /// How long shutdown waits for sessions to end their runs.
    pub shutdown: Duration,
    /// How long the decider over a session that drifted may take (§6.1).
    pub drift_decider: Duration,
    /// How long a session that could not be restored is not tried again.
    pub restore_again: Duration,
    /// When gates are answered without a person.
    pub gates: GatePolicies,
    /// When checkpoints of workspaces are taken unasked (S98).
    pub checkpoint: CheckpointPolicy,
    /// Longest time for one snapshot, and for the change of a rewind (S98).
    pub snapshot: Duration,
}

/// Policy of each kind of gate (S86): after that time it closes as `policy_response` and the
/// provider gets `timeout`; `None` waits for a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatePolicies {
    /// Approvals; 1 s to 24 h.
    pub permission: Option<Duration>,
    /// Questions; 1 s to 24 h.
    pub ask_user: Option<Duration>,
}

impl Default for HostConfig {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            slots: 32,
            inbox: 64,
            background_processes: 4,
            workspace_wait: seconds(30),
            handle_wait: seconds(10),
            instance_idle: seconds(60),
            park_after: seconds(60),
            drain: seconds(5),
            interrupt_barrier: seconds(30),
            shutdown_phase: seconds(10),
            activity_life: seconds(24 * 60 * 60),
            native_turns: true,
            native_turns_per_minute: 60,
            link_messages_per_second: 20,
            draft_idle: seconds(60),
            shutdown: seconds(15),
            drift_decider: seconds(30),
            restore_again: seconds(10),
            gates: GatePolicies::default(),
            checkpoint: CheckpointPolicy::Off,
            snapshot: seconds(30),
        }
    }
}

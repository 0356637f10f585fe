//! The configuration as the host uses it: resolved and checked.

use harness_core::workspace::CheckpointPolicy;
use harness_engine::{Limits, ProviderSpec};
use harness_session::{GatePolicies, Verdict};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Everything an operator can decide.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Where the HTTP API listens. Default 127.0.0.1:7717.
    pub(crate) listen: SocketAddr,
    /// How traffic from other machines is protected.
    pub(crate) exposure: Exposure,
    /// `Host` names accepted besides loopback names and the listening address.
    pub(crate) allowed_hosts: Vec<String>,
    /// `Origin`s accepted besides the host's own.
    pub(crate) allowed_origins: Vec<String>,
    /// Execution slots of the host (R60): 1 to 10 000. Default 32.
    pub(crate) slots: usize,
    /// Lives of sessions.
    pub(crate) sessions: Sessions,
    /// When gates are answered without a person (S86). Default: never.
    pub(crate) gates: GatePolicies,
    /// Where the local workspace `default` is; `None`: `workspace` in the data directory.
    pub(crate) workspace_root: Option<PathBuf>,
    /// Directories beneath which tokens that are limited to projects may make local workspaces.
    /// Default: none.
    pub(crate) workspace_roots: Vec<PathBuf>,
    /// Longest wait for a workspace that is being set up. Default 30 s.
    pub(crate) workspace_wait: Duration,
    /// When checkpoints of workspaces are taken unasked (S98). Default: never.
    pub(crate) checkpoint: CheckpointPolicy,
    /// Compilations at a time: 1 to 64. Default 2.
    pub(crate) compiles: usize,
    /// Live instances of all providers: 1 to 100 000. Default 1000.
    pub(crate) instances: usize,
    /// Return of an aborted call, as `[limits]` says for all providers. Default 5 s.
    pub(crate) drain: Duration,
    /// Longest life of an activity, as `[limits]` says for all providers. Default 24 h.
    pub(crate) activity: Duration,
    /// Providers to install, in the order of the file.
    pub(crate) providers: Vec<ProviderSpec>,
}

/// Lives of sessions.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    /// A quiet session's instance is dropped after this. Default 1 min.
    pub(crate) instance_idle: Duration,
    /// A quiet session without instance leaves memory after this. Default 1 min.
    pub(crate) park_after: Duration,
    /// The instance for drafts of a project and workspace is dropped after this. Default 1 min.
    pub(crate) draft_idle: Duration,
    /// Inputs a loop holds (S40): 1 to 64. Default 64.
    pub(crate) inbox: usize,
    /// Background processes of a session (S97): 0 to 64. Default 4.
    pub(crate) background_processes: usize,
    /// Whether native turns are allowed (N11). Default: yes.
    pub(crate) native_turns: bool,
    /// Native turns a minute and instance (N11): 1 to 6000. Default 60.
    pub(crate) native_turns_per_minute: u32,
    /// Messages outside any turn, a second and instance (N11): 1 to 1000. Default 20.
    pub(crate) link_messages_per_second: u32,
    /// What becomes of sessions whose workspace or harness is another one now. Default: rejected.
    pub(crate) drift: Verdict,
    /// How long a shutdown waits for sessions to end their runs. Default 15 s.
    pub(crate) shutdown: Duration,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            instance_idle: Duration::from_secs(60),
            park_after: Duration::from_secs(60),
            draft_idle: Duration::from_secs(60),
            inbox: 64,
            background_processes: 4,
            native_turns: true,
            native_turns_per_minute: 60,
            link_messages_per_second: 20,
            drift: Verdict::Reject,
            shutdown: Duration::from_secs(15),
        }
    }
}

/// How traffic from other machines is protected (S110).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// There is none: only loopback addresses are listened on.
    Loopback,
    /// A reverse proxy ends TLS.
    BehindProxy,
    /// The host ends TLS itself.
    Tls(Tls),
}

/// Certificate chain and private key, PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Certificate chain.
    pub(crate) cert: PathBuf,
    /// Private key.
    pub(crate) key: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7717)),
            exposure: Exposure::Loopback,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            slots: 32,
            sessions: Sessions::default(),
            gates: GatePolicies::default(),
            workspace_root: None,
            workspace_roots: Vec::new(),
            workspace_wait: Duration::from_secs(30),
            checkpoint: CheckpointPolicy::Off,
            compiles: 2,
            instances: 1000,
            drain: Limits::default().drain,
            activity: Limits::default().activity,
            providers: Vec::new(),
        }
    }
}

impl Settings {
    /// Refuses an address that other machines reach without protection (S110).
    ///
    /// Flags can change address and exposure after the file was read, hence a check of its own.
    ///
    /// # Errors
    /// Message with its remedy.
    pub(crate) fn check_exposure(&self) -> Result<(), String> {
        if self.listen.ip().is_loopback() || self.exposure != Exposure::Loopback {
            return Ok(());
        }
        Err(format!(
            "listening on {} is refused: other machines reach it, and traffic would not be encrypted\n    \
             remedy: set `cert` and `key` in [server.tls], or put a TLS proxy in front and give \
             --behind-proxy, or listen on a loopback address",
            self.listen
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s110_other_machines_need_tls_or_a_proxy() {
        let check = |listen: &str, exposure: Exposure| {
            let listen = listen.parse().unwrap();
            Settings {
                listen,
                exposure,
                ..Settings::default()
            }
            .check_exposure()
        };
        let tls = Exposure::Tls(Tls {
            cert: "c".into(),
            key: "k".into(),
        });
        for loopback in ["127.0.0.1:1", "127.8.0.1:1", "[::1]:1"] {
            assert_eq!(check(loopback, Exposure::Loopback), Ok(()), "{loopback}");
        }
        for open in [
            "0.0.0.0:1",
            "[::]:1",
            "192.168.0.2:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            let refusal = check(open, Exposure::Loopback).unwrap_err();
            assert!(
                refusal.contains("--behind-proxy") && refusal.contains("[server.tls]"),
                "{refusal}"
            );
            assert_eq!(check(open, Exposure::BehindProxy), Ok(()), "{open}");
            assert_eq!(check(open, tls.clone()), Ok(()), "{open}");
        }
    }
}

//! Removing snapshots that no journal names any more, now and then.

use harness_session::Host;
use std::time::Duration;

/// The first time, so that it does not compete with the start.
const FIRST: Duration = Duration::from_secs(10 * 60);
/// It reads every journal.
const EVERY: Duration = Duration::from_secs(24 * 3600);

/// Collects until the host ends.
pub(super) async fn collect(host: Host) {
    tokio::time::sleep(FIRST).await;
    loop {
        match host.collect_snapshots().await {
            Ok(freed) => tracing::info!(freed, "snapshots were collected"),
            Err(error) => tracing::warn!(%error, "snapshots were not collected"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

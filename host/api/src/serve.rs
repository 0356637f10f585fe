//! Running the API on a listener until it is told to stop.

use crate::router::router;
use crate::state::ApiState;
use axum::serve::ListenerExt;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::net::TcpListener;

/// Connections that are still open this long after the stop was asked for are dropped.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until `stop` resolves, then drains: event streams end at once, requests under way have
/// 10 s. The plane is shut down by whoever owns it.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    state: ApiState,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    // Small frames must not wait for more: an event is of use at once.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    let closing = state.closing();
    let drained = async {
        closing.aborted().await;
        tokio::time::sleep(DRAIN).await;
    };
    let app = router(state.clone());
    let graceful = axum::serve(listener, app).with_graceful_shutdown(async move {
        stop.await;
        state.close();
    });
    tokio::select! {
        result = graceful => result,
        () = drained => {
            tracing::warn!("connections were still open after {} s and were dropped", DRAIN.as_secs());
            Ok(())
        }
    }
}

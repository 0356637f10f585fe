//! The free functions of the host interface.

use crate::bindings::harness::provider::host::{Host, HostWithStore};
use crate::bindings::harness::provider::types as wit;
use crate::instance::ctx::{Ctx, HasCtx};
use crate::log::Level;
use std::time::Duration;
use wasmtime::Result;
use wasmtime::component::Accessor;

impl Host for Ctx {
    fn state_changed(&mut self) -> Result<()> {
        self.host.state_changed();
        Ok(())
    }

    fn config(&mut self) -> Result<Vec<(String, String)>> {
        Ok(self.shared.installed.config.clone())
    }

    fn log(&mut self, level: wit::LogLevel, message: String) -> Result<()> {
        let level = match level {
            wit::LogLevel::Trace => Level::Trace,
            wit::LogLevel::Debug => Level::Debug,
            wit::LogLevel::Info => Level::Info,
            wit::LogLevel::Warn => Level::Warn,
            wit::LogLevel::Error => Level::Error,
        };
        self.shared
            .installed
            .log
            .write(level, self.shared.number, &message);
        Ok(())
    }
}

impl<T: Send + 'static> HostWithStore<T> for HasCtx {
    async fn sleep_ms(_: &Accessor<T, Self>, ms: u32) -> Result<()> {
        if ms == 0 {
            // Others get their turn; a guest that spins over this is the CPU rate's concern.
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(ms.into())).await;
        }
        Ok(())
    }
}

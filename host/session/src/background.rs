//! What the session lends to its instances for programs that outlive them (S97).

use crate::actor::{Msg, ProcessMsg};
use crate::link::SessionLink;
use harness_core::provider::{Background, BoxFuture, IoError, ProcessInfo, ProcessOutput, Program};
use tokio::sync::oneshot;

impl SessionLink {
    async fn about_processes<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> ProcessMsg,
    ) -> Result<T, IoError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.mailbox.send(Msg::Process(message(reply))).await;
        sent.map_err(|_| IoError::Closed)?;
        answer.await.map_err(|_| IoError::Closed)
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>, IoError> {
        let loop_id = Some(self.loop_id);
        self.about_processes(|reply| ProcessMsg::List { loop_id, reply })
            .await
    }
}

impl Background for SessionLink {
    fn start(&self, program: Box<dyn Program>) -> BoxFuture<'_, Result<String, IoError>> {
        Box::pin(async move {
            self.about_processes(|reply| ProcessMsg::Start {
                loop_id: self.loop_id,
                harness: self.harness.clone(),
                program,
                reply,
            })
            .await?
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ProcessInfo>, IoError>> {
        Box::pin(self.processes())
    }

    fn info(&self, handle: String) -> BoxFuture<'_, Result<ProcessInfo, IoError>> {
        Box::pin(async move {
            let mut known = self.processes().await?.into_iter();
            let found = known.find(|info| info.process.process_handle == handle);
            found.ok_or_else(|| {
                IoError::NotFound("no background process of that handle is known".into())
            })
        })
    }

    fn read(
        &self,
        handle: String,
        from: u64,
        max: usize,
    ) -> BoxFuture<'_, Result<ProcessOutput, IoError>> {
        Box::pin(async move {
            self.about_processes(|reply| ProcessMsg::Read {
                loop_id: self.loop_id,
                handle,
                from,
                max,
                reply,
            })
            .await?
        })
    }

    fn stop(&self, handle: String) -> BoxFuture<'_, Result<(), IoError>> {
        Box::pin(async move {
            let loop_id = Some(self.loop_id);
            self.about_processes(|reply| ProcessMsg::Stop {
                loop_id,
                handle,
                reply,
            })
            .await?
        })
    }
}

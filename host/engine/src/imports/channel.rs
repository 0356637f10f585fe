//! `channel` and `message-writer`: what one invocation may do with its conversation.

use super::Answer;
use super::abort::AbortHandle;
use crate::bindings::harness::provider::host::{
    HostChannel, HostChannelWithStore, HostMessageWriter, HostMessageWriterWithStore,
};
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::instance::ctx::{Ctx, HasCtx};
use crate::instance::invocation::Invocation;
use harness_core::gate::GateAsk;
use harness_core::provider::{ChannelError, WriterId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wasmtime::Result;
use wasmtime::component::{Accessor, Resource};

/// Most messages of one `history` call.
const MAX_HISTORY: u32 = 1000;
/// Largest id of an approval or form, in bytes.
const MAX_REQUEST_ID: usize = 256;
/// Largest native session id, in bytes.
const MAX_NATIVE_ID: usize = 1024;

/// A guest's handle on its invocation; a tombstone once that is over.
#[derive(Clone)]
pub struct ChannelHandle(pub(crate) Arc<Invocation>);

/// A guest's handle on an open message. Dropping it closes the message.
pub struct WriterHandle(Arc<Writer>);

struct Writer {
    invocation: Arc<Invocation>,
    id: WriterId,
    finished: AtomicBool,
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished.load(Ordering::Acquire)
            && let Some(port) = self.invocation.port()
        {
            port.abandon_writer(self.id);
        }
    }
}

fn channel<T: Send>(
    accessor: &Accessor<T, HasCtx>,
    handle: &Resource<ChannelHandle>,
) -> Result<Arc<Invocation>> {
    accessor.with(|mut a| Ok(a.get().table.get(handle)?.0.clone()))
}

fn writer<T: Send>(
    accessor: &Accessor<T, HasCtx>,
    handle: &Resource<WriterHandle>,
) -> Result<Arc<Writer>> {
    accessor.with(|mut a| Ok(a.get().table.get(handle)?.0.clone()))
}

fn answer<T>(result: std::result::Result<T, ChannelError>) -> Answer<T> {
    Ok(result.map_err(convert::channel_error))
}

impl HostMessageWriter for Ctx {
    fn drop(&mut self, handle: Resource<WriterHandle>) -> Result<()> {
        self.table.delete(handle)?;
        Ok(())
    }
}

impl<T: Send + 'static> HostMessageWriterWithStore<T> for HasCtx {
    async fn delta(
        accessor: &Accessor<T, Self>,
        handle: Resource<WriterHandle>,
        part: wit::MessagePart,
    ) -> Answer<u32> {
        let writer = writer(accessor, &handle)?;
        let write = async {
            let part = convert::part(part)?;
            writer.invocation.write(part.bytes())?;
            let id = writer.id;
            writer
                .invocation
                .call("message-writer.delta", move |port| port.delta(id, part))
                .await
        };
        answer(write.await)
    }

    async fn replace(
        accessor: &Accessor<T, Self>,
        handle: Resource<WriterHandle>,
        index: u32,
        part: wit::MessagePart,
    ) -> Answer<()> {
        let writer = writer(accessor, &handle)?;
        let write = async {
            let part = convert::part(part)?;
            writer.invocation.write(part.bytes())?;
            let id = writer.id;
            writer
                .invocation
                .call("message-writer.replace", move |port| {
                    port.replace(id, index, part)
                })
                .await
        };
        answer(write.await)
    }

    async fn finish(accessor: &Accessor<T, Self>, handle: Resource<WriterHandle>) -> Answer<()> {
        let writer = writer(accessor, &handle)?;
        let id = writer.id;
        let result = writer
            .invocation
            .call("message-writer.finish", move |port| port.finish(id))
            .await;
        if result.is_ok() {
            writer.finished.store(true, Ordering::Release);
        }
        answer(result)
    }
}

impl HostChannel for Ctx {
    fn context(&mut self, handle: Resource<ChannelHandle>) -> Result<wit::OperationContext> {
        Ok(convert::operation_context(
            self.table.get(&handle)?.0.context.clone(),
        ))
    }

    fn abort(&mut self, handle: Resource<ChannelHandle>) -> Result<Resource<AbortHandle>> {
        let abort = self.table.get(&handle)?.0.abort.clone();
        Ok(self.table.push(AbortHandle::new(abort))?)
    }

    fn report_usage(&mut self, handle: Resource<ChannelHandle>, usage: wit::Usage) -> Result<()> {
        if let Some(port) = self.table.get(&handle)?.0.port() {
            port.report_usage(convert::usage(usage));
        }
        Ok(())
    }

    fn touch(&mut self, handle: Resource<ChannelHandle>) -> Result<()> {
        self.table.get(&handle)?.0.clock.touch();
        Ok(())
    }

    fn withdraw(&mut self, handle: Resource<ChannelHandle>, id: String) -> Result<()> {
        // No request has a longer id.
        if id.len() > MAX_REQUEST_ID {
            return Ok(());
        }
        if let Some(port) = self.table.get(&handle)?.0.port() {
            port.withdraw(id);
        }
        Ok(())
    }

    fn close_input(&mut self, handle: Resource<ChannelHandle>) -> Result<()> {
        if let Some(port) = self.table.get(&handle)?.0.port() {
            port.close_input();
        }
        Ok(())
    }

    fn drop(&mut self, handle: Resource<ChannelHandle>) -> Result<()> {
        self.table.delete(handle)?;
        Ok(())
    }
}

impl<T: Send + 'static> HostChannelWithStore<T> for HasCtx {
    async fn append(
        accessor: &Accessor<T, Self>,
        handle: Resource<ChannelHandle>,
        message: wit::Message,
    ) -> Answer<()> {
        let invocation = channel(accessor, &handle)?;
        let write = async {
            let (message, bytes) = convert::new_message(message)?;
            invocation.write(bytes)?;
            invocation
                .call("channel.append", move |port| port.append(message))
                .await
        };
        answer(write.await)
    }

    async fn open_message(
        accessor: &Accessor<T, Self>,
        handle: Resource<ChannelHandle>,
        role: wit::Role,
    ) -> Answer<Resource<WriterHandle>> {
        let invocation = channel(accessor, &handle)?;
        invocation.clock.touch();
        let role = convert::role(role);
        match invocation
            .call("channel.open-message", move |port| port.open_message(role))
            .await
        {
            Ok(id) => {
                let writer = Writer {
                    invocation,
                    id,
                    finished: AtomicBool::new(false),
                };
                let handle =
                    accessor.with(|mut a| a.get().table.push(WriterHandle(Arc::new(writer))))?;
                Ok(Ok(handle))
            }
            Err(error) => answer(Err(error)),
        }
    }

    async fn history(
        accessor: &Accessor<T, Self>,
        handle: Resource<ChannelHandle>,
        limit: u32,
    ) -> Answer<Vec<wit::HistoryEntry>> {
        let invocation = channel(accessor, &handle)?;
        let limit = limit.min(MAX_HISTORY);
        let messages = invocation
            .call("channel.history", move |port| port.history(limit))
            .await;
        answer(messages.map(|list| list.into_iter().map(convert::history_entry).collect()))
    }

    async fn request_approval(
        accessor: &Accessor<T, Self>,
        handle: Resource<ChannelHandle>,
        request: wit::ApprovalRequest,
    ) -> Answer<wit::ApprovalDecision> {
        let invocation = channel(accessor, &handle)?;
        let request = convert::approval_request(request);
        if let Err(breach) = GateAsk::Permission(request.clone()).check() {
            return answer(Err(ChannelError::Limit(breach)));
        }
        let _parked = invocation.clock.park();
        let decision = invocation
            .call("channel.request-approval", move |port| {
                port.request_approval(request)
            })
            .await;
        answer(decision.map(convert::approval_decision))
    }

    async fn ask(
        accessor: &Accessor<T, Self>,
        handle: Resource<ChannelHandle>,
        form: wit::QuestionForm,
    ) -> Answer<wit::FormAnswer> {
        let invocation = channel(accessor, &handle)?;
        let form = match convert::question_form(form) {
            Ok(form) => form,
            Err(error) => return answer(Err(error)),
        };
        if let Err(breach) = GateAsk::AskUser(form.clone()).check() {
            return answer(Err(ChannelError::Limit(breach)));
        }
        let _parked = invocation.clock.park();
        let given = invocation
            .call("channel.ask", move |port| port.ask(form))
            .await;
        answer(given.map(convert::form_answer))
    }

    async fn input_ready(
        accessor: &Accessor<T, Self>,
        handle: Resource<ChannelHandle>,
    ) -> Answer<bool> {
        let invocation = channel(accessor, &handle)?;
        answer(
            invocation
                .call("channel.input-ready", |port| port.input_ready())
                .await,
        )
    }

    async fn take_input(
        accessor: &Accessor<T, Self>,
        handle: Resource<ChannelHandle>,
    ) -> Answer<Vec<wit::Input>> {
        let invocation = channel(accessor, &handle)?;
        if invocation.abort.reason().is_some() {
            return answer(Err(if invocation.abort.is_over() {
                ChannelError::Closed
            } else {
                ChannelError::Stopped
            }));
        }
        // Not raced with an abort: what was folded is owed to the provider (N16).
        let inputs = invocation
            .settle("channel.take-input", |port| port.take_input())
            .await;
        answer(inputs.map(|list| list.into_iter().map(convert::input).collect()))
    }

    async fn bind_native_session(
        accessor: &Accessor<T, Self>,
        handle: Resource<ChannelHandle>,
        id: String,
    ) -> Answer<()> {
        let invocation = channel(accessor, &handle)?;
        if id.is_empty() || id.len() > MAX_NATIVE_ID {
            let bytes = id.len();
            let breach =
                format!("a native session id has {bytes} bytes; 1 to {MAX_NATIVE_ID} are expected");
            return answer(Err(ChannelError::Limit(breach)));
        }
        // Not raced with an abort: a conversation that the native side accepted is recorded (R68).
        answer(
            invocation
                .settle("channel.bind-native-session", move |port| {
                    port.bind_native_session(id)
                })
                .await,
        )
    }
}

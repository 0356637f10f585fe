//! Background processes of a session: started once their start is durable, kept while they run,
//! read, ended (S94, S97).
//!
//! They belong to the actor and to no instance: an instance that goes leaves them running, and the
//! actor is not parked while one does. When the actor ends, by a panic too, they are dropped, which
//! ends them; what the journal then still calls running is lost, and the next reading says so.

use super::{Actor, Msg};
use harness_core::ids::{HarnessId, LoopId};
use harness_core::provider::{IoError, Process, ProcessInfo, ProcessOutput, Program, ProgramEnd};
use harness_core::session::{Answer, Input};
use harness_core::view::ProcessView;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Ended processes whose output stays readable.
const KEPT_OUTPUTS: usize = 4;

/// What an actor is told about background processes.
pub(crate) enum ProcessMsg {
    /// An instance wants to start a program.
    Start {
        loop_id: LoopId,
        harness: HarnessId,
        program: Box<dyn Program>,
        reply: oneshot::Sender<Result<String, IoError>>,
    },
    /// It runs now, or could not be started.
    Started {
        handle: String,
        result: Result<Arc<dyn Process>, IoError>,
        reply: oneshot::Sender<Result<String, IoError>>,
    },
    /// No descendant of it is left.
    Ended { handle: String, end: ProgramEnd },
    /// Those of a loop; of every loop when none is named.
    List {
        loop_id: Option<LoopId>,
        reply: oneshot::Sender<Vec<ProcessInfo>>,
    },
    /// A piece of what one wrote.
    Read {
        loop_id: LoopId,
        handle: String,
        from: u64,
        max: usize,
        reply: oneshot::Sender<Result<ProcessOutput, IoError>>,
    },
    /// One is to end; of any loop when none is named.
    Stop {
        loop_id: Option<LoopId>,
        handle: String,
        reply: oneshot::Sender<Result<(), IoError>>,
    },
    /// Their phase of a shutdown is over.
    Expired,
}

/// A background process that this actor started.
pub(super) struct Kept {
    handle: String,
    loop_id: LoopId,
    /// `None` while it is being started.
    process: Option<Arc<dyn Process>>,
    /// It is to end as soon as it runs.
    stop: bool,
    ended: bool,
}

impl Actor {
    pub(super) async fn process(&mut self, message: ProcessMsg) {
        match message {
            ProcessMsg::Start {
                loop_id,
                harness,
                program,
                reply,
            } => self.start_process(loop_id, harness, program, reply).await,
            ProcessMsg::Started {
                handle,
                result,
                reply,
            } => self.process_started(handle, result, reply).await,
            ProcessMsg::Ended { handle, end } => self.process_ended(handle, end).await,
            ProcessMsg::List { loop_id, reply } => {
                let _ = reply.send(self.process_infos(loop_id));
            }
            ProcessMsg::Read {
                loop_id,
                handle,
                from,
                max,
                reply,
            } => {
                let _ = reply.send(self.read_process(loop_id, &handle, from, max));
            }
            ProcessMsg::Stop {
                loop_id,
                handle,
                reply,
            } => {
                let _ = reply.send(self.stop_process(loop_id, &handle));
            }
            ProcessMsg::Expired => self.processes_expired().await,
        }
    }

    async fn start_process(
        &mut self,
        loop_id: LoopId,
        harness: HarnessId,
        program: Box<dyn Program>,
        reply: oneshot::Sender<Result<String, IoError>>,
    ) {
        let input = Input::StartProcess {
            loop_id,
            harness,
            program: program.name().to_owned(),
        };
        let handle = match self.feed(input, None).await {
            Answer::Process(Ok(handle)) => handle,
            Answer::Process(Err(error)) => return drop(reply.send(Err(error))),
            _ => {
                let error = IoError::Failed("the start could not be recorded".into());
                return drop(reply.send(Err(error)));
            }
        };
        self.processes.push(Kept {
            handle: handle.clone(),
            loop_id,
            process: None,
            stop: false,
            ended: false,
        });
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            let result = program.start().await;
            // Without an actor the message is dropped, and so is the process.
            let started = ProcessMsg::Started {
                handle,
                result,
                reply,
            };
            let _ = mailbox.send(Msg::Process(started)).await;
        });
    }

    async fn process_started(
        &mut self,
        handle: String,
        result: Result<Arc<dyn Process>, IoError>,
        reply: oneshot::Sender<Result<String, IoError>>,
    ) {
        let process = match result {
            Ok(process) => process,
            Err(error) => {
                self.process_ended(handle.clone(), ProgramEnd::NotStarted(error.clone()))
                    .await;
                self.processes.retain(|kept| kept.handle != handle);
                let _ = reply.send(Err(error));
                return;
            }
        };
        let Some(kept) = self.processes.iter_mut().find(|k| k.handle == handle) else {
            return;
        };
        if kept.stop {
            process.stop();
        }
        let (ended, mailbox) = (process.ended(), self.mailbox.clone());
        kept.process = Some(process);
        let _ = reply.send(Ok(handle.clone()));
        tokio::spawn(async move {
            let end = ended.await;
            let _ = mailbox
                .send(Msg::Process(ProcessMsg::Ended { handle, end }))
                .await;
        });
    }

    async fn process_ended(&mut self, process_handle: String, end: ProgramEnd) {
        let found = self
            .processes
            .iter_mut()
            .find(|k| k.handle == process_handle);
        let Some(kept) = found else { return };
        kept.ended = true;
        let input = Input::ProcessEnded {
            loop_id: kept.loop_id,
            process_handle,
            end,
        };
        let ended = self.processes.iter().filter(|k| k.ended).count();
        if ended > KEPT_OUTPUTS
            && let Some(oldest) = self.processes.iter().position(|k| k.ended)
        {
            self.processes.remove(oldest);
        }
        self.feed(input, None).await;
    }

    fn process_infos(&self, loop_id: Option<LoopId>) -> Vec<ProcessInfo> {
        let views = self.session.state.process_views().into_iter();
        views
            .filter(|view| loop_id.is_none_or(|id| id == view.loop_id))
            .map(|process| ProcessInfo {
                written: self
                    .kept(&process.process_handle)
                    .and_then(|kept| kept.process.as_ref())
                    .map(|process| process.written()),
                process,
            })
            .collect()
    }

    fn kept(&self, handle: &str) -> Option<&Kept> {
        self.processes.iter().find(|k| k.handle == handle)
    }

    /// The process of that handle as the journal knows it.
    fn known(&self, loop_id: Option<LoopId>, handle: &str) -> Result<ProcessView, IoError> {
        let mut views = self.session.state.process_views().into_iter();
        let is_it = |view: &ProcessView| {
            view.process_handle == handle && loop_id.is_none_or(|id| id == view.loop_id)
        };
        views.find(is_it).ok_or_else(|| {
            IoError::NotFound("no background process of that handle is known".into())
        })
    }

    fn read_process(
        &self,
        loop_id: LoopId,
        handle: &str,
        from: u64,
        max: usize,
    ) -> Result<ProcessOutput, IoError> {
        self.known(Some(loop_id), handle)?;
        match self.kept(handle) {
            Some(Kept {
                process: Some(process),
                ..
            }) => Ok(process.read(from, max)),
            // It is being started: there is nothing yet.
            Some(_) => Ok(ProcessOutput::default()),
            None => Err(IoError::Closed),
        }
    }

    fn stop_process(&mut self, loop_id: Option<LoopId>, handle: &str) -> Result<(), IoError> {
        self.known(loop_id, handle)?;
        if let Some(kept) = self.processes.iter_mut().find(|k| k.handle == handle) {
            kept.end();
        }
        Ok(())
    }

    /// Begins to end them all; what is returned waits for their ends, no longer than a phase.
    pub(super) fn end_processes(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let mut ends = Vec::new();
        for kept in self.processes.iter_mut().filter(|k| !k.ended) {
            kept.end();
            ends.extend(kept.process.as_ref().map(|process| process.ended()));
        }
        let bound = self.deps.config.shutdown_phase;
        async move {
            let _ = tokio::time::timeout(bound, futures::future::join_all(ends)).await;
        }
    }

    /// As [`Self::end_processes`]; a shutdown waits for their ends no longer than its phase.
    pub(super) fn end_processes_in_time(&mut self) {
        drop(self.end_processes());
        if self.session.live.ending_processes {
            self.await_processes();
        }
    }
}

impl Kept {
    fn end(&mut self) {
        let already = std::mem::replace(&mut self.stop, true);
        if let Some(process) = self.process.as_ref().filter(|_| !already) {
            process.stop();
        }
    }
}

//! Background programs of a test: what they do, and how their ends reach the provider.

use super::executor;
use super::signal::Signal;
use super::world::{Shared, World};
use crate::background::{ProcessInfo, ProcessStatus};
use crate::types::{Input, InputOrigin, MessagePart};
use futures::channel::mpsc::UnboundedSender;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Processes that may run at a time, as by default.
const MAX_RUNNING: usize = 4;

/// What a program does that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRun {
    /// How long it runs.
    pub after: Duration,
    /// What it writes to standard output, at its start.
    pub output: String,
    /// How it ends.
    pub exit_code: i32,
}

/// What becomes of a program that is started with that standard input.
#[derive(Clone)]
pub(crate) struct Script(Rc<dyn Fn(&[u8]) -> ProgramRun>);

impl Script {
    pub(super) fn new(run: impl Fn(&[u8]) -> ProgramRun + 'static) -> Self {
        Self(Rc::new(run))
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) info: ProcessInfo,
    pub(crate) output: Vec<u8>,
}

/// Everything about background processes.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(super) granted: BTreeMap<String, Script>,
    pub(crate) started: Vec<Started>,
    /// Ends that the provider has not seen.
    pub(crate) ends: VecDeque<Input>,
    /// Wakes who starts a turn with them.
    pub(super) tell: Option<UnboundedSender<()>>,
}

/// Why a program is not started.
pub(crate) enum NoStart {
    NotGranted,
    TooMany(usize),
}

impl World {
    /// Starts a granted program; answers its handle.
    pub(crate) fn start_program(
        &mut self,
        world: Shared,
        program: &str,
        stdin: &[u8],
    ) -> Result<String, NoStart> {
        let Some(script) = self.programs.granted.get(program).cloned() else {
            return Err(NoStart::NotGranted);
        };
        let running = |s: &&Started| s.info.status == ProcessStatus::Running;
        if self.programs.started.iter().filter(running).count() >= MAX_RUNNING {
            return Err(NoStart::TooMany(MAX_RUNNING));
        }
        let run = (script.0)(stdin);
        let handle = format!("process-{}", self.programs.started.len() + 1);
        let output = run.output.into_bytes();
        self.programs.started.push(Started {
            info: ProcessInfo {
                handle: handle.clone(),
                program: program.to_owned(),
                status: ProcessStatus::Running,
                exit_code: None,
                reason: None,
                written: u64::try_from(output.len()).ok(),
            },
            output,
        });
        let ended = handle.clone();
        executor::spawn(async move {
            let ms = u32::try_from(run.after.as_millis()).unwrap_or(u32::MAX);
            executor::sleep_ms(ms).await;
            let status = if run.exit_code == 0 {
                ProcessStatus::Exited
            } else {
                ProcessStatus::Failed
            };
            world
                .borrow_mut()
                .end_process(&ended, status, Some(run.exit_code));
        });
        Ok(handle)
    }

    /// A process ends, unless it has.
    pub(crate) fn end_process(
        &mut self,
        handle: &str,
        status: ProcessStatus,
        exit_code: Option<i32>,
    ) {
        let started = &mut self.programs.started;
        let Some(process) = started.iter_mut().find(|s| s.info.handle == handle) else {
            return;
        };
        if process.info.status != ProcessStatus::Running {
            return;
        }
        let reason = match status {
            ProcessStatus::Stopped => "it was stopped".to_owned(),
            ProcessStatus::Lost => "its host was lost".to_owned(),
            _ => format!("exit code {}", exit_code.unwrap_or_default()),
        };
        let text = format!("The background process {handle} ended: {reason}.");
        process.info.status = status;
        process.info.exit_code = exit_code;
        process.info.reason = Some(reason);
        self.programs.ends.push_back(Input {
            command_id: format!("end-of-{handle}"),
            origin: InputOrigin::Process(handle.to_owned()),
            parts: vec![MessagePart::Text(text)],
        });
        self.tell_ends();
    }

    /// Whoever waits looks at the ends again.
    pub(super) fn tell_ends(&mut self) {
        for waiter in std::mem::take(&mut self.input_waiters) {
            waiter.wake();
        }
        if let Some(tell) = &self.programs.tell {
            let _ = tell.unbounded_send(());
        }
    }

    /// The host was lost, and every process with it.
    pub(super) fn lose_processes(&mut self) {
        self.programs.tell = None;
        let handles: Vec<String> = self
            .programs
            .started
            .iter_mut()
            .map(|process| {
                process.info.written = None;
                process.output.clear();
                process.info.handle.clone()
            })
            .collect();
        for handle in handles {
            self.end_process(&handle, ProcessStatus::Lost, None);
        }
    }
}

/// The oldest end that may start a turn now, or what to wait for before looking again.
pub(super) fn next_end(world: &Shared) -> Result<Option<Input>, Signal<()>> {
    let mut world = world.borrow_mut();
    if world.programs.ends.is_empty() {
        return Ok(None);
    }
    if world.turn_live || world.control_live {
        return Err(world.settled.clone());
    }
    world.turn_live = true;
    Ok(world.programs.ends.pop_front())
}

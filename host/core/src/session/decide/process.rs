//! Background processes: started, ended, and their ends told to the loop they belong to (S11, S72,
//! S94, S97).
//!
//! The start is durable before the program runs, and the end together with the notification of it,
//! so that at every point of the journal a process runs or its end is known. A notification is in no
//! inbox: it waits in a bounded set of its loop and reaches the provider as machine input, which
//! starts a turn when the loop is idle and is offered for folding otherwise.

use super::ending::bounded;
use super::{Out, derived};
use crate::command::{Agency, Cause, Command, CommandBody, CommandHeader};
use crate::command::{ProcessNotice, ProcessState};
use crate::event::{CancelReason, EventBody};
use crate::ids::{CommandId, HarnessId, LoopId, TurnId};
use crate::provider::{IoError, ProgramEnd};
use crate::refusal::Refused;
use crate::session::{Answer, Effect, LoopState, Notified, Record, process};

/// Process notifications that may wait to reach the provider of one loop (S97).
pub const MAX_NOTICES: usize = 64;

/// The one notification of that process. Derived, so that whoever says it again says the same.
fn notification_of(session: uuid::Uuid, handle: &str) -> CommandId {
    CommandId(derived(session, &format!("process {handle}")))
}

impl Out<'_, '_> {
    pub(super) fn start_process(
        &mut self,
        loop_id: LoopId,
        harness: &HarnessId,
        program: String,
    ) -> Answer {
        let refused = self.refuse_process(loop_id, harness);
        if let Some(error) = refused {
            return Answer::Process(Err(error));
        }
        let Some(id) = self.cx.ids.mint() else {
            return Answer::Process(Err(IoError::Failed("no id could be made".into())));
        };
        let process_handle = id.to_string();
        let owner = self.live.of(loop_id).owner.as_ref();
        let turn = owner.and_then(|o| o.turn).unwrap_or_default();
        self.event(
            loop_id,
            turn,
            Cause::default(),
            EventBody::ProcessStarted {
                process_handle: process_handle.clone(),
                program,
            },
        );
        Answer::Process(Ok(process_handle))
    }

    fn refuse_process(&self, loop_id: LoopId, harness: &HarnessId) -> Option<IoError> {
        let of = self.loop_state(loop_id);
        let Some(of) = of.filter(|l| l.harness == *harness && !l.closed && !self.is_leaving())
        else {
            return Some(IoError::Closed);
        };
        if self.live.faulted.is_some() {
            return Some(IoError::Failed("the session is faulted".into()));
        }
        if self.live.is_marked(loop_id) {
            return Some(IoError::Denied("the session is being stopped".into()));
        }
        let most = self.cx.processes;
        if self.session.state.running_processes().count() >= most {
            return Some(IoError::Limit(format!(
                "{most} background processes run in this session (`sessions.background_processes`)"
            )));
        }
        if of.running_processes().count() + of.notices.len() >= MAX_NOTICES {
            return Some(IoError::Limit(format!(
                "{MAX_NOTICES} ends of background processes wait to be taken"
            )));
        }
        None
    }

    /// No descendant of the process is left.
    pub(super) fn process_ended(
        &mut self,
        loop_id: LoopId,
        process_handle: String,
        end: &ProgramEnd,
    ) -> Answer {
        let of = self.loop_state(loop_id);
        let process = of.and_then(|l| l.processes.get(&process_handle));
        let runs = process.is_some_and(|p| p.end.is_none());
        if !runs || self.live.faulted.is_some() || self.session.state.stopped {
            return Answer::None;
        }
        if self.live.closing && *end == ProgramEnd::Stopped {
            // It went with its host: the next start says so.
            return Answer::None;
        }
        let (state, exit_code, reason) = match end {
            ProgramEnd::Exited(0) => (ProcessState::Exited, Some(0), "exit code 0".into()),
            ProgramEnd::Exited(code) => {
                let reason = match code {
                    129..=192 => format!("signal {}", code - 128),
                    code => format!("exit code {code}"),
                };
                (ProcessState::Failed, Some(*code), reason)
            }
            ProgramEnd::Stopped => (ProcessState::Stopped, None, "it was stopped".into()),
            ProgramEnd::NotStarted(error) => (ProcessState::Failed, None, error.to_string()),
            ProgramEnd::Lost => {
                let reason = "it was lost together with what supervised it";
                self.process_lost(loop_id, &process_handle, reason);
                return self.tell(loop_id, process_handle, ProcessState::Lost, reason.into());
            }
        };
        let reason = bounded(reason);
        self.event(
            loop_id,
            TurnId::ZERO,
            Cause::default(),
            EventBody::ProcessFinished {
                process_handle: process_handle.clone(),
                state,
                reason: reason.clone(),
                exit_code,
            },
        );
        if matches!(end, ProgramEnd::NotStarted(_)) {
            // Who asked for it is told directly.
            return Answer::None;
        }
        self.tell(loop_id, process_handle, state, reason)
    }

    fn process_lost(&mut self, loop_id: LoopId, process_handle: &str, reason: &str) {
        let body = EventBody::ProcessLost {
            process_handle: process_handle.into(),
            reason: reason.into(),
        };
        self.event(loop_id, TurnId::ZERO, Cause::default(), body);
    }

    /// The notification of an end. A session that is being shut down tells nobody any more.
    fn tell(
        &mut self,
        loop_id: LoopId,
        process_handle: String,
        state: ProcessState,
        reason: String,
    ) -> Answer {
        if self.live.shutdown.is_some() {
            return Answer::None;
        }
        let session_id = self.session.state.id;
        let notice = ProcessNotice {
            command_id: notification_of(session_id.0, &process_handle),
            session_id,
            loop_id,
            process_handle,
            state,
            reason,
        };
        Answer::Notified(self.take_notice(notice))
    }

    /// A notification from its source, perhaps not for the first time.
    pub(super) fn notify_process(&mut self, notice: ProcessNotice) -> Answer {
        if notice.session_id != self.session.state.id {
            return Answer::Notified(Notified::WrongSession);
        }
        if let Some(refused) = self.closed() {
            return self.refuse(refused);
        }
        if let Err(invalid) = self.notification(&notice).validate() {
            return self.refuse(Refused::InvalidRequest(invalid.to_string()));
        }
        Answer::Notified(self.take_notice(notice))
    }

    fn take_notice(&mut self, notice: ProcessNotice) -> Notified {
        let (id, loop_id) = (notice.command_id, notice.loop_id);
        let Some(of) = self.loop_state(loop_id) else {
            return Notified::Stopped;
        };
        let live = self.live.of(loop_id);
        let full = of.closed || live.dispatched(of) + self.notices_of_this(loop_id) >= MAX_NOTICES;
        match self.session.state.notified.get(&id) {
            Some(said) if *said != process::digest(&notice) => return Notified::Collision,
            Some(_) if !live.undispatched.contains(&id) => return Notified::Duplicate,
            Some(_) => {}
            None => {
                let command = self.notification(&notice);
                self.records.push(Record::Command(command));
            }
        }
        let undispatched = &mut self.live.of_mut(loop_id).undispatched;
        if full {
            undispatched.insert(id);
            Notified::Stopped
        } else {
            undispatched.remove(&id);
            Notified::Dispatched
        }
    }

    /// Notifications of the loop that this decision appends.
    fn notices_of_this(&self, of: LoopId) -> usize {
        let is_one = |record: &&Record| {
            matches!(record, Record::Command(Command {
                body: CommandBody::ProcessNotification { notification },
                ..
            }) if notification.loop_id == of)
        };
        self.records.iter().filter(is_one).count()
    }

    fn notification(&self, notice: &ProcessNotice) -> Command {
        let header = CommandHeader {
            command_id: notice.command_id,
            cause: Cause::default(),
            agency: Agency::Machine,
            created_at: self.cx.now,
            caller: None,
        };
        let notification = notice.clone();
        Command {
            header,
            body: CommandBody::ProcessNotification { notification },
        }
    }

    // ---- shutdown -----------------------------------------------------------------------------

    /// Ends what still runs before the session stops. True when nothing does (S94).
    pub(super) fn processes_have_ended(&mut self) -> bool {
        if self.session.state.running_processes().next().is_none() {
            return true;
        }
        if !self.live.ending_processes {
            self.live.ending_processes = true;
            self.effect(Effect::EndProcesses);
        }
        false
    }

    /// A process that cannot be ended costs its phase and no more.
    pub(super) fn processes_expired(&mut self) -> Answer {
        if !self.live.ending_processes || self.live.faulted.is_some() {
            return Answer::Bool(false);
        }
        let session = self.session;
        let mut any = false;
        for l in session.state.loops.values() {
            for (handle, _) in l.running_processes() {
                self.process_lost(l.id, handle, "it did not end in time");
                any = true;
            }
        }
        Answer::Bool(any)
    }

    /// Notifications that never reached their provider end with the session.
    pub(super) fn cancel_notices(&mut self, l: &LoopState) {
        for id in l.notices.keys() {
            self.event(
                l.id,
                TurnId::ZERO,
                Cause::by_agency(*id, Agency::Machine),
                EventBody::InputCancelled {
                    reason: CancelReason::ShuttingDown,
                },
            );
        }
        self.live.of_mut(l.id).undispatched.clear();
    }

    // ---- restore ------------------------------------------------------------------------------

    /// What runs only in the journal was lost with its host, and the loop is told (§6.1 step 4).
    /// A loop that is closed by the same restore is told nothing.
    pub(super) fn repair_processes(&mut self, l: &LoopState, tell: bool) {
        let reason = "its host was lost";
        for (handle, _) in l.running_processes() {
            let body = EventBody::ProcessLost {
                process_handle: handle.clone(),
                reason: reason.into(),
            };
            let what = format!("process {handle}");
            self.repair(&what, l.id, TurnId::ZERO, Cause::default(), body);
            if tell {
                self.tell(l.id, handle.clone(), ProcessState::Lost, reason.into());
            }
        }
    }

    /// Notifications that no durable event answers wait again, as many as the set holds (S72).
    pub(super) fn bring_notices_back(&mut self) {
        let session = self.session;
        for l in session.state.loops.values() {
            let most = if l.closed { 0 } else { MAX_NOTICES };
            if l.notices.len() > most {
                let beyond = l.notices.keys().skip(most).copied();
                self.live.of_mut(l.id).undispatched = beyond.collect();
            }
        }
    }
}

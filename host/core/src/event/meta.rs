//! Fixed properties of event types: class, scope, visibility, wire tag (S60).

use super::EventBody;

/// Whether an event is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Stored before it is shown; has a journal sequence.
    Enduring,
    /// Enduring, and the last of its unit.
    Terminal,
    /// Shown to who listens now.
    Ephemeral,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The session.
    Session,
    /// One loop.
    Loop,
}

/// Who sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Every subscriber.
    Public,
    /// The host alone.
    Internal,
}

/// Fixed properties of an event type (S60).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// The wire tag.
    pub name: &'static str,
    /// Its class.
    pub class: Class,
    /// Its scope.
    pub scope: Scope,
    /// Its visibility.
    pub visibility: Visibility,
}

impl EventBody {
    /// Class, scope and visibility of the type (S60).
    #[must_use]
    pub fn meta(&self) -> Meta {
        use Class::{Enduring, Ephemeral, Terminal};
        use Scope::{Loop, Session};
        use Visibility::{Internal, Public};
        let (name, class, scope, visibility) = match self {
            Self::SessionStarted { .. } => ("SessionStarted", Enduring, Session, Public),
            Self::SessionActive {} => ("SessionActive", Enduring, Session, Public),
            Self::SessionIdle {} => ("SessionIdle", Enduring, Session, Public),
            Self::SessionStopped {} => ("SessionStopped", Terminal, Session, Public),
            Self::RestoreStarted {} => ("RestoreStarted", Enduring, Session, Public),
            Self::RestoreDone {} => ("RestoreDone", Enduring, Session, Public),
            Self::RestoreErrored { .. } => ("RestoreErrored", Terminal, Session, Public),
            Self::ConfigurationAdopted { .. } => {
                ("ConfigurationAdopted", Enduring, Session, Public)
            }
            Self::SessionParamsChanged { .. } => {
                ("SessionParamsChanged", Enduring, Session, Public)
            }
            Self::ActiveLoopChanged { .. } => ("ActiveLoopChanged", Enduring, Session, Public),
            Self::WorkspaceCheckpointed { .. } => {
                ("WorkspaceCheckpointed", Enduring, Session, Public)
            }
            Self::WorkspaceRestored { .. } => ("WorkspaceRestored", Enduring, Session, Public),
            Self::LoopStarted { .. } => ("LoopStarted", Enduring, Loop, Public),
            Self::LoopModeChanged { .. } => ("LoopModeChanged", Enduring, Loop, Public),
            Self::LoopInferenceChanged { .. } => ("LoopInferenceChanged", Enduring, Loop, Public),
            Self::CompactionStarted {} => ("CompactionStarted", Ephemeral, Loop, Public),
            Self::CompactionCommitted { .. } => ("CompactionCommitted", Terminal, Loop, Public),
            Self::CompactionRejected { .. } => ("CompactionRejected", Terminal, Loop, Public),
            Self::CompactWaiterResolved {} => ("CompactWaiterResolved", Enduring, Loop, Public),
            Self::CompactWaiterRejected { .. } => ("CompactWaiterRejected", Enduring, Loop, Public),
            Self::DelegateRequestAccepted { .. } => {
                ("DelegateRequestAccepted", Enduring, Loop, Public)
            }
            Self::DelegateDeliveryStateChanged { .. } => {
                ("DelegateDeliveryStateChanged", Enduring, Loop, Public)
            }
            Self::LoopTombstoned { .. } => ("LoopTombstoned", Terminal, Loop, Public),
            Self::LoopIdle {} => ("LoopIdle", Enduring, Loop, Public),
            Self::NativeSessionBound { .. } => ("NativeSessionBound", Enduring, Loop, Public),
            Self::ProcessStarted { .. } => ("ProcessStarted", Enduring, Loop, Public),
            Self::ProcessFinished { .. } => ("ProcessFinished", Terminal, Loop, Public),
            Self::ProcessLost { .. } => ("ProcessLost", Terminal, Loop, Public),
            Self::TurnStarted { .. } => ("TurnStarted", Enduring, Loop, Public),
            Self::StepDone { .. } => ("StepDone", Enduring, Loop, Public),
            Self::TurnFoldedInto { .. } => ("TurnFoldedInto", Enduring, Loop, Public),
            Self::InputCancelled { .. } => ("InputCancelled", Enduring, Loop, Public),
            Self::InputHeld {} => ("InputHeld", Enduring, Loop, Public),
            Self::InputReleased {} => ("InputReleased", Enduring, Loop, Public),
            Self::TurnRejected { .. } => ("TurnRejected", Enduring, Loop, Public),
            Self::TurnDone { .. } => ("TurnDone", Terminal, Loop, Public),
            Self::TurnFailed { .. } => ("TurnFailed", Terminal, Loop, Public),
            Self::TurnInterrupted { .. } => ("TurnInterrupted", Terminal, Loop, Public),
            Self::NativeOperationResolved { .. } => {
                ("NativeOperationResolved", Enduring, Loop, Public)
            }
            Self::GatePrepared { .. } => ("GatePrepared", Enduring, Loop, Internal),
            Self::PermissionRequested { .. } => ("PermissionRequested", Enduring, Loop, Public),
            Self::UserInputRequested { .. } => ("UserInputRequested", Enduring, Loop, Public),
            Self::GateOpened { .. } => ("GateOpened", Enduring, Loop, Public),
            Self::GateResolved { .. } => ("GateResolved", Enduring, Loop, Public),
            Self::PermissionDecided { .. } => ("PermissionDecided", Enduring, Loop, Public),
            Self::TokenDelta { .. } => ("TokenDelta", Ephemeral, Loop, Public),
            Self::ToolStarted { .. } => ("ToolStarted", Ephemeral, Loop, Public),
            Self::ToolCompleted { .. } => ("ToolCompleted", Ephemeral, Loop, Public),
            Self::InputQueued {} => ("InputQueued", Ephemeral, Loop, Public),
            Self::CommandStateChanged { .. } => {
                ("command_state_changed", Ephemeral, Session, Public)
            }
        };
        Meta {
            name,
            class,
            scope,
            visibility,
        }
    }

    /// Every wire tag of the union.
    pub const TYPES: [&'static str; 50] = [
        "SessionStarted",
        "SessionActive",
        "SessionIdle",
        "SessionStopped",
        "RestoreStarted",
        "RestoreDone",
        "RestoreErrored",
        "ConfigurationAdopted",
        "SessionParamsChanged",
        "ActiveLoopChanged",
        "WorkspaceCheckpointed",
        "WorkspaceRestored",
        "LoopStarted",
        "LoopModeChanged",
        "LoopInferenceChanged",
        "CompactionStarted",
        "CompactionCommitted",
        "CompactionRejected",
        "CompactWaiterResolved",
        "CompactWaiterRejected",
        "DelegateRequestAccepted",
        "DelegateDeliveryStateChanged",
        "LoopTombstoned",
        "LoopIdle",
        "NativeSessionBound",
        "ProcessStarted",
        "ProcessFinished",
        "ProcessLost",
        "TurnStarted",
        "StepDone",
        "TurnFoldedInto",
        "InputCancelled",
        "InputHeld",
        "InputReleased",
        "TurnRejected",
        "TurnDone",
        "TurnFailed",
        "TurnInterrupted",
        "NativeOperationResolved",
        "GatePrepared",
        "PermissionRequested",
        "UserInputRequested",
        "GateOpened",
        "GateResolved",
        "PermissionDecided",
        "TokenDelta",
        "ToolStarted",
        "ToolCompleted",
        "InputQueued",
        "command_state_changed",
    ];
}

//! What can happen in a random life (see [`crate::property`]), and how often.

use harness_core::session::InvocationId;
use proptest::prelude::*;

/// Which of the things that are there.
pub(crate) type Pick = usize;

/// One thing that happens to a session.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Submit {
        no_fold: bool,
        fold_only: bool,
    },
    Prepare {
        exclusive: bool,
    },
    Reserve {
        pick: Pick,
        waited: bool,
    },
    Interrupt,
    CreateLoop,
    Activate(Pick),
    SubmitTo(Pick),
    InterruptLoop(Pick),
    Mode(Pick),
    Compact(Pick),
    Checkpoint,
    Rewind(u8),
    /// What works on the workspace comes to its end: well, or not.
    JobEnds {
        well: bool,
    },
    /// Other sessions come to the workspace, or leave it.
    Others {
        work: bool,
        hold: bool,
    },
    BarrierExpires,
    Child {
        pick: Pick,
        background: bool,
    },
    Tell {
        pick: Pick,
        background: bool,
        fold: bool,
    },
    AwaitRequest(Pick),
    CancelRequest(Pick),
    StopChild(Pick),
    Answer {
        pick: Pick,
        reply: usize,
    },
    AskAsHost {
        page: bool,
    },
    CloseHostGate(Pick),
    Claim(Pick),
    AnswerClaimed(Pick),
    GateTimeout(Pick),
    Retract(Pick),
    Release {
        pick: Pick,
        all: bool,
    },
    Settings(usize),
    CallerGone(Pick),
    Entered(Pick),
    Return {
        pick: Pick,
        how: usize,
    },
    Late {
        invocation: InvocationId,
        how: usize,
    },
    Write(Pick),
    Bind {
        pick: Pick,
        id: usize,
    },
    Ask {
        pick: Pick,
        stored: bool,
    },
    Unask {
        pick: Pick,
        withdraw: bool,
    },
    Take(Pick),
    Announce {
        native: usize,
        wanted: bool,
    },
    Unannounce(Pick),
    LinkAppend,
    ActivityBegan,
    ActivityEnded(Pick),
    ActivitiesSettled,
    /// Whether the session hears of it at once.
    SlotFreed {
        told: bool,
    },
    SlotTaken,
    StateChanged,
    Ids {
        broken: bool,
    },
    ProcessStarts(Pick),
    ProcessEnds {
        pick: Pick,
        how: usize,
    },
    ProcessesExpire,
    SaidAgain(Pick),
    DiskFull,
    Close,
    Shutdown,
    ShutdownExpires,
    Reopen,
    Crash,
}

/// A random act; what a session does most is tried most.
pub(crate) fn act() -> impl Strategy<Value = Act> {
    use Act::*;
    let pick = || 0..8_usize;
    prop_oneof![
        6 => (prop::bool::weighted(0.2), prop::bool::weighted(0.2))
            .prop_map(|(no_fold, fold_only)| Submit { no_fold, fold_only }),
        4 => any::<bool>().prop_map(|exclusive| Prepare { exclusive }),
        6 => (pick(), any::<bool>()).prop_map(|(pick, waited)| Reserve { pick, waited }),
        2 => Just(Interrupt),
        2 => Just(CreateLoop),
        3 => pick().prop_map(Activate),
        5 => pick().prop_map(SubmitTo),
        2 => pick().prop_map(InterruptLoop),
        1 => pick().prop_map(Mode),
        3 => pick().prop_map(Compact),
        3 => Just(Checkpoint),
        2 => (0..3_u8).prop_map(Rewind),
        6 => prop::bool::weighted(0.7).prop_map(|well| JobEnds { well }),
        1 => (any::<bool>(), prop::bool::weighted(0.3)).prop_map(|(work, hold)| Others { work, hold }),
        1 => Just(BarrierExpires),
        3 => (pick(), any::<bool>()).prop_map(|(pick, background)| Child { pick, background }),
        4 => (pick(), any::<bool>(), any::<bool>())
            .prop_map(|(pick, background, fold)| Tell { pick, background, fold }),
        2 => pick().prop_map(AwaitRequest),
        1 => pick().prop_map(CancelRequest),
        1 => pick().prop_map(StopChild),
        4 => (pick(), 0..7_usize).prop_map(|(pick, reply)| Answer { pick, reply }),
        2 => any::<bool>().prop_map(|page| AskAsHost { page }),
        1 => pick().prop_map(CloseHostGate),
        1 => pick().prop_map(Claim),
        1 => pick().prop_map(AnswerClaimed),
        1 => pick().prop_map(GateTimeout),
        2 => pick().prop_map(Retract),
        2 => (pick(), any::<bool>()).prop_map(|(pick, all)| Release { pick, all }),
        2 => (0..4_usize).prop_map(Settings),
        1 => pick().prop_map(CallerGone),
        3 => pick().prop_map(Entered),
        14 => (pick(), 0..12_usize).prop_map(|(pick, how)| Return { pick, how }),
        1 => (0..6_u64, 0..12_usize).prop_map(|(invocation, how)| Late { invocation, how }),
        3 => pick().prop_map(Write),
        2 => (pick(), 0..2_usize).prop_map(|(pick, id)| Bind { pick, id }),
        4 => (pick(), prop::bool::weighted(0.2)).prop_map(|(pick, stored)| Ask { pick, stored }),
        1 => (pick(), any::<bool>()).prop_map(|(pick, withdraw)| Unask { pick, withdraw }),
        2 => pick().prop_map(Take),
        4 => (0..4_usize, any::<bool>()).prop_map(|(native, wanted)| Announce { native, wanted }),
        1 => pick().prop_map(Unannounce),
        1 => Just(LinkAppend),
        1 => Just(ActivityBegan),
        1 => pick().prop_map(ActivityEnded),
        1 => Just(ActivitiesSettled),
        3 => prop::bool::weighted(0.7).prop_map(|told| SlotFreed { told }),
        2 => Just(SlotTaken),
        1 => Just(StateChanged),
        1 => any::<bool>().prop_map(|broken| Ids { broken }),
        4 => pick().prop_map(ProcessStarts),
        4 => (pick(), 0..5_usize).prop_map(|(pick, how)| ProcessEnds { pick, how }),
        1 => Just(ProcessesExpire),
        1 => pick().prop_map(SaidAgain),
        1 => Just(DiskFull),
        1 => Just(Close),
        1 => Just(Shutdown),
        1 => Just(ShutdownExpires),
        2 => Just(Reopen),
        3 => Just(Crash),
    ]
}

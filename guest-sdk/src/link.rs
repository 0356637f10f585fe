//! The life of the instance: native turns, activities, messages outside turns.

use crate::Hold;
use crate::abort::{AbortSignal, Holds};
use crate::sys::host;
use crate::types::{ChannelError, DiscoveryContext, Message, NativeTurn};
use std::rc::Rc;

/// Lent to [`Provider::run`](crate::Provider::run) for the life of the instance.
/// Cheap to clone: keep one where native events are handled.
#[derive(Clone, Debug)]
pub struct Link(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: host::Link,
    abort: AbortSignal,
    holds: Holds,
}

impl Link {
    pub(crate) fn new(raw: host::Link) -> Self {
        let abort = AbortSignal::new(raw.abort());
        Self(Rc::new(Inner {
            raw,
            abort,
            holds: Holds::default(),
        }))
    }

    pub(crate) fn raw(&self) -> &host::Link {
        &self.0.raw
    }

    pub(crate) fn holds(&self) -> Holds {
        self.0.holds.clone()
    }

    /// The session of this instance as it is now. Both ids absent: a draft
    /// instance, which serves discovery only.
    #[must_use]
    pub fn context(&self) -> DiscoveryContext {
        self.0.raw.context()
    }

    /// Fires when the instance is about to end.
    #[must_use]
    pub fn abort(&self) -> AbortSignal {
        self.0.abort.clone()
    }

    /// Keeps `run` alive after the instance's signal fired, see [`Hold`].
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.0.holds.hold()
    }

    /// Announces a native turn that no invocation asked for. `Ok`: the host calls
    /// [`Provider::adopt_turn`](crate::Provider::adopt_turn) with its id, perhaps
    /// before this returns. Waits while the host is busy with something that must
    /// come first, so never await it in the task that reads the native side.
    ///
    /// # Errors
    ///
    /// `Busy`: the turn belongs to the invocation that is live or starting.
    /// `Stopped`: interrupt it natively and disarm what would start more.
    /// `Closed`, `Denied`, `Failed`: it cannot run here at all.
    pub async fn announce_turn(&self, turn: NativeTurn) -> Result<(), ChannelError> {
        self.0.raw.announce_turn(turn).await
    }

    /// Appends a whole message outside any turn.
    ///
    /// # Errors
    ///
    /// `Closed` in a draft instance and at the end, `Limit` beyond a rate or size.
    pub async fn append(&self, message: Message) -> Result<(), ChannelError> {
        self.0.raw.append(message).await
    }

    /// Tells the host that native work goes on without a turn. While the activity
    /// is open the instance is not idle and a Stop reaches it.
    ///
    /// # Errors
    ///
    /// `Closed` in a draft instance and at the end, `Limit` beyond
    /// [`ACTIVITIES`](crate::limits::ACTIVITIES).
    pub fn begin_activity(&self, label: &str) -> Result<Activity, ChannelError> {
        let raw = self.0.raw.begin_activity(label)?;
        let abort = AbortSignal::new(raw.abort());
        Ok(Activity { abort, _raw: raw })
    }
}

/// Native work between two turns; ends when it is dropped.
///
/// Watch its signal in a task of its own: when it fires, disarm the work and drop
/// the activity within the drain bound, or the instance is ended.
#[derive(Debug)]
pub struct Activity {
    abort: AbortSignal,
    _raw: host::Activity,
}

impl Activity {
    /// Fires on Stop, also when no turn runs.
    #[must_use]
    pub fn abort(&self) -> AbortSignal {
        self.abort.clone()
    }
}

//! The inputs of calls that only read: discovery and preparation.

use crate::Hold;
use crate::abort::{AbortSignal, Holds};
use crate::sys::host;
use crate::types::{DiscoveryContext, OperationContext};

/// Input of one discovery or detection.
#[derive(Debug)]
pub struct Discovery {
    raw: host::Discovery,
    pub(crate) abort: AbortSignal,
    pub(crate) holds: Holds,
}

impl Discovery {
    pub(crate) fn new(raw: host::Discovery) -> Self {
        let abort = AbortSignal::new(raw.abort());
        Self {
            raw,
            abort,
            holds: Holds::default(),
        }
    }

    /// Where to look. Both ids are absent in a draft, the native one until a
    /// native conversation exists.
    #[must_use]
    pub fn context(&self) -> DiscoveryContext {
        self.raw.context()
    }

    /// The signal of this call.
    #[must_use]
    pub fn abort(&self) -> AbortSignal {
        self.abort.clone()
    }

    /// Keeps this call alive after an abort, see [`Hold`].
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.holds.hold()
    }
}

/// Input of one preparation.
#[derive(Debug)]
pub struct Preparation {
    raw: host::Preparation,
    pub(crate) abort: AbortSignal,
    pub(crate) holds: Holds,
}

impl Preparation {
    pub(crate) fn new(raw: host::Preparation) -> Self {
        let abort = AbortSignal::new(raw.abort());
        Self {
            raw,
            abort,
            holds: Holds::default(),
        }
    }

    /// The session the operation is meant for, with its stored settings.
    #[must_use]
    pub fn context(&self) -> OperationContext {
        self.raw.context()
    }

    /// The signal of this call.
    #[must_use]
    pub fn abort(&self) -> AbortSignal {
        self.abort.clone()
    }

    /// Keeps this call alive after an abort, see [`Hold`].
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.holds.hold()
    }
}

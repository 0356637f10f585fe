//! What a subscriber wants to see, by class of event and loop (S63).
//!
//! A filter never hides what concerns the session as a whole, and it is asked about public events
//! alone: internal ones become no frames. It is applied where frames are handed out, so what a
//! subscriber does not want takes no place in its queue. Not here: how a filter is spelled
//! (`harness-api`).

use crate::requests::Frame;
use harness_core::ids::LoopId;
use std::collections::BTreeSet;

/// Which loops' events of one class pass. Events of session scope pass every filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loops {
    /// Those of every loop.
    All,
    /// Those of these loops; of none when empty.
    These(BTreeSet<LoopId>),
}

impl Default for Loops {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Loops {
    fn pass(&self, loop_id: Option<LoopId>) -> bool {
        match (self, loop_id) {
            (Self::All, _) | (_, None) => true,
            (Self::These(ids), Some(id)) => ids.contains(&id),
        }
    }
}

/// What a subscriber wants to see. The default is events of session scope only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Of events that are in the journal.
    pub enduring: Loops,
    /// Of events that are not.
    pub ephemeral: Loops,
}

impl EventFilter {
    /// Every public event.
    pub const ALL: Self = Self {
        enduring: Loops::All,
        ephemeral: Loops::All,
    };

    /// Whether the subscriber wants this frame.
    #[must_use]
    pub fn passes(&self, frame: &Frame) -> bool {
        let loops = match frame.seq {
            Some(_) => &self.enduring,
            None => &self.ephemeral,
        };
        loops.pass(frame.loop_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn frame(seq: Option<u64>, loop_id: Option<LoopId>) -> Frame {
        Frame {
            seq,
            name: "X",
            loop_id,
            data: "{}".into(),
        }
    }

    #[test]
    fn s63_a_filter_is_asked_by_class_and_loop_and_hides_nothing_of_the_session() {
        let [a, b] = [1, 2].map(|n| LoopId::from(Uuid::from_u128(n)));
        let only_a = EventFilter {
            enduring: Loops::These([a].into()),
            ephemeral: Loops::default(),
        };
        for (filter, enduring, ephemeral) in [
            (EventFilter::ALL, [true, true], [true, true]),
            (EventFilter::default(), [false, false], [false, false]),
            (only_a, [true, false], [false, false]),
        ] {
            for (seq, wanted) in [(Some(7), enduring), (None, ephemeral)] {
                let of = |loop_id| filter.passes(&frame(seq, loop_id));
                assert_eq!([of(Some(a)), of(Some(b))], wanted, "{filter:?} {seq:?}");
                assert!(of(None), "session scope passes: {filter:?}");
            }
        }
    }
}

//! Turns that nobody asked for: how to tell the host, and what to do with its
//! answer.
//!
//! Run [`announce`] as a job of the connection ([`Connection::spawn`]): it waits
//! for the host, and the reader must not.
//!
//! [`Connection::spawn`]: crate::connection::Connection::spawn

use super::router::{NativeEvent, TurnRouter};
use crate::Link;
use crate::connection::transport::Clock;
use crate::types::{ChannelError, NativeTurn};
use std::hash::{BuildHasher, Hasher};

/// Milliseconds before a turn that was said to belong to a live invocation, and
/// is still unclaimed, is announced again.
const BUSY_MS: u32 = 250;
/// How often it is announced again, about five minutes in all.
const BUSY_ATTEMPTS: u32 = 1_200;

/// What became of an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    /// The host calls [`Provider::adopt_turn`](crate::Provider::adopt_turn).
    Reserved,
    /// A live invocation has claimed the events meanwhile.
    Claimed,
    /// Stop: interrupt the turn natively and disarm what would start more.
    Stopped,
    /// It cannot run here. What was heard can still be appended as a message
    /// outside any turn ([`Link::append`]).
    Refused(ChannelError),
}

/// Announces `turn`, whose events wait in the unclaimed slot of `key`.
///
/// `busy` means that the turn belongs to the invocation that is live or starting.
/// One that has just ended does not claim it any more; hence this asks again as
/// long as nobody does.
pub async fn announce<E: NativeEvent>(
    link: &Link,
    clock: &dyn Clock,
    router: &TurnRouter<E>,
    key: &str,
    turn: NativeTurn,
) -> Announced {
    for _ in 0..BUSY_ATTEMPTS {
        if !router.has_unclaimed(key) {
            return Announced::Claimed;
        }
        match link.announce_turn(turn.clone()).await {
            Ok(()) => return Announced::Reserved,
            Err(ChannelError::Busy) => clock.sleep(BUSY_MS).await,
            Err(ChannelError::Stopped) => return Announced::Stopped,
            Err(other) => return Announced::Refused(other),
        }
    }
    Announced::Refused(ChannelError::Busy)
}

/// An id for a native turn whose protocol gives it none. Unlike a counter it is
/// not used twice by two instances of one session, which the host would refuse.
#[must_use]
pub fn fresh_turn_id() -> String {
    let random = || {
        std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish()
    };
    format!("turn-{:016x}{:016x}", random(), random())
}

//! How many files the process may have open: every connection, instance and process takes some.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than this is not asked for: some programs walk all descriptors up to the limit.
const WANTED: u64 = 65_536;

/// Raises the soft limit as far as the hard one allows. Many systems start processes with 1024.
pub(crate) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(wanted),
                maximum,
            },
        )
    {
        tracing::warn!(%error, "the limit of open files stays low");
    }
}

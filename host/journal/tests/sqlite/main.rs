//! The embedded store: the conformance suite, and what is its own: files, locks, crashes, groups.

mod support;

mod conformance;
mod durability;
mod fault;
mod full;
mod group;
mod opening;
mod properties;

//! One file a resource: what its requests look like and what they are answered with.

pub(crate) mod commands;
pub(crate) mod events;
pub(crate) mod gates;
pub(crate) mod harnesses;
pub(crate) mod health;
pub(crate) mod input;
pub(crate) mod journal;
pub(crate) mod loops;
pub(crate) mod pages;
pub(crate) mod processes;
pub(crate) mod projects;
pub(crate) mod providers;
pub(crate) mod sessions;
pub(crate) mod snapshots;
pub(crate) mod tokens;
pub(crate) mod workspaces;

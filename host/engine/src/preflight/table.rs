//! The pre-flight report as a table for a terminal.

use super::{CONTRACT, PACKAGE, Preflight};
use std::fmt;

/// What the host has for an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// Every provider gets it.
    Always,
    /// WASI without anything to reach.
    Empty,
    /// Granted.
    Granted,
    /// Needs a grant; grants were not compared.
    NeedsGrant(&'static str),
    /// Not granted; how to give it.
    NotGranted(&'static str),
    /// Another version of the contract; the nearest one offered.
    OtherVersion(String),
    /// Not offered.
    Unknown,
}

/// One import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRow {
    /// Its name with version.
    pub wanted: String,
    /// What the host has for it.
    pub offer: Offer,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("yes"),
            Self::Empty => f.write_str("yes, empty"),
            Self::Granted => f.write_str("yes, granted"),
            Self::NeedsGrant(how) => write!(f, "with a grant: {how}"),
            Self::NotGranted(how) => write!(f, "NO: not granted; add {how}"),
            Self::OtherVersion(nearest) => write!(f, "NO: another version; nearest is {nearest}"),
            Self::Unknown => f.write_str("NO: not offered by this host"),
        }
    }
}

impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contract = self.contract.as_deref().unwrap_or("none");
        writeln!(f, "contract   {PACKAGE}@{contract} (this host: {CONTRACT})")?;
        writeln!(f, "memory     {} bytes to begin with", self.memory)?;
        let width = self
            .imports
            .iter()
            .map(|row| row.wanted.len())
            .max()
            .unwrap_or(6)
            .max(6);
        writeln!(f, "{:width$}  offered", "wanted")?;
        for row in &self.imports {
            writeln!(f, "{:width$}  {}", row.wanted, row.offer)?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        Ok(())
    }
}

//! Revisions: what a person saw when they decided.

use crate::types::Error;
use sha2::{Digest, Sha256};
use std::fmt::{self, Display};

/// Names one version of a native proposal. Published as a confirmation's `id` and
/// passed back as the action's argument on approval (R5, R111).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revision(String);

impl Revision {
    /// A revision that the native side names itself.
    pub fn native(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// A revision made of the proposal's content: equal parts, equal revision.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let hex = hash
            .finalize()
            .iter()
            .take(12)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self(hex)
    }

    /// Whether the argument of an approval names this revision.
    ///
    /// # Errors
    ///
    /// `InvalidOperation` without an argument, `StaleRevision` for another one.
    pub fn check(&self, argument: Option<&str>) -> Result<(), Error> {
        match argument {
            None => Err(Error::InvalidOperation(
                "the approval must carry the revision of the proposal as its argument".to_owned(),
            )),
            Some(revision) if revision == self.0 => Ok(()),
            Some(_) => Err(Error::StaleRevision(
                "the proposal has changed since; read it again".to_owned(),
            )),
        }
    }
}

impl Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Revision> for String {
    fn from(revision: Revision) -> Self {
        revision.0
    }
}

#[cfg(test)]
mod tests {
    use super::Revision;
    use crate::types::Error;

    #[test]
    fn r111_only_the_current_revision_passes() {
        let revision = Revision::of(["plan", "1"]);
        assert_eq!(revision.check(Some(&revision.to_string())), Ok(()));
        assert!(matches!(
            revision.check(None),
            Err(Error::InvalidOperation(_))
        ));
        let other = Revision::of(["plan1", ""]).to_string();
        assert!(matches!(
            revision.check(Some(&other)),
            Err(Error::StaleRevision(_))
        ));
    }
}

//! The name of a snapshot.

use crate::error::WorkspaceError;
use std::fmt;
use std::str::FromStr;

/// SHA-256 of something.
pub(crate) type Hash = [u8; 32];

const PREFIX: &str = "v1:sha256:";

/// `v1:sha256:` and 64 lower-case hexadecimal digits: the SHA-256 of a full-tree manifest (S98).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ref(pub(crate) Hash);

impl FromStr for Ref {
    type Err = WorkspaceError;

    fn from_str(text: &str) -> Result<Self, WorkspaceError> {
        let digits = text
            .strip_prefix(PREFIX)
            .filter(|digits| {
                digits
                    .bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            })
            .ok_or(WorkspaceError::RefMalformed)?;
        let mut hash = [0; 32];
        hex::decode_to_slice(digits, &mut hash).map_err(|_| WorkspaceError::RefMalformed)?;
        Ok(Self(hash))
    }
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s98_a_ref_is_exactly_its_prefix_and_64_lower_case_digits() {
        let good = format!("v1:sha256:{}", "0a".repeat(32));
        assert_eq!(good.parse::<Ref>().unwrap().to_string(), good);
        for bad in [
            String::new(),
            "v1:sha256:".into(),
            "0a".repeat(32),
            format!("v2:sha256:{}", "0a".repeat(32)),
            format!("v1:sha256:{}", "0A".repeat(32)),
            format!("v1:sha256:{}", "0a".repeat(31)),
            format!("v1:sha256:{}0", "0a".repeat(31)),
            format!("v1:sha256:{}", "0a".repeat(33)),
            format!(" v1:sha256:{}", "0a".repeat(32)),
            format!("v1:sha256:{}\n", "0a".repeat(32)),
            format!("v1:sha512:{}", "0a".repeat(32)),
        ] {
            let refused = bad.parse::<Ref>().unwrap_err();
            assert_eq!(refused.code(), "ref_malformed", "{bad:?}");
        }
    }
}

//! Durations (`120s`, `5min`) and sizes (`256MiB`, `64KiB`) as an operator writes them.
//!
//! A unit is required: a bare number is refused, since nobody can tell what it counts.

use bytesize::ByteSize;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::time::Duration;

/// A duration as written, not yet read.
#[derive(Debug, Clone)]
pub(super) struct WrittenDuration(pub(super) String);

/// A size as written, not yet read.
#[derive(Debug, Clone)]
pub(super) struct WrittenSize(pub(super) String);

impl WrittenDuration {
    /// Reads it; `None` when it is not a duration.
    pub(super) fn read(&self) -> Option<Duration> {
        humantime::parse_duration(self.0.trim()).ok()
    }
}

impl WrittenSize {
    /// Reads it as bytes; `None` when it is not a size.
    pub(super) fn read(&self) -> Option<u64> {
        let text = self.0.trim();
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        text.parse::<ByteSize>().ok().map(|size| size.as_u64())
    }
}

/// Shows a duration the way it is written.
pub(super) fn duration_text(duration: Duration) -> String {
    humantime::format_duration(duration)
        .to_string()
        .replace(' ', "")
}

/// Shows a size the way it is written.
pub(super) fn size_text(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    UNITS
        .iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .map_or_else(
            || format!("{bytes}B"),
            |(unit, name)| format!("{}{name}", bytes / unit),
        )
}

/// Takes a string, and says what a number lacks.
struct WithUnit {
    expected: &'static str,
}

impl Visitor<'_> for WithUnit {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for WrittenDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a duration with its unit in quotes, like \"120s\"";
        deserializer
            .deserialize_str(WithUnit { expected })
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for WrittenSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a size with its unit in quotes, like \"256MiB\"";
        deserializer
            .deserialize_str(WithUnit { expected })
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_with_their_unit() {
        let duration = |text: &str| WrittenDuration(text.to_owned()).read();
        assert_eq!(duration("120s"), Some(Duration::from_secs(120)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("1h 30min"), Some(Duration::from_secs(5400)));
        for bad in ["", "120", "fast", "-1s", "1 fortnight"] {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
        let size = |text: &str| WrittenSize(text.to_owned()).read();
        assert_eq!(size("256MiB"), Some(256 << 20));
        assert_eq!(size("64 KiB"), Some(64 << 10));
        assert_eq!(size("512B"), Some(512));
        for bad in ["", "1024", "big", "-1MiB", "10 parsecs"] {
            assert_eq!(size(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn values_are_shown_the_way_they_are_written() {
        assert_eq!(size_text(256 << 20), "256MiB");
        assert_eq!(size_text(1000), "1000B");
        assert_eq!(duration_text(Duration::from_secs(5400)), "1h30m");
        for seconds in [1, 59, 61, 3600, 86_400] {
            let duration = Duration::from_secs(seconds);
            assert_eq!(
                WrittenDuration(duration_text(duration)).read(),
                Some(duration)
            );
        }
    }
}

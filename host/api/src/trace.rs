//! W3C trace context: which caller's trace a request belongs to.
//!
//! Only the header's form is judged here; what carries spans anywhere is set up by the binary.

use http::HeaderMap;

/// The trace id of a valid `traceparent` header (W3C Trace Context §3.2), else `None`.
pub(crate) fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all("traceparent").iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let mut parts = value.to_str().ok()?.split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, len: usize| {
        text.len() == len
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let zero = |text: &str| text.bytes().all(|b| b == b'0');
    let valid = hex(version, 2)
        && version != "ff"
        && (version != "00" || parts.next().is_none())
        && hex(trace, 32)
        && !zero(trace)
        && hex(parent, 16)
        && !zero(parent)
        && hex(flags, 2);
    valid.then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_parents_are_taken() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        for (value, valid) in [
            (format!("00-{trace}-b7ad6b7169203331-01"), true),
            (format!("01-{trace}-b7ad6b7169203331-01-later"), true),
            (format!("00-{trace}-b7ad6b7169203331-01-more"), false),
            (format!("ff-{trace}-b7ad6b7169203331-01"), false),
            (format!("00-{trace}-0000000000000000-01"), false),
            (format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)), false),
            (
                format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
                false,
            ),
            ("00".into(), false),
            (String::new(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", value.parse().unwrap());
            assert_eq!(trace_id(&headers), valid.then_some(trace), "{value}");
        }
    }
}

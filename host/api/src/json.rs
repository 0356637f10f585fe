//! Strict JSON: one object, every member known and given once (G2).
//!
//! The typed parse refuses what a type does not know. Two things it would let pass are refused
//! before it: a key that is given twice inside a free map, where the last would win silently, and
//! a list in the place of an object, whose items it would take for the members in order.

use crate::problem::Problem;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Parses a body; the problem names the place and what was expected there.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = match std::str::from_utf8(bytes) {
        Ok("") => "{}",
        Ok(text) => text,
        Err(error) => {
            return Err(Problem::invalid(format!(
                "the body is not valid UTF-8 at byte {}; send JSON in UTF-8",
                error.valid_up_to()
            )));
        }
    };
    objects_once(text)?;
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let place = error.path().to_string();
        let inner = error.into_inner();
        let hint = if inner.is_data() {
            ""
        } else {
            "; the body has to be one JSON object"
        };
        let told = without_value(&inner.to_string());
        match place.as_str() {
            "." | "?" => Problem::invalid(format!("{told}{hint}")),
            place => Problem::invalid(format!("`{place}`: {told}{hint}")),
        }
    })?;
    json.end().map_err(|error| {
        Problem::invalid(format!("{error}; the body has to be one JSON object"))
    })?;
    Ok(value)
}

/// What the parser says of a value of the wrong type, without the value: it may be a secret (S81).
fn without_value(said: &str) -> String {
    let quotes = ["invalid type: ", "invalid value: "]
        .iter()
        .any(|what| said.starts_with(what));
    match said.rsplit_once(", expected ") {
        Some((found, expected)) if quotes => {
            let kind = found.split(['`', '"']).next().unwrap_or_default();
            format!("{}, expected {expected}", kind.trim_end())
        }
        _ => said.to_owned(),
    }
}

/// Members whose value is one object, or a list of them.
const OBJECTS: [&str; 6] = [
    "operation",
    "target",
    "default_workspace",
    "params",
    "blocks",
    "prompt",
];

/// Refuses a key that is given twice, and a list where an object is expected. Text that is no JSON
/// is left to the parser, which says more about it.
fn objects_once(text: &str) -> Result<(), Problem> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = match json.deserialize_any(Unique) {
        Ok(value) => value,
        Err(error) if error.is_data() => return Err(Problem::invalid(error.to_string())),
        Err(_) => return Ok(()),
    };
    let Some(members) = value.as_object() else {
        return Err(Problem::invalid("the body has to be one JSON object"));
    };
    for name in OBJECTS {
        let Some(member) = members.get(name) else {
            continue;
        };
        let list = matches!(name, "blocks" | "prompt");
        let wrong = match member {
            Value::Array(items) if list => items.iter().any(Value::is_array),
            other => other.is_array(),
        };
        if wrong {
            return Err(Problem::invalid(format!(
                "`{name}`: a list stands where an object is expected; name the members"
            )));
        }
    }
    Ok(())
}

/// Any JSON value in which no object has a key twice.
struct Unique;

impl<'de> serde::de::DeserializeSeed<'de> for Unique {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Unique)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(Error::custom(format_args!(
                    "duplicate field `{key}`; give it once"
                )));
            }
            let value = members.next_value_seed(Unique)?;
            object.insert(key, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code)]
        inner: Inner,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code)]
        n: u32,
    }

    #[test]
    fn s81_a_problem_does_not_repeat_a_value() {
        for value in [
            r#""hush""#,
            r#""hush\", expected hush""#,
            "-8472",
            "84.72",
            r#"["hush"]"#,
            r#"{"n":"hush"}"#,
        ] {
            let body = format!(r#"{{"inner":{{"n":{value}}}}}"#);
            let problem = parse::<Outer>(body.as_bytes()).unwrap_err();
            let text = String::from_utf8(problem.render("").to_vec()).unwrap();
            assert!(text.contains("`inner.n`: invalid"), "{text}");
            assert!(text.contains("expected u32"), "{text}");
            for secret in ["hush", "84"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    }

    #[test]
    fn g2_a_problem_names_the_place() {
        for (body, expected) in [
            (&br#"{"inner":{"n":"x"}}"#[..], "`inner.n`: invalid type"),
            (br#"{"inner":{"n":1,"m":2}}"#, "unknown field `m`"),
            (br#"{"inner":{"n":1}} x"#, "trailing characters"),
            (br#"{"inner":{"n":1}"#, "EOF"),
            (b"", "missing field `inner`"),
            (b"{\"inner\":\xff}", "not valid UTF-8 at byte 9"),
            (
                br#"{"inner":{"n":1},"inner":{"n":1}}"#,
                "duplicate field `inner`",
            ),
            (
                br#"{"inner":{"n":1},"params":{"a":[{"b":1,"b":2}]}}"#,
                "duplicate field `b`; give it once at line 1 column 42",
            ),
        ] {
            let problem = parse::<Outer>(body).unwrap_err();
            let text = String::from_utf8(problem.render("").to_vec()).unwrap();
            let document: crate::ProblemDocument = serde_json::from_str(&text).unwrap();
            assert!(
                document.detail.contains(expected),
                "{} / {expected}",
                document.detail
            );
        }
    }
}

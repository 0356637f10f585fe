//! Forms that the host itself puts to a person, and values checked against them (S81, S88).
//!
//! A secret value reaches the live waiter only; whatever is stored or shown holds
//! `{"redacted":true}` in its place, the default of a secret field included. No message of this
//! module repeats a value.

use super::{Choice, MAX_ANSWER, ReplyError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Fields a form may have.
const MAX_FIELDS: usize = 64;
/// Choices a field may have.
const MAX_CHOICES: usize = 256;
/// Longest text for a person, in bytes.
const MAX_TEXT: usize = 4 * 1024;

/// A form that waits for its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FormGate {
    /// Computed from the fields, never given by the opener (S88).
    pub title: String,
    /// What it is for, in the opener's words.
    pub message: String,
    /// Its fields, in order.
    pub fields: Vec<Field>,
}

/// One field of a form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Field {
    /// Unique in the form; the key of its value. 1 to 128 bytes.
    pub name: String,
    /// What is asked.
    pub label: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it takes.
    #[serde(flatten)]
    pub kind: FieldKind,
    /// Whether it has to be filled in.
    #[serde(default)]
    pub required: bool,
    /// The value reaches the host's waiter only (S81).
    #[serde(default)]
    pub secret: bool,
    /// The value when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Shown>,
}

/// What a field takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FieldKind {
    /// A text of at most 16 KiB.
    Text {},
    /// A whole number.
    Integer {
        /// The least it takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<i64>,
        /// The most it takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<i64>,
    },
    /// True or false.
    Boolean {},
    /// One of the choices, or a list of them.
    Choice {
        /// The choices; at least one.
        choices: Vec<Choice>,
        /// The value is a list, each choice at most once.
        #[serde(default)]
        multiple: bool,
    },
}

/// A value of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FieldValue {
    /// Of a boolean field.
    Boolean(bool),
    /// Of an integer field.
    Integer(i64),
    /// Of a text field, or one choice.
    Text(String),
    /// Several choices.
    Choices(Vec<String>),
}

/// A value as it is stored and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Shown {
    /// As it is.
    Value(FieldValue),
    /// There is one, and it is secret.
    Redacted {
        /// Always true.
        redacted: bool,
    },
}

impl Shown {
    /// In place of a secret.
    pub const REDACTED: Self = Self::Redacted { redacted: true };
}

/// What a form's title says of its fields.
pub(super) fn title(fields: &[Field]) -> String {
    let secret = fields.iter().filter(|f| f.secret).count();
    let fields = match fields.len() {
        1 => "Fill in 1 field".to_owned(),
        n => format!("Fill in {n} fields"),
    };
    match secret {
        0 => fields,
        n => format!("{fields}, {n} of them secret"),
    }
}

/// The fields as they are stored and shown.
pub(super) fn redacted(fields: &[Field]) -> Vec<Field> {
    let of = |field: &Field| {
        let mut field = field.clone();
        if field.secret && field.default.is_some() {
            field.default = Some(Shown::REDACTED);
        }
        field
    };
    fields.iter().map(of).collect()
}

/// Checks what an opener asks.
///
/// # Errors
/// A sentence that names the field and the rule.
pub(super) fn check(fields: &[Field]) -> Result<(), String> {
    if fields.is_empty() || fields.len() > MAX_FIELDS {
        return Err(format!("a form has 1 to {MAX_FIELDS} fields"));
    }
    let mut names = BTreeSet::new();
    for field in fields {
        let name = &field.name;
        if name.is_empty() || name.len() > 128 {
            return Err("the name of a field has 1 to 128 bytes".into());
        }
        if !names.insert(name) {
            return Err(format!("field `{name}` is there twice"));
        }
        let description = field.description.as_deref().unwrap_or("");
        if field.label.is_empty() || field.label.len() > MAX_TEXT || description.len() > MAX_TEXT {
            return Err(format!(
                "field `{name}` has a label of 1 to {MAX_TEXT} bytes and a description of at most that"
            ));
        }
        match &field.kind {
            FieldKind::Integer {
                min: Some(min),
                max: Some(max),
            } if min > max => return Err(format!("field `{name}` takes no number at all")),
            FieldKind::Choice { choices, .. } => check_choices(name, choices)?,
            _ => {}
        }
        match &field.default {
            None => {}
            Some(Shown::Value(value)) => {
                let fits = field.take(&plain(value)).map_err(|e| e.to_string())?;
                if fits != *value {
                    return Err(format!("the default of field `{name}` is of another type"));
                }
            }
            Some(Shown::Redacted { .. }) => {
                return Err(format!("the default of field `{name}` is no value"));
            }
        }
    }
    Ok(())
}

fn check_choices(name: &str, choices: &[Choice]) -> Result<(), String> {
    if choices.is_empty() || choices.len() > MAX_CHOICES {
        return Err(format!("field `{name}` has 1 to {MAX_CHOICES} choices"));
    }
    let mut values = BTreeSet::new();
    for choice in choices {
        let description = choice.description.as_deref().unwrap_or("");
        let long = [&choice.value, &choice.label]
            .into_iter()
            .any(|t| t.len() > MAX_TEXT);
        if long || description.len() > MAX_TEXT {
            return Err(format!(
                "the texts of a choice of field `{name}` have at most {MAX_TEXT} bytes"
            ));
        }
        if !values.insert(&choice.value) {
            return Err(format!("field `{name}` has a choice twice"));
        }
    }
    Ok(())
}

fn plain(value: &FieldValue) -> Value {
    match value {
        FieldValue::Boolean(b) => Value::from(*b),
        FieldValue::Integer(n) => Value::from(*n),
        FieldValue::Text(text) => Value::from(text.as_str()),
        FieldValue::Choices(values) => Value::from(values.clone()),
    }
}

/// The values that a person gave, checked: those that were left out are not in it.
///
/// # Errors
/// The first rule that is broken.
pub(super) fn values(
    fields: &[Field],
    given: &Map<String, Value>,
) -> Result<BTreeMap<String, FieldValue>, ReplyError> {
    if let Some(unknown) = given.keys().find(|k| fields.iter().all(|f| f.name != **k)) {
        let known: Vec<_> = fields.iter().map(|f| format!("`{}`", f.name)).collect();
        let unknown: String = unknown.chars().take(80).collect();
        return Err(ReplyError::Invalid(format!(
            "`{unknown}` is no field of this form; it has {}",
            known.join(", ")
        )));
    }
    let mut taken = BTreeMap::new();
    for field in fields {
        match given.get(&field.name) {
            Some(value) => {
                taken.insert(field.name.clone(), field.take(value)?);
            }
            None if field.required && field.default.is_none() => {
                return Err(ReplyError::Invalid(format!(
                    "field `{}` is missing; it is required",
                    field.name
                )));
            }
            None => {}
        }
    }
    Ok(taken)
}

/// The values as they are stored and shown.
#[must_use]
pub fn shown(fields: &[Field], values: &BTreeMap<String, FieldValue>) -> BTreeMap<String, Shown> {
    let is_secret = |name: &str| fields.iter().any(|f| f.name == name && f.secret);
    let of = |(name, value): (&String, &FieldValue)| {
        let shown = if is_secret(name) {
            Shown::REDACTED
        } else {
            Shown::Value(value.clone())
        };
        (name.clone(), shown)
    };
    values.iter().map(of).collect()
}

impl Field {
    fn take(&self, value: &Value) -> Result<FieldValue, ReplyError> {
        let takes =
            |what: String| ReplyError::Invalid(format!("field `{}` takes {what}", self.name));
        match &self.kind {
            FieldKind::Text {} => match value.as_str() {
                Some(text) if text.len() > MAX_ANSWER => {
                    Err(ReplyError::TooLarge { bytes: text.len() })
                }
                Some("") if self.required => Err(takes("a text that is not empty".into())),
                Some(text) => Ok(FieldValue::Text(text.into())),
                None => Err(takes("a text".into())),
            },
            FieldKind::Integer { min, max } => {
                let fits = |n: &i64| min.is_none_or(|m| *n >= m) && max.is_none_or(|m| *n <= m);
                let number = value.as_i64().filter(fits);
                number
                    .map(FieldValue::Integer)
                    .ok_or_else(|| takes(format!("a whole number{}", range(*min, *max))))
            }
            FieldKind::Boolean {} => value
                .as_bool()
                .map(FieldValue::Boolean)
                .ok_or_else(|| takes("true or false".into())),
            FieldKind::Choice {
                choices,
                multiple: false,
            } => {
                let listed = |v: &&str| choices.iter().any(|c| c.value == **v);
                let value = value.as_str().filter(listed);
                value
                    .map(|v| FieldValue::Text(v.into()))
                    .ok_or_else(|| takes("the `value` of one of its choices".into()))
            }
            FieldKind::Choice { choices, .. } => self.several(choices, value).ok_or_else(|| {
                takes("a list of the `value`s of its choices, each at most once".into())
            }),
        }
    }

    fn several(&self, choices: &[Choice], value: &Value) -> Option<FieldValue> {
        let mut seen = BTreeSet::new();
        let mut values = Vec::new();
        for value in value.as_array()? {
            let value = value.as_str()?;
            if !choices.iter().any(|c| c.value == value) || !seen.insert(value) {
                return None;
            }
            values.push(value.to_owned());
        }
        (!self.required || !values.is_empty()).then_some(FieldValue::Choices(values))
    }
}

fn range(min: Option<i64>, max: Option<i64>) -> String {
    match (min, max) {
        (Some(min), Some(max)) => format!(" from {min} to {max}"),
        (Some(min), None) => format!(" of at least {min}"),
        (None, Some(max)) => format!(" of at most {max}"),
        (None, None) => String::new(),
    }
}

//! Parses requests like the original server: unknown fields are ignored, numbers in strings are accepted, and all
//! invalid fields are reported at once with their location.

use std::ops::RangeInclusive;

use axum::extract::Request;
use axum::http::StatusCode;
use laneway_core::{Span, Wall};
use serde_json::{Map, Value, json};

use super::error::{Problem, Wrong};
use super::time;
use crate::body::{self, BodyError};

/// Largest body, in bytes.
pub const BODY_MAX: usize = 1 << 20;
/// Most items in a list of texts.
const LIST_MAX: usize = 256;

/// The whole body of a request.
pub async fn read_body(request: Request) -> Result<Vec<u8>, Problem> {
    body::read(request, BODY_MAX).await.map_err(|error| match error {
        BodyError::TooLarge => Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
        BodyError::Late => Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
        BodyError::Busy => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_bodies").retry_after(Span::secs(1))
        }
        BodyError::Broken => Problem::new(StatusCode::BAD_REQUEST, "body_broken_off"),
    })
}

/// The fields of a request. Errors are collected, and returned by [`Form::finish`].
#[derive(Debug)]
pub struct Form {
    executor: &'static str,
    fields: Map<String, Value>,
    wrong: Vec<Wrong>,
}

impl Form {
    /// The fields of a body, which must be a JSON object.
    pub fn of_body(body: &[u8]) -> Result<Form, Problem> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(Problem::invalid(&[Wrong::new(
                "missing",
                vec!["body".into()],
                "Field required",
                &Value::Null,
            )]));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Form { executor: "body", fields, wrong: Vec::new() }),
            Ok(other) => Err(Problem::invalid(&[Wrong::new(
                "model_attributes_type",
                vec!["body".into()],
                "Input should be a valid dictionary or object to extract fields from",
                &other,
            )])),
            Err(error) => {
                let at = offset(body, error.line(), error.column());
                let loc = vec!["body".into(), at.into()];
                let wrong = Wrong::new("json_invalid", loc, "JSON decode error", &json!({}));
                Err(Problem::invalid(&[wrong.with(json!({"error": error.to_string()}))]))
            }
        }
    }

    /// The fields of a query; of two with one name the last one counts.
    pub fn of_query(query: Option<&str>) -> Form {
        let mut fields = Map::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            fields.insert(unescaped(name), Value::String(unescaped(value)));
        }
        Form { executor: "query", fields, wrong: Vec::new() }
    }

    /// The collected errors, if there are any.
    pub fn finish(self) -> Result<(), Problem> {
        if self.wrong.is_empty() { Ok(()) } else { Err(Problem::invalid(&self.wrong)) }
    }

    /// True when the field exists and is not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    /// Adds an error about a field that only its reader can check.
    pub fn reject(&mut self, name: &str, r#type: &'static str, msg: &str) {
        let input = self.fields.get(name).cloned().unwrap_or_default();
        self.add(Wrong::new(r#type, self.loc(name), msg, &input));
    }

    /// A required text.
    pub fn text(&mut self, name: &str) -> String {
        match self.fields.get(name).cloned() {
            None => self.missing(name),
            Some(value) => self.as_text(name, value).unwrap_or_default(),
        }
    }

    /// A text; `null` is absent.
    pub fn opt_text(&mut self, name: &str) -> Option<String> {
        let value = self.some(name)?;
        self.as_text(name, value)
    }

    /// A text, with a default.
    pub fn text_or(&mut self, name: &str, default: &str) -> String {
        match self.fields.get(name).cloned() {
            None => default.to_owned(),
            Some(value) => self.as_text(name, value).unwrap_or_default(),
        }
    }

    fn as_text(&mut self, name: &str, value: Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text),
            other => self.bad(name, "string_type", "Input should be a valid string", &other),
        }
    }

    /// A required integer.
    pub fn int(&mut self, name: &str, range: RangeInclusive<i64>) -> i64 {
        match self.fields.get(name).cloned() {
            None => self.missing(name),
            Some(value) => self.as_int(name, &value, range).unwrap_or_default(),
        }
    }

    /// An integer; `null` is absent.
    pub fn opt_int(&mut self, name: &str, range: RangeInclusive<i64>) -> Option<i64> {
        let value = self.some(name)?;
        self.as_int(name, &value, range)
    }

    /// An integer, with a default.
    pub fn int_or(&mut self, name: &str, default: i64, range: RangeInclusive<i64>) -> i64 {
        match self.fields.get(name).cloned() {
            None => default,
            Some(value) => self.as_int(name, &value, range).unwrap_or_default(),
        }
    }

    /// The same; a value outside the range is clamped.
    pub fn int_clamped(&mut self, name: &str, default: i64, range: RangeInclusive<i64>) -> i64 {
        let (least, most) = (*range.start(), *range.end());
        self.int_or(name, default, i64::MIN..=i64::MAX).clamp(least, most)
    }

    fn as_int(&mut self, name: &str, value: &Value, range: RangeInclusive<i64>) -> Option<i64> {
        let number = match value {
            Value::Bool(flag) => i64::from(*flag),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => number,
                (None, Some(number)) if number.fract() == 0.0 => number as i64,
                _ => {
                    let message = "Input should be a valid integer, got a number with a fractional part";
                    return self.bad(name, "int_from_float", message, value);
                }
            },
            Value::String(text) => match int_of(text.trim()) {
                Some(number) => number,
                None => {
                    let message = "Input should be a valid integer, unable to parse string as an integer";
                    return self.bad(name, "int_parsing", message, value);
                }
            },
            other => return self.bad(name, "int_type", "Input should be a valid integer", other),
        };
        self.in_range(name, value, number, range)
    }

    fn in_range(
        &mut self,
        name: &str,
        value: &Value,
        number: i64,
        range: RangeInclusive<i64>,
    ) -> Option<i64> {
        let (least, most) = (*range.start(), *range.end());
        let (r#type, message, ctx) = if number < least {
            let message = format!("Input should be greater than or equal to {least}");
            ("greater_than_equal", message, json!({"ge": least}))
        } else if number > most {
            let message = format!("Input should be less than or equal to {most}");
            ("less_than_equal", message, json!({"le": most}))
        } else {
            return Some(number);
        };
        self.add(Wrong::new(r#type, self.loc(name), message, value).with(ctx));
        None
    }

    /// A number of at least 0; `null` is absent.
    pub fn opt_number(&mut self, name: &str, most: f64) -> Option<f64> {
        let value = self.some(name)?;
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            other => return self.bad(name, "float_type", "Input should be a valid number", other),
        };
        let Some(number) = number.filter(|number: &f64| number.is_finite()) else {
            let message = "Input should be a valid number, unable to parse string as a number";
            return self.bad(name, "float_parsing", message, &value);
        };
        let (r#type, message, ctx) = if number < 0.0 {
            (
                "greater_than_equal",
                "Input should be greater than or equal to 0".to_owned(),
                json!({"ge": 0.0}),
            )
        } else if number > most {
            let message = format!("Input should be less than or equal to {most}");
            ("less_than_equal", message, json!({"le": most}))
        } else {
            return Some(number);
        };
        self.add(Wrong::new(r#type, self.loc(name), message, &value).with(ctx));
        None
    }

    /// A boolean; false by default.
    pub fn flag(&mut self, name: &str) -> bool {
        let Some(value) = self.fields.get(name).cloned() else { return false };
        let flag = match &value {
            Value::Bool(flag) => Some(*flag),
            Value::Number(number) => match number.as_f64() {
                Some(0.0) => Some(false),
                Some(1.0) => Some(true),
                _ => None,
            },
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
                "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
                _ => None,
            },
            other => {
                return self
                    .bad(name, "bool_type", "Input should be a valid boolean", other)
                    .unwrap_or_default();
            }
        };
        let message = "Input should be a valid boolean, unable to interpret input";
        flag.or_else(|| self.bad(name, "bool_parsing", message, &value)).unwrap_or_default()
    }

    /// An object; empty by default.
    pub fn object(&mut self, name: &str) -> Map<String, Value> {
        match self.fields.get(name).cloned() {
            None => Map::new(),
            Some(value) => self.as_object(name, value).unwrap_or_default(),
        }
    }

    /// An object; `null` is absent.
    pub fn opt_object(&mut self, name: &str) -> Option<Map<String, Value>> {
        let value = self.some(name)?;
        self.as_object(name, value)
    }

    fn as_object(&mut self, name: &str, value: Value) -> Option<Map<String, Value>> {
        match value {
            Value::Object(fields) => Some(fields),
            other => self.bad(name, "dict_type", "Input should be a valid dictionary", &other),
        }
    }

    /// A list of texts; empty by default.
    pub fn texts(&mut self, name: &str) -> Vec<String> {
        let items = match self.fields.get(name).cloned() {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                return self
                    .bad(name, "list_type", "Input should be a valid list", &other)
                    .unwrap_or_default();
            }
        };
        if items.len() > LIST_MAX {
            let message = format!("List should have at most {LIST_MAX} items after validation");
            let ctx = json!({"max_length": LIST_MAX, "actual_length": items.len()});
            self.add(Wrong::new("too_long", self.loc(name), message, &Value::Null).with(ctx));
            return Vec::new();
        }
        let mut texts = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            match item {
                Value::String(text) => texts.push(text),
                other => {
                    let mut loc = self.loc(name);
                    loc.push(at.into());
                    self.add(Wrong::new("string_type", loc, "Input should be a valid string", &other));
                }
            }
        }
        texts
    }

    /// A time; `null` is absent. A time without an offset is in UTC.
    pub fn opt_time(&mut self, name: &str) -> Option<Wall> {
        let value = self.some(name)?;
        match (time::read(&value), &value) {
            (Some(at), _) => Some(at),
            (None, Value::String(_) | Value::Number(_)) => {
                let why = "write it as 2030-01-01T08:00:00Z";
                let message = format!("Input should be a valid datetime or date, {why}");
                let wrong = Wrong::new("datetime_from_date_parsing", self.loc(name), message, &value);
                self.add(wrong.with(json!({"error": why})));
                None
            }
            (None, other) => self.bad(name, "datetime_type", "Input should be a valid datetime", other),
        }
    }

    /// One of these choices, compared by `fits`; `None` when absent.
    pub fn choice<T: Copy>(
        &mut self,
        name: &str,
        r#type: &'static str,
        choices: &[(&str, T)],
        fits: fn(&str, &str) -> bool,
    ) -> Option<T> {
        let value = self.fields.get(name).cloned()?;
        let text = value.as_str().unwrap_or_default();
        if let Some((_, meant)) = choices.iter().find(|(choice, _)| fits(choice, text)) {
            return Some(*meant);
        }
        let expected = listed(choices.iter().map(|(choice, _)| *choice));
        let message = format!("Input should be {expected}");
        self.add(Wrong::new(r#type, self.loc(name), message, &value).with(json!({"expected": expected})));
        None
    }

    /// The same for a required choice.
    pub fn must_choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        if !self.fields.contains_key(name) {
            return self.missing(name);
        }
        self.choice(name, "literal_error", choices, exactly)
    }

    fn some(&mut self, name: &str) -> Option<Value> {
        self.fields.get(name).filter(|value| !value.is_null()).cloned()
    }

    /// Adds an error about a missing field, and returns a default to go on with.
    fn missing<T: Default>(&mut self, name: &str) -> T {
        let input = Value::Object(self.fields.clone());
        self.add(Wrong::new("missing", self.loc(name), "Field required", &input));
        T::default()
    }

    fn bad<T>(&mut self, name: &str, r#type: &'static str, msg: &str, input: &Value) -> Option<T> {
        self.add(Wrong::new(r#type, self.loc(name), msg, input));
        None
    }

    fn loc(&self, name: &str) -> Vec<Value> {
        vec![self.executor.into(), name.into()]
    }

    fn add(&mut self, wrong: Wrong) {
        self.wrong.push(wrong);
    }
}

/// Compares exactly.
pub fn exactly(choice: &str, text: &str) -> bool {
    choice == text
}

/// Compares in any case.
pub fn in_any_case(choice: &str, text: &str) -> bool {
    choice.eq_ignore_ascii_case(text)
}

/// An integer, written plainly or with a fraction of zeros.
fn int_of(text: &str) -> Option<i64> {
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|digit| digit == b'0') => whole,
        Some(_) => return None,
        None => text,
    };
    whole.parse().ok()
}

/// `'a', 'b' or 'c'`.
fn listed<'a>(choices: impl Iterator<Item = &'a str>) -> String {
    let choices: Vec<String> = choices.map(|choice| format!("'{choice}'")).collect();
    match choices.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The offset in the body of a line and a column, both from 1.
fn offset(body: &[u8], line: usize, column: usize) -> usize {
    let before: usize =
        body.split(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(|line| line.len() + 1).sum();
    (before + column.saturating_sub(1)).min(body.len())
}

/// Decodes `+` and `%XX` in a part of a query.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16);
        match (first, after) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                let byte = hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0);
                bytes.push(u8::try_from(byte).unwrap_or_default());
                rest = &after[2..];
                continue;
            }
            (byte, _) => bytes.push(*byte),
        }
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

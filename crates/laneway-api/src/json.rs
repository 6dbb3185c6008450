//! Parses JSON bodies: once, without copies, with errors that name the field.
//!
//! These checks apply to every body, payloads included: it is UTF-8, it is not nested too deeply, and its strings
//! contain no NUL and no lone surrogate, because some programs cannot read those back. `convert.rs` checks the
//! meaning of the fields.

use std::fmt;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;

use laneway_wire::{JobRequest, Object};
use memchr::memchr2;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

use crate::convert::{COUNT_MAX, FACTOR_MAX};
use crate::error::{ApiError, Code};

/// The longest path of a field in an error, in bytes. It may come from a payload, whose names have any length.
const FIELD_LEN_MAX: usize = 200;
/// The deepest nesting of a body. A batch may be two levels deeper, so that its jobs may be as deep as a single job.
pub const DEPTH_MAX: usize = 64;

/// Where a byte is in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The bytes before it.
    pub offset: usize,
    /// The lines before its own.
    pub line: usize,
    /// The bytes before it on its line.
    pub column: usize,
}

impl Position {
    /// The position after a byte.
    pub fn step(&mut self, byte: u8) {
        self.offset += 1;
        self.column += 1;
        if byte == b'\n' {
            (self.line, self.column) = (self.line + 1, 0);
        }
    }

    /// The position after these bytes.
    pub fn step_all(&mut self, bytes: &[u8]) {
        self.offset += bytes.len();
        self.column += bytes.len();
        for newline in memchr::memchr_iter(b'\n', bytes) {
            (self.line, self.column) = (self.line + 1, bytes.len() - newline - 1);
        }
    }
}

/// Where a text that is parsed alone is in its body, so that errors name positions of the body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// The levels of nesting around it.
    pub depth: usize,
    /// The job of a batch that it is.
    pub job: Option<usize>,
    /// The position in the text from which on it is elsewhere in the body.
    pub from: Position,
    /// Where that position is in the body.
    pub to: Position,
}

impl Origin {
    fn offset(&self, at: usize) -> usize {
        if at < self.from.offset { at } else { at - self.from.offset + self.to.offset }
    }

    /// The error for a text that is not JSON.
    pub fn malformed(&self, error: &serde_json::Error) -> ApiError {
        let message = error.to_string();
        let Some((message, _)) = message.rsplit_once(" at line ") else {
            return ApiError::new(Code::MalformedJson, message);
        };
        let (line, column) = (error.line().saturating_sub(1), error.column());
        let (from, to) = (self.from, self.to);
        let (line, column) = if (line, column) < (from.line, from.column) {
            (line, column)
        } else if line == from.line {
            (to.line, column - from.column + to.column)
        } else {
            (line - from.line + to.line, column)
        };
        malformed_at(message, line, column)
    }

    /// The path of a field of the text in the body.
    fn field(&self, field: Option<String>) -> Option<String> {
        match (self.job, field) {
            (None, field) => field,
            (Some(job), None) => Some(format!("jobs[{job}]")),
            (Some(job), Some(field)) => Some(format!("jobs[{job}].{field}")),
        }
    }
}

/// The error for a body that is not JSON at a position.
pub fn malformed_at(message: &str, line: usize, column: usize) -> ApiError {
    ApiError::new(Code::MalformedJson, format!("{message} at line {} column {column}", line + 1))
}

/// Reads `body` as a `T`.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], depth_max: usize) -> Result<T, ApiError> {
    parse_text(check(body, depth_max)?)
}

/// Reads `body` as a job.
pub fn parse_job(body: &[u8]) -> Result<JobRequest<'_>, ApiError> {
    parse_job_text(check(body, DEPTH_MAX)?)
}

/// Parses a string that [`check`] has accepted as a job.
pub fn parse_job_text(text: &str) -> Result<JobRequest<'_>, ApiError> {
    let origin = Origin::default();
    let read = laneway_wire::json::parse_job(text);
    read.map_err(|error| explain::<Object<JobRequest<'_>>>(text, &error, &origin))
}

/// Parses a string that [`check`] has accepted.
pub fn parse_text<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ApiError> {
    parse_part(text, &Origin::default())
}

/// Parses a part of a body that [`check_part`] has accepted.
pub fn parse_part<'a, T: Deserialize<'a>>(text: &'a str, origin: &Origin) -> Result<T, ApiError> {
    let read = serde_json::from_str(text).map(|Object(value)| value);
    read.map_err(|error| explain::<Object<T>>(text, &error, origin))
}

/// Rejects a body with a content type other than JSON. No content type is accepted.
pub fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
    let is_json = essence.eq_ignore_ascii_case("application/json")
        || (essence.len() > 5
            && essence.is_char_boundary(essence.len() - 5)
            && essence[essence.len() - 5..].eq_ignore_ascii_case("+json"));
    if is_json {
        return Ok(());
    }
    Err(ApiError::new(Code::UnsupportedMediaType, "send the body as content-type: application/json"))
}

/// The body as a string, if it passes the checks.
pub fn check(body: &[u8], depth_max: usize) -> Result<&str, ApiError> {
    check_part(body, depth_max, &Origin::default())
}

/// The same for a part of a body.
pub fn check_part<'a>(part: &'a [u8], depth_max: usize, origin: &Origin) -> Result<&'a str, ApiError> {
    let text = std::str::from_utf8(part).map_err(|error| {
        let valid = origin.offset(error.valid_up_to());
        ApiError::new(Code::MalformedJson, format!("the body is not UTF-8 after byte {valid}"))
    })?;
    scan(part, depth_max, origin).map(|()| text)
}

/// Scans the body once: its depth, and its escapes. The parser checks whether it is JSON, so the scan only has to be
/// right for valid JSON.
fn scan(body: &[u8], depth_max: usize, origin: &Origin) -> Result<(), ApiError> {
    let mut depth = origin.depth;
    let mut at = 0;
    while at < body.len() {
        match body[at] {
            b'{' | b'[' => {
                depth += 1;
                if depth > depth_max {
                    let detail =
                        format!("the body is nested deeper than {depth_max} levels; use a flatter body");
                    return Err(ApiError::new(Code::TooDeep, detail));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                at = scan_text(body, at + 1, origin)?;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Scans a string that begins at `at`. Returns the position after its closing quote.
fn scan_text(body: &[u8], mut at: usize, origin: &Origin) -> Result<usize, ApiError> {
    while let Some(ahead) = body.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += ahead;
        match body[at] {
            b'"' => return Ok(at + 1),
            _ if body.get(at + 1) == Some(&b'u') => match hex4(body, at + 2) {
                Some(0) => return Err(unreadable_text(body, at, origin, "\\u0000")),
                Some(0xD800..=0xDBFF) => {
                    let pair = body.get(at + 6..at + 8) == Some(b"\\u");
                    if !pair || !matches!(hex4(body, at + 8), Some(0xDC00..=0xDFFF)) {
                        return Err(unreadable_text(body, at, origin, "a lone surrogate"));
                    }
                    at += 12;
                }
                Some(0xDC00..=0xDFFF) => return Err(unreadable_text(body, at, origin, "a lone surrogate")),
                _ => at += 6,
            },
            _ => at += 2,
        }
    }
    Ok(body.len())
}

fn hex4(body: &[u8], at: usize) -> Option<u16> {
    let digits = std::str::from_utf8(body.get(at..at + 4)?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

fn unreadable_text(body: &[u8], at: usize, origin: &Origin, what: &str) -> ApiError {
    let field = origin.field(field_at(body, at));
    let at = origin.offset(at);
    let name = field.as_deref().unwrap_or("a string");
    let detail =
        format!("{name} contains {what} at byte {at}; some programs cannot read it back, so remove it");
    let mut error = ApiError::new(Code::MalformedJson, detail);
    error.field = field;
    error
}

/// The field whose value is at byte `end`. It scans the body once more, which only bad bodies cost. `None` when the
/// path does not consist of plain names, as in the middle of a field's name.
fn field_at(body: &[u8], end: usize) -> Option<String> {
    let mut way: Vec<Step<'_>> = Vec::new();
    let mut at = 0;
    while at < end {
        match (body[at], way.last_mut()) {
            (b'{', _) => way.push(Step::Field(None)),
            (b'[', _) => way.push(Step::Item(0)),
            (b'}' | b']', _) => drop(way.pop()),
            (b',', Some(Step::Item(index))) => *index += 1,
            (b',', Some(Step::Field(name))) => *name = None,
            (b'"', last) => {
                let close = closing_quote(body, at + 1).filter(|close| *close < end);
                // The string that is searched for has begun.
                let Some(close) = close else { break };
                if let Some(Step::Field(name @ None)) = last {
                    *name = std::str::from_utf8(&body[at + 1..close]).ok();
                }
                at = close;
            }
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for step in way {
        match step {
            Step::Field(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name?);
            }
            Step::Item(index) => path.push_str(&format!("[{index}]")),
        }
    }
    (1..=FIELD_LEN_MAX).contains(&path.len()).then_some(path)
}

/// One step into a body: a field of an object (once its name is read), or an item of a list.
enum Step<'a> {
    Field(Option<&'a str>),
    Item(usize),
}

fn closing_quote(body: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match body.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The error for a body that could not be parsed. It parses the body a second time to find the path, which only bad
/// bodies cost.
fn explain<'a, T: Deserialize<'a>>(text: &'a str, error: &serde_json::Error, origin: &Origin) -> ApiError {
    if !matches!(error.classify(), Category::Data) {
        return origin.malformed(error);
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let path = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => String::new(),
        Err(tracked) => tracked.path().to_string(),
    };
    let path = if path == "." { "" } else { path.as_str() };
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(front, _)| front);
    let named = message.split('`').nth(1).unwrap_or("");
    let is_unknown = message.starts_with("unknown field");
    let names_field =
        is_unknown || message.starts_with("missing field") || message.starts_with("duplicate field");
    let field = match (names_field, path) {
        (false, "") => "the body".to_owned(),
        (false, path) => path.to_owned(),
        (true, "") => named.to_owned(),
        (true, path) if path == named || path.ends_with(&format!(".{named}")) => path.to_owned(),
        (true, path) => format!("{path}.{named}"),
    };
    let code = if is_unknown { Code::UnknownField } else { Code::InvalidField };
    let detail = match misfit(message) {
        Some((given, expected)) => format!("{field} must be {}, not {given}", wanted(&field, expected)),
        None => format!("{field}: {message}"),
    };
    let mut explained = ApiError::new(code, detail);
    explained.field = (field != "the body").then_some(field);
    explained
}

/// The given and the expected value, if the parser rejects a value.
fn misfit(message: &str) -> Option<(String, &str)> {
    let rest = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    let (given, expected) = rest.rsplit_once(", expected ")?;
    Some((given.replace('`', ""), expected))
}

/// The expected value of a field, for people; the parser's own text where it is good enough.
fn wanted(field: &str, expected: &str) -> String {
    // A job of a batch or of a schedule has the same fields.
    let own = field.strip_prefix("job.").unwrap_or(field);
    let own = own.strip_prefix("jobs[").and_then(|rest| rest.split_once("].")).map_or(own, |(_, own)| own);
    match own {
        "timeout"
        | "queue_timeout"
        | "retry.backoff.base"
        | "retry.backoff.max"
        | "retry.backoff.jitter.add"
        | "session.debounce"
        | "session.debounce_max"
        | "every"
        | "jitter"
        | "expires_in"
        | "grace"
        | "aging_step"
        | "delay"
        | "retention" => "a duration such as \"30s\"".to_owned(),
        "not_before" | "run_at" | "deadline" | "session.sent_at" | "at" | "anchor" | "from" => {
            "a time such as \"2030-01-01T08:00:00Z\"".to_owned()
        }
        "tags" => "a list of names".to_owned(),
        "retry.retries_max" | "retry.losses_max" => format!("an integer from 0 to {COUNT_MAX}"),
        "session.max_concurrent" | "session.cap" => format!("an integer from 1 to {COUNT_MAX}"),
        "retry.backoff.factor" => format!("an integer from 1 to {FACTOR_MAX}"),
        "retry.backoff.jitter.percent" => "an integer from 0 to 100".to_owned(),
        _ => match expected {
            "u32" => format!("an integer from 0 to {}", u32::MAX),
            "u64" => format!("an integer from 0 to {}", i64::MAX),
            "a sequence" => "a list".to_owned(),
            other => other.to_owned(),
        },
    }
}

/// Any JSON without repeated fields.
pub struct StrictValue(pub Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StrictValue, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
                Ok(flag.into())
            }
            fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
                Ok(number.into())
            }
            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(number.into())
            }
            fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
                Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
            }
            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(text.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(StrictValue(item)) = items.next_element()? {
                    list.push(item);
                }
                Ok(Value::Array(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
                let mut map = Map::new();
                while let Some((key, StrictValue(value))) = entries.next_entry::<String, StrictValue>()? {
                    if map.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("duplicate field `{key}`")));
                    }
                    map.insert(key, value);
                }
                Ok(Value::Object(map))
            }
        }
        deserializer.deserialize_any(Shape).map(StrictValue)
    }
}

#[cfg(test)]
mod tests {
    use laneway_wire::{BatchRequest, JobRequest};

    use super::*;

    fn job(body: &str) -> Result<(), ApiError> {
        parse::<JobRequest<'_>>(body.as_bytes(), DEPTH_MAX).map(drop)
    }

    fn nested(levels: usize) -> String {
        format!(r#"{{"kind":"k","payload":{}1{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
    }

    #[test]
    fn names_the_field_and_the_code() {
        for (body, code, field) in [
            (r#"{"kind":"k""#, Code::MalformedJson, None),
            ("", Code::MalformedJson, None),
            ("\u{feff}{}", Code::MalformedJson, None),
            (r#"{"kind":NaN}"#, Code::MalformedJson, None),
            (r#"{"kind":"k"} x"#, Code::MalformedJson, None),
            ("[]", Code::InvalidField, None),
            ("7", Code::InvalidField, None),
            ("{}", Code::InvalidField, Some("kind")),
            (r#"{"kind":5}"#, Code::InvalidField, Some("kind")),
            (r#"{"kind":"k","kind":"k"}"#, Code::InvalidField, Some("kind")),
            (r#"{"kind":"k","knd":"k"}"#, Code::UnknownField, Some("knd")),
            (
                r#"{"kind":"k","retry":{"backoff":{"bse":"1s"}}}"#,
                Code::UnknownField,
                Some("retry.backoff.bse"),
            ),
            (r#"{"kind":"k","retry":{"retries_max":"x"}}"#, Code::InvalidField, Some("retry.retries_max")),
            (r#"{"kind":"k","priority":1e999}"#, Code::MalformedJson, None),
            (r#"{"kind":"k","priority":99999999999}"#, Code::InvalidField, Some("priority")),
            (r#"{"kind":"k","tags":["a",1]}"#, Code::InvalidField, Some("tags[1]")),
            (r#"{"kind":"k","keys":{"a":1}}"#, Code::InvalidField, Some("keys.a")),
        ] {
            let error = job(body).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (code, field), "{body}: {}", error.detail);
        }
    }

    #[test]
    fn names_the_job_of_a_batch() {
        let body = br#"{"jobs":[{"kind":"a"},{"kind":"b","payload":{"x":1},"lne":"c"}]}"#;
        let error = parse::<BatchRequest<'_>>(body, DEPTH_MAX + 2).map(drop).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("jobs[1].lne"));
    }

    #[test]
    fn counts_depth_outside_of_texts_only() {
        assert!(job(&nested(64)).is_ok());
        assert_eq!(job(&nested(65)).unwrap_err().code, Code::TooDeep);
        assert_eq!(job(&nested(20_000)).unwrap_err().code, Code::TooDeep);
        assert!(job(&format!(r#"{{"kind":"k","payload":"{}"}}"#, "[{\\\"".repeat(500))).is_ok());
    }

    #[test]
    fn rejects_strings_that_cannot_be_read_back() {
        for text in [r"\u0000", r"a\ud800", r"\ud800\u0041", r"\udc00", r"\udfff\ud800", r"\\\ud8ff"] {
            for body in [format!(r#"{{"kind":"k","payload":"{text}"}}"#), format!(r#"{{"kind":"{text}"}}"#)] {
                assert_eq!(job(&body).unwrap_err().code, Code::MalformedJson, "{body}");
            }
        }
        for text in [r"\ud83d\ude00", r"\\u0000", r"\u0001", r"\\\\ud800", "\u{1f600}"] {
            assert!(job(&format!(r#"{{"kind":"k","payload":"{text}"}}"#)).is_ok(), "{text}");
        }
        assert_eq!(
            parse::<JobRequest<'_>>(b"{\"kind\":\"\xff\"}", 64).map(drop).unwrap_err().code,
            Code::MalformedJson
        );
    }

    #[test]
    fn names_the_field_of_a_string_that_cannot_be_read_back() {
        for (body, field) in [
            (r#"{"kind":"k\u0000"}"#, Some("kind")),
            (r#"{"kind":"k","tags":["a","b,]}","c\u0000"]}"#, Some("tags[2]")),
            (r#"{"kind":"k","retry":{"backoff":{"base":"\ud800"}}}"#, Some("retry.backoff.base")),
            (
                r#"{"jobs":[{"kind":"a","payload":{"x":[1,{"y":2}]}},{"kind":"\u0000"}]}"#,
                Some("jobs[1].kind"),
            ),
            (r#"{"ki\u0000nd":"k"}"#, None),
            (r#"["\u0000"]"#, Some("[0]")),
            (r#""\u0000""#, None),
            (r#"{]},:"x\u0000"#, None),
        ] {
            let error = check(body.as_bytes(), DEPTH_MAX).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (Code::MalformedJson, field), "{body}");
        }
    }

    #[test]
    fn says_what_a_field_expects() {
        for (body, detail) in [
            (r#"{"kind":"k","timeout":30}"#, "timeout must be a duration such as \"30s\", not integer 30"),
            (r#"{"kind":"k","tags":"a"}"#, "tags must be a list of names, not string \"a\""),
            (
                r#"{"kind":"k","retry":{"retries_max":-1}}"#,
                "retry.retries_max must be an integer from 0 to 10000, not integer -1",
            ),
            (
                r#"{"kind":"k","deadline":1893456000}"#,
                "deadline must be a time such as \"2030-01-01T08:00:00Z\", not integer 1893456000",
            ),
            (r#"{"kind":5}"#, "kind must be a string, not integer 5"),
            (r#"{"kind":"k","keys":{"timeout":5}}"#, "keys.timeout must be a string, not integer 5"),
            (r#"{"kind":"k","retry":[]}"#, "retry must be an object, not sequence"),
        ] {
            assert_eq!(job(body).unwrap_err().detail, detail, "{body}");
        }
        let body = br#"{"jobs":[{"kind":"b","timeout":1.5}]}"#;
        let error = parse::<BatchRequest<'_>>(body, DEPTH_MAX + 2).map(drop).unwrap_err();
        assert_eq!(
            error.detail,
            "jobs[0].timeout must be a duration such as \"30s\", not floating point 1.5"
        );
    }

    #[test]
    fn strict_values_reject_repeated_fields() {
        let StrictValue(value) = parse(br#"{"a":{"b":[1,-2,1.5,null,true,"x"]}}"#, 64).unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": [1, -2, 1.5, null, true, "x"]}}));
        let error = parse::<StrictValue>(br#"{"a":{"b":1,"b":2}}"#, 64).map(drop).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (Code::InvalidField, Some("a.b")));
    }

    #[test]
    fn never_panics_on_truncated_bodies() {
        let body = r#"{"kind":"k\u00e9\ud83d\ude00","payload":{"a":"\\\"\u1234"}}"#.as_bytes();
        for end in 0..body.len() {
            assert!(parse::<JobRequest<'_>>(&body[..end], DEPTH_MAX).is_err(), "{end}");
        }
    }
}

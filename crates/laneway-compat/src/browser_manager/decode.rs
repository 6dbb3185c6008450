//! Reads requests: the fields of a body or a query, each with the code of what is wrong with it. Unknown fields are ignored,
//! and `null` stands for an absent value.

use axum::extract::Request;
use axum::http::StatusCode;
use laneway_core::Span;
use serde_json::{Map, Value};

use super::error::{Code, Problem};
use crate::body::{self, BodyError};

/// Largest body, in bytes.
pub const BODY_MAX: usize = 1 << 20;
/// Longest text of a field without a limit of its own, in bytes.
pub const TEXT_MAX: usize = 128;
/// Largest page of a list.
const PAGE_SIZE_MAX: u64 = 100;
/// The page size where a request has none.
const PAGE_SIZE_DEFAULT: u64 = 20;
/// How far a list can be paged through: each page reads all pages before it.
const LISTED_MAX: u64 = 10_000;

/// The fields of a request.
#[derive(Debug, Default)]
pub struct Fields(Map<String, Value>);

/// A page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    /// From 1.
    pub page_num: u64,
    /// From 1 to 100.
    pub page_size: u64,
}

impl Paging {
    /// How many items come before the page.
    pub fn skipped(self) -> usize {
        usize::try_from((self.page_num - 1) * self.page_size).unwrap_or(usize::MAX)
    }

    /// How many items it has at most.
    pub fn len_max(self) -> usize {
        usize::try_from(self.page_size).unwrap_or(usize::MAX)
    }
}

impl Fields {
    /// The fields of the body, which must be an object. An empty body has none.
    pub async fn of_request(request: Request) -> Result<Fields, Problem> {
        let bytes = body::read(request, BODY_MAX).await.map_err(|error| match error {
            BodyError::TooLarge => {
                Problem::new(Code::TooLong, format!("the body has more than {BODY_MAX} bytes"))
            }
            BodyError::Late => Problem::new(Code::MalformedJson, "the body did not arrive in time")
                .with_status(StatusCode::REQUEST_TIMEOUT),
            BodyError::Busy => {
                Problem::new(Code::RateLimited, "too many large bodies at once").retry_after(Span::secs(1))
            }
            BodyError::Broken => Problem::new(Code::MalformedJson, "the body did not arrive whole"),
        })?;
        Fields::of_body(&bytes)
    }

    /// The same for the bytes of a body.
    pub fn of_body(bytes: &[u8]) -> Result<Fields, Problem> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Fields::default());
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Fields(fields)),
            Ok(other) => {
                Err(Problem::new(Code::WrongType, format!("the body is {}; send an object", type_of(&other))))
            }
            Err(error) => Err(Problem::new(Code::MalformedJson, error.to_string())),
        }
    }

    /// The parameters of a query. Numbers and truth values are read from their texts.
    pub fn of_query(query: Option<&str>) -> Fields {
        let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        let decoded = parts.map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = percent_decoded(value);
            let number = value.parse::<i64>().ok().map(Value::from);
            let flag = value.parse::<bool>().ok().map(Value::from);
            (percent_decoded(name), number.or(flag).unwrap_or(Value::String(value)))
        });
        Fields(decoded.collect())
    }

    /// The fields of an object.
    pub fn of_object(fields: Map<String, Value>) -> Fields {
        Fields(fields)
    }

    /// A text that is not blank, of at most `len_max` bytes.
    pub fn opt_text(&mut self, name: &str, len_max: usize) -> Result<Option<String>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() > len_max => {
                let detail = format!("{name} has {} bytes; at most {len_max} are allowed", text.len());
                Err(Problem::new(Code::TooLong, detail))
            }
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(misfit(name, &other, "a string")),
        }
    }

    /// The same where the field is required.
    pub fn text(&mut self, name: &str) -> Result<String, Problem> {
        self.opt_text(name, TEXT_MAX)?.ok_or_else(|| Problem::missing(name))
    }

    /// A text from a query, where numbers look like numbers.
    pub fn opt_query_text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        if let Some(value @ (Value::Number(_) | Value::Bool(_))) = self.0.get(name) {
            let text = value.to_string();
            self.0.insert(name.to_owned(), Value::String(text));
        }
        self.opt_text(name, TEXT_MAX)
    }

    /// `true` or `false`; absent is false.
    pub fn flag(&mut self, name: &str) -> Result<bool, Problem> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(misfit(name, &other, "true or false")),
        }
    }

    /// A whole number from `min` to `max`.
    pub fn opt_number(&mut self, name: &str, min: u64, max: u64) -> Result<Option<u64>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) => {
                if let Some(value) = number.as_u64().filter(|value| (min..=max).contains(value)) {
                    return Ok(Some(value));
                }
                if number.is_f64() {
                    return Err(misfit(name, &Value::Number(number), "a whole number"));
                }
                let detail = format!("{name} is {number}; send a whole number from {min} to {max}");
                Err(Problem::new(Code::OutOfRange, detail))
            }
            Some(other) => Err(misfit(name, &other, "a whole number")),
        }
    }

    /// One of several names, in any case.
    pub fn opt_one_of<T: Copy>(
        &mut self,
        name: &str,
        values: &[(&'static str, T)],
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.opt_query_text(name)? else { return Ok(None) };
        let found = values.iter().find(|(value, _)| value.eq_ignore_ascii_case(&text));
        found.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| {
            let known: Vec<&str> = values.iter().map(|(value, _)| *value).collect();
            Problem::new(Code::NotInEnum, format!("{name} is {text:?}; send one of {}", known.join(", ")))
        })
    }

    /// An object.
    pub fn opt_object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(fields)),
            Some(other) => Err(misfit(name, &other, "an object")),
        }
    }

    /// Any value.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.take(name)
    }

    /// A list of at least one and at most `len_max` texts.
    pub fn texts(&mut self, name: &str, len_max: usize) -> Result<Vec<String>, Problem> {
        let items = match self.take(name) {
            None => return Err(Problem::missing(name)),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(misfit(name, &other, "a list of strings")),
        };
        if items.is_empty() || items.len() > len_max {
            let detail = format!("{name} has {} entries; send 1 to {len_max}", items.len());
            return Err(Problem::new(Code::OutOfRange, detail));
        }
        let text = |(at, item): (usize, Value)| {
            let at = format!("{name}[{at}]");
            Fields(Map::from_iter([(at.clone(), item)])).text(&at)
        };
        items.into_iter().enumerate().map(text).collect()
    }

    /// The page: `pageNum` from 1, `pageSize` from 1 to 100.
    pub fn paging(&mut self) -> Result<Paging, Problem> {
        let bad = |problem: Problem| match problem.code() {
            Code::OutOfRange => Problem::new(Code::BadPaging, "pageNum is from 1, pageSize from 1 to 100"),
            _ => problem,
        };
        let page_num = self.opt_number("pageNum", 1, u64::MAX).map_err(bad)?.unwrap_or(1);
        let page_size = self.opt_number("pageSize", 1, PAGE_SIZE_MAX).map_err(bad)?;
        let page_size = page_size.unwrap_or(PAGE_SIZE_DEFAULT);
        if page_num.saturating_mul(page_size) > LISTED_MAX {
            let detail = format!("a list ends after {LISTED_MAX} entries; filter it instead");
            return Err(Problem::new(Code::BadPaging, detail));
        }
        Ok(Paging { page_num, page_size })
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }
}

fn misfit(name: &str, value: &Value, wanted: &str) -> Problem {
    Problem::new(Code::WrongType, format!("{name} is {}; send {wanted}", type_of(value)))
}

/// The type of a JSON value, for people.
pub fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The text of a part of a query. Bytes that are not UTF-8 become the replacement character.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            (other, _) => {
                bytes.push(*other);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

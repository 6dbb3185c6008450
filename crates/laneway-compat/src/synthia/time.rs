//! Times in the formats of the dialect.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use laneway_core::Wall;
use serde_json::Value;

/// Numbers above this are milliseconds, below it seconds, as clients expect.
const SECONDS_MAX: f64 = 2e10;

/// A time in an object: `2023-11-14T22:13:20.000000Z`.
pub fn stamp(at: Wall) -> String {
    timestamp(at).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// A time outside of objects: `2023-11-14T22:13:20+00:00`, with a fraction if there is one.
pub fn iso(at: Wall) -> String {
    let time = timestamp(at);
    let fraction = if at.0.rem_euclid(1_000) == 0 { "%Y-%m-%dT%H:%M:%S" } else { "%Y-%m-%dT%H:%M:%S.%6f" };
    format!("{}+00:00", time.strftime(fraction))
}

fn timestamp(at: Wall) -> Timestamp {
    Timestamp::from_millisecond(at.0).unwrap_or(if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Parses a time: a text with or without an offset (without one it is UTC), or a number of seconds or
/// milliseconds since 1970.
pub fn read(value: &Value) -> Option<Wall> {
    match value {
        Value::Number(number) => of_number(number.as_f64()?),
        Value::String(text) => of_text(text.trim()),
        _ => None,
    }
}

fn of_text(text: &str) -> Option<Wall> {
    if let Ok(number) = text.parse::<f64>() {
        return of_number(number);
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(Wall(at.as_millisecond()));
    }
    let naive: DateTime = text.parse().ok()?;
    let at = naive.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(Wall(at.as_millisecond()))
}

fn of_number(number: f64) -> Option<Wall> {
    if !number.is_finite() {
        return None;
    }
    let ms = if number.abs() > SECONDS_MAX { number } else { number * 1_000.0 };
    let at = Timestamp::from_millisecond(ms.round() as i64).ok()?;
    at.round(Unit::Millisecond).ok().map(|at| Wall(at.as_millisecond()))
}

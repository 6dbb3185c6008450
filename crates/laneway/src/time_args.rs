//! Times and durations as people write and read them.

use jiff::{SignedDuration, Timestamp};
use laneway_core::Span;
use laneway_runtime::config::parse_span;

/// Parses a time: RFC 3339, or a duration from now such as `10m` or `+10m`. Returns RFC 3339.
pub fn parse_time(text: &str) -> Result<String, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.to_string());
    }
    let span = parse_span(text.trim_start_matches('+'))
        .ok_or("is neither a time (2030-01-01T08:00:00Z) nor a duration from now (10m)")?;
    now_plus(span, 1)
}

/// Parses a time of a filter: RFC 3339, or how long ago, such as `10m`. Returns RFC 3339.
pub fn parse_past(text: &str) -> Result<String, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.to_string());
    }
    let span =
        parse_span(text).ok_or("is neither a time (2030-01-01T08:00:00Z) nor how long ago it was (10m)")?;
    now_plus(span, -1)
}

fn now_plus(span: Span, direction: i64) -> Result<String, String> {
    let too_far = || "is too far away".to_owned();
    let millis = i64::try_from(span.0).map_err(|_| too_far())?;
    let time = Timestamp::now().checked_add(SignedDuration::from_millis(direction * millis));
    time.map(|time| format!("{time:.3}")).map_err(|_| too_far())
}

/// Parses a duration such as `30s` and returns it as it was written.
pub fn parse_duration(text: &str) -> Result<String, String> {
    let is_span = parse_span(text).is_some();
    is_span.then(|| text.to_owned()).ok_or("is not a duration; use units: 500ms, 30s, 1h30m, 7d".to_owned())
}

/// How long ago a time was (or how far ahead it is), in one or two units: `12s ago`, `in 3m`.
pub fn distance(time: &str) -> String {
    distance_at(time, Timestamp::now())
}

fn distance_at(time: &str, now: Timestamp) -> String {
    let Ok(time) = time.parse::<Timestamp>() else { return time.to_owned() };
    let millis = now.as_millisecond() - time.as_millisecond();
    match millis {
        0.. => format!("{} ago", short(millis.unsigned_abs())),
        _ => format!("in {}", short(millis.unsigned_abs())),
    }
}

/// The duration between two times: `1.2s`. `None` when one of them is invalid.
pub fn between(from: &str, to: &str) -> Option<String> {
    let (from, to) = (from.parse::<Timestamp>().ok()?, to.parse::<Timestamp>().ok()?);
    Some(short(to.as_millisecond().saturating_sub(from.as_millisecond()).max(0).unsigned_abs()))
}

/// The clock part of a time: `20:15:42.123`.
pub fn clock(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => format!("{time:.3}").get(11..23).unwrap_or_default().to_owned(),
        Err(_) => time.to_owned(),
    }
}

/// A short duration: exact below a second, rounded down above.
pub fn short(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0 => format!("{millis}ms"),
        1..10 => format!("{}.{}s", seconds, millis % 1_000 / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short() {
        let lengths = [0, 999, 1_000, 9_999, 10_000, 61_000, 3_600_000, 90_000_000];
        let texts: Vec<String> = lengths.into_iter().map(short).collect();
        assert_eq!(texts, ["0ms", "999ms", "1.0s", "9.9s", "10s", "1m01s", "1h00m", "1d01h"]);
    }

    #[test]
    fn distances_have_a_direction() {
        let now: Timestamp = "2030-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(distance_at("2030-01-01T00:00:00Z", now), "10s ago");
        assert_eq!(distance_at("2030-01-01T00:02:10Z", now), "in 2m00s");
        assert_eq!(distance_at("nonsense", now), "nonsense");
    }

    #[test]
    fn an_argument_is_a_time_or_a_duration() {
        assert_eq!(parse_time("2030-01-01T08:00:00+01:00").unwrap(), "2030-01-01T07:00:00Z");
        let soon: Timestamp = parse_time("+10m").unwrap().parse().unwrap();
        let away = soon.as_millisecond() - Timestamp::now().as_millisecond();
        assert!((599_000..=600_000).contains(&away), "{away}");
        assert!(parse_time("tomorrow").is_err());
    }

    #[test]
    fn a_duration_of_a_filter_lies_in_the_past() {
        assert_eq!(parse_past("2030-01-01T08:00:00+01:00").unwrap(), "2030-01-01T07:00:00Z");
        let then: Timestamp = parse_past("10m").unwrap().parse().unwrap();
        let ago = Timestamp::now().as_millisecond() - then.as_millisecond();
        assert!((600_000..=601_000).contains(&ago), "{ago}");
        assert!(parse_past("yesterday").is_err());
    }

    #[test]
    fn the_clock_part_is_cut_out() {
        assert_eq!(clock("2030-01-01T08:09:10.5Z"), "08:09:10.500");
    }
}

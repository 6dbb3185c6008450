//! Times and durations in the format of the dialect: RFC 3339 with all digits, and durations as Go prints them.

use jiff::Timestamp;
use laneway_core::{Span, Wall};

/// A time, in UTC.
pub fn rfc3339(at: Wall) -> String {
    Timestamp::from_millisecond(at.0).unwrap_or(Timestamp::MAX).to_string()
}

/// A time from a client: its value, and its text (in the client's own offset).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its value.
    pub at: Wall,
    /// Its text.
    pub text: String,
}

/// Parses `2030-01-01T08:00:00Z`, with or without a fraction, with `Z` or an offset. Nothing else is RFC 3339.
pub fn parse(text: &str) -> Option<Given> {
    let (time, rest) = text.split_at_checked(19)?;
    let is_shape = time.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        10 => byte == b'T',
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    let digits = match rest.strip_prefix(['.', ',']) {
        Some(rest) => rest.bytes().take_while(u8::is_ascii_digit).count(),
        None => 0,
    };
    let (fraction, offset) = rest.split_at(if digits > 0 { digits + 1 } else { 0 });
    if !is_shape || !is_offset(offset) {
        return None;
    }
    let fraction = fraction.get(1..).unwrap_or("");
    let fraction = fraction[..fraction.len().min(9)].trim_end_matches('0');
    let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
    let offset = if matches!(offset, "+00:00" | "-00:00") { "Z" } else { offset };
    let text = format!("{time}{fraction}{offset}");
    let at = match text.parse::<Timestamp>() {
        Ok(at) => at,
        Err(_) => beyond(time, offset)?,
    };
    Some(Given { at: Wall(at.as_millisecond()), text })
}

/// The calendar ends at `9999-12-30T22:00:00Z`. A valid later time is a deadline that never comes, as clients
/// mean `9999-12-31T23:59:59Z`; a valid time before the first instant has passed.
fn beyond(time: &str, offset: &str) -> Option<Timestamp> {
    const MARGIN: i64 = 2 * 24 * 60 * 60;
    let civil: jiff::civil::DateTime = time.parse().ok()?;
    // A time with an invalid offset is invalid.
    format!("2000-01-01T00:00:00{offset}").parse::<Timestamp>().ok()?;
    let since = civil.duration_since(jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0)).as_secs();
    if since > Timestamp::MAX.as_second() - MARGIN {
        return Some(Timestamp::MAX);
    }
    None
}

fn is_offset(text: &str) -> bool {
    let bytes = text.as_bytes();
    text == "Z"
        || (bytes.len() == 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|&at| bytes[at].is_ascii_digit()))
}

/// A duration as Go prints it: `5m0s`, `1h0m0s`, `1.5s`, `250ms`.
pub fn go_duration(span: Span) -> String {
    let (seconds, ms) = (span.0 / 1_000, span.0 % 1_000);
    if seconds == 0 {
        return if ms == 0 { "0s".to_owned() } else { format!("{ms}ms") };
    }
    let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}").trim_end_matches('0').to_owned() };
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    let rest = format!("{}{fraction}s", seconds % 60);
    match (hours, minutes) {
        (0, 0) => rest,
        (0, minutes) => format!("{minutes}m{rest}"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}"),
    }
}

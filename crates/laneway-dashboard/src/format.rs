//! Times, durations, counts and states as people read them.

use jiff::Timestamp;

/// The time of this machine, in milliseconds since 1970.
pub fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// The milliseconds of a time that the API wrote.
pub fn millis(time: &str) -> Option<i64> {
    time.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// The milliseconds from one time to another.
pub fn between(from: &str, to: &str) -> Option<u64> {
    u64::try_from(millis(to)? - millis(from)?).ok()
}

/// A duration with two units at most.
pub fn duration(ms: u64) -> String {
    let (s, m, h, d) = (ms / 1_000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{}.{} s", s, ms % 1_000 / 100),
        10_000..60_000 => format!("{s} s"),
        60_000..3_600_000 => format!("{m} min {:02} s", s % 60),
        3_600_000..86_400_000 => format!("{h} h {:02} min", m % 60),
        _ => format!("{d} d {} h", h % 24),
    }
}

/// How long ago a time was, or how far ahead it is.
pub fn ago(time: &str, now: i64) -> String {
    let Some(at) = millis(time) else { return time.to_owned() };
    let distance = rough(at.abs_diff(now));
    match distance.as_str() {
        "now" => distance,
        _ if at <= now => format!("{distance} ago"),
        _ => format!("in {distance}"),
    }
}

/// A duration with one unit.
fn rough(ms: u64) -> String {
    let s = ms / 1_000;
    match s {
        0 => "now".to_owned(),
        1..120 => format!("{s} s"),
        120..7_200 => format!("{} min", s / 60),
        7_200..172_800 => format!("{} h", s / 3_600),
        _ => format!("{} days", s / 86_400),
    }
}

/// A time as `<time>`, with the exact time as its title.
pub struct Moment {
    /// The exact time.
    pub exact: String,
    /// How long ago it was.
    pub ago: String,
}

impl Moment {
    /// The moment of a time of the API.
    pub fn new(time: &str, now: i64) -> Moment {
        Moment { exact: time.to_owned(), ago: ago(time, now) }
    }

    /// The same, where there may be none.
    pub fn optional(time: Option<&str>, now: i64) -> Option<Moment> {
        time.map(|time| Moment::new(time, now))
    }
}

/// A count with thin spaces between thousands.
pub fn count(number: &u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// The part of a whole in percent, at most 100.
pub fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0).min(100)
}

/// The end of an id, which differs between ids of the same time.
pub fn short(id: &str) -> &str {
    let from = id.char_indices().rev().nth(7).map_or(0, |(at, _)| at);
    &id[from..]
}

/// A size in bytes.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{}.{} MiB", bytes / 1_048_576, bytes % 1_048_576 * 10 / 1_048_576),
    }
}

/// Control characters and marks of direction as visible text, so that they cannot disguise the rest.
pub fn visible(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
            '\u{7f}'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            _ => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_counts_read_well() {
        let cases = [
            (5, "5 ms"),
            (1_250, "1.2 s"),
            (42_000, "42 s"),
            (83_000, "1 min 23 s"),
            (3_720_000, "1 h 02 min"),
            (200_000_000, "2 d 7 h"),
        ];
        for (ms, text) in cases {
            assert_eq!(duration(ms), text);
        }
        assert_eq!(count(&1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!((count(&7).as_str(), size(1_572_864).as_str()), ("7", "1.5 MiB"));
    }

    #[test]
    fn times_are_relative_to_the_server() {
        let now = millis("2030-01-01T00:01:00.000Z").unwrap();
        assert_eq!(ago("2030-01-01T00:00:30.000Z", now), "30 s ago");
        assert_eq!(ago("2030-01-01T03:01:00Z", now), "in 3 h");
        assert_eq!(ago("not a time", now), "not a time");
        assert_eq!(between("2030-01-01T00:00:00Z", "2030-01-01T00:00:01.5Z"), Some(1_500));
    }

    #[test]
    fn control_characters_become_visible() {
        assert_eq!(visible("a\u{1b}[31m\u{202e}b\nc"), "a\u{241b}[31m\u{fffd}b\nc");
    }
}

//! Reads the header `Range`, with one range of bytes.

use axum::http::HeaderMap;
use axum::http::header::{IF_RANGE, RANGE};

/// The requested bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    All,
    /// From the first to the last number, both included.
    From(u64, u64),
    /// The last so many.
    Last(u64),
}

impl Wanted {
    /// The range in the headers. Headers without a single valid range request all bytes, as the standard allows; so
    /// do conditional ranges.
    pub fn of(headers: &HeaderMap) -> Wanted {
        let mut values = headers.get_all(RANGE).iter();
        match (values.next(), values.next()) {
            (Some(value), None) if !headers.contains_key(IF_RANGE) => {
                value.to_str().ok().and_then(parse).unwrap_or(Wanted::All)
            }
            _ => Wanted::All,
        }
    }
}

/// Reads `bytes=0-99`, `bytes=100-` or `bytes=-100`.
fn parse(text: &str) -> Option<Wanted> {
    let (unit, range) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    match (first, last) {
        ("", last) => number(last).map(Wanted::Last),
        (first, "") => Some(Wanted::From(number(first)?, u64::MAX)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Wanted::From(first, last))
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that overflows is past every end.
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn of(text: &str) -> Wanted {
        let value = HeaderValue::from_str(text).unwrap();
        Wanted::of(&HeaderMap::from_iter([(RANGE, value)]))
    }

    #[test]
    fn one_range_of_bytes_is_read() {
        assert_eq!(of("bytes=0-99"), Wanted::From(0, 99));
        assert_eq!(of("Bytes= 5-5"), Wanted::From(5, 5));
        assert_eq!(of("bytes=7-"), Wanted::From(7, u64::MAX));
        assert_eq!(of("bytes=-7"), Wanted::Last(7));
        assert_eq!(of("bytes=0-99999999999999999999999"), Wanted::From(0, u64::MAX));
    }

    #[test]
    fn all_other_headers_request_all_bytes() {
        for text in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=2-1",
            "bytes=0-1,5-6",
            "lines=0-1",
            "bytes=a-b",
            "bytes=+1-2",
        ] {
            assert_eq!(of(text), Wanted::All, "{text:?}");
        }
        assert_eq!(Wanted::of(&HeaderMap::new()), Wanted::All);
        let value = HeaderValue::from_static("bytes=0-1");
        let twice = HeaderMap::from_iter([(RANGE, value.clone()), (IF_RANGE, value)]);
        assert_eq!(Wanted::of(&twice), Wanted::All);
    }
}

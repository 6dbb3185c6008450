//! Lengths of time and sizes as people write them: `1h30m`, `500ms`, `1MiB`.

use laneway_core::Span;

/// Units of time, longest first, in milliseconds.
const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Units of size, largest first, in bytes. Only the first five are written.
const SIZE_UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// Reads a length of time: numbers with units, longest first, such as `30s`, `1h30m` or `500ms`.
pub fn parse_span(text: &str) -> Option<Span> {
    let mut rest = text;
    let mut total: u64 = 0;
    let mut units = TIME_UNITS.iter();
    while !rest.is_empty() {
        let (number, after) = leading_number(rest)?;
        let name_len = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (name, next) = after.split_at(name_len);
        // Searching on in the same iterator rejects units that come twice or in the wrong order.
        let (_, unit) = units.find(|(known, _)| *known == name)?;
        total = total.checked_add(number.checked_mul(*unit)?)?;
        rest = next;
    }
    (!text.is_empty()).then_some(Span(total))
}

/// Writes a length of time so that [`parse_span`] reads it.
pub fn format_span(span: Span) -> String {
    let mut rest = span.0;
    let mut text = String::new();
    for (name, unit) in TIME_UNITS {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Reads a size: a number with one unit, such as `1MiB` or `64KiB`.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, name) = leading_number(text)?;
    let (_, unit) = SIZE_UNITS.iter().find(|(known, _)| *known == name.trim_start())?;
    number.checked_mul(*unit)
}

/// Writes a size so that [`parse_size`] reads it: in the largest unit that needs no fraction.
pub fn format_size(bytes: u64) -> String {
    let fits = SIZE_UNITS[..5].iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    let (name, unit) = fits.copied().unwrap_or(("B", 1));
    format!("{}{name}", bytes / unit)
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(len);
    Some((digits.parse().ok()?, rest))
}

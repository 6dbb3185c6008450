//! Patterns for durations and times between bounds.
//!
//! A pattern matches only values that the server accepts. It requires the usual notation (`1h30m`, not `1h90m`; no
//! leading zeros), because otherwise a pattern cannot exclude values that are too long.

use laneway_core::Span;
use serde_json::{Value, json};

use laneway_runtime::config::format_span;

/// The units from the longest to the shortest, with their milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The shorter units that may follow a unit, in total less than one of it. The first entry follows days.
const REST: [&str; 4] = ["(([01]?[0-9]|2[0-3])h)?", "([0-5]?[0-9]m)?", "([0-5]?[0-9]s)?", "([0-9]{1,3}ms)?"];

/// A time that the server accepts: from the beginning of 1970 to the end of 9999. In these two years only in UTC,
/// because an offset could lead out of them.
const MOMENT: &str =
    "^((197[1-9]|19[89][0-9]|[2-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])-.+|(1970|9999)-.+[Zz])$";

/// The rule for a time.
pub fn moment() -> Value {
    json!({"format": "date-time", "pattern": MOMENT})
}

/// The rule for a duration between two bounds.
pub fn span(least: Span, most: Span) -> Value {
    rule(&format!("^({})$", alternatives(least, most)), least, most)
}

/// The same, or the string `none`.
pub fn span_or_none(least: Span, most: Span) -> Value {
    rule(&format!("^(none|{})$", alternatives(least, most)), least, most)
}

fn rule(pattern: &str, least: Span, most: Span) -> Value {
    let bounds = format!("From {} to {}.", format_span(least), format_span(most));
    json!({"pattern": pattern, "description": bounds})
}

fn alternatives(least: Span, most: Span) -> String {
    let mut forms = Vec::new();
    for (at, (unit, millis)) in UNITS.into_iter().enumerate() {
        let (low, high) = (least.0.div_ceil(millis), most.0 / millis);
        if high == 0 || high < low {
            continue;
        }
        if unit == "ms" {
            forms.push(format!("({})ms", numbers(low, high)));
            continue;
        }
        // Shorter units may follow only below the highest number.
        if low < high {
            forms.push(format!("({}){unit}{}", numbers(low, high - 1), REST[at..].concat()));
        }
        forms.push(format!("{high}{unit}"));
    }
    forms.join("|")
}

/// The numbers from `low` to `high`, without leading zeros.
fn numbers(low: u64, high: u64) -> String {
    let (short, long) = (low.to_string().len(), high.to_string().len());
    let mut forms = Vec::new();
    if short == long {
        same_length(low.to_string().as_bytes(), high.to_string().as_bytes(), "", &mut forms);
        return forms.join("|");
    }
    same_length(low.to_string().as_bytes(), "9".repeat(short).as_bytes(), "", &mut forms);
    if short + 1 < long {
        forms.push(format!("[1-9][0-9]{{{short},{}}}", long - 2));
    }
    let round = format!("1{}", "0".repeat(long - 1));
    same_length(round.as_bytes(), high.to_string().as_bytes(), "", &mut forms);
    forms.join("|")
}

/// Adds patterns for the numbers with the same number of digits between two, with the shared digits before them.
fn same_length(low: &[u8], high: &[u8], shared: &str, forms: &mut Vec<String>) {
    let (Some((&first, low_rest)), Some((&last, high_rest))) = (low.split_first(), high.split_first()) else {
        return forms.push(shared.to_owned());
    };
    if first == last {
        return same_length(low_rest, high_rest, &format!("{shared}{}", char::from(first)), forms);
    }
    let (mut from, mut to) = (first, last);
    if low_rest.iter().any(|digit| *digit != b'0') {
        let nines = vec![b'9'; low_rest.len()];
        same_length(low_rest, &nines, &format!("{shared}{}", char::from(first)), forms);
        from += 1;
    }
    if high_rest.iter().any(|digit| *digit != b'9') {
        let zeros = vec![b'0'; high_rest.len()];
        same_length(&zeros, high_rest, &format!("{shared}{}", char::from(last)), forms);
        to -= 1;
    }
    if from > to {
        return;
    }
    let digits = match low_rest.len() {
        0 => String::new(),
        1 => "[0-9]".to_owned(),
        more => format!("[0-9]{{{more}}}"),
    };
    forms.push(format!("{shared}[{}-{}]{digits}", char::from(from), char::from(to)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_between_the_bounds() {
        for (low, high) in
            [(0, 0), (0, 9), (1, 60), (0, 365), (100, 8_784), (7, 1_000), (99, 3_650), (23, 24)]
        {
            let pattern = format!("^({})$", numbers(low, high));
            let rule = jsonschema::validator_for(&json!({ "pattern": pattern })).unwrap();
            for number in 0..12_000_u64 {
                let allowed = (low..=high).contains(&number);
                assert_eq!(rule.is_valid(&json!(number.to_string())), allowed, "{number} {pattern}");
            }
            assert!(!rule.is_valid(&json!("007")) && !rule.is_valid(&json!("")), "{pattern}");
        }
    }
}

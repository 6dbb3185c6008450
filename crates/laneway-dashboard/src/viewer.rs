//! Payloads and results as text: JSON with indents, cut where it is too long for a page.

use serde_json::Value;

use crate::format::{size, visible};

/// The largest text that a page shows, in bytes. The rest is a download.
const SHOWN_BYTES_MAX: usize = 16 * 1024;

/// A document as a page shows it.
pub struct Document {
    /// The text, with visible control characters.
    pub text: String,
    /// The size of the whole document, if the text is only its beginning.
    pub cut_from: Option<String>,
}

impl Document {
    /// Shows JSON, or bytes that are not JSON.
    pub fn new(bytes: &[u8]) -> Document {
        let pretty = (bytes.len() <= SHOWN_BYTES_MAX)
            .then(|| serde_json::from_slice::<Value>(bytes).ok())
            .flatten()
            .and_then(|value| serde_json::to_string_pretty(&value).ok());
        let text = pretty.unwrap_or_else(|| String::from_utf8_lossy(bytes).into_owned());
        let end =
            (0..=SHOWN_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let is_cut = end < text.len();
        Document { text: visible(&text[..end]), cut_from: is_cut.then(|| size(bytes.len() as u64)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_json_bytes_and_only_the_beginning_of_much() {
        assert_eq!(Document::new(br#"{"a":[1]}"#).text, "{\n  \"a\": [\n    1\n  ]\n}");
        assert_eq!(Document::new(b"\xff\x00x").text, "\u{fffd}\u{2400}x");
        let long = Document::new("é".repeat(600_000).as_bytes());
        assert!(long.text.len() <= SHOWN_BYTES_MAX && long.cut_from.as_deref() == Some("1.1 MiB"));
    }
}

//! Maps ids of other systems, which are any text, to valid names.

use laneway_core::Name;
use sha2::{Digest, Sha256};

/// The prefix of names for texts that are not valid names.
const ESCAPED: char = '~';

/// The name for a text. A text that is not a valid name is escaped, and one that is too long is replaced by a
/// digest.
pub fn name_of(text: &str) -> Name {
    if let Ok(name) = Name::new(text)
        && !text.starts_with(ESCAPED)
    {
        return name;
    }
    let mut escaped = String::from(ESCAPED);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    Name::new(&escaped).unwrap_or_else(|_| {
        let digest: String =
            Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        Name::new(&format!("{ESCAPED}{digest}")).expect("hex digits are a name")
    })
}

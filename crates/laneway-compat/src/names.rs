//! Names of ours for texts of theirs: their ids are any text, our names are not.

use laneway_core::Name;
use sha2::{Digest, Sha256};

/// What names begin with whose texts are no names.
const ESCAPED: char = '~';

/// The name of a text. What is no name is escaped, and what is too long is digested.
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

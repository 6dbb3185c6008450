//! The canonical form of a JSON value: sorted keys, no spaces. Two values are equal when their forms are.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The digest of a value's canonical form.
pub fn digest(value: &Value) -> [u8; 32] {
    // Objects are ordered maps here, so their keys are written in order.
    Sha256::digest(value.to_string().as_bytes()).into()
}

/// A digest in hexadecimal digits.
pub fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{digest, hex};

    #[test]
    fn the_order_of_keys_and_spaces_mean_nothing() {
        let read = |text: &str| digest(&serde_json::from_str(text).unwrap());
        assert_eq!(
            read(r#"{"b": [1, 2], "a": {"d": 1, "c": null}}"#),
            read(r#"{"a":{"c":null,"d":1},"b":[1,2]}"#)
        );
        assert_ne!(read("[1,2]"), read("[2,1]"));
        let empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(hex(&read("{}")), empty, "SHA-256 of the two characters");
    }
}

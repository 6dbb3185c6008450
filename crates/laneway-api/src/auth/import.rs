//! Imported secrets: tokens of another system that their owners keep using.
//!
//! The server stores the digest of the whole string, and checks it as fast as its own tokens. So it accepts no secret
//! that can be guessed: this module checks length and variety, which is all that a server can see of randomness.

use std::collections::BTreeSet;

use laneway_core::token::IMPORTED_PREFIX;
use laneway_core::{Name, Role, TokenRecord, Wall};
use sha2::{Digest, Sha256};

use super::{ID_BYTES, PREFIX, hex, random};

/// The smallest number of characters: 64 bits of random hex digits.
const LEN_MIN: usize = 16;
/// The largest number of characters: it must fit into a header.
const LEN_MAX: usize = 512;
/// The smallest number of different characters. Of 1,000 random strings of 16 hex digits, one has fewer.
const DIFFERENT_MIN: usize = 8;

/// The record of an imported secret. The error says what is wrong, without the secret.
pub fn import(
    secret: &str,
    tenant: Option<Name>,
    role: Role,
    note: &str,
    created_at: Wall,
    expires_at: Option<Wall>,
) -> Result<TokenRecord, String> {
    check(secret)?;
    let id =
        random::<ID_BYTES>().map_err(|error| format!("cannot get random bytes from the system: {error}"))?;
    let id = format!("{IMPORTED_PREFIX}{}", hex(&id));
    Ok(TokenRecord {
        id: Name::new(&id).expect("hex digits are a name"),
        tenant,
        role,
        digest: Sha256::digest(secret.as_bytes()).into(),
        note: note.into(),
        created_at,
        expires_at,
        revoked_at: None,
    })
}

fn check(secret: &str) -> Result<(), String> {
    if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be printable ASCII without spaces, as it is sent in a header".to_owned());
    }
    let len = secret.len();
    if !(LEN_MIN..=LEN_MAX).contains(&len) {
        return Err(format!(
            "has {len} characters and must have {LEN_MIN} to {LEN_MAX}; give its clients a longer one, such as the output \
             of `openssl rand -hex 32`, and import that"
        ));
    }
    let different = secret.bytes().collect::<BTreeSet<u8>>().len();
    if different < DIFFERENT_MIN {
        return Err(format!(
            "has {different} different characters and must have at least {DIFFERENT_MIN}, or it could be guessed; use a \
             random one"
        ));
    }
    if secret.starts_with(PREFIX) {
        return Err(format!(
            "begins with {PREFIX}, like Laneway's own tokens; create one with `laneway token create`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_long_and_varied_secrets_only() {
        let import = |secret: &str| import(secret, None, Role::Admin, "", Wall(1), None);
        for good in ["0123456789abcdef", "7f3c2e1d-94b0-4a55-8f11-6a2b0c9d8e7f", &"aB3$xY7!".repeat(64)] {
            let record = import(good).unwrap();
            assert!(record.is_imported());
            assert_eq!(record.digest, <[u8; 32]>::from(Sha256::digest(good)));
        }
        for (bad, why) in [
            ("dev-token", "has 9 characters"),
            ("passwordpassword", "has 7 different characters"),
            ("0123456789 abcdef", "without spaces"),
            ("0123456789äöüabcdef", "printable ASCII"),
            ("lw_0123456789abcdef_0123456789abcdef", "begins with lw_"),
            (&"aB3$xY7!".repeat(65), "has 520 characters"),
            ("", "has 0 characters"),
        ] {
            let error = import(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
            assert!(bad.is_empty() || !error.contains(bad), "the error shows the secret: {error}");
        }
    }
}

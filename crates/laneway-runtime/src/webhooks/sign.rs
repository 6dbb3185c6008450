//! Signatures as specified by Standard Webhooks: a receiver that has the secret can verify origin, content and age.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

use crate::config::SigningSecrets;

/// The prefix of a secret.
const PREFIX: &str = "whsec_";

/// A secret, ready to sign with.
pub struct SigningKey(hmac::Key);

impl SigningKey {
    /// Reads `whsec_…`: 24 to 64 bytes in base64.
    pub fn parse(secret: &str) -> Option<SigningKey> {
        let bytes = BASE64_STANDARD.decode(secret.strip_prefix(PREFIX)?).ok()?;
        (24..=64).contains(&bytes.len()).then(|| SigningKey(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// One signature over id, time (seconds since 1970) and body.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(context.sign()))
    }
}

/// The header `webhook-signature`: one signature for each secret. `None` where there is no secret.
pub fn signatures(secrets: &SigningSecrets, id: &str, timestamp: i64, body: &[u8]) -> Option<String> {
    let keys = secrets.iter().filter_map(|secret| SigningKey::parse(secret.reveal()));
    let signed: Vec<String> = keys.map(|key| key.sign(id, timestamp, body)).collect();
    (!signed.is_empty()).then(|| signed.join(" "))
}

/// `sha256=` and the HMAC of the body with the text of the current secret. `None` where there is no secret.
pub fn plain_signature(secrets: &SigningSecrets, body: &[u8]) -> Option<String> {
    let secret = secrets.current.as_ref()?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes());
    let tag = hmac::sign(&key, body);
    let digits: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("sha256={digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// The example that the specification's own libraries test with.
    #[test]
    fn the_example_of_the_specification_is_signed_as_it_says() {
        let key = SigningKey::parse(SECRET).unwrap();
        let signed = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_secrets_make_two_signatures_and_none_makes_none() {
        let other = format!("whsec_{}", BASE64_STANDARD.encode([7; 32]));
        let (current, previous) = (Some(Secret::new(SECRET)), Some(Secret::new(&other)));
        let both = signatures(&SigningSecrets { current: current.clone(), previous }, "a", 1, b"{}").unwrap();
        let one = signatures(&SigningSecrets { current, previous: None }, "a", 1, b"{}").unwrap();
        assert_eq!(both.split(' ').next(), Some(one.as_str()));
        assert_eq!(both.split(' ').count(), 2);
        assert_eq!(signatures(&SigningSecrets::default(), "a", 1, b"{}"), None);
    }

    /// Computed with `openssl dgst -sha256 -hmac`.
    #[test]
    fn a_plain_signature_is_the_hmac_of_the_body_with_the_text_of_the_secret() {
        let secrets = SigningSecrets { current: Some(Secret::new(SECRET)), previous: None };
        let signed = plain_signature(&secrets, br#"{"a":1}"#).unwrap();
        assert_eq!(signed, "sha256=45ec03b2b33403c8043a90de06bedad0827183927115fd7e448ef97eeb13c5be");
        assert_eq!(plain_signature(&SigningSecrets::default(), b"{}"), None);
    }

    #[test]
    fn what_is_no_secret_is_rejected() {
        let short = format!("whsec_{}", BASE64_STANDARD.encode([7; 23]));
        for text in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_***", &short] {
            assert!(SigningKey::parse(text).is_none(), "{text}");
        }
    }
}

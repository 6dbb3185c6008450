//! Where a list goes on: opaque texts that fit the list they came from and no other.
//!
//! A cursor holds a position and a code over the position, the tenant and the filters. The key is drawn at start, so
//! a client cannot make one, learn from one how many jobs others have, or use one for another list.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of the code: 128 bits cannot be guessed.
const CODE_LEN: usize = 16;

/// Makes and reads cursors; its key lives as long as the process.
pub struct Cursors {
    key: [u8; 32],
}

impl Cursors {
    /// With a key that the system draws.
    pub fn fresh() -> Result<Cursors, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Cursors::new(key))
    }

    /// With a key from `key`, which must be random.
    pub fn new(key: [u8; 32]) -> Cursors {
        Cursors { key }
    }

    /// The cursor for `position` in the list that `list` describes.
    pub fn write(&self, list: &str, position: u64) -> String {
        let code = self.code(list, position);
        let mut bytes = [0; 8 + CODE_LEN];
        bytes[..8].copy_from_slice(&(position ^ self.mask(&code)).to_be_bytes());
        bytes[8..].copy_from_slice(&code);
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The position of a cursor of the list that `list` describes; `None` for any other text.
    pub fn read(&self, list: &str, cursor: &str) -> Option<u64> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (position, code) = bytes.split_at_checked(8)?;
        let code: [u8; CODE_LEN] = code.try_into().ok()?;
        let position = u64::from_be_bytes(position.try_into().ok()?) ^ self.mask(&code);
        bool::from(self.code(list, position).ct_eq(&code)).then_some(position)
    }

    fn code(&self, list: &str, position: u64) -> [u8; CODE_LEN] {
        let mut hash = Sha256::new_with_prefix(self.key);
        hash.update(position.to_be_bytes());
        hash.update(list.as_bytes());
        first(&hash.finalize())
    }

    /// Hides the position: it counts the jobs of every tenant.
    fn mask(&self, code: &[u8; CODE_LEN]) -> u64 {
        let mut hash = Sha256::new_with_prefix(self.key);
        hash.update(code);
        u64::from_be_bytes(first(&hash.finalize()))
    }
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes[..N].try_into().expect("a digest has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_only_its_own_list() {
        let cursors = Cursors::new([7; 32]);
        let cursor = cursors.write("jobs tenant=a", 42);
        assert_eq!(cursors.read("jobs tenant=a", &cursor), Some(42));
        assert!(cursors.read("jobs tenant=b", &cursor).is_none());
        assert!(Cursors::new([8; 32]).read("jobs tenant=a", &cursor).is_none());
    }

    #[test]
    fn rejects_every_change() {
        let cursors = Cursors::new([7; 32]);
        let cursor = cursors.write("list", 42);
        for at in 0..cursor.len() {
            let mut bytes = cursor.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert!(cursors.read("list", std::str::from_utf8(&bytes).unwrap()).is_none(), "{at}");
        }
        for text in ["", "A", "!!!", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(cursors.read("list", text).is_none());
        }
    }
}

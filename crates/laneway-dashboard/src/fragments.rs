//! Main parts of pages that many readers with equal rights see at the same time. Each is made once a second at most.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old a part may be.
const AGE_MAX: Duration = Duration::from_millis(900);
/// Most parts that are kept.
const PARTS_MAX: usize = 128;
/// The largest part that is kept, in bytes.
const PART_BYTES_MAX: usize = 256 * 1024;

/// The parts, by reader and address.
#[derive(Default)]
pub struct Fragments {
    parts: Mutex<BTreeMap<String, (Instant, String)>>,
}

impl Fragments {
    /// A part that is young enough.
    pub fn find(&self, key: &str, now: Instant) -> Option<String> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.get(key).filter(|(made, _)| now.duration_since(*made) < AGE_MAX).map(|(_, html)| html.clone())
    }

    /// Keeps a part for others.
    pub fn keep(&self, key: String, html: String, now: Instant) {
        if html.len() > PART_BYTES_MAX {
            return;
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|_, (made, _)| now.duration_since(*made) < AGE_MAX);
        if parts.len() < PARTS_MAX {
            parts.insert(key, (now, html));
        }
    }

    /// Forgets every part: something was changed, and the reader wants to see it.
    pub fn clear(&self) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_shared_for_less_than_a_second() {
        let (parts, now) = (Fragments::default(), Instant::now());
        parts.keep("a".to_owned(), "<p>".to_owned(), now);
        assert_eq!(parts.find("a", now).as_deref(), Some("<p>"));
        assert_eq!(parts.find("b", now), None);
        assert_eq!(parts.find("a", now + AGE_MAX), None);
        parts.clear();
        assert_eq!(parts.find("a", now), None);
    }
}

//! Main parts of pages that many readers with equal rights see at the same time. Each is made once a second at most.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

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
    /// Who makes a part now. Open pages are notified at the same moment, and ask for the same part together.
    makers: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Fragments {
    /// A part that is young enough.
    pub fn find(&self, key: &str, now: Instant) -> Option<String> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.get(key).filter(|(made, _)| now.duration_since(*made) < AGE_MAX).map(|(_, html)| html.clone())
    }

    /// Waits while another request makes the part. It is there then, unless it could not be made. The caller makes it while it has
    /// the guard.
    pub async fn wait(&self, key: &str) -> OwnedMutexGuard<()> {
        let maker = {
            let mut makers = self.makers.lock().unwrap_or_else(PoisonError::into_inner);
            makers.retain(|other, maker| other == key || Arc::strong_count(maker) > 1);
            Arc::clone(makers.entry(key.to_owned()).or_default())
        };
        maker.lock_owned().await
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

    #[tokio::test]
    async fn requests_at_the_same_moment_make_a_part_once() {
        let (parts, made) = (Arc::new(Fragments::default()), Arc::new(std::sync::atomic::AtomicU32::new(0)));
        let ask = |key: &'static str| {
            let (parts, made) = (Arc::clone(&parts), Arc::clone(&made));
            tokio::spawn(async move {
                let _guard = parts.wait(key).await;
                if parts.find(key, Instant::now()).is_none() {
                    made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    parts.keep(key.to_owned(), "<p>".to_owned(), Instant::now());
                }
            })
        };
        let asked: Vec<_> = (0..200).map(|number| ask(if number % 2 == 0 { "a" } else { "b" })).collect();
        for one in asked {
            one.await.unwrap();
        }
        assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 2);
        drop(parts.wait("c").await);
        assert_eq!(
            parts.makers.lock().unwrap().len(),
            1,
            "makers of parts that no request waits for are forgotten"
        );
    }

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

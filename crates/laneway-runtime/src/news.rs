//! The box between the loop and whoever sends the news of ended jobs. The loop puts in and never waits.

use std::sync::{Mutex, PoisonError};

use laneway_core::Span;
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::webhooks::News;

/// Room in the box: more than the engine hands out at once, also when it was built anew meanwhile.
const ROOM: usize = 4_096;

/// The box.
pub(crate) struct NewsBox {
    put: mpsc::Sender<News>,
    taken: Mutex<Option<mpsc::Receiver<News>>>,
    /// News that was put in and not yet told.
    under_way: watch::Sender<usize>,
}

impl NewsBox {
    pub(crate) fn new() -> NewsBox {
        let (put, take) = mpsc::channel(ROOM);
        NewsBox { put, taken: Mutex::new(Some(take)), under_way: watch::Sender::new(0) }
    }

    /// Puts news in. False: there is no room.
    pub(crate) fn put(&self, news: News) -> bool {
        let fits = self.put.try_send(news).is_ok();
        if fits {
            self.under_way.send_modify(|count| *count += 1);
        }
        fits
    }

    /// The end where news comes out; given once.
    pub(crate) fn take(&self) -> Option<mpsc::Receiver<News>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Some news was told, well or badly.
    pub(crate) fn told(&self) {
        self.under_way.send_modify(|count| *count = count.saturating_sub(1));
    }

    /// Waits until no news is under way, at most for `span`. Does not wait where nobody sends.
    pub(crate) async fn all_told_within(&self, clock: &Clock, span: Span) {
        if self.taken.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return;
        }
        let mut under_way = self.under_way.subscribe();
        tokio::select! {
            biased;
            _ = under_way.wait_for(|count| *count == 0) => {}
            () = clock.sleep(span) => {}
        }
    }
}

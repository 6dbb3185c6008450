//! The queue of due webhook deliveries between the loop and the dispatcher. The loop never waits for it.

use std::sync::{Mutex, PoisonError};

use laneway_core::Span;
use tokio::sync::{mpsc, watch};

use super::DueDelivery;
use crate::clock::Clock;

/// Most deliveries in the queue: more than the engine publishes at once, also when it was rebuilt in between.
const LEN_MAX: usize = 4_096;

/// The queue.
pub(crate) struct WebhookQueue {
    sender: mpsc::Sender<DueDelivery>,
    receiver: Mutex<Option<mpsc::Receiver<DueDelivery>>>,
    /// Deliveries that are queued or in flight.
    open: watch::Sender<usize>,
}

impl WebhookQueue {
    pub(crate) fn new() -> WebhookQueue {
        let (sender, receiver) = mpsc::channel(LEN_MAX);
        WebhookQueue { sender, receiver: Mutex::new(Some(receiver)), open: watch::Sender::new(0) }
    }

    /// Adds a delivery. False: the queue is full.
    pub(crate) fn put(&self, delivery: DueDelivery) -> bool {
        let fits = self.sender.try_send(delivery).is_ok();
        if fits {
            self.open.send_modify(|count| *count += 1);
        }
        fits
    }

    /// The receiving end, for the one dispatcher; returned once.
    pub(crate) fn take(&self) -> Option<mpsc::Receiver<DueDelivery>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A delivery was tried, with or without success.
    pub(crate) fn ended(&self) {
        self.open.send_modify(|count| *count = count.saturating_sub(1));
    }

    /// Waits until no delivery is open, at most for `span`. Does not wait if there is no dispatcher.
    pub(crate) async fn all_ended_within(&self, clock: &Clock, span: Span) {
        if self.receiver.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return;
        }
        let mut open = self.open.subscribe();
        tokio::select! {
            biased;
            _ = open.wait_for(|count| *count == 0) => {}
            () = clock.sleep(span) => {}
        }
    }
}

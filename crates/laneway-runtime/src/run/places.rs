//! Tells places what is durable: attempts to run, runs to stop, news to send.

use std::collections::{BTreeMap, HashSet};

use laneway_core::effect::Offer;
use laneway_core::{Command, Failure, Fence, Name, Notice, Now, Outcome, Span, Task, TryOutcome};

use super::{Loop, Word};
use crate::executors::Offered;
use crate::webhooks::News;
use crate::workers::{Connections, ToWorker, WorkerOffered};

impl Loop {
    /// Hands every notice to whom it is for.
    pub(super) fn tell_places(&mut self, now: Now, notices: &mut Vec<Notice>) {
        let mut offers = Vec::new();
        let mut stops: BTreeMap<Name, Vec<Fence>> = BTreeMap::new();
        // Told to workers last, in their order: what is bound must be known before it is stopped.
        let mut to_workers = Vec::new();
        for notice in notices.drain(..) {
            match notice {
                Notice::Offer(offer) => offers.push(offer),
                Notice::Stop { fence, connection: Some(connection), dispatch_seq, .. } => {
                    to_workers.push((connection, ToWorker::Stop(Task { job: fence.job, dispatch_seq })));
                }
                Notice::Stop { fence, place, .. } => stops.entry(place).or_default().push(fence),
                Notice::Next {
                    fence, connection: Some(connection), dispatch_seq, request, answer, ..
                } => {
                    let task = Task { job: fence.job, dispatch_seq };
                    to_workers.push((connection, ToWorker::Next { task, request, answer }));
                }
                Notice::Next { fence, place, request, answer, .. } => {
                    if let Some(placed) = self.places.get(&place) {
                        placed.answer(fence, &request, &answer);
                    }
                }
                Notice::Superseded(connection) => to_workers.push((connection, ToWorker::Superseded)),
                Notice::DrainConnection(connection) => to_workers.push((connection, ToWorker::Drain)),
                Notice::Deliver { seq, job, number } => self.hand_out(News { seq, job, number }),
            }
        }
        if !stops.is_empty() {
            self.hand_back_stopped(&mut offers, &stops);
        }
        let (for_workers, offers): (Vec<_>, Vec<_>) =
            offers.into_iter().partition(|offer| offer.to.is_some());
        self.offer_to_workers(now, for_workers);
        for (connection, word) in to_workers {
            self.shared.workers.tell(connection, word);
        }
        for (place, offered) in self.by_place(now, offers) {
            match self.places.get(&place) {
                Some(placed) => placed.now.offer(offered),
                None => self.fail_placeless(&place, offered),
            }
        }
        let grace = self.turn.engine().settings().stop_grace;
        for (place, fences) in stops {
            if let Some(placed) = self.places.get(&place) {
                placed.stop(&fences, grace);
            }
        }
    }

    fn offer_to_workers(&mut self, now: Now, offers: Vec<Offer>) {
        let mut offered = Vec::with_capacity(offers.len());
        for offer in offers {
            let Offer { seq, fence, place: _, kind, timeout, deadline, dispatch_seq, to } = offer;
            if let Some(to) = to {
                let kept = self.cache.take(seq);
                let one = Offered { seq, fence, timeout, deadline, at: now.wall, kept, dispatch_seq };
                offered.push(WorkerOffered { offered: one, kind, to });
            }
        }
        if !offered.is_empty() {
            Connections::offer(&self.shared, offered);
        }
    }

    /// News goes to whoever sends it. The box has room for more than the engine hands out at once.
    fn hand_out(&mut self, news: News) {
        let News { seq, number, .. } = news;
        if !self.shared.news.put(news) {
            let outcome = TryOutcome::Unanswered("too much news waits to be sent".into());
            let command = Command::DeliveryTried { seq, number, took: Span(0), outcome };
            self.put_word_first(Word { command, reply: None });
        }
    }

    /// An attempt that was opened and told to stop in the same turn never reaches its place.
    fn hand_back_stopped(&mut self, offers: &mut Vec<Offer>, stops: &BTreeMap<Name, Vec<Fence>>) {
        let stopped: HashSet<_> = stops.values().flatten().map(|fence| fence.attempt_id).collect();
        offers.retain(|offer| {
            let goes_on = !stopped.contains(&offer.fence.attempt_id);
            if !goes_on {
                let command = Command::Finish(offer.fence, Outcome::HandedBack);
                self.put_word_first(Word { command, reply: None });
            }
            goes_on
        });
    }

    /// Everything on offer by its place, with row and payload where they are still in memory.
    fn by_place(&mut self, now: Now, offers: Vec<Offer>) -> BTreeMap<Name, Vec<Offered>> {
        let mut by_place: BTreeMap<Name, Vec<Offered>> = BTreeMap::new();
        for offer in offers {
            let Offer { seq, fence, place, kind: _, timeout, deadline, dispatch_seq, to: _ } = offer;
            let kept = self.cache.take(seq);
            let offered = Offered { seq, fence, timeout, deadline, at: now.wall, kept, dispatch_seq };
            by_place.entry(place).or_default().push(offered);
        }
        by_place
    }

    /// The engine knows a place that the loop does not: its attempts fail rather than hang.
    fn fail_placeless(&mut self, place: &Name, offered: Vec<Offered>) {
        for offered in offered {
            let failure = Failure::retryable("no_place", format!("the place {place} is not here"));
            let command = Command::Finish(offered.fence, Outcome::Failed(failure));
            self.put_word_first(Word { command, reply: None });
        }
    }
}

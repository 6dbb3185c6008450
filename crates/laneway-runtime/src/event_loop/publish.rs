//! Publishes notices that are durable: attempts to executors and workers, stops, webhooks to send.

use laneway_core::command::DeliveryCommand;
use std::collections::{BTreeMap, HashSet};

use laneway_core::effect::Offer;
use laneway_core::{Command, Failure, Fence, Name, Notice, Now, Outcome, Span, Task, TryOutcome};

use super::{Loop, RunnerMessage};
use crate::executors::Offered;
use crate::webhooks::DueDelivery;
use crate::workers::{Connections, ToWorker, WorkerOffered};

impl Loop {
    /// Sends every notice to its receiver.
    pub(super) fn notify_executors(&mut self, now: Now, notices: &mut Vec<Notice>) {
        let mut offers = Vec::new();
        let mut stops: BTreeMap<Name, Vec<Fence>> = BTreeMap::new();
        // Sent to workers last and in order: a task must be bound before it is stopped.
        let mut to_workers = Vec::new();
        for notice in notices.drain(..) {
            match notice {
                Notice::Offer(offer) => offers.push(offer),
                Notice::Stop { fence, connection: Some(connection), dispatch_seq, .. } => {
                    to_workers.push((connection, ToWorker::Stop(Task { job: fence.job, dispatch_seq })));
                }
                Notice::Stop { fence, executor, .. } => stops.entry(executor).or_default().push(fence),
                Notice::Next {
                    fence, connection: Some(connection), dispatch_seq, request, answer, ..
                } => {
                    let task = Task { job: fence.job, dispatch_seq };
                    to_workers.push((connection, ToWorker::Next { task, request, answer }));
                }
                Notice::Next { fence, executor, request, answer, .. } => {
                    if let Some(entry) = self.executors.get(&executor) {
                        entry.answer(fence, &request, &answer);
                    }
                }
                Notice::Superseded(connection) => to_workers.push((connection, ToWorker::Superseded)),
                Notice::ProbeConnection(connection) => to_workers.push((connection, ToWorker::Probe)),
                Notice::DrainConnection(connection) => to_workers.push((connection, ToWorker::Drain)),
                // The history has counted it.
                Notice::Waited { .. } => {}
                Notice::Deliver { seq, job, number } => self.queue_delivery(DueDelivery { seq, job, number }),
                Notice::Unserved { tenant, schedule, kind } => tracing::warn!(
                    %schedule, %kind, %tenant,
                    "the jobs of a schedule stay queued: no handler, target or worker offers the kind; start a worker \
                     (laneway worker), set kinds.{kind}.target, or give the library a handler"
                ),
            }
        }
        if !stops.is_empty() {
            self.hand_back_stopped(&mut offers, &stops);
        }
        let (for_workers, offers): (Vec<_>, Vec<_>) =
            offers.into_iter().partition(|offer| offer.to.is_some());
        self.offer_to_workers(now, for_workers);
        for (connection, message) in to_workers {
            self.shared.workers.send(connection, message);
        }
        for (executor, offered) in self.by_executor(now, offers) {
            match self.executors.get(&executor) {
                Some(entry) => entry.now.offer(offered),
                None => self.fail_without_executor(&executor, offered),
            }
        }
        let grace = self.driver.engine().settings().stop_grace;
        for (executor, fences) in stops {
            if let Some(entry) = self.executors.get(&executor) {
                entry.stop(&fences, grace);
            }
        }
    }

    fn offer_to_workers(&mut self, now: Now, offers: Vec<Offer>) {
        let mut offered = Vec::with_capacity(offers.len());
        for offer in offers {
            let Offer { seq, fence, executor: _, kind, timeout, deadline, dispatch_seq, to } = offer;
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

    /// Queues a webhook delivery. The queue is longer than the number of deliveries that the engine publishes at once.
    fn queue_delivery(&mut self, delivery: DueDelivery) {
        let DueDelivery { seq, number, .. } = delivery;
        if !self.shared.webhook_queue.put(delivery) {
            let outcome = TryOutcome::Unanswered("too many webhook deliveries wait to be sent".into());
            let command = Command::Delivery(DeliveryCommand::Tried { seq, number, took: Span(0), outcome });
            self.put_message_first(RunnerMessage { command, reply: None });
        }
    }

    /// Hands back attempts that were opened and stopped in the same batch. They never reach their executor.
    fn hand_back_stopped(&mut self, offers: &mut Vec<Offer>, stops: &BTreeMap<Name, Vec<Fence>>) {
        let stopped: HashSet<_> = stops.values().flatten().map(|fence| fence.attempt_id).collect();
        offers.retain(|offer| {
            let goes_on = !stopped.contains(&offer.fence.attempt_id);
            if !goes_on {
                let command = Command::Finish(offer.fence, Outcome::HandedBack);
                self.put_message_first(RunnerMessage { command, reply: None });
            }
            goes_on
        });
    }

    /// The offers by executor, with row and payload if they are still in memory.
    fn by_executor(&mut self, now: Now, offers: Vec<Offer>) -> BTreeMap<Name, Vec<Offered>> {
        let mut by_executor: BTreeMap<Name, Vec<Offered>> = BTreeMap::new();
        for offer in offers {
            let Offer { seq, fence, executor, kind: _, timeout, deadline, dispatch_seq, to: _ } = offer;
            let kept = self.cache.take(seq);
            let offered = Offered { seq, fence, timeout, deadline, at: now.wall, kept, dispatch_seq };
            by_executor.entry(executor).or_default().push(offered);
        }
        by_executor
    }

    /// The engine knows an executor that the loop does not: its attempts fail, because otherwise they would never end.
    fn fail_without_executor(&mut self, executor: &Name, offered: Vec<Offered>) {
        for offered in offered {
            let failure = Failure::retryable("no_executor", format!("there is no executor {executor}"));
            let command = Command::Finish(offered.fence, Outcome::Failed(failure));
            self.put_message_first(RunnerMessage { command, reply: None });
        }
    }
}

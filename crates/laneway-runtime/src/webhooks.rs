//! The webhook dispatcher: sends a POST to the callback of a job that has ended.
//!
//! The engine decides which deliveries are due, when they are tried and what an answer means, and all of it is durable
//! before a request is sent. The dispatcher sends the requests on the caller's tokio runtime, never on the loop's thread. It
//! limits the requests in flight, in total and to one host, so that a slow receiver delays neither jobs nor deliveries to
//! other receivers.

pub mod address;
pub mod format;
pub mod guard;
mod hosts;
pub(crate) mod queue;
mod send;
pub mod sign;
#[cfg(test)]
mod tests;
mod turns;

use laneway_core::command::DeliveryCommand;
use std::sync::Arc;

use laneway_core::{Command, JobId, Name, Seq, Span, TryOutcome};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use format::{CallbackFormat, Ended, Formats, NATIVE_FORMAT, PlainSignature, Rendered};
pub use guard::{Checked, Guard, GuardError};

use hosts::{HostKey, Hosts};
use send::{Sender, Sent};

use crate::clock::Stopwatch;
use crate::config::Config;
use crate::live_config::LiveConfig;
use crate::scheduler::Scheduler;

/// Most deliveries that wait in the dispatcher. Further ones wait in the queue.
const WAITING_MAX: usize = 2_048;
/// Deliveries whose host is looked up at once.
const LOOKED_UP_MAX: usize = 64;

/// A webhook delivery that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueDelivery {
    /// The job.
    pub seq: Seq,
    /// Its id.
    pub job: JobId,
    /// The number of the try.
    pub number: u32,
}

/// Sends webhooks until it is dropped. Requests that are in flight then are tried again after the next start.
#[derive(Debug)]
pub struct Webhooks {
    _stop: DropGuard,
}

impl Webhooks {
    /// Starts the dispatcher, with the guard of the configuration. `None`: the scheduler has a dispatcher already.
    pub fn start(scheduler: Scheduler, live: &LiveConfig, formats: Formats) -> Option<Webhooks> {
        let guard = Guard::live(live.subscribe());
        Webhooks::start_with(scheduler, live.subscribe(), formats, guard)
    }

    /// The same with another guard.
    pub fn start_with(
        scheduler: Scheduler,
        configs: watch::Receiver<Arc<Config>>,
        formats: Formats,
        guard: Guard,
    ) -> Option<Webhooks> {
        let inbox = scheduler.take_deliveries()?;
        let dispatcher = Dispatcher {
            sender: Sender { scheduler, formats, guard },
            configs,
            inbox,
            hosts: Hosts::new(),
            calls: JoinSet::new(),
        };
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(dispatcher.run()));
        Some(Webhooks { _stop: stop.drop_guard() })
    }
}

/// Queues deliveries by host, and sends them.
struct Dispatcher {
    sender: Sender,
    configs: watch::Receiver<Arc<Config>>,
    inbox: mpsc::Receiver<DueDelivery>,
    hosts: Hosts<DueDelivery>,
    /// Requests in flight; each returns its tenant and its host.
    calls: JoinSet<HostKey>,
}

impl Dispatcher {
    async fn run(mut self) {
        let mut taken = Vec::new();
        loop {
            self.send_next();
            tokio::select! {
                count = self.inbox.recv_many(&mut taken, LOOKED_UP_MAX),
                    if self.hosts.waiting() < WAITING_MAX =>
                {
                    if count == 0 {
                        return;
                    }
                    self.queue(std::mem::take(&mut taken)).await;
                }
                Some(ended) = self.calls.join_next(), if !self.calls.is_empty() => match ended {
                    Ok(key) => self.hosts.ended(&key),
                    Err(error) => tracing::error!(%error, "a webhook request panicked"),
                },
                // A changed configuration may allow more calls.
                Ok(()) = self.configs.changed() => {}
            }
        }
    }

    /// Adds deliveries to the queues of their hosts. A delivery whose job cannot be read gets a queue of its own, and fails
    /// there.
    async fn queue(&mut self, taken: Vec<DueDelivery>) {
        let jobs = taken.clone();
        let found = self.sender.scheduler.read(move |reader| {
            let key = |delivery: &DueDelivery| -> Result<Option<HostKey>, _> {
                let Some(job) = reader.job(delivery.job)? else { return Ok(None) };
                let host = job.row.spec.callback.map(|callback| callback.host());
                Ok(Some((job.row.spec.tenant, host.unwrap_or_default().into())))
            };
            jobs.iter().map(key).collect::<Result<Vec<_>, _>>()
        });
        let keys = found.await.unwrap_or_else(|_| vec![None; taken.len()]);
        for (delivery, key) in taken.into_iter().zip(keys) {
            self.hosts.add(key.unwrap_or_else(|| (Name::fixed("unknown"), Box::default())), delivery);
        }
    }

    fn send_next(&mut self) {
        loop {
            let config = self.configs.borrow().clone();
            let webhooks = &config.webhooks;
            let next = self.hosts.next(webhooks.in_flight_max, webhooks.in_flight_per_host_max);
            let Some((key, delivery)) = next else { return };
            let sender = self.sender.clone();
            self.calls.spawn(async move {
                send_one(&sender, delivery, &config).await;
                key
            });
        }
    }
}

/// Sends one request and reports its outcome to the engine.
async fn send_one(sender: &Sender, delivery: DueDelivery, config: &Config) {
    let watch = Stopwatch::start();
    let sent = sender.send(delivery, &config.webhooks).await;
    let took = Span(u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX));
    log_outcome(delivery, &sent, took);
    let DueDelivery { seq, job: _, number } = delivery;
    // A loop that has stopped tries again after its next start.
    let _ = sender
        .scheduler
        .send(Command::Delivery(DeliveryCommand::Tried { seq, number, took, outcome: sent.outcome }))
        .await;
    sender.scheduler.delivery_ended();
}

/// Logs the outcome of a try.
fn log_outcome(delivery: DueDelivery, sent: &Sent, took: Span) {
    let DueDelivery { job, number, .. } = delivery;
    let Sent { outcome, url, tenant, trace } = sent;
    let trace_id = trace.as_ref().map(|trace| format!("{:032x}", trace.trace_id));
    let span_id = trace.as_ref().map(|trace| format!("{:016x}", trace.span_id));
    let tenant = tenant.as_ref().map(|tenant| tenant.as_str()).unwrap_or_default();
    let (status, took_ms) = (outcome.status().unwrap_or(0), took.0);
    match outcome {
        TryOutcome::Answered(_) if outcome.is_delivered() => {
            tracing::info!(%job, tenant, url, number, status, took_ms, trace_id, span_id, "webhook delivered");
        }
        _ => {
            let error = outcome.error().unwrap_or_default();
            let what = "webhook not delivered";
            tracing::info!(%job, tenant, url, number, status, took_ms, error, trace_id, span_id, "{what}");
        }
    }
}

//! Tells whoever asked to hear of a job's end, by HTTP.
//!
//! Who is owed news, when it is tried and what an answer means is decided by the engine and durable before anything
//! leaves. Here the calls are made: on the tasks of the caller's tokio runtime, never on the loop's thread, a bounded
//! number at once and a bounded number to one host, so that nobody's slow receiver holds up work or somebody else's news.

pub mod address;
pub mod format;
pub mod guard;
mod hosts;
mod send;
pub mod sign;
#[cfg(test)]
mod tests;

use laneway_core::command::DeliveryCommand;
use std::sync::Arc;

use laneway_core::{Command, JobId, Name, Seq, Span, TryOutcome};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use format::{CallbackFormat, Ended, Formats, NATIVE_FORMAT, Rendered};
pub use guard::{Checked, Guard, GuardError};

use hosts::{Hosts, Line};
use send::{Sender, Sent};

use crate::clock::Stopwatch;
use crate::config::Config;
use crate::live_config::LiveConfig;
use crate::scheduler::Scheduler;

/// News that waits here at most. The engine hands out fewer; what is beyond that waits in the box.
const WAITING_MAX: usize = 2_048;
/// News whose host is looked up in one go.
const LOOKED_UP_MAX: usize = 64;

/// News that is due: the end of a job, and which try this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// The job.
    pub seq: Seq,
    /// Its id.
    pub job: JobId,
    /// The try.
    pub number: u32,
}

/// Sends news until it is dropped. What is under way then is tried again after the next start.
#[derive(Debug)]
pub struct Webhooks {
    _stop: DropGuard,
}

impl Webhooks {
    /// Begins to send, with the guard of the configuration. `None` when somebody else does already.
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
        let inbox = scheduler.take_news()?;
        let office = Office {
            sender: Sender { scheduler, formats, guard },
            configs,
            inbox,
            hosts: Hosts::new(),
            calls: JoinSet::new(),
        };
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(office.run()));
        Some(Webhooks { _stop: stop.drop_guard() })
    }
}

/// Where news is sorted and sent from.
struct Office {
    sender: Sender,
    configs: watch::Receiver<Arc<Config>>,
    inbox: mpsc::Receiver<News>,
    hosts: Hosts<News>,
    /// Calls under way; each gives the tenant and the host it went to.
    calls: JoinSet<Line>,
}

impl Office {
    async fn run(mut self) {
        let mut taken = Vec::new();
        loop {
            self.begin_calls();
            tokio::select! {
                count = self.inbox.recv_many(&mut taken, LOOKED_UP_MAX),
                    if self.hosts.waiting() < WAITING_MAX =>
                {
                    if count == 0 {
                        return;
                    }
                    self.sort(std::mem::take(&mut taken)).await;
                }
                Some(ended) = self.calls.join_next(), if !self.calls.is_empty() => match ended {
                    Ok(line) => self.hosts.ended(&line),
                    Err(error) => tracing::error!(%error, "a call of a webhook panicked"),
                },
                // A changed configuration may allow more calls.
                Ok(()) = self.configs.changed() => {}
            }
        }
    }

    /// Puts news into the line of its host. What cannot be read goes into a line of its own, and fails there.
    async fn sort(&mut self, taken: Vec<News>) {
        let jobs = taken.clone();
        let found = self.sender.scheduler.read(move |reader| {
            let line = |news: &News| -> Result<Option<Line>, _> {
                let Some(job) = reader.job(news.job)? else { return Ok(None) };
                let host = job.row.spec.callback.and_then(|callback| host_of(&callback.url));
                Ok(Some((job.row.spec.tenant, host.unwrap_or_default().into())))
            };
            jobs.iter().map(line).collect::<Result<Vec<_>, _>>()
        });
        let lines = found.await.unwrap_or_else(|_| vec![None; taken.len()]);
        for (news, line) in taken.into_iter().zip(lines) {
            self.hosts.add(line.unwrap_or_else(|| (Name::fixed("unknown"), Box::default())), news);
        }
    }

    fn begin_calls(&mut self) {
        loop {
            let config = self.configs.borrow().clone();
            let webhooks = &config.webhooks;
            let next = self.hosts.next(webhooks.in_flight_max, webhooks.in_flight_per_host_max);
            let Some((line, news)) = next else { return };
            let sender = self.sender.clone();
            self.calls.spawn(async move {
                call(&sender, news, &config).await;
                line
            });
        }
    }
}

/// One try, from the call to the engine's ear.
async fn call(sender: &Sender, news: News, config: &Config) {
    let watch = Stopwatch::start();
    let sent = sender.send(news, &config.webhooks).await;
    let took = Span(u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX));
    log_outcome(news, &sent, took);
    let News { seq, job: _, number } = news;
    // A loop that has stopped tries again after its next start.
    let _ = sender
        .scheduler
        .send(Command::Delivery(DeliveryCommand::Tried { seq, number, took, outcome: sent.outcome }))
        .await;
    sender.scheduler.news_told();
}

/// One line about what became of a try.
fn log_outcome(news: News, sent: &Sent, took: Span) {
    let News { job, number, .. } = news;
    let Sent { outcome, url, tenant } = sent;
    let tenant = tenant.as_ref().map(|tenant| tenant.as_str()).unwrap_or_default();
    let (status, took_ms) = (outcome.status().unwrap_or(0), took.0);
    match outcome {
        TryOutcome::Answered(_) if outcome.is_delivered() => {
            tracing::info!(%job, tenant, url, number, status, took_ms, "webhook delivered");
        }
        _ => {
            let error = outcome.error().unwrap_or_default();
            tracing::info!(%job, tenant, url, number, status, took_ms, error, "webhook not delivered");
        }
    }
}

/// Host and port of an address: what is called too often is called too often whatever the path.
fn host_of(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

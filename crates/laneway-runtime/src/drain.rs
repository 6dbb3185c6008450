//! The graceful stop: no job is lost and no attempt is counted.
//!
//! Correctness never needs this. A process that is killed recovers from its store; a process that drains leaves its
//! handlers time, and hands back what they did not end.

use laneway_core::command::AdminCommand;
use std::sync::Arc;
use std::time::Duration;

use laneway_core::{Command, Span};
use tokio::sync::oneshot;

use crate::event_loop::ClientRequest;
use crate::executors::local::LocalExecutor;
use crate::scheduler::{Scheduler, Stopped};

/// How long handlers have to end after their tokens were canceled.
const CANCEL_GRACE: Span = Span::secs(2);
/// How long runs may take to be handed back; only a handler that blocks its thread takes longer than an instant.
const HAND_BACK_GRACE: Span = Span::secs(1);

/// How often it is looked whether workers still have tasks.
const WORKERS_LOOK_EVERY: Span = Span(50);
/// How long calls of webhooks that are under way may take to end; those that do not are made again.
const WEBHOOK_GRACE: Span = Span::secs(2);

/// How a drain went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Attempts that did not end within the limit and were stopped.
    pub interrupted: usize,
    /// Runs of these that were handed back while their handler still held on to a thread.
    pub abandoned: usize,
}

impl Scheduler {
    /// Stops admission and dispatch, gives running handlers and the tasks of connected workers until `limit` to end, hands
    /// back what has not ended here by then, and ends the loop. What workers still run stays theirs: they bring its result
    /// after the next start. When this returns, the store is closed.
    pub async fn drain(&self, limit: Duration) -> Result<Drained, Stopped> {
        self.stop_within(limit, limit).await
    }

    /// The same for a server whose jobs another one takes over at once: the tasks of workers are not waited for, because the
    /// workers bring their results to the other server.
    pub async fn hand_over(&self, limit: Duration) -> Result<Drained, Stopped> {
        self.stop_within(limit, Duration::ZERO).await
    }

    /// Stops everything that runs in this process, because another server runs it from now on. Nothing of it is reported.
    pub fn abandon_runs(&self) {
        for executor in self.runners.all() {
            executor.cancel_all();
            executor.abandon_all();
        }
    }

    async fn stop_within(&self, limit: Duration, workers_limit: Duration) -> Result<Drained, Stopped> {
        self.send(Command::Admin(AdminCommand::Drain)).await?;
        let executors = self.runners.all();
        let runs = executors.iter().map(|executor| executor.running()).sum::<usize>();
        tracing::info!(runs, limit = ?limit, "draining: nothing new starts");
        let mut drained = Drained::default();
        let span = |limit: Duration| Span(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let (idle, ()) = tokio::join!(
            self.idle_within(&executors, span(limit)),
            self.workers_done_within(span(workers_limit))
        );
        if !idle {
            drained.interrupted = executors.iter().map(|executor| executor.running()).sum();
            tracing::warn!(
                runs = drained.interrupted,
                "the drain limit has passed; running handlers are stopped"
            );
            executors.iter().for_each(|executor| executor.cancel_all());
            if !self.idle_within(&executors, CANCEL_GRACE).await {
                executors.iter().for_each(|executor| executor.abandon_all());
                self.idle_within(&executors, HAND_BACK_GRACE).await;
            }
            for executor in &executors {
                drained.abandoned += executor.hand_back_rest().await;
            }
        }
        // Webhooks of jobs that were canceled just now are sent here, or after the next start.
        self.shared.webhook_queue.all_ended_within(&self.shared.clock, WEBHOOK_GRACE).await;
        let (stop, stopped) = oneshot::channel();
        self.requests.send(ClientRequest::Stop(stop)).await.map_err(|_| Stopped)?;
        stopped.await.map_err(|_| Stopped)?;
        let Drained { interrupted, abandoned } = drained;
        tracing::info!(
            interrupted,
            abandoned,
            "stopped; what did not end is handed back and runs at the next start, unless it allows no loss"
        );
        Ok(drained)
    }

    /// Waits until no worker that is connected has a task, at most for `span`: their results are heard until then.
    async fn workers_done_within(&self, span: Span) {
        let done = async {
            loop {
                let Ok((workers, _)) = self.workers(None).await else { return };
                let connected = workers.iter().filter(|worker| worker.connection.is_some());
                match connected.map(|worker| worker.open).sum::<u32>() {
                    0 => return,
                    _ => self.shared.clock.sleep(WORKERS_LOOK_EVERY).await,
                }
            }
        };
        tokio::select! {
            biased;
            () = done => {}
            () = self.shared.clock.sleep(span) => {}
        }
    }

    /// Waits until nothing runs in this process, at most for `span`. True when nothing does.
    async fn idle_within(&self, executors: &[Arc<LocalExecutor>], span: Span) -> bool {
        let idle = async {
            for executor in executors {
                executor.idle().await;
            }
        };
        tokio::select! {
            biased;
            () = idle => true,
            () = self.shared.clock.sleep(span) => false,
        }
    }
}

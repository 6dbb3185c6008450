//! Sessions, as the handle offers them: stop, reset, usage, and how they stand. What they do is decided by the engine.

use laneway_core::command::{AdminCommand, SessionCommand};
use std::collections::BTreeSet;
use std::sync::Arc;

use laneway_core::command::{SessionStopped, StopWhat};
use laneway_core::job::session::is_throttled;
use laneway_core::{Answer, Command, Name, Origin, Query, Reply, Submission};
use tokio::sync::{mpsc, oneshot};

use crate::event_loop::ClientRequest;
use crate::queries::query;
use crate::scheduler::{Scheduler, Shared, Stopped};

/// Estimates how full the context of a session is, by tenant and name: tokens used, and its capacity. `None`: unknown.
pub type TokenEstimate = Arc<dyn Fn(&Name, &Name) -> Option<(u64, u64)> + Send + Sync>;

/// How many sessions are reset at once: their commits share a turn of the loop.
const RESET_PAGE: usize = 256;

/// The result of a reset of many sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionsReset {
    /// Sessions that were reset.
    pub sessions: u64,
    /// Jobs of theirs that ran and are to stop.
    pub running: u64,
    /// Jobs of theirs that waited.
    pub waiting: u64,
}

impl Scheduler {
    /// Ends jobs of a session, and returns which. Running jobs are stopped; later jobs wait until they have ended.
    pub async fn stop_session(
        &self,
        tenant: Name,
        key: Name,
        what: StopWhat,
        origin: Origin,
    ) -> Result<SessionStopped, Stopped> {
        match self.send(Command::Session(SessionCommand::Stop { tenant, key, what, origin })).await? {
            Reply::SessionStopped(stopped) => Ok(stopped),
            other => unreachable!("the engine answers a stop with {other:?}"),
        }
    }

    /// Sets how full the context of a session is. Running jobs go on; from 60 % on its jobs start one by one.
    pub async fn report_usage(
        &self,
        tenant: Name,
        key: Name,
        tokens: u64,
        window: u64,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Session(SessionCommand::Usage { tenant, key, tokens, window })).await
    }

    /// Begins every session anew in this process: its runs here stop, and their jobs are queued again at no cost.
    pub async fn reset_sessions(&self, origin: Origin) -> Result<Reply, Stopped> {
        self.send(Command::Session(SessionCommand::ResetAll { origin })).await
    }

    /// Resets every session of a tenant that has jobs: their jobs end as cleared, and each session's generation grows by
    /// one. Each session is one commit; sessions that come while this runs may be left as they are.
    pub async fn reset_sessions_of(&self, tenant: &Name, origin: &Origin) -> Result<SessionsReset, Stopped> {
        let (mut reset, mut after) = (SessionsReset::default(), None);
        loop {
            let page = self.sessions(tenant.clone(), after.take(), RESET_PAGE).await?;
            after = page.last().map(|view| view.key.clone());
            let busy = page.into_iter().filter(|view| view.running + view.waiting > 0);
            let stops = busy.map(|view| {
                let (tenant, origin) = (tenant.clone(), origin.clone());
                self.stop_session(tenant, view.key, StopWhat::Reset, origin)
            });
            for stopped in futures_util::future::join_all(stops).await {
                let stopped = stopped?;
                reset.sessions += 1;
                reset.running += u64::from(stopped.running_count);
                reset.waiting += u64::from(stopped.waiting_count);
            }
            if after.is_none() {
                return Ok(reset);
            }
        }
    }

    /// The same for every tenant.
    pub async fn reset_sessions_of_all(&self, origin: &Origin) -> Result<SessionsReset, Stopped> {
        let mut reset = SessionsReset::default();
        for tenant in self.session_tenants().await? {
            let SessionsReset { sessions, running, waiting } =
                self.reset_sessions_of(&tenant, origin).await?;
            reset.sessions += sessions;
            reset.running += running;
            reset.waiting += waiting;
        }
        Ok(reset)
    }

    /// Rejects new jobs from now on (`false`), or admits them again. What waits and runs goes on. A restart admits jobs.
    pub async fn set_admission(&self, open: bool, origin: Origin) -> Result<(), Stopped> {
        self.send(Command::Admin(AdminCommand::SetAdmission { open, origin })).await.map(drop)
    }

    /// Before jobs of sessions are asked for: lets the engine know how full the context of each session is.
    pub(crate) async fn estimate_usage(&self, submissions: &[Submission]) -> Result<(), Stopped> {
        if self.shared.token_estimate.is_none() {
            return Ok(());
        }
        let of = |item: &Submission| {
            let session = item.spec.session.as_ref()?;
            Some((item.spec.tenant.clone(), session.key.clone()))
        };
        let sessions: BTreeSet<(Name, Name)> = submissions.iter().filter_map(of).collect();
        for (tenant, key) in sessions {
            estimate_usage(&self.shared, &self.requests, &tenant, &key).await?;
        }
        Ok(())
    }
}

/// When a job of a session has run: lets the engine know how full its context is.
pub(crate) async fn estimate_usage_after_run(shared: &Shared, tenant: &Name, key: &Name) {
    if shared.token_estimate.is_none() {
        return;
    }
    if let Some(requests) = shared.requests.upgrade() {
        // A loop that has stopped starts nothing more.
        let _ = estimate_usage(shared, &requests, tenant, key).await;
    }
}

/// Calls the token estimate, and informs the engine if that changes how many jobs of the session may run.
async fn estimate_usage(
    shared: &Shared,
    requests: &mpsc::Sender<ClientRequest>,
    tenant: &Name,
    key: &Name,
) -> Result<(), Stopped> {
    let Some(estimate) = shared.token_estimate.clone() else { return Ok(()) };
    let (owner, name) = (tenant.clone(), key.clone());
    let answer = tokio::task::spawn_blocking(move || estimate(&owner, &name)).await;
    let (tokens, window) = match answer {
        Ok(Some(usage)) => usage,
        Ok(None) => return Ok(()),
        Err(error) => {
            tracing::error!(%error, session = %key, "the token estimate failed; the session goes on as before");
            return Ok(());
        }
    };
    let asked = Query::Session { tenant: tenant.clone(), key: key.clone() };
    let known = query(requests, asked).await?;
    let throttled = matches!(known, Answer::Session(Some(session)) if session.throttled);
    if throttled == is_throttled(tokens, window) {
        return Ok(());
    }
    let (reply, answer) = oneshot::channel();
    let command =
        Command::Session(SessionCommand::Usage { tenant: tenant.clone(), key: key.clone(), tokens, window });
    requests.send(ClientRequest::Command(command, reply)).await.map_err(|_| Stopped)?;
    answer.await.map_err(|_| Stopped)?;
    Ok(())
}

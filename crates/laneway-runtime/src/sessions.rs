//! Sessions, as the handle offers them: stop, reset, usage, and how they stand. What they do is decided by the engine.

use std::collections::BTreeSet;
use std::sync::Arc;

use laneway_core::command::{SessionStopped, StopWhat};
use laneway_core::engine::SessionView;
use laneway_core::job::session::is_throttled;
use laneway_core::{Command, Engine, Name, Now, Origin, Reply, Submission};
use tokio::sync::{mpsc, oneshot};

use crate::run::Ask;
use crate::scheduler::{Scheduler, Shared, Stopped};

/// Says how full the context of a session is, by tenant and name: tokens used, and tokens it holds. `None`: not known.
pub type TokenEstimate = Arc<dyn Fn(&Name, &Name) -> Option<(u64, u64)> + Send + Sync>;

impl Scheduler {
    /// Ends jobs of a session, and says which. Runs are told to stop; what comes next waits until they have.
    pub async fn stop_session(
        &self,
        tenant: Name,
        key: Name,
        what: StopWhat,
        origin: Origin,
    ) -> Result<SessionStopped, Stopped> {
        match self.send(Command::StopSession { tenant, key, what, origin }).await? {
            Reply::SessionStopped(stopped) => Ok(stopped),
            other => unreachable!("the engine answers a stop with {other:?}"),
        }
    }

    /// Says how full the context of a session is. Running work goes on; from 60 % on its jobs start one by one.
    pub async fn report_usage(
        &self,
        tenant: Name,
        key: Name,
        tokens: u64,
        window: u64,
    ) -> Result<Reply, Stopped> {
        self.send(Command::SessionUsage { tenant, key, tokens, window }).await
    }

    /// Begins every session anew in this process: its runs here stop, and their jobs are queued again at no cost.
    pub async fn reset_sessions(&self, origin: Origin) -> Result<Reply, Stopped> {
        self.send(Command::ResetSessions { origin }).await
    }

    /// How a session stands. `None`: it has no job, and nothing is remembered of it.
    pub async fn session(&self, tenant: Name, key: Name) -> Result<Option<SessionView>, Stopped> {
        self.read(move |engine, _| engine.session(&tenant, &key)).await
    }

    /// A tenant's sessions by name, those after `after`, `limit` at most.
    pub async fn sessions(
        &self,
        tenant: Name,
        after: Option<Name>,
        limit: usize,
    ) -> Result<Vec<SessionView>, Stopped> {
        self.read(move |engine, _| engine.sessions(&tenant, after.as_ref(), limit)).await
    }

    /// How many sessions run a job of this agent.
    pub async fn active_sessions_of(&self, tenant: Name, agent: Name) -> Result<u32, Stopped> {
        self.read(move |engine, _| engine.active_sessions_of(&tenant, &agent)).await
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
            estimate_usage(&self.shared, &self.asks, &tenant, &key).await?;
        }
        Ok(())
    }
}

/// When a job of a session has run: lets the engine know how full its context is.
pub(crate) async fn estimate_usage_after_run(shared: &Shared, tenant: &Name, key: &Name) {
    if shared.token_estimate.is_none() {
        return;
    }
    if let Some(asks) = shared.asks.upgrade() {
        // A loop that has stopped starts nothing more.
        let _ = estimate_usage(shared, &asks, tenant, key).await;
    }
}

/// Asks whoever knows, and tells the engine where that changes how many jobs of the session may run.
async fn estimate_usage(
    shared: &Shared,
    asks: &mpsc::Sender<Ask>,
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
    let (owner, name) = (tenant.clone(), key.clone());
    let (tell, throttled) = oneshot::channel();
    let look = Box::new(move |engine: &Engine, _: Now| {
        let throttled = engine.session(&owner, &name).is_some_and(|session| session.throttled);
        // The caller may be gone; then nobody needs the answer.
        let _ = tell.send(throttled);
    });
    asks.send(Ask::Read(look)).await.map_err(|_| Stopped)?;
    if throttled.await.map_err(|_| Stopped)? == is_throttled(tokens, window) {
        return Ok(());
    }
    let (reply, answer) = oneshot::channel();
    let command = Command::SessionUsage { tenant: tenant.clone(), key: key.clone(), tokens, window };
    asks.send(Ask::Command(command, reply)).await.map_err(|_| Stopped)?;
    answer.await.map_err(|_| Stopped)?;
    Ok(())
}

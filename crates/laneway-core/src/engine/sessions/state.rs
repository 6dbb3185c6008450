//! What is remembered of sessions beside their jobs: when everything was last stopped, how often they were reset, how
//! full their context is. And how sessions are shown.
//!
//! What memory holds is what the store holds: a session that is forgotten here is forgotten there in the same commit.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::Tenant;
use crate::engine::sessions::{SessionEntry, SessionState};
use crate::job::session::is_throttled;
use crate::{Change, Effects, JobId, Name, Now, Reply, SessionRow, Span, Wall};

/// Most sessions that are remembered although they have no job. Beyond it, the tenant with the most of them loses the one
/// that changed longest ago.
const IDLE_SESSIONS_MAX: usize = 10_000;
/// How long a session without jobs is remembered after it last changed.
const SESSION_RETENTION: Span = Span::hours(24);
/// Most sessions that one sweep forgets; the rest follow with the next.
const SESSIONS_SWEPT_MAX: usize = 1_000;

/// A session as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Its name.
    pub key: Name,
    /// Its jobs that run. Runs that were told to stop and whose job has ended are not counted.
    pub running: u32,
    /// Runs that were told to stop and have not ended: they hold the session all the same.
    pub stopping: u32,
    /// Its jobs that wait; a batch that collects is one.
    pub waiting: u32,
    /// Jobs in the batch that collects; 0: none collects.
    pub buffered: u32,
    /// How many may run at once while its next job is the next.
    pub max_concurrent: Option<u32>,
    /// True while its jobs run one by one because its context is full.
    pub throttled: bool,
    /// Tokens of its context that are used, as last reported.
    pub tokens: u64,
    /// Tokens that its context holds, as last reported; 0: not known.
    pub window: u64,
    /// When everything of it was last stopped.
    pub cutoff: Option<Wall>,
    /// How often it was reset.
    pub generation: u64,
    /// The job that has run longest.
    pub oldest_running: Option<JobId>,
    /// The lane of that job, or of the one that goes next.
    pub lane: Option<Name>,
}

impl SessionState {
    pub(in crate::engine) fn is_throttled(&self) -> bool {
        is_throttled(self.tokens, self.window)
    }

    fn is_nothing(&self) -> bool {
        let SessionState { cutoff, generation, tokens, window, updated_at: _ } = self;
        cutoff.is_none() && (*generation, *tokens, *window) == (0, 0, 0)
    }
}

impl Engine {
    /// How full the context of a session is. What runs goes on; what may start is looked at again.
    pub(in crate::engine) fn session_usage(
        &mut self,
        now: Now,
        tenant: &Name,
        key: &Name,
        (tokens, window): (u64, u64),
        effects: &mut Effects,
    ) -> Reply {
        let known = self
            .find_session(tenant, key)
            .and_then(|session| self.sessions.entries[session].state.as_deref());
        let was = known.map_or((0, 0), |state| (state.tokens, state.window));
        if was == (tokens, window) {
            return Reply::Done;
        }
        let session = self.known_session(now, tenant, key);
        self.change_state(now, session, effects, |state| (state.tokens, state.window) = (tokens, window));
        if let Some(bin) = self.sessions.entries[session].bin {
            self.refresh(bin);
        }
        if self.sessions.entries[session].state.as_ref().is_some_and(|state| state.is_nothing()) {
            self.forget_state(session, effects);
        }
        self.trim_sessions(effects);
        Reply::Done
    }

    pub(in crate::engine) fn find_session(&self, tenant: &Name, key: &Name) -> Option<Ix<SessionEntry>> {
        self.sessions.entries.find(&(self.queue.find_tenant(tenant)?, key.clone()))
    }

    pub(in crate::engine) fn generation_of(&self, session: Ix<SessionEntry>) -> u64 {
        self.sessions.entries[session].state.as_ref().map_or(0, |state| state.generation)
    }

    /// A session of which something is to be remembered; made where it is not there.
    pub(in crate::engine) fn known_session(
        &mut self,
        now: Now,
        tenant: &Name,
        key: &Name,
    ) -> Ix<SessionEntry> {
        let tenant = self.queue.hold_tenant(&self.settings, tenant);
        let session = self.hold_session(tenant, key);
        if self.sessions.entries[session].state.is_some() {
            self.release_session(session);
            self.queue.release_tenant(tenant);
        } else {
            // What is remembered is one user of the session and of its tenant.
            let state =
                SessionState { cutoff: None, generation: 0, tokens: 0, window: 0, updated_at: now.wall };
            self.sessions.entries[session].state = Some(Box::new(state));
            self.note_idle(session);
        }
        session
    }

    /// Changes what is remembered of a session, durably.
    pub(in crate::engine) fn change_state(
        &mut self,
        now: Now,
        session: Ix<SessionEntry>,
        effects: &mut Effects,
        change: impl FnOnce(&mut SessionState),
    ) {
        let (tenant, key) = self.sessions.entries.key(session).clone();
        let state =
            self.sessions.entries[session].state.as_mut().expect("something is remembered of the session");
        self.sessions.idle.remove(tenant, state.updated_at, session);
        change(state);
        state.updated_at = now.wall;
        let SessionState { cutoff, generation, tokens, window, updated_at } = **state;
        let tenant = self.queue.tenant_name(tenant).clone();
        let row = SessionRow { tenant, key, cutoff, generation, tokens, window, updated_at };
        effects.changes.push(Change::SessionPut(Box::new(row)));
        self.note_idle(session);
    }

    /// Takes up what was stored of a session.
    pub(in crate::engine) fn take_up_session(&mut self, now: Now, row: &SessionRow) {
        let SessionRow { tenant, key, cutoff, generation, tokens, window, updated_at } = row;
        let session = self.known_session(now, tenant, key);
        let owner = self.sessions.entries.key(session).0;
        let state =
            self.sessions.entries[session].state.as_mut().expect("something is remembered of the session");
        self.sessions.idle.remove(owner, state.updated_at, session);
        **state = SessionState {
            cutoff: *cutoff,
            generation: *generation,
            tokens: *tokens,
            window: *window,
            updated_at: *updated_at,
        };
        self.note_idle(session);
        if let Some(bin) = self.sessions.entries[session].bin {
            self.refresh(bin);
        }
    }

    /// Adds a user of a session.
    pub(in crate::engine) fn hold_session(&mut self, tenant: Ix<Tenant>, key: &Name) -> Ix<SessionEntry> {
        let session = self.sessions.entries.hold(&(tenant, key.clone()), SessionEntry::default);
        if let Some(state) = &self.sessions.entries[session].state {
            self.sessions.idle.remove(tenant, state.updated_at, session);
        }
        session
    }

    /// Takes a user of a session away. One without users is forgotten, unless something must be remembered of it.
    pub(in crate::engine) fn release_session(&mut self, session: Ix<SessionEntry>) {
        if self.sessions.entries.release(session).is_none() {
            self.note_idle(session);
        }
    }

    fn note_idle(&mut self, session: Ix<SessionEntry>) {
        if self.sessions.entries.users(session) == 1
            && let Some(state) = &self.sessions.entries[session].state
        {
            let tenant = self.sessions.entries.key(session).0;
            self.sessions.idle.insert(tenant, state.updated_at, session);
        }
    }

    /// Forgets sessions, as long as too many have no job.
    pub(in crate::engine) fn trim_sessions(&mut self, effects: &mut Effects) {
        while self.sessions.idle.len() > IDLE_SESSIONS_MAX
            && let Some(session) = self.sessions.idle.oldest_of_most()
        {
            self.forget_state(session, effects);
        }
    }

    /// Forgets sessions without jobs that have not changed for long.
    pub(in crate::engine) fn sweep_sessions(&mut self, seen: Wall, effects: &mut Effects) {
        self.trim_sessions(effects);
        let before = seen.before(SESSION_RETENTION);
        for _ in 0..SESSIONS_SWEPT_MAX {
            match self.sessions.idle.oldest() {
                Some((updated_at, session)) if updated_at < before => self.forget_state(session, effects),
                _ => return,
            }
        }
    }

    fn forget_state(&mut self, session: Ix<SessionEntry>, effects: &mut Effects) {
        let Some(state) = self.sessions.entries[session].state.take() else { return };
        let (tenant, key) = self.sessions.entries.key(session).clone();
        self.sessions.idle.remove(tenant, state.updated_at, session);
        let named = self.queue.tenant_name(tenant).clone();
        effects.changes.push(Change::SessionForgotten { tenant: named, key });
        self.sessions.entries.release(session);
        self.queue.release_tenant(tenant);
    }

    /// A session by name. `None`: it has no job, and nothing is remembered of it.
    pub fn session(&self, tenant: &Name, key: &Name) -> Option<SessionView> {
        self.find_session(tenant, key).map(|session| self.session_view(session))
    }

    /// A tenant's sessions by name, those after `after`, `limit` at most.
    pub fn sessions(&self, tenant: &Name, after: Option<&Name>, limit: usize) -> Vec<SessionView> {
        let Some(tenant) = self.queue.find_tenant(tenant) else { return Vec::new() };
        let mut first: BTreeMap<&Name, Ix<SessionEntry>> = BTreeMap::new();
        for (session, (owner, key), _) in self.sessions.entries.iter() {
            if *owner != tenant || after.is_some_and(|after| key <= after) {
                continue;
            }
            first.insert(key, session);
            if first.len() > limit {
                first.pop_last();
            }
        }
        first.into_values().map(|session| self.session_view(session)).collect()
    }

    /// Tenants that have a session, by name.
    pub fn session_tenants(&self) -> Vec<Name> {
        let tenants: std::collections::BTreeSet<&Name> =
            self.sessions.entries.iter().map(|(_, (owner, _), _)| self.queue.tenant_name(*owner)).collect();
        tenants.into_iter().cloned().collect()
    }

    /// How many sessions run a job of this agent.
    pub fn active_sessions_of(&self, tenant: &Name, agent: &Name) -> u32 {
        let Some(tenant) = self.queue.find_tenant(tenant) else { return 0 };
        let runs_one = |session: Ix<SessionEntry>| {
            self.running_in(session).any(|job| *self.queue.agent_of(&self.jobs[job]) == *agent)
        };
        let theirs = self
            .sessions
            .entries
            .iter()
            .filter(|(session, (owner, _), _)| *owner == tenant && runs_one(*session));
        u32::try_from(theirs.count()).unwrap_or(u32::MAX)
    }

    fn session_view(&self, session: Ix<SessionEntry>) -> SessionView {
        let entry = &self.sessions.entries[session];
        let state = entry.state.as_deref();
        let oldest = self.running_in(session).next();
        let next = self.first_waiting_in(session);
        let running = u32::try_from(self.running_in(session).count()).unwrap_or(u32::MAX);
        let lane_of = |job: Ix<Job>| self.queue.lane_of_job(&self.jobs[job]).name().clone();
        SessionView {
            key: self.sessions.entries.key(session).1.clone(),
            running,
            stopping: u32::try_from(entry.runs.len()).unwrap_or(u32::MAX) - running,
            waiting: self.waiting_in_session(session),
            buffered: entry.batch.as_ref().map_or(0, |batch| batch.merged + 1),
            max_concurrent: next.map(|job| self.session_max_of(job)),
            throttled: state.is_some_and(SessionState::is_throttled),
            tokens: state.map_or(0, |state| state.tokens),
            window: state.map_or(0, |state| state.window),
            cutoff: state.and_then(|state| state.cutoff),
            generation: state.map_or(0, |state| state.generation),
            oldest_running: oldest.map(|job| self.jobs[job].id()),
            lane: oldest.or(next).map(lane_of),
        }
    }
}

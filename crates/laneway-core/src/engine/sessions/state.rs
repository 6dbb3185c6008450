//! The stored state of sessions: when a session was last stopped, how often it was reset, how full its context is. And
//! how sessions are shown.
//!
//! Memory and store agree: a session that is forgotten here is forgotten there in the same commit.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::Queue;
use crate::engine::sessions::entry::SessionState;
use crate::engine::sessions::{SessionEntry, Sessions};
use crate::job::session::is_throttled;
use crate::{Change, Effects, JobId, Name, Now, Reply, SessionRow, Span, Wall};

/// Most sessions that keep a state without a job. Beyond it, the tenant with the most of them loses the one that changed
/// longest ago.
const IDLE_SESSIONS_MAX: usize = 10_000;
/// How long the state of a session without jobs is kept after it last changed.
const SESSION_RETENTION: Span = Span::hours(24);
/// Most sessions that one sweep forgets; the rest follow with the next.
const SESSIONS_SWEPT_MAX: usize = 1_000;

/// A session as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Its name.
    pub key: Name,
    /// Its jobs that run. Canceled jobs that still run are not counted.
    pub running: u32,
    /// Canceled jobs that still run: they take slots of the session, too.
    pub stopping: u32,
    /// Its jobs that wait; a debounce batch is one.
    pub waiting: u32,
    /// Jobs in the debounce batch; 0: there is none.
    pub buffered: u32,
    /// How many may run at once while its next job is the next.
    pub max_concurrent: Option<u32>,
    /// True while its jobs run one by one because its context is full.
    pub throttled: bool,
    /// Tokens of its context that are used, as last reported.
    pub tokens: u64,
    /// Tokens that its context holds, as last reported; 0: not known.
    pub window: u64,
    /// When it was last stopped.
    pub cutoff: Option<Wall>,
    /// How often it was reset.
    pub generation: u64,
    /// The job that has run longest.
    pub oldest_running: Option<JobId>,
    /// The lane of that job, or of the one that goes next.
    pub lane: Option<Name>,
}

impl SessionState {
    pub(super) fn is_throttled(&self) -> bool {
        is_throttled(self.tokens, self.window)
    }

    fn is_empty(&self) -> bool {
        let SessionState { cutoff, generation, tokens, window, updated_at: _ } = self;
        cutoff.is_none() && (*generation, *tokens, *window) == (0, 0, 0)
    }
}

impl Sessions {
    pub(super) fn generation_of(&self, session: Ix<SessionEntry>) -> u64 {
        self.entries[session].state.as_ref().map_or(0, |state| state.generation)
    }

    fn state_mut(&mut self, session: Ix<SessionEntry>) -> &mut SessionState {
        self.entries[session].state.as_mut().expect("the session has a state")
    }

    /// Changes the state of a session, durably.
    pub(super) fn change_state(
        &mut self,
        now: Now,
        session: Ix<SessionEntry>,
        queue: &Queue,
        effects: &mut Effects,
        change: impl FnOnce(&mut SessionState),
    ) {
        let (tenant, key) = self.entries.key(session).clone();
        let updated_at = self.state_mut(session).updated_at;
        self.idle.remove(tenant, updated_at, session);
        let state = self.state_mut(session);
        change(state);
        state.updated_at = now.wall;
        let SessionState { cutoff, generation, tokens, window, updated_at } = *state;
        let tenant = queue.tenant_name(tenant).clone();
        let row = SessionRow { tenant, key, cutoff, generation, tokens, window, updated_at };
        effects.changes.push(Change::SessionPut(Box::new(row)));
        self.note_idle(session);
    }

    /// Forgets the states of sessions, as long as too many have no job.
    pub(super) fn trim(&mut self, queue: &mut Queue, effects: &mut Effects) {
        while self.idle.len() > IDLE_SESSIONS_MAX
            && let Some(session) = self.idle.oldest_of_most()
        {
            self.forget_state(session, queue, effects);
        }
    }

    /// Forgets sessions without jobs that have not changed for long.
    pub(in crate::engine) fn sweep(&mut self, seen: Wall, queue: &mut Queue, effects: &mut Effects) {
        self.trim(queue, effects);
        let before = seen.before(SESSION_RETENTION);
        for _ in 0..SESSIONS_SWEPT_MAX {
            match self.idle.oldest() {
                Some((updated_at, session)) if updated_at < before => {
                    self.forget_state(session, queue, effects);
                }
                _ => return,
            }
        }
    }

    fn forget_state(&mut self, session: Ix<SessionEntry>, queue: &mut Queue, effects: &mut Effects) {
        let Some(state) = self.entries[session].state.take() else { return };
        let (tenant, key) = self.entries.key(session).clone();
        self.idle.remove(tenant, state.updated_at, session);
        let name = queue.tenant_name(tenant).clone();
        effects.changes.push(Change::SessionForgotten { tenant: name, key });
        self.entries.release(session);
        queue.release_tenant(tenant);
    }

    fn view(&self, jobs: &Jobs, queue: &Queue, session: Ix<SessionEntry>) -> SessionView {
        let entry = &self.entries[session];
        let state = entry.state.as_deref();
        let oldest = self.running(jobs, session).next();
        let next = self.first_waiting(queue, session);
        let running = u32::try_from(self.running(jobs, session).count()).unwrap_or(u32::MAX);
        let lane_of = |job: Ix<Job>| queue.lane_of_job(&jobs[job]).name().clone();
        SessionView {
            key: self.key_of(session).clone(),
            running,
            stopping: self.open_count(session) - running,
            waiting: self.waiting_count(queue, session),
            buffered: entry.batch.as_ref().map_or(0, |batch| batch.merged + 1),
            max_concurrent: next.map(|job| self.max_concurrent(&jobs[job])),
            throttled: state.is_some_and(SessionState::is_throttled),
            tokens: state.map_or(0, |state| state.tokens),
            window: state.map_or(0, |state| state.window),
            cutoff: state.and_then(|state| state.cutoff),
            generation: self.generation_of(session),
            oldest_running: oldest.map(|job| jobs[job].id()),
            lane: oldest.or(next).map(lane_of),
        }
    }
}

impl Engine {
    /// A caller reports how full the context of a session is. Running jobs go on; its next job is looked at again.
    pub(in crate::engine) fn session_usage(
        &mut self,
        now: Now,
        tenant: &Name,
        key: &Name,
        (tokens, window): (u64, u64),
        effects: &mut Effects,
    ) -> Reply {
        let known = self.find_session(tenant, key).and_then(|session| self.sessions.usage_of(session));
        if known.unwrap_or((0, 0)) == (tokens, window) {
            return Reply::Done;
        }
        let session = self.session_with_state(now, tenant, key);
        let change = |state: &mut SessionState| (state.tokens, state.window) = (tokens, window);
        self.sessions.change_state(now, session, &self.queue, effects, change);
        if let Some(bin) = self.sessions.bin_of(session) {
            self.refresh(bin);
        }
        if self.sessions.state_mut(session).is_empty() {
            self.sessions.forget_state(session, &mut self.queue, effects);
        }
        self.sessions.trim(&mut self.queue, effects);
        Reply::Done
    }

    pub(super) fn find_session(&self, tenant: &Name, key: &Name) -> Option<Ix<SessionEntry>> {
        self.sessions.find(self.queue.find_tenant(tenant)?, key)
    }

    /// A session with a state; creates the session, the state, or both.
    pub(super) fn session_with_state(&mut self, now: Now, tenant: &Name, key: &Name) -> Ix<SessionEntry> {
        let tenant = self.queue.hold_tenant(&self.settings, tenant);
        let session = self.sessions.hold(tenant, key);
        if self.sessions.entries[session].state.is_some() {
            self.sessions.release(session);
            self.queue.release_tenant(tenant);
        } else {
            // The state is one user of the session and of its tenant.
            let state =
                SessionState { cutoff: None, generation: 0, tokens: 0, window: 0, updated_at: now.wall };
            self.sessions.entries[session].state = Some(Box::new(state));
            self.sessions.note_idle(session);
        }
        session
    }

    /// Loads the stored state of a session.
    pub(in crate::engine) fn load_session(&mut self, now: Now, row: &SessionRow) {
        let SessionRow { tenant, key, cutoff, generation, tokens, window, updated_at } = row;
        let session = self.session_with_state(now, tenant, key);
        let sessions = &mut self.sessions;
        let created_at = sessions.state_mut(session).updated_at;
        sessions.idle.remove(sessions.entries.key(session).0, created_at, session);
        *sessions.state_mut(session) = SessionState {
            cutoff: *cutoff,
            generation: *generation,
            tokens: *tokens,
            window: *window,
            updated_at: *updated_at,
        };
        sessions.note_idle(session);
        if let Some(bin) = self.sessions.bin_of(session) {
            self.refresh(bin);
        }
    }

    /// A session by name. `None`: it has neither a job nor a state.
    pub fn session(&self, tenant: &Name, key: &Name) -> Option<SessionView> {
        let session = self.find_session(tenant, key)?;
        Some(self.sessions.view(&self.jobs, &self.queue, session))
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
        first.into_values().map(|session| self.sessions.view(&self.jobs, &self.queue, session)).collect()
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
            self.sessions
                .running(&self.jobs, session)
                .any(|job| *self.queue.agent_of(&self.jobs[job]) == *agent)
        };
        let theirs = self
            .sessions
            .entries
            .iter()
            .filter(|(session, (owner, _), _)| *owner == tenant && runs_one(*session));
        u32::try_from(theirs.count()).unwrap_or(u32::MAX)
    }
}

//! The jobs of a session: which wait, which run, and whether the next one may start.

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs, Wake};
use crate::engine::queue::{Queue, Rank};
use crate::engine::sessions::entry::SessionState;
use crate::engine::sessions::{SessionEntry, Sessions};

/// The rank of a job in its session: by its time, not by its priority.
pub(in crate::engine) fn rank_in_session(job: &Job) -> Rank {
    Rank::by_level(i64::try_from(job.rank_time()).unwrap_or(i64::MAX), job.seq())
}

impl Sessions {
    /// An attempt of a job of the session opened.
    pub(in crate::engine) fn opened(&mut self, session: Ix<SessionEntry>, job: Ix<Job>) {
        self.entries[session].open.push(job);
    }

    /// The attempt of a job of the session closed.
    pub(in crate::engine) fn closed(&mut self, session: Ix<SessionEntry>, job: Ix<Job>) {
        self.entries[session].open.retain(|&open| open != job);
    }

    /// How many jobs of a session have an open attempt; canceled jobs that still run included.
    pub(in crate::engine) fn open_count(&self, session: Ix<SessionEntry>) -> u32 {
        u32::try_from(self.entries[session].open.len()).unwrap_or(u32::MAX)
    }

    /// How many jobs of a session wait, in the queue or for a time.
    pub(in crate::engine) fn waiting_count(&self, queue: &Queue, session: Ix<SessionEntry>) -> u32 {
        let entry = &self.entries[session];
        let in_bin = entry.bin.map_or(0, |bin| queue.bin_len(bin));
        u32::try_from(in_bin + entry.later.len()).unwrap_or(u32::MAX)
    }

    /// The first of the waiting jobs of a session.
    pub(super) fn first_waiting(&self, queue: &Queue, session: Ix<SessionEntry>) -> Option<Ix<Job>> {
        let entry = &self.entries[session];
        let in_bin = entry.bin.and_then(|bin| queue.first_in_bin(bin));
        let later = entry.later.first_key_value().map(|(order, job)| (*order, *job));
        in_bin.into_iter().chain(later).min().map(|(_, job)| job)
    }

    /// Every waiting job of a session, in order.
    pub(super) fn all_waiting(&self, queue: &Queue, session: Ix<SessionEntry>) -> Vec<Ix<Job>> {
        let entry = &self.entries[session];
        let mut waiting: Vec<(Rank, Ix<Job>)> =
            entry.later.iter().map(|(order, job)| (*order, *job)).collect();
        if let Some(bin) = entry.bin {
            waiting.extend(queue.jobs_in_bin(bin));
        }
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, job)| job).collect()
    }

    /// Jobs of a session that run and have not ended, those that have run longest first.
    pub(super) fn running<'a>(
        &'a self,
        jobs: &'a Jobs,
        session: Ix<SessionEntry>,
    ) -> impl Iterator<Item = Ix<Job>> + 'a {
        self.entries[session].open.iter().copied().filter(|&job| !jobs[job].state().is_terminal())
    }

    /// Sorts the open jobs of every session by when they opened, after a restart read them in another order.
    pub(in crate::engine) fn sort_open(&mut self, jobs: &Jobs) {
        for session in self.entries.handles() {
            let open = &mut self.entries[session].open;
            open.sort_by_key(|&job| (jobs.open(job).opened_at(), jobs[job].seq()));
        }
    }

    /// How many jobs of its session may run at once while `job` is the next one.
    pub(in crate::engine) fn max_concurrent(&self, job: &Job) -> u32 {
        let state = job.session().and_then(|session| self.entries[session].state.as_deref());
        if state.is_some_and(SessionState::is_throttled) { 1 } else { job.session_max() }
    }

    /// Tokens and window of a session with a state.
    pub(in crate::engine) fn usage_of(&self, session: Ix<SessionEntry>) -> Option<(u64, u64)> {
        self.entries[session].state.as_ref().map(|state| (state.tokens, state.window))
    }

    /// Canceled jobs that still run and that `job` must wait for although its session is below its limit: an interrupt
    /// never overlaps the jobs that it ended.
    pub(in crate::engine) fn still_stopping(&self, jobs: &Jobs, job: &Job) -> usize {
        let Some(session) = job.session().filter(|_| job.interrupts()) else { return 0 };
        self.entries[session].open.iter().filter(|&&open| jobs[open].state().is_terminal()).count()
    }

    /// True while the session lets `job`, its next one, start.
    pub(in crate::engine) fn lets_start(&self, jobs: &Jobs, job: &Job) -> bool {
        let Some(session) = job.session() else { return true };
        let open = self.entries[session].open.len();
        open < self.max_concurrent(job) as usize && self.still_stopping(jobs, job) == 0
    }

    /// A job of a session begins to wait for its not-before time, and is in no bin.
    pub(in crate::engine) fn wait_for_later(&mut self, jobs: &Jobs, job: Ix<Job>) {
        if let Some(session) = jobs[job].session() {
            self.entries[session].later.insert(rank_in_session(&jobs[job]), job);
        }
    }

    /// A job of a session no longer waits for a time. Called while its rank is still the old one.
    pub(in crate::engine) fn wait_no_longer(&mut self, jobs: &Jobs, job: Ix<Job>) {
        let Some(session) = jobs[job].session() else { return };
        let entry = &mut self.entries[session];
        match jobs[job].wake() {
            Some(Wake::NotBefore(_)) => {
                entry.later.remove(&rank_in_session(&jobs[job]));
            }
            Some(Wake::Debounce(_)) if entry.batch.as_ref().is_some_and(|batch| batch.leader == job) => {
                entry.batch = None;
            }
            _ => {}
        }
    }

    /// Every session: its handle, its name, and how many of its jobs wait and are open.
    pub(in crate::engine) fn counts<'a>(
        &'a self,
        queue: &'a Queue,
    ) -> impl Iterator<Item = (Ix<SessionEntry>, String, (u32, u32))> + 'a {
        self.entries.iter().map(|(session, name, _)| {
            (session, format!("{name:?}"), (self.waiting_count(queue, session), self.open_count(session)))
        })
    }

    /// Compares the lists of every session with its jobs.
    pub(in crate::engine) fn check(&self, jobs: &Jobs) -> Result<(), String> {
        let mut idle = 0;
        for (ix, (tenant, key), session) in self.entries.iter() {
            let fault = |what: &str| Err(format!("session {tenant}/{key}: {what}"));
            if session.open.iter().any(|&job| jobs[job].session() != Some(ix) || !jobs[job].has_attempt()) {
                return fault("an open job of it is not open, or not its job");
            }
            if session.later.values().any(|&job| !matches!(jobs[job].wake(), Some(Wake::NotBefore(_)))) {
                return fault("a job of it waits for no time");
            }
            if let Some(batch) = &session.batch
                && (!matches!(jobs[batch.leader].wake(), Some(Wake::Debounce(_)))
                    || jobs[batch.leader].session() != Some(ix))
            {
                return fault("the leader of its debounce batch does not wait for others");
            }
            let is_idle = session.state.as_ref().filter(|_| self.entries.users(ix) == 1);
            idle += usize::from(is_idle.is_some());
            if is_idle.is_some_and(|state| !self.idle.contains(state.updated_at, ix)) {
                return fault("is idle and not listed as idle");
            }
        }
        if idle != self.idle.len() {
            return Err(format!("{} sessions are listed as idle, {idle} are", self.idle.len()));
        }
        self.idle.check()
    }
}

//! Recounts everything from the jobs and compares: counters are derived, never free-standing.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::sessions::SessionEntry;

impl Engine {
    /// Recounts everything from the jobs and compares. Returns the first disagreement.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.jobs.check()?;
        self.queue.check_counts(&self.jobs, &self.workflows)?;
        self.check_shares()?;
        self.tokens.check()?;
        self.sessions.check(&self.jobs)?;
        self.check_session_counts()?;
        self.queue.check_bins(&self.jobs)?;
        self.queue.check_heads(&self.workers)?;
        self.webhooks.check(&self.jobs)?;
        self.check_units()?;
        self.workers.check(&self.jobs, &self.queue, &self.workflows)?;
        self.jobs.check_timers(&self.timers)?;
        self.workflows.check(&self.jobs)?;
        self.keepers.check(&self.queue)?;
        self.records.check()?;
        self.schedules.check()
    }

    /// Each session has as many waiting jobs and open attempts as it counts.
    fn check_session_counts(&self) -> Result<(), String> {
        let mut recount: BTreeMap<Ix<SessionEntry>, (u32, u32)> = BTreeMap::new();
        for (_, job) in self.jobs.iter() {
            let Some(session) = job.session() else { continue };
            let open = u32::from(job.has_attempt());
            let count = recount.entry(session).or_default();
            *count = (count.0 + 1 - open, count.1 + open);
        }
        for (session, name, counts) in self.sessions.counts(&self.queue) {
            let recount = recount.get(&session).copied().unwrap_or_default();
            if counts != recount {
                return Err(format!(
                    "session {name}: counts (waiting, open) {counts:?}, but jobs say {recount:?}"
                ));
            }
        }
        Ok(())
    }

    /// Units, leases and reserved jobs agree with the open attempts.
    fn check_units(&self) -> Result<(), String> {
        let (mut used, mut leases, mut reserved) = (0, 0, 0);
        for (ix, job) in self.jobs.iter() {
            let fault = |what: &str| Err(format!("job {} ({}): {what}", job.id(), job.state()));
            let due = self.capacity.is_next_in_line(job.seq(), ix);
            if due && (job.has_attempt() || job.state().is_terminal()) {
                return fault("is next in line and does not wait");
            }
            if !job.has_attempt() {
                continue;
            }
            used += self.queue.cost_of(&self.jobs[ix]);
            let open = self.jobs.open(ix);
            if !open.pull() {
                continue;
            }
            leases += 1;
            if self.leases.find(open.attempt_id()) != Some(ix) {
                return fault("its lease is not found by its id");
            }
            let is_reserved = self.queue.is_listed_reserved(ix, job, open.number());
            if is_reserved != (self.jobs.is_reserved(ix) && !job.state().is_terminal()) {
                return fault("is reserved and taken, or neither");
            }
            reserved += usize::from(is_reserved);
        }
        if used != self.capacity.used() {
            return Err(format!("{} units are counted, but open attempts hold {used}", self.capacity.used()));
        }
        if leases != self.leases.len() {
            return Err(format!("{} leases are known, {leases} are open", self.leases.len()));
        }
        if reserved != self.queue.reserved_count() {
            return Err("jobs are reserved that have no reserved attempt".into());
        }
        Ok(())
    }
}

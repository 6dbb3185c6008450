//! Recounts everything from the jobs and compares: counters are derived, never free-standing.

mod workers;

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Wake;
use crate::engine::sessions::SessionEntry;

impl Engine {
    /// Recounts everything from the jobs and compares; says what does not agree.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.jobs.check()?;
        self.queue.check_counts(&self.jobs, &self.workflows)?;
        self.check_shares()?;
        self.check_tokens()?;
        self.check_sessions()?;
        self.queue.check_bins(&self.jobs)?;
        self.queue.check_heads(&self.workers)?;
        self.check_deliveries()?;
        self.check_units()?;
        self.check_workers()?;
        self.jobs.check_timers(&self.timers)?;
        self.check_runs()?;
        self.check_chains()?;
        self.check_schedules()
    }

    fn check_sessions(&self) -> Result<(), String> {
        let mut counts: BTreeMap<Ix<SessionEntry>, (u32, u32)> = BTreeMap::new();
        for (_, job) in self.jobs.iter() {
            if let Some(session) = job.session() {
                let open = u32::from(job.has_attempt());
                let count = counts.entry(session).or_default();
                *count = (count.0 + 1 - open, count.1 + open);
            }
        }
        let mut idle = 0;
        for (ix, (tenant, key), session) in self.sessions.entries.iter() {
            let fault = |what: &str| Err(format!("session {tenant}/{key}: {what}"));
            let recount = counts.get(&ix).copied().unwrap_or_default();
            let open = u32::try_from(session.runs.len()).unwrap_or(u32::MAX);
            if (self.waiting_in_session(ix), open) != recount {
                return fault(&format!("has other jobs than {recount:?} (waiting, open)"));
            }
            if session
                .runs
                .iter()
                .any(|&job| self.jobs[job].session() != Some(ix) || !self.jobs[job].has_attempt())
            {
                return fault("a run of it is not its run");
            }
            if session.later.values().any(|&job| !matches!(self.jobs[job].wake(), Some(Wake::NotBefore(_)))) {
                return fault("a job of it waits for no time");
            }
            if let Some(batch) = &session.batch
                && (!matches!(self.jobs[batch.leader].wake(), Some(Wake::Debounce(_)))
                    || self.jobs[batch.leader].session() != Some(ix))
            {
                return fault("the job that others join does not wait for them");
            }
            let is_idle = session.state.as_ref().filter(|_| self.sessions.entries.users(ix) == 1);
            idle += usize::from(is_idle.is_some());
            if is_idle.is_some_and(|state| !self.sessions.idle.contains(state.updated_at, ix)) {
                return fault("is idle and not known to be");
            }
        }
        if idle != self.sessions.idle.len() {
            return Err(format!("{} sessions are said to be idle, {idle} are", self.sessions.idle.len()));
        }
        self.sessions.idle.check()
    }

    /// Units, leases and jobs that are reserved are what open attempts say.
    fn check_units(&self) -> Result<(), String> {
        let (mut used, mut leases, mut reserved) = (0, 0, 0);
        for (ix, job) in self.jobs.iter() {
            let fault = |what: &str| Err(format!("job {} ({}): {what}", job.id(), job.state()));
            let due = self.capacity.due.contains(&(job.seq(), ix));
            if due && (job.has_attempt() || job.state().is_terminal()) {
                return fault("is due and does not wait");
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
            if self.capacity.leases.get(&open.attempt_id()) != Some(&ix) {
                return fault("its lease is not found by its id");
            }
            let is_reserved = self.queue.is_listed_reserved(ix, job, open.number());
            if is_reserved != (self.jobs.is_reserved(ix) && !job.state().is_terminal()) {
                return fault("is reserved and taken, or neither");
            }
            reserved += usize::from(is_reserved);
        }
        if used != self.capacity.used {
            return Err(format!("{} units are counted, but open attempts hold {used}", self.capacity.used));
        }
        if leases != self.capacity.leases.len() {
            return Err(format!("{} leases are known, {leases} are open", self.capacity.leases.len()));
        }
        if reserved != self.queue.reserved_count() {
            return Err("jobs are reserved that have no reserved attempt".into());
        }
        Ok(())
    }

    fn check_schedules(&self) -> Result<(), String> {
        let schedules = &self.schedules;
        let (mut due, mut runs) = (0, 0);
        for (id, entry) in &schedules.entries {
            let (spec, state) = (&entry.schedule.spec, &entry.schedule.state);
            let fault = |what: &str| Err(format!("schedule {id}: {what}"));
            if schedules.names.get(&(spec.tenant.clone(), spec.name.clone())) != Some(id) {
                return fault("is not found by its name");
            }
            if let Some(at) = state.next_at {
                due += 1;
                if !spec.enabled || !schedules.due.contains(&(at, *id)) {
                    return fault("its next slot is not armed, or it is switched off");
                }
                if state.last_slot.is_some_and(|slot| at <= slot) {
                    return fault("a slot that came would come again");
                }
            }
            if state.waiting_slot.is_some() && entry.runs.is_empty() && !schedules.ended.contains(id) {
                return fault("a slot waits for a run that is not there");
            }
            runs += entry.runs.len();
            if entry.runs.iter().any(|job| schedules.runs.get(job).is_none_or(|run| run.of.id != *id)) {
                return fault("a run of it is not known");
            }
        }
        let orphans =
            schedules.runs.values().filter(|run| !schedules.entries.contains_key(&run.of.id)).count();
        if due != schedules.due.len() || schedules.names.len() != schedules.entries.len() {
            return Err("the index of schedules has entries without a schedule".into());
        }
        if runs + orphans != schedules.runs.len() {
            return Err(format!("{} runs of schedules, of which {runs} are known", schedules.runs.len()));
        }
        Ok(())
    }
}

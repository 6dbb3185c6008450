//! Compares the parts of each job with one another, with the index of ids, and with the timers.

use crate::JobState;
use crate::engine::jobs::Jobs;
use crate::engine::timers::Timers;

impl Jobs {
    /// State, attempt, bin and wake-up of each job agree, and each job is found by its id.
    pub(in crate::engine) fn check(&self) -> Result<(), String> {
        for (ix, job) in self.iter() {
            let fault = |what: &str| Err(format!("job {} ({}): {what}", job.id, job.state));
            if self.find(job.id) != Some(ix) {
                return fault("is not found by its id");
            }
            if job.has_attempt() && job.bin.is_some() {
                return fault("waits and runs at once");
            }
            if job.open.is_some_and(|open| self.attempts[open].job != ix) {
                return fault("has an attempt of another job");
            }
            if job.state.is_open() != (job.has_attempt() && !job.state.is_terminal()) {
                return fault("has a state that contradicts its attempt");
            }
            if job.state.is_terminal() && !job.has_attempt() {
                return fault("has ended and is still in memory");
            }
            if job.state == JobState::Queued && job.bin.is_none() {
                return fault("is queued and in no bin");
            }
            if job.wake().is_some() != (job.state == JobState::Scheduled) {
                return fault("has a state that contradicts its wake-up");
            }
        }
        if self.by_id.len() != self.slab.len() {
            return Err("the index by id has entries without a job".into());
        }
        Ok(())
    }

    /// Each job has its timers, and there are no others.
    pub(in crate::engine) fn check_timers(&self, timers: &Timers) -> Result<(), String> {
        let mut armed = (0, 0);
        for (ix, job) in self.iter() {
            if !timers.holds(ix, job.armed) {
                return Err(format!("job {} is armed but has no timer", job.id));
            }
            armed.0 += usize::from(job.armed.mono.get().is_some());
            armed.1 += usize::from(job.armed.wall.get().is_some());
        }
        if timers.len() != armed {
            return Err(format!("{:?} timers for {armed:?} armed jobs", timers.len()));
        }
        Ok(())
    }
}

//! Nothing stays undone whose time has come (I16, I19, L2), and the server always wakes in time for the next thing.

use laneway_core::JobState;

use super::Checker;
use crate::clock::Moment;
use crate::shape::LEASE_MAX;
use crate::violation::{Checked, hold};

impl Checker {
    /// After a look at the clock nothing is overdue. Leases are left out: a server that was held up gives its runners
    /// the lost time back.
    pub fn nothing_overdue(&self, moment: Moment) -> Checked {
        for (due, what, seq) in self.due_times(moment) {
            let rule = if what == "the grace of its attempt" { "I19" } else { "I16" };
            hold(rule, due > moment.at, || format!("{what} of job {seq} has passed, and nothing happened"))?;
        }
        Ok(())
    }

    /// The server looks at the clock again before anything is due.
    pub fn wakes_in_time(&self, moment: Moment, wakes_at: u64) -> Checked {
        if let Some(slot) = self.next_slot() {
            let due = moment.at.saturating_add_signed(slot.0.saturating_sub(moment.now.wall.0));
            hold("L1", wakes_at <= due, || {
                format!("a slot comes at {due}, and the server sleeps until {wakes_at}")
            })?;
        }
        for (due, what, seq) in self.due_times(moment) {
            hold("L1", wakes_at <= due, || {
                format!("{what} of job {seq} passes at {due}, and the server sleeps until {wakes_at}")
            })?;
        }
        Ok(())
    }

    /// No attempt is held open by silence alone (L2). A server that was held up before `healed` may give the lost time
    /// back, but no more than one lease of it.
    pub fn no_silent_runs(&self, moment: Moment, healed: u64) -> Checked {
        for (seq, watch) in &self.watches {
            let Some(run) = &watch.run else { continue };
            let until = run.lease_until.max(healed.saturating_add(LEASE_MAX.0));
            hold("L2", !run.leased || until >= moment.at, || {
                format!("the attempt of job {} is silent since its lease ended at {until}", seq.0)
            })?;
        }
        Ok(())
    }

    /// When something must happen by itself next. `None` while a lease runs: when that ends, the server knows best.
    pub fn next_due(&self, moment: Moment) -> Option<u64> {
        let leases = self.watches.values().filter_map(|watch| watch.run.as_ref()).any(|run| run.leased);
        if leases {
            return None;
        }
        self.due_times(moment).into_iter().map(|(due, _, _)| due).min()
    }

    /// Everything that must happen by itself, and when.
    fn due_times(&self, moment: Moment) -> Vec<(u64, &'static str, u64)> {
        let mut due = Vec::new();
        let by_wall = |wall: laneway_core::Wall| {
            let ahead = wall.0.saturating_sub(moment.now.wall.0);
            moment.at.saturating_add_signed(ahead)
        };
        due.extend(self.calls.due().map(|(target, at)| (at, "the timeout of a call", target.0)));
        for (seq, entry) in &self.ledger.jobs {
            let Some(watch) = self.watches.get(seq) else { continue };
            let mut add = |at: u64, what| due.push((at, what, seq.0));
            if let Some(run) = &watch.run {
                match run.stop {
                    // Its lease is all that ends it.
                    Some(_) if self.hears_nothing(entry) => {}
                    Some((_, until)) => add(until, "the grace of its attempt"),
                    None => {
                        let timeout = entry.row.spec.timeout.map_or(u64::MAX, |timeout| timeout.0);
                        if let Some(started) = run.started {
                            add(started.saturating_add(timeout), "the timeout");
                        }
                        if let Some(deadline) = entry.row.spec.deadline {
                            add(by_wall(deadline), "the deadline");
                        }
                    }
                }
                continue;
            }
            if let Some(deadline) = entry.row.spec.deadline {
                add(by_wall(deadline), "the deadline");
            }
            if let Some(near) = self.near_at(&entry.row.spec)
                && entry.state == JobState::Queued
                && !entry.row.status.near_deadline
            {
                add(by_wall(near), "the nearness of the deadline");
            }
            if let Some(until) = entry.queue_until {
                add(until, "the queue timeout");
            }
            if entry.is_never_due()
                && let Some(wake_at) = entry.wake_at()
            {
                add(by_wall(wake_at), "the not-before time");
            } else if entry.wake_at().is_some()
                && let Some(at) = watch.due
            {
                add(at, if entry.collects() { "the debounce window" } else { "the backoff" });
            }
        }
        due
    }
}

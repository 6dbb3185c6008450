//! Limits and order at the moment an attempt opens: I17 (never above a limit) and I21 (sessions go in order), counted
//! anew from the open attempts, beside and independent of the reference's choice.

use laneway_core::{JobRow, LaneOrder, OpenAttempt, SessionMode};

use super::leases::{LEASES, opens_as_asked};
use super::{Checker, Given};
use crate::ledger::Entry;
use crate::reference::workers::WORKERS;
use crate::reference::{same_party, session_max};
use crate::violation::{Checked, Violation, hold};

impl Checker {
    /// May this attempt open now?
    pub(super) fn may_open(&mut self, given: Given<'_>, open: &OpenAttempt) -> Checked {
        let Some(entry) = self.ledger.jobs.get(&open.seq) else {
            return Err(Violation::new(
                "I2",
                format!("an attempt of job {}, which is not there, opens", open.seq.0),
            ));
        };
        self.within_limits(entry, open)?;
        self.in_session_order(entry)?;
        self.came_after_stop(entry)?;
        self.in_time(given, entry)?;
        self.machine_takes(given, open)?;
        self.age_goes_first(given, open)?;
        if open.executor.as_str() == LEASES {
            opens_as_asked(given, open)?;
        }
        self.right_choice(given, open)
    }

    fn within_limits(&self, entry: &Entry, open: &OpenAttempt) -> Checked {
        let spec = &entry.row.spec;
        let settings = &self.reference.settings;
        let check = |scope: &str, limit: u32, counts: &dyn Fn(&Entry) -> bool| {
            // A called node runs in a slot of its chain, where that has one.
            let used = u64::from(self.ledger.executors(counts)) + 1;
            let free = used <= u64::from(limit) || self.ledger.chain_has_slot(entry, counts);
            hold("I17", free, || {
                format!("job {} is number {used} in {scope}, whose limit is {limit}", open.seq.0)
            })
        };
        check("the server", settings.running_max, &|_| true)?;
        let tenant = self.reference.tenant(&spec.tenant);
        check("its tenant", tenant.running_max, &|other| other.row.spec.tenant == spec.tenant)?;
        if let Some(lane) = self.reference.lane(&entry.lane) {
            hold("I17", !lane.paused, || format!("job {} starts in a paused lane", open.seq.0))?;
            check("its lane", lane.running_max, &|other| other.lane == entry.lane)?;
            check("its agent's share of the lane", lane.running_per_agent_max, &|other| {
                same_party(other, entry)
            })?;
        }
        if let Some(limit) = settings.kinds.get(&spec.kind).and_then(|kind| kind.running_max) {
            check("its kind", limit, &|other| other.row.spec.kind == spec.kind)?;
        }
        for key in &spec.keys {
            let kept = self.ledger.keepers(&spec.tenant, key);
            let limit = self.reference.key_max(&key.name).saturating_sub(kept);
            check("one of its keys, without those that are kept", limit, &|other| {
                other.row.spec.tenant == spec.tenant && other.row.spec.keys.contains(key)
            })?;
        }
        if let Some(session) = &spec.session {
            let limit = session_max(&self.ledger, spec);
            check("its session", limit, &|other| same_session(&other.row, &entry.row))?;
            let stopped = |other: &Entry| other.end.is_some() && same_session(&other.row, &entry.row);
            let overlaps = session.mode == SessionMode::Interrupt && self.ledger.open().any(stopped);
            hold("I21", !overlaps, || {
                format!(
                    "job {} interrupts its session and starts while an attempt that it ended is running",
                    open.seq.0
                )
            })?;
        }
        let pull = self.reference.lane(&entry.lane).is_some_and(|lane| lane.pull.is_pull());
        if pull {
            return hold("I17", open.executor.as_str() == LEASES, || {
                format!("job {} runs at {}, although pull workers request it", open.seq.0, open.executor)
            });
        }
        // While a rebuilt engine gets its executors back, it is not known here which of them it has.
        if self.rebuilding {
            return Ok(());
        }
        if open.executor.as_str() == WORKERS {
            return Ok(());
        }
        let executor = self.reference.executors.iter().find(|executor| executor.executor == open.executor);
        let executor =
            executor.filter(|executor| executor.kinds.contains(&spec.kind) && executor.mode == open.mode);
        let slots = executor.map_or(0, |executor| executor.slots);
        let here = |other: &&Entry| other.open.as_ref().is_some_and(|other| other.executor == open.executor);
        let used = self.ledger.open().filter(here).count() as u64 + 1;
        hold("I17", used <= u64::from(slots), || {
            format!("job {} is number {used} at {}, which has {slots} slots", open.seq.0, open.executor)
        })
    }

    fn in_session_order(&self, entry: &Entry) -> Checked {
        let mine = (entry.rank_time, entry.row.seq);
        let first = self
            .ledger
            .waiting()
            .filter(|other| same_session(&other.row, &entry.row) && !other.is_never_due())
            .map(|other| (other.rank_time, other.row.seq))
            .min();
        hold("I21", first.is_none_or(|first| first >= mine), || {
            format!(
                "job {} starts before job {} of its session",
                entry.row.seq.0,
                first.map_or(0, |first| first.1.0)
            )
        })
    }

    /// I24b: in a lane with aging, a job that has waited longer than the levels between are worth goes first. Measured by the
    /// time that really passed, whatever the clocks showed. Jobs from before the last start are left out, because a wall
    /// clock that was set in between makes them look as old as it likes; so are jobs that waited for a wall time.
    /// Neither a job that a worker requested nor one that was bypassed too often, nor one with a near deadline, nor one that was called
    /// waits for its age.
    fn age_goes_first(&mut self, given: Given<'_>, open: &OpenAttempt) -> Checked {
        let capacity = self.reference.capacity(&self.ledger, given.moment);
        let Some(entry) = self.ledger.jobs.get(&open.seq) else { return Ok(()) };
        let due = capacity.next_in_line.is_some_and(|(seq, _)| seq == open.seq);
        let due = due || self.ledger.chain_has_slot(entry, &|_| true);
        if open.executor.as_str() == LEASES && open.holder.is_some() || due || entry.row.status.near_deadline
        {
            return Ok(());
        }
        let Some(lane) = self.reference.lane(&entry.lane) else { return Ok(()) };
        let Some(step) = lane.aging_step else { return Ok(()) };
        let since = |seq| self.watches.get(&seq).map_or(0, |watch| i128::from(watch.since));
        let worth = |other: &Entry| i128::from(other.row.spec.priority) * i128::from(step.0);
        let mine = since(entry.row.seq) + worth(entry);
        for other in self.ledger.waiting().filter(|other| other.lane == entry.lane) {
            let older = since(other.row.seq) + worth(other) < mine;
            let compared = lane.order == LaneOrder::Priority || same_party(other, entry);
            let by_wall = other.row.spec.not_before.or(entry.row.spec.not_before).is_some();
            let answer =
                !by_wall && since(other.row.seq).min(since(entry.row.seq)) > i128::from(self.started_at);
            if older
                && compared
                && answer
                && self.reference.is_eligible(&self.ledger, given.moment, other, &capacity)
            {
                let story = format!(
                    "job {} starts before job {}, which has aged more",
                    entry.row.seq.0, other.row.seq.0
                );
                return Err(Violation::new("I24b", story));
            }
        }
        Ok(())
    }

    /// I15 and I16: not before the backoff has passed, not after the deadline, not in a server that stops.
    fn in_time(&self, given: Given<'_>, entry: &Entry) -> Checked {
        let seq = entry.row.seq;
        let now = given.moment;
        let backoff = self.watches.get(&seq).map_or(0, |watch| watch.not_before);
        hold("I15", backoff <= now.at, || {
            format!("job {} starts {} ms before its backoff has passed", seq.0, backoff - now.at)
        })?;
        let late = entry.row.spec.deadline.is_some_and(|deadline| deadline <= now.now.wall);
        hold("I16", !late, || format!("job {} starts after its deadline", seq.0))?;
        let queue_late = entry.queue_until.is_some_and(|until| until <= now.at);
        hold("I16", !queue_late, || format!("job {} starts after its queue timeout", seq.0))?;
        hold("I14", !self.storage_low, || format!("job {} starts while storage is low", seq.0))?;
        hold("I14", !self.reference.draining, || format!("job {} starts in a server that stops", seq.0))
    }
}

fn same_session(a: &JobRow, b: &JobRow) -> bool {
    match (&a.spec.session, &b.spec.session) {
        (Some(one), Some(other)) => one.key == other.key && a.spec.tenant == b.spec.tenant,
        _ => false,
    }
}

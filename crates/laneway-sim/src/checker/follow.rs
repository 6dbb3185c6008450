//! Every change in order: may it happen, and what is known after it.

use laneway_core::{Change, ClosedAttempt, JobStatus, Name, Seq, Span, Wall};

use super::{Checker, Given};
use crate::ledger::Entry;
use crate::violation::{Checked, hold};

/// A wall clock that has been ahead for this long is believed.
const JUMP_LASTED: Span = Span::hours(1);
/// Small steps of the wall clock are believed at once; all those of a world together come to less than this.
const JUMP_SLACK: Span = Span::mins(1);

impl Checker {
    pub(super) fn follow_change(&mut self, given: Given<'_>, change: &Change) -> Checked {
        match change {
            Change::JobCreated { row, payload } if self.rejected.contains(&row.seq) => {
                self.may_be_rejected(row, payload, given)?;
                self.ledger.change(change)?;
            }
            Change::JobCreated { row, payload } => {
                self.may_be_admitted(row, payload, given)?;
                self.may_arrive(given, row, payload)?;
                self.ledger.change(change)?;
                self.created(row, given.moment);
            }
            Change::JobMoved { seq, status } => self.follow_move(given, *seq, status)?,
            Change::JobRevised { .. } | Change::JobDeleted(_) => self.follow_job_change(given, change)?,
            Change::AttemptOpened(open) => {
                self.may_open(given, open)?;
                self.is_numbered(open)?;
                self.reference.bypasses(&self.ledger, given.moment, open.seq);
                self.ledger.change(change)?;
                self.opened(open, given.moment);
            }
            Change::AttemptStarted(open) | Change::LeaseExtended(open) | Change::HolderChanged(open) => {
                self.ledger.change(change)?;
                self.started(open, given.moment);
            }
            Change::AttemptRebound(open) => {
                self.may_rebind(given, open)?;
                self.ledger.change(change)?;
                self.rebound(open, given.moment);
            }
            Change::AttemptClosed(closed) => {
                self.may_close(given, closed)?;
                self.note_result(given, closed);
                self.note_answer(given, closed);
                self.ledger.change(change)?;
                self.closed(closed);
            }
            Change::JobEnded(end) => {
                self.may_end(given, end)?;
                self.session_job_ended(given, end)?;
                self.run_ended(end);
                self.ended_now(end);
                self.ended_at.insert(end.seq, given.moment.at);
                self.ledger.change(change)?;
                self.reference.forget_bypassed(end.seq);
            }
            Change::CallPut(row) => self.follow_call(given, row)?,
            Change::DeliveryPut(_) | Change::DeliveryTried(_) => self.follow_delivery(given, change)?,
            Change::JobsPruned { lane, finished_before, keyed_finished_before, .. } => {
                self.may_purge(given, lane, *finished_before, *keyed_finished_before)?;
                self.ledger.change(change)?;
            }
            Change::SessionPut(_) | Change::SessionForgotten { .. } => self.follow_session(given, change)?,
            Change::SchedulePut(_)
            | Change::ScheduleMoved { .. }
            | Change::ScheduleRemoved(_)
            | Change::SlotFired { .. }
            | Change::FiringLogged(_) => self.follow_schedule(given, change)?,
            other => self.follow_document(given, other)?,
        }
        Ok(())
    }

    fn follow_move(&mut self, given: Given<'_>, seq: Seq, status: &JobStatus) -> Checked {
        if self.job_changes.awaits(seq) {
            return self.follow_revised(given, seq, status);
        }
        self.may_move(given, seq, status)?;
        let was = self.ledger.jobs.get(&seq).map(|entry| entry.state);
        self.time_has_come(seq, status, given.moment);
        self.ledger.change(&Change::JobMoved { seq, status: status.clone() })?;
        if self.ledger.jobs.get(&seq).is_some_and(Entry::waits_for_call) {
            self.returned(seq);
        } else if was != Some(status.state) {
            self.moved(seq, was, status, given.moment);
        }
        Ok(())
    }

    fn follow_job_change(&mut self, given: Given<'_>, change: &Change) -> Checked {
        match change {
            Change::JobDeleted(seq) => self.may_be_deleted(given, *seq)?,
            _ => self.may_be_revised(given, change)?,
        }
        self.ledger.change(change)
    }

    fn follow_session(&mut self, given: Given<'_>, change: &Change) -> Checked {
        match change {
            Change::SessionPut(row) => self.may_know(given, row)?,
            Change::SessionForgotten { tenant, key } => self.may_forget_session(given, tenant, key)?,
            _ => {}
        }
        self.ledger.change(change)
    }

    fn closed(&mut self, closed: &ClosedAttempt) {
        self.worker_freed(closed);
        if let Some(watch) = self.watches.get_mut(&closed.open.seq) {
            watch.run = None;
        }
    }

    /// Are ended jobs of a lane old enough to be forgotten?
    fn may_purge(&self, given: Given<'_>, lane: &Name, before: Wall, keyed_before: Wall) -> Checked {
        let kept = self.reference.lane(lane).map_or(Span(0), |lane| lane.retention);
        let keyed = self.reference.settings.idempotency_window;
        let wall = given.moment.now.wall;
        let due = before <= wall.before(kept) && keyed_before <= wall.before(keyed);
        hold("I1", due, || format!("jobs of lane {lane} are forgotten too early"))?;
        // A wall clock does not show age until it has been ahead for long: time must really have passed.
        let ended =
            self.ledger.ended.values().filter(|entry| entry.row.spec.lane == *lane && !entry.purgeable);
        for entry in ended {
            let (limit, window) = match entry.row.spec.idempotency {
                Some(_) => (before.min(keyed_before), kept.max(keyed)),
                None => (before, kept),
            };
            let Some(end) = entry.end.as_ref().filter(|end| end.finished_at < limit) else { continue };
            let passed = given.moment.at - self.ended_at.get(&end.seq).copied().unwrap_or(0);
            let least = window.0.min(JUMP_LASTED.0).saturating_sub(JUMP_SLACK.0);
            hold("I1", passed >= least, || {
                format!("job {} is forgotten {passed} ms after its end, not after {least}", end.seq.0)
            })?;
        }
        Ok(())
    }
}

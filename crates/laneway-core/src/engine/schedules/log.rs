//! The firing log and the events of schedules: one entry for each firing that ended, and for each slot that was skipped.

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::numbers::Numbers;
use crate::engine::queue::Queue;
use crate::engine::schedules::Schedules;
use crate::schedule::{FiringStatus, RECENT_FIRINGS_MAX, ScheduleLine, cut_text};
use crate::{
    Bytes, Change, Effects, EventKind, Failure, FiringLogEntry, JobState, Now, Origin, Reason, Schedule,
    ScheduleId, Wall,
};

impl Schedules {
    /// Keeps an entry of the firing log in memory.
    pub(in crate::engine) fn remember(&mut self, log: FiringLogEntry) {
        if self.recent.len() >= RECENT_FIRINGS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(log);
    }

    /// Adds an entry to the firing log. The number of its event is its own.
    pub(super) fn add_to_log(
        &mut self,
        now: Now,
        mut log: FiringLogEntry,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) {
        let (action, name) = (log.status.as_str().into(), log.name.clone());
        let line = ScheduleLine { id: log.schedule, action, name }.to_string().into();
        let (kind, tenant) = (EventKind::ScheduleFiringEnded, Some(log.tenant.clone()));
        numbers.server_event(now, kind, tenant, None, line, effects);
        log.number = numbers.last_event();
        self.remember(log.clone());
        effects.changes.push(Change::FiringLogged(Box::new(log)));
    }

    /// A slot passes without a job.
    pub(super) fn skip_slot(
        &mut self,
        now: Now,
        id: ScheduleId,
        slot: Wall,
        why: String,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) {
        effects.changes.push(Change::SlotFired { schedule: id, slot, job: None });
        self.log_skipped(now, id, slot, why, numbers, effects);
    }

    pub(super) fn log_skipped(
        &mut self,
        now: Now,
        id: ScheduleId,
        slot: Wall,
        why: String,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let error = cut_text(why.as_bytes());
        if entry.firings.is_empty() {
            entry.schedule.state.last_status = Some(FiringStatus::Skipped);
            entry.schedule.state.last_error = Some(error.clone());
        }
        let spec = &entry.schedule.spec;
        let log = FiringLogEntry {
            number: 0,
            schedule: id,
            tenant: spec.tenant.clone(),
            name: spec.name.clone(),
            agent: spec.job.agent.clone(),
            job: None,
            slot,
            status: FiringStatus::Skipped,
            summary: None,
            error: Some(error),
            attempts: 0,
            duration_ms: 0,
            input_tokens: 0,
            output_tokens: 0,
            ran_at: now.wall,
            ended_at: now.wall,
        };
        self.add_to_log(now, log, numbers, effects);
    }

    /// Skips the slot that waits for a firing to end, if there is one.
    pub(super) fn drop_waiting_slot(
        &mut self,
        now: Now,
        id: ScheduleId,
        why: &str,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) {
        let entry = self.entries.get_mut(&id);
        if let Some(slot) = entry.and_then(|entry| entry.schedule.state.waiting_slot.take()) {
            self.skip_slot(now, id, slot, why.to_owned(), numbers, effects);
        }
    }

    /// The entry of the firing log for an ended job; `None` when no schedule created it.
    pub(in crate::engine) fn log_entry_of(
        &self,
        now: Now,
        job: Ix<Job>,
        (reason, error, result): (Reason, Option<&Failure>, Option<&Bytes>),
        jobs: &Jobs,
        queue: &Queue,
    ) -> Option<FiringLogEntry> {
        let firing = self.firings.get(&job)?;
        let entry = &jobs[job];
        let status = status_of(entry.state(), reason);
        let error = match (status, error) {
            (FiringStatus::Ok, _) => None,
            (_, Some(failure)) => Some(cut_text(failure.message.as_bytes())),
            (_, None) => Some(text_of(reason).into()),
        };
        Some(FiringLogEntry {
            number: 0,
            schedule: firing.of.id,
            tenant: queue.owner_of(entry).clone(),
            name: firing.of.name.clone(),
            agent: queue.agent_of(entry).clone(),
            job: Some(entry.id()),
            slot: firing.of.slot,
            status,
            summary: result.filter(|_| status == FiringStatus::Ok).map(|result| cut_text(result)),
            error,
            attempts: entry.attempts(),
            duration_ms: firing.began.map_or(0, |began| now.wall.since(began).0),
            input_tokens: 0,
            output_tokens: 0,
            ran_at: firing.began.unwrap_or(now.wall),
            ended_at: now.wall,
        })
    }
}

/// Adds an event about a schedule.
pub(super) fn schedule_event(
    now: Now,
    kind: EventKind,
    schedule: &Schedule,
    action: &str,
    origin: Option<&Origin>,
    numbers: &mut Numbers,
    effects: &mut Effects,
) {
    let name = schedule.spec.name.clone();
    let line = ScheduleLine { id: schedule.id, action: action.into(), name }.to_string().into();
    numbers.server_event(now, kind, Some(schedule.spec.tenant.clone()), origin, line, effects);
}

fn status_of(state: JobState, reason: Reason) -> FiringStatus {
    match (state, reason) {
        (JobState::Succeeded, _) => FiringStatus::Ok,
        (JobState::Canceled, _) => FiringStatus::Canceled,
        (_, Reason::TimedOut) => FiringStatus::Timeout,
        (_, Reason::Lost) => FiringStatus::Interrupted,
        _ => FiringStatus::Error,
    }
}

/// The text of an end without a failure.
pub(in crate::engine) fn text_of(reason: Reason) -> &'static str {
    match reason {
        Reason::QueueTimeout => "it waited longer than its queue timeout",
        Reason::Expired => "its deadline passed",
        Reason::Requested => "it was canceled",
        Reason::Shutdown => "it was canceled when the server stopped",
        Reason::Replaced => "it was canceled: the next firing takes its place",
        other => other.as_str(),
    }
}

/// A time for people.
pub(in crate::engine) fn stamp(at: Wall) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| format!("{} ms", at.0), |at| at.to_string())
}

//! The changes of a batch, for a log that a store replays after a crash.
//!
//! A list of changes has one version byte. Each change is the code of its variant and its form; no part has a length before it
//! that is not known beforehand, so writing needs no buffer of its own. Parts that stores keep in columns have the same form
//! here. What comes back is what SQLite would store and read: only [`Failure::retry_after`](laneway_core::Failure) is left
//! out, and the result of an answered call is written once.

mod attempt;
mod job;
mod prune;
mod row;
mod run;
mod schedule;

use laneway_core::{Bytes, Change, JobId, ScheduleId, Seq};

use super::{Input, Intern, put_bytes, put_name, put_u64, put_u128, put_wall};
use crate::StoreError;

const VERSION: u8 = 1;

/// Declares [`Variant`]. One table, so that there is no code that can be written and not be read.
macro_rules! variants {
    ($($name:ident = $code:literal,)*) => {
        /// The variant of a change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        enum Variant {
            $($name = $code,)*
        }

        impl Variant {
            /// The variant of a stored code.
            fn from_code(code: u8) -> Option<Variant> {
                match code {
                    $($code => Some(Variant::$name),)*
                    _ => None,
                }
            }
        }
    };
}

variants! {
    JobCreated = 0,
    JobMoved = 1,
    AttemptOpened = 2,
    AttemptStarted = 3,
    LeaseExtended = 4,
    HolderChanged = 5,
    AttemptRebound = 6,
    AttemptClosed = 7,
    JobEnded = 8,
    LogAppended = 9,
    JobsPruned = 10,
    EventsPruned = 11,
    OverridesPut = 12,
    TokenPut = 13,
    TokenForgotten = 14,
    ClockSeen = 15,
    SessionPut = 16,
    SessionForgotten = 17,
    SchedulePut = 18,
    ScheduleMoved = 19,
    ScheduleRemoved = 20,
    SlotFired = 21,
    FiringLogged = 22,
    FiringLogPruned = 23,
    DeliveryPut = 24,
    DeliveryTried = 25,
    RunCreated = 26,
    RunDefined = 27,
    RunMoved = 28,
    CallPut = 29,
    RunsPruned = 30,
    KeysKept = 31,
    KeysReleased = 32,
    RecordPut = 33,
    RecordDeleted = 34,
    JobRevised = 35,
    JobDeleted = 36,
}

/// Appends the form of a list of changes to `out`.
pub(crate) fn write_changes(out: &mut Vec<u8>, changes: &[Change]) {
    out.push(VERSION);
    put_u64(out, changes.len() as u64);
    for change in changes {
        write_change(out, change);
    }
}

/// Reads a list of changes back. Other parts may follow it.
pub(crate) fn read_changes(
    input: &mut Input<'_>,
    intern: &mut Intern<'_>,
) -> Result<Vec<Change>, StoreError> {
    input.version(VERSION)?;
    input.list(|input| read_change(input, intern))
}

/// Appends the form of `change` to `out`, without a version.
pub(super) fn write_change(out: &mut Vec<u8>, change: &Change) {
    match change {
        Change::JobCreated { row, payload } => {
            job::write_created(begin(out, Variant::JobCreated), row, payload)
        }
        Change::JobMoved { seq, status } => job::write_moved(begin(out, Variant::JobMoved), *seq, status),
        Change::JobRevised { .. } => job::write_revised(begin(out, Variant::JobRevised), change),
        Change::JobDeleted(seq) => put_u64(begin(out, Variant::JobDeleted), seq.0),
        Change::AttemptOpened(open) => attempt::write_open(begin(out, Variant::AttemptOpened), open),
        Change::AttemptStarted(open) => attempt::write_open(begin(out, Variant::AttemptStarted), open),
        Change::LeaseExtended(open) => attempt::write_open(begin(out, Variant::LeaseExtended), open),
        Change::HolderChanged(open) => attempt::write_open(begin(out, Variant::HolderChanged), open),
        Change::AttemptRebound(open) => attempt::write_open(begin(out, Variant::AttemptRebound), open),
        Change::AttemptClosed(closed) => attempt::write_closed(begin(out, Variant::AttemptClosed), closed),
        Change::JobEnded(end) => job::write_end(begin(out, Variant::JobEnded), end),
        Change::LogAppended { seq, attempt, lines } => {
            job::write_log(begin(out, Variant::LogAppended), *seq, *attempt, lines);
        }
        Change::JobsPruned { lane, finished_before, keyed_finished_before, max } => {
            let out = begin(out, Variant::JobsPruned);
            prune::write_lane(out, lane, *finished_before, *keyed_finished_before, *max);
        }
        Change::EventsPruned { before } => put_wall(begin(out, Variant::EventsPruned), *before),
        Change::OverridesPut(bytes) => put_bytes(begin(out, Variant::OverridesPut), bytes),
        Change::TokenPut(token) => row::write_token(begin(out, Variant::TokenPut), token),
        Change::TokenForgotten(id) => put_name(begin(out, Variant::TokenForgotten), id),
        Change::ClockSeen(at) => put_wall(begin(out, Variant::ClockSeen), *at),
        Change::SessionPut(session) => row::write_session(begin(out, Variant::SessionPut), session),
        Change::SessionForgotten { tenant, key } => {
            put_name(begin(out, Variant::SessionForgotten), tenant);
            put_name(out, key);
        }
        Change::SchedulePut(schedule) => schedule::write_schedule(begin(out, Variant::SchedulePut), schedule),
        Change::ScheduleMoved { id, enabled, state } => {
            schedule::write_moved(begin(out, Variant::ScheduleMoved), *id, *enabled, state);
        }
        Change::ScheduleRemoved(id) => put_u128(begin(out, Variant::ScheduleRemoved), id.0),
        Change::SlotFired { schedule, slot, job } => {
            schedule::write_slot(begin(out, Variant::SlotFired), *schedule, *slot, *job);
        }
        Change::FiringLogged(entry) => schedule::write_firing(begin(out, Variant::FiringLogged), entry),
        Change::FiringLogPruned { ended_before, keep, slots_before, max } => {
            let out = begin(out, Variant::FiringLogPruned);
            prune::write_firing_log(out, *ended_before, *keep, *slots_before, *max);
        }
        Change::DeliveryPut(delivery) => row::write_delivery(begin(out, Variant::DeliveryPut), delivery),
        Change::DeliveryTried(tried) => row::write_try(begin(out, Variant::DeliveryTried), tried),
        Change::RunCreated(row) => run::write_row(begin(out, Variant::RunCreated), row),
        Change::RunDefined { first, definition } => {
            put_u64(begin(out, Variant::RunDefined), first.0);
            put_bytes(out, definition);
        }
        Change::RunMoved { first, state, finished_at } => {
            run::write_moved(begin(out, Variant::RunMoved), *first, *state, *finished_at);
        }
        Change::CallPut(call) => run::write_call(begin(out, Variant::CallPut), call),
        Change::RunsPruned { lane, finished_before, keyed_finished_before, max } => {
            let out = begin(out, Variant::RunsPruned);
            prune::write_lane(out, lane, *finished_before, *keyed_finished_before, *max);
        }
        Change::KeysKept(kept) => row::write_kept_keys(begin(out, Variant::KeysKept), kept),
        Change::KeysReleased(job) => put_u128(begin(out, Variant::KeysReleased), job.0),
        Change::RecordPut { record, replaces } => {
            row::write_record(begin(out, Variant::RecordPut), record, *replaces);
        }
        Change::RecordDeleted { name, version } => {
            row::write_deleted_record(begin(out, Variant::RecordDeleted), name, *version);
        }
    }
}

fn begin(out: &mut Vec<u8>, variant: Variant) -> &mut Vec<u8> {
    out.push(variant as u8);
    out
}

/// Reads a change back. Other parts may follow it.
pub(super) fn read_change(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Change, StoreError> {
    let code = input.u8()?;
    let variant = Variant::from_code(code)
        .ok_or_else(|| input.damaged(&format!("there is no change with code {code}")))?;
    // Fields are evaluated in the order in which they are written.
    Ok(match variant {
        Variant::JobCreated => job::read_created(input, intern)?,
        Variant::JobMoved => job::read_moved(input)?,
        Variant::JobRevised => job::read_revised(input)?,
        Variant::JobDeleted => Change::JobDeleted(Seq(input.u64()?)),
        Variant::AttemptOpened => Change::AttemptOpened(attempt::read_open(input, intern)?),
        Variant::AttemptStarted => Change::AttemptStarted(attempt::read_open(input, intern)?),
        Variant::LeaseExtended => Change::LeaseExtended(attempt::read_open(input, intern)?),
        Variant::HolderChanged => Change::HolderChanged(attempt::read_open(input, intern)?),
        Variant::AttemptRebound => Change::AttemptRebound(attempt::read_open(input, intern)?),
        Variant::AttemptClosed => Change::AttemptClosed(Box::new(attempt::read_closed(input, intern)?)),
        Variant::JobEnded => Change::JobEnded(Box::new(job::read_end(input)?)),
        Variant::LogAppended => job::read_log(input, intern)?,
        Variant::JobsPruned => prune::read_jobs(input, intern)?,
        Variant::EventsPruned => Change::EventsPruned { before: input.wall()? },
        Variant::OverridesPut => Change::OverridesPut(Bytes::from(input.bytes()?)),
        Variant::TokenPut => Change::TokenPut(Box::new(row::read_token(input, intern)?)),
        Variant::TokenForgotten => Change::TokenForgotten(input.name()?),
        Variant::ClockSeen => Change::ClockSeen(input.wall()?),
        Variant::SessionPut => Change::SessionPut(Box::new(row::read_session(input, intern)?)),
        Variant::SessionForgotten => {
            Change::SessionForgotten { tenant: intern(input.text()?)?, key: intern(input.text()?)? }
        }
        Variant::SchedulePut => Change::SchedulePut(Box::new(schedule::read_schedule(input, intern)?)),
        Variant::ScheduleMoved => schedule::read_moved(input)?,
        Variant::ScheduleRemoved => Change::ScheduleRemoved(ScheduleId(input.u128()?)),
        Variant::SlotFired => schedule::read_slot(input)?,
        Variant::FiringLogged => Change::FiringLogged(Box::new(schedule::read_firing(input, intern)?)),
        Variant::FiringLogPruned => prune::read_firing_log(input)?,
        Variant::DeliveryPut => Change::DeliveryPut(Box::new(row::read_delivery(input, intern)?)),
        Variant::DeliveryTried => Change::DeliveryTried(Box::new(row::read_try(input)?)),
        Variant::RunCreated => Change::RunCreated(Box::new(run::read_row(input, intern)?)),
        Variant::RunDefined => {
            Change::RunDefined { first: Seq(input.u64()?), definition: Bytes::from(input.bytes()?) }
        }
        Variant::RunMoved => run::read_moved(input)?,
        Variant::CallPut => Change::CallPut(Box::new(run::read_call(input)?)),
        Variant::RunsPruned => prune::read_runs(input, intern)?,
        Variant::KeysKept => Change::KeysKept(Box::new(row::read_kept_keys(input, intern)?)),
        Variant::KeysReleased => Change::KeysReleased(JobId(input.u128()?)),
        Variant::RecordPut => row::read_record(input, intern)?,
        Variant::RecordDeleted => {
            let name = Box::new(row::read_record_name(input, intern)?);
            Change::RecordDeleted { name, version: input.u64()? }
        }
    })
}

/// `bit` for a part that is not missing.
fn flag(present: bool, bit: u8) -> u8 {
    if present { bit } else { 0 }
}

#[cfg(test)]
mod tests;

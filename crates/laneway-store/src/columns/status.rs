//! Jobs of SQLite: their columns, and a checksum of what changes while a job waits.
//!
//! The checksum of a job's row covers what was submitted, so that a job that waits again is stored without reading its row.
//! The status has one of its own.

use laneway_core::{JobRow, JobStatus, Seq};
use rusqlite::types::ValueRef;

use super::{Columns, job_columns};
use crate::StoreError;
use crate::rows::Interner;
use crate::sums::{check_sum, in_row, sum_of};

/// The columns that [`read_job`] reads, in its order. All of table `job`.
pub(crate) const JOB: &str = concat!(job_columns!(), ", job.status_sum");
const _: () = assert!(super::JOB.len() < JOB.len(), "it has one column more");
/// How many columns [`JOB`] has.
pub(crate) const JOB_LEN: usize = super::JOB_LEN + 1;
/// Columns of [`JOB`] that are in the checksum of the status.
const STATUS_SUMMED: [usize; 11] = [0, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21];

/// A job, from the columns [`JOB`] from the first on.
pub(crate) fn read_job(row: &impl Columns, names: &mut Interner) -> Result<JobRow, StoreError> {
    check_sum(row, STATUS_SUMMED, JOB_LEN - 1).map_err(|error| in_row("job", row, error))?;
    super::read_job(row, names)
}

/// The checksum of a status, in the order of the columns that readers check.
pub(crate) fn status_sum(seq: Seq, status: &JobStatus) -> i64 {
    let JobStatus {
        state,
        wake_at,
        attempts,
        failures,
        losses,
        rejections,
        near_deadline,
        denials,
        denied_until,
        last_event,
    } = status;
    let time = |at: &Option<laneway_core::Wall>| at.map_or(ValueRef::Null, |at| ValueRef::Integer(at.0));
    sum_of([
        ValueRef::Integer(seq.0.cast_signed()),
        ValueRef::Integer(state.code().into()),
        time(wake_at),
        ValueRef::Integer((*attempts).into()),
        ValueRef::Integer((*failures).into()),
        ValueRef::Integer((*losses).into()),
        ValueRef::Integer(last_event.cast_signed()),
        ValueRef::Integer((*rejections).into()),
        ValueRef::Integer((*near_deadline).into()),
        ValueRef::Integer((*denials).into()),
        time(denied_until),
    ])
}

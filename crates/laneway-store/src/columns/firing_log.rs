//! Which columns make an entry of the firing log.

use laneway_core::{FiringLogEntry, Wall};

use super::{Columns, number, small};
use crate::StoreError;
use crate::rows::{stored_firing_status, stored_job_id, stored_name, stored_schedule_id};

/// The columns that [`read_entry`] reads, in its order.
pub(crate) const ENTRY: &str = "number, schedule, tenant, name, agent, job, slot, status, summary, error, attempts, duration_ms, \
     input_tokens, output_tokens, ran_at, ended_at";

/// An entry, from the columns [`ENTRY`].
pub(crate) fn read_entry(row: &impl Columns) -> Result<FiringLogEntry, StoreError> {
    Ok(FiringLogEntry {
        number: number(row, 0)?,
        schedule: stored_schedule_id(row.get_ref(1)?.as_blob()?)?,
        tenant: stored_name(row.get_ref(2)?.as_str()?)?,
        name: stored_name(row.get_ref(3)?.as_str()?)?,
        agent: stored_name(row.get_ref(4)?.as_str()?)?,
        job: row.get_ref(5)?.as_blob_or_null()?.map(stored_job_id).transpose()?,
        slot: Wall(row.get_ref(6)?.as_i64()?),
        status: stored_firing_status(small(row, 7)?)?,
        summary: row.get_ref(8)?.as_str_or_null()?.map(Into::into),
        error: row.get_ref(9)?.as_str_or_null()?.map(Into::into),
        attempts: small(row, 10)?,
        duration_ms: number(row, 11)?,
        input_tokens: number(row, 12)?,
        output_tokens: number(row, 13)?,
        ran_at: Wall(row.get_ref(14)?.as_i64()?),
        ended_at: Wall(row.get_ref(15)?.as_i64()?),
    })
}

//! Which columns make a webhook delivery.

use laneway_core::{DeliveryRow, Seq, Wall};

use super::{Columns, number, small};
use crate::StoreError;
use crate::rows::{stored_delivery_state, stored_job_id, stored_name};

/// The columns that [`read_delivery`] reads, in its order. All of table `delivery`.
pub(crate) const DELIVERY: &str =
    "seq, job, tenant, state, tries, next_at, created_at, ended_at, last_status, last_error, host";

pub(crate) fn read_delivery(row: &impl Columns) -> Result<DeliveryRow, StoreError> {
    Ok(DeliveryRow {
        seq: Seq(number(row, 0)?),
        job: stored_job_id(row.get_ref(1)?.as_blob()?)?,
        tenant: stored_name(row.get_ref(2)?.as_str()?)?,
        state: stored_delivery_state(small(row, 3)?)?,
        tries: small(row, 4)?,
        next_at: row.get_ref(5)?.as_i64_or_null()?.map(Wall),
        created_at: Wall(row.get_ref(6)?.as_i64()?),
        ended_at: row.get_ref(7)?.as_i64_or_null()?.map(Wall),
        last_status: optional_small(row, 8)?,
        last_error: row.get_ref(9)?.as_str_or_null()?.map(Into::into),
        host: row.get_ref(10)?.as_str()?.into(),
    })
}

pub(crate) fn optional_small(row: &impl Columns, column: usize) -> Result<Option<u16>, StoreError> {
    match row.get_ref(column)?.as_i64_or_null()? {
        None => Ok(None),
        Some(_) => small(row, column).map(Some),
    }
}

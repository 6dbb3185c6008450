//! Which columns make a run, and the call of a node.

use laneway_core::job::IdempotencyKey;
use laneway_core::{Bytes, CallRow, Fence, NextAnswer, RunRow, RunSpec, Seq, Wall};

use super::{Columns, number, small};
use crate::StoreError;
use crate::codec::{RunRest, read_run as read_rest};
use crate::rows::{
    stored_attempt_id, stored_digest, stored_job_id, stored_name, stored_next_code, stored_run_id,
    stored_run_state,
};

/// The columns that [`read_call`] reads, in its order. All of table `run_call`.
pub(crate) const CALL: &str = "target, caller, attempt, attempt_id, lease_epoch, request, until, answer, code, message, result, called_at, attempts_before, payload";

/// The columns that [`read_run`] reads, in its order.
pub(crate) const RUN: &str = "first, id, tenant, lane, state, created_at, finished_at, key, digest, spec";

pub(crate) fn read_call(row: &impl Columns) -> Result<CallRow, StoreError> {
    let result: Option<Bytes> = row.get_ref(10)?.as_blob_or_null()?.map(Bytes::from);
    let answer = match small::<u8>(row, 7)? {
        0 => None,
        1 => Some(NextAnswer::Done(result.clone())),
        _ => Some(NextAnswer::Failed(stored_next_code(small(row, 8)?)?, row.get_ref(9)?.as_str()?.into())),
    };
    Ok(CallRow {
        target: Seq(number(row, 0)?),
        caller: Fence {
            job: stored_job_id(row.get_ref(1)?.as_blob()?)?,
            attempt: small(row, 2)?,
            attempt_id: stored_attempt_id(row.get_ref(3)?.as_blob()?)?,
            lease_epoch: small(row, 4)?,
        },
        request: stored_name(row.get_ref(5)?.as_str()?)?,
        called_at: Wall(row.get_ref(11)?.as_i64()?),
        after: small(row, 12)?,
        until: row.get_ref(6)?.as_i64_or_null()?.map(Wall),
        payload: row.get_ref(13)?.as_blob_or_null()?.map(Bytes::from),
        answer,
        result,
    })
}

pub(crate) fn read_run(row: &impl Columns) -> Result<RunRow, StoreError> {
    let RunRest { submitted_by, failure, name, client, tags, nodes } = read_rest(row.get_ref(9)?.as_blob()?)?;
    let idempotency = match (row.get_ref(7)?.as_str_or_null()?, row.get_ref(8)?.as_blob_or_null()?) {
        (Some(key), Some(digest)) => {
            Some(IdempotencyKey { key: stored_name(key)?, digest: stored_digest(digest)? })
        }
        (None, None) => None,
        _ => return Err(StoreError::Damaged("a run has half an idempotency key".into())),
    };
    Ok(RunRow {
        first: Seq(number(row, 0)?),
        id: stored_run_id(row.get_ref(1)?.as_blob()?)?,
        spec: RunSpec {
            tenant: stored_name(row.get_ref(2)?.as_str()?)?,
            name,
            lane: stored_name(row.get_ref(3)?.as_str()?)?,
            failure,
            client,
            idempotency,
            tags,
        },
        nodes,
        created_at: Wall(row.get_ref(5)?.as_i64()?),
        submitted_by,
        state: stored_run_state(small(row, 4)?)?,
        finished_at: row.get_ref(6)?.as_i64_or_null()?.map(Wall),
    })
}

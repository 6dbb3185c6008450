//! The keys that ended jobs keep: one row for each key, apart from the job, which may be deleted first.

use laneway_core::{JobId, KeptKeys, Key, Wall};
use rusqlite::{Connection, params};

use super::commit::rejected;
use super::row_sums::KEPT_KEY;
use crate::rows::{stored_job_id, stored_name};
use crate::{Loaded, StoreError};

/// Stores the keys of a job. It must keep none yet.
pub(super) fn insert(conn: &Connection, row: &KeptKeys) -> Result<(), StoreError> {
    let KeptKeys { job, tenant, keys, since } = row;
    let id = job.0.to_be_bytes();
    let mut find = conn.prepare_cached("SELECT 1 FROM kept_key WHERE job = ?1")?;
    if find.exists([&id[..]])? {
        return Err(StoreError::Disagree(format!("job {job} keeps keys already")));
    }
    let mut insert = conn.prepare_cached(
        "INSERT INTO kept_key (job, position, tenant, name, value, since) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (position, Key { name, value }) in (0u32..).zip(keys) {
        let row = params![&id[..], position, tenant.as_str(), name.as_str(), value.as_str(), since.0];
        insert.execute(row).map_err(|error| rejected(error, || format!("kept key {name} of job {job}")))?;
    }
    Ok(())
}

/// Deletes the keys of a job. It must keep some.
pub(super) fn delete(conn: &Connection, job: JobId) -> Result<(), StoreError> {
    let mut delete = conn.prepare_cached("DELETE FROM kept_key WHERE job = ?1")?;
    match delete.execute([&job.0.to_be_bytes()[..]])? {
        0 => Err(StoreError::Disagree(format!("job {job} keeps no keys"))),
        _ => Ok(()),
    }
}

/// Visits the keys of every job that keeps some.
pub(super) fn load(conn: &Connection, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let mut select = conn.prepare(&format!(
        "SELECT job, tenant, name, value, since, {} FROM kept_key ORDER BY job, position",
        KEPT_KEY.check
    ))?;
    let mut rows = select.query([])?;
    let mut keeper: Option<KeptKeys> = None;
    while let Some(row) = rows.next()? {
        let job = stored_job_id(row.get_ref(0)?.as_blob()?)?;
        let key = Key {
            name: stored_name(row.get_ref(2)?.as_str()?)?,
            value: stored_name(row.get_ref(3)?.as_str()?)?,
        };
        match &mut keeper {
            Some(known) if known.job == job => known.keys.push(key),
            _ => {
                let tenant = stored_name(row.get_ref(1)?.as_str()?)?;
                let since = Wall(row.get_ref(4)?.as_i64()?);
                let next = KeptKeys { job, tenant, keys: vec![key], since };
                keeper.replace(next).into_iter().for_each(|row| visit(Loaded::KeptKeys(row)));
            }
        }
    }
    keeper.into_iter().for_each(|row| visit(Loaded::KeptKeys(row)));
    Ok(())
}

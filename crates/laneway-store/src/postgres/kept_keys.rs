//! The keys that ended jobs keep: one row for each key, apart from the job, which may be deleted first.

use laneway_core::{JobId, KeptKeys, Key, Wall};

use super::cells::{Rows, id, int, name};
use super::script::Script;
use super::session::{ReadError, Session};
use crate::Loaded;
use crate::columns::Columns;
use crate::rows::{stored_job_id, stored_name};

/// Stores the keys of a job. It must keep none yet.
pub(super) fn insert<'a>(row: &'a KeptKeys, script: &mut Script<'a>) {
    let KeptKeys { job, tenant, keys, since } = row;
    let mut rows = Rows::default();
    for (position, Key { name: key, value }) in (0u32..).zip(keys) {
        rows.push([id(job.0), int(position), name(tenant), name(key), name(value), int(since.0)]);
    }
    if rows.is_empty() {
        return;
    }
    let sql = format!(
        "INSERT INTO laneway.kept_key (job, position, tenant, name, value, since) SELECT * FROM {} AS rows (c1) \
         WHERE NOT EXISTS (SELECT 1 FROM laneway.kept_key WHERE kept_key.job = c1)",
        rows.unnest()
    );
    script.exactly(rows.len(), "kept_key", sql, rows.into_params());
}

/// Deletes the keys of a job. It must keep some.
pub(super) fn delete(job: JobId, script: &mut Script<'_>) {
    // One row for the job, however many keys it kept.
    script.exactly(
        1,
        "kept_key",
        "WITH gone AS (DELETE FROM laneway.kept_key WHERE job = $1 RETURNING job) SELECT DISTINCT job FROM gone",
        vec![id(job.0)],
    );
}

/// Visits the keys of every job that keeps some.
pub(super) fn load(session: &Session, visit: &mut dyn FnMut(Loaded)) -> Result<(), ReadError> {
    let sql = "SELECT job, tenant, name, value, since FROM laneway.kept_key ORDER BY job, position";
    let mut keeper: Option<KeptKeys> = None;
    for row in session.rows(sql, vec![])? {
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

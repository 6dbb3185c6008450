//! Sessions: their stored state, and which jobs run as one.

use laneway_core::{Bytes, JobEnd, JobRow, MergedInto, Name, Seq, SessionRow, Wall};
use rusqlite::{Connection, params};

use super::commit::rejected;
use super::row_sums::{MERGED, SESSION};
use super::tables::Tables;
use crate::columns::{PAYLOAD, number, read_merged_into, read_payload};
use crate::rows::stored_name;
use crate::{Loaded, StoreError};

/// Stores a session's state.
pub(super) fn put(conn: &Connection, row: &SessionRow) -> Result<(), StoreError> {
    let SessionRow { tenant, key, cutoff, generation, tokens, window, updated_at } = row;
    let mut put = conn.prepare_cached(
        "REPLACE INTO session (tenant, key, cutoff, generation, tokens, window, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let done = put.execute(params![
        tenant.as_str(),
        key.as_str(),
        cutoff.map(|time| time.0),
        generation.cast_signed(),
        tokens.cast_signed(),
        window.cast_signed(),
        updated_at.0,
    ]);
    done.map_err(|error| rejected(error, || format!("session {key}")))?;
    Ok(())
}

/// Deletes a session's state.
pub(super) fn forget(conn: &Connection, tenant: &Name, key: &Name) -> Result<(), StoreError> {
    let mut delete = conn.prepare_cached("DELETE FROM session WHERE tenant = ?1 AND key = ?2")?;
    delete.execute(params![tenant.as_str(), key.as_str()])?;
    Ok(())
}

/// Visits the state of every session.
pub(super) fn load(conn: &Connection, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let mut select = conn.prepare(&format!(
        "SELECT tenant, key, cutoff, generation, tokens, window, updated_at, {} FROM session ORDER BY tenant, key",
        SESSION.check
    ))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        visit(Loaded::Session(SessionRow {
            tenant: stored_name(row.get_ref(0)?.as_str()?)?,
            key: stored_name(row.get_ref(1)?.as_str()?)?,
            cutoff: row.get_ref(2)?.as_i64_or_null()?.map(Wall),
            generation: number(row, 3)?,
            tokens: number(row, 4)?,
            window: number(row, 5)?,
            updated_at: Wall(row.get_ref(6)?.as_i64()?),
        }));
    }
    Ok(())
}

/// Stores which jobs run for those among `ends` that were merged.
pub(super) fn merge(store: &Tables, ends: &[&JobEnd]) -> Result<(), StoreError> {
    for end in ends {
        let Some(MergedInto { seq, job }) = end.merged_into else { continue };
        if store.live.get(seq).is_none() {
            return Err(StoreError::Disagree(format!("job {} is not live", seq.0)));
        }
        let mut insert =
            store.conn.prepare_cached("INSERT INTO merged (leader, seq, job) VALUES (?1, ?2, ?3)")?;
        let id = job.0.to_be_bytes();
        let inserted = insert.execute(params![seq.0.cast_signed(), end.seq.0.cast_signed(), &id[..]]);
        inserted.map_err(|error| rejected(error, || format!("the job that job {} went into", end.seq.0)))?;
    }
    Ok(())
}

/// The job that runs for a merged one.
pub(super) fn merged_into(conn: &Connection, job: Seq) -> Result<Option<MergedInto>, StoreError> {
    let sql = format!("SELECT leader, job, {} FROM merged WHERE seq = ?1", MERGED.check);
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([job.0.cast_signed()])?;
    rows.next()?.map(read_merged_into).transpose()
}

/// The payloads of the jobs that were merged into this one. Only a job with a debounce window can have any.
pub(super) fn merged_payloads(conn: &Connection, row: &JobRow) -> Result<Vec<Bytes>, StoreError> {
    let mut payloads = Vec::new();
    if row.spec.session.as_ref().is_none_or(|session| session.debounce.is_none()) {
        return Ok(payloads);
    }
    let mut select = conn.prepare_cached(&format!(
        "SELECT {PAYLOAD}, {} FROM merged CROSS JOIN payload ON payload.seq = merged.seq \
         WHERE merged.leader = ?1 ORDER BY merged.seq",
        MERGED.check
    ))?;
    let mut rows = select.query([row.seq.0.cast_signed()])?;
    while let Some(row) = rows.next()? {
        payloads.push(read_payload(row, 0)?);
    }
    Ok(payloads)
}

//! The ends of ids: finds jobs by the last digits of their ids, which tables show as their short form.
//!
//! An index of these digits would be a random page for each new job. Instead each complete chunk has one row with four bytes for
//! each of its jobs, and a search compares them all: 64 KiB for 16,384 jobs.

use laneway_core::{JobId, Seq};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};

use super::bits::CHUNK;
use super::{place_of, seq_at};
use crate::StoreError;
use crate::rows::stored_job_id;
use crate::search::IdEnd;
use crate::sums::{check_sum, in_row, sum_of};

/// Bytes of each end.
const WIDTH: usize = 4;

/// Stores the ends of chunks before `newest` that have none yet.
pub(super) fn write_missing(conn: &Connection, newest: u64) -> Result<(), StoreError> {
    for chunk in missing(conn, newest)? {
        let mut ends = vec![0; CHUNK as usize * WIDTH];
        let mut select = conn.prepare_cached("SELECT seq, id FROM job WHERE seq BETWEEN ?1 AND ?2")?;
        let mut rows = select.query(range_of(chunk))?;
        while let Some(row) = rows.next()? {
            let place = usize::from(place_of(Seq(row.get::<_, i64>(0)?.cast_unsigned())));
            let id = stored_job_id(row.get_ref(1)?.as_blob()?)?;
            ends[place * WIDTH..][..WIDTH].copy_from_slice(&IdEnd::short(id).to_be_bytes());
        }
        let chunk = chunk.cast_signed();
        let sum = sum_of([ValueRef::Integer(chunk), ValueRef::Blob(&ends)]);
        let mut insert = conn.prepare_cached("REPLACE INTO id_end (chunk, ends, sum) VALUES (?1, ?2, ?3)")?;
        insert.execute(params![chunk, ends, sum])?;
    }
    Ok(())
}

/// Chunks before `newest` whose ends are not stored.
fn missing(conn: &Connection, newest: u64) -> Result<Vec<u64>, StoreError> {
    let mut select = conn.prepare_cached(
        "SELECT chunk FROM facet_times WHERE chunk < ?1 AND chunk NOT IN (SELECT chunk FROM id_end)",
    )?;
    let mut rows = select.query([i64::try_from(newest).unwrap_or(i64::MAX)])?;
    let mut chunks = Vec::new();
    while let Some(row) = rows.next()? {
        chunks.push(row.get::<_, i64>(0)?.cast_unsigned());
    }
    Ok(chunks)
}

/// The ends of a chunk, where they are stored.
pub(super) fn read(conn: &Connection, chunk: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let mut select = conn.prepare_cached("SELECT chunk, ends, sum FROM id_end WHERE chunk = ?1")?;
    let mut rows = select.query([chunk.cast_signed()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    check_sum(row, 0..2, 2).map_err(|error| in_row("id_end", row, error))?;
    Ok(Some(row.get_ref(1)?.as_blob()?.to_vec()))
}

/// Is this the end of the id of the job with this number?
pub(super) fn has(ends: &[u8], seq: Seq, id: JobId) -> bool {
    ends.chunks_exact(WIDTH).nth(place_of(seq).into()) == Some(&IdEnd::short(id).to_be_bytes())
}

/// Deletes the ends of a chunk without jobs.
pub(super) fn remove(conn: &Connection, chunk: u64) -> Result<(), StoreError> {
    conn.prepare_cached("DELETE FROM id_end WHERE chunk = ?1")?.execute([chunk.cast_signed()])?;
    Ok(())
}

/// The jobs whose ids end so, `max` at most.
pub(super) fn find(conn: &Connection, end: &IdEnd, max: usize) -> Result<Vec<Seq>, StoreError> {
    let wanted = end.short_part().to_be_bytes();
    let mut candidates = Vec::new();
    let mut select = conn.prepare_cached("SELECT chunk, ends, sum FROM id_end")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        check_sum(row, 0..2, 2).map_err(|error| in_row("id_end", row, error))?;
        let chunk = row.get::<_, i64>(0)?.cast_unsigned();
        let ends = row.get_ref(1)?.as_blob()?.chunks_exact(WIDTH);
        let found = ends.zip(0u16..).filter(|(end, _)| *end == wanted);
        candidates.extend(found.map(|(_, place)| seq_at(chunk, place)));
    }
    let mut scan =
        conn.prepare_cached("SELECT seq FROM job WHERE seq BETWEEN ?1 AND ?2 AND substr(id, 13) = ?3")?;
    for chunk in missing(conn, u64::MAX)? {
        let [from, to] = range_of(chunk);
        let mut rows = scan.query(params![from, to, &wanted[..]])?;
        while let Some(row) = rows.next()? {
            candidates.push(Seq(row.get::<_, i64>(0)?.cast_unsigned()));
        }
    }
    // A candidate may be deleted, or have other digits before these.
    let mut read = conn.prepare_cached("SELECT id FROM job WHERE seq = ?1")?;
    let mut found = Vec::new();
    for seq in candidates {
        let mut rows = read.query([seq.0.cast_signed()])?;
        if let Some(row) = rows.next()?
            && end.fits(stored_job_id(row.get_ref(0)?.as_blob()?)?)
            && found.len() < max
        {
            found.push(seq);
        }
    }
    Ok(found)
}

/// The first and the last number of a chunk.
fn range_of(chunk: u64) -> [i64; 2] {
    [chunk * CHUNK, chunk * CHUNK + CHUNK - 1].map(u64::cast_signed)
}

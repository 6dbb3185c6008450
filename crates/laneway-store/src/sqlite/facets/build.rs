//! Makes the sets from the tables of jobs, for a store from before there were sets.

use rusqlite::Connection;

use super::bits::CHUNK;
use crate::StoreError;
use crate::rows::Interner;
use crate::sqlite::query::views_between;
use crate::sqlite::row_sums::STORE_STATE;
use crate::sqlite::tables::Tables;

/// Makes the sets, where they are not complete. A crash leaves them to the next start.
pub(in crate::sqlite) fn complete(tables: &mut Tables) -> Result<(), StoreError> {
    if is_complete(&tables.conn)? {
        return Ok(());
    }
    let (first, last): (Option<i64>, Option<i64>) =
        tables
            .conn
            .query_row("SELECT min(seq), max(seq) FROM job", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let (Some(first), Some(last)) = (first, last) {
        tracing::info!(jobs = last - first + 1, "the indexes of lists are built; this happens once");
        clear(&tables.conn)?;
        for chunk in first.cast_unsigned() / CHUNK..=last.cast_unsigned() / CHUNK {
            tables.conn.execute_batch("BEGIN IMMEDIATE")?;
            build_chunk(tables, chunk)?;
            tables.conn.execute_batch("COMMIT")?;
        }
    }
    mark_complete(&tables.conn)
}

/// Records that the sets are complete.
pub(in crate::sqlite) fn mark_complete(conn: &Connection) -> Result<(), StoreError> {
    let sql = format!("UPDATE store_state SET facets_built = 1 WHERE {}", STORE_STATE.check);
    conn.execute(&sql, [])?;
    Ok(())
}

fn is_complete(conn: &Connection) -> Result<bool, StoreError> {
    let sql = format!("SELECT facets_built, {} FROM store_state", STORE_STATE.check);
    Ok(conn.query_row(&sql, [], |row| row.get::<_, i64>(0))? == 1)
}

fn clear(conn: &Connection) -> Result<(), StoreError> {
    Ok(conn.execute_batch(
        "DELETE FROM facet; DELETE FROM facet_name; DELETE FROM facet_times; DELETE FROM id_end",
    )?)
}

fn build_chunk(tables: &mut Tables, chunk: u64) -> Result<(), StoreError> {
    let Tables { conn, lanes, facets, .. } = tables;
    let mut names = Interner::default();
    let bounds = (chunk * CHUNK, (chunk + 1) * CHUNK - 1);
    views_between(conn, bounds, &mut names, &mut |view| {
        facets.job(conn, lanes, &view.row)?;
        if let Some(end) = &view.end {
            facets.end(conn, end)?;
        }
        facets.state(view.row.seq, view.state());
        Ok(())
    })?;
    facets.flush(conn)
}

//! The table `live_chunk`, which says which jobs are live.

use rusqlite::{Connection, params};

use super::row_sums::LIVE_CHUNK;
use crate::StoreError;
use crate::live::Live;

/// Reads the table.
pub(super) fn read(conn: &Connection) -> Result<Live, StoreError> {
    let mut live = Live::default();
    let mut statement = conn.prepare(&format!("SELECT chunk, bits, {} FROM live_chunk", LIVE_CHUNK.check))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        live.read_chunk(row.get::<_, i64>(0)?.cast_unsigned(), row.get_ref(1)?.as_blob()?)?;
    }
    Ok(live)
}

/// Writes the rows of all chunks that changed.
pub(super) fn write(conn: &Connection, live: &Live) -> Result<(), StoreError> {
    let mut put = conn.prepare_cached("REPLACE INTO live_chunk (chunk, bits) VALUES (?1, ?2)")?;
    let mut delete = conn.prepare_cached("DELETE FROM live_chunk WHERE chunk = ?1")?;
    for (chunk, bits) in live.changed() {
        match bits {
            Some(bits) => put.execute(params![chunk.cast_signed(), bits])?,
            None => delete.execute([chunk.cast_signed()])?,
        };
    }
    Ok(())
}

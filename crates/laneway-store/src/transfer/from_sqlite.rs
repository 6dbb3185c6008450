//! From a data directory to PostgreSQL.

use std::path::Path;

use rusqlite::types::Value;

use super::rows::{CHUNK_BYTES, CHUNK_ROWS, Count, Table, bytes_of};
use super::{STATE, TABLES, TableCopied, TransferProgress};
use crate::postgres::transfer::WholeDatabase;
use crate::sqlite::transfer::ClosedDirectory;
use crate::{Epoch, StoreError};

pub(super) fn copy(
    dir: &Path,
    url: &str,
    progress: &mut dyn FnMut(TransferProgress),
) -> Result<Vec<TableCopied>, StoreError> {
    let from = ClosedDirectory::open(dir)?;
    let names: Vec<&str> = TABLES.iter().map(|(name, _)| *name).collect();
    let to = WholeDatabase::target(url, &names)?;
    let tables = Table::all(&from.conn)?;
    let mut totals = Vec::new();
    for table in &tables {
        let sql = format!("SELECT count(*) FROM {}", table.name);
        totals.push(from.conn.query_row(&sql, [], |row| row.get::<_, i64>(0))?.cast_unsigned());
    }
    let mut count = Count::new(totals.iter().sum(), progress);
    for (table, total) in tables.iter().zip(totals) {
        copy_table(&from, &to, table, &mut count)?;
        count.compare(table.name, total, to.count(table.name)?)?;
    }
    to.put_state(STATE, &state_of(&from)?)?;
    let epoch = from.conn.query_row("SELECT epoch FROM server_state", [], |row| row.get::<_, i64>(0))?;
    to.put_epoch(Epoch(epoch.cast_unsigned()))?;
    count.stage("events");
    to.commit()?;
    Ok(count.finish())
}

fn copy_table(
    from: &ClosedDirectory,
    to: &WholeDatabase,
    table: &Table,
    count: &mut Count<'_>,
) -> Result<(), StoreError> {
    let mut columns = table.postgres_columns();
    columns.extend(table.derived_columns().iter().map(|column| (*column).to_owned()));
    let mut statement = from.conn.prepare(&table.select())?;
    let mut found = statement.query([])?;
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    loop {
        let next = found.next()?;
        let last = next.is_none();
        if let Some(row) = next {
            let mut row = (0..table.columns.len())
                .map(|column| row.get::<_, Value>(column))
                .collect::<Result<Vec<Value>, _>>()?;
            row.extend(table.derive(&row)?);
            bytes += bytes_of(&row);
            chunk.push(row);
        }
        if last || chunk.len() >= CHUNK_ROWS || bytes >= CHUNK_BYTES {
            let rows = chunk.len();
            to.insert(table.name, &columns, std::mem::take(&mut chunk))?;
            count.add(table.name, rows);
            bytes = 0;
        }
        if last {
            return Ok(());
        }
    }
}

fn state_of(from: &ClosedDirectory) -> Result<Vec<Value>, StoreError> {
    let columns = STATE.split(", ").count();
    Ok(from.conn.query_row(&format!("SELECT {STATE} FROM server_state"), [], |row| {
        (0..columns).map(|column| row.get(column)).collect()
    })?)
}

//! From PostgreSQL to a data directory.

use std::path::Path;

use rusqlite::params_from_iter;

use super::rows::{Count, Table};
use super::{STATE, TableCopied, TransferProgress};
use crate::StoreError;
use crate::postgres::transfer::WholeDatabase;
use crate::sqlite::transfer::NewDatabase;

pub(super) fn copy(
    url: &str,
    dir: &Path,
    progress: &mut dyn FnMut(TransferProgress),
) -> Result<Vec<TableCopied>, StoreError> {
    let to = NewDatabase::begin(dir)?;
    let from = WholeDatabase::source(url)?;
    let tables = Table::all(&to.conn)?;
    let mut totals = Vec::new();
    for table in &tables {
        totals.push(from.count(table.name)?);
    }
    let mut count = Count::new(totals.iter().sum(), progress);
    for (table, total) in tables.iter().zip(totals) {
        let mut insert = to.conn.prepare(&table.insert())?;
        from.read(table.name, &table.postgres_columns(), table.key, &mut |rows| {
            let copied = rows.len();
            for row in rows {
                insert.execute(params_from_iter(row))?;
            }
            count.add(table.name, copied);
            Ok(())
        })?;
        let sql = format!("SELECT count(*) FROM {}", table.name);
        let copied = to.conn.query_row(&sql, [], |row| row.get::<_, i64>(0))?.cast_unsigned();
        count.compare(table.name, total, copied)?;
    }
    let places: Vec<String> = (1..=STATE.split(", ").count()).map(|number| format!("?{number}")).collect();
    let sql = format!("UPDATE server_state SET ({STATE}) = ({})", places.join(", "));
    to.conn.execute(&sql, params_from_iter(from.state(STATE)?))?;
    to.conn.execute("UPDATE server_state SET epoch = ?1", [from.epoch()?.0.cast_signed()])?;
    to.finish(&mut || count.stage("check"))?;
    Ok(count.finish())
}

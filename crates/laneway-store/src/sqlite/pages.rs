//! Pages of lists: the newest rows first, and a bounded number of rows for each call.

use laneway_core::Seq;
use rusqlite::{Connection, Row};

use crate::columns::number;
use crate::store::ROWS_SCANNED_MAX;
use crate::{Page, StoreError};

/// Reads a page with `sql`, whose only parameter is the number to start before, and whose first column is the number of a
/// row. `read` returns `None` for a row that the list does not show.
pub(super) fn newest_first<T>(
    conn: &Connection,
    sql: &str,
    before: Option<Seq>,
    limit: usize,
    mut read: impl FnMut(&Row<'_>) -> Result<Option<T>, StoreError>,
) -> Result<Page<T>, StoreError> {
    let mut select = conn.prepare_cached(sql)?;
    let before = before.map_or(i64::MAX, |seq| i64::try_from(seq.0).unwrap_or(i64::MAX));
    let mut rows = select.query([before])?;
    let mut page = Page { items: Vec::new(), next: None };
    let (mut scanned, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        if page.items.len() >= limit.max(1) || scanned >= ROWS_SCANNED_MAX {
            page.next = last;
            break;
        }
        scanned += 1;
        last = Some(number(row, 0)?);
        page.items.extend(read(row)?);
    }
    Ok(page)
}

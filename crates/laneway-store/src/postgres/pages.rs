//! Pages of lists: the newest rows first, and a bounded number of rows for each call.

use laneway_core::Seq;
use tokio_postgres::Row;

use super::cells::{Param, int};
use super::session::{ReadError, Session};
use crate::columns::number;
use crate::store::ROWS_SCANNED_MAX;
use crate::{Page, StoreError};

/// The most rows that one statement reads.
const CHUNK_MAX: usize = 4_096;

/// Reads a page with a statement, whose parameters are the number to start before, the number of rows, and those that are given, and
/// whose first column is the number of a row. `read` returns `None` for a row that the list does not show.
pub(super) fn newest_first<T>(
    session: &Session,
    (sql, params): (&str, Vec<Param<'_>>),
    before: Option<Seq>,
    limit: usize,
    mut read: impl FnMut(&Row) -> Result<Option<T>, StoreError>,
) -> Result<Page<T>, ReadError> {
    let mut before = before.map_or(i64::MAX, |seq| i64::try_from(seq.0).unwrap_or(i64::MAX));
    let limit = limit.max(1);
    let mut page = Page { items: Vec::new(), next: None };
    let (mut scanned, mut last) = (0, None);
    let mut chunk = limit.saturating_add(1).min(CHUNK_MAX);
    loop {
        let all = [int(before), int(chunk as i64)].into_iter().chain(params.iter().cloned()).collect();
        let rows = session.rows(sql, all)?;
        for row in &rows {
            if page.items.len() >= limit || scanned >= ROWS_SCANNED_MAX {
                page.next = last;
                return Ok(page);
            }
            scanned += 1;
            last = Some(number(row, 0)?);
            page.items.extend(read(row)?);
        }
        if rows.len() < chunk {
            return Ok(page);
        }
        before = last.unwrap_or_default().cast_signed();
        chunk = (chunk * 4).min(CHUNK_MAX);
    }
}

//! Checksums of rows. SQLite does not notice flipped bits in a page: a damaged value looks like any other value.
//!
//! The checksums cover the rows that are written once and kept longest: jobs as they were submitted, their payloads, and
//! their ends with their results.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::StoreError;

/// The checksum of these values, in their order. Types and lengths count, so that nothing moves from one to the next.
pub(super) fn sum_of<'a>(values: impl IntoIterator<Item = ValueRef<'a>>) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    let mut put = |kind: u8, bytes: &[u8]| {
        let mut prefix = [kind; 5];
        prefix[1..].copy_from_slice(&(bytes.len() as u32).to_be_bytes());
        hasher.update(&prefix);
        hasher.update(bytes);
    };
    for value in values {
        match value {
            ValueRef::Null => put(0, &[]),
            ValueRef::Integer(number) => put(1, &number.to_be_bytes()),
            ValueRef::Real(number) => put(2, &number.to_be_bytes()),
            ValueRef::Text(text) => put(3, text),
            ValueRef::Blob(bytes) => put(4, bytes),
        }
    }
    i64::from(hasher.finalize())
}

/// Checks that these columns are as they were written. `at` is the column of the checksum.
pub(super) fn check_sum(
    row: &Row<'_>,
    columns: impl IntoIterator<Item = usize>,
    at: usize,
) -> Result<(), StoreError> {
    let expected = row.get_ref(at)?.as_i64()?;
    let values = columns.into_iter().map(|column| row.get_ref(column)).collect::<Result<Vec<_>, _>>()?;
    if sum_of(values) == expected {
        return Ok(());
    }
    Err(StoreError::Damaged("the row is not what was written".into()))
}

/// Says in which row of which table the damage is.
pub(super) fn in_row(table: &str, row: &Row<'_>, error: StoreError) -> StoreError {
    let StoreError::Damaged(why) = error else { return error };
    match row.get_ref(0) {
        Ok(ValueRef::Integer(key)) => StoreError::Damaged(format!("table {table}, row {key}: {why}")),
        _ => StoreError::Damaged(format!("table {table}: {why}")),
    }
}

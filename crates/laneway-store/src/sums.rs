//! Checksums of rows. SQLite does not notice flipped bits in a page: a damaged value looks like any other value.
//!
//! The tables that every job writes have checksums that the program binds: jobs, payloads, ends, records and the sets of lists.
//! In SQLite, the rows of all other tables are summed by the database ([`crate::sqlite::row_sums`]), in the same way.

use rusqlite::types::ValueRef;

use crate::StoreError;
use crate::columns::Columns;

/// The bytes of small values that are summed at once.
const SMALL_LEN: usize = 256;

/// The checksum of these values, in their order. Types and lengths count, so that nothing moves from one to the next.
pub(crate) fn sum_of<'a>(values: impl IntoIterator<Item = ValueRef<'a>>) -> i64 {
    let mut sum = Sum::new();
    values.into_iter().for_each(|value| sum.add_value(value));
    sum.finish()
}

/// Small values are collected in a buffer: the checksum of a few bytes costs as much as that of a hundred.
struct Sum {
    hasher: crc32fast::Hasher,
    small: [u8; SMALL_LEN],
    len: usize,
}

impl Sum {
    fn new() -> Sum {
        Sum { hasher: crc32fast::Hasher::new(), small: [0; SMALL_LEN], len: 0 }
    }

    fn add_value(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.put(0, &[]),
            ValueRef::Integer(number) => self.put(1, &number.to_be_bytes()),
            ValueRef::Real(number) => self.put(2, &number.to_be_bytes()),
            ValueRef::Text(text) => self.put(3, text),
            ValueRef::Blob(bytes) => self.put(4, bytes),
        }
    }

    fn finish(mut self) -> i64 {
        self.flush();
        i64::from(self.hasher.finalize())
    }

    fn put(&mut self, kind: u8, bytes: &[u8]) {
        let mut prefix = [kind; 5];
        prefix[1..].copy_from_slice(&(bytes.len() as u32).to_be_bytes());
        self.add(&prefix);
        self.add(bytes);
    }

    fn add(&mut self, bytes: &[u8]) {
        if bytes.len() > SMALL_LEN - self.len {
            self.flush();
        }
        if bytes.len() > SMALL_LEN {
            self.hasher.update(bytes);
            return;
        }
        self.small[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn flush(&mut self) {
        self.hasher.update(&self.small[..self.len]);
        self.len = 0;
    }
}

/// Checks that these columns are as they were written. `at` is the column of the checksum.
pub(crate) fn check_sum(
    row: &impl Columns,
    columns: impl IntoIterator<Item = usize>,
    at: usize,
) -> Result<(), StoreError> {
    let expected = row.get_ref(at)?.as_i64()?;
    let mut sum = Sum::new();
    for column in columns {
        sum.add_value(row.get_ref(column)?);
    }
    if sum.finish() == expected {
        return Ok(());
    }
    Err(StoreError::Damaged("the row is not what was written".into()))
}

/// Says in which row of which table the damage is.
pub(crate) fn in_row(table: &str, row: &impl Columns, error: StoreError) -> StoreError {
    let StoreError::Damaged(why) = error else { return error };
    match row.get_ref(0) {
        Ok(ValueRef::Integer(key)) => StoreError::Damaged(format!("table {table}, row {key}: {why}")),
        _ => StoreError::Damaged(format!("table {table}: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum is that of all bytes one after the other, however they are collected.
    #[test]
    fn the_sum_is_that_of_the_bytes_in_their_order() {
        for lens in [vec![0], vec![3, 250, 1], vec![256], vec![257, 2], vec![100, 251, 600, 4, 256, 255]] {
            let texts: Vec<Vec<u8>> = lens.iter().map(|len| (0..*len).map(|at| at as u8).collect()).collect();
            let mut expected = crc32fast::Hasher::new();
            for text in &texts {
                expected.update(&[4]);
                expected.update(&(text.len() as u32).to_be_bytes());
                expected.update(text);
            }
            let sum = sum_of(texts.iter().map(|text| ValueRef::Blob(text)));
            assert_eq!(sum, i64::from(expected.finalize()), "{lens:?}");
        }
    }
}

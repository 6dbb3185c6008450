//! Tables and rows between the two sorts: names of columns, types, and columns that only PostgreSQL has.

use rusqlite::Connection;
use rusqlite::types::{Value, ValueRef};

use super::{TABLES, TableCopied, TransferProgress};
use crate::StoreError;
use crate::codec::{read_failure, read_spec};
use crate::rows::Interner;
use crate::sqlite::row_sums;

/// Rows that are copied at once, at most.
pub(super) const CHUNK_ROWS: usize = 512;
/// Bytes after which a chunk is full.
pub(super) const CHUNK_BYTES: usize = 8 << 20;

/// The column of table `job` that only SQLite has: a checksum of these columns.
const STATUS_SUM: &str = "status_sum";
const STATUS: [&str; 11] = [
    "seq",
    "state",
    "wake_at",
    "attempts",
    "failures",
    "losses",
    "last_event",
    "rejections",
    "near_deadline",
    "denials",
    "denied_until",
];

/// A table.
pub(super) struct Table {
    pub name: &'static str,
    pub key: &'static str,
    /// Its columns in SQLite, without [`STATUS_SUM`].
    pub columns: Vec<String>,
}

impl Table {
    /// Every table, with the columns of this database.
    pub fn all(conn: &Connection) -> Result<Vec<Table>, StoreError> {
        let of = |(name, key): &(&'static str, &'static str)| {
            let mut statement =
                conn.prepare("SELECT name FROM pragma_table_info(?1) WHERE name <> ?2 ORDER BY cid")?;
            let columns = statement
                .query_map([name, STATUS_SUM], |row| row.get(0))?
                .collect::<Result<Vec<String>, _>>()?;
            if columns.is_empty() {
                return Err(StoreError::Damaged(format!("table {name} is missing")));
            }
            Ok(Table { name, key, columns })
        };
        TABLES.iter().map(of).collect()
    }

    /// The statement that reads all rows, in SQLite. It fails at a damaged row; what is left out here has a checksum that is copied, and
    /// that readers of PostgreSQL check.
    pub fn select(&self) -> String {
        let summed = row_sums::ALL.iter().find(|summed| summed.table == self.name);
        let check = match self.name {
            "job" => format!("row_check('job', 1, {STATUS_SUM}, {})", STATUS.join(", ")),
            _ => summed.map_or_else(|| "true".to_owned(), |summed| summed.check.to_owned()),
        };
        format!("SELECT {} FROM {} WHERE {check} ORDER BY {}", quoted(&self.columns), self.name, self.key)
    }

    /// The statement that inserts one row, in SQLite.
    pub fn insert(&self) -> String {
        let mut places: Vec<String> = (1..=self.columns.len()).map(|number| format!("?{number}")).collect();
        let mut columns = quoted(&self.columns);
        if self.name == "job" {
            let place = |name: &&str| self.columns.iter().position(|column| column == name);
            let summed: Vec<&str> = STATUS.iter().filter_map(place).map(|at| places[at].as_str()).collect();
            let sum = format!("row_sum({})", summed.join(", "));
            columns.push_str(&format!(", {STATUS_SUM}"));
            places.push(sum);
        }
        format!("INSERT INTO {} ({columns}) VALUES ({})", self.name, places.join(", "))
    }

    /// The names of its columns in PostgreSQL.
    pub fn postgres_columns(&self) -> Vec<String> {
        let renamed = |name: &String| match (self.name, name.as_str()) {
            ("session", "window") => "context_window".to_owned(),
            _ => name.clone(),
        };
        self.columns.iter().map(renamed).collect()
    }

    /// The columns that only PostgreSQL has.
    pub fn derived_columns(&self) -> &'static [&'static str] {
        match self.name {
            "job" => &["key", "member"],
            "done" => &["error_code"],
            _ => &[],
        }
    }

    /// What these columns have, from the others.
    pub fn derive(&self, row: &[Value]) -> Result<Vec<Value>, StoreError> {
        let cell = |name: &str| {
            let at = self.columns.iter().position(|column| column == name);
            at.map(|at| ValueRef::from(&row[at]))
                .ok_or_else(|| StoreError::Damaged(format!("table {} has no column {name}", self.name)))
        };
        let text = |text: &str| Value::Text(text.to_owned());
        match self.name {
            "job" => {
                let mut names = Interner::default();
                let spec = read_spec(cell("spec")?.as_blob()?, &mut |text| names.name(text))?;
                let key = spec.idempotency.map_or(Value::Null, |key| text(key.key.as_str()));
                Ok(vec![key, Value::Integer(spec.member.is_some().into())])
            }
            "done" => {
                let error = cell("error")?.as_blob_or_null()?.map(read_failure).transpose()?;
                Ok(vec![error.map_or(Value::Null, |error| text(error.code.as_str()))])
            }
            _ => Ok(Vec::new()),
        }
    }
}

fn quoted(columns: &[String]) -> String {
    columns.iter().map(|column| format!("\"{column}\"")).collect::<Vec<_>>().join(", ")
}

/// How many bytes a row has, about.
pub(super) fn bytes_of(row: &[Value]) -> usize {
    let of = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        _ => 8,
    };
    row.iter().map(of).sum()
}

/// Counts what is copied.
pub(super) struct Count<'a> {
    total: u64,
    done: u64,
    progress: &'a mut dyn FnMut(TransferProgress),
    tables: Vec<TableCopied>,
}

impl<'a> Count<'a> {
    pub fn new(total: u64, progress: &'a mut dyn FnMut(TransferProgress)) -> Count<'a> {
        Count { total, done: 0, progress, tables: Vec::new() }
    }

    /// More rows of a table are copied.
    pub fn add(&mut self, stage: &'static str, rows: usize) {
        self.done += rows as u64;
        (self.progress)(TransferProgress { stage, done: self.done, total: self.total });
    }

    /// A table is copied. Both sides must have the same number of rows.
    pub fn compare(&mut self, table: &'static str, from: u64, to: u64) -> Result<(), StoreError> {
        if from != to {
            return Err(StoreError::Failed(format!(
                "table {table}: {from} rows were read, and the copy has {to}; nothing was copied"
            )));
        }
        self.tables.push(TableCopied { table, rows: to });
        Ok(())
    }

    /// Another stage begins.
    pub fn stage(&mut self, stage: &'static str) {
        self.add(stage, 0);
    }

    pub fn finish(self) -> Vec<TableCopied> {
        self.tables
    }
}

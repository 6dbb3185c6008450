//! The statements of one transaction, and what each of them must do.

use super::cells::{Param, Rows};
use super::session::{Failure, Statement};
use crate::StoreError;

/// Statements in their order.
#[derive(Debug, Default)]
pub(super) struct Script<'a> {
    pub writes: Vec<Write<'a>>,
}

/// One statement.
#[derive(Debug)]
pub(super) struct Write<'a> {
    pub statement: Statement<'a>,
    /// What it writes, for people.
    what: &'static str,
    /// How many rows it must write; `None`: any number.
    rows: Option<u64>,
    /// True: a row that cannot be stored is a disagreement with the engine, not a bad row.
    strict: bool,
}

impl<'a> Script<'a> {
    /// A statement that may write any number of rows.
    pub fn any(&mut self, what: &'static str, sql: impl Into<String>, params: Vec<Param<'a>>) {
        self.push(what, sql, params, None, false);
    }

    /// A statement that must write this many rows, or the engine and the store disagree.
    pub fn exactly(&mut self, rows: u64, what: &'static str, sql: impl Into<String>, params: Vec<Param<'a>>) {
        self.push(what, sql, params, Some(rows), false);
    }

    /// Inserts rows. `columns` has the names of the columns.
    pub fn insert(&mut self, table: &'static str, columns: &str, rows: Rows<'a>) {
        if rows.is_empty() {
            return;
        }
        let sql = format!("INSERT INTO laneway.{table} ({columns}) SELECT * FROM {}", rows.unnest());
        self.push(table, sql, rows.into_params(), None, false);
    }

    /// The rows of the last statement must all be new and valid, or the engine and the store disagree.
    pub fn strictly(&mut self) {
        if let Some(last) = self.writes.last_mut() {
            last.strict = true;
        }
    }

    fn push(
        &mut self,
        what: &'static str,
        sql: impl Into<String>,
        params: Vec<Param<'a>>,
        rows: Option<u64>,
        strict: bool,
    ) {
        self.writes.push(Write { statement: Statement::new(sql, params), what, rows, strict });
    }
}

impl Write<'_> {
    /// Checks what the statement did. `Err(None)`: the connection is gone.
    pub fn check(&self, done: Result<u64, Failure>) -> Result<(), Outcome> {
        match done {
            Ok(count) => match self.rows {
                Some(rows) if rows != count => Err(Outcome::Error(StoreError::Disagree(format!(
                    "{}: {count} rows of {rows} are as the engine says",
                    self.what
                )))),
                _ => Ok(()),
            },
            Err(failure) if failure.cut => Err(Outcome::Cut(failure)),
            Err(failure) if failure.is_about_a_row() && self.strict => {
                Err(Outcome::Error(StoreError::Disagree(format!("{}: {}", self.what, failure.why))))
            }
            Err(failure) if failure.is_about_a_row() => {
                Err(Outcome::Error(StoreError::Rejected(format!("{}: {}", self.what, failure.why))))
            }
            Err(failure) => Err(Outcome::Error(failure.into())),
        }
    }
}

/// How a transaction went wrong.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The connection is gone; what was sent may have been done.
    Cut(Failure),
    /// Nothing was written.
    Error(StoreError),
}

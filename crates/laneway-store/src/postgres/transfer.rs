//! Whole tables, for a copy of a store into another one. The domain is locked meanwhile, so that no server can begin to write.

use std::sync::Arc;

use rusqlite::types::{Value, ValueRef};
use tokio_postgres::Row;

use super::cells::{Rows, own_blob, text};
use super::query::PostgresReader;
use super::session::{ReadError, Server, Session};
use super::tenure::Domain;
use super::url::Target;
use super::{migrate, open};
use crate::columns::{Columns, number};
use crate::{Epoch, Reader, StoreError};

/// Rows that one round trip reads.
const FETCHED: usize = 256;

/// A database whose tables are copied.
pub(crate) struct WholeDatabase {
    session: Session,
    server: Server,
}

impl WholeDatabase {
    /// A database to copy from, as one committed state.
    pub fn source(url: &str) -> Result<WholeDatabase, StoreError> {
        open::check_unused(url)?;
        let database = WholeDatabase::connect(url)?;
        let ready = open::check_tables(&database.session).and_then(|()| {
            database.session.batch("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
            lock_domain(&database.session)
        });
        let database = database.opened(ready)?;
        let waiting = database.count("inbox WHERE rejected_at IS NULL")?;
        if waiting > 0 {
            return Err(StoreError::Unusable(format!(
                "{waiting} jobs wait in laneway.inbox of {}; start a server, which takes them out, and stop it",
                database.server.target.display()
            )));
        }
        Ok(database)
    }

    /// A database to copy into. It must have no jobs.
    pub fn target(url: &str, tables: &[&str]) -> Result<WholeDatabase, StoreError> {
        open::check_unused(url)?;
        let database = WholeDatabase::connect(url)?;
        let ready = open::check(&database.session)
            .and_then(|()| migrate::migrate(&database.session))
            .and_then(|()| Ok(database.session.batch("BEGIN")?))
            .and_then(|()| lock_domain(&database.session));
        let database = database.opened(ready)?;
        for table in tables {
            let rows = database.count(table)?;
            if rows > 0 {
                return Err(StoreError::Unusable(format!(
                    "{} is not empty: table {table} has {rows} rows; name an empty database, or drop its schema laneway",
                    database.server.target.display()
                )));
            }
        }
        Ok(database)
    }

    fn connect(url: &str) -> Result<WholeDatabase, StoreError> {
        let server = Server::new(Target::parse(url)?)?;
        let session = server.connect().map_err(|failure| open::cannot_connect(&server.target, &failure))?;
        Ok(WholeDatabase { session, server })
    }

    fn opened(self, ready: Result<(), ReadError>) -> Result<WholeDatabase, StoreError> {
        match ready {
            Ok(()) => Ok(self),
            Err(error) => Err(open::cannot_open(&self.server.target, error)),
        }
    }

    /// How many rows a table has.
    pub fn count(&self, table: &str) -> Result<u64, StoreError> {
        let row = self.session.row(&format!("SELECT count(*) FROM laneway.{table}"), vec![])?;
        row.map_or(Ok(0), |row| number(&row, 0))
    }

    /// Reads all rows of a table, in the order of its key, in parts.
    pub fn read(
        &self,
        table: &str,
        columns: &[String],
        key: &str,
        visit: &mut dyn FnMut(Vec<Vec<Value>>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let columns = columns.join(", ");
        self.session.batch(&format!(
            "DECLARE laneway_copy NO SCROLL CURSOR FOR SELECT {columns} FROM laneway.{table} ORDER BY {key}"
        ))?;
        loop {
            let rows = self.session.rows(&format!("FETCH FORWARD {FETCHED} FROM laneway_copy"), vec![])?;
            let last = rows.len() < FETCHED;
            visit(rows.iter().map(values).collect::<Result<_, _>>()?)?;
            if last {
                self.session.batch("CLOSE laneway_copy")?;
                return Ok(());
            }
        }
    }

    /// Inserts rows of a table.
    pub fn insert(&self, table: &str, columns: &[String], rows: Vec<Vec<Value>>) -> Result<(), StoreError> {
        let types = self.types(table, columns)?;
        let mut cells = Rows::default();
        for row in &rows {
            cells.push(row.iter().zip(&types).map(|(value, kind)| cell(value, kind)));
        }
        if cells.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = (1..=columns.len()).map(|number| format!("c{number}")).collect();
        let chosen = names.iter().zip(&types).map(|(name, kind)| match kind.as_str() {
            "boolean" => format!("{name} = 1"),
            _ => name.clone(),
        });
        let sql = format!(
            "INSERT INTO laneway.{table} ({}) SELECT {} FROM {} AS rows ({})",
            columns.join(", "),
            chosen.collect::<Vec<_>>().join(", "),
            cells.unnest(),
            names.join(", ")
        );
        self.session.rows(&sql, cells.into_params())?;
        Ok(())
    }

    /// The types of columns.
    fn types(&self, table: &str, columns: &[String]) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute \
                   WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";
        let found = self.session.rows(sql, vec![text(&format!("laneway.{table}"))])?;
        let mut types = Vec::new();
        for column in columns {
            let mut kind = None;
            for row in &found {
                if row.get_ref(0)?.as_str()? == column {
                    kind = Some(row.get_ref(1)?.as_str()?.to_owned());
                }
            }
            types.push(
                kind.ok_or_else(|| StoreError::Damaged(format!("table {table} has no column {column}")))?,
            );
        }
        Ok(types)
    }

    /// Columns of the row of table `server_state`.
    pub fn state(&self, columns: &str) -> Result<Vec<Value>, StoreError> {
        let row = self.session.row(&format!("SELECT {columns} FROM laneway.server_state"), vec![])?;
        values(&row.ok_or_else(|| StoreError::Damaged("table server_state has no row".into()))?)
    }

    /// Sets columns of the row of table `server_state`.
    pub fn put_state(&self, columns: &str, row: &[Value]) -> Result<(), StoreError> {
        let names: Vec<String> = columns.split(", ").map(str::to_owned).collect();
        let types = self.types("server_state", &names)?;
        let params: Vec<_> = row.iter().zip(&types).map(|(value, kind)| cell(value, kind)).collect();
        let places: Vec<String> = (1..=names.len()).map(|number| format!("${number}")).collect();
        let sql = format!("UPDATE laneway.server_state SET ({columns}) = ROW({})", places.join(", "));
        self.session.rows(&sql, params)?;
        Ok(())
    }

    /// The epoch of the latest opening.
    pub fn epoch(&self) -> Result<Epoch, StoreError> {
        let domain = Domain::main();
        let row = self
            .session
            .row("SELECT epoch FROM laneway.domain WHERE name = $1", vec![text(domain.as_str())])?;
        let row = row.ok_or_else(|| StoreError::Damaged("table domain has no row".into()))?;
        Ok(Epoch(number(&row, 0)?))
    }

    /// Openings of the copy come after those of its source.
    pub fn put_epoch(&self, epoch: Epoch) -> Result<(), StoreError> {
        for sql in [
            "UPDATE laneway.tenure SET epoch = greatest(epoch, $2) WHERE domain = $1",
            "UPDATE laneway.domain SET epoch = greatest(epoch, $2) WHERE name = $1",
        ] {
            let domain = Domain::main();
            self.session.rows(sql, vec![text(domain.as_str()), super::cells::number(epoch.0)])?;
        }
        Ok(())
    }

    /// Ends the transaction, and checks the chain of event hashes of what is there now.
    pub fn commit(self) -> Result<u64, StoreError> {
        self.session.batch("COMMIT")?;
        PostgresReader(Arc::new(self.server)).verify_events()
    }
}

/// Locks the row of the domain until the transaction ends.
fn lock_domain(session: &Session) -> Result<(), ReadError> {
    let domain = Domain::main();
    session.rows("SELECT 1 FROM laneway.domain WHERE name = $1 FOR UPDATE", vec![text(domain.as_str())])?;
    Ok(())
}

fn values(row: &Row) -> Result<Vec<Value>, StoreError> {
    (0..row.columns().len())
        .map(|column| {
            Ok(match row.get_ref(column)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(value) => Value::Integer(value),
                ValueRef::Real(value) => Value::Real(value),
                ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
            })
        })
        .collect()
}

fn cell<'a>(value: &'a Value, kind: &str) -> super::cells::Param<'a> {
    match (kind, value) {
        ("text", Value::Text(value)) => text(value),
        ("text", _) => super::cells::opt_text(None),
        ("bytea", Value::Blob(bytes)) => super::cells::blob(bytes),
        ("bytea", _) => own_blob(None),
        (_, Value::Integer(value)) => super::cells::int(*value),
        _ => super::cells::opt_int(None::<i64>),
    }
}

//! Brings the tables to the schema version of this program. All migrations run in one transaction, with the table of migrations
//! locked, so that two servers that start together do not run them twice.

use super::cells::{blob, int, text};
use super::session::{ReadError, Session};
use crate::StoreError;
use crate::columns::{Columns, small};
use crate::migration::Migration;

/// Every migration, in order. The tables came with version 4.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 4,
        name: "0004_schema",
        sql: include_str!("../../migrations/postgres/0004_schema.sql"),
    },
    Migration {
        version: 5,
        name: "0005_id_ends",
        sql: include_str!("../../migrations/postgres/0005_id_ends.sql"),
    },
];

/// Serialises the creation of the schema, which has no table to lock yet. The number is arbitrary; the lock ends with the
/// transaction.
const LOCK: &str = "SELECT pg_advisory_xact_lock(5505793)";

/// Creates the tables or brings them to the version of this program, and checks the migrations that ran before.
pub(super) fn migrate(session: &Session) -> Result<(), ReadError> {
    session.batch("BEGIN")?;
    let done = in_transaction(session);
    // An error of the migration matters more than one of the rollback, which the server does by itself.
    match done {
        Ok(()) => Ok(session.batch("COMMIT")?),
        Err(error) => {
            let _ = session.batch("ROLLBACK");
            Err(error)
        }
    }
}

fn in_transaction(session: &Session) -> Result<(), ReadError> {
    session.batch(LOCK)?;
    let exists = session.row("SELECT to_regclass('laneway.schema_migration') IS NOT NULL", vec![])?;
    let exists = exists.map_or(Ok(0), |row| small::<i64>(&row, 0))? != 0;
    if !exists {
        session.batch(
            "CREATE SCHEMA IF NOT EXISTS laneway;
             CREATE TABLE laneway.schema_migration (
                 version INTEGER PRIMARY KEY,
                 name    TEXT NOT NULL,
                 digest  BYTEA NOT NULL
             )",
        )?;
    }
    let sql = "SELECT version, digest FROM laneway.schema_migration ORDER BY version";
    let stored = session.rows(sql, vec![])?;
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.version);
    let mut version = 0;
    for row in &stored {
        version = small::<i32>(row, 0)?;
        let Some(known) = MIGRATIONS.iter().find(|migration| migration.version == version) else {
            return Err(StoreError::Unusable(format!(
                "its tables have schema version {version}, and this program knows versions up to {newest}; use the program \
                 that made them, or another database"
            ))
            .into());
        };
        if row.get_ref(1)?.as_blob()? != known.digest() {
            return Err(StoreError::Unusable(format!(
                "its tables were made with another form of migration {}; use the program that made them, or another database",
                known.name
            ))
            .into());
        }
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > version) {
        session.batch(migration.sql)?;
        let sql = "INSERT INTO laneway.schema_migration (version, name, digest) VALUES ($1, $2, $3) RETURNING version";
        session.rows(sql, vec![int(migration.version), text(migration.name), blob(&migration.digest())])?;
    }
    Ok(())
}

//! Brings the tables to the schema version of this program. Each migration is one transaction, so that a crash leaves the
//! old version or the new one.
//!
//! A change of the schema is a new file below `migrations/sqlite/` and a new entry of [`MIGRATIONS`]. The digest of each
//! migration is stored, so a released one must never change.

use rusqlite::{Connection, params};

use crate::StoreError;
use crate::migration::Migration;

/// The application id in the header of the file: `Lnwy`.
const APPLICATION_ID: i32 = 0x4c6e_7779;

/// Every migration, in order.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_schema",
        sql: include_str!("../../migrations/sqlite/0001_schema.sql"),
    },
    Migration {
        version: 2,
        name: "0002_kept_keys_and_records",
        sql: include_str!("../../migrations/sqlite/0002_kept_keys_and_records.sql"),
    },
    Migration { version: 4, name: "0004_lists", sql: include_str!("../../migrations/sqlite/0004_lists.sql") },
    Migration {
        version: 5,
        name: "0005_id_ends",
        sql: include_str!("../../migrations/sqlite/0005_id_ends.sql"),
    },
];

/// Checks that this is a database of Laneway, of a version that this program knows. Returns the version; 0: it is empty.
pub(super) fn check_ours(conn: &Connection, migrations: &[Migration]) -> Result<i32, StoreError> {
    let pragma = |name: &str| conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0));
    let (version, application) = (pragma("user_version")?, pragma("application_id")?);
    let newest = migrations.last().map_or(0, |migration| migration.version);
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && (application != 0 || version != 0 || tables != 0) {
        return Err(StoreError::Unusable(
            "its database was not made by Laneway; choose another data directory".into(),
        ));
    }
    if version > newest {
        return Err(StoreError::Unusable(format!(
            "its database has schema version {version}, and this program knows versions up to {newest}; use the program \
             that made it, or an empty data directory"
        )));
    }
    Ok(version)
}

/// Runs the migrations that the file does not have yet, and checks the others.
pub(super) fn migrate(conn: &Connection, migrations: &[Migration]) -> Result<(), StoreError> {
    let version = check_ours(conn, migrations)?;
    for migration in migrations {
        if migration.version > version {
            run(conn, migration)?;
        } else {
            check(conn, migration)?;
        }
    }
    Ok(())
}

fn run(conn: &Connection, migration: &Migration) -> Result<(), StoreError> {
    let transaction = conn.unchecked_transaction()?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_migration (
             version INTEGER PRIMARY KEY,
             name    TEXT NOT NULL,
             digest  BLOB NOT NULL
         ) STRICT",
    )?;
    transaction.execute_batch(migration.sql)?;
    let row = params![migration.version, migration.name, migration.digest()];
    transaction.execute("INSERT INTO schema_migration (version, name, digest) VALUES (?1, ?2, ?3)", row)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", migration.version)?;
    transaction.commit()?;
    Ok(())
}

/// A migration that ran must be the one this program has: else the tables are not what the program thinks.
fn check(conn: &Connection, migration: &Migration) -> Result<(), StoreError> {
    let sql = "SELECT digest = ?2 FROM schema_migration WHERE version = ?1";
    match conn.query_row(sql, params![migration.version, migration.digest()], |row| row.get(0)) {
        Ok(true) => Ok(()),
        Ok(false) | Err(rusqlite::Error::QueryReturnedNoRows) => Err(StoreError::Unusable(format!(
            "its database was made with another form of migration {}; use the program that made it, or an empty data \
             directory",
            migration.name
        ))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;

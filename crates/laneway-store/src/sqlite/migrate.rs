//! Brings the tables to the version this program knows: each migration in one transaction, so that a crash leaves the
//! old version or the new one, never something between.

use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};

use crate::StoreError;

/// Says in the file's header whose file it is: `Lnwy`.
const APPLICATION_ID: i32 = 0x4c6e_7779;

/// One step from a version to the next.
pub(super) struct Migration {
    /// The version it leads to.
    pub version: i32,
    /// Its name, for people.
    pub name: &'static str,
    /// What it does. Must never change once it was released: its digest is stored.
    pub sql: &'static str,
}

/// Every migration, in order.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "0001_jobs", sql: include_str!("../../migrations/sqlite/0001_jobs.sql") },
    Migration {
        version: 2,
        name: "0002_sessions",
        sql: include_str!("../../migrations/sqlite/0002_sessions.sql"),
    },
    Migration {
        version: 3,
        name: "0003_schedules",
        sql: include_str!("../../migrations/sqlite/0003_schedules.sql"),
    },
    Migration {
        version: 4,
        name: "0004_deliveries",
        sql: include_str!("../../migrations/sqlite/0004_deliveries.sql"),
    },
    Migration {
        version: 5,
        name: "0005_leases",
        sql: include_str!("../../migrations/sqlite/0005_leases.sql"),
    },
    Migration {
        version: 6,
        name: "0006_delivery_hosts",
        sql: include_str!("../../migrations/sqlite/0006_delivery_hosts.sql"),
    },
    Migration { version: 7, name: "0007_runs", sql: include_str!("../../migrations/sqlite/0007_runs.sql") },
    Migration {
        version: 9,
        name: "0009_run_definitions",
        sql: include_str!("../../migrations/sqlite/0009_run_definitions.sql"),
    },
    Migration {
        version: 12,
        name: "0012_call_payloads",
        sql: include_str!("../../migrations/sqlite/0012_call_payloads.sql"),
    },
    Migration {
        version: 13,
        name: "0013_store_state",
        sql: include_str!("../../migrations/sqlite/0013_store_state.sql"),
    },
    Migration {
        version: 14,
        name: "0014_worker_boot",
        sql: include_str!("../../migrations/sqlite/0014_worker_boot.sql"),
    },
    Migration {
        version: 15,
        name: "0015_clock_seen",
        sql: include_str!("../../migrations/sqlite/0015_clock_seen.sql"),
    },
    Migration {
        version: 16,
        name: "0016_denials",
        sql: include_str!("../../migrations/sqlite/0016_denials.sql"),
    },
    Migration {
        version: 17,
        name: "0017_epoch",
        sql: include_str!("../../migrations/sqlite/0017_epoch.sql"),
    },
];

/// Is this a database of ours, of a version that this program knows? Gives the version; 0: it is empty.
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
            "its database has schema version {version}, this program knows versions up to {newest}; use the newer program"
        )));
    }
    Ok(version)
}

/// Runs the migrations that the file has not seen, and checks the ones that it has.
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
    let row = params![migration.version, migration.name, digest(migration)];
    transaction.execute("INSERT INTO schema_migration (version, name, digest) VALUES (?1, ?2, ?3)", row)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", migration.version)?;
    transaction.commit()?;
    Ok(())
}

/// A migration that ran must be the one this program has: else the tables are not what the program thinks.
fn check(conn: &Connection, migration: &Migration) -> Result<(), StoreError> {
    let sql = "SELECT digest = ?2 FROM schema_migration WHERE version = ?1";
    match conn.query_row(sql, params![migration.version, digest(migration)], |row| row.get(0)) {
        Ok(true) => Ok(()),
        Ok(false) | Err(rusqlite::Error::QueryReturnedNoRows) => Err(StoreError::Unusable(format!(
            "its database was made by another form of migration {}; use the program that made it",
            migration.name
        ))),
        Err(error) => Err(error.into()),
    }
}

fn digest(migration: &Migration) -> [u8; 32] {
    Sha256::digest(migration.sql.as_bytes()).into()
}

#[cfg(test)]
mod tests;

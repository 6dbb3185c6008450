//! Checksums of rows, computed by SQLite with functions of this program.
//!
//! SQLite does not notice a flipped bit in a page. So every row has a checksum, and every query that gives a row to a caller
//! checks it. Jobs, payloads, ends, records and the sets of lists have checksums that the program binds ([`crate::sums`]):
//! every job writes them. All other tables have a column that SQLite computes with the function `row_sum`, so no statement
//! can forget it. A query checks a row with the function `row_check` ([`Summed::check`]), which fails with the table and the key.
//!
//! A statement that changes only some columns of a row checks it, too: the checksum would cover the damage afterwards.

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, ffi};

use crate::sums::sum_of;

/// How the error of [`Summed::check`] begins. SQLite passes only a text on.
pub(super) const DAMAGED: &str = "damaged row: ";

/// Adds the functions to a connection. Every connection needs them, but one that only reads single columns.
pub fn add_functions(conn: &Connection) -> rusqlite::Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    conn.create_scalar_function("row_sum", -1, pure | FunctionFlags::SQLITE_INNOCUOUS, |row| {
        Ok(sum_of((0..row.len()).map(|at| row.get_raw(at))))
    })?;
    conn.create_scalar_function("row_check", -1, pure | FunctionFlags::SQLITE_DIRECTONLY, check)
}

/// The arguments: the table, how many columns its key has, the checksum, and all other columns, those of the key first.
fn check(row: &Context<'_>) -> rusqlite::Result<bool> {
    const COLUMNS: usize = 3;
    if row.get_raw(2) == ValueRef::Integer(sum_of((COLUMNS..row.len()).map(|at| row.get_raw(at)))) {
        return Ok(true);
    }
    let (table, keys): (String, u8) = (row.get(0)?, row.get(1)?);
    let key: Vec<String> =
        (COLUMNS..COLUMNS + usize::from(keys)).map(|at| text_of(row.get_raw(at))).collect();
    let text = format!("{DAMAGED}table {table}, row {}: the row is not what was written", key.join(" "));
    Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(text)))
}

/// A part of a key, for people.
pub(super) fn text_of(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// A table whose checksums SQLite computes.
pub(crate) struct Summed {
    /// Its name.
    pub table: &'static str,
    /// An expression that is true, or fails with the table and the key of the row.
    pub check: &'static str,
    /// An expression that is true when the row is what was written, and never fails.
    pub verdict: &'static str,
    /// How many of its columns are its key.
    pub keys: usize,
    /// Its columns in the order of the checksum.
    pub columns: &'static [&'static str],
}

macro_rules! summed {
    ($($constant:ident = $table:literal, $keys:literal, [$first:literal $(, $column:literal)*];)+) => {
        $(pub(crate) const $constant: Summed = Summed {
            table: $table,
            check: concat!(
                "row_check('", $table, "', ", $keys, ", ", $table, ".sum, ", $table, ".", $first
                $(, ", ", $table, ".", $column)*, ")"
            ),
            verdict: concat!(
                "row_sum(", $table, ".", $first $(, ", ", $table, ".", $column)*, ") = ", $table, ".sum"
            ),
            keys: $keys,
            columns: &[$first $(, $column)*],
        };)+

        /// Every table whose checksums SQLite computes.
        pub(crate) const ALL: &[&Summed] = &[$(&$constant),+];
    };
}

summed! {
    LIVE_CHUNK = "live_chunk", 1, ["chunk", "bits"];
    OPEN_ATTEMPT = "open_attempt", 1, ["seq", "attempt", "attempt_id", "lease_epoch", "executor", "mode", "state", "opened_at", "started_at", "last_event", "lease_ms", "worker", "pid", "boot", "dispatch_seq"];
    ATTEMPT = "attempt", 2, ["seq", "attempt", "attempt_id", "lease_epoch", "executor", "mode", "state", "opened_at", "started_at", "last_event", "lease_ms", "worker", "pid", "boot", "dispatch_seq", "ended", "error", "closed_at"];
    LANE = "lane", 1, ["number", "name"];
    IDEMPOTENCY = "idempotency", 2, ["tenant", "key", "job", "digest"];
    LOG = "log", 2, ["seq", "line", "attempt", "at", "stream", "text", "bytes"];
    EVENT_BATCH = "event_batch", 1, ["first", "count", "at", "hash", "bytes"];
    TOKEN = "token", 1, ["id", "tenant", "role", "digest", "note", "created_at", "expires_at", "revoked_at"];
    SESSION = "session", 2, ["tenant", "key", "cutoff", "generation", "tokens", "window", "updated_at"];
    MERGED = "merged", 2, ["leader", "seq", "job"];
    SCHEDULE = "schedule", 1, ["id", "tenant", "name", "owner", "enabled", "timing", "fire_at", "interval_ms", "anchor_at", "cron_expression", "timezone", "template", "delete_after_run", "catch_up", "overlap", "jitter_ms", "created_at", "updated_at", "next_at", "last_slot", "waiting_slot", "last_ended_at", "last_status", "last_error", "firings"];
    SCHEDULE_PAYLOAD = "schedule_payload", 1, ["id", "payload", "note"];
    SCHEDULE_SLOT = "schedule_slot", 2, ["schedule", "slot", "job"];
    FIRING_LOG = "firing_log", 1, ["number", "schedule", "tenant", "name", "agent", "job", "slot", "status", "summary", "error", "attempts", "duration_ms", "input_tokens", "output_tokens", "ran_at", "ended_at"];
    FIRING_COUNT = "firing_count", 1, ["schedule", "tenant", "entries"];
    DELIVERY = "delivery", 1, ["seq", "job", "tenant", "host", "state", "tries", "next_at", "created_at", "ended_at", "last_status", "last_error"];
    DELIVERY_TRY = "delivery_try", 2, ["seq", "number", "at", "took_ms", "status", "error"];
    RUN = "run", 1, ["first", "members", "id", "tenant", "lane", "state", "created_at", "finished_at", "key", "digest", "spec"];
    RUN_DEFINITION = "run_definition", 1, ["seq", "bytes"];
    RUN_CALL = "run_call", 1, ["target", "caller", "attempt", "attempt_id", "lease_epoch", "request", "called_at", "attempts_before", "until", "payload", "answer", "code", "message", "result"];
    SERVER_STATE = "server_state", 1, ["one", "last_seq", "last_ended", "pruned_event", "pruned_hash", "overrides", "clock_seen", "epoch"];
    STORE_STATE = "store_state", 1, ["one", "closed", "checkpoints", "log_id", "stored", "facets_built"];
    KEPT_KEY = "kept_key", 2, ["job", "position", "tenant", "name", "value", "since"];
    FACET_NAME = "facet_name", 1, ["number", "dimension", "text", "chunks"];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreError;
    use crate::sqlite::migrate::{MIGRATIONS, migrate};

    /// Tables with checksums of [`crate::sums`], and the one whose rows are compared with the program itself.
    const OTHERS: [&str; 8] =
        ["job", "payload", "done", "record", "facet", "facet_times", "id_end", "schema_migration"];

    fn empty() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        add_functions(&conn).unwrap();
        migrate(&conn, MIGRATIONS).unwrap();
        conn
    }

    #[test]
    fn every_column_of_every_table_is_in_a_checksum() {
        let conn = empty();
        let mut tables: Vec<String> = ALL.iter().map(|summed| summed.table.to_owned()).collect();
        tables.extend(OTHERS.map(str::to_owned));
        tables.sort();
        let mut select = conn
            .prepare(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1",
            )
            .unwrap();
        let stored: Vec<String> =
            select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(stored, tables);
        for summed in ALL {
            let columns: String = conn
                .query_row(
                    "SELECT group_concat(name, ', ') FROM (SELECT name FROM pragma_table_xinfo(?1) WHERE name <> 'sum' ORDER BY cid)",
                    [summed.table],
                    |row| row.get(0),
                )
                .unwrap();
            assert_eq!(columns, summed.columns.join(", "), "{}", summed.table);
            let sql: String = conn
                .query_row("SELECT sql FROM sqlite_schema WHERE name = ?1", [summed.table], |row| row.get(0))
                .unwrap();
            assert!(sql.contains(&format!("NOT NULL AS (row_sum({columns})) STORED")), "{sql}");
        }
    }

    #[test]
    fn a_row_that_is_not_what_was_written_is_an_error_with_its_table_and_key() {
        let conn = empty();
        conn.execute_batch("INSERT INTO lane (name) VALUES ('main'), ('slow')").unwrap();
        conn.execute_batch("INSERT INTO merged (leader, seq, job) VALUES (7, 8, x'00ff')").unwrap();
        let read = |summed: &Summed| {
            let sql = format!("SELECT {}, {} FROM {}", summed.check, summed.verdict, summed.table);
            let mut select = conn.prepare(&sql).unwrap();
            let rows = select.query_map([], |row| Ok((row.get::<_, bool>(0)?, row.get::<_, bool>(1)?)))?;
            rows.collect::<Result<Vec<_>, Error>>().map_err(StoreError::from)
        };
        assert_eq!(read(&LANE).unwrap(), [(true, true); 2], "also where SQLite makes the key");
        assert_eq!(read(&MERGED).unwrap(), [(true, true)]);
        // As if the bytes had changed: the checksum is that of another row.
        conn.create_scalar_function(
            "row_sum",
            -1,
            FunctionFlags::SQLITE_INNOCUOUS | FunctionFlags::SQLITE_DETERMINISTIC,
            |_| Ok(1),
        )
        .unwrap();
        conn.execute_batch("UPDATE merged SET job = x'01'; UPDATE lane SET name = 'slaw' WHERE number = 2")
            .unwrap();
        add_functions(&conn).unwrap();
        for (summed, named) in [(&LANE, "table lane, row 2: "), (&MERGED, "table merged, row 7 8: ")] {
            let error = read(summed).unwrap_err();
            assert!(matches!(&error, StoreError::Damaged(why) if why.starts_with(named)), "{error:?}");
        }
    }
}

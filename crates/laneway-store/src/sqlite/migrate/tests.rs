//! Migrations: a file has the old version or the new one, and every column is documented.

use rusqlite::Connection;

use super::*;

const FIRST: Migration =
    Migration { version: 1, name: "0001_a", sql: "CREATE TABLE a (x); INSERT INTO a VALUES (1);" };
const SECOND: Migration =
    Migration { version: 2, name: "0002_b", sql: "CREATE TABLE b (y); UPDATE a SET x = 2;" };
const BROKEN: Migration = Migration {
    version: 2,
    name: "0002_b",
    sql: "CREATE TABLE b (y); UPDATE a SET x = 2; SELECT * FROM nowhere;",
};

fn version(conn: &Connection) -> i32 {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

fn tables(conn: &Connection) -> i64 {
    conn.query_row("SELECT count(*) FROM sqlite_schema WHERE name IN ('a', 'b')", [], |row| row.get(0))
        .unwrap()
}

#[test]
fn each_runs_once() {
    let conn = Connection::open_in_memory().unwrap();
    migrate(&conn, &[FIRST]).unwrap();
    migrate(&conn, &[FIRST]).unwrap();
    assert_eq!((version(&conn), tables(&conn)), (1, 1));
    migrate(&conn, &[FIRST, SECOND]).unwrap();
    migrate(&conn, &[FIRST, SECOND]).unwrap();
    assert_eq!((version(&conn), tables(&conn)), (2, 2));
}

#[test]
fn one_that_fails_leaves_the_version_before() {
    let conn = Connection::open_in_memory().unwrap();
    assert!(migrate(&conn, &[FIRST, BROKEN]).is_err());
    assert_eq!((version(&conn), tables(&conn)), (1, 1));
    let x: i64 = conn.query_row("SELECT x FROM a", [], |row| row.get(0)).unwrap();
    assert_eq!(x, 1);
    migrate(&conn, &[FIRST, SECOND]).unwrap();
    assert_eq!((version(&conn), tables(&conn)), (2, 2));
}

#[test]
fn a_newer_version_is_rejected() {
    let conn = Connection::open_in_memory().unwrap();
    migrate(&conn, &[FIRST, SECOND]).unwrap();
    let error = migrate(&conn, &[FIRST]).unwrap_err();
    assert!(matches!(&error, StoreError::Unusable(why) if why.contains("version 2")), "{error}");
}

#[test]
fn a_changed_migration_is_rejected() {
    let conn = Connection::open_in_memory().unwrap();
    migrate(&conn, &[FIRST, SECOND]).unwrap();
    let error = migrate(&conn, &[FIRST, BROKEN]).unwrap_err();
    assert!(matches!(&error, StoreError::Unusable(why) if why.contains("0002_b")), "{error}");
}

#[test]
fn a_database_of_another_program_is_rejected() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(migrate(&conn, MIGRATIONS), Err(StoreError::Unusable(_))));
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch("PRAGMA application_id = 77").unwrap();
    assert!(matches!(migrate(&conn, MIGRATIONS), Err(StoreError::Unusable(_))));
}

#[test]
fn every_table_and_column_is_documented() {
    for Migration { name, sql, .. } in MIGRATIONS {
        let mut above = "";
        let mut in_table = false;
        for line in sql.lines() {
            if line.starts_with("CREATE TABLE") {
                assert!(above.starts_with("-- "), "{name}: {line} has no comment above it");
            } else if in_table && !line.starts_with([')']) && !line.contains("PRIMARY KEY (") {
                assert!(line.contains(" -- "), "{name}: the column{line} has no comment");
            }
            in_table = (in_table || line.starts_with("CREATE TABLE")) && !line.starts_with(')');
            above = line;
        }
    }
}

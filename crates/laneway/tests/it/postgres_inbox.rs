//! Jobs that an application submits in its own PostgreSQL transaction: stored exactly once, or not at all.

use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::cli::Server;
use crate::postgres_server::TestDatabase;

/// Waits until a query prints this.
fn wait_for(database: &TestDatabase, sql: &str, expected: &str) {
    let start = Instant::now();
    loop {
        let found = database.psql(sql);
        if found == expected {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{sql}: {found:?}, not {expected:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_job_is_submitted_with_the_transaction_of_the_application() {
    let Some(database) = TestDatabase::new() else { return };
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--store", &database.url()]);
    database.psql("CREATE TABLE invoice (id INT PRIMARY KEY)");
    database.psql(
        r#"BEGIN; INSERT INTO invoice VALUES (1);
           SELECT laneway.submit('echo', '{"invoice": 1, "note": null}', agent => 'billing', idempotency_key => 'invoice-1');
           COMMIT"#,
    );
    database.psql("BEGIN; INSERT INTO invoice VALUES (2); SELECT laneway.submit('echo'); ROLLBACK");
    wait_for(&database, "SELECT count(*) FROM laneway.done", "1");
    let job =
        database.psql("SELECT encode(job, 'hex')::uuid FROM laneway.idempotency WHERE key = 'invoice-1'");
    let job = server.json(&["jobs", "show", &job]);
    assert_eq!((&job["state"], &job["agent"]), (&json!("succeeded"), &json!("billing")), "{job}");
    assert_eq!(job["result"], json!({"invoice": 1, "note": null}), "{job}");

    // The same key and the same request: the same job. Another request with the key is rejected, and says why.
    database.psql(r#"SELECT laneway.submit('echo', '{"invoice": 1, "note": null}', agent => 'billing', idempotency_key => 'invoice-1')"#);
    database.psql(r#"SELECT laneway.submit('echo', '{"invoice": 7}', idempotency_key => 'invoice-1')"#);
    database.psql("SELECT laneway.submit('echo', lane => 'no-such-lane')");
    database
        .psql(r#"INSERT INTO laneway.inbox (request) VALUES ('{"kind": "echo", "prio": 1}'), ('not JSON')"#);
    database.psql("SELECT laneway.submit('echo', tenant => 'a b')");
    wait_for(&database, "SELECT count(*) FROM laneway.inbox WHERE rejected_at IS NULL", "0");
    let rejected = database.psql("SELECT code FROM laneway.inbox ORDER BY number");
    assert_eq!(rejected, "idempotency_mismatch\nunknown_lane\nunknown_field\nmalformed_json\ninvalid_field");
    assert!(database.psql("SELECT reason FROM laneway.inbox").contains("priority"), "the remedy is named");
    assert_eq!(database.psql("SELECT count(*) FROM laneway.job"), "1");

    // Without the right to the tables, and at a later time.
    let role = format!("app_{}", database.name());
    database.psql(&format!("CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA laneway TO {role}"));
    database.psql(&format!(
        "SET ROLE {role}; SELECT laneway.submit('echo', not_before => now() + interval '1 hour')"
    ));
    wait_for(
        &database,
        "SELECT state FROM laneway.scheduler_jobs WHERE next_earliest_start_at IS NOT NULL",
        "QUEUED",
    );
    database.psql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    assert_eq!(server.stop(), Some(0));
}

/// Jobs start at once: a notification wakes the server long before it looks by itself.
#[test]
fn the_server_is_notified() {
    let Some(database) = TestDatabase::new() else { return };
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &["--store", &database.url()]);
    let mut took = Vec::new();
    for ended in 1..=5 {
        wait_for(&database, "SELECT listening FROM laneway.inbox_state", "t");
        let start = Instant::now();
        database.psql("SELECT laneway.submit('echo')");
        wait_for(&database, "SELECT count(*) FROM laneway.done", &ended.to_string());
        took.push(start.elapsed());
    }
    took.sort();
    println!("from the commit to the end: {took:?}");
    assert!(took[0] < Duration::from_millis(900), "{took:?}");
    assert_eq!(server.stop(), Some(0));
}

/// Ten thousand rows of one transaction, and a server that is killed again and again while it takes them out.
#[test]
fn ten_thousand_rows_are_taken_exactly_once_through_kills() {
    let Some(database) = TestDatabase::new() else { return };
    let dir = TempDir::new().unwrap();
    let start =
        || Server::start(dir.path(), &["--store", &database.url(), "--set", "lanes.main.queued_max=100000"]);
    let mut server = start();
    database.psql(
        r#"SELECT count(laneway.submit('echo', jsonb_build_object('n', n))) FROM generate_series(1, 10000) AS n"#,
    );
    for left in [9_000, 6_000, 3_000] {
        let start_at = Instant::now();
        while database.psql("SELECT count(*) FROM laneway.inbox").parse::<u32>().unwrap() > left {
            assert!(start_at.elapsed() < Duration::from_secs(60));
        }
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        server = start();
    }
    wait_for(&database, "SELECT count(*) FROM laneway.inbox", "0");
    wait_for(&database, "SELECT count(*) FROM laneway.done WHERE state = 4", "10000");
    assert_eq!(database.psql("SELECT count(*), count(DISTINCT key) FROM laneway.job"), "10000|10000");
    assert_eq!(server.stop(), Some(0));
}

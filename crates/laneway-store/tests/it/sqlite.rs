//! What only SQLite can do wrong: locks, damaged files, migrations that die, disks that fail.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use laneway_core::Change;
use laneway_store::suite::Fixture;
use laneway_store::suite::driver::{Driver, load, rich_spec};
use laneway_store::{Keys, SqliteOptions, SqliteStore, StoreError};
use rusqlite::Connection;
use sha2::{Digest, Sha256};

use super::SqliteFixture;

fn open(dir: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(dir, SqliteOptions::default())
}

/// The database from outside, as damage or another program would see it. No store may be open.
fn raw(fixture: &SqliteFixture) -> Connection {
    let conn = Connection::open(fixture.path().join("laneway.db")).unwrap();
    laneway_store::sqlite::row_sums::add_functions(&conn).unwrap();
    conn
}

/// A store with one rich job that has a closed attempt, and two event batches.
fn filled() -> SqliteFixture {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    let mut row = driver.draft();
    row.spec = rich_spec();
    let job = driver.submit(row, b"payload");
    driver.commit();
    driver.open(job);
    driver.close(job, laneway_core::AttemptEnd::Failed, Some(laneway_store::suite::driver::failure()));
    driver.wait(job, None);
    driver.commit();
    fixture
}

#[test]
fn the_second_opener_gets_the_process_id_of_the_first() {
    let fixture = SqliteFixture::new();
    let first = open(&fixture.path()).unwrap();
    let Err(error) = open(&fixture.path()) else { panic!("two stores on one directory") };
    let StoreError::Locked(message) = &error else { panic!("{error:?}") };
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    assert!(message.contains(&fixture.path().display().to_string()), "{message}");
    drop(first);
    open(&fixture.path()).unwrap();
}

#[test]
fn the_lock_holds_against_another_process() {
    let fixture = SqliteFixture::new();
    let _first = open(&fixture.path()).unwrap();
    let Ok(output) = Command::new("flock").arg("-n").arg(fixture.path().join("lock")).arg("true").status()
    else {
        eprintln!("skipped: there is no program flock here");
        return;
    };
    assert!(!output.success(), "another process took the lock");
}

#[cfg(unix)]
#[test]
fn the_directory_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = SqliteFixture::new();
    let _store = open(&fixture.path()).unwrap();
    assert_eq!(std::fs::metadata(fixture.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[cfg(unix)]
#[test]
fn defect_13_files_are_for_their_owner_only_in_any_directory() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = SqliteFixture::new();
    std::fs::create_dir(fixture.path()).unwrap();
    std::fs::set_permissions(fixture.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let modes = || -> Vec<(String, u32)> {
        let log = std::fs::read_dir(fixture.path().join("log")).unwrap();
        let files = std::fs::read_dir(fixture.path()).unwrap().chain(log).map(Result::unwrap);
        let files = files.filter(|file| file.metadata().unwrap().is_file());
        let mode = |file: &std::fs::DirEntry| file.metadata().unwrap().permissions().mode() & 0o777;
        files.map(|file| (file.path().display().to_string(), mode(&file))).collect()
    };
    let mut driver = Driver::new(&fixture);
    driver.submit_plain();
    driver.commit();
    let found = modes();
    assert!(found.len() >= 5, "{found:?}");
    assert!(found.iter().all(|(_, mode)| *mode == 0o600), "{found:?}");
    drop(driver);
    // What an earlier version or a copy left open is narrowed by the next start.
    for (name, _) in found {
        std::fs::set_permissions(name, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let _store = open(&fixture.path()).unwrap();
    assert!(modes().iter().all(|(_, mode)| *mode == 0o600), "{:?}", modes());
}

#[test]
fn the_connection_is_set_as_it_must_be() {
    let fixture = SqliteFixture::new();
    drop(open(&fixture.path()).unwrap());
    let conn = raw(&fixture);
    let text = |pragma: &str| {
        conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(text("journal_mode"), "wal");
    let number =
        |pragma: &str| conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(number("application_id"), 0x4c6e_7779);
    assert_eq!(number("user_version"), 5);
}

#[test]
fn a_newer_or_unknown_schema_is_rejected() {
    for (sql, named) in [
        ("PRAGMA user_version = 1000", "schema version 1000"),
        ("UPDATE schema_migration SET digest = zeroblob(32)", "migration 0001_schema"),
        ("DELETE FROM schema_migration", "migration 0001_schema"),
    ] {
        let fixture = filled();
        raw(&fixture).execute_batch(sql).unwrap();
        let Err(error) = open(&fixture.path()) else { panic!("{sql}: the database was opened") };
        let message = error.to_string();
        assert!(matches!(error, StoreError::Unusable(_)), "{sql}: {message}");
        for part in [named, "data directory", "use the program that made it"] {
            assert!(message.contains(part), "{sql}: {message}");
        }
    }
}

#[test]
fn another_programs_database_is_rejected() {
    let fixture = SqliteFixture::new();
    std::fs::create_dir(fixture.path()).unwrap();
    raw(&fixture).execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(open(&fixture.path()), Err(StoreError::Unusable(_))));
    let fixture = SqliteFixture::new();
    std::fs::create_dir(fixture.path()).unwrap();
    std::fs::write(fixture.path().join("laneway.db"), vec![7; 8192]).unwrap();
    assert!(matches!(open(&fixture.path()), Err(StoreError::Damaged(_))));
}

/// What a kill in the middle of the first migration leaves: the files as they are before its commit.
#[test]
fn a_migration_that_dies_leaves_the_old_version() {
    let fixture = SqliteFixture::new();
    std::fs::create_dir(fixture.path()).unwrap();
    let conn = raw(&fixture);
    // A cache of one page forces the changes into the log before the commit.
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA cache_size = 1; BEGIN IMMEDIATE").unwrap();
    let sql = include_str!("../../migrations/sqlite/0001_schema.sql");
    conn.execute_batch(sql).unwrap();
    conn.execute_batch(
        "WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < 1000)
                        INSERT INTO payload SELECT x, zeroblob(500), 0 FROM n",
    )
    .unwrap();
    let copy = SqliteFixture::new();
    // By another process: closing a file of SQLite's in this one would drop its locks.
    let copied = Command::new("cp").arg("-r").arg(fixture.path()).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    let log = std::fs::metadata(copy.path().join("laneway.db-wal")).unwrap().len();
    assert!(log > 100_000, "the log holds {log} bytes: the changes were under way");
    let mut store = open(&copy.path()).unwrap();
    assert_eq!(load(&mut store), Default::default());
    drop(conn);
}

fn damaged(fixture: &SqliteFixture, sql: &str) -> StoreError {
    raw(fixture).execute_batch(sql).unwrap();
    let read = || -> Result<(), StoreError> {
        let mut store = open(&fixture.path())?;
        laneway_store::Store::load(&mut store, &mut |_| ())?;
        let reader = laneway_store::Store::reader(&store);
        reader.attempts(laneway_core::Seq(1))?;
        reader.payload(laneway_core::Seq(1))?;
        reader.verify_events()?;
        Ok(())
    };
    read().expect_err("the damage was not seen")
}

#[test]
fn damaged_rows_are_seen() {
    for sql in [
        "UPDATE job SET spec = CAST(x'02' || substr(spec, 2) AS BLOB)",
        "UPDATE job SET spec = substr(spec, 1, length(spec) - 1)",
        "UPDATE job SET spec = CAST(spec || x'41' AS BLOB)",
        "UPDATE job SET id = x'00'",
        "UPDATE job SET session = NULL",
        "UPDATE job SET tenant = ''",
        "UPDATE job SET failures = -1",
        "UPDATE job SET created_at = created_at + 1",
        "UPDATE job SET agent = 'other'",
        "UPDATE payload SET bytes = CAST('pazload' AS BLOB)",
        "UPDATE attempt SET ended = 200",
        "UPDATE attempt SET error = x'01'",
        "UPDATE live_chunk SET bits = randomblob(128)",
        "DELETE FROM job",
        "DELETE FROM server_state",
        "DELETE FROM event_batch WHERE first = 1",
        "UPDATE event_batch SET bytes = CAST(substr(bytes, 1, length(bytes) - 1) || x'40' AS BLOB) WHERE first = 1",
        "UPDATE event_batch SET hash = zeroblob(32) WHERE first > 1",
        "UPDATE event_batch SET count = count + 1 WHERE first > 1",
    ] {
        let error = damaged(&filled(), sql);
        assert!(matches!(error, StoreError::Damaged(_)), "{sql}: {error:?}");
    }
}

/// A batch cannot be rewritten without all that follow: each hash covers the one before.
#[test]
fn the_chain_covers_everything_before() {
    let fixture = filled();
    let conn = raw(&fixture);
    let mut select = conn.prepare("SELECT bytes, hash FROM event_batch ORDER BY first").unwrap();
    let batches: Vec<(Vec<u8>, Vec<u8>)> =
        select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    assert_eq!(batches.len(), 2);
    let mut previous = vec![0; 32];
    for (bytes, hash) in batches {
        let expected = Sha256::digest([previous, bytes].concat());
        assert_eq!(hash, expected.as_slice());
        previous = hash;
    }
}

#[test]
fn one_rejected_row_leaves_the_store_well() {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    let job = driver.submit_plain();
    driver.commit();
    let mut twin = driver.draft();
    twin.id = driver.known(job).view.row.id;
    driver.forget_drafts();
    let id = twin.id;
    let payload = (&b"{}"[..]).into();
    driver.effects.changes.push(Change::JobCreated { row: Arc::new(twin), payload });
    let error = driver.try_commit().unwrap_err();
    assert!(matches!(&error, StoreError::Rejected(row) if row.contains(&id.to_string())), "{error:?}");
    driver.submit_plain();
    driver.commit();
    driver.check();
    driver.reopen(&fixture).check();
}

/// A disk that is full for the writer: a file size limit, in a process of its own because limits cannot be taken back.
#[test]
fn a_write_error_fails_the_store_for_good() {
    const MARK: &str = "LANEWAY_TEST_FULL_DISK";
    if let Ok(dir) = std::env::var(MARK) {
        return fill_until_it_fails(Path::new(&dir));
    }
    let fixture = SqliteFixture::new();
    let test = "sqlite::a_write_error_fails_the_store_for_good";
    let this = std::env::current_exe().unwrap();
    // The limit is in blocks of 512 bytes or 1 KiB, by shell: 1 or 2 MiB. Without the trap the signal would kill.
    let script = format!("trap '' XFSZ; ulimit -f 2048 && exec \"$0\" --exact {test} --nocapture");
    let output =
        Command::new("sh").arg("-c").arg(script).arg(this).env(MARK, fixture.path()).output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output_text}{}", String::from_utf8_lossy(&output.stderr));
    let acked: u64 =
        output_text.lines().find_map(|line| line.split("acked ").nth(1)).unwrap().trim().parse().unwrap();
    assert!(acked > 0);
    // Acknowledged jobs are there; others may be.
    let loaded = load(&mut *fixture.open());
    assert!(loaded.jobs.len() as u64 >= acked, "{} of {acked} jobs are there", loaded.jobs.len());
}

fn fill_until_it_fails(dir: &Path) {
    struct At<'a>(&'a Path);
    impl Fixture for At<'_> {
        fn open(&self) -> Box<dyn laneway_store::Store> {
            Box::new(open(self.0).unwrap())
        }
    }
    let mut driver = Driver::new(&At(dir));
    let mut acked = 0;
    let error = loop {
        let row = driver.draft();
        driver.submit(row, &[0; 20_000]);
        match driver.try_commit() {
            Ok(()) => acked += 1,
            Err(error) => break error,
        }
        assert!(acked < 10_000, "the limit was never reached");
    };
    assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
    // The store now rejects every commit.
    driver.effects.changes.push(Change::OverridesPut((&b"x"[..]).into()));
    let error = driver.try_commit().unwrap_err();
    assert!(matches!(&error, StoreError::Failed(why) if why.contains("opened anew")), "{error:?}");
    assert!(matches!(driver.store.priors(&Keys::default()), Err(StoreError::Failed(_))));
    println!("acked {acked}");
}

#[test]
fn the_log_begins_anew_under_steady_writes() {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    // 64 MB of payloads, 16,000 pages: four checkpoints. And more batches than one step of the check reads.
    for _ in 0..300 {
        driver.server_event(laneway_core::EventKind::CallDone, "x");
        driver.commit();
    }
    for _ in 0..16 {
        for _ in 0..40 {
            let row = driver.draft();
            driver.submit(row, &[1; 100_000]);
        }
        driver.commit();
    }
    let log = std::fs::metadata(fixture.path().join("laneway.db-wal")).unwrap().len();
    assert!(log < 40_000_000, "the log holds {log} bytes");
    assert_eq!(load(&mut *driver.store).jobs.len(), 640);
    assert_eq!(driver.reader.verify_events().unwrap(), 940);
}

/// The views show jobs and leases with the names that hosts of add-ons use.
#[test]
fn the_views_show_jobs_and_leases() {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    let mut row = driver.draft();
    row.spec = rich_spec();
    let leased = driver.submit(row, b"{}");
    let waits = driver.submit_plain();
    let done = driver.submit_plain();
    driver.open(leased);
    driver.hold(leased, "w1", Some(77));
    driver.open(done);
    driver.commit();
    driver.finish(done, None);
    driver.commit();
    drop(driver);
    let conn = raw(&fixture);
    conn.execute("UPDATE open_attempt SET executor = 'leases'", []).unwrap();
    let job = |seq: laneway_core::Seq| -> (String, String, i64, i64) {
        let sql = "SELECT state, addon_id, cost_units, attempts FROM scheduler_jobs \
                   WHERE job_id = (SELECT lower(hex(id)) FROM job WHERE seq = ?1)";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        conn.query_row(sql, [seq.0.cast_signed()], read).unwrap()
    };
    assert_eq!(job(leased), ("DISPATCHING".into(), rich_spec().agent.to_string(), 90, 1));
    assert_eq!(job(waits).0, "QUEUED");
    assert_eq!(job(done).0, "DONE");
    let sql = "SELECT worker, pid, cost_units, state, count(*) OVER () FROM scheduler_leases";
    let lease: (String, u32, u32, String, u32) = conn
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .unwrap();
    assert_eq!(lease, ("w1".into(), 77, 90, "DISPATCHING".into(), 1));
    let history = |seq: laneway_core::Seq| -> String {
        let sql = "SELECT group_concat(event_type, ' ') FROM (SELECT event_type FROM scheduler_job_events \
                   WHERE job_id = (SELECT lower(hex(id)) FROM job WHERE seq = ?1) ORDER BY ts, attempt)";
        conn.query_row(sql, [seq.0.cast_signed()], |row| row.get(0)).unwrap()
    };
    assert_eq!(history(leased), "SUBMITTED DISPATCHING");
    assert_eq!(history(waits), "SUBMITTED");
    assert_eq!(history(done), "SUBMITTED DONE");
}

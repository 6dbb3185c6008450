//! Disks that fail: EIO, ENOSPC, short writes and failed syncs, of the commit log, of the database and its write-ahead log, of
//! kept segments and of a backup. Nothing that was acknowledged is lost, and what failed says so.
//!
//! A child process works on a store while `shim.c`, loaded before libc, makes calls of chosen files fail. Then the store is
//! opened without it. `LANEWAY_DISK_FAULTS` sets at how many places each fault comes (4 by default). Without a C compiler, or on
//! another system than Linux, the tests say so and pass.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use laneway_core::{Change, Effects, Name, SessionRow};
use laneway_store::check::{CheckBounds, check_dir};
use laneway_store::suite::Fixture;
use laneway_store::suite::driver::{Driver, load};
use laneway_store::{SqliteOptions, SqliteStore, Store, StoreError, copy};

use super::SqliteFixture;

/// The directory that a child works on.
const DIR: &str = "LANEWAY_FAULT_DIR";
/// What it does there.
const TASK: &str = "LANEWAY_FAULT_TASK";

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// What fails.
#[derive(Clone, Copy, Debug)]
struct Fault {
    call: &'static str,
    errno: i32,
    /// One call writes half of its bytes before.
    short: bool,
    /// How many calls fail.
    count: u32,
}

const FAULTS: [Fault; 6] = [
    Fault { call: "write", errno: EIO, short: false, count: 1 },
    Fault { call: "write", errno: ENOSPC, short: false, count: 1_000_000 },
    Fault { call: "write", errno: 0, short: true, count: 1 },
    Fault { call: "write", errno: EIO, short: true, count: 1_000_000 },
    Fault { call: "write", errno: ENOSPC, short: true, count: 1_000_000 },
    Fault { call: "sync", errno: EIO, short: false, count: 1 },
];

/// The files that fail. Sets of lists are in the database.
const FILES: [&str; 5] =
    ["*/log/*.log", "*/log/spare-*", "*/laneway.db", "*/laneway.db-wal", "*/laneway.db-mark"];

/// What a child reports.
#[derive(Debug, Default)]
struct Reported {
    /// Jobs that were acknowledged, and those that were submitted.
    acked: usize,
    submitted: usize,
    errors: Vec<String>,
    /// A commit after an error that is final.
    went_on: bool,
    /// The fault came.
    hit: bool,
    ended: bool,
}

/// The library of the shim; `None`: it cannot be made here.
fn shim() -> Option<&'static Path> {
    static SHIM: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let made = SHIM.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("shim.c"), dir.path().join("shim.so"));
        std::fs::write(&source, include_str!("disk_faults/shim.c")).unwrap();
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let made = cfg!(target_os = "linux") && command.status().is_ok_and(|status| status.success());
        made.then_some((dir, library))
    });
    if made.is_none() {
        println!("skipped: the shim cannot be built here");
    }
    made.as_ref().map(|(_, library)| library.as_path())
}

/// Runs a child on `dir` in which calls fail.
fn run(dir: &Path, task: &str, pattern: &str, fault: Fault, after: usize) -> Option<Reported> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "disk_faults::the_child_works_on_a_store", "--ignored", "--nocapture"])
        .env("LD_PRELOAD", shim()?)
        .env(DIR, dir)
        .env(TASK, task)
        .env("FAULT_PATH", pattern)
        .env("FAULT_CALL", fault.call)
        .env("FAULT_ERRNO", fault.errno.to_string())
        .env("FAULT_SHORT", u8::from(fault.short).to_string())
        .env("FAULT_AFTER", after.to_string())
        .env("FAULT_COUNT", fault.count.to_string())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut reported = Reported { hit: err.contains("fault: "), ..Reported::default() };
    // The test harness may write on the same line before.
    for line in out.lines().filter_map(|line| Some(line.split_once("child: ")?.1)) {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("acked", count) => reported.acked = count.parse().unwrap(),
            ("submitted", count) => reported.submitted = count.parse().unwrap(),
            ("error", text) => reported.errors.push(text.to_owned()),
            ("went-on", _) => reported.went_on = true,
            ("ended", _) => reported.ended = true,
            other => panic!("{other:?}"),
        }
    }
    assert!(reported.ended, "the child broke off\n{out}\n{err}");
    Some(reported)
}

fn say(line: &str) {
    println!("child: {line}");
}

/// Not a test: what a child does. It reports each acknowledged job before it goes on.
#[test]
#[ignore = "the other tests run it as a child process"]
fn the_child_works_on_a_store() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let done = match std::env::var(TASK).unwrap().as_str() {
        "backup" => copy::back_up(&dir, &dir.with_file_name("backup.db"), false, &mut |_| ()).map(drop),
        "keep" => work(&dir, Some(Duration::from_secs(3_600))),
        _ => work(&dir, None),
    };
    if let Err(error) = done {
        say(&format!("error {error}"));
    }
    say("ended");
    // Not closed in order: a store that has failed is left as a kill would leave it.
    std::process::exit(0);
}

struct Reopened<'a>(&'a Path, Option<Duration>);

impl Fixture for Reopened<'_> {
    fn open(&self) -> Box<dyn Store> {
        let options = SqliteOptions { log_keep: self.1, ..SqliteOptions::default() };
        match SqliteStore::open(self.0, options) {
            Ok(store) => Box::new(store),
            Err(error) => {
                say(&format!("error {error}"));
                say("ended");
                std::process::exit(0)
            }
        }
    }
}

/// Three times: opens the store, commits, and closes it.
fn work(dir: &Path, keep: Option<Duration>) -> Result<(), StoreError> {
    let mut driver = Driver::new(&Reopened(dir, keep));
    for round in 0..3 {
        for number in 0..12 {
            for _ in 0..3 {
                let row = driver.draft();
                driver.submit(row, &vec![number; 9_000]);
            }
            if number % 4 == 3 {
                // The tables take this one before the log.
                driver.effects.changes.push(session(round, number, &driver));
            }
            say(&format!("submitted {}", driver.jobs.len()));
            let effects = std::mem::take(&mut driver.effects);
            let epoch = driver.store.epoch();
            if let Err(error) = driver.store.commit(epoch, &effects) {
                say(&format!("error {error}"));
                let is_final = !matches!(error, StoreError::Full(_));
                if driver.store.commit(epoch, &effects).is_ok() && is_final {
                    say("went-on");
                }
                return Ok(());
            }
            say(&format!("acked {}", driver.jobs.len()));
            if number % 5 == 0 {
                // The tables catch up.
                driver.reader.first_event()?;
            }
        }
        driver.store.close()?;
        driver = driver.reopen(&Reopened(dir, keep));
    }
    Ok(())
}

fn session(round: u8, number: u8, driver: &Driver) -> Change {
    Change::SessionPut(Box::new(SessionRow {
        tenant: Name::fixed("acme"),
        key: Name::new(&format!("session-{round}-{number}")).unwrap(),
        cutoff: None,
        generation: 1,
        tokens: 0,
        window: 0,
        updated_at: driver.now,
    }))
}

/// Everything that was acknowledged is there, and nothing else than what was submitted; all of it is in order.
fn is_whole(dir: &Path, reported: &Reported, what: &str) {
    let mut store = SqliteStore::open(dir, SqliteOptions::default())
        .unwrap_or_else(|error| panic!("{what}: the store cannot be opened afterwards: {error}"));
    let found = load(&mut store).jobs.len();
    assert!(
        (reported.acked..=reported.submitted).contains(&found),
        "{what}: {found} jobs are there, {} were acknowledged",
        reported.acked
    );
    store.commit(store.epoch(), &Effects::default()).unwrap();
    drop(store);
    let report = check_dir(dir, CheckBounds::default(), &mut |_| ()).unwrap();
    assert!(report.damage.is_empty() && report.complete, "{what}: {report:?}");
}

/// An operator can act upon it: it names the disk, a file or the log.
fn is_clear(error: &str) -> bool {
    ["disk", "commit log", "cannot write", "laneway.db"].iter().any(|part| error.contains(part))
}

fn places() -> usize {
    std::env::var("LANEWAY_DISK_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

fn matrix(task: &str, files: &[&str]) {
    for pattern in files {
        for fault in FAULTS {
            let mut hits = 0;
            for place in 0..places() {
                // Closer together at first: a start has few calls of each file.
                let after = place * place * 2;
                let what = format!("{task}: {fault:?} of {pattern} after {after} calls");
                let fixture = SqliteFixture::new();
                let Some(reported) = run(&fixture.path(), task, pattern, fault, after) else { return };
                hits += usize::from(reported.hit);
                assert!(!reported.went_on, "{what}: a commit went on after {:?}", reported.errors);
                let unclear = reported.errors.iter().find(|error| !is_clear(error));
                assert!(unclear.is_none(), "{what}: {unclear:?}");
                is_whole(&fixture.path(), &reported, &what);
            }
            println!("{task}, {pattern}, {fault:?}: {hits} of {} came", places());
            // Nothing syncs the mark and spare segments of a store this small but their creation.
            assert!(hits > 0 || pattern.contains("mark"), "{task}: {fault:?} of {pattern} never came");
        }
    }
}

#[test]
fn no_fault_of_a_disk_loses_an_acknowledged_commit() {
    matrix("work", &FILES);
}

#[test]
fn no_fault_loses_one_where_the_log_is_kept() {
    matrix("keep", &["*/log/*.log", "*/log/spare-*"]);
}

/// What a failed sync left in the memory of the system is not taken for durable: the next start writes the last commit again.
#[test]
fn a_record_whose_sync_failed_is_written_again() {
    let fixture = SqliteFixture::new();
    let sync = Fault { call: "sync", errno: EIO, short: false, count: 1 };
    let Some(reported) = run(&fixture.path(), "work", "*/log/*.log", sync, 5) else { return };
    assert!(reported.hit && reported.submitted > reported.acked, "{reported:?}");
    // The first write of a start to the log is that record.
    let write = Fault { call: "write", errno: EIO, short: false, count: 1 };
    let again = run(&fixture.path(), "work", "*/log/*.log", write, 0).unwrap();
    assert!(again.hit && again.submitted == 0 && again.errors.len() == 1, "{again:?}");
    is_whole(&fixture.path(), &reported, "after both");
}

/// A backup that fails leaves no file of its name, and the store as it was.
#[test]
fn a_backup_that_fails_leaves_nothing() {
    for fault in FAULTS {
        for place in 0..places() {
            let fixture = SqliteFixture::new();
            let mut driver = Driver::new(&fixture);
            for _ in 0..40 {
                driver.submit_plain();
            }
            driver.commit();
            drop(driver);
            let file = fixture.path().with_file_name("backup.db");
            let pattern = format!("{}*", file.display());
            let Some(reported) = run(&fixture.path(), "backup", &pattern, fault, place) else { return };
            let what = format!("{fault:?} of a backup after {place} calls");
            let failed = !reported.errors.is_empty();
            assert_eq!(file.exists(), !failed, "{what}: {reported:?}");
            assert!(!reported.hit || failed || fault.errno == 0, "{what}: {reported:?}");
            assert!(
                reported.errors.iter().all(|error| is_clear(error) || error.contains("backup.db")),
                "{reported:?}"
            );
            let others = std::fs::read_dir(fixture.path().parent().unwrap()).unwrap();
            let left = others.filter(|entry| {
                entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().contains("partial"))
            });
            assert_eq!(left.count(), 0, "{what}: a partial file is left");
            is_whole(&fixture.path(), &Reported { acked: 40, submitted: 40, ..Reported::default() }, &what);
        }
    }
}

//! Copies of data directories: whole ones open, torn ones are named, backups come back.

use std::path::Path;
use std::time::Duration;

use laneway_core::{EventKind, Seq, Wall};
use laneway_store::check::{CheckBounds, check_dir};
use laneway_store::copy::History;
use laneway_store::suite::Fixture;
use laneway_store::suite::driver::{Driver, load};
use laneway_store::{SqliteOptions, SqliteStore, Store, StoreError, copy};

use super::SqliteFixture;
use super::killed::Killed;

const DB: &str = "laneway.db";
const WAL: &str = "laneway.db-wal";
const MARK: &str = "laneway.db-mark";
const LOG: &str = "log";

fn open(dir: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(dir, SqliteOptions::default())
}

/// Some jobs in a few commits, left as a kill leaves them: some are in the tables, and the last ones in the log only.
fn crashed() -> (SqliteFixture, usize) {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    for _ in 0..5 {
        driver.submit_plain();
        driver.submit_plain();
        driver.commit();
    }
    let mut driver = driver.reopen(&Killed(&fixture));
    driver.submit_plain();
    driver.submit_plain();
    driver.commit();
    drop(driver);
    (fixture, 12)
}

/// Copies files that no store has open. The order of the names is the order of the copies.
fn copy_files(from: &Path, names: &[&str]) -> SqliteFixture {
    let copy = SqliteFixture::new();
    std::fs::create_dir_all(copy.path()).unwrap();
    copy_live(from, &copy.path(), names);
    copy
}

/// Copies files while a store has them open: by another process, because closing them here would drop SQLite's locks.
fn copy_live(from: &Path, to: &Path, names: &[&str]) {
    std::fs::create_dir_all(to).unwrap();
    for name in names {
        let copy = || {
            // The rest of a copy that failed.
            drop(std::fs::remove_dir_all(to.join(name)));
            let mut command = std::process::Command::new("cp");
            command.arg("-r").arg(from.join(name)).arg(to.join(name)).status().unwrap().success()
        };
        // A segment of the log that is made ready gets its name while the directory is copied.
        assert!((0..20).any(|_| copy()), "{name} cannot be copied");
    }
}

fn rejected(dir: &Path) -> String {
    match open(dir) {
        Err(error @ StoreError::Damaged(_)) => error.to_string(),
        Err(other) => panic!("not damage: {other:?}"),
        Ok(_) => panic!("a torn copy was opened"),
    }
}

#[test]
fn defect_04_a_store_that_was_closed_is_whole_without_its_log() {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    for _ in 0..20 {
        driver.submit_plain();
        driver.commit();
    }
    assert!(driver.store.close().unwrap(), "no reader was in the way");
    drop(driver);
    let left = std::fs::metadata(fixture.path().join(WAL)).map_or(0, |log| log.len());
    assert_eq!(left, 0, "the log is gone or empty");
    let alone = copy_files(&fixture.path(), &[DB]);
    assert_eq!(load(&mut open(&alone.path()).unwrap()).jobs.len(), 20);
    assert_eq!(load(&mut open(&fixture.path()).unwrap()).jobs.len(), 20);
}

#[test]
fn defect_04_a_whole_copy_after_a_kill_opens() {
    let (fixture, jobs) = crashed();
    // The commit log has everything since the last checkpoint, so the write-ahead log may be missing.
    for names in [
        &[DB, WAL, MARK, LOG][..],
        &[LOG, MARK, WAL, DB][..],
        &[DB, WAL, "laneway.db-shm", MARK, "lock", LOG][..],
        &[DB, MARK, LOG][..],
    ] {
        let copy = copy_files(&fixture.path(), names);
        assert_eq!(load(&mut open(&copy.path()).unwrap()).jobs.len(), jobs);
        // And again, after this one was not closed either.
        assert_eq!(load(&mut open(&copy.path()).unwrap()).jobs.len(), jobs);
    }
    assert_eq!(load(&mut open(&fixture.path()).unwrap()).jobs.len(), jobs);
}

#[test]
fn defect_04_a_torn_copy_is_named() {
    let (fixture, _) = crashed();
    let cut = |name: &str, len: u64| {
        let copy = copy_files(&fixture.path(), &[DB, WAL, MARK, LOG]);
        let file = std::fs::OpenOptions::new().write(true).open(copy.path().join(name)).unwrap();
        file.set_len(len).unwrap();
        copy
    };
    for (copy, named) in [
        (copy_files(&fixture.path(), &[DB]), MARK),
        (copy_files(&fixture.path(), &[DB, WAL]), MARK),
        (copy_files(&fixture.path(), &[DB, WAL, LOG]), MARK),
        (copy_files(&fixture.path(), &[DB, MARK]), "commit log"),
        (copy_files(&fixture.path(), &[DB, WAL, MARK]), "commit log"),
        (copy_files(&fixture.path(), &[WAL, MARK, LOG]), DB),
        (cut(&newest_segment(&fixture.path()), 0), "commit log"),
        (cut(&newest_segment(&fixture.path()), 700), "commit log"),
        (cut(DB, 0), DB),
        (cut(MARK, 50), MARK),
    ] {
        let why = rejected(&copy.path());
        assert!(why.contains(named), "{named} is not named in {why}");
        assert!(why.contains("laneway restore") && why.contains("laneway store check"), "{why}");
        // Nothing was changed: the next start says the same.
        assert_eq!(rejected(&copy.path()), why);
    }
}

/// The newest segment of the commit log, from the data directory on.
fn newest_segment(dir: &Path) -> String {
    let names = std::fs::read_dir(dir.join(LOG)).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".log"));
    format!("{LOG}/{}", names.max().unwrap())
}

/// Every file of a directory, with its length and a checksum of what is in it.
fn contents(dir: &Path) -> Vec<(String, usize, u32)> {
    let log = std::fs::read_dir(dir.join(LOG)).into_iter().flatten();
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .chain(log)
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.metadata().unwrap().is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .map(|(name, bytes)| (name, bytes.len(), crc32fast::hash(&bytes)))
        .collect();
    files.sort();
    files
}

#[test]
fn defect_04_a_check_finds_a_torn_copy_and_changes_nothing() {
    let (fixture, _) = crashed();
    let torn = |names: &[&str]| copy_files(&fixture.path(), names);
    let flipped = torn(&[DB, WAL, MARK, LOG]);
    let segment = flipped.path().join(newest_segment(&fixture.path()));
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[600] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    for (copy, named) in [
        (torn(&[DB]), MARK),
        (torn(&[DB, WAL]), MARK),
        (torn(&[DB, MARK]), "commit log"),
        (torn(&[WAL, MARK, LOG]), DB),
        (torn(&[DB, WAL, MARK]), "commit log"),
        (flipped, "offset"),
    ] {
        let before = contents(&copy.path());
        let report = check_dir(&copy.path(), CheckBounds::default(), &mut |_| ()).unwrap();
        let first = &report.damage[0];
        assert!(first.table == "files" && first.what.contains(named), "{named}: {first:?}");
        assert_eq!(contents(&copy.path()), before, "{named}");
    }
    for names in [&[DB, WAL, MARK, LOG][..], &[DB, WAL, "laneway.db-shm", MARK, "lock", LOG][..]] {
        let copy = copy_files(&fixture.path(), names);
        let before = contents(&copy.path());
        let report = check_dir(&copy.path(), CheckBounds::default(), &mut |_| ()).unwrap();
        assert_eq!((report.damage, report.complete), (vec![], true));
        assert!(report.rows >= 10 && report.events >= 10);
        assert_eq!(contents(&copy.path()), before);
        assert!(open(&copy.path()).is_ok(), "a check leaves no lock");
    }
}

#[test]
fn a_check_of_a_closed_store_changes_nothing() {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    driver.submit_plain();
    driver.commit();
    assert!(driver.store.close().unwrap());
    drop(driver);
    let before = contents(&fixture.path());
    let report = check_dir(&fixture.path(), CheckBounds::default(), &mut |_| ()).unwrap();
    assert_eq!((report.damage, report.complete), (vec![], true));
    assert_eq!(contents(&fixture.path()), before);
}

#[test]
fn defect_03_a_bounded_check_reads_the_newest_rows_before_the_events() {
    let (fixture, _) = crashed();
    let conn = rusqlite::Connection::open(fixture.path().join(DB)).unwrap();
    conn.execute_batch("UPDATE job SET spec = CAST(x'63' || substr(spec, 2) AS BLOB) WHERE seq = 10")
        .unwrap();
    drop(conn);
    let time = Duration::from_secs(2);
    let bounds = CheckBounds { rows_max: None, time_max: Some(time) };
    let begun = std::time::Instant::now();
    let report = check_dir(&fixture.path(), bounds, &mut |at| {
        // As if the chain of events were too long for the time.
        while at.stage == "events" && begun.elapsed() < time * 2 {
            std::hint::spin_loop();
        }
    });
    let report = report.unwrap();
    assert!(report.damage.iter().any(|found| found.table == "job" && found.key == "10"), "{report:?}");
    assert!(!report.complete, "{report:?}");
}

/// SQLite drops what follows a flipped bit of its write-ahead log. The commit log has it.
#[test]
fn defect_03_a_flip_in_a_log_does_not_lose_commits_in_silence() {
    let (fixture, jobs) = crashed();
    let flipped = |name: &str, at: u64| {
        let copy = copy_files(&fixture.path(), &[DB, WAL, MARK, LOG]);
        let mut bytes = std::fs::read(copy.path().join(name)).unwrap();
        bytes[usize::try_from(at).unwrap()] ^= 0x10;
        std::fs::write(copy.path().join(name), bytes).unwrap();
        copy
    };
    let len = std::fs::metadata(fixture.path().join(WAL)).unwrap().len();
    for at in [0, 17, 40, len / 3, len / 2, len - 4000] {
        match open(&flipped(WAL, at).path()) {
            Ok(mut store) => assert_eq!(load(&mut store).jobs.len(), jobs, "byte {at}"),
            Err(error) => assert!(matches!(error, StoreError::Damaged(_)), "byte {at}: {error:?}"),
        }
    }
    for at in [0, 30, 512, 520, 530, 600] {
        rejected(&flipped(&newest_segment(&fixture.path()), at).path());
    }
}

/// Fills the log past two checkpoints, so that it begins anew.
fn fill(driver: &mut Driver) {
    for _ in 0..12 {
        for _ in 0..40 {
            let row = driver.draft();
            driver.submit(row, &[7; 50_000]);
        }
        driver.commit();
        // The tables have everything once something of them is read. So each commit is a transaction of its own, also on
        // a slow machine, and a checkpoint comes before the last ones.
        driver.reader.first_event().unwrap();
    }
    // The checkpoint after that holds the lock of the tables.
    driver.store.counters().unwrap();
}

#[test]
fn defect_04_files_of_different_times_do_not_open() {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    driver.submit_plain();
    driver.commit();
    let dir = fixture.path();
    let (old_db, old_log, old_mark) = (SqliteFixture::new(), SqliteFixture::new(), SqliteFixture::new());
    copy_live(&dir, &old_db.path(), &[DB]);
    copy_live(&dir, &old_log.path(), &[WAL, MARK, LOG]);
    copy_live(&dir, &old_mark.path(), &[MARK]);
    fill(&mut driver);
    copy_live(&dir, &old_db.path(), &[WAL, MARK, LOG]);
    copy_live(&dir, &old_log.path(), &[DB]);
    copy_live(&dir, &old_mark.path(), &[DB, WAL, LOG]);
    drop(driver);
    for (copy, what) in [(old_db, "database"), (old_log, "logs"), (old_mark, "mark")] {
        match open(&copy.path()) {
            Err(StoreError::Damaged(_)) => {}
            // Where the logs still have everything since, neither an old database nor an old mark lacks anything.
            Ok(mut store) if what != "logs" => assert_eq!(load(&mut store).jobs.len(), 481),
            opened => panic!("an old {what} was opened: {:?}", opened.err()),
        }
    }
}

#[test]
fn defect_04_what_is_missing_can_be_accepted_by_hand() {
    let (fixture, jobs) = crashed();
    let copy = copy_files(&fixture.path(), &[DB, WAL, MARK]);
    let why = copy::accept(&copy.path()).unwrap().unwrap();
    assert!(why.contains("commit log"), "{why}");
    let left = load(&mut open(&copy.path()).unwrap()).jobs.len();
    assert!(left < jobs, "{left} jobs are left");
    assert_eq!(copy::accept(&copy.path()).unwrap(), None);
}

#[test]
fn defect_04_a_backup_beside_a_writer_is_one_committed_state() {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    for _ in 0..30 {
        driver.submit_plain();
    }
    driver.commit();
    let file = fixture.path().with_file_name("copy.backup");
    let mut steps = 0;
    let copied = copy::back_up(&fixture.path(), &file, false, &mut |_| steps += 1).unwrap();
    assert!(steps > 0);
    assert_eq!(copied.jobs, 30);
    // The writer goes on as if nothing had been.
    driver.submit_plain();
    driver.commit();
    driver.check();
    let again = copy::back_up(&fixture.path(), &file, false, &mut |_| ()).unwrap_err();
    assert!(again.to_string().contains("--force"), "{again}");
    assert_eq!(copy::back_up(&fixture.path(), &file, true, &mut |_| ()).unwrap().jobs, 31);
    drop(driver);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let back = SqliteFixture::new();
    let restored = copy::restore(&file, &back.path(), false, None, &mut |_| ()).unwrap();
    assert_eq!((restored.copied.jobs, restored.replaced), (31, None));
    assert_eq!(load(&mut open(&back.path()).unwrap()).jobs.len(), 31);
    // A directory that has something is replaced only by force, and keeps what was there.
    let full = copy::restore(&file, &back.path(), false, None, &mut |_| ()).unwrap_err();
    assert!(full.to_string().contains("--force"), "{full}");
    let restored = copy::restore(&file, &back.path(), true, None, &mut |_| ()).unwrap();
    assert!(restored.replaced.unwrap().join(DB).exists());
    let mut store = open(&back.path()).unwrap();
    assert_eq!(load(&mut store).jobs.len(), 31);
    let taken = copy::restore(&file, &back.path(), true, None, &mut |_| ()).unwrap_err();
    assert!(matches!(taken, StoreError::Locked(_)), "{taken:?}");
}

/// A store whose log is kept.
struct Keeping<'a>(&'a SqliteFixture, Duration);

impl Fixture for Keeping<'_> {
    fn open(&self) -> Box<dyn Store> {
        let options = SqliteOptions { log_keep: Some(self.1), ..SqliteOptions::default() };
        Box::new(SqliteStore::open(&self.0.path(), options).unwrap())
    }
}

#[test]
fn a_backup_and_the_kept_log_restore_any_point_in_time() {
    let fixture = SqliteFixture::new();
    let keeping = Keeping(&fixture, Duration::from_secs(3_600));
    let mut driver = Driver::new(&keeping);
    let mut points = Vec::new();
    let mut work = |driver: &mut Driver| {
        for _ in 0..3 {
            let row = driver.draft();
            driver.submit(row, &[7; 50_000]);
            driver.now = Wall(driver.now.0 + 1_000);
            driver.event(Seq(1), EventKind::JobQueued, None);
            let at = driver.now;
            driver.commit();
            points.push((at, load(driver.store.as_mut()).jobs.len()));
        }
    };
    work(&mut driver);
    let file = fixture.path().with_file_name("point.backup");
    copy::back_up(&fixture.path(), &file, false, &mut |_| ()).unwrap();
    work(&mut driver);
    // A graceful stop and a kill lie between the backup and the point.
    driver.store.close().unwrap();
    let mut driver = driver.reopen(&keeping);
    work(&mut driver);
    let mut driver = driver.reopen(&Killed(&fixture));
    work(&mut driver);
    let last = load(driver.store.as_mut()).jobs.len();
    driver.store.close().unwrap();
    drop(driver);
    let restore = |until: Option<Wall>| {
        let back = SqliteFixture::new();
        let history = History { from: fixture.path(), until };
        let restored = copy::restore(&file, &back.path(), false, Some(&history), &mut |_| ()).unwrap();
        (load(&mut open(&back.path()).unwrap()).jobs.len(), restored.added.unwrap())
    };
    for (at, jobs) in &points[3..] {
        let (restored, added) = restore(Some(*at));
        assert_eq!(restored, *jobs, "until {at:?}");
        assert!(added.last_at.is_some_and(|last| last <= *at), "{added:?}");
    }
    assert_eq!(restore(None).0, last);
    // A log that does not reach back to the backup is named, and nothing is restored.
    let kept = fixture.path().join("log-kept");
    let oldest = std::fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    std::fs::remove_file(oldest).unwrap();
    let (back, history) = (SqliteFixture::new(), History { from: fixture.path(), until: None });
    let error = copy::restore(&file, &back.path(), false, Some(&history), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("log.keep"), "{error}");
    assert!(!back.path().join(DB).exists());
    // Without the setting, nothing is kept.
    drop(Keeping(&fixture, Duration::ZERO).open());
    assert!(!kept.exists());
}

/// The log of a restored store is not that of the store that the backup was made of.
#[test]
fn the_log_of_another_history_is_rejected() {
    let (fixture, back) = (SqliteFixture::new(), SqliteFixture::new());
    let keeping = Keeping(&fixture, Duration::from_secs(3_600));
    let mut driver = Driver::new(&keeping);
    driver.submit_plain();
    driver.commit();
    let file = fixture.path().with_file_name("first.backup");
    copy::back_up(&fixture.path(), &file, false, &mut |_| ()).unwrap();
    driver.submit_plain();
    driver.commit();
    driver.store.close().unwrap();
    copy::restore(&file, &back.path(), false, None, &mut |_| ()).unwrap();
    let later = fixture.path().with_file_name("later.backup");
    drop(Keeping(&back, Duration::from_secs(3_600)).open());
    copy::back_up(&back.path(), &later, false, &mut |_| ()).unwrap();
    let (third, history) = (SqliteFixture::new(), History { from: fixture.path(), until: None });
    let error = copy::restore(&later, &third.path(), false, Some(&history), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("not that of the store"), "{error}");
}

#[test]
fn defect_04_what_is_no_backup_is_not_restored() {
    let (fixture, _) = crashed();
    let back = SqliteFixture::new();
    let rejected = |file: &Path| {
        let error = copy::restore(file, &back.path(), false, None, &mut |_| ()).unwrap_err().to_string();
        assert!(
            error.contains(file.to_str().unwrap()) && error.contains("`laneway backup` wrote"),
            "{error}"
        );
        assert!(!error.contains("laneway store check"), "the store is in order: {error}");
    };
    // A database without the log it needs.
    rejected(&fixture.path().join(DB));
    let file = fixture.path().with_file_name("copy.backup");
    copy::back_up(&fixture.path(), &file, false, &mut |_| ()).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    for wrong in [&bytes[..bytes.len() - 4096], b"something else, and longer than nothing", b""] {
        std::fs::write(&file, wrong).unwrap();
        rejected(&file);
    }
    assert!(!back.path().join(DB).exists());
}

#[test]
fn defect_03_a_check_names_each_damaged_page_in_a_line() {
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&fixture);
    driver.submit_plain();
    driver.commit();
    assert!(driver.store.close().unwrap());
    drop(driver);
    let path = fixture.path().join(DB);
    let mut bytes = std::fs::read(&path).unwrap();
    // The heads of two pages that are not the first one.
    for page in [5, 6] {
        bytes[page * 4096..page * 4096 + 100].fill(0xff);
    }
    std::fs::write(&path, bytes).unwrap();
    let report = check_dir(&fixture.path(), CheckBounds::default(), &mut |_| ()).unwrap();
    let pages: Vec<&str> = report
        .damage
        .iter()
        .filter(|found| found.table == "pages")
        .map(|found| found.what.as_str())
        .collect();
    assert!(pages.len() >= 2, "{:?}", report.damage);
    let is_line = |what: &&str| !what.contains('\n') && !what.contains("***") && !what.is_empty();
    assert!(pages.iter().all(is_line), "{pages:?}");
}

#[test]
fn defect_03_a_check_names_table_and_row() {
    let (fixture, _) = crashed();
    let found = || check_dir(&fixture.path(), CheckBounds::default(), &mut |_| ()).unwrap();
    let report = found();
    assert_eq!(report.damage, []);
    assert!(report.complete && report.events >= 10 && report.rows >= 10, "{report:?}");
    let conn = rusqlite::Connection::open(fixture.path().join(DB)).unwrap();
    conn.execute_batch("UPDATE job SET spec = CAST(x'63' || substr(spec, 2) AS BLOB) WHERE seq = 3").unwrap();
    conn.execute_batch("DELETE FROM payload WHERE seq = 4").unwrap();
    conn.execute_batch("INSERT INTO done SELECT 1, 5, 2, 4, 0, NULL, NULL, 0, 0, 0, 0, 0, NULL, NULL, 0")
        .unwrap();
    drop(conn);
    let damage = found().damage;
    let at = |table: &str, key: &str| damage.iter().any(|found| found.table == table && found.key == key);
    assert!(at("job", "3") && at("job", "4") && at("done", "5"), "{damage:?}");
    assert!(damage.iter().any(|found| found.what == "the live job has an end"), "{damage:?}");
    let bounds = CheckBounds { rows_max: Some(3), time_max: None };
    assert!(!check_dir(&fixture.path(), bounds, &mut |_| ()).unwrap().complete);
}

//! Copies of a data directory while a server writes: a copy that opens has every job that was acknowledged before it.
//!
//! Every copy is made in one of the ways in which people copy files, most of them wrong. `LANEWAY_COPIES` sets how many
//! (12 by default: one in each way), `LANEWAY_COPY_SEED` replays them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use laneway_core::JobId;
use laneway_store::{SqliteOptions, SqliteStore, Store, StoreError};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{Server, laneway, text};
use crate::kill::{Random, number};

const DB: &str = "laneway.db";
const WAL: &str = "laneway.db-wal";
const MARK: &str = "laneway.db-mark";
/// The directory of the commit log.
const LOG: &str = "log";
/// Jobs between the files of one torn copy: enough that SQLite restarts its log.
const BETWEEN: usize = 700;

/// The acknowledged jobs so far.
type Acked = Arc<Mutex<BTreeSet<JobId>>>;

/// Jobs that may be submitted while one copy is made: the campaign must not fill the disk.
const PER_COPY: usize = 1_000;
/// The number of jobs that ends the writer.
const END: usize = 0;
/// The number of jobs up to which the writer of the campaign goes on.
static GOAL: AtomicUsize = AtomicUsize::new(PER_COPY);

/// Submits jobs as fast as it can, up to a number that grows with every copy.
fn writer(url: String, acked: Acked) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let pad = "x".repeat(30_000);
        let jobs: Vec<Value> = (0..40).map(|_| json!({"kind": "later", "payload": pad})).collect();
        loop {
            match GOAL.load(Ordering::SeqCst) {
                END => break,
                goal if acked.lock().unwrap().len() >= goal => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
                _ => {}
            }
            let sent = http.post(format!("{url}/v1/jobs/batch")).json(&json!({"jobs": jobs})).send().await;
            let Ok(sent) = sent else { break };
            let Ok(answer) = sent.json::<Value>().await else { break };
            let ids = answer["items"].as_array().unwrap().iter();
            let ids = ids.map(|item| JobId::parse(item["job"]["id"].as_str().unwrap()).unwrap());
            acked.lock().unwrap().extend(ids);
        }
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "another process submits; its progress is asked for, within a bound"
)]
fn wait_for_more(acked: &Acked, more: usize) {
    let (begun, wanted) = (Instant::now(), acked.lock().unwrap().len() + more);
    GOAL.fetch_max(wanted, Ordering::SeqCst);
    while acked.lock().unwrap().len() < wanted {
        assert!(begun.elapsed() < Duration::from_secs(60), "the server takes no jobs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn copy(from: &Path, to: &Path, names: &[&str]) {
    std::fs::create_dir_all(to).unwrap();
    for name in names {
        // Another process copies: this one must not open the files of the server.
        let done = Command::new("cp").arg("-r").arg(from.join(name)).arg(to.join(name)).status().unwrap();
        // The server renames segments of its log: `cp` may report that a file has gone, and copies the others.
        assert!(done.success() || *name == LOG, "{name}");
    }
}

/// Opens a copy. Returns how many of `acked` it lacks, or why it does not open.
fn missing(dir: &Path, acked: &BTreeSet<JobId>) -> Result<usize, StoreError> {
    let mut store = SqliteStore::open(dir, SqliteOptions::default())?;
    store.load(&mut |_| ())?;
    let reader = store.reader();
    Ok(acked.iter().filter(|id| reader.job(**id).unwrap().is_none()).count())
}

/// Cuts a file off at a random length.
fn cut(path: &Path, random: &mut Random) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(random.next() % len.max(1)).unwrap();
}

/// The number of ways.
const WAYS: u64 = 12;

/// One copy in one of the ways.
fn make_copy(
    way: u64,
    server: &Server,
    dir: &Path,
    to: &Path,
    acked: &Acked,
    random: &mut Random,
) -> &'static str {
    match way {
        0 => {
            let file = to.with_extension("backup");
            let run = |args: &[&str], dir: &Path| {
                let output = laneway().args(args).arg(&file).arg("--data-dir").arg(dir).output().unwrap();
                assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
            };
            run(&["backup"], dir);
            assert!(!server.url.is_empty());
            run(&["restore"], to);
            "backup"
        }
        1 => {
            // It may report that a segment of the log has gone, see above.
            Command::new("cp").arg("-r").arg(dir).arg(to).status().unwrap();
            "cp -r"
        }
        2 => {
            copy(dir, to, &[DB]);
            wait_for_more(acked, BETWEEN);
            copy(dir, to, &[WAL, MARK, LOG]);
            "old database"
        }
        3 => {
            copy(dir, to, &[MARK, WAL, LOG]);
            wait_for_more(acked, BETWEEN);
            copy(dir, to, &[DB]);
            "old logs"
        }
        4 => {
            copy(dir, to, &[DB]);
            "database alone"
        }
        5 => {
            copy(dir, to, &[DB, WAL, LOG]);
            "without mark"
        }
        6 => {
            copy(dir, to, &[MARK]);
            wait_for_more(acked, BETWEEN);
            copy(dir, to, &[DB, WAL, LOG]);
            "old mark"
        }
        7 => {
            copy(dir, to, &[DB, WAL, MARK, LOG]);
            cut(&to.join(WAL), random);
            "write-ahead log cut off"
        }
        8 => {
            copy(dir, to, &[LOG]);
            wait_for_more(acked, BETWEEN);
            copy(dir, to, &[DB, WAL, MARK]);
            "old commit log"
        }
        9 => {
            copy(dir, to, &[DB, WAL, MARK]);
            "without commit log"
        }
        10 => {
            copy(dir, to, &[MARK, DB, WAL, LOG]);
            let segments = std::fs::read_dir(to.join(LOG)).unwrap().map(|entry| entry.unwrap().path());
            let segments = segments.filter(|path| path.extension().is_some_and(|end| end == "log"));
            cut(&segments.max().unwrap(), random);
            "commit log cut off"
        }
        _ => {
            copy(dir, to, &[DB, WAL, MARK]);
            wait_for_more(acked, BETWEEN);
            copy(dir, to, &[LOG]);
            "new commit log"
        }
    }
}

#[test]
fn defect_04_a_copy_that_opens_has_everything_that_was_acknowledged() {
    let copies = number("LANEWAY_COPIES").unwrap_or(WAYS);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("LANEWAY_COPY_SEED").unwrap_or(clock.as_nanos() as u64);
    println!("{copies} copies, LANEWAY_COPY_SEED={seed}");
    let (home, mut random) = (TempDir::new().unwrap(), Random(seed));
    let dir = home.path().join("data");
    let server = Server::start(
        &dir,
        &[
            "--set",
            "limits.queued_max=1000000",
            "--set",
            "lanes.main.queued_max=1000000",
            "--set",
            "tenants_default.queued_max=1000000",
        ],
    );
    let acked = Acked::default();
    let write = std::thread::spawn({
        let (url, acked) = (server.url.clone(), Arc::clone(&acked));
        move || writer(url, acked)
    });
    wait_for_more(&acked, 100);
    let (mut opened, mut rejected) = (0, 0);
    for number in 0..copies {
        let to = home.path().join(format!("copy-{number}"));
        let before = acked.lock().unwrap().clone();
        GOAL.store(before.len() + PER_COPY, Ordering::SeqCst);
        let way = make_copy(number % WAYS, &server, &dir, &to, &acked, &mut random);
        match missing(&to, &before) {
            Ok(lost) => {
                assert_eq!(
                    lost,
                    0,
                    "{way}: {lost} of {} acknowledged jobs are missing in silence",
                    before.len()
                );
                opened += 1;
                println!("{way}: opens, all {} jobs are there", before.len());
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Damaged(_)), "{way}: {error}");
                assert_ne!(way, "backup", "{error}");
                rejected += 1;
                println!("{way}: {error}");
            }
        }
        std::fs::remove_dir_all(&to).unwrap();
    }
    GOAL.store(END, Ordering::SeqCst);
    write.join().unwrap();
    let all = acked.lock().unwrap().clone();
    assert_eq!(server.stop(), Some(0));
    let alone = home.path().join("alone");
    copy(&dir, &alone, &[DB]);
    assert_eq!(missing(&alone, &all).unwrap(), 0, "a graceful stop leaves everything in the database");
    println!("{} jobs; {opened} copies open and are complete, {rejected} are rejected", all.len());
}

#[test]
fn defect_04_backup_and_restore_as_commands() {
    let home = TempDir::new().unwrap();
    let (dir, back, file) = (home.path().join("data"), home.path().join("back"), home.path().join("b.db"));
    let server = Server::start(&dir, &[]);
    let id = server.submit(&["echo", "--wait"]);
    let run = |args: &[&str], dir: &Path| {
        laneway().arg("--json").args(args).arg("--data-dir").arg(dir).output().unwrap()
    };
    let path = file.to_str().unwrap();
    let made = run(&["backup", path], &dir);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["jobs"], 1);
    assert_eq!(run(&["backup", path], &dir).status.code(), Some(74), "the file is there");
    let taken = run(&["restore", path, "--force"], &dir);
    assert_eq!(taken.status.code(), Some(75), "a server uses the directory: {}", text(&taken.stderr));
    let checked = run(&["store", "check"], &dir);
    assert!(checked.status.success(), "beside a server: {}", text(&checked.stderr));
    let restored = run(&["restore", path], &back);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert_eq!(run(&["restore", path], &back).status.code(), Some(74), "not empty");
    let again = Server::start(&back, &[]);
    assert_eq!(again.json(&["jobs", "show", &id])["state"], "succeeded");
    drop(again);
    assert_eq!(server.stop(), Some(0));
    assert!(
        std::fs::metadata(dir.join(WAL)).map_or(0, |log| log.len()) == 0,
        "the log is empty after a stop"
    );
}

/// With a log that is kept, a backup becomes the store of any later moment, and replaces tables that are damaged.
#[test]
fn a_kept_log_restores_a_point_in_time_and_rebuilds_tables() {
    let home = TempDir::new().unwrap();
    let (dir, back, file) = (home.path().join("data"), home.path().join("back"), home.path().join("b.db"));
    let mut server = Server::start(&dir, &["--set", "log.keep=1h"]);
    let run = |args: &[&str], dir: &Path| {
        let output = laneway().arg("--json").args(args).arg("--data-dir").arg(dir).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let path = file.to_str().unwrap();
    let first = server.submit(&["echo", "--wait"]);
    run(&["backup", path], &dir);
    let second = server.submit(&["echo", "--wait"]);
    let shown = server.json(&["jobs", "show", &second]);
    let until = shown["finished_at"].as_str().unwrap();
    let third = server.submit(&["echo", "--wait"]);
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let restored = run(&["restore", path, "--until", until, "--log-from", dir.to_str().unwrap()], &back);
    assert_eq!((&restored["jobs"], &restored["until"]), (&Value::from(2), &Value::from(until)));
    let again = Server::start(&back, &[]);
    assert_eq!(again.json(&["jobs", "show", &second])["state"], "succeeded");
    assert_eq!(again.json(&["jobs", "list"])["jobs"].as_array().map(Vec::len), Some(2));
    drop(again);
    // The tables are lost, the log and the backup are not.
    std::fs::write(dir.join("laneway.db"), [7; 8_192]).unwrap();
    let rebuilt = run(&["store", "rebuild", "--backup", path], &dir);
    assert_eq!(rebuilt["jobs"], 3);
    let again = Server::start(&dir, &[]);
    for job in [first, second, third] {
        assert_eq!(again.json(&["jobs", "show", &job])["state"], "succeeded");
    }
}

/// On a terminal, long work on a store shows a progress bar that reaches its end; elsewhere it shows none.
#[test]
fn defect_03_defect_04_progress_is_shown_on_a_terminal() {
    let home = TempDir::new().unwrap();
    let server = Server::start(&home.path().join("data"), &[]);
    server.submit(&["echo", "--wait"]);
    assert_eq!(server.stop(), Some(0));
    for (command, stage) in [
        ("store check --data-dir data", "100%"),
        ("backup b.db --data-dir data", "copying"),
        ("restore b.db --data-dir back", "pages"),
    ] {
        let program = env!("CARGO_BIN_EXE_laneway");
        let on_terminal = format!("stty cols 80 rows 24; {program} {command}");
        let shown = Command::new("script")
            .args(["-qec", &on_terminal, "/dev/null"])
            .current_dir(home.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (shown, code) = (text(&shown.stdout), shown.status.code());
        assert_eq!(code, Some(0), "{command}: {shown}");
        assert!(shown.contains(stage) && shown.contains('%'), "{command} shows no progress: {shown:?}");
    }
    let piped = laneway().args(["store", "check", "--data-dir", "data"]).current_dir(home.path()).output();
    assert!(!text(&piped.unwrap().stderr).contains('%'));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the moment of the kill is what the seed draws")]
fn defect_04_a_kill_during_a_stop_leaves_files_that_open() {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("LANEWAY_COPY_SEED").unwrap_or(clock.as_nanos() as u64);
    println!("LANEWAY_COPY_SEED={seed}");
    let (home, mut random) = (TempDir::new().unwrap(), Random(seed));
    let mut acked = BTreeSet::new();
    for _ in 0..8 {
        let mut server = Server::start(home.path(), &[]);
        for _ in 0..3 {
            acked.insert(JobId::parse(&server.submit(&["later"])).unwrap());
        }
        server.signal("TERM");
        // This is not a wait for an event: the seed draws the moment of the kill.
        std::thread::sleep(Duration::from_millis(random.next() % 60));
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        assert_eq!(missing(home.path(), &acked).unwrap(), 0);
    }
}

#[test]
fn defect_04_a_check_of_a_torn_copy_ends_with_its_exit_code() {
    let home = TempDir::new().unwrap();
    let dir = home.path().join("data");
    let mut server = Server::start(&dir, &[]);
    for _ in 0..3 {
        server.submit(&["later"]);
    }
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let check = |dir: &Path| {
        let output = laneway().args(["--json", "store", "check", "--data-dir"]).arg(dir).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), report)
    };
    let (code, report) = check(&dir);
    assert_eq!((code, &report["damage"]), (Some(0), &json!([])), "{report}");
    let torn = home.path().join("torn");
    copy(&dir, &torn, &[DB, MARK]);
    let (code, report) = check(&torn);
    assert_eq!((code, &report["damage"][0]["table"]), (Some(74), &json!("files")), "{report}");
    // A bit of the payload of one job.
    let flipped = home.path().join("flipped");
    assert_eq!(Server::start(&dir, &[]).stop(), Some(0));
    copy(&dir, &flipped, &[DB]);
    let conn = rusqlite::Connection::open(flipped.join(DB)).unwrap();
    conn.execute_batch("UPDATE payload SET bytes = CAST(x'7f' || substr(bytes, 2) AS BLOB) WHERE seq = 2")
        .unwrap();
    drop(conn);
    let (code, report) = check(&flipped);
    let found = &report["damage"][0];
    assert_eq!((code, &found["table"], &found["key"]), (Some(74), &json!("job"), &json!("2")), "{report}");
}

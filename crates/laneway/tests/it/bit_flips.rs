//! Flips one bit of a stored file, again and again. Is the damage found, is it harmless, or is it served?
//!
//! `LANEWAY_BIT_FLIPS` sets how many of each file (20 by default), `LANEWAY_FLIP_SEED` replays them. A flip in the log
//! must never lose a commit silently, and no row is ever read with other content. Where an index hides a row, the check at the
//! start finds it. The tests of the store flip bits of every other file, in a store with rows in every table.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use laneway_core::{Bytes, JobId, JobRow};
use laneway_store::check::{CheckBounds, check_dir};
use laneway_store::{EventFilter, JobView, SqliteOptions, SqliteStore, Store, StoreError};
use tempfile::TempDir;

use crate::cli::{Server, laneway};
use crate::kill::{Random, number};

const DB: &str = "laneway.db";
const WAL: &str = "laneway.db-wal";
/// The directory of the commit log. As the name of a flip: its newest segment.
const LOG: &str = "log";

/// The effects of the flips in one file.
#[derive(Debug, Default)]
struct Tally {
    /// Opening and loading the store failed: a server would not start, even without its check.
    at_start: u32,
    /// A read failed.
    by_read: u32,
    /// All reads return what was written; `laneway store check` finds the damage, and so does a start with a full check.
    only_by_check: u32,
    /// All reads return what was written, and a check finds no damage.
    harmless: u32,
    /// A read returned wrong content without an error; `laneway store check` finds the damage.
    served_but_found: u32,
    /// A read returned wrong content without an error, and no check finds the damage.
    served: u32,
}

/// Everything that a client can read.
#[derive(PartialEq)]
struct Reading {
    jobs: Vec<Job>,
    events: usize,
}

/// One job as it is read.
#[derive(PartialEq)]
struct Job {
    /// The parts with a checksum: the submitted job, its end with its result, its payload.
    sure: [Option<String>; 3],
    /// The parts without a checksum.
    rest: String,
}

impl Job {
    fn of(view: Option<&JobView>, payload: Option<&Bytes>) -> Job {
        let submitted = view.map(|JobView { row, .. }| {
            let JobRow {
                seq,
                id,
                spec,
                payload_len,
                created_at,
                rank_time,
                submitted_by,
                position,
                status: _,
            } = row;
            format!("{:?}", (seq, id, spec, payload_len, created_at, rank_time, submitted_by, position))
        });
        let end = view.and_then(|view| view.end.as_ref()).map(|end| format!("{end:?}"));
        let rest = view.map(|view| (&view.row.status, &view.open));
        Job { sure: [submitted, end, payload.map(|bytes| format!("{bytes:?}"))], rest: format!("{rest:?}") }
    }

    /// True when every part with a checksum is what was written. A part that is not found does not count: the damage is then
    /// in an index.
    fn is_sure(&self, written: &Job) -> bool {
        self.sure.iter().zip(&written.sure).all(|(read, written)| read.is_none() || read == written)
    }
}

/// Opens a store as a start does, without its check.
fn open(dir: &Path) -> Result<SqliteStore, StoreError> {
    let mut store = SqliteStore::open(dir, SqliteOptions::default())?;
    store.load(&mut |_| ())?;
    Ok(store)
}

fn read(store: &SqliteStore, jobs: &[JobId]) -> Result<Reading, StoreError> {
    let reader = store.reader();
    let mut reading = Reading { jobs: Vec::new(), events: 0 };
    for id in jobs {
        let view = reader.job(*id)?;
        let payload = match &view {
            Some(view) => reader.payload(view.row.seq)?,
            None => None,
        };
        reading.jobs.push(Job::of(view.as_ref(), payload.as_ref()));
    }
    let mut after = 0;
    loop {
        let page = reader.events_after(&EventFilter::default(), after, 1_000)?;
        reading.events += page.items.len();
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok(reading)
}

/// A store with ended and waiting jobs.
fn filled(dir: &Path, politely: bool) -> Vec<JobId> {
    let mut server = Server::start(dir, &["--set", "kinds.later.timeout=1h"]);
    let mut jobs = Vec::new();
    for number in 0..40 {
        let kind = if number % 2 == 0 { "echo" } else { "later" };
        let payload = format!(r#"{{"number": {number}, "text": "{}"}}"#, "abc ".repeat(40));
        let mut args = vec![kind, "--payload", &payload, "--agent", "writer"];
        if kind == "echo" && number % 10 == 0 {
            args.push("--wait");
        }
        jobs.push(JobId::parse(&server.submit(&args)).unwrap());
    }
    if politely {
        assert_eq!(server.stop(), Some(0));
    } else {
        server.process.kill().unwrap();
        server.process.wait().unwrap();
    }
    jobs
}

/// A copy of the data directory.
fn copy_of(from: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    let done = std::process::Command::new("cp").arg("-r").arg(from.join(".")).arg(copy.path()).status();
    assert!(done.unwrap().success());
    copy
}

fn newest_segment(dir: &Path) -> std::path::PathBuf {
    let paths = std::fs::read_dir(dir.join(LOG)).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "log")).max().unwrap()
}

fn flip(from: &Path, name: &str, random: &mut Random) -> (TempDir, u64) {
    let copy = copy_of(from);
    let path = if name == LOG { newest_segment(copy.path()) } else { copy.path().join(name) };
    let mut bytes = std::fs::read(&path).unwrap();
    // Most of a small database is empty space, which cannot be damaged.
    let mut at = random.next() % bytes.len() as u64;
    while bytes[at as usize] == 0 {
        at = random.next() % bytes.len() as u64;
    }
    bytes[at as usize] ^= 1 << (random.next() % 8);
    std::fs::write(&path, bytes).unwrap();
    (copy, at)
}

fn campaign(name: &str, politely: bool, flips: u64, random: &mut Random) -> Tally {
    let home = TempDir::new().unwrap();
    let dir = home.path().join("data");
    let jobs = filled(&dir, politely);
    // Read from a copy: the original stays as the server left it.
    let whole = copy_of(&dir);
    let before = read(&open(whole.path()).unwrap(), &jobs).unwrap();
    let mut tally = Tally::default();
    for _ in 0..flips {
        let (copy, at) = flip(&dir, name, random);
        // The check comes first: it writes nothing.
        let found = check_dir(copy.path(), CheckBounds::default(), &mut |_| ());
        let found = !found.is_ok_and(|report| report.damage.is_empty());
        let store = match open(copy.path()) {
            Ok(store) => store,
            Err(error) => {
                is_about_damage(&error, name, at);
                tally.at_start += 1;
                continue;
            }
        };
        let after = match read(&store, &jobs) {
            Ok(after) => after,
            Err(error) => {
                is_about_damage(&error, name, at);
                tally.by_read += 1;
                continue;
            }
        };
        let sure = after.jobs.iter().zip(&before.jobs).all(|(read, written)| read.is_sure(written));
        assert!(sure, "{name} at {at}: a row with a checksum was read as something else, without an error");
        match (found, after == before) {
            (true, true) => tally.only_by_check += 1,
            (false, true) => tally.harmless += 1,
            (true, false) => tally.served_but_found += 1,
            (false, false) => {
                println!("served: {name} at {at}");
                tally.served += 1;
            }
        }
    }
    tally
}

fn is_about_damage(error: &StoreError, name: &str, at: u64) {
    let known = matches!(error, StoreError::Damaged(_) | StoreError::Unusable(_) | StoreError::Failed(_));
    assert!(known, "{name} at {at}: {error:?}");
}

#[test]
fn defect_03_flipped_bits_are_noticed() {
    let flips = number("LANEWAY_BIT_FLIPS").unwrap_or(20);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("LANEWAY_FLIP_SEED").unwrap_or(clock.as_nanos() as u64);
    println!("{flips} flips of each file, LANEWAY_FLIP_SEED={seed}");
    let mut random = Random(seed);
    let log = campaign(WAL, false, flips, &mut random);
    println!("{WAL}: {log:?}");
    // What SQLite drops of its log comes back from the commit log.
    let silent = log.served + log.served_but_found;
    assert_eq!(silent, 0, "LANEWAY_FLIP_SEED={seed}: a flip in the log lost a commit in silence");
    let segment = campaign(LOG, false, flips, &mut random);
    println!("{LOG}: {segment:?}");
    let silent = segment.served + segment.served_but_found + segment.only_by_check;
    assert_eq!(silent, 0, "LANEWAY_FLIP_SEED={seed}: a flip in the commit log lost a commit in silence");
    let database = campaign(DB, true, flips, &mut random);
    println!("{DB}: {database:?}");
    assert_eq!(database.served, 0, "LANEWAY_FLIP_SEED={seed}: {database:?}");
    // An index that hides a row.
    assert!(u64::from(database.served_but_found) <= 2 + flips / 40, "LANEWAY_FLIP_SEED={seed}: {database:?}");
}

/// A store with one ended job, whose row is damaged.
fn with_a_damaged_job(dir: &Path) -> String {
    let server = Server::start(dir, &[]);
    let id = server.submit(&["echo", "--wait"]);
    assert_eq!(server.stop(), Some(0));
    let conn = rusqlite::Connection::open(dir.join(DB)).unwrap();
    conn.execute_batch("UPDATE job SET spec = CAST(x'63' || substr(spec, 2) AS BLOB) WHERE seq = 1").unwrap();
    id
}

/// The check at the start finds what no read at the start would find, also where an index is damaged. Where the machine is so
/// busy that it takes longer than a start waits, the server reports it.
#[test]
fn defect_03_a_start_checks_the_store() {
    let dir = TempDir::new().unwrap();
    with_a_damaged_job(dir.path());
    let mut command = laneway();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        stderr.push_str(&line);
        if line.contains("the store is damaged") {
            child.kill().unwrap();
            break;
        }
    }
    let code = child.wait().unwrap().code();
    assert!(code.is_none_or(|code| code == 74), "{code:?}: {stderr}");
    for part in ["table job, row 1", "laneway restore", "laneway store check", "laneway store rebuild"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let server = Server::start(dir.path(), &["--set", "limits.start_check=0s"]);
    assert_eq!(server.stop(), Some(0));
}

/// The check at the start is bounded: it reports what it left out, and the server starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_03_a_start_on_a_large_store_checks_a_part_of_it() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(dir.path(), &[]);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let body = serde_json::json!({"jobs": vec![serde_json::json!({"kind": "later"}); 5_000]});
    let sent = http.post(format!("{}/v1/jobs/batch", server.url)).json(&body).send().await.unwrap();
    assert_eq!(sent.status(), 200);
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &["--set", "log.format=json", "--set", "limits.start_check=1ms"]);
    let log = server.log_until_stopped();
    let found =
        log.iter().any(|line| line["message"].as_str().is_some_and(|text| text.contains("checked in part")));
    assert!(found, "{log:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_03_a_damaged_job_is_named_to_its_reader() {
    let dir = TempDir::new().unwrap();
    let id = with_a_damaged_job(dir.path());
    // A start without its check does not read the job: it has ended.
    let server = Server::start(dir.path(), &["--set", "limits.start_check=0s"]);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = http.get(format!("{}/v1/jobs/{id}", server.url)).send().await.unwrap();
    assert_eq!(answer.status(), 500);
    let problem = answer.json::<serde_json::Value>().await.unwrap();
    assert_eq!(problem["code"], "damaged", "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("table job, row 1") && detail.contains("laneway store check"), "{detail}");
    // One event, however often it is read, and a metric.
    let again = http.get(format!("{}/v1/jobs/{id}", server.url)).send().await.unwrap();
    assert_eq!(again.status(), 500);
    let metrics = http.get(format!("{}/metrics", server.url)).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("laneway_store_damaged_rows 1\n"), "{metrics}");
    let url = format!("{}/v1/audit?action=store.damaged", server.url);
    let begun = std::time::Instant::now();
    let lines = loop {
        let page = http.get(&url).send().await.unwrap().json::<serde_json::Value>().await.unwrap();
        let lines = page["entries"].as_array().unwrap().clone();
        if !lines.is_empty() || begun.elapsed().as_secs() > 20 {
            break lines;
        }
    };
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].to_string().contains("table job, row 1"), "{lines:?}");
}

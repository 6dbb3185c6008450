//! Flips single bits in every file of a data directory, in every part of it. What is read afterwards is what was written, or an
//! error, or the check at the start finds the damage. Nothing else is ever read, and nothing is missing in silence.
//!
//! The store has rows in every table. `LANEWAY_BIT_FLIPS` sets how many bits of each file are flipped (60 by default), spread over
//! all of it, and `LANEWAY_FLIP_SEED` replays them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use laneway_core::token::Role;
use laneway_core::{
    AttemptEnd, Bytes, CallRow, Change, DeliveryRow, DeliveryState, DeliveryTry, EventKind, FiringLogEntry,
    FiringStatus, KeptKeys, Key, MemberOf, Name, NextAnswer, Record, RecordName, RunId, RunRow, RunSpec,
    RunState, Schedule, ScheduleId, ScheduleSpec, ScheduleState, Seq, SessionRow, Span, Timing, TokenRecord,
    Wall,
};
use laneway_store::check::{CheckBounds, check_dir};
use laneway_store::suite::Fixture;
use laneway_store::suite::driver::{Driver, START, failure, key, plain_spec, rich_spec};
use laneway_store::{
    CountBy, DeliveryFilter, EventFilter, FiringLogFilter, JobFilter, Keys, RunFilter, SqliteOptions,
    SqliteStore, Store, StoreError,
};
use tempfile::TempDir;

fn acme() -> Name {
    Name::fixed("acme")
}

/// A store that is left as a kill leaves it, with a log that is kept.
struct Kept(TempDir);

impl Fixture for Kept {
    fn open(&self) -> Box<dyn Store> {
        Box::new(SqliteStore::open(self.0.path(), options()).unwrap())
    }
}

fn options() -> SqliteOptions {
    SqliteOptions { log_keep: Some(Duration::from_secs(3_600)), ..SqliteOptions::default() }
}

/// Jobs of every sort, and attempts, logs, merged jobs and keys of them.
fn put_jobs(driver: &mut Driver) {
    let mut jobs: Vec<Seq> = Vec::new();
    for number in 0..24u8 {
        let mut row = driver.draft();
        if number % 3 == 0 {
            row.spec = rich_spec();
            row.spec.idempotency = None;
        }
        if number % 4 == 0 {
            row.spec.idempotency = Some(key(&format!("key-{number}"), number));
        }
        let payload = format!("payload {number} {}", "abc ".repeat(usize::from(number) * 40));
        jobs.push(driver.submit(row, payload.as_bytes()));
        driver.commit();
    }
    for (at, &job) in jobs.iter().enumerate().take(18) {
        driver.open(job);
        driver.start(job);
        driver.log(job, 1, &["a line", "another line"]);
        driver.commit();
        match at % 6 {
            0 => driver.finish(job, Some(b"a result")),
            1 => {
                driver.close(job, AttemptEnd::Failed, Some(failure()));
                driver.wait(job, Some(Wall(START.0 + 5_000)));
            }
            2 => {
                driver.close(job, AttemptEnd::Failed, Some(failure()));
                driver.fail(job, failure());
            }
            _ => {}
        }
    }
    driver.merge(jobs[20], jobs[21]);
    driver.cancel(jobs[22]);
    driver.commit();
    for seq in [jobs[0], jobs[2]] {
        let row = driver.jobs[&seq].view.row.clone();
        for state in [DeliveryState::Waiting, DeliveryState::Delivered] {
            driver.effects.changes.push(Change::DeliveryPut(Box::new(DeliveryRow {
                seq,
                job: row.id,
                tenant: row.spec.tenant.clone(),
                host: "hooks.example:443".into(),
                state: if seq == jobs[0] { DeliveryState::Waiting } else { state },
                tries: 1,
                next_at: Some(driver.now),
                created_at: driver.now,
                ended_at: None,
                last_status: Some(500),
                last_error: Some("no answer".into()),
            })));
        }
        let tried =
            DeliveryTry { seq, number: 1, at: driver.now, took: Span(7), status: Some(500), error: None };
        driver.effects.changes.push(Change::DeliveryTried(Box::new(tried)));
    }
    driver.commit();
}

/// A run with a definition and a call.
fn put_run(driver: &mut Driver) {
    let jobs: Vec<_> = (0..2).map(|_| driver.draft()).collect();
    let first = jobs[0].seq;
    let row = RunRow {
        first,
        id: RunId(jobs[0].id.0 + 1),
        spec: RunSpec { idempotency: Some(key("run-key", 9)), ..RunSpec::new(acme()) },
        nodes: vec![Name::fixed("n0"), Name::fixed("n1")],
        created_at: driver.now,
        submitted_by: Name::fixed("tester"),
        state: RunState::Queued,
        finished_at: None,
    };
    driver.effects.changes.push(Change::RunCreated(Box::new(row.clone())));
    let definition = Bytes::from(&b"the definition of the run"[..]);
    driver.effects.changes.push(Change::RunDefined { first, definition });
    for (mut job, node) in jobs.into_iter().zip(row.nodes.clone()) {
        job.spec.member = Some(Box::new(MemberOf {
            run: row.id,
            node,
            depends_on: Vec::new(),
            bindings: Vec::new(),
            chain: None,
            group: false,
            within: None,
        }));
        driver.submit(job, b"{}");
    }
    let caller = driver.open(first).fence;
    let result = Some(Bytes::from(&b"the latest result"[..]));
    driver.effects.changes.push(Change::CallPut(Box::new(CallRow {
        target: Seq(first.0 + 1),
        caller,
        request: Name::fixed("a call"),
        called_at: driver.now,
        after: 0,
        until: Some(driver.now),
        payload: Some(Bytes::from(&b"the payload of the call"[..])),
        answer: Some(NextAnswer::Done(result.clone())),
        result,
    })));
    driver.effects.changes.push(Change::RunMoved { first, state: RunState::Running, finished_at: None });
    driver.commit();
}

/// Schedules, slots, the firing log, sessions, kept keys, records, tokens and settings.
fn put_others(driver: &mut Driver) {
    for n in 1..4u8 {
        let name = Name::new(&format!("schedule-{n}")).unwrap();
        let timing = Timing::Every { every: Span::secs(5), anchor: Some(START) };
        let schedule = Schedule {
            id: ScheduleId(n.into()),
            spec: ScheduleSpec {
                payload: Bytes::from(vec![n; 200]),
                note: Bytes::from(&b"a note"[..]),
                delete_after_run: Some(false),
                ..ScheduleSpec::new(name.clone(), timing, plain_spec())
            },
            created_at: START,
            updated_at: START,
            state: ScheduleState { next_at: Some(START), ..ScheduleState::default() },
        };
        driver.effects.changes.push(Change::SchedulePut(Box::new(schedule)));
        driver.effects.changes.push(Change::SlotFired {
            schedule: ScheduleId(n.into()),
            slot: START,
            job: None,
        });
        driver.effects.changes.push(Change::FiringLogged(Box::new(FiringLogEntry {
            number: n.into(),
            schedule: ScheduleId(n.into()),
            tenant: Name::fixed("default"),
            name: name.clone(),
            agent: Name::fixed("default"),
            job: None,
            slot: START,
            status: FiringStatus::ALL[0],
            summary: Some("a summary".into()),
            error: None,
            attempts: 1,
            duration_ms: 3,
            input_tokens: 4,
            output_tokens: 5,
            ran_at: START,
            ended_at: START,
        })));
        driver.effects.changes.push(Change::SessionPut(Box::new(SessionRow {
            tenant: acme(),
            key: name.clone(),
            cutoff: Some(START),
            generation: 3,
            tokens: 400,
            window: 8_000,
            updated_at: driver.now,
        })));
        driver.effects.changes.push(Change::KeysKept(Box::new(KeptKeys {
            job: laneway_core::JobId(n.into()),
            tenant: acme(),
            keys: vec![Key { name: Name::fixed("browser"), value: name.clone() }],
            since: START,
        })));
        driver.effects.changes.push(Change::RecordPut {
            record: Box::new(Record {
                name: RecordName { tenant: acme(), collection: Name::fixed("profiles"), id: name.clone() },
                version: driver.events.len() as u64 + 1,
                body: Bytes::from(vec![b'r'; 300]),
                created_at: START,
                updated_at: START,
            }),
            replaces: None,
        });
        driver.effects.changes.push(Change::TokenPut(Box::new(TokenRecord {
            id: name,
            tenant: Some(acme()),
            role: Role::ALL[usize::from(n) % Role::ALL.len()],
            digest: [n; 32],
            note: "for the nightly run".into(),
            created_at: START,
            expires_at: Some(START + Span::hours(1)),
            revoked_at: None,
        })));
        driver.server_event(EventKind::CallDone, "something");
        driver.commit();
    }
    driver.effects.changes.push(Change::OverridesPut(Bytes::from(&b"settings"[..])));
    driver.effects.changes.push(Change::ClockSeen(START));
    driver.commit();
}

/// Everything that can be read, as text, by what was read.
type Reading = BTreeMap<String, String>;

fn take(reading: &mut Reading, what: impl Debug, value: impl Debug) {
    reading.insert(format!("{what:?}"), format!("{value:?}"));
}

fn read(store: &mut SqliteStore, written: &Driver) -> Result<Reading, StoreError> {
    let mut all = Reading::new();
    let (mut loaded, mut number) = (Vec::new(), 0);
    let counters = store.load(&mut |item| loaded.push(item))?;
    for item in loaded {
        number += 1;
        take(&mut all, ("loaded", number), loaded_text(item));
    }
    take(&mut all, "counters", counters);
    take(&mut all, "tokens", store.tokens()?);
    take(&mut all, "overrides", store.overrides()?);
    let reader = store.reader();
    for (&seq, known) in &written.jobs {
        let id = known.view.row.id;
        take(&mut all, ("job", seq), reader.job(id)?);
        take(&mut all, ("payload", seq), reader.payload(seq)?);
        take(&mut all, ("runnable", seq), reader.payloads(&[seq])?);
        take(&mut all, ("attempts", seq), reader.attempts(seq)?);
        take(&mut all, ("logs", seq), reader.logs(seq, 0, 100)?);
        take(&mut all, ("events", seq), reader.events_of(seq, 100)?);
        take(&mut all, ("delivery", seq), reader.delivery(id)?);
        take(&mut all, ("tries", seq), reader.delivery_tries(seq)?);
        take(&mut all, ("call", seq), reader.call_payload(seq)?);
        take(&mut all, ("definition", seq), reader.run_definition(seq)?);
        let spec = &known.view.row.spec;
        if let Some(idempotency) = &spec.idempotency {
            take(&mut all, ("prior", seq), reader.prior(&spec.tenant, &idempotency.key)?);
            let keys = Keys { jobs: vec![(&spec.tenant, &idempotency.key)], runs: Vec::new() };
            take(&mut all, ("priors", seq), store.priors(&keys)?);
        }
    }
    let run_key = Name::fixed("run-key");
    take(&mut all, "run key", store.priors(&Keys { jobs: Vec::new(), runs: vec![(&acme(), &run_key)] })?);
    for filter in crate::lists::filters(&written.jobs) {
        take(&mut all, ("jobs", &filter), reader.jobs(&filter, None, 1_000)?);
        for by in [CountBy::Lane, CountBy::Kind, CountBy::Agent, CountBy::ErrorCode] {
            take(&mut all, ("count", &filter, by), reader.count_jobs(&filter, by)?);
        }
    }
    take(&mut all, "all jobs", reader.jobs(&JobFilter::default(), None, 1_000)?);
    let runs = reader.runs(&RunFilter::default(), None, 100)?;
    for run in &runs.items {
        take(&mut all, ("run", run.first), reader.run(run.id)?);
    }
    take(&mut all, "runs", runs);
    take(&mut all, "deliveries", reader.deliveries(&DeliveryFilter::default(), None, 100)?);
    take(&mut all, "firing log", reader.firing_log(&FiringLogFilter::default(), None, 100)?);
    take(&mut all, "events", reader.events_after(&EventFilter::default(), 0, 10_000)?);
    take(&mut all, "events back", reader.events_before(&EventFilter::default(), None, 10_000)?);
    take(&mut all, "first event", reader.first_event()?);
    take(&mut all, "chain", reader.verify_events()?);
    Ok(all)
}

fn loaded_text(item: laneway_store::Loaded) -> String {
    use laneway_store::Loaded;
    match item {
        Loaded::Lane(item) => format!("{item:?}"),
        Loaded::Schedule(item) => format!("{item:?}"),
        Loaded::FiringLogEntry(item) => format!("{item:?}"),
        Loaded::OpenRun(item, ended) => format!("{item:?} {ended:?}"),
        Loaded::Job(item) => format!("{item:?}"),
        Loaded::Open(item) => format!("{item:?}"),
        Loaded::StillRunning(item, open) => format!("{item:?} {open:?}"),
        Loaded::Call(item) => format!("{item:?}"),
        Loaded::Session(item) => format!("{item:?}"),
        Loaded::KeptKeys(item) => format!("{item:?}"),
        Loaded::Record(item) => format!("{item:?}"),
        Loaded::Delivery(item) => format!("{item:?}"),
    }
}

fn copy_of(from: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    let done = std::process::Command::new("cp").arg("-r").arg(from.join(".")).arg(copy.path()).status();
    assert!(done.unwrap().success());
    copy
}

/// Every file below `dir`.
fn files_of(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_of(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// The places to flip: as many parts as flips, and one place in each. Most of a small file is empty, and a flip there says
/// little: a place with content is looked for in the part.
fn places(bytes: &[u8], flips: usize, random: &mut Random) -> Vec<usize> {
    let part = bytes.len().div_ceil(flips).max(1);
    let mut places = Vec::new();
    for from in (0..bytes.len()).step_by(part) {
        let len = part.min(bytes.len() - from);
        let tries: Vec<usize> = (0..64).map(|_| from + random.below(len)).collect();
        places.push(*tries.iter().find(|at| bytes[**at] != 0).unwrap_or(&tries[0]));
    }
    // Segments have their full size from the beginning: as many again where something is.
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    places.extend((0..flips.min(used.len())).map(|_| used[random.below(used.len())]));
    places
}

#[derive(Debug, Default)]
struct Tally {
    /// Everything was read as it was written.
    same: u32,
    /// The store could not be opened, or a read failed.
    error: u32,
    /// Only the check found it, and everything was read as it was written.
    by_check: u32,
    /// Only the check, which runs at every start, found it: an index hides a row.
    hidden: u32,
}

fn flip_all(name: &str, dir: &Path, written: &Driver, flips: usize, random: &mut Random) {
    let whole = copy_of(dir);
    let before = read(&mut SqliteStore::open(whole.path(), options()).unwrap(), written).unwrap();
    assert!(before.len() > 300, "{} answers", before.len());
    for path in files_of(dir) {
        let bytes = std::fs::read(&path).unwrap();
        let file = path.strip_prefix(dir).unwrap();
        let mut tally = Tally::default();
        for at in places(&bytes, flips, random) {
            let bit = 1u8 << random.below(8);
            let what = format!("{name}: {} at {at}, bit {bit:#x}", file.display());
            let copy = copy_of(dir);
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            std::fs::write(copy.path().join(file), flipped).unwrap();
            let found = check_dir(copy.path(), CheckBounds::default(), &mut |_| ());
            let found = !found.is_ok_and(|report| report.damage.is_empty());
            let after =
                SqliteStore::open(copy.path(), options()).and_then(|mut store| read(&mut store, written));
            match after {
                // A tree that hides the row of a job disagrees with those that know the job.
                Err(
                    StoreError::Damaged(_)
                    | StoreError::Unusable(_)
                    | StoreError::Failed(_)
                    | StoreError::Disagree(_),
                ) => tally.error += 1,
                Err(error) => panic!("{what}: {error:?}"),
                Ok(after) if after == before && found => tally.by_check += 1,
                Ok(after) if after == before => tally.same += 1,
                Ok(_) if found => tally.hidden += 1,
                Ok(after) => {
                    let differs = before.iter().find(|(what, value)| after.get(*what) != Some(value));
                    panic!("{what}: served as truth: {differs:?}");
                }
            }
        }
        println!("{name}: {}: {tally:?}", file.display());
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_flipped_bit_of_any_file_is_served() {
    let flips = number("LANEWAY_BIT_FLIPS").unwrap_or(60) as usize;
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("LANEWAY_FLIP_SEED").unwrap_or(clock.as_nanos() as u64 | 1);
    println!("{flips} flips of each file, LANEWAY_FLIP_SEED={seed}");
    let mut random = Random(seed);
    let fixture = Kept(TempDir::new().unwrap());
    let mut driver = Driver::new(&fixture);
    put_jobs(&mut driver);
    put_others(&mut driver);
    // Closed once in the middle, so that segments are kept.
    assert!(driver.store.close().unwrap());
    let mut driver = driver.reopen(&fixture);
    put_run(&mut driver);
    driver.reader.first_event().unwrap();
    driver.submit_plain();
    driver.commit();
    // As a kill leaves it, and as an orderly stop leaves it.
    let killed = copy_of(fixture.0.path());
    assert!(driver.store.close().unwrap());
    let closed = copy_of(fixture.0.path());
    flip_all("killed", killed.path(), &driver, flips, &mut random);
    flip_all("closed", closed.path(), &driver, flips, &mut random);
}

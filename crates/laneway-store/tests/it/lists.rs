//! Lists of the SQLite store: their indexes over many chunks, how they are built and checked, and how fast they answer.
//!
//! `cargo test --release -p laneway-store -- --ignored --nocapture lists` measures; `LANEWAY_LISTS_QUEUED` and
//! `LANEWAY_LISTS_ENDED` set the number of jobs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_core::{
    Bytes, Change, Effects, Failure, JobEnd, JobId, JobRow, JobState, JobStatus, Name, Reason, Seq, Session,
    Wall,
};
use laneway_store::check::{CheckBounds, check_dir};
use laneway_store::suite::driver::{Driver, Known, START, plain_spec};
use laneway_store::{
    CountBy, JobFilter, JobView, MemoryStore, PostgresStore, Reader, Search, SqliteOptions, SqliteStore,
    Store,
};
use rusqlite::Connection;

use super::{MemoryFixture, SqliteFixture};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Filters with the names of these jobs, one by one and together.
pub fn filters(jobs: &BTreeMap<Seq, Known>) -> Vec<JobFilter> {
    let any = JobFilter::default;
    let mut filters = vec![JobFilter { search: Search::parse("unknown").ok(), ..any() }];
    for state in JobState::ALL {
        filters.push(JobFilter { states: vec![state], ..any() });
    }
    for Known { view, .. } in jobs.values().step_by(jobs.len() / 3 + 1) {
        let spec = &view.row.spec;
        let kind = Search::parse(spec.kind.as_str()).ok();
        let named = JobFilter {
            tenant: Some(spec.tenant.clone()),
            lane: Some(spec.lane.clone()),
            agent: Some(spec.agent.clone()),
            ..any()
        };
        let end = format!("{:08x}", view.row.id.0 as u32);
        filters.push(JobFilter { search: Search::parse(&end).ok(), ..any() });
        filters.push(JobFilter { search: kind, created_after: Some(view.row.created_at), ..any() });
        filters.push(JobFilter { created_before: Some(view.row.created_at), ..named.clone() });
        filters.push(JobFilter { states: vec![view.state()], ..named.clone() });
        filters.push(JobFilter { session: spec.session.as_ref().map(|s| s.key.clone()), ..named.clone() });
        filters.push(JobFilter { tag: spec.tags.first().cloned(), ..named });
        if let Some(end) = &view.end {
            filters.push(JobFilter { reasons: vec![end.reason], ..any() });
            filters.push(JobFilter { finished_before: Some(end.finished_at), ..any() });
            filters.push(JobFilter { finished_after: Some(end.finished_at), ..any() });
            if let Some(error) = &end.error {
                let code = Some(error.code.clone());
                filters.push(JobFilter {
                    error_code: code,
                    search: Search::parse(&error.message).ok(),
                    ..any()
                });
            }
        }
    }
    filters
}

/// Jobs of many kinds. Two thirds have ended, in another order than they came.
struct World {
    agents: Vec<Name>,
    kinds: Vec<Name>,
    lanes: Vec<Name>,
    tags: Vec<Name>,
    tenants: Vec<Name>,
    errors: Vec<(Name, String)>,
    payload: Bytes,
}

impl World {
    fn new() -> World {
        let numbered = |what: &str, count: u32| -> Vec<Name> {
            (0..count).map(|n| name(&format!("{what}-{n}"))).collect()
        };
        let errors = [
            ("http_status", "the target answered 503 Service Unavailable"),
            ("timeout", "the attempt ran longer than its timeout of 30 s"),
            ("panicked", "index out of bounds: the len is 3"),
            ("smtp", "ConnectTimeout: mail.example.net:25 did not answer"),
        ];
        World {
            agents: numbered("agent", 1_000),
            kinds: ["render", "mail", "crawl", "index", "export", "resize", "report", "sync"]
                .map(name)
                .to_vec(),
            lanes: ["main", "slow", "bulk", "urgent"].map(name).to_vec(),
            tags: numbered("customer", 200),
            tenants: ["default", "acme", "globex"].map(name).to_vec(),
            errors: errors.map(|(code, message)| (name(code), message.to_owned())).to_vec(),
            payload: Bytes::from(&b"{}"[..]),
        }
    }

    fn row(&self, seq: u64) -> JobRow {
        // Multiples of primes: no two dimensions go together.
        let pick = |of: &[Name], prime: u64| of[(seq.wrapping_mul(prime) >> 7) as usize % of.len()].clone();
        let mut spec = plain_spec();
        spec.tenant = pick(&self.tenants, 2_654_435_761);
        spec.kind = pick(&self.kinds, 40_503);
        spec.agent = pick(&self.agents, 7_919);
        spec.lane = pick(&self.lanes, 104_729);
        spec.tags = vec![pick(&self.tags, 15_485_863)];
        spec.session = seq.is_multiple_of(10).then(|| Session::new(name(&format!("session-{}", seq / 50))));
        JobRow {
            seq: Seq(seq),
            id: JobId((u128::from(seq) << 80) + u128::from(seq.wrapping_mul(0x9E37_79B9_7F4A_7C15))),
            spec,
            payload_len: 2,
            created_at: Wall(START.0 + seq as i64 * 10),
            rank_time: seq,
            submitted_by: Name::fixed("loopback"),
            position: 1,
            status: JobStatus::new(JobState::Queued, None),
        }
    }

    fn end(&self, seq: u64) -> JobEnd {
        let fails = seq.is_multiple_of(25);
        let (code, message) = &self.errors[(seq / 25) as usize % self.errors.len()];
        let error = Failure { code: code.clone(), ..Failure::retryable("x", message.as_str()) };
        JobEnd {
            seq: Seq(seq),
            state: if fails { JobState::Failed } else { JobState::Succeeded },
            reason: if fails { Reason::Exhausted } else { Reason::Done },
            error: fails.then_some(error),
            result: Some(Bytes::from(&b"{}"[..])),
            attempt_id: None,
            started_at: None,
            finished_at: Wall(START.0 + seq as i64 * 10 + 60_000 + (seq * 7_919 % 100_000) as i64),
            attempts: 1,
            failures: 0,
            losses: 0,
            last_event: 0,
            merged_into: None,
        }
    }

    /// Jobs that end in the same commit as they come: the quickest way to have many.
    fn fill(&self, store: &mut dyn Store, ended: u64, queued: u64) {
        let mut effects = Effects::default();
        let total = ended + queued;
        for from in (1..=total).step_by(5_000) {
            effects.clear();
            for seq in from..(from + 5_000).min(total + 1) {
                let (row, payload) = (Arc::new(self.row(seq)), Bytes::clone(&self.payload));
                effects.changes.push(Change::JobCreated { row, payload });
                if seq <= ended {
                    effects.changes.push(Change::JobEnded(Box::new(self.end(seq))));
                }
            }
            store.commit(store.epoch(), &effects).unwrap();
        }
    }
}

fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir, SqliteOptions::default()).unwrap()
}

fn seqs(reader: &dyn Reader, filter: &JobFilter) -> Vec<u64> {
    let (mut before, mut seqs) = (None, Vec::new());
    loop {
        let page = reader.jobs(filter, before, 500).unwrap();
        seqs.extend(page.items.iter().map(|job: &JobView| job.row.seq.0));
        let Some(next) = page.next else { return seqs };
        before = Some(Seq(next));
    }
}

/// Over several chunks, after deletions, and after the sets were made anew, lists have exactly the jobs that match.
#[test]
fn lists_over_many_chunks_are_exact() {
    let (fixture, world) = (SqliteFixture::new(), World::new());
    let mut store = open(&fixture.path());
    world.fill(&mut store, 36_000, 4_000);
    let prune = Change::JobsPruned {
        lane: name("main"),
        finished_before: Wall(i64::MAX),
        keyed_finished_before: Wall(i64::MAX),
        max: 5_000,
    };
    store.commit(store.epoch(), &Effects { changes: vec![prune], ..Effects::default() }).unwrap();
    let reader = store.reader();
    let every = seqs(&*reader, &JobFilter::default());
    assert_eq!(every.len(), 35_000);
    let jobs: BTreeMap<Seq, Known> = every
        .iter()
        .map(|seq| {
            let end = (*seq <= 36_000).then(|| world.end(*seq));
            let view = JobView { row: world.row(*seq), open: None, end };
            let known =
                Known { view, payload: Bytes::clone(&world.payload), attempts: Vec::new(), last_event: 0 };
            (Seq(*seq), known)
        })
        .collect();
    let check = |reader: &dyn Reader| {
        for filter in filters(&jobs) {
            let expected: Vec<u64> = jobs
                .values()
                .rev()
                .filter(|job| filter.matches(&job.view))
                .map(|job| job.view.row.seq.0)
                .collect();
            assert_eq!(seqs(reader, &filter), expected, "{filter:?}");
            if let Some(counts) = reader.count_jobs(&filter, CountBy::Kind).unwrap() {
                assert_eq!(counts.all.sum(), expected.len() as u64, "{filter:?}");
            }
        }
    };
    check(&*reader);
    drop((reader, store));
    let report = check_dir(&fixture.path(), CheckBounds::default(), &mut |_| ()).unwrap();
    assert_eq!((report.damage, report.complete), (vec![], true));
    // As a store from before there were sets.
    let conn = Connection::open(fixture.path().join("laneway.db")).unwrap();
    laneway_store::sqlite::row_sums::add_functions(&conn).unwrap();
    conn.execute_batch("UPDATE store_state SET facets_built = 0; DELETE FROM facet WHERE key % 3 = 0")
        .unwrap();
    drop(conn);
    let store = open(&fixture.path());
    check(&*store.reader());
    drop(store);
    let report = check_dir(&fixture.path(), CheckBounds::default(), &mut |_| ()).unwrap();
    assert_eq!(report.damage, vec![]);
}

/// When the last job of a chunk is deleted, nothing of the chunk stays, and no name that only it had.
#[test]
fn an_empty_chunk_leaves_nothing() {
    let (fixture, world) = (SqliteFixture::new(), World::new());
    let mut store = open(&fixture.path());
    world.fill(&mut store, 20_000, 10);
    for lane in &world.lanes {
        let prune = Change::JobsPruned {
            lane: lane.clone(),
            finished_before: Wall(i64::MAX),
            keyed_finished_before: Wall(i64::MAX),
            max: 20_000,
        };
        store.commit(store.epoch(), &Effects { changes: vec![prune], ..Effects::default() }).unwrap();
    }
    assert_eq!(seqs(&*store.reader(), &JobFilter::default()).len(), 10);
    drop(store);
    let conn = Connection::open(fixture.path().join("laneway.db")).unwrap();
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM facet_times WHERE chunk = 0"), 0);
    assert_eq!(count("SELECT count(*) FROM facet WHERE key < (1 << 37)"), 0);
    assert_eq!(count("SELECT count(*) FROM id_end"), 0, "the newest chunk has no row yet");
    assert_eq!(count("SELECT count(*) FROM facet_name WHERE text = 'session-100'"), 0, "only chunk 0 had it");
    assert!(count("SELECT count(*) FROM facet_name WHERE text = 'session-399'") == 1, "chunk 1 has it");
    assert_eq!(
        count(
            "SELECT count(*) FROM facet_name WHERE chunks <> (SELECT count(*) FROM facet WHERE key & ((1 << 33) - 1) = number AND (key >> 33) & 15 = dimension)"
        ),
        0
    );
}

/// What is damaged in a set is an error, not a shorter list; a set that lacks a job is found by the check.
#[test]
fn damaged_sets_are_seen() {
    let damaged = |sql: &str| {
        let (fixture, world) = (SqliteFixture::new(), World::new());
        let mut store = open(&fixture.path());
        world.fill(&mut store, 100, 10);
        drop(store);
        let conn = Connection::open(fixture.path().join("laneway.db")).unwrap();
        laneway_store::sqlite::row_sums::add_functions(&conn).unwrap();
        conn.execute_batch(sql).unwrap();
        fixture
    };
    let flipped = damaged(
        "UPDATE facet SET jobs = CAST(x'0300' || substr(jobs, 3) AS BLOB) WHERE (key >> 33) = 0 AND (key & 7) = 4",
    );
    let store = open(&flipped.path());
    let filter = JobFilter { states: vec![JobState::Succeeded], ..JobFilter::default() };
    let error = store.reader().jobs(&filter, None, 10).unwrap_err().to_string();
    assert!(error.contains("table facet, row 4"), "{error}");
    drop(store);
    for sql in [
        "DELETE FROM facet WHERE key = (SELECT max(key) FROM facet)",
        "DELETE FROM facet_times",
        "UPDATE facet_name SET text = 'other' WHERE text = 'render'",
        "DELETE FROM facet_name WHERE text = 'render'",
    ] {
        let fixture = damaged(sql);
        let report = check_dir(&fixture.path(), CheckBounds::default(), &mut |_| ()).unwrap();
        assert!(report.damage.iter().any(|damage| damage.table == "facet"), "{sql}: {:?}", report.damage);
    }
}

/// The sets are the same when commits are written one by one, and when a kill leaves them to the next start.
#[test]
fn states_that_change_move_between_sets() {
    let (memory, sqlite) = (MemoryFixture(MemoryStore::new()), SqliteFixture::new());
    for fixture in [&memory as &dyn laneway_store::suite::Fixture, &sqlite] {
        let mut driver = Driver::new(fixture);
        let job = driver.submit_plain();
        let in_state = |driver: &Driver| {
            let found = JobState::ALL.into_iter().filter(|state| {
                let filter = JobFilter { states: vec![*state], ..JobFilter::default() };
                driver.reader.jobs(&filter, None, 10).unwrap().items.len() == 1
            });
            found.collect::<Vec<_>>()
        };
        driver.commit();
        assert_eq!(in_state(&driver), [JobState::Queued]);
        driver.open(job);
        driver.commit();
        assert_eq!(in_state(&driver), [JobState::Assigned]);
        driver.start(job);
        driver.commit();
        assert_eq!(in_state(&driver), [JobState::Running]);
        driver.close(job, laneway_core::AttemptEnd::Failed, None);
        driver.wait(job, Some(START));
        driver.commit();
        assert_eq!(in_state(&driver), [JobState::Scheduled]);
        driver.cancel(job);
        driver.commit();
        assert_eq!(in_state(&driver), [JobState::Canceled]);
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

/// One line of the table: a filter, and what a call takes.
fn measure(what: &str, mut call: impl FnMut() -> usize) {
    let mut took = Vec::new();
    let mut found = 0;
    let begun = Instant::now();
    while took.len() < 100 && (took.len() < 10 || begun.elapsed() < Duration::from_secs(3)) {
        let begun = Instant::now();
        found = call();
        took.push(begun.elapsed());
    }
    let first = took[0];
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!("| {what} | {found} | {:.1} | {:.1} | {:.1} |", at(50), at(99), first.as_secs_f64() * 1e3);
}

#[test]
#[ignore = "a benchmark: run it alone and in release"]
fn lists_answer_within_50_ms() {
    let (queued, ended) =
        (number("LANEWAY_LISTS_QUEUED", 1_000_000), number("LANEWAY_LISTS_ENDED", 5_000_000));
    let (dir, world) = (tempfile::tempdir().unwrap(), World::new());
    let path = std::env::var_os("LANEWAY_LISTS_DIR").map_or(dir.path().join("data"), Into::into);
    let is_new = !path.exists();
    let begun = Instant::now();
    let mut store = open(&path);
    if is_new {
        world.fill(&mut store, ended, queued);
        store.close().unwrap();
        println!("{} jobs written in {:.0} s", queued + ended, begun.elapsed().as_secs_f64());
    }
    drop(store);
    sizes(&path);
    let store = open(&path);
    let reader = store.reader();
    println!("| filter | jobs on the page | p50 ms | p99 ms | first ms |\n|---|---|---|---|---|");
    let end = Wall(START.0 + (queued + ended) as i64 * 10);
    for (what, filter) in matrix(end) {
        measure(&what, || reader.jobs(&filter, None, 50).unwrap().items.len());
    }
    println!("| count | jobs | p50 ms | p99 ms | first ms |\n|---|---|---|---|---|");
    for (what, filter) in matrix(end) {
        let count = || reader.count_jobs(&filter, CountBy::Nothing).unwrap();
        measure(&what, || count().map_or(usize::MAX, |counts| counts.all.sum() as usize));
    }
    for by in [CountBy::Lane, CountBy::Kind, CountBy::Agent] {
        let count = || reader.count_jobs(&JobFilter::default(), by).unwrap();
        measure(&format!("all by {by:?}"), || count().map_or(0, |counts| counts.groups.len()));
    }
}

#[test]
#[ignore = "a benchmark: run it alone and in release"]
fn lists_of_postgres_answer_within_50_ms() {
    let Some(database) = super::postgres_server::TestDatabase::new() else { return };
    let (queued, ended) = (number("LANEWAY_LISTS_QUEUED", 100_000), number("LANEWAY_LISTS_ENDED", 400_000));
    let begun = Instant::now();
    let mut store = PostgresStore::open(&database.url()).unwrap();
    World::new().fill(&mut store, ended, queued);
    println!("{} jobs written in {:.0} s", queued + ended, begun.elapsed().as_secs_f64());
    database.psql("VACUUM ANALYZE");
    let reader = store.reader();
    println!("| filter | jobs on the page | p50 ms | p99 ms | first ms |\n|---|---|---|---|---|");
    let end = Wall(START.0 + (queued + ended) as i64 * 10);
    for (what, filter) in matrix(end) {
        measure(&what, || reader.jobs(&filter, None, 50).unwrap().items.len());
    }
}

fn matrix(end: Wall) -> Vec<(String, JobFilter)> {
    let any = JobFilter::default;
    let search = |text: &str| JobFilter { search: Search::parse(text).ok(), ..any() };
    let hour = Some(Wall(end.0 - 3_600_000));
    let mut matrix = vec![
        ("all", any()),
        ("state=queued", JobFilter { states: vec![JobState::Queued], ..any() }),
        ("state=failed", JobFilter { states: vec![JobState::Failed], ..any() }),
        ("state=running (none)", JobFilter { states: vec![JobState::Running], ..any() }),
        ("lane", JobFilter { lane: Some(name("slow")), ..any() }),
        ("agent", JobFilter { agent: Some(name("agent-77")), ..any() }),
        ("kind", JobFilter { kind: Some(name("render")), ..any() }),
        ("session", JobFilter { session: Some(name("session-5000")), ..any() }),
        ("tag", JobFilter { tag: Some(name("customer-17")), ..any() }),
        ("error_code", JobFilter { error_code: Some(name("smtp")), ..any() }),
        ("created in the first minute", JobFilter { created_before: Some(Wall(START.0 + 60_000)), ..any() }),
        ("finished in the last hour", JobFilter { finished_after: hour, ..any() }),
        ("search timeout", search("timeout")),
        ("search a", search("a")),
        ("search 1", search("1")),
        ("search unknown (none)", search("xyzzy")),
    ];
    let none = |filter| JobFilter { states: vec![JobState::Running], ..filter };
    let failed = |filter| JobFilter { states: vec![JobState::Failed], ..filter };
    // Kinds and lanes are independent, failures are multiples of 25: these have common jobs, or none.
    matrix.extend([
        (
            "queued, error_code (none)",
            JobFilter { states: vec![JobState::Queued], error_code: Some(name("smtp")), ..any() },
        ),
        (
            "failed, kind, lane, tenant",
            failed(JobFilter {
                kind: Some(name("mail")),
                lane: Some(name("bulk")),
                tenant: Some(name("acme")),
                ..any()
            }),
        ),
        (
            "agent, kind, tag, lane (rare)",
            JobFilter {
                agent: Some(name("agent-77")),
                kind: Some(name("render")),
                tag: Some(name("customer-17")),
                lane: Some(name("main")),
                ..any()
            },
        ),
        (
            "two error codes (none)",
            JobFilter { error_code: Some(name("smtp")), search: Search::parse("panicked").ok(), ..any() },
        ),
        (
            "kind by search and another kind (none)",
            JobFilter { kind: Some(name("mail")), ..search("render") },
        ),
        (
            "running, everything (none)",
            none(JobFilter {
                kind: Some(name("render")),
                lane: Some(name("main")),
                tag: Some(name("customer-1")),
                ..search("customer agent")
            }),
        ),
        (
            "failed, finished in the last hour, timeout",
            failed(JobFilter { finished_after: hour, ..search("timeout") }),
        ),
        (
            "all dimensions",
            failed(JobFilter {
                tenant: Some(name("acme")),
                kind: Some(name("mail")),
                lane: Some(name("bulk")),
                agent: Some(name("agent-500")),
                tag: Some(name("customer-1")),
                session: Some(name("session-1")),
                error_code: Some(name("smtp")),
                ..search("timeout mail")
            }),
        ),
        ("broad words, no common job (none)", none(search("a 1 c"))),
    ]);
    matrix.into_iter().map(|(what, filter)| (what.to_owned(), filter)).collect()
}

fn sizes(path: &Path) {
    let conn = Connection::open(path.join("laneway.db")).unwrap();
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    println!(
        "database {} MB; facet {} rows, {} MB of sets; facet_name {} rows",
        std::fs::metadata(path.join("laneway.db")).unwrap().len() >> 20,
        count("SELECT count(*) FROM facet"),
        count("SELECT sum(length(jobs)) FROM facet") >> 20,
        count("SELECT count(*) FROM facet_name"),
    );
}

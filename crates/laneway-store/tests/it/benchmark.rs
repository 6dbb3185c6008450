//! Throughput of the SQLite store beside raw SQLite. Run it by hand, in release, when the rows or the hot path change.
//!
//! `cargo test --release -p laneway-store -- --ignored --nocapture benchmark`; `LANEWAY_BENCHMARK_JOBS` sets the count. The
//! benchmarks of the product, through HTTP and the engine, are `laneway bench`; this measures the store alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_core::event::JobLine;
use laneway_core::{
    AttemptEnd, AttemptId, Bytes, Change, ClosedAttempt, Effects, Event, EventKind, ExecutorMode, Fence,
    JobEnd, JobId, JobRow, JobState, JobStatus, Name, OpenAttempt, Reason, RetryPolicy, Seq, Span, Wall,
};
use laneway_store::suite::driver::{START, plain_spec};
use laneway_store::{SqliteOptions, SqliteStore, Store};
use rusqlite::{Connection, params};

/// Submits a commit, and finishes a commit.
const SUBMITS: u64 = 1_000;
const FINISHES: usize = 256;

/// Produces the effects of an engine with as little work as possible, so that only the store is measured.
struct Load {
    agents: Vec<Name>,
    payload: Bytes,
    retry: RetryPolicy,
    last_event: u64,
}

impl Load {
    fn new() -> Load {
        Load {
            agents: (0..1_000).map(|n| Name::new(&format!("agent-{n}")).unwrap()).collect(),
            payload: Bytes::from(vec![b'x'; 200]),
            retry: RetryPolicy::default(),
            last_event: 0,
        }
    }

    fn row(&self, seq: u64) -> JobRow {
        let mut spec = plain_spec();
        spec.agent = self.agents[(seq % 1_000) as usize].clone();
        spec.timeout = Some(Span::mins(10));
        spec.retry = Some(self.retry.clone());
        JobRow {
            seq: Seq(seq),
            id: JobId((u128::from(seq) << 64) + u128::from(seq.wrapping_mul(0x9E37_79B9_7F4A_7C15))),
            spec,
            payload_len: 200,
            created_at: START,
            rank_time: START.0.unsigned_abs() + seq,
            submitted_by: Name::fixed("loopback"),
            position: 1,
            status: JobStatus { last_event: self.last_event, ..JobStatus::new(JobState::Queued, None) },
        }
    }

    fn event(&mut self, row: &JobRow, kind: EventKind, reason: Option<Reason>, effects: &mut Effects) {
        self.last_event += 1;
        effects.events.push(Event {
            number: self.last_event,
            at: START,
            kind,
            tenant: Some(row.spec.tenant.clone()),
            job: Some(JobLine {
                seq: row.seq,
                id: row.id,
                kind: row.spec.kind.clone(),
                lane: row.spec.lane.clone(),
                agent: row.spec.agent.clone(),
                attempt: 1,
                reason,
                previous: self.last_event.saturating_sub(1_000),
                error: None,
            }),
            actor: None,
            request: None,
            detail: None,
        });
    }

    fn submits(&mut self, from: u64, effects: &mut Effects) {
        effects.clear();
        for seq in from..from + SUBMITS {
            let row = self.row(seq);
            self.event(&row, EventKind::JobSubmitted, None, effects);
            effects
                .changes
                .push(Change::JobCreated { row: Arc::new(row), payload: Bytes::clone(&self.payload) });
        }
    }

    fn open(&self, seq: u64) -> OpenAttempt {
        OpenAttempt {
            seq: Seq(seq),
            fence: Fence {
                job: self.row(seq).id,
                attempt: 1,
                attempt_id: AttemptId(u128::from(seq)),
                lease_epoch: 1,
            },
            executor: Name::fixed("local"),
            mode: ExecutorMode::Attached,
            state: JobState::Running,
            opened_at: START,
            started_at: Some(START),
            lease: Span(0),
            last_event: self.last_event,
            holder: None,
            dispatch_seq: 1,
        }
    }

    /// Ends the running jobs and starts the next ones.
    fn batch(&mut self, ends: &[u64], starts: &[u64], effects: &mut Effects) {
        effects.clear();
        for &seq in ends {
            let (row, open) = (self.row(seq), self.open(seq));
            self.event(&row, EventKind::JobSucceeded, Some(Reason::Done), effects);
            let fence = open.fence;
            let closed =
                ClosedAttempt { open, end: AttemptEnd::Succeeded, error: None, closed_at: START, last: true };
            effects.changes.push(Change::AttemptClosed(Box::new(closed)));
            effects.changes.push(Change::JobEnded(Box::new(JobEnd {
                seq: Seq(seq),
                state: JobState::Succeeded,
                reason: Reason::Done,
                error: None,
                result: Some(Bytes::from(&b"{}"[..])),
                attempt_id: Some(fence.attempt_id),
                started_at: Some(START),
                finished_at: Wall(START.0 + seq as i64),
                attempts: 1,
                failures: 0,
                losses: 0,
                last_event: self.last_event,
                merged_into: None,
            })));
        }
        for &seq in starts {
            let row = self.row(seq);
            self.event(&row, EventKind::JobStarted, None, effects);
            effects.changes.push(Change::AttemptOpened(self.open(seq)));
        }
    }
}

/// Jobs end in fair order, not in the order they came: a stride within a window.
fn fair_order(count: u64) -> Vec<u64> {
    const WINDOW: u64 = 20_000;
    (0..count)
        .map(|n| n / WINDOW * WINDOW + n % WINDOW * 7_919 % WINDOW + 1)
        .filter(|seq| *seq <= count)
        .collect()
}

fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Inserts, then claims and finishes, in the plainest table: (submits a second, finishes a second).
fn raw(dir: &std::path::Path, count: u64) -> (f64, f64) {
    let conn = Connection::open(dir.join("raw.db")).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;
         CREATE TABLE job (id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, prio INTEGER NOT NULL, run_at INTEGER NOT NULL,
             state INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0, payload TEXT NOT NULL);
         CREATE INDEX ready ON job (queue, prio, run_at, id) WHERE state = 0;",
    )
    .unwrap();
    let payload = "x".repeat(200);
    let begun = Instant::now();
    for from in (0..count).step_by(1_024) {
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut insert = conn
            .prepare_cached("INSERT INTO job (queue, prio, run_at, state, payload) VALUES (0, ?1, ?2, 0, ?3)")
            .unwrap();
        for n in from..(from + 1_024).min(count) {
            insert.execute(params![(n % 10) as i64, n as i64, payload]).unwrap();
        }
        conn.execute_batch("COMMIT").unwrap();
    }
    let submits = rate(count, begun.elapsed());
    let begun = Instant::now();
    let mut running: Vec<i64> = Vec::new();
    loop {
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut finish = conn.prepare_cached("UPDATE job SET state = 2 WHERE id = ?1").unwrap();
        for id in running.drain(..) {
            finish.execute([id]).unwrap();
        }
        let mut claim = conn
            .prepare_cached(
                "UPDATE job SET state = 1, attempt = attempt + 1 WHERE id IN (SELECT id FROM job INDEXED BY ready
                 WHERE queue = 0 AND state = 0 ORDER BY prio, run_at, id LIMIT 256) RETURNING id, payload",
            )
            .unwrap();
        running.extend(claim.query_map([], |row| row.get::<_, i64>(0)).unwrap().map(Result::unwrap));
        conn.execute_batch("COMMIT").unwrap();
        if running.is_empty() {
            return (submits, rate(count, begun.elapsed()));
        }
    }
}

/// The same through the store: (submits a second, finishes a second, time to load what was submitted).
fn store(dir: &std::path::Path, count: u64) -> (f64, f64, Duration) {
    let mut load = Load::new();
    let mut effects = Effects::default();
    let mut store = SqliteStore::open(&dir.join("data"), SqliteOptions::default()).unwrap();
    let mut spent = Duration::ZERO;
    for from in (1..=count).step_by(SUBMITS as usize) {
        load.submits(from, &mut effects);
        let begun = Instant::now();
        store.commit(store.epoch(), &effects).unwrap();
        spent += begun.elapsed();
    }
    let submits = rate(count, spent);
    drop(store);
    let mut store = SqliteStore::open(&dir.join("data"), SqliteOptions::default()).unwrap();
    let begun = Instant::now();
    let mut jobs = 0;
    store.load(&mut |_| jobs += 1).unwrap();
    let loading = begun.elapsed();
    assert_eq!(jobs, count);
    let mut spent = Duration::ZERO;
    let order = fair_order(count);
    let mut running: &[u64] = &[];
    for next in order.chunks(FINISHES).chain([&[][..]]) {
        load.batch(running, next, &mut effects);
        let seqs: Vec<Seq> = next.iter().map(|seq| Seq(*seq)).collect();
        let begun = Instant::now();
        store.commit(store.epoch(), &effects).unwrap();
        assert_eq!(store.reader().payloads(&seqs).unwrap().len(), seqs.len());
        spent += begun.elapsed();
        running = next;
    }
    (submits, rate(count, spent), loading)
}

#[test]
#[ignore = "a benchmark: run it alone and in release"]
fn throughput_beside_raw_sqlite() {
    let count = std::env::var("LANEWAY_BENCHMARK_JOBS").map_or(100_000, |count| count.parse().unwrap());
    for round in 1..=3 {
        let dir = tempfile::tempdir().unwrap();
        let (raw_submits, raw_finishes) = raw(dir.path(), count);
        let (submits, finishes, loading) = store(dir.path(), count);
        println!(
            "round {round}, {count} jobs: submit {submits:.0}/s, {:.2} of raw {raw_submits:.0}/s; \
             finish {finishes:.0}/s, {:.2} of raw {raw_finishes:.0}/s; load {:.2} s a million",
            submits / raw_submits,
            finishes / raw_finishes,
            loading.as_secs_f64() * 1e6 / count as f64,
        );
    }
}

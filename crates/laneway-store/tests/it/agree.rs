//! Memory, SQLite and PostgreSQL agree: the same random changes, committed in the same random batches, read the same.

use laneway_core::job::IdempotencyKey;
use laneway_core::{
    AttemptEnd, Change, DeliveryRow, DeliveryState, DeliveryTry, EventKind, MemberOf, Name, RunId, RunRow,
    RunSpec, RunState, Seq, SessionRow, Span, Wall,
};
use laneway_store::suite::Fixture;
use laneway_store::suite::driver::{Driver, failure, key, load, rich_spec};
use laneway_store::transfer::transfer;
use laneway_store::{
    CountBy, DeliveryFilter, EventFilter, JobFilter, JobView, Keys, MemoryStore, RunFilter, SqliteOptions,
    Store, StoreAddress,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{MemoryFixture, SqliteFixture};

/// One step of a random life. Numbers choose among the jobs that the step fits.
#[derive(Clone, Copy, Debug)]
enum Step {
    Submit { rich: bool, keyed: bool, lane: u8, payload: u16 },
    Open(usize),
    Start(usize),
    Close(usize),
    Wait(usize, bool),
    Revise(usize, i32, bool),
    Delete(usize),
    Finish(usize),
    Fail(usize),
    Cancel(usize),
    Merge(usize, usize),
    Session { key: u8, generation: u8 },
    Log(usize, u8),
    Deliver(usize),
    Run { nodes: u8, keyed: bool },
    EndRun(usize),
    PruneRuns { keep_secs: u8, max: u8 },
    ServerEvent,
    PruneJobs { lane: u8, keep_secs: u8, keyed_keep_secs: u8, max: u8 },
    PruneEvents { keep_secs: u8 },
    JumpBack,
    Commit,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let job = || 0usize..1_000;
    prop_oneof![
        6 => (any::<bool>(), any::<bool>(), 0u8..3, 0u16..5_000)
            .prop_map(|(rich, keyed, lane, payload)| Submit { rich, keyed, lane, payload }),
        6 => job().prop_map(Open),
        4 => job().prop_map(Start),
        3 => job().prop_map(Close),
        3 => (job(), any::<bool>()).prop_map(|(job, later)| Wait(job, later)),
        3 => (job(), any::<i32>(), any::<bool>())
            .prop_map(|(job, priority, later)| Revise(job, priority, later)),
        2 => job().prop_map(Delete),
        4 => job().prop_map(Finish),
        2 => job().prop_map(Fail),
        2 => job().prop_map(Cancel),
        3 => (job(), job()).prop_map(|(job, into)| Merge(job, into)),
        2 => (0u8..3, 0u8..3).prop_map(|(key, generation)| Session { key, generation }),
        2 => (job(), 0u8..4).prop_map(|(job, lines)| Log(job, lines)),
        3 => job().prop_map(Deliver),
        3 => (1u8..4, any::<bool>()).prop_map(|(nodes, keyed)| Run { nodes, keyed }),
        3 => job().prop_map(EndRun),
        2 => (0u8..60, 0u8..5).prop_map(|(keep_secs, max)| PruneRuns { keep_secs, max }),
        1 => Just(ServerEvent),
        2 => (0u8..3, 0u8..60, 0u8..60, 0u8..5)
            .prop_map(|(lane, keep_secs, keyed_keep_secs, max)| PruneJobs { lane, keep_secs, keyed_keep_secs, max }),
        1 => (0u8..60).prop_map(|keep_secs| PruneEvents { keep_secs }),
        1 => Just(JumpBack),
        8 => Just(Commit),
        1 => Just(Reopen),
    ]
}

fn lane(number: u8) -> Name {
    Name::new(&format!("lane-{number}")).unwrap()
}

/// A delivery of an ended job, and a try at it.
fn delivery(driver: &Driver, seq: Seq, n: usize, number: u32) -> [Change; 2] {
    let row = &driver.jobs[&seq].view.row;
    let state = DeliveryState::ALL[n % DeliveryState::ALL.len()];
    let waits = state == DeliveryState::Waiting;
    let put = DeliveryRow {
        seq,
        job: row.id,
        tenant: row.spec.tenant.clone(),
        host: format!("h{n}.example:443").into(),
        state,
        tries: number,
        next_at: waits.then_some(driver.now),
        created_at: driver.now,
        ended_at: (!waits).then_some(driver.now),
        last_status: n.is_multiple_of(3).then_some(500),
        last_error: n.is_multiple_of(5).then(|| "no answer".into()),
    };
    let tried = DeliveryTry {
        seq,
        number,
        at: driver.now,
        took: Span(n as u64),
        status: put.last_status,
        error: put.last_error.clone(),
    };
    [Change::DeliveryPut(Box::new(put)), Change::DeliveryTried(Box::new(tried))]
}

/// A run whose nodes depend on no other.
fn submit_run(driver: &mut Driver, idempotency: Option<IdempotencyKey>, nodes: usize) -> RunRow {
    let jobs: Vec<_> = (0..nodes).map(|_| driver.draft()).collect();
    let row = RunRow {
        first: jobs[0].seq,
        id: RunId(jobs[0].id.0),
        spec: RunSpec {
            lane: lane(0),
            failure: Default::default(),
            idempotency,
            ..RunSpec::new(Name::fixed("acme"))
        },
        nodes: (0..nodes).map(|node| Name::new(&format!("n{node}")).unwrap()).collect(),
        created_at: driver.now,
        submitted_by: Name::fixed("tester"),
        state: RunState::Queued,
        finished_at: None,
    };
    driver.effects.changes.push(Change::RunCreated(Box::new(row.clone())));
    for (mut job, node) in jobs.into_iter().zip(row.nodes.clone()) {
        let (depends_on, bindings) = (Vec::new(), Vec::new());
        job.spec.member = Some(Box::new(MemberOf {
            run: row.id,
            node,
            depends_on,
            bindings,
            chain: None,
            group: false,
            within: None,
        }));
        driver.submit(job, b"{}");
    }
    row
}

/// Ends the open jobs of a run, and the run.
fn end_run(driver: &mut Driver, row: &RunRow) {
    for seq in row.seqs().map(Seq) {
        if driver.jobs[&seq].view.end.is_none() {
            driver.cancel(seq);
        }
    }
    let finished_at = Some(driver.now);
    driver.effects.changes.push(Change::RunMoved {
        first: row.first,
        state: RunState::Canceled,
        finished_at,
    });
}

/// The memory store and another one, driven alike. The drivers' own books are right until the first prune only; the stores are compared with
/// one another.
struct Pair {
    memory: Driver,
    other: Driver,
    memory_fixture: MemoryFixture,
    other_fixture: Box<dyn Fixture>,
    keys: u32,
}

impl Pair {
    fn new(other_fixture: Box<dyn Fixture>) -> Pair {
        let memory_fixture = MemoryFixture(MemoryStore::new());
        let (memory, other) = (Driver::new(&memory_fixture), Driver::new(&*other_fixture));
        Pair { memory, other, memory_fixture, other_fixture, keys: 0 }
    }

    /// The job that a step takes: one of those that `fits` says yes to.
    fn pick(&self, number: usize, fits: impl Fn(&JobView) -> bool) -> Option<Seq> {
        let fitting: Vec<Seq> =
            self.memory.jobs.iter().filter(|(_, known)| fits(&known.view)).map(|(seq, _)| *seq).collect();
        (!fitting.is_empty()).then(|| fitting[number % fitting.len()])
    }

    fn both(&mut self, mut act: impl FnMut(&mut Driver)) {
        act(&mut self.memory);
        act(&mut self.other);
    }

    fn step(mut self, step: Step) -> Pair {
        match step {
            Step::Submit { rich, keyed, lane: number, payload } => {
                self.keys += 1;
                let key = keyed.then(|| key(&format!("key-{}", self.keys), self.keys as u8));
                self.both(|driver| {
                    let mut row = driver.draft();
                    if rich {
                        row.spec = rich_spec();
                    }
                    row.spec.lane = lane(number);
                    row.spec.idempotency = key.clone();
                    driver.submit(row, &vec![number; payload.into()]);
                });
            }
            Step::Open(n) => {
                if let Some(job) = self.pick(n, |view| view.end.is_none() && view.open.is_none()) {
                    self.both(|driver| drop(driver.open(job)));
                }
            }
            Step::Start(n) => {
                if let Some(job) = self.pick(n, |view| view.open.is_some()) {
                    self.both(|driver| drop(driver.start(job)));
                }
            }
            Step::Close(n) => {
                if let Some(job) = self.pick(n, |view| view.open.is_some()) {
                    let end = AttemptEnd::ALL[n % AttemptEnd::ALL.len()];
                    let error = (n % 2 == 0).then(failure);
                    self.both(|driver| drop(driver.close(job, end, error.clone())));
                }
            }
            Step::Wait(n, later) => {
                if let Some(job) = self.pick(n, |view| view.end.is_none() && view.open.is_none()) {
                    self.both(|driver| driver.wait(job, later.then_some(Wall(5))));
                }
            }
            Step::Revise(n, priority, later) => {
                if let Some(seq) = self.pick(n, |view| view.end.is_none() && view.open.is_none()) {
                    let (rank_time, not_before) = (n as u64, later.then_some(Wall(7)));
                    let revised = Change::JobRevised { seq, priority, rank_time, not_before };
                    self.both(|driver| {
                        driver.effects.changes.push(revised.clone());
                        driver.wait(seq, later.then_some(Wall(7)));
                    });
                }
            }
            Step::Delete(n) => {
                let ended = |view: &JobView| view.end.is_some() && view.open.is_none();
                if let Some(seq) = self.pick(n, |view| ended(view) && view.row.spec.member.is_none()) {
                    self.both(|driver| {
                        driver.effects.changes.push(Change::JobDeleted(seq));
                        driver.jobs.remove(&seq);
                    });
                }
            }
            Step::Finish(n) => {
                if let Some(job) = self.pick(n, |view| view.end.is_none()) {
                    self.both(|driver| driver.finish(job, (n % 2 == 0).then_some(&b"result"[..])));
                }
            }
            Step::Fail(n) => {
                if let Some(job) = self.pick(n, |view| view.end.is_none()) {
                    self.both(|driver| driver.fail(job, failure()));
                }
            }
            Step::Cancel(n) => {
                if let Some(job) = self.pick(n, |view| view.end.is_none()) {
                    self.both(|driver| driver.cancel(job));
                }
            }
            Step::Merge(n, into) => {
                let collects = |view: &JobView| {
                    let session = view.row.spec.session.as_ref();
                    view.end.is_none() && session.is_some_and(|session| session.debounce.is_some())
                };
                let leader = self.pick(into, collects);
                let job = self.pick(n, |view| {
                    view.end.is_none() && view.open.is_none() && Some(view.row.seq) != leader
                });
                if let (Some(job), Some(leader)) = (job, leader) {
                    self.both(|driver| driver.merge(job, leader));
                }
            }
            Step::Session { key, generation } => {
                let (tenant, key) = (Name::fixed("acme"), lane(key));
                let change = match generation {
                    0 => Change::SessionForgotten { tenant, key },
                    _ => Change::SessionPut(Box::new(SessionRow {
                        tenant,
                        key,
                        cutoff: (generation > 1).then_some(self.memory.now),
                        generation: generation.into(),
                        tokens: 0,
                        window: 0,
                        updated_at: self.memory.now,
                    })),
                };
                self.both(|driver| driver.effects.changes.push(change.clone()));
            }
            Step::Log(n, lines) => {
                if let Some(job) = self.pick(n, |_| true) {
                    self.both(|driver| driver.log(job, 1, &vec!["a line"; lines.into()]));
                }
            }
            Step::Deliver(n) => {
                if let Some(job) = self.pick(n, |view| view.end.is_some()) {
                    self.keys += 1;
                    let number = self.keys;
                    self.both(|driver| driver.effects.changes.extend(delivery(driver, job, n, number)));
                }
            }
            Step::Run { nodes, keyed } => {
                self.keys += 1;
                let key = keyed.then(|| key(&format!("key-{}", self.keys), self.keys as u8));
                self.both(|driver| drop(submit_run(driver, key.clone(), nodes.into())));
            }
            Step::EndRun(n) => {
                // Committed at once, so that the reader says which runs there are.
                self.both(Driver::commit);
                let open = RunFilter { states: vec![RunState::Queued], ..RunFilter::default() };
                let rows = self.memory.reader.runs(&open, None, 1_000).unwrap().items;
                if let Some(row) = (!rows.is_empty()).then(|| &rows[n % rows.len()]) {
                    self.both(|driver| end_run(driver, row));
                }
            }
            Step::PruneRuns { keep_secs, max } => {
                let before = self.memory.now.before(Span::secs(keep_secs.into()));
                self.both(|driver| {
                    driver.effects.changes.push(Change::RunsPruned {
                        lane: lane(0),
                        finished_before: before,
                        keyed_finished_before: before.before(Span::secs(10)),
                        max: max.into(),
                    });
                    driver.commit();
                    let Driver { jobs, reader, .. } = driver;
                    jobs.retain(|_, known| reader.job(known.view.row.id).unwrap().is_some());
                });
            }
            Step::ServerEvent => self.both(|driver| driver.server_event(EventKind::CallDone, "something")),
            Step::PruneJobs { lane: number, keep_secs, keyed_keep_secs, max } => {
                // Committed at once, so that the drivers learn what is left.
                let now = self.memory.now;
                self.both(|driver| {
                    driver.effects.changes.push(Change::JobsPruned {
                        lane: lane(number),
                        finished_before: now.before(Span::secs(keep_secs.into())),
                        keyed_finished_before: now.before(Span::secs(keyed_keep_secs.into())),
                        max: max.into(),
                    });
                    driver.commit();
                    let Driver { jobs, reader, .. } = driver;
                    jobs.retain(|_, known| reader.job(known.view.row.id).unwrap().is_some());
                });
            }
            Step::PruneEvents { keep_secs } => {
                let before = self.memory.now.before(Span::secs(keep_secs.into()));
                self.both(|driver| driver.effects.changes.push(Change::EventsPruned { before }));
            }
            Step::JumpBack => self.both(|driver| driver.now = driver.now.before(Span::secs(30))),
            Step::Commit => self.both(Driver::commit),
            Step::Reopen => {
                let Pair { memory, other, memory_fixture, other_fixture, keys } = self;
                let (memory, other) = (memory.reopen(&memory_fixture), other.reopen(&*other_fixture));
                return Pair { memory, other, memory_fixture, other_fixture, keys };
            }
        }
        self
    }

    /// The other store is copied, and the copy takes its place.
    fn moved(self, copy: &dyn Fixture) -> Pair {
        let Pair { memory, other, memory_fixture, other_fixture, keys } = self;
        let (memory, other) = (memory.reopen(&memory_fixture), other.reopen(copy));
        let mut pair = Pair { memory, other, memory_fixture, other_fixture, keys };
        pair.compare();
        pair
    }

    fn compare(&mut self) {
        let (memory, other) = (&mut self.memory, &mut self.other);
        assert_eq!(load(&mut *memory.store), load(&mut *other.store));
        let (left, right) = (&memory.reader, &other.reader);
        let page = |driver: &Driver| driver.reader.jobs(&JobFilter::default(), None, 10_000).unwrap();
        assert_eq!(page(memory), page(other));
        for filter in crate::lists::filters(&memory.jobs) {
            let list = |driver: &Driver| driver.reader.jobs(&filter, None, 10_000).unwrap();
            assert_eq!(list(memory), list(other), "{filter:?}");
            assert_eq!(in_pages(memory, &filter), list(other).items, "{filter:?}");
            assert_eq!(in_pages(other, &filter), list(other).items, "{filter:?}");
            for by in [CountBy::Lane, CountBy::ErrorCode] {
                let count = |driver: &Driver| driver.reader.count_jobs(&filter, by).unwrap();
                assert_eq!(count(memory), count(other), "{filter:?}");
            }
        }
        for (&seq, known) in &memory.jobs {
            let id = known.view.row.id;
            assert_eq!(left.job(id).unwrap(), right.job(id).unwrap());
            assert_eq!(left.payload(seq).unwrap(), right.payload(seq).unwrap());
            assert_eq!(left.payloads(&[seq]).unwrap(), right.payloads(&[seq]).unwrap());
            assert_eq!(left.attempts(seq).unwrap(), right.attempts(seq).unwrap());
            assert_eq!(left.logs(seq, 1, 100).unwrap(), right.logs(seq, 1, 100).unwrap());
            assert_eq!(left.events_of(seq, 5).unwrap(), right.events_of(seq, 5).unwrap());
            assert_eq!(left.delivery(id).unwrap(), right.delivery(id).unwrap());
            assert_eq!(left.delivery_tries(seq).unwrap(), right.delivery_tries(seq).unwrap());
        }
        for key in (1..=self.keys).map(|number| Name::new(&format!("key-{number}")).unwrap()) {
            for tenant in [Name::fixed("default"), Name::fixed("acme")] {
                let keys = Keys { jobs: vec![(&tenant, &key)], runs: vec![(&tenant, &key)] };
                assert_eq!(memory.store.priors(&keys).unwrap(), other.store.priors(&keys).unwrap());
            }
        }
        let runs = |driver: &Driver| driver.reader.runs(&RunFilter::default(), None, 1_000).unwrap();
        assert_eq!(runs(memory), runs(other));
        for row in runs(memory).items {
            let seqs: Vec<Seq> = row.seqs().map(Seq).collect();
            assert_eq!(left.jobs_at(&seqs).unwrap(), right.jobs_at(&seqs).unwrap());
            assert_eq!(left.run(row.id).unwrap(), right.run(row.id).unwrap());
        }
        let waiting = DeliveryFilter { state: Some(DeliveryState::Waiting), ..DeliveryFilter::default() };
        for filter in [DeliveryFilter::default(), waiting] {
            assert_eq!(
                left.deliveries(&filter, None, 5).unwrap(),
                right.deliveries(&filter, None, 5).unwrap()
            );
        }
        let filter = EventFilter { tenant: Some(Name::fixed("acme")), ..EventFilter::default() };
        for (after, limit) in [(0, 1_000), (3, 7)] {
            assert_eq!(
                left.events_after(&filter, after, limit).unwrap(),
                right.events_after(&filter, after, limit).unwrap()
            );
            assert_eq!(
                left.events_before(&filter, Some(after + 20), limit).unwrap(),
                right.events_before(&filter, Some(after + 20), limit).unwrap()
            );
        }
        assert_eq!(left.first_event().unwrap(), right.first_event().unwrap());
        assert_eq!(left.verify_events().unwrap(), right.verify_events().unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_sqlite_agree(steps in proptest::collection::vec(step(), 1..120)) {
        agree(Box::new(SqliteFixture::new()), steps);
    }
}

proptest! {
    // The same cases in every run: each needs a database. PROPTEST_RNG_SEED has no effect here; change the number instead.
    #![proptest_config(ProptestConfig { cases: 12, rng_seed: RngSeed::Fixed(17), ..ProptestConfig::default() })]

    #[test]
    fn memory_and_postgres_agree(steps in proptest::collection::vec(step(), 1..120)) {
        if let Some(fixture) = super::postgres::fixture() {
            agree(Box::new(fixture), steps);
        }
    }
}

/// All jobs of a list, read in small pages. Where a page ends is the store's choice: a full last page may name a next one.
fn in_pages(driver: &Driver, filter: &JobFilter) -> Vec<JobView> {
    let (mut jobs, mut before) = (Vec::new(), None);
    loop {
        let page = driver.reader.jobs(filter, before, 7).unwrap();
        jobs.extend(page.items);
        match page.next {
            Some(next) => before = Some(Seq(next)),
            None => return jobs,
        }
    }
}

/// A store of the other sort, into which opening it copies the store `from`.
struct CopyOf {
    from: StoreAddress,
    to: StoreAddress,
}

impl Fixture for CopyOf {
    fn open(&self) -> Box<dyn Store> {
        let mut last = None;
        let copied = transfer(&self.from, &self.to, &mut |at| last = Some(at)).unwrap();
        let rows: u64 = copied.iter().map(|table| table.rows).sum();
        assert_eq!(last.map(|at| (at.done, at.total)), Some((rows, rows)), "the progress ends with all rows");
        self.to.open(SqliteOptions::default()).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, rng_seed: RngSeed::Fixed(23), ..ProptestConfig::default() })]

    /// A random store is copied from a data directory to PostgreSQL and back, and everything reads the same.
    #[test]
    fn copies_in_both_directions_agree(steps in proptest::collection::vec(step(), 40..160)) {
        if let Some(database) = super::postgres_server::TestDatabase::new() {
            let from = SqliteFixture::new();
            let directory = StoreAddress::Directory(from.path());
            let postgres = StoreAddress::parse(&database.url()).unwrap();
            let mut pair = Pair::new(Box::new(from));
            for step in steps {
                pair = pair.step(step);
            }
            pair.both(Driver::commit);
            let there = CopyOf { from: directory, to: postgres.clone() };
            pair = pair.moved(&there);
            // It goes on there.
            pair = pair.step(Step::Submit { rich: true, keyed: true, lane: 1, payload: 100 }).step(Step::Finish(0));
            pair.both(Driver::commit);
            pair.other.store.close().unwrap();
            let back = tempfile::tempdir().unwrap();
            let back = CopyOf { from: postgres, to: StoreAddress::Directory(back.path().join("jobs")) };
            pair.moved(&back);
        }
    }
}

fn agree(other: Box<dyn Fixture>, steps: Vec<Step>) {
    let mut pair = Pair::new(other);
    for (index, step) in steps.into_iter().enumerate() {
        pair = pair.step(step);
        if index % 40 == 39 {
            pair.both(Driver::commit);
            pair.compare();
        }
    }
    pair.both(Driver::commit);
    pair.compare();
    let mut pair = pair.step(Step::Reopen);
    pair.compare();
}

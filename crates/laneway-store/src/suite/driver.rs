//! Drives a store with valid changes and remembers what must come back.
//!
//! It replaces the engine in the simplest way: every step is a change and an event, and a copy of what the reader
//! must show afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use laneway_core::capacity::{Hours, HoursClock};
use laneway_core::command::LogLine;
use laneway_core::event::JobLine;
use laneway_core::job::IdempotencyKey;
use laneway_core::worker::{Affinity, AffinityMode, Package, ResourceRef};
use laneway_core::{
    AttemptEnd, AttemptId, Backoff, Bytes, CallRow, Callback, CapacityRequest, Change, ClosedAttempt,
    DeliveryRow, DropPolicy, Effects, EndedMember, Event, EventKind, ExecutorMode, Failure, Fence,
    FiringLogEntry, Holder, Jitter, JobEnd, JobId, JobRow, JobSpec, JobState, JobStatus, KeptKeys, Key,
    MergedInto, Name, OpenAttempt, Placement, QuietRule, Reason, Record, RetryPolicy, RunRow, Schedule,
    ScheduleId, ScheduleRef, Seq, Session, SessionMode, SessionRow, Span, TraceContext, Wall,
};

use super::Fixture;
use crate::{AttemptView, JobView, Loaded, Reader, Store, StoreError};

/// The time at which everything begins.
pub const START: Wall = Wall(1_790_000_000_000);

/// A store, the changes to commit next, and what must come back.
pub struct Driver {
    /// The store.
    pub store: Box<dyn Store>,
    /// Its reader.
    pub reader: Arc<dyn Reader>,
    /// What the next commit makes durable.
    pub effects: Effects,
    /// What must come back of each job.
    pub jobs: BTreeMap<Seq, Known>,
    /// Every event so far.
    pub events: Vec<Event>,
    /// The time of the next step; one second later after each.
    pub now: Wall,
    last_seq: u64,
}

/// What must come back of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The view of a reader.
    pub view: JobView,
    /// Its payload.
    pub payload: Bytes,
    /// Its closed attempts.
    pub attempts: Vec<AttemptView>,
    /// Number of its latest event.
    pub last_event: u64,
}

impl Driver {
    /// Opens a store of `fixture`, which must be empty.
    pub fn new(fixture: &dyn Fixture) -> Driver {
        let store = fixture.open();
        let reader = store.reader();
        Driver {
            store,
            reader,
            effects: Effects::default(),
            jobs: BTreeMap::new(),
            events: Vec::new(),
            now: START,
            last_seq: 0,
        }
    }

    /// Closes the store and opens it anew.
    pub fn reopen(self, fixture: &dyn Fixture) -> Driver {
        let Driver { store, reader, effects, jobs, events, now, last_seq } = self;
        drop((store, reader));
        let store = fixture.open();
        let reader = store.reader();
        Driver { store, reader, effects, jobs, events, now, last_seq }
    }

    /// Commits the collected effects.
    pub fn commit(&mut self) {
        self.try_commit().expect("the changes are valid");
    }

    /// Tries to commit the collected effects, and drops them either way.
    pub fn try_commit(&mut self) -> Result<(), StoreError> {
        let effects = std::mem::take(&mut self.effects);
        self.store.commit(self.store.epoch(), &effects)
    }

    /// The next job: plain, in lane `main`. Not yet submitted.
    pub fn draft(&mut self) -> JobRow {
        self.last_seq += 1;
        let seq = self.last_seq;
        JobRow {
            seq: Seq(seq),
            id: JobId(0x0190_0000_0000_7000_8000_0000_0000_0000 + (u128::from(seq) << 80)),
            spec: plain_spec(),
            payload_len: 0,
            created_at: self.now,
            rank_time: self.now.0.unsigned_abs(),
            submitted_by: Name::fixed("tester"),
            position: 3,
            status: JobStatus {
                state: JobState::Queued,
                wake_at: None,
                attempts: 0,
                failures: 0,
                losses: 0,
                rejections: 0,
                near_deadline: false,
                denials: 0,
                denied_until: None,
                last_event: 0,
            },
        }
    }

    /// Submits a job.
    pub fn submit(&mut self, mut row: JobRow, payload: &[u8]) -> Seq {
        row.payload_len = u32::try_from(payload.len()).expect("test payloads are small");
        let payload = Bytes::from(payload);
        let view = JobView { row: row.clone(), open: None, end: None };
        let seq = row.seq;
        self.jobs.insert(
            seq,
            Known { view, payload: Bytes::clone(&payload), attempts: Vec::new(), last_event: 0 },
        );
        row.status.last_event = self.event(seq, EventKind::JobSubmitted, None);
        self.known(seq).view.row = row.clone();
        self.effects.changes.push(Change::JobCreated { row: Arc::new(row), payload });
        seq
    }

    /// Submits a plain job.
    pub fn submit_plain(&mut self) -> Seq {
        let row = self.draft();
        self.submit(row, b"{}")
    }

    /// Opens the next attempt of a job.
    pub fn open(&mut self, seq: Seq) -> OpenAttempt {
        let known = self.known(seq).clone();
        let attempt = known.attempts.last().map_or(0, |attempt| attempt.closed.open.fence.attempt) + 1;
        let open = OpenAttempt {
            seq,
            fence: Fence {
                job: known.view.row.id,
                attempt,
                attempt_id: AttemptId((u128::from(seq.0) << 64) + u128::from(attempt) + (0x77 << 120)),
                lease_epoch: 1,
            },
            executor: Name::fixed("worker-1"),
            mode: ExecutorMode::Leased,
            state: JobState::Assigned,
            opened_at: self.now,
            started_at: None,
            lease: Span::secs(30),
            last_event: self.event(seq, EventKind::JobAssigned, None),
            holder: None,
            dispatch_seq: attempt.into(),
        };
        self.known(seq).view.open = Some(open.clone());
        self.effects.changes.push(Change::AttemptOpened(open.clone()));
        open
    }

    /// A worker has the open attempt of a job.
    pub fn hold(&mut self, seq: Seq, worker: &'static str, pid: Option<u32>) -> OpenAttempt {
        let open = self.known(seq).view.open.as_mut().expect("an attempt is open");
        // One that has no number has a boot id.
        let boot = pid.is_none().then(|| Name::fixed("boot-1"));
        open.holder = Some(Holder { worker: Name::fixed(worker), pid, boot });
        let open = open.clone();
        self.effects.changes.push(Change::AttemptStarted(open.clone()));
        open
    }

    /// The open attempt of a job belongs to another connection of its worker.
    pub fn rebind(&mut self, seq: Seq) -> OpenAttempt {
        let open = self.known(seq).view.open.as_mut().expect("an attempt is open");
        open.fence.lease_epoch += 1;
        let open = open.clone();
        self.effects.changes.push(Change::AttemptRebound(open.clone()));
        open
    }

    /// The open attempt of a job runs.
    pub fn start(&mut self, seq: Seq) -> OpenAttempt {
        let last_event = self.event(seq, EventKind::JobStarted, None);
        let now = self.now;
        let open = self.known(seq).view.open.as_mut().expect("an attempt is open");
        open.state = JobState::Running;
        open.started_at = Some(now);
        open.last_event = last_event;
        let open = open.clone();
        self.effects.changes.push(Change::AttemptStarted(open.clone()));
        open
    }

    /// Closes the open attempt of a job that goes on, or has ended already.
    pub fn close(&mut self, seq: Seq, end: AttemptEnd, error: Option<Failure>) -> ClosedAttempt {
        let last_event = self.event(seq, EventKind::AttemptReleased, None);
        let mut open = self.known(seq).view.open.take().expect("an attempt is open");
        open.last_event = last_event;
        let closed = ClosedAttempt { open, end, error, closed_at: self.now, last: false };
        self.known(seq).attempts.push(AttemptView { closed: closed.clone() });
        self.effects.changes.push(Change::AttemptClosed(Box::new(closed.clone())));
        closed
    }

    /// The job waits again, until `wake_at` where that is given.
    pub fn wait(&mut self, seq: Seq, wake_at: Option<Wall>) {
        let last_event = self.event(seq, EventKind::JobRetrying, Some(Reason::Retry));
        let known = self.known(seq);
        let attempts = known.attempts.last().map_or(0, |attempt| attempt.closed.open.fence.attempt);
        let state = if wake_at.is_some() { JobState::Scheduled } else { JobState::Queued };
        let status = JobStatus {
            state,
            wake_at,
            attempts,
            failures: attempts,
            losses: 1,
            rejections: 2,
            near_deadline: wake_at.is_none(),
            denials: 3,
            denied_until: Some(Wall(5)).filter(|_| wake_at.is_none()),
            last_event,
        };
        known.view.row.status = status.clone();
        self.effects.changes.push(Change::JobMoved { seq, status });
    }

    /// The job succeeds, with its open attempt where there is one.
    pub fn finish(&mut self, seq: Seq, result: Option<&[u8]>) {
        let open = self.close_last(seq, AttemptEnd::Succeeded, None);
        self.end(seq, JobState::Succeeded, Reason::Done, None, result.map(Bytes::from), open);
    }

    /// The job fails, with its open attempt where there is one.
    pub fn fail(&mut self, seq: Seq, error: Failure) {
        let open = self.close_last(seq, AttemptEnd::Failed, Some(error.clone()));
        self.end(seq, JobState::Failed, Reason::Exhausted, Some(error), None, open);
    }

    fn close_last(&mut self, seq: Seq, end: AttemptEnd, error: Option<Failure>) -> Option<OpenAttempt> {
        let open = self.known(seq).view.open.take()?;
        let closed = ClosedAttempt { open: open.clone(), end, error, closed_at: self.now, last: true };
        self.effects.changes.push(Change::AttemptClosed(Box::new(closed)));
        Some(open)
    }

    /// The job is canceled; an open attempt outlives it.
    pub fn cancel(&mut self, seq: Seq) {
        self.end(seq, JobState::Canceled, Reason::Requested, None, None, None);
    }

    /// The job ends because another one runs for it.
    pub fn merge(&mut self, seq: Seq, into: Seq) {
        self.end(seq, JobState::Canceled, Reason::Merged, None, None, None);
        let merged_into = Some(MergedInto { seq: into, job: self.known(into).view.row.id });
        if let Some(Change::JobEnded(end)) = self.effects.changes.last_mut() {
            end.merged_into = merged_into;
        }
        if let Some(end) = &mut self.known(seq).view.end {
            end.merged_into = merged_into;
        }
    }

    /// The job ends in any way.
    pub fn end(
        &mut self,
        seq: Seq,
        state: JobState,
        reason: Reason,
        error: Option<Failure>,
        result: Option<Bytes>,
        open: Option<OpenAttempt>,
    ) {
        let kind = if state == JobState::Succeeded { EventKind::JobSucceeded } else { EventKind::JobFailed };
        let finished_at = self.now;
        let last_event = self.event(seq, kind, Some(reason));
        let end = JobEnd {
            seq,
            state,
            reason,
            error,
            result,
            attempt_id: open.as_ref().map(|open| open.fence.attempt_id),
            started_at: open.as_ref().and_then(|open| open.started_at),
            finished_at,
            attempts: open.as_ref().map_or(0, |open| open.fence.attempt),
            failures: 1,
            losses: 2,
            last_event,
            merged_into: None,
        };
        self.known(seq).view.end = Some(end.clone());
        self.effects.changes.push(Change::JobEnded(Box::new(end)));
    }

    /// Lines that a job's attempt wrote.
    pub fn log(&mut self, seq: Seq, attempt: u32, texts: &[&str]) {
        self.log_to("stdout", seq, attempt, texts);
    }

    /// Lines of a stream that an attempt wrote.
    pub fn log_to(&mut self, stream: &'static str, seq: Seq, attempt: u32, texts: &[&str]) {
        let line = |text: &&str| LogLine { at: self.now, stream: Name::fixed(stream), text: (*text).into() };
        let lines = texts.iter().map(line).collect();
        self.effects.changes.push(Change::LogAppended { seq, attempt, lines });
    }

    /// Records an event about a job and returns its number. Time advances by a second.
    pub fn event(&mut self, seq: Seq, kind: EventKind, reason: Option<Reason>) -> u64 {
        let number = self.events.len() as u64 + 1;
        let known = self.jobs.get_mut(&seq).expect("the job was submitted");
        let spec = &known.view.row.spec;
        let event = Event {
            number,
            at: self.now,
            kind,
            tenant: Some(spec.tenant.clone()),
            job: Some(JobLine {
                seq,
                id: known.view.row.id,
                kind: spec.kind.clone(),
                lane: spec.lane.clone(),
                agent: spec.agent.clone(),
                attempt: known.attempts.len() as u32,
                reason,
                previous: known.last_event,
                error: None,
            }),
            actor: (kind == EventKind::JobSubmitted).then(|| known.view.row.submitted_by.clone()),
            request: (kind == EventKind::JobSubmitted)
                .then(|| Name::new(&format!("req-{number}")).expect("is a name")),
            detail: None,
        };
        known.last_event = number;
        self.push_event(event);
        number
    }

    /// An event about the server.
    pub fn server_event(&mut self, kind: EventKind, detail: &str) {
        let event = Event {
            number: self.events.len() as u64 + 1,
            at: self.now,
            kind,
            tenant: None,
            job: None,
            actor: Some(Name::fixed("admin")),
            request: None,
            detail: Some(detail.into()),
        };
        self.push_event(event);
    }

    /// Sets the detail of the latest event, which is not stored yet.
    pub fn with_detail(&mut self, detail: &str) {
        for event in [self.effects.events.last_mut(), self.events.last_mut()] {
            event.expect("an event was drafted").detail = Some(detail.into());
        }
    }

    fn push_event(&mut self, event: Event) {
        self.effects.events.push(event.clone());
        self.events.push(event);
        self.now = self.now + Span::secs(1);
    }

    /// Reuses the numbers of drafts that were never stored.
    pub fn forget_drafts(&mut self) {
        self.last_seq = self.jobs.keys().next_back().map_or(0, |seq| seq.0);
    }

    /// What must come back of a job.
    pub fn known(&mut self, seq: Seq) -> &mut Known {
        self.jobs.get_mut(&seq).expect("the job was submitted")
    }

    /// What a load must return.
    pub fn expected_load(&self) -> Load {
        let mut load = Load::default();
        for known in self.jobs.values() {
            let JobView { row, open, end } = &known.view;
            if end.is_none() {
                load.jobs.push(row.clone());
            }
            match (open, end) {
                (Some(open), None) => load.open.push((None, open.clone())),
                (Some(open), Some(end)) => {
                    let mut row = row.clone();
                    row.status.last_event = end.last_event;
                    load.open.push((Some(row), open.clone()));
                }
                (None, _) => {}
            }
        }
        load.numbers = (self.last_seq, self.events.len() as u64);
        load
    }

    /// Compares everything that can be read with what must come back.
    pub fn check(&mut self) {
        assert_eq!(load(&mut *self.store), self.expected_load());
        for (seq, known) in &self.jobs {
            let id = known.view.row.id;
            assert_eq!(self.reader.job(id).expect("reads").as_ref(), Some(&known.view));
            assert_eq!(self.reader.payload(*seq).expect("reads").as_deref(), Some(&*known.payload));
            assert_eq!(self.reader.attempts(*seq).expect("reads"), known.attempts);
        }
        let newest_first: Vec<JobView> = self.jobs.values().rev().map(|known| known.view.clone()).collect();
        let page = self.reader.jobs(&crate::JobFilter::default(), None, 10_000).expect("reads");
        assert_eq!(page.items, newest_first);
        assert_eq!(page.next, None);
    }
}

/// The result of a load.
#[derive(Debug, Default, PartialEq)]
pub struct Load {
    /// Schedules, in the order they came.
    pub schedules: Vec<Schedule>,
    /// The newest entries of the firing log, in the order they came.
    pub runs: Vec<FiringLogEntry>,
    /// Open runs, in the order they came, with those of their members that have ended.
    pub open_runs: Vec<(RunRow, Vec<EndedMember>)>,
    /// Live jobs, in the order they came.
    pub jobs: Vec<JobRow>,
    /// Open attempts, in the order they came; with their job where that has ended.
    pub open: Vec<(Option<JobRow>, OpenAttempt)>,
    /// Calls of open runs, in the order they came.
    pub calls: Vec<CallRow>,
    /// The state of sessions, in the order they came.
    pub sessions: Vec<SessionRow>,
    /// The keys that ended jobs keep, in the order they came.
    pub kept_keys: Vec<KeptKeys>,
    /// Records, in the order they came.
    pub records: Vec<Record>,
    /// Deliveries that wait, in the order they came.
    pub deliveries: Vec<DeliveryRow>,
    /// Last job and event number.
    pub numbers: (u64, u64),
}

/// Loads everything. Panics when a job comes after an open attempt.
pub fn load(store: &mut dyn Store) -> Load {
    let (mut load, mut lanes) = (Load::default(), BTreeSet::new());
    let counters = store.load(&mut |loaded| match loaded {
        Loaded::Lane(lane) => drop(lanes.insert(lane)),
        Loaded::Schedule(schedule) => {
            assert!(load.jobs.is_empty() && load.runs.is_empty(), "schedules come first");
            load.schedules.push(*schedule);
        }
        Loaded::FiringLogEntry(run) => load.runs.push(*run),
        Loaded::OpenRun(row, ended) => {
            assert!(load.jobs.is_empty(), "runs come before jobs");
            load.open_runs.push((*row, ended));
        }
        Loaded::Job(row) => {
            assert!(load.open.is_empty(), "jobs come before open attempts");
            assert!(lanes.contains(&row.spec.lane), "lanes come before their jobs");
            load.jobs.push(row);
        }
        Loaded::Open(open) => load.open.push((None, open)),
        Loaded::StillRunning(row, open) => load.open.push((Some(row), open)),
        Loaded::Call(row) => load.calls.push(*row),
        Loaded::Session(row) => load.sessions.push(row),
        Loaded::KeptKeys(row) => load.kept_keys.push(row),
        Loaded::Record(record) => load.records.push(record),
        Loaded::Delivery(row) => load.deliveries.push(row),
    });
    let counters = counters.expect("loads");
    assert_eq!(store.counters().expect("reads"), counters);
    load.numbers = (counters.last_seq, counters.last_event);
    load
}

/// A spec with as little as possible.
pub fn plain_spec() -> JobSpec {
    JobSpec::new(Name::fixed("default"), Name::fixed("noop"))
}

/// A spec with everything.
pub fn rich_spec() -> JobSpec {
    JobSpec {
        agent: Name::fixed("агент-7"),
        lane: Name::fixed("bulk"),
        session: Some(Session {
            key: Name::fixed("chat:42"),
            max_concurrent: 3,
            mode: SessionMode::Interrupt,
            cap: Some(0),
            drop: DropPolicy::New,
            debounce: Some(Span(800)),
            debounce_max: Some(Span::secs(8)),
            sent_at: Some(Wall(-3)),
        }),
        keys: vec![
            Key { name: Name::fixed("profile"), value: Name::fixed("p1") },
            Key { name: Name::fixed("tab"), value: Name::fixed("t9") },
        ],
        priority: -20,
        not_before: Some(START + Span::secs(5)),
        deadline: Some(Wall(-7)),
        queue_timeout: Some(Span(u64::MAX)),
        timeout: Some(Span(0)),
        retry: Some(RetryPolicy {
            retries_max: 7,
            losses_max: 0,
            backoff: Backoff { base: Span(200), factor: 2, max: Span::secs(5), jitter: Jitter::Percent(25) },
        }),
        idempotency: Some(key("order-1", 7)),
        retry_of: Some(JobId(u128::MAX)),
        tags: vec![Name::fixed("red"), Name::fixed("nightly run")],
        schedule: Some(ScheduleRef {
            id: ScheduleId(u128::MAX - 1),
            name: Name::fixed("every night"),
            slot: Wall(-1),
            by_hand: true,
        }),
        callback: Some(Callback {
            url: "https://hooks.example/ünd?token=1".into(),
            format: Name::fixed("laneway"),
        }),
        capacity: CapacityRequest {
            cost: 90,
            quiet: Some(QuietRule::Normal),
            unique: true,
            expected_duration: Some(Span::mins(3)),
            hours: Some(Hours {
                from: 22 * 60,
                until: 6 * 60,
                clock: HoursClock::Zone(Name::fixed("Europe/Berlin")),
            }),
        },
        placement: Some(Box::new(rich_placement())),
        trace: Some(Box::new(TraceContext {
            trace_id: u128::MAX,
            span_id: 1,
            flags: 1,
            state: Some("vendor=a b".into()),
        })),
        ..JobSpec::new(Name::fixed("acme"), Name::fixed("crawl page"))
    }
}

/// Placement constraints with everything.
fn rich_placement() -> Placement {
    let resource = |id: &'static str, scope, expires_at| ResourceRef {
        id: Name::fixed(id),
        worker: Name::fixed("w-1"),
        sort: Name::fixed("file"),
        scope,
        expires_at,
    };
    Placement {
        package: Some(Package { name: Name::fixed("img"), version: Name::fixed("1.0.0-ä") }),
        features: vec![Name::fixed("gpu"), Name::fixed("a b")],
        labels: vec![(Name::fixed("zone"), Name::fixed("eu"))],
        affinity: Some(Affinity {
            key: Name::fixed("model-7"),
            mode: AffinityMode::Preferred,
            expires_at: Some(Wall(-9)),
        }),
        resources: vec![
            resource("r1", Some(Name::fixed("run")), Some(START + Span::secs(9))),
            resource("r2", None, None),
        ],
    }
}

/// An idempotency key with a digest of one byte, repeated.
pub fn key(text: &str, digest: u8) -> IdempotencyKey {
    IdempotencyKey { key: Name::new(text).expect("is a name"), digest: [digest; 32] }
}

/// A failure with everything.
pub fn failure() -> Failure {
    let detail = Some(Bytes::from(&b"\x00\xffdetail"[..]));
    Failure { detail, ..Failure::retryable("http_status", "503 from the target, ünexpected") }
}

//! Every change comes back as it was written; a damaged one is rejected or read as another, and never panics.

use laneway_core::command::LogLine;
use laneway_core::{
    AttemptEnd, AttemptId, Binding, CallRow, CatchUp, Chain, ClosedAttempt, DeliveryRow, DeliveryState,
    DeliveryTry, ExecutorMode, Failure, FailurePolicy, Fence, FiringLogEntry, FiringStatus, Holder, JobEnd,
    JobRow, JobSpec, JobState, JobStatus, KeptKeys, Key, MemberOf, MergedInto, Name, NextAnswer, NextCode,
    OpenAttempt, Overlap, Reason, Record, RecordName, Role, RunId, RunRow, RunSpec, RunState, Schedule,
    ScheduleSpec, ScheduleState, SessionRow, Span, Timing, TokenRecord, Wall,
};
use proptest::prelude::*;

use super::*;
use crate::rows::stored_name;
use crate::suite::driver::{START, failure, key, plain_spec, rich_spec};

/// `value` where bit number `bit` is set.
fn part<T>(bits: u8, bit: u32, value: T) -> Option<T> {
    (bits & (1 << bit) != 0).then_some(value)
}

fn every_variant() -> impl Iterator<Item = Variant> {
    (0..=u8::MAX).filter_map(Variant::from_code)
}

fn every_sample() -> Vec<Change> {
    every_variant().flat_map(samples).collect()
}

/// Samples of a variant, with each part that may be missing both there and not. A new one needs
/// a [`Variant`] to be written, and that needs samples here.
fn samples(variant: Variant) -> Vec<Change> {
    let boxed_sessions = || (0..2).map(|bits| Box::new(session(bits)));
    match variant {
        Variant::JobCreated => created(),
        Variant::JobMoved => {
            statuses().map(|status| Change::JobMoved { seq: Seq(u64::MAX), status }).collect()
        }
        Variant::JobRevised => [(i32::MIN, None), (i32::MAX, Some(START)), (0, Some(Wall(i64::MIN)))]
            .map(|(priority, not_before)| Change::JobRevised {
                seq: Seq(u64::MAX),
                priority,
                rank_time: u64::MAX,
                not_before,
            })
            .into(),
        Variant::JobDeleted => vec![Change::JobDeleted(Seq(0)), Change::JobDeleted(Seq(u64::MAX))],
        Variant::AttemptOpened => opens().map(Change::AttemptOpened).collect(),
        Variant::AttemptStarted => opens().map(Change::AttemptStarted).collect(),
        Variant::LeaseExtended => opens().map(Change::LeaseExtended).collect(),
        Variant::HolderChanged => opens().map(Change::HolderChanged).collect(),
        Variant::AttemptRebound => opens().map(Change::AttemptRebound).collect(),
        Variant::AttemptClosed => {
            opens().flat_map(closed).map(|closed| Change::AttemptClosed(Box::new(closed))).collect()
        }
        Variant::JobEnded => (0..32).map(|bits| Change::JobEnded(Box::new(end(bits)))).collect(),
        Variant::LogAppended => logs(),
        Variant::JobsPruned | Variant::RunsPruned | Variant::EventsPruned | Variant::FiringLogPruned => {
            vec![prune(variant)]
        }
        Variant::OverridesPut => {
            vec![Change::OverridesPut(bytes(b"\x00\xff")), Change::OverridesPut(bytes(b""))]
        }
        Variant::TokenPut => (0..8).map(|bits| Change::TokenPut(Box::new(token(bits)))).collect(),
        Variant::TokenForgotten => vec![Change::TokenForgotten(Name::fixed("tok-1"))],
        Variant::ClockSeen => vec![Change::ClockSeen(START), Change::ClockSeen(Wall(i64::MIN))],
        Variant::SessionPut => boxed_sessions().map(Change::SessionPut).collect(),
        Variant::SessionForgotten => {
            vec![Change::SessionForgotten { tenant: Name::fixed("acme"), key: Name::fixed("chat:ü") }]
        }
        Variant::SchedulePut => schedules(),
        Variant::ScheduleMoved => (0..64).map(schedule_moved).collect(),
        Variant::ScheduleRemoved => vec![Change::ScheduleRemoved(ScheduleId(u128::MAX - 3))],
        Variant::SlotFired => (0..2).map(slot).collect(),
        Variant::FiringLogged => (0..8).map(|bits| Change::FiringLogged(Box::new(firing(bits)))).collect(),
        Variant::DeliveryPut => (0..16).map(|bits| Change::DeliveryPut(Box::new(delivery(bits)))).collect(),
        Variant::DeliveryTried => (0..4).map(|bits| Change::DeliveryTried(Box::new(tried(bits)))).collect(),
        Variant::RunCreated => (0..16).map(|bits| Change::RunCreated(Box::new(run(bits)))).collect(),
        Variant::RunDefined => vec![Change::RunDefined { first: Seq(9), definition: bytes(b"{\"a\":1}") }],
        Variant::RunMoved => runs_moved(),
        Variant::CallPut => calls().into_iter().map(|call| Change::CallPut(Box::new(call))).collect(),
        Variant::KeysKept => vec![Change::KeysKept(Box::new(kept_keys()))],
        Variant::KeysReleased => vec![Change::KeysReleased(JobId(77))],
        Variant::RecordPut => [None, Some(0), Some(u64::MAX)].map(record_put).into(),
        Variant::RecordDeleted => {
            vec![Change::RecordDeleted { name: Box::new(record_name()), version: u64::MAX }]
        }
    }
}

fn bytes(bytes: &[u8]) -> Bytes {
    Bytes::from(bytes)
}

fn created() -> Vec<Change> {
    let mut specs = vec![plain_spec(), rich_spec(), member_spec()];
    let without: [fn(&mut JobSpec); 17] = [
        |spec| spec.session = None,
        |spec| spec.keys.clear(),
        |spec| spec.not_before = None,
        |spec| spec.deadline = None,
        |spec| spec.queue_timeout = None,
        |spec| spec.timeout = None,
        |spec| spec.retry = None,
        |spec| spec.idempotency = None,
        |spec| spec.retry_of = None,
        |spec| spec.tags.clear(),
        |spec| spec.schedule = None,
        |spec| spec.callback = None,
        |spec| spec.capacity.quiet = None,
        |spec| spec.capacity.hours = None,
        |spec| spec.placement = None,
        |spec| spec.trace = None,
        |spec| spec.trace.as_mut().unwrap().state = None,
    ];
    specs.extend(without.map(|edit| {
        let mut spec = rich_spec();
        edit(&mut spec);
        spec
    }));
    let rows = specs.into_iter().zip(statuses().cycle()).map(|(spec, status)| JobRow {
        seq: Seq(300),
        id: JobId(u128::MAX - 5),
        spec,
        payload_len: 4,
        created_at: START,
        rank_time: u64::MAX,
        submitted_by: Name::fixed("tester"),
        position: status.attempts,
        status,
    });
    let payloads = [&b"null"[..], b""].into_iter().cycle();
    rows.zip(payloads)
        .map(|(row, payload)| Change::JobCreated { row: row.into(), payload: bytes(payload) })
        .collect()
}

fn member_spec() -> JobSpec {
    let (a, b) = (Name::fixed("a"), Name::fixed("b"));
    JobSpec {
        member: Some(Box::new(MemberOf {
            run: RunId(7),
            node: b.clone(),
            depends_on: vec![a.clone()],
            bindings: vec![Binding { from: a.clone(), source: "/results/x".into(), target: "/ü".into() }],
            chain: Some(Chain { host: b.clone(), middlewares: vec![a], index: Some(1) }),
            group: true,
            within: Some(b),
        })),
        ..plain_spec()
    }
}

fn statuses() -> impl Iterator<Item = JobStatus> + Clone {
    (0..8).map(|bits| JobStatus {
        state: if bits & 1 == 0 { JobState::Queued } else { JobState::Scheduled },
        wake_at: part(bits, 0, START),
        attempts: bits.into(),
        failures: 200,
        losses: u32::MAX,
        rejections: 3,
        near_deadline: bits & 2 != 0,
        denials: 40_000,
        denied_until: part(bits, 2, Wall(-5)),
        last_event: u64::MAX - 1,
    })
}

fn fence() -> Fence {
    Fence { job: JobId(1 << 100), attempt: 70_000, attempt_id: AttemptId(u128::MAX / 3), lease_epoch: 2 }
}

fn opens() -> impl Iterator<Item = OpenAttempt> {
    (0..16).map(|bits| OpenAttempt {
        seq: Seq(5),
        fence: fence(),
        executor: Name::fixed("worker-ü"),
        mode: if bits & 1 == 0 { ExecutorMode::Attached } else { ExecutorMode::Leased },
        state: if bits & 2 == 0 { JobState::Assigned } else { JobState::Running },
        opened_at: START,
        started_at: part(bits, 0, Wall(i64::MAX)),
        lease: Span(u64::MAX),
        last_event: 8,
        holder: part(
            bits,
            1,
            Holder {
                worker: Name::fixed("w-1"),
                pid: part(bits, 2, u32::MAX),
                boot: part(bits, 3, Name::fixed("boot-1")),
            },
        ),
        dispatch_seq: 1 << 40,
    })
}

fn closed(open: OpenAttempt) -> Vec<ClosedAttempt> {
    let errors = [None, Some(failure()), Some(Failure { detail: None, retryable: false, ..failure() })];
    let ends = AttemptEnd::ALL.into_iter().zip(errors.into_iter().cycle());
    let close = |(end, error)| ClosedAttempt {
        open: open.clone(),
        end,
        error,
        closed_at: Wall(-1),
        last: end == AttemptEnd::Lost,
    };
    ends.map(close).collect()
}

fn end(bits: u8) -> JobEnd {
    JobEnd {
        seq: Seq(1),
        state: if bits & 1 == 0 { JobState::Succeeded } else { JobState::Failed },
        reason: if bits & 1 == 0 { Reason::Done } else { Reason::Merged },
        error: part(bits, 0, failure()),
        result: part(bits, 1, bytes(b"\x00result")),
        attempt_id: part(bits, 2, AttemptId(u128::MAX)),
        started_at: part(bits, 3, START),
        finished_at: START + Span::secs(3),
        attempts: 1,
        failures: 128,
        losses: u32::MAX,
        last_event: 12,
        merged_into: part(bits, 4, MergedInto { seq: Seq(2), job: JobId(3) }),
    }
}

fn logs() -> Vec<Change> {
    let line = |stream, text: &str| LogLine { at: START, stream: Name::fixed(stream), text: text.into() };
    [vec![], vec![line("stdout", "ünd\0 more"), line("artifacts", "")]]
        .map(|lines| Change::LogAppended { seq: Seq(4), attempt: u32::MAX, lines })
        .into()
}

fn prune(variant: Variant) -> Change {
    let (lane, max) = (Name::fixed("bulk"), u32::MAX);
    let (finished_before, keyed_finished_before) = (START, Wall(-9));
    match variant {
        Variant::JobsPruned => Change::JobsPruned { lane, finished_before, keyed_finished_before, max },
        Variant::RunsPruned => Change::RunsPruned { lane, finished_before, keyed_finished_before, max },
        Variant::EventsPruned => Change::EventsPruned { before: START },
        _ => Change::FiringLogPruned { ended_before: START, keep: 200, slots_before: Wall(-2), max },
    }
}

fn token(bits: u8) -> TokenRecord {
    TokenRecord {
        id: Name::fixed("tok-1"),
        tenant: part(bits, 0, Name::fixed("acme")),
        role: Role::ALL[usize::from(bits) % Role::ALL.len()],
        digest: std::array::from_fn(|at| at as u8),
        note: "for the désk".into(),
        created_at: START,
        expires_at: part(bits, 1, Wall(1)),
        revoked_at: part(bits, 2, Wall(2)),
    }
}

fn session(bits: u8) -> SessionRow {
    SessionRow {
        tenant: Name::fixed("acme"),
        key: Name::fixed("chat:42"),
        cutoff: part(bits, 0, Wall(-3)),
        generation: 1,
        tokens: u64::MAX,
        window: 200_000,
        updated_at: START,
    }
}

fn state(bits: u8) -> ScheduleState {
    ScheduleState {
        next_at: part(bits, 0, Wall(1)),
        last_slot: part(bits, 1, Wall(2)),
        waiting_slot: part(bits, 2, Wall(3)),
        last_ended_at: part(bits, 3, Wall(4)),
        last_status: part(bits, 4, FiringStatus::Queued),
        last_error: part(bits, 5, "fäiled".into()),
        firings: u64::MAX,
    }
}

fn schedules() -> Vec<Change> {
    let timings = [
        Timing::At(START),
        Timing::Every { every: Span(u64::MAX), anchor: None },
        Timing::Every { every: Span(1_000), anchor: Some(Wall(-8)) },
        Timing::Cron { expr: "@daily".into(), zone: None },
        Timing::Cron { expr: "0 3 * * *".into(), zone: Some(Name::fixed("Europe/Berlin")) },
    ];
    let catch_ups = [
        CatchUp::Skip,
        CatchUp::Latest,
        CatchUp::All { max: 0 },
        CatchUp::ALL,
        CatchUp::All { max: u32::MAX },
    ];
    let deletions = [None, Some(false), Some(true)].into_iter().cycle();
    let mut schedules = Vec::new();
    for ((timing, catch_up), (delete_after_run, overlap)) in
        timings.into_iter().zip(catch_ups).zip(deletions.zip(Overlap::ALL.into_iter().cycle()))
    {
        let one_shot = timing.is_one_shot();
        let spec = ScheduleSpec {
            payload: bytes(b"{}"),
            enabled: one_shot,
            delete_after_run,
            catch_up,
            overlap,
            jitter: Span(70),
            note: bytes(b"\xffnote"),
            owner: one_shot.then(|| Name::fixed("owner")),
            ..ScheduleSpec::new(Name::fixed("every night"), timing, rich_spec())
        };
        let plain = ScheduleSpec { job: plain_spec(), tenant: plain_spec().tenant, ..spec.clone() };
        for spec in [spec, plain] {
            let schedule = Schedule {
                id: ScheduleId(8),
                spec,
                created_at: START,
                updated_at: Wall(0),
                state: state(37),
            };
            schedules.push(Change::SchedulePut(Box::new(schedule)));
        }
    }
    schedules
}

fn schedule_moved(bits: u8) -> Change {
    Change::ScheduleMoved { id: ScheduleId(u128::MAX), enabled: bits & 1 == 0, state: Box::new(state(bits)) }
}

fn slot(bits: u8) -> Change {
    Change::SlotFired { schedule: ScheduleId(1), slot: START, job: part(bits, 0, JobId(u128::MAX)) }
}

fn firing(bits: u8) -> FiringLogEntry {
    FiringLogEntry {
        number: 1,
        schedule: ScheduleId(2),
        tenant: Name::fixed("acme"),
        name: Name::fixed("every night"),
        agent: Name::fixed("агент-7"),
        job: part(bits, 0, JobId(3)),
        slot: Wall(4),
        status: FiringStatus::ALL[usize::from(bits)],
        summary: part(bits, 1, "súmmary".into()),
        error: part(bits, 2, "".into()),
        attempts: 5,
        duration_ms: 600,
        input_tokens: u64::MAX,
        output_tokens: 8,
        ran_at: Wall(-9),
        ended_at: START,
    }
}

fn delivery(bits: u8) -> DeliveryRow {
    DeliveryRow {
        seq: Seq(1),
        job: JobId(2),
        tenant: Name::fixed("acme"),
        host: "hooks.example:443".into(),
        state: DeliveryState::ALL[usize::from(bits) % DeliveryState::ALL.len()],
        tries: 99,
        next_at: part(bits, 0, START),
        created_at: Wall(3),
        ended_at: part(bits, 1, Wall(4)),
        last_status: part(bits, 2, u16::MAX),
        last_error: part(bits, 3, "the receiver answered 500".into()),
    }
}

fn tried(bits: u8) -> DeliveryTry {
    DeliveryTry {
        seq: Seq(1),
        number: 2,
        at: START,
        took: Span(u64::MAX),
        status: part(bits, 0, 500),
        error: part(bits, 1, "nö answer".into()),
    }
}

fn run(bits: u8) -> RunRow {
    RunRow {
        first: Seq(1 << 33),
        id: RunId(u128::MAX),
        spec: RunSpec {
            tenant: Name::fixed("acme"),
            name: part(bits, 0, Name::fixed("nightly reports")),
            lane: Name::fixed("bulk"),
            failure: if bits & 1 == 0 { FailurePolicy::Stop } else { FailurePolicy::Continue },
            client: part(bits, 1, Name::fixed("desk-7")),
            idempotency: part(bits, 2, key("order-1", 7)),
            tags: part(bits, 0, Name::fixed("red")).into_iter().collect(),
        },
        nodes: vec![Name::fixed("a"), Name::fixed("b")],
        created_at: START,
        submitted_by: Name::fixed("tester"),
        state: RunState::ALL[usize::from(bits) % RunState::ALL.len()],
        finished_at: part(bits, 3, Wall(-4)),
    }
}

fn runs_moved() -> Vec<Change> {
    let finished = [None, Some(START)].into_iter().cycle();
    let moved = |(state, finished_at)| Change::RunMoved { first: Seq(6), state, finished_at };
    RunState::ALL.into_iter().zip(finished).map(moved).collect()
}

fn calls() -> Vec<CallRow> {
    let mut calls = Vec::new();
    for bits in 0..8 {
        let result = part(bits, 2, bytes(b"\x00result"));
        let failed = NextAnswer::Failed(NextCode::ALL[usize::from(bits)], "tímed out".into());
        for answer in [None, Some(NextAnswer::Done(result.clone())), Some(failed)] {
            calls.push(CallRow {
                target: Seq(3),
                caller: fence(),
                request: Name::fixed("req 1"),
                called_at: START,
                after: 4,
                until: part(bits, 0, Wall(-7)),
                payload: part(bits, 1, bytes(b"payload")),
                answer,
                result: result.clone(),
            });
        }
    }
    calls
}

fn kept_keys() -> KeptKeys {
    let key = |name, value| Key { name: Name::fixed(name), value: Name::fixed(value) };
    KeptKeys {
        job: JobId(5),
        tenant: Name::fixed("acme"),
        keys: vec![key("profile", "p1"), key("tab", "t9")],
        since: START,
    }
}

fn record_name() -> RecordName {
    RecordName { tenant: Name::fixed("acme"), collection: Name::fixed("profiles"), id: Name::fixed("ü 1") }
}

fn record_put(replaces: Option<u64>) -> Change {
    let record = Record {
        name: record_name(),
        version: 1 << 50,
        body: bytes(b"{\"x\":1}"),
        created_at: START,
        updated_at: Wall(-1),
    };
    Change::RecordPut { record: Box::new(record), replaces }
}

fn written(change: &Change) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_change(&mut bytes, change);
    bytes
}

/// Reads one change, which must be all of `bytes`.
fn read(bytes: &[u8]) -> Result<Change, StoreError> {
    let mut input = Input::new("a change", bytes);
    let change = read_change(&mut input, &mut stored_name)?;
    input.end()?;
    Ok(change)
}

#[test]
fn every_change_comes_back() {
    for variant in every_variant() {
        let samples = samples(variant);
        assert!(!samples.is_empty(), "{variant:?} has no sample");
        for change in samples {
            let bytes = written(&change);
            assert_eq!(bytes[0], variant as u8, "a sample of {variant:?} is of another variant");
            assert_eq!(read(&bytes).unwrap(), change);
        }
    }
}

#[test]
fn a_list_of_changes_comes_back() {
    for changes in [Vec::new(), every_sample()] {
        let mut bytes = Vec::new();
        write_changes(&mut bytes, &changes);
        bytes.push(b'!');
        let mut input = Input::new("a batch", &bytes);
        assert_eq!(read_changes(&mut input, &mut stored_name).unwrap(), changes);
        assert_eq!(input.u8().unwrap(), b'!', "what follows the list is not touched");
        input.end().unwrap();
    }
}

/// The engine has already used the time to wait, so that no store keeps it.
#[test]
fn a_time_to_wait_after_a_failure_is_left_out() {
    let asked = Failure { retry_after: Some(Span(5)), ..failure() };
    let with = |error: Failure| Change::JobEnded(Box::new(JobEnd { error: Some(error), ..end(0) }));
    assert_eq!(read(&written(&with(asked))).unwrap(), with(failure()));
}

#[test]
fn a_frequent_change_is_short() {
    let status = JobStatus::new(JobState::Queued, None);
    let moved = Change::JobMoved { seq: Seq(1), status };
    assert_eq!(written(&moved).len(), 10);
    assert_eq!(written(&Change::ClockSeen(START)).len(), 7);
}

#[test]
fn every_prefix_of_a_change_is_rejected() {
    for change in every_sample() {
        let bytes = written(&change);
        for len in 0..bytes.len() {
            assert!(matches!(read(&bytes[..len]), Err(StoreError::Damaged(_))), "{len} bytes of {change:?}");
        }
    }
}

#[test]
fn a_flipped_byte_is_damage_or_another_change() {
    for change in every_sample() {
        let mut bytes = written(&change);
        for at in 0..bytes.len() {
            for mask in (0..8).map(|bit| 1u8 << bit).chain([0xff]) {
                bytes[at] ^= mask;
                let read = read(&bytes);
                assert!(
                    matches!(read, Ok(_) | Err(StoreError::Damaged(_))),
                    "byte {at} of {change:?}: {read:?}"
                );
                bytes[at] ^= mask;
            }
        }
    }
}

#[test]
fn unknown_changes_versions_and_lengths_are_rejected() {
    let unknown = (0..=u8::MAX).filter(|code| Variant::from_code(*code).is_none());
    for code in unknown {
        assert!(matches!(read(&[code, 0, 0]), Err(StoreError::Damaged(_))));
    }
    let mut bytes = Vec::new();
    write_changes(&mut bytes, &every_sample()[..1]);
    for (at, value) in [(0, VERSION + 1), (1, 2), (1, 0x7f)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let read = read_changes(&mut Input::new("a batch", &bytes), &mut stored_name);
        assert!(matches!(read, Err(StoreError::Damaged(_))), "byte {at} is {value}");
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(code in 0u8..40, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut coded = vec![code];
        coded.extend(bytes);
        let _ = read(&coded);
        let _ = read_changes(&mut Input::new("a batch", &coded), &mut stored_name);
    }
}

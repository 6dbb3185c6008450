//! Spans of records that come together, apart, and after a restart.

use laneway_core::event::JobLine;
use laneway_core::{
    AttemptId, ExecutorMode, Fence, JobId, JobSpec, JobStatus, Name, OpenAttempt, Reason, Span as Time,
};

use super::*;

const START: Wall = Wall(1_790_000_000_000);

fn at(ms: u64) -> Wall {
    START + Time(ms)
}

fn row(seq: u64, state: JobState) -> Arc<JobRow> {
    Arc::new(JobRow {
        seq: Seq(seq),
        id: JobId(u128::from(seq) << 64 | 7),
        spec: JobSpec::new(Name::fixed("default"), Name::fixed("k")),
        payload_len: 0,
        created_at: START,
        rank_time: 0,
        submitted_by: Name::fixed("open"),
        position: 0,
        status: JobStatus::new(state, None),
    })
}

fn submitted(row: &Arc<JobRow>) -> Record {
    Record::Submitted { row: Arc::clone(row), until: at(1) }
}

fn opened(attempt: u32, ms: u64) -> Record {
    Record::Opened { seq: Seq(1), attempt, at: at(ms) }
}

fn closed(row: &JobRow, attempt: u32, ms: u64, end: AttemptEnd) -> Record {
    let open = OpenAttempt {
        seq: row.seq,
        fence: Fence { job: row.id, attempt, attempt_id: AttemptId(9), lease_epoch: 0 },
        executor: Name::fixed("local"),
        mode: ExecutorMode::Attached,
        state: JobState::Running,
        opened_at: at(ms - 5),
        started_at: Some(at(ms - 5)),
        lease: Time(0),
        last_event: 0,
        holder: None,
        dispatch_seq: attempt.into(),
    };
    Record::Closed(Box::new(Closed { open, end, error: None, at: at(ms) }))
}

/// Name, start and end of each span, in milliseconds from the start.
fn times(spans: &[Span]) -> Vec<(&str, i64, i64)> {
    spans.iter().map(|span| (span.name.as_str(), span.start.0 - START.0, span.end.0 - START.0)).collect()
}

fn maker() -> SpanMaker {
    SpanMaker::new(Sampling::ratio(1.0))
}

#[test]
fn a_wait_begins_when_its_job_may_start() {
    let row = row(1, JobState::Queued);
    let records = [
        submitted(&row),
        opened(1, 10),
        closed(&row, 1, 20, AttemptEnd::Failed),
        Record::Queued { seq: Seq(1), at: at(120) },
        opened(2, 150),
        closed(&row, 2, 160, AttemptEnd::Succeeded),
    ];
    let mut maker = maker();
    assert_eq!(maker.look_up(&records), Missing::default());
    let (spans, unknown) = maker.spans(&records);
    assert_eq!(unknown, 0);
    let expected = [
        ("submit k", 0, 1),
        ("wait k", 0, 10),
        ("attempt k", 15, 20),
        ("wait k", 120, 150),
        ("attempt k", 155, 160),
    ];
    assert_eq!(times(&spans), expected);
    assert_eq!(spans[2].error.as_deref(), Some("failed"));
}

#[test]
fn what_is_not_in_memory_is_asked_for_and_taken_from_the_store() {
    let row = row(1, JobState::Queued);
    let records = [submitted(&row), opened(1, 10), opened(2, 150)];
    let mut other = maker();
    // The job is known, but not since when it waits for its second attempt.
    assert_eq!(other.look_up(&records), Missing { rows: vec![], waits: vec![(Seq(1), 2)] });
    other.learn([], [((Seq(1), 2), at(120))]);
    assert_eq!(
        times(&other.spans(&records).0),
        [("submit k", 0, 1), ("wait k", 0, 10), ("wait k", 120, 150)]
    );
    // After a restart nothing is known.
    let records = [opened(2, 150), closed(&row, 2, 160, AttemptEnd::Lost)];
    let mut fresh = maker();
    assert_eq!(fresh.look_up(&records), Missing { rows: vec![Seq(1)], waits: vec![(Seq(1), 2)] });
    fresh.learn([(*row).clone()], [((Seq(1), 2), at(120))]);
    let (spans, unknown) = fresh.spans(&records);
    assert_eq!((times(&spans), unknown), (vec![("wait k", 120, 150), ("attempt k", 155, 160)], 0));
    assert_eq!(maker().spans(&records).1, 2, "jobs that are gone are counted");
}

#[test]
fn a_job_that_ends_while_it_waits_has_a_wait_with_its_reason() {
    let row = row(1, JobState::Queued);
    let reason = Reason::QueueTimeout;
    let ended = Record::EndedWaiting { seq: Seq(1), attempt: 1, at: at(50), state: JobState::Failed, reason };
    let records = [submitted(&row), ended];
    let mut maker = maker();
    maker.look_up(&records);
    let (spans, _) = maker.spans(&records);
    assert_eq!(times(&spans)[1], ("wait k", 0, 50));
    assert!(spans[1].error.as_ref().unwrap().contains(reason.as_str()));
}

#[test]
fn traces_that_are_not_sampled_make_no_spans() {
    let row = row(1, JobState::Queued);
    let records = [submitted(&row), opened(1, 10)];
    let mut maker = SpanMaker::new(Sampling::ratio(0.0));
    maker.look_up(&records);
    assert_eq!(maker.spans(&records), (Vec::new(), 0));
}

#[test]
fn memory_is_bounded() {
    let mut recent = Recent::new();
    for seq in 0..3 * KNOWN_MAX as u64 {
        recent.put(Seq(seq), ());
        // Taken entries leave no trace behind for long.
        if seq % 2 == 0 {
            recent.take(Seq(seq));
        }
    }
    assert!(recent.entries.len() <= KNOWN_MAX && recent.order.len() <= KNOWN_MAX);
}

#[test]
fn the_start_of_a_wait_is_found_in_the_events_of_a_job() {
    let event = |number: u64, kind: EventKind, attempt: u32| Event {
        number,
        at: at(number),
        kind,
        tenant: None,
        job: Some(JobLine {
            seq: Seq(1),
            id: JobId(7),
            kind: Name::fixed("k"),
            lane: Name::fixed("main"),
            agent: Name::fixed("default"),
            attempt,
            reason: None,
            previous: 0,
            error: None,
        }),
        actor: None,
        request: None,
        detail: None,
    };
    let events = [
        event(1, EventKind::JobSubmitted, 0),
        event(2, EventKind::JobStarted, 1),
        event(3, EventKind::JobRetrying, 1),
        event(4, EventKind::JobQueued, 1),
        event(5, EventKind::JobStarted, 2),
    ];
    assert_eq!(waited_since(&events, 1), Some(at(1)));
    assert_eq!(waited_since(&events, 2), Some(at(4)));
    assert_eq!(waited_since(&events, 3), None);
}

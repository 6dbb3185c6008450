//! Recorded rejections: their rows and their bounds.

use std::sync::Arc;

use crate::command::{RejectionCode, Submission};
use crate::engine::tests::scenario::{START, check, submission};
use crate::engine::{Engine, RECORDED_REJECTIONS_PER_MINUTE};
use crate::{CapScope, Change, Command, Effects, Full, JobState, Name, Now, Reason, Reply, Settings};
use expect_test::expect;

fn full_engine() -> Engine {
    let mut settings = Settings::default();
    settings.lanes.entry(Name::fixed("main")).or_default().queued_per_agent_max = 0;
    Engine::new(settings, 7, START)
}

fn submit(engine: &mut Engine, now: Now, payload_len: usize, effects: &mut Effects) -> crate::Rejection {
    let payload = vec![0; payload_len].into();
    let submission = Submission { payload, ..submission("record=yes") };
    match engine.apply(now, Command::Submit(Arc::new(submission)), effects) {
        Reply::Rejected(rejection) => rejection,
        other => panic!("the queue is full: {other:?}"),
    }
}

#[test]
fn pt_q3_third_task_of_one_agent_is_rejected_and_kept_and_another_agent_is_admitted() {
    check(expect![[r#"
        given lane main running=0 queued=9 queued_per_agent=2
        submit a1 record=yes | submit a2 record=yes
        submit a3 record=yes
            rejected: queue_full: the queue is full (agent in this lane: queued_per_agent_max): 2 of 2 jobs wait; submit again later
            a3 rejected #0 (queue_full)
        submit b1 agent=B record=yes
        cancel a3
            not found
        crash
        cancel a1
            was queued
            a1 canceled #0 (requested)
    "#]]);
}

#[test]
fn each_item_of_a_batch_is_kept_alone_and_an_atomic_batch_keeps_nothing() {
    check(expect![[r#"
        given lane main running=0 queued=2
        batch a1 a2 a3 a4 record=yes
            a3 rejected: queue_full
            a4 rejected: queue_full
            a3 rejected #0 (queue_full)
            a4 rejected #0 (queue_full)
        batch b1 b2 atomic record=yes
            b1 rejected: queue_full
            b2 rejected: queue_full
    "#]]);
}

#[test]
fn the_key_of_a_rejected_job_is_good_for_a_later_submit() {
    check(expect![[r#"
        given lane main running=0 queued=1
        submit a1
        submit a2 record=yes idem=one/x
            rejected: queue_full: the queue is full (lane: queued_max): 1 of 1 jobs wait; submit again later
            a2 rejected #0 (queue_full)
        cancel a1
            was queued
            a1 canceled #0 (requested)
        submit a2 record=yes idem=one/x
        submit a2 record=yes idem=one/x
            a2 exists already
    "#]]);
}

#[test]
fn a_recorded_rejection_names_its_numbers_and_is_stored_with_them() {
    let (mut engine, mut effects) = (full_engine(), Effects::default());
    let rejection = submit(&mut engine, START, 3, &mut effects);
    let full = Full { scope: CapScope::Agent, waiting: 0, cap: 0 };
    assert_eq!((rejection.code, rejection.full), (RejectionCode::QueueFull, Some(full)));
    let [Change::JobCreated { row, payload }, Change::JobEnded(end)] = &effects.changes[..] else {
        panic!("a row and its end: {:?}", effects.changes);
    };
    assert_eq!((Some(row.id), payload.len()), (rejection.recorded, 3));
    assert_eq!((end.seq, end.state, end.reason), (row.seq, JobState::Rejected, Reason::QueueFull));
    let error = end.error.as_ref().expect("an error");
    assert_eq!((error.code.as_str(), &error.message), ("queue_full", &rejection.message));
    assert_eq!(error.detail.as_deref().and_then(Full::from_detail), Some(full));
    assert_eq!((effects.events.len(), row.status.last_event), (1, effects.events[0].number));
    assert_eq!(engine.state_of(row.id), None, "nothing of it stays in memory");
}

#[test]
fn a_flood_is_rejected_without_record_until_the_next_minute() {
    let (mut engine, mut effects) = (full_engine(), Effects::default());
    let mut kept = 0;
    for _ in 0..RECORDED_REJECTIONS_PER_MINUTE + 100 {
        kept += u32::from(submit(&mut engine, START, 0, &mut effects).recorded.is_some());
    }
    assert_eq!(kept, RECORDED_REJECTIONS_PER_MINUTE);
    assert_eq!(effects.changes.len(), 2 * kept as usize);
    let later = Now { mono: START.mono + crate::Span::secs(60), ..START };
    assert!(submit(&mut engine, later, 0, &mut effects).recorded.is_some());
}

#[test]
fn large_payloads_use_up_the_minute_sooner() {
    let (mut engine, mut effects) = (full_engine(), Effects::default());
    let kept = (0..100).filter(|_| submit(&mut engine, START, 1 << 20, &mut effects).recorded.is_some());
    assert_eq!(kept.count(), 64);
}

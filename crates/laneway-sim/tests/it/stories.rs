//! Bugs that the simulator found while the server was built, each as a short scenario.
//!
//! Seeds are not kept: a world that learns a new step is another world. These stories stay the same.

use laneway_core::command::AdminCommand;
use std::collections::VecDeque;
use std::sync::Arc;

use laneway_core::command::{Origin, Submission, Submitted};
use laneway_core::engine::Engine;
use laneway_core::job::IdempotencyKey;
use laneway_core::{
    AttemptId, Bytes, Change, Command, Effects, EventKind, ExecutorMode, ExecutorOffer, Fence, JobId,
    JobSpec, LaneOrder, LaneSettings, Mono, Name, Notice, Now, Outcome, RejectionCode, Reply, Settings, Span,
    Wall,
};
use laneway_runtime::{Committed, Driver};
use laneway_store::MemoryStore;

const START: i64 = 1_800_000_000_000;

fn at(ms: u64) -> Now {
    Now { mono: Mono(1_000 + ms), wall: Wall(START + ms as i64) }
}

fn spec(kind: &'static str) -> JobSpec {
    JobSpec { agent: Name::fixed("agent"), ..JobSpec::new(Name::fixed("default"), Name::fixed(kind)) }
}

fn submission(spec: JobSpec) -> Submission {
    Submission::new(spec, Bytes::from(&b"{}"[..]), Origin::server("test"))
}

fn submit(spec: JobSpec) -> Command {
    Command::Submit(Arc::new(submission(spec)))
}

fn executor(mode: ExecutorMode, kinds: &[&'static str]) -> Command {
    let kinds = kinds.iter().map(|kind| Name::fixed(kind)).collect();
    Command::Admin(AdminCommand::Offer(ExecutorOffer {
        executor: Name::fixed("executor"),
        mode,
        kinds,
        slots: 8,
    }))
}

fn start(store: MemoryStore, now: Now) -> Driver {
    Driver::recover(Box::new(store), Settings::default(), 7, now).expect("recovers")
}

fn batch(driver: &mut Driver, now: Now, commands: impl Into<VecDeque<Command>>) -> Committed {
    let batch = driver.apply(now, &mut commands.into()).expect("the store is well");
    driver.commit(batch).expect("the store is well")
}

fn offered(committed: &Committed) -> Vec<Fence> {
    let offers = committed.notices.iter().filter_map(|notice| match notice {
        Notice::Offer(offer) => Some(offer.fence),
        _ => None,
    });
    offers.collect()
}

fn job_of(reply: &Reply) -> JobId {
    match reply {
        Reply::Submitted(Submitted { job, .. }) => *job,
        other => panic!("not submitted: {other:?}"),
    }
}

/// A rejected row makes the loop build its engine anew. Its ids began again one step later, so that two attempts could
/// have the same id.
#[test]
fn a_rebuilt_engine_draws_other_ids() {
    let mut store = MemoryStore::new();
    store.reject_kind(Name::fixed("poison"));
    let mut driver = start(store, at(0));
    batch(&mut driver, at(0), [executor(ExecutorMode::Attached, &["noop"])]);
    let mut seen: Vec<AttemptId> = Vec::new();
    for step in 0..20 {
        let committed = batch(
            &mut driver,
            at(step),
            [submit(spec("noop")), submit(spec("noop")), submit(spec("poison"))],
        );
        let fences = offered(&committed);
        seen.extend(fences.iter().map(|fence| fence.attempt_id));
        let ends: Vec<Command> =
            fences.into_iter().map(|fence| Command::Finish(fence, Outcome::Succeeded(None))).collect();
        batch(&mut driver, at(step), ends);
    }
    let drawn = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((drawn, seen.len()), (40, 40));
}

/// An attempt that outlived its canceled job ended after a restart: its last event named the start as the one before it, and
/// the cancel was lost from the job's history.
#[test]
fn the_history_of_a_canceled_job_is_whole_after_a_restart() {
    let store = MemoryStore::new();
    let mut driver = start(store, at(0));
    batch(&mut driver, at(0), [executor(ExecutorMode::Leased, &["noop"])]);
    let committed = batch(&mut driver, at(1), [submit(spec("noop"))]);
    let (job, fence) = (job_of(&committed.replies[0]), offered(&committed)[0]);
    batch(&mut driver, at(2), [Command::Start(fence)]);
    batch(&mut driver, at(3), [Command::Cancel { tenant: None, job, origin: Origin::server("test") }]);
    let mut driver = Driver::recover(driver.into_store(), Settings::default(), 8, at(4)).expect("recovers");
    batch(&mut driver, at(5), [Command::Finish(fence, Outcome::Canceled)]);
    let reader = driver.reader();
    let seq = reader.job(job).expect("reads").expect("is there").row.seq;
    let kinds: Vec<EventKind> =
        reader.events_of(seq, 100).expect("reads").iter().map(|event| event.kind).collect();
    use EventKind::*;
    assert_eq!(kinds, [JobSubmitted, JobAssigned, JobStarted, JobCanceled, AttemptReleased]);
}

/// An executor changed its mode while an attempt of the old one was open: the attempt was taken for an attached one, and
/// after a restart its job was started a second time while the first attempt went on.
#[test]
fn an_attempt_keeps_the_mode_it_opened_with() {
    let mut driver = start(MemoryStore::new(), at(0));
    batch(&mut driver, at(0), [executor(ExecutorMode::Leased, &["noop"])]);
    let fence = offered(&batch(&mut driver, at(1), [submit(spec("noop"))]))[0];
    batch(&mut driver, at(2), [executor(ExecutorMode::Attached, &["noop"])]);
    batch(&mut driver, at(3), [Command::Start(fence)]);
    let mut driver = Driver::recover(driver.into_store(), Settings::default(), 8, at(4)).expect("recovers");
    assert!(driver.recovered().changes.is_empty(), "the attempt still goes on");
    let committed = batch(&mut driver, at(5), [Command::Finish(fence, Outcome::Succeeded(None))]);
    assert_eq!(committed.replies, [Reply::Done]);
}

/// The lease was made shorter before a restart: what ran was given up after the new one, while its runner went by the
/// longer one that was reported to it, and the job ran twice at the same time.
#[test]
fn a_restart_gives_no_less_than_the_lease_that_was_reported() {
    let mut driver = start(MemoryStore::new(), at(0));
    batch(&mut driver, at(0), [executor(ExecutorMode::Leased, &["noop"])]);
    let fence = offered(&batch(&mut driver, at(1), [submit(spec("noop"))]))[0];
    let committed = batch(&mut driver, at(2), [Command::Start(fence)]);
    let long = Settings::default().lease;
    assert_eq!(committed.replies, [Reply::Alive { lease: long, stop: false }]);
    let short = Settings { lease: Span::secs(1), ..Settings::default() };
    let mut driver = Driver::recover(driver.into_store(), short, 8, at(3)).expect("recovers");
    for ms in (1_000..long.0).step_by(500) {
        let changes = batch(&mut driver, at(ms), []).changes;
        let closed = changes.iter().any(|change| matches!(change, Change::AttemptClosed(_)));
        assert!(!closed, "at {ms} the attempt is given up");
    }
    batch(&mut driver, at(long.0 + 3), []);
    let committed = batch(&mut driver, at(long.0 + 4), [Command::Heartbeat(fence)]);
    assert_eq!(committed.replies, [Reply::Stale]);
}

/// A deadline passed before a worker reported that it runs; when it did, the attempt got a timeout beside its grace,
/// and once that passed the loop looked at the clock again and again without doing anything.
#[test]
fn a_stopped_run_that_starts_late_does_not_spin() {
    let mut engine = Engine::new(Settings::default(), 7, at(0));
    let mut effects = Effects::default();
    engine.apply(at(0), executor(ExecutorMode::Leased, &["noop"]), &mut effects);
    let deadline = Some(Wall(START + 1_000));
    let late = JobSpec { deadline, timeout: Some(Span(100)), ..spec("noop") };
    engine.apply(at(0), submit(late), &mut effects);
    let fence = effects.notices.iter().find_map(|notice| match notice {
        Notice::Offer(offer) => Some(offer.fence),
        _ => None,
    });
    engine.apply(at(1_000), Command::Tick, &mut effects);
    engine.apply(at(1_100), Command::Start(fence.expect("is offered")), &mut effects);
    for ms in [1_150, 1_200, 1_250] {
        engine.apply(at(ms), Command::Tick, &mut effects);
        let wakes = engine.next_wakeup().mono.expect("something is due");
        assert!(wakes > at(ms).mono, "at {ms} the engine wants to wake at {wakes:?}");
    }
}

/// A wall clock that was set back stopped the engine's own time, and with it aging: a job with little priority waited
/// for ever.
#[test]
fn jobs_age_although_the_wall_clock_was_set_back() {
    let lane = LaneSettings {
        order: LaneOrder::Priority,
        aging_step: Some(Span::secs(10)),
        running_max: 1,
        ..LaneSettings::default()
    };
    let settings = Settings { lanes: [(Name::fixed("main"), lane)].into(), ..Settings::default() };
    let mut engine = Engine::new(settings, 7, at(0));
    let mut effects = Effects::default();
    engine.apply(at(0), executor(ExecutorMode::Attached, &["noop"]), &mut effects);
    engine.apply(at(0), submit(spec("noop")), &mut effects);
    let back = |ms: u64| Now { wall: Wall(at(ms).wall.0 - 3_600_000), ..at(ms) };
    engine.apply(back(1_000), submit(JobSpec { priority: 1, ..spec("noop") }), &mut effects);
    engine.apply(back(60_000), submit(spec("noop")), &mut effects);
    let opened = |effects: &Effects| -> Vec<u64> {
        let opened = effects.changes.iter().filter_map(|change| match change {
            Change::AttemptOpened(open) => Some(open.seq.0),
            _ => None,
        });
        opened.collect()
    };
    let Some(Notice::Offer(first)) = effects.notices.first().cloned() else { panic!("the first job runs") };
    engine.apply(back(61_000), Command::Finish(first.fence, Outcome::Succeeded(None)), &mut effects);
    assert_eq!(opened(&effects), [1, 2], "a minute of waiting is worth more than one level");
}

/// In an atomic batch, an item of which the idempotency key stood in an earlier item that was rejected got the verdict
/// of a job that never was.
#[test]
fn a_rejected_item_makes_no_job_that_a_later_one_could_be() {
    let lane = LaneSettings { queued_max: 0, ..LaneSettings::default() };
    let settings = Settings { lanes: [(Name::fixed("main"), lane)].into(), ..Settings::default() };
    let mut engine = Engine::new(settings, 7, at(0));
    let keyed = |digest: u8| {
        let idempotency = Some(IdempotencyKey { key: Name::fixed("key"), digest: [digest; 32] });
        submission(JobSpec { idempotency, ..spec("noop") })
    };
    let batch = Command::SubmitBatch { items: Arc::new(vec![keyed(1), keyed(1), keyed(2)]), atomic: true };
    let Reply::Batch(verdicts) = engine.apply(at(0), batch, &mut Effects::default()) else {
        panic!("a batch")
    };
    let codes: Vec<Option<RejectionCode>> =
        verdicts.into_iter().map(|verdict| verdict.err().map(|rejection| rejection.code)).collect();
    assert_eq!(codes, [Some(RejectionCode::QueueFull); 3]);
}

//! Schedules through the loop: they come by the clock, their runs are logged, and both outlive the process.

use std::time::Duration;

use laneway_core::schedule::{FireMode, NotFired};
use laneway_core::{
    Bytes, EventKind, Failure, FiringStatus, Name, Outcome, Reply, Schedule, ScheduleSpec, Span, Timing, Wall,
};
use laneway_runtime::{Handlers, JobContext, Scheduler};
use laneway_store::FiringLogFilter;

use crate::events::event_of_kind;
use crate::harness::{START, TestStore, begin_drain, gated, job_once, origin, start};

pub fn spec(name: &'static str, kind: &str, timing: Timing) -> ScheduleSpec {
    let job = job_once(kind).spec;
    ScheduleSpec { payload: Bytes::from(&b"hello"[..]), ..ScheduleSpec::new(Name::fixed(name), timing, job) }
}

fn every(seconds: u64) -> Timing {
    Timing::Every { every: Span::secs(seconds), anchor: None }
}

async fn put(scheduler: &Scheduler, spec: ScheduleSpec) -> Schedule {
    match scheduler.put_schedule(spec, origin()).await.unwrap() {
        Reply::Schedule(schedule) => *schedule,
        other => panic!("{other:?}"),
    }
}

fn echo() -> Handlers {
    Handlers::new().on("echo", |ctx: JobContext| async move { Ok::<_, Failure>(ctx.payload().clone()) }).on(
        "panics",
        |_: JobContext| async {
            if true {
                panic!("on purpose");
            }
            Outcome::Succeeded(None)
        },
    )
}

#[tokio::test]
async fn gc_c7_c12_a_slot_runs_its_handler_and_is_logged() {
    let (scheduler, _running, clock) = start(&TestStore::default(), echo()).await;
    let schedule = put(&scheduler, spec("nightly", "echo", every(10))).await;
    assert_eq!(schedule.state.next_at, Some(START.wall + Span::secs(10)));
    let mut events = scheduler.events().subscribe(None);
    clock.advance(Span::secs(10));
    event_of_kind(&mut events, EventKind::ScheduleFiringEnded).await;
    let runs = scheduler.firing_log(FiringLogFilter::default(), None, 20).await.unwrap();
    assert_eq!((runs.total, runs.next), (1, None));
    let run = &runs.items[0];
    assert_eq!((run.status, run.summary.as_deref()), (FiringStatus::Ok, Some("hello")));
    assert_eq!(scheduler.recent_firings(None).await.unwrap(), runs.items);
    let stored = scheduler.schedule(None, schedule.id).await.unwrap().unwrap();
    assert_eq!((stored.state.last_status, stored.state.firings), (Some(FiringStatus::Ok), 1));
}

#[tokio::test]
async fn x23_a_panic_is_an_entry_of_the_log_and_the_schedule_goes_on() {
    let (scheduler, _running, clock) = start(&TestStore::default(), echo()).await;
    let schedule = put(&scheduler, spec("nightly", "panics", every(10))).await;
    let mut events = scheduler.events().subscribe(None);
    for _ in 0..2 {
        clock.advance(Span::secs(10));
        event_of_kind(&mut events, EventKind::ScheduleFiringEnded).await;
    }
    let runs = scheduler.recent_firings(None).await.unwrap();
    assert!(runs.iter().all(|run| run.status == FiringStatus::Error && run.error.is_some()), "{runs:?}");
    assert_eq!(runs.len(), 2);
    let stored = scheduler.schedule(None, schedule.id).await.unwrap().unwrap();
    assert_eq!(stored.state.next_at, Some(START.wall + Span::secs(30)));
}

#[tokio::test]
async fn x24_the_log_of_a_one_shot_is_read_after_it_is_gone() {
    let (scheduler, _running, clock) = start(&TestStore::default(), echo()).await;
    let at = Timing::At(START.wall + Span::secs(5));
    let schedule = put(&scheduler, spec("once", "echo", at)).await;
    let mut events = scheduler.events().subscribe(None);
    clock.advance(Span::secs(5));
    event_of_kind(&mut events, EventKind::ScheduleDeleted).await;
    assert_eq!(scheduler.schedule(None, schedule.id).await.unwrap(), None);
    let filter = FiringLogFilter { schedule: Some(schedule.id), tenant: Some(schedule.spec.tenant) };
    assert_eq!(scheduler.firing_log(filter, None, 20).await.unwrap().total, 1);
    let others = FiringLogFilter { tenant: Some(Name::fixed("other")), schedule: Some(schedule.id) };
    assert_eq!(scheduler.firing_log(others, None, 20).await.unwrap().total, 0);
}

#[tokio::test]
async fn gc_c10_c11_a_stop_waits_for_the_run_and_everything_is_there_after_it() {
    let store = TestStore::default();
    let (handlers, mut has_entered, let_go) = gated();
    let (scheduler, running, clock) = start(&store, handlers).await;
    let schedule = put(&scheduler, spec("nightly", "work", every(10))).await;
    clock.advance(Span::secs(10));
    has_entered.recv().await.unwrap();
    // A run by hand is rejected while the run of the slot goes on, and nothing is due.
    let ask = |mode| scheduler.run_schedule(None, schedule.id, mode, origin());
    let busy = Reply::ScheduleFiredByHand { fired: false, reason: Some(NotFired::AlreadyRunning), job: None };
    assert_eq!(ask(FireMode::Force).await.unwrap(), busy);

    let draining = begin_drain(&scheduler, Duration::from_secs(3_600)).await;
    let_go.send_replace(true);
    assert_eq!(draining.await.unwrap().unwrap().interrupted, 0);
    running.ended().await.unwrap();

    // The new clock begins where the old one did: before the slot that came, which does not come again.
    let (scheduler, _running, clock) = start(&store, echo()).await;
    let stored = scheduler.schedule(None, schedule.id).await.unwrap().unwrap();
    assert_eq!((stored.state.last_status, stored.state.firings), (Some(FiringStatus::Ok), 1));
    assert_eq!(stored.state.next_at, Some(START.wall + Span::secs(20)));
    clock.advance(Span::secs(15));
    let recent = scheduler.recent_firings(None).await.unwrap();
    assert_eq!(recent.len(), 1, "{recent:?}");
    let listed = scheduler.schedules(Some(Name::fixed("default")), None, 10, false).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(scheduler.schedules(Some(Name::fixed("other")), None, 10, true).await.unwrap(), []);
}

#[tokio::test]
async fn x27_events_of_schedules_name_their_tenant() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), echo()).await;
    let mut events = scheduler.events().subscribe(None);
    let mut theirs = spec("nightly", "echo", every(10));
    theirs.tenant = Name::fixed("acme");
    theirs.job.tenant = Name::fixed("acme");
    let schedule = put(&scheduler, theirs).await;
    let event = event_of_kind(&mut events, EventKind::ScheduleCreated).await;
    assert_eq!(event.tenant, Some(Name::fixed("acme")));
    assert_eq!(event.detail.as_deref(), Some(format!("{} created nightly", schedule.id).as_str()));
    assert_eq!(scheduler.schedule(Some(Name::fixed("default")), schedule.id).await.unwrap(), None);
}

#[tokio::test]
async fn the_next_runs_of_a_timing_are_shown_without_a_schedule() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), Handlers::new()).await;
    let hourly = Timing::Cron { expr: "@hourly".into(), zone: None };
    let runs = scheduler.preview(hourly, 2).await.unwrap().unwrap();
    assert_eq!(runs, [Wall(1_700_002_800_000), Wall(1_700_006_400_000)]);
    let never = Timing::Cron { expr: "0 0 30 2 *".into(), zone: None };
    assert!(scheduler.preview(never, 2).await.unwrap().is_err());
}

//! The history of the last hour and the last day: what it counts, what a crash loses, and that it stays small.

use laneway_core::settings::DEFAULT_TENANT;
use laneway_core::{Event, EventKind, Failure, Name, RecordName, Span};
use laneway_runtime::history::{HistoryView, Range};
use laneway_runtime::{Clock, Handlers, Item, JobContext, Running, Scheduler};

use crate::harness::{START, TestStore, gated, job, job_once, origin, start, start_with, submit};

const MINUTE: Span = Span(60_000);

fn tenant() -> Name {
    Name::fixed(DEFAULT_TENANT)
}

fn handlers() -> Handlers {
    Handlers::new()
        .on("work", |_: JobContext| async { Ok::<(), Failure>(()) })
        .on("break", |_: JobContext| async { Err::<(), _>(Failure::permanent("broken", "it broke")) })
}

fn hour(scheduler: &Scheduler, lane: Option<&Name>, kind: Option<&Name>) -> HistoryView {
    scheduler.history(Some(&tenant()), Range::Hour, lane, kind)
}

/// Submitted and ended jobs in each minute of the last hour that had any, as minutes ago.
fn minutes(view: &HistoryView) -> Vec<(usize, u64, u64)> {
    let last = view.points.len() - 1;
    let counted = view
        .points
        .iter()
        .enumerate()
        .map(|(at, point)| (last - at, point.activity.submitted, point.activity.ended()));
    counted.filter(|(_, submitted, ended)| submitted + ended > 0).collect()
}

async fn end(scheduler: &Scheduler, kind: &str) {
    let id = submit(scheduler, job_once(kind)).await;
    scheduler.wait(id).await.unwrap();
}

/// Another process begins, at the time of the first one.
async fn start_again(store: &TestStore, clock: &Clock) -> (Scheduler, Running) {
    let (scheduler, running, _) =
        start_with(store, handlers(), |options| options.clock = clock.clone()).await;
    (scheduler, running)
}

/// The clock moves on, and the loop sees it.
async fn pass(scheduler: &Scheduler, clock: &Clock, span: Span) {
    clock.advance(span);
    // The first batch closes what is over, the others store it.
    for _ in 0..3 {
        scheduler.barrier().await.unwrap();
    }
}

#[tokio::test]
async fn jobs_are_counted_by_minute_lane_and_kind() {
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers()).await;
    end(&scheduler, "work").await;
    end(&scheduler, "break").await;
    pass(&scheduler, &clock, MINUTE).await;
    end(&scheduler, "work").await;

    let view = hour(&scheduler, None, None);
    assert_eq!(view.points.len(), 60);
    assert_eq!(minutes(&view), [(1, 2, 2), (0, 1, 1)]);
    assert_eq!((view.total.succeeded, view.total.failed, view.total.canceled), (2, 1, 0));
    assert_eq!((view.total.wait.count(), view.total.run.count()), (3, 3));
    let groups: Vec<_> =
        view.groups.iter().map(|group| (group.of.clone(), group.activity.submitted)).collect();
    let of = |kind| Some((Name::fixed("main"), Name::fixed(kind)));
    assert_eq!(groups, [(of("work"), 2), (of("break"), 1)]);

    let broken = hour(&scheduler, None, Some(&Name::fixed("break")));
    assert_eq!((broken.total.submitted, broken.total.failed), (1, 1));
    assert_eq!(hour(&scheduler, Some(&Name::fixed("bulk")), None).total.submitted, 0);
    let others = scheduler.history(Some(&Name::fixed("acme")), Range::Hour, None, None);
    assert_eq!(others.total.submitted, 0, "another tenant sees nothing of it");
    assert_eq!(scheduler.history(None, Range::Hour, None, None).total, view.total);
    assert_eq!(scheduler.history(None, Range::Day, None, None).total, view.total);
}

#[tokio::test]
async fn waiting_and_running_jobs_are_sampled_and_times_are_measured() {
    let (handlers, mut entered, let_go) = gated();
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers).await;
    let runs = submit(&scheduler, job("work")).await;
    entered.recv().await.unwrap();
    submit(&scheduler, job("unserved")).await;
    pass(&scheduler, &clock, Span(20_000)).await;
    let view = hour(&scheduler, None, None);
    let now = view.points.last().unwrap();
    assert_eq!((now.waiting, now.running), (1, 1));
    assert_eq!(
        view.lanes.iter().map(|of| (of.lane.as_str(), of.waiting[59], of.running[59])).collect::<Vec<_>>(),
        [("main", 1, 1)]
    );
    let_go.send_replace(true);
    scheduler.wait(runs).await.unwrap();
    let run = hour(&scheduler, None, None).total.run.quantile(0.5).unwrap();
    assert!(run.abs_diff(20_000) < 20_000 / 16, "{run}");
}

#[tokio::test]
async fn a_crash_loses_the_open_minute_and_nothing_before_it() {
    let store = TestStore::default();
    let (scheduler, running, clock) = start(&store, handlers()).await;
    end(&scheduler, "work").await;
    pass(&scheduler, &clock, MINUTE).await;
    end(&scheduler, "work").await;
    end(&scheduler, "work").await;
    // The next commit fails, and the loop ends without another one: as after `kill -9`.
    store.break_commits(true);
    assert!(scheduler.submit(job("work")).await.is_err());
    assert!(running.ended().await.is_err());
    drop(scheduler);

    store.break_commits(false);
    let (scheduler, running) = start_again(&store, &clock).await;
    let view = hour(&scheduler, None, None);
    assert_eq!(minutes(&view), [(1, 1, 1)], "the first minute was stored, the second one was open");

    // A graceful stop stores the open minute as well, and the next process continues it.
    end(&scheduler, "work").await;
    scheduler.drain(std::time::Duration::from_secs(5)).await.unwrap();
    running.ended().await.unwrap();
    drop(scheduler);
    let (scheduler, _running) = start_again(&store, &clock).await;
    let view = hour(&scheduler, None, None);
    assert_eq!(minutes(&view), [(1, 1, 1), (0, 1, 1)]);
    assert_eq!(scheduler.history(None, Range::Hour, None, None).total, view.total);
}

#[tokio::test]
async fn quarters_are_the_sums_of_their_minutes_also_across_a_restart() {
    let store = TestStore::default();
    let (scheduler, running, clock) = start(&store, handlers()).await;
    for _ in 0..40 {
        end(&scheduler, "work").await;
        pass(&scheduler, &clock, MINUTE).await;
    }
    let before = scheduler.history(Some(&tenant()), Range::Day, None, None);
    assert_eq!(before.points.len(), 96);
    assert_eq!(before.total.submitted, 40);
    scheduler.drain(std::time::Duration::from_secs(5)).await.unwrap();
    running.ended().await.unwrap();
    drop(scheduler);

    let (scheduler, _running) = start_again(&store, &clock).await;
    // Two hours later the minutes are gone, and the quarters are still there.
    pass(&scheduler, &clock, Span(160 * 60_000)).await;
    assert_eq!(hour(&scheduler, None, None).total.submitted, 0);
    let day = scheduler.history(Some(&tenant()), Range::Day, None, None);
    assert_eq!(day.total.submitted, 40);
    assert_eq!(day.points.iter().filter(|point| point.activity.submitted > 0).count(), 4);
    // After more than a day nothing is left, not even records.
    pass(&scheduler, &clock, Span(27 * 3_600_000)).await;
    for _ in 0..60 {
        pass(&scheduler, &clock, MINUTE).await;
    }
    assert_eq!(scheduler.history(Some(&tenant()), Range::Day, None, None).total.submitted, 0);
    let left = scheduler.records(tenant(), Name::fixed("~history"), None, 1_000).await.unwrap();
    assert_eq!(left.len(), 0);
    scheduler.check_invariants().await.unwrap().unwrap();
}

#[tokio::test]
async fn records_of_the_history_have_no_events_and_are_overwritten() {
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers()).await;
    let mut events = scheduler.events().subscribe(None);
    for _ in 0..100 {
        end(&scheduler, "work").await;
        pass(&scheduler, &clock, MINUTE).await;
    }
    let records = scheduler.records(tenant(), Name::fixed("~history"), None, 1_000).await.unwrap();
    assert_eq!(records.len(), 90 + 7, "90 minutes and the quarters so far");
    assert!(records.iter().all(|record| record.body.len() < 100), "a record of one kind is small");
    let last = RecordName { tenant: tenant(), collection: Name::fixed("seen"), id: Name::fixed("last") };
    scheduler.put_record(last, None, [].into(), origin()).await.unwrap();
    loop {
        let Item::Event(event) = events.next().await.unwrap() else { continue };
        let event: &Event = &event;
        if event.kind == EventKind::RecordPut {
            assert!(event.detail.as_deref().is_some_and(|detail| detail.starts_with("seen/last")));
            break;
        }
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_leaves_a_usable_history() {
    let (scheduler, _running, clock) = start(&TestStore::default(), handlers()).await;
    end(&scheduler, "work").await;
    pass(&scheduler, &clock, MINUTE).await;
    clock.set_wall(-3 * 3_600_000);
    scheduler.barrier().await.unwrap();
    end(&scheduler, "work").await;
    pass(&scheduler, &clock, MINUTE).await;
    end(&scheduler, "work").await;
    assert!(clock.now().wall < START.wall);
    assert_eq!(minutes(&hour(&scheduler, None, None)), [(1, 1, 1), (0, 1, 1)]);
}

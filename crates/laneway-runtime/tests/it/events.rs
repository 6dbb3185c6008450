//! The numbered bus: live, from the ring, from the store, and what is gone.

use laneway_core::{Event, EventKind, Failure, Span};
use laneway_runtime::{Handlers, Item, JobContext, QueryError, Subscription};

use crate::house::{TestStore, job, start, start_with, submit};

/// Waits for an event of this kind.
pub async fn event_of_kind(events: &mut Subscription, kind: EventKind) -> Event {
    loop {
        if let Item::Event(event) = events.next().await.unwrap()
            && event.kind == kind
        {
            return (*event).clone();
        }
    }
}

async fn numbers(events: &mut Subscription, until: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&until) {
        match events.next().await.unwrap() {
            Item::Event(event) => numbers.push(event.number),
            other => panic!("no {other:?} is expected"),
        }
    }
    numbers
}

fn noop() -> Handlers {
    Handlers::new().on("noop", |_: JobContext| async { Ok::<(), Failure>(()) })
}

#[tokio::test]
async fn a_listener_hears_a_jobs_way_in_order() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), noop()).await;
    let mut events = scheduler.events().subscribe(None);
    submit(&scheduler, job("noop")).await;
    let mut kinds = Vec::new();
    while kinds.last() != Some(&EventKind::JobSucceeded) {
        if let Item::Event(event) = events.next().await.unwrap() {
            kinds.push(event.kind);
        }
    }
    assert_eq!(kinds, [EventKind::JobSubmitted, EventKind::JobStarted, EventKind::JobSucceeded]);
}

#[tokio::test]
async fn a_listener_that_comes_back_hears_what_it_missed_although_the_ring_is_small() {
    let store = TestStore::default();
    let (scheduler, _running, _clock) =
        start_with(&store, noop(), |options| options.events_len_max = 4).await;
    for _ in 0..50 {
        let id = submit(&scheduler, job("noop")).await;
        scheduler.wait(id).await.unwrap();
    }
    let latest = scheduler.events().latest();
    assert!(latest >= 150, "{latest}");
    let mut from_start = scheduler.events().subscribe(Some(0));
    assert_eq!(numbers(&mut from_start, latest).await, (1..=latest).collect::<Vec<_>>());
    let mut from_middle = scheduler.events().subscribe(Some(latest - 100));
    assert_eq!(numbers(&mut from_middle, latest).await, (latest - 99..=latest).collect::<Vec<_>>());
    // Live again, across the seam between store and ring.
    let id = submit(&scheduler, job("noop")).await;
    scheduler.wait(id).await.unwrap();
    let newest = scheduler.events().latest();
    assert_eq!(numbers(&mut from_start, newest).await, (latest + 1..=newest).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_no_longer_kept_is_one_gap() {
    let store = TestStore::default();
    let (scheduler, _running, clock) = start_with(&store, noop(), |options| {
        options.events_len_max = 1;
        options.settings.event_retention = Span::secs(60);
    })
    .await;
    for _ in 0..5 {
        let id = submit(&scheduler, job("noop")).await;
        scheduler.wait(id).await.unwrap();
    }
    let old = scheduler.events().latest();
    clock.advance(Span::secs(120));
    // The sweep rides on the next looks at the clock; until it has, nothing is gone.
    while scheduler.query(|reader| reader.first_event()).await.unwrap() <= 1 {
        let id = submit(&scheduler, job("noop")).await;
        scheduler.wait(id).await.unwrap();
    }
    let first_kept = scheduler.query(|reader| reader.first_event()).await.unwrap();
    assert!(first_kept > old - 3, "{first_kept} of {old}");
    let mut events = scheduler.events().subscribe(Some(2));
    let Item::Gap { from, to } = events.next().await.unwrap() else { panic!("the gap comes first") };
    assert_eq!((from, to), (3, first_kept - 1));
    let latest = scheduler.events().latest();
    assert_eq!(numbers(&mut events, latest).await, (first_kept..=latest).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_number_that_was_never_given_counts_as_the_latest() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), noop()).await;
    let mut events = scheduler.events().subscribe(Some(1_000_000));
    let latest = scheduler.events().latest();
    submit(&scheduler, job("noop")).await;
    let Item::Event(event) = events.next().await.unwrap() else { panic!("an event comes first") };
    assert_eq!(event.number, latest + 1);
}

#[tokio::test]
async fn listeners_hear_the_rest_and_then_that_it_is_over() {
    let (scheduler, running, _clock) = start(&TestStore::default(), noop()).await;
    let mut events = scheduler.events().subscribe(None);
    let id = submit(&scheduler, job("noop")).await;
    scheduler.wait(id).await.unwrap();
    scheduler.drain(std::time::Duration::from_secs(1)).await.unwrap();
    running.ended().await.unwrap();
    event_of_kind(&mut events, EventKind::JobSucceeded).await;
    event_of_kind(&mut events, EventKind::DrainBegan).await;
    assert!(matches!(events.next().await, Err(QueryError::Stopped(_))));
}

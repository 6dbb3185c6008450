//! The numbered bus: live, from the ring, from the store, and what is gone.

use bytes::Bytes;
use laneway_core::{Event, EventKind, Failure, Name, Span};
use laneway_runtime::{
    Frames, Handlers, Interest, Item, JobContext, Jobs, ReadError, Representation, Scheduler, Subscription,
};

use crate::harness::{TestStore, job, start, start_with, submit};

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
    while scheduler.read(|reader| reader.first_event()).await.unwrap() <= 1 {
        let id = submit(&scheduler, job("noop")).await;
        scheduler.wait(id).await.unwrap();
    }
    let first_kept = scheduler.read(|reader| reader.first_event()).await.unwrap();
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
    assert!(matches!(events.next().await, Err(ReadError::Stopped(_))));
}

/// A frame of the event's number.
fn frame(item: &Item) -> Bytes {
    match item {
        Item::Event(event) => {
            event.encoded(Representation::Native, |event| format!("{}\n", event.number).into())
        }
        _ => Bytes::new(),
    }
}

/// The numbers of the frames up to `until`.
async fn framed(events: &mut Subscription, until: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = Vec::new();
    while numbers.last().is_none_or(|last| *last < until) {
        match events.next_frames(frame).await.unwrap() {
            Frames::Some(bytes) => {
                let text = std::str::from_utf8(&bytes).unwrap();
                numbers.extend(text.lines().map(|line| line.parse::<u64>().unwrap()));
            }
            Frames::Behind { after } => panic!("behind after {after}"),
        }
    }
    numbers
}

fn of_tenant(tenant: &'static str) -> Interest {
    Interest { tenant: Some(Name::fixed(tenant)), ..Interest::everything() }
}

async fn run_job(scheduler: &Scheduler, tenant: &'static str) {
    let mut submission = job("noop");
    submission.spec.tenant = Name::fixed(tenant);
    let id = submit(scheduler, submission).await;
    scheduler.wait(id).await.unwrap();
}

#[tokio::test]
async fn defect_10_an_event_is_encoded_once_for_all_readers() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), noop()).await;
    let first = scheduler.events().latest();
    let mut readers: Vec<Subscription> = (0..100)
        .map(|n| {
            // Readers with other interests share the frames, too.
            let interest = if n % 2 == 0 { of_tenant("default") } else { Interest::everything() };
            scheduler.events().listen(interest, None)
        })
        .collect();
    for _ in 0..20 {
        run_job(&scheduler, "default").await;
    }
    let latest = scheduler.events().latest();
    for reader in &mut readers {
        assert_eq!(framed(reader, latest).await, (first + 1..=latest).collect::<Vec<_>>());
    }
    let (events, counts) = (latest - first, scheduler.events().listener_counts());
    assert_eq!((counts.encoded, counts.delivered), (events, 100 * events));
    // A listener that comes late finds them, too.
    let mut late = scheduler.events().listen(of_tenant("default"), Some(first));
    framed(&mut late, latest).await;
    assert_eq!(scheduler.events().listener_counts().encoded, events);
}

#[tokio::test]
async fn defect_10_readers_of_another_tenant_sleep_on() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), noop()).await;
    let other = Interest::in_jobs(Some(Name::fixed("default")), Jobs::OfAgent(Name::fixed("unserved")));
    let of_other_job = Interest::in_jobs(None, Jobs::One(laneway_core::JobId(1)));
    let schedules = Interest { others: true, ..Interest::in_jobs(Some(Name::fixed("default")), Jobs::None) };
    let asleep = [of_tenant("b"), other, of_other_job, schedules];
    let readers: Vec<_> = asleep.iter().cycle().take(40).cloned().collect();
    let readers: Vec<_> = readers
        .into_iter()
        .map(|interest| {
            let mut events = scheduler.events().listen(interest, None);
            tokio::spawn(async move { events.next_frames(frame).await })
        })
        .collect();
    for _ in 0..20 {
        run_job(&scheduler, "default").await;
    }
    assert_eq!(scheduler.events().listener_counts(), Default::default(), "no listener woke up");
    run_job(&scheduler, "b").await;
    for reader in readers.into_iter().step_by(asleep.len()) {
        assert!(matches!(reader.await.unwrap(), Ok(Frames::Some(_))));
    }
    assert!(scheduler.events().listener_counts().woken >= 10);
}

#[tokio::test]
async fn defect_10_a_reader_that_falls_behind_is_cut_off_and_misses_nothing_when_it_comes_back() {
    let store = TestStore::default();
    let (scheduler, _running, _clock) =
        start_with(&store, noop(), |options| options.events_len_max = 8).await;
    let mut events = scheduler.events().listen(of_tenant("default"), None);
    run_job(&scheduler, "default").await;
    let seen = scheduler.events().latest();
    framed(&mut events, seen).await;
    for _ in 0..20 {
        run_job(&scheduler, "default").await;
    }
    let Frames::Behind { after } = events.next_frames(frame).await.unwrap() else { panic!("it is behind") };
    assert_eq!(after, seen);
    let latest = scheduler.events().latest();
    let mut again = scheduler.events().listen(of_tenant("default"), Some(after));
    assert_eq!(framed(&mut again, latest).await, (seen + 1..=latest).collect::<Vec<_>>());
    // A reader of events, not of frames, is not cut off: the store has what it missed.
    assert_eq!(numbers(&mut events, latest).await, (seen + 1..=latest).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_heard_live_from_the_ring_and_from_the_store_is_what_matches() {
    let store = TestStore::default();
    let (scheduler, _running, _clock) =
        start_with(&store, noop(), |options| options.events_len_max = 40).await;
    let agent = |name| Interest::in_jobs(Some(Name::fixed("b")), Jobs::OfAgent(Name::fixed(name)));
    let lane = |tenant| Interest::in_jobs(tenant, Jobs::OfLane(Name::fixed("main")));
    let interests = [
        Interest::everything(),
        of_tenant("default"),
        of_tenant("b"),
        agent("x"),
        lane(Some(Name::fixed("b"))),
        lane(None),
        Interest { others: true, ..agent("x") },
    ];
    let first = scheduler.events().latest();
    let mut live: Vec<_> =
        interests.iter().map(|interest| scheduler.events().listen(interest.clone(), None)).collect();
    for n in 0..40 {
        let mut submission = job("noop");
        submission.spec.tenant = Name::fixed(if n % 3 == 0 { "b" } else { "default" });
        submission.spec.agent = Name::fixed(if n % 2 == 0 { "x" } else { "y" });
        let id = submit(&scheduler, submission).await;
        scheduler.wait(id).await.unwrap();
    }
    let all = scheduler
        .read(move |reader| reader.events_after(&Default::default(), first, 1_000))
        .await
        .unwrap()
        .items;
    for (interest, live) in interests.iter().zip(&mut live) {
        let expected: Vec<u64> =
            all.iter().filter(|event| interest.matches(event)).map(|event| event.number).collect();
        let last = *expected.last().unwrap();
        assert_eq!(numbers(live, last).await, expected, "live: {interest:?}");
        let mut replayed = scheduler.events().listen(interest.clone(), Some(first));
        assert_eq!(numbers(&mut replayed, last).await, expected, "replayed: {interest:?}");
    }
}

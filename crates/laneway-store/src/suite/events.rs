//! The event log: pages both ways, histories, retention, the chain.

use laneway_core::{AttemptEnd, Change, Event, EventKind, Name, Reason, Seq, Wall};

use super::driver::{Driver, failure, rich_spec};
use super::{Case, Fixture};
use crate::{EventFilter, Page};

pub(super) const CASES: &[Case] = &[
    ("every event comes back", every_event_comes_back),
    ("events in pages, oldest first", pages_forward),
    ("events in pages, newest first", pages_backward),
    ("events of a tenant, events of calls", filtered),
    ("events about dispatches", dispatches),
    ("the history of a job", history_of_a_job),
    ("old events go, the chain stays", prune),
];

/// A few jobs with a life each, over several commits.
fn lives(fixture: &dyn Fixture) -> Driver {
    let mut driver = Driver::new(fixture);
    for n in 0..6u32 {
        let mut row = driver.draft();
        if n % 2 == 1 {
            row.spec = rich_spec();
            row.spec.idempotency = None;
        }
        let job = driver.submit(row, b"{}");
        if n % 3 == 0 {
            driver.commit();
        }
        driver.open(job);
        driver.close(job, AttemptEnd::Failed, Some(failure()));
        driver.wait(job, None);
        driver.server_event(EventKind::ConfigChanged, "lanes.main.running_max = 5 → 6");
        driver.open(job);
        driver.commit();
        driver.start(job);
        driver.finish(job, None);
    }
    driver.commit();
    driver
}

fn all(driver: &Driver) -> Vec<Event> {
    let page = driver.reader.events_after(&EventFilter::default(), 0, 10_000).expect("reads");
    assert_eq!(page.next, None);
    page.items
}

fn every_event_comes_back(fixture: &dyn Fixture) {
    let mut driver = lives(fixture);
    let jobs: Vec<Seq> = driver.jobs.keys().copied().collect();
    for (index, kind) in EventKind::ALL.into_iter().enumerate() {
        driver.event(jobs[index % jobs.len()], kind, Reason::from_code(index as u8));
        // The wall clock may jump back.
        driver.now = Wall(driver.now.0 - 1_500);
    }
    driver.commit();
    assert_eq!(all(&driver), driver.events);
    let count = driver.events.len() as u64;
    assert_eq!(driver.reader.verify_events().expect("verifies"), count);
    assert_eq!(driver.reader.first_event().expect("reads"), 1);
    let driver = driver.reopen(fixture);
    assert_eq!(all(&driver), driver.events);
    assert_eq!(driver.reader.verify_events().expect("verifies"), count);
}

fn pages_forward(fixture: &dyn Fixture) {
    let driver = lives(fixture);
    for limit in [0, 1, 7, 1_000] {
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let page = driver.reader.events_after(&EventFilter::default(), after, limit).expect("reads");
            assert!(page.items.len() <= limit.max(1));
            seen.extend(page.items);
            let Some(next) = page.next else { break };
            after = next;
        }
        assert_eq!(seen, driver.events, "limit {limit}");
    }
    let last = driver.events.len() as u64;
    let nothing = Page { items: Vec::new(), next: None };
    for after in [last, last + 1, u64::MAX] {
        assert_eq!(driver.reader.events_after(&EventFilter::default(), after, 5).expect("reads"), nothing);
    }
}

fn pages_backward(fixture: &dyn Fixture) {
    let driver = lives(fixture);
    let expected: Vec<Event> = driver.events.iter().rev().cloned().collect();
    for limit in [0, 1, 7, 1_000] {
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let page = driver.reader.events_before(&EventFilter::default(), before, limit).expect("reads");
            assert!(page.items.len() <= limit.max(1));
            seen.extend(page.items);
            let Some(next) = page.next else { break };
            before = Some(next);
        }
        assert_eq!(seen, expected, "limit {limit}");
    }
    let page = driver.reader.events_before(&EventFilter::default(), Some(1), 5).expect("reads");
    assert_eq!((page.items.len(), page.next), (0, None));
}

fn filtered(fixture: &dyn Fixture) {
    let driver = lives(fixture);
    let filters = [
        EventFilter { tenant: Some(Name::fixed("acme")), ..EventFilter::default() },
        EventFilter { tenant: Some(Name::fixed("acme")), called: true, ..EventFilter::default() },
        EventFilter { tenant: Some(Name::fixed("unknown")), ..EventFilter::default() },
        EventFilter { called: true, ..EventFilter::default() },
        EventFilter { kind: Some(EventKind::JobSubmitted), ..EventFilter::default() },
    ];
    for filter in filters {
        let expected: Vec<&Event> = driver
            .events
            .iter()
            .filter(|event| filter.tenant.is_none() || event.tenant == filter.tenant)
            .filter(|event| !filter.called || event.actor.is_some())
            .filter(|event| filter.kind.is_none_or(|kind| event.kind == kind))
            .collect();
        let forward = driver.reader.events_after(&filter, 0, 1_000).expect("reads").items;
        assert_eq!(forward.iter().collect::<Vec<_>>(), expected);
        let backward = driver.reader.events_before(&filter, None, 1_000).expect("reads").items;
        assert_eq!(backward.iter().rev().collect::<Vec<_>>(), expected);
        assert_eq!(expected.is_empty(), filter.tenant == Some(Name::fixed("unknown")));
    }
}

fn dispatches(fixture: &dyn Fixture) {
    let mut driver = lives(fixture);
    let job = driver.submit_plain();
    driver.open(job);
    driver.with_detail("cmd.dispatch 1 dispatched worker w1");
    // A worker may have any name, and events about workers begin with it.
    driver.server_event(EventKind::WorkerConnected, "cmd.dispatch 1 accepted worker w1: registered");
    driver.commit();
    let filter = EventFilter { dispatches: true, ..EventFilter::default() };
    let found = driver.reader.events_before(&filter, None, 10).expect("reads").items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].detail.as_deref(), Some("cmd.dispatch 1 dispatched worker w1"));
    assert_eq!(found[0].job.as_ref().map(|line| line.seq), Some(job));
}

fn history(driver: &Driver, job: Seq) -> Vec<Event> {
    let is_of_job = |event: &&Event| event.job.as_ref().is_some_and(|line| line.seq == job);
    driver.events.iter().filter(is_of_job).cloned().collect()
}

fn history_of_a_job(fixture: &dyn Fixture) {
    let mut driver = lives(fixture);
    // Live, open, and outlived by its attempt: the latest event is kept in another row each time.
    let jobs = [driver.submit_plain(), driver.submit_plain(), driver.submit_plain()];
    driver.open(jobs[1]);
    driver.open(jobs[2]);
    driver.cancel(jobs[2]);
    driver.close(jobs[2], AttemptEnd::Canceled, None);
    driver.commit();
    for &job in driver.jobs.keys() {
        let expected = history(&driver, job);
        assert!(!expected.is_empty());
        assert_eq!(driver.reader.events_of(job, 100).expect("reads"), expected);
        let latest = &expected[expected.len().saturating_sub(2)..];
        assert_eq!(driver.reader.events_of(job, 2).expect("reads"), latest);
    }
}

fn prune(fixture: &dyn Fixture) {
    let mut driver = lives(fixture);
    let half = driver.events[driver.events.len() / 2].at;
    driver.effects.changes.push(Change::EventsPruned { before: Wall(0) });
    driver.commit();
    assert_eq!(all(&driver), driver.events);
    driver.effects.changes.push(Change::EventsPruned { before: half });
    driver.commit();
    let kept = all(&driver);
    // Whole commits go, and none that has an event from then or later.
    assert!(kept.len() < driver.events.len());
    assert!(kept[0].at <= half, "nothing was forgotten too early");
    assert_eq!(kept, driver.events[driver.events.len() - kept.len()..]);
    assert_eq!(driver.reader.first_event().expect("reads"), kept[0].number);
    assert_eq!(driver.reader.verify_events().expect("verifies"), kept.len() as u64);
    // A reader of pruned events gets those that are left, and sees the gap in the numbers.
    let page = driver.reader.events_after(&EventFilter::default(), 1, 1).expect("reads");
    assert_eq!(page.items[0].number, kept[0].number);
    let gone_in_part = kept[0].job.as_ref().map_or(Seq(3), |line| line.seq);
    let expected: Vec<Event> =
        history(&driver, gone_in_part).into_iter().filter(|event| event.number >= kept[0].number).collect();
    assert_eq!(driver.reader.events_of(gone_in_part, 100).expect("reads"), expected);

    let mut driver = driver.reopen(fixture);
    driver.effects.changes.push(Change::EventsPruned { before: Wall(i64::MAX) });
    driver.server_event(EventKind::DrainBegan, "the events of this commit stay");
    driver.commit();
    assert_eq!(all(&driver), driver.events[driver.events.len() - 1..]);
    driver.effects.changes.push(Change::EventsPruned { before: Wall(i64::MAX) });
    driver.commit();
    assert_eq!(driver.reader.first_event().expect("reads"), 0);
    assert_eq!(driver.reader.verify_events().expect("verifies"), 0);
    let mut driver = driver.reopen(fixture);
    driver.submit_plain();
    driver.commit();
    assert_eq!(all(&driver), driver.events[driver.events.len() - 1..]);
    assert_eq!(driver.reader.verify_events().expect("verifies"), 1);
}

//! Lists: filters, pages, bounds.

use laneway_core::{AttemptEnd, JobState, Name, Seq, Session, Wall};

use super::driver::{Driver, START};
use super::{Case, Fixture};
use crate::{JobFilter, ROWS_SCANNED_MAX};

pub(super) const CASES: &[Case] = &[
    ("a list shows what its filter says", filters),
    ("pages follow one another", pages),
    ("a list looks at a bounded number of rows", bounded_scan),
    ("what is not there is not found", not_found),
    ("a reader sees what is committed", reader_sees_commits),
];

fn name(text: &str) -> Name {
    Name::new(text).expect("is a name")
}

fn listed(driver: &Driver, filter: &JobFilter) -> Vec<u64> {
    let page = driver.reader.jobs(filter, None, 1_000).expect("reads");
    assert_eq!(page.next, None);
    page.items.iter().map(|job| job.row.seq.0).collect()
}

fn filters(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for n in 0..12u32 {
        let mut row = driver.draft();
        row.spec.tenant = name(if n % 2 == 0 { "even" } else { "odd" });
        row.spec.lane = name(if n < 6 { "low" } else { "high" });
        row.spec.agent = name(&format!("agent-{}", n % 3));
        row.spec.kind = name(&format!("kind-{}", n % 4));
        row.spec.session = (n % 5 == 0).then(|| Session::new(name(&format!("session-{n}"))));
        row.spec.tags = vec![name(&format!("tag-{}", n % 6)), name("all")];
        driver.submit(row, b"{}");
    }
    driver.finish(Seq(1), None);
    driver.open(Seq(2));
    driver.start(Seq(2));
    driver.open(Seq(3));
    driver.cancel(Seq(4));
    driver.open(Seq(5));
    driver.close(Seq(5), AttemptEnd::Failed, None);
    driver.wait(Seq(5), Some(START));
    driver.commit();
    let list = |filter: JobFilter| listed(&driver, &filter);
    let any = JobFilter::default;
    assert_eq!(list(any()), (1..=12).rev().collect::<Vec<u64>>());
    assert_eq!(list(JobFilter { tenant: Some(name("odd")), ..any() }), [12, 10, 8, 6, 4, 2]);
    assert_eq!(list(JobFilter { tenant: Some(name("unknown")), ..any() }), [0; 0]);
    assert_eq!(list(JobFilter { lane: Some(name("low")), ..any() }), [6, 5, 4, 3, 2, 1]);
    assert_eq!(list(JobFilter { agent: Some(name("agent-2")), ..any() }), [12, 9, 6, 3]);
    assert_eq!(list(JobFilter { kind: Some(name("kind-3")), ..any() }), [12, 8, 4]);
    assert_eq!(list(JobFilter { session: Some(name("session-5")), ..any() }), [6]);
    assert_eq!(list(JobFilter { tag: Some(name("tag-1")), ..any() }), [8, 2]);
    assert_eq!(
        list(JobFilter { tag: Some(name("all")), lane: Some(name("high")), ..any() }),
        [12, 11, 10, 9, 8, 7]
    );
    let states = |states: &[JobState]| list(JobFilter { states: states.to_vec(), ..any() });
    assert_eq!(states(&[JobState::Queued]), [12, 11, 10, 9, 8, 7, 6]);
    assert_eq!(states(&[JobState::Running, JobState::Assigned]), [3, 2]);
    assert_eq!(states(&[JobState::Succeeded]), [1]);
    assert_eq!(states(&[JobState::Canceled, JobState::Scheduled]), [5, 4]);
    assert_eq!(states(&[JobState::Rejected]), [0; 0]);
    let created = driver.jobs[&Seq(4)].view.row.created_at;
    assert_eq!(list(JobFilter { created_before: Some(created), ..any() }), [3, 2, 1]);
    assert_eq!(
        list(JobFilter { created_after: Some(created), tenant: Some(name("even")), ..any() }),
        [11, 9, 7, 5]
    );
    let window = JobFilter {
        created_after: Some(Wall(created.0 - 1)),
        created_before: Some(Wall(created.0 + 1)),
        ..any()
    };
    assert_eq!(list(window), [4]);
}

fn pages(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for n in 0..23 {
        let mut row = driver.draft();
        row.spec.agent = name(if n % 3 == 0 { "a" } else { "b" });
        let job = driver.submit(row, b"{}");
        if n % 4 == 0 {
            driver.finish(job, None);
        }
    }
    driver.commit();
    for (filter, expected) in [
        (JobFilter::default(), (1..=23).rev().collect::<Vec<u64>>()),
        (JobFilter { agent: Some(name("a")), ..JobFilter::default() }, vec![22, 19, 16, 13, 10, 7, 4, 1]),
    ] {
        for limit in [0, 1, 4, 8, 22, 23, 24, usize::MAX] {
            let (mut before, mut seen) = (None, Vec::new());
            loop {
                let page = driver.reader.jobs(&filter, before, limit).expect("reads");
                assert!(page.items.len() <= limit.max(1));
                seen.extend(page.items.iter().map(|job| job.row.seq.0));
                let Some(next) = page.next else { break };
                before = Some(Seq(next));
            }
            assert_eq!(seen, expected, "limit {limit}");
        }
    }
}

fn bounded_scan(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let count = ROWS_SCANNED_MAX as u64 + 10;
    for _ in 0..count {
        driver.submit_plain();
    }
    driver.commit();
    let filter = JobFilter { agent: Some(name("unknown")), ..JobFilter::default() };
    let page = driver.reader.jobs(&filter, None, 10).expect("reads");
    assert_eq!((page.items.len(), page.next), (0, Some(11)));
    let page = driver.reader.jobs(&filter, Some(Seq(11)), 10).expect("reads");
    assert_eq!((page.items.len(), page.next), (0, None));
    let events = driver.reader.events_before(
        &crate::EventFilter { tenant: Some(name("unknown")), ..Default::default() },
        None,
        5,
    );
    assert_eq!(events.expect("reads").next, Some(11));
}

fn not_found(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let draft = driver.draft();
    driver.forget_drafts();
    assert_eq!(driver.reader.job(draft.id).expect("reads"), None);
    assert_eq!(driver.reader.payload(draft.seq).expect("reads"), None);
    assert_eq!(driver.reader.attempts(draft.seq).expect("reads"), []);
    assert_eq!(driver.reader.logs(draft.seq, 0, 10).expect("reads"), []);
    assert_eq!(driver.reader.events_of(draft.seq, 10).expect("reads"), []);
    assert_eq!(driver.reader.first_event().expect("reads"), 0);
    assert_eq!(driver.reader.verify_events().expect("verifies"), 0);
}

fn reader_sees_commits(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let job = driver.submit_plain();
    let id = driver.known(job).view.row.id;
    let other = driver.store.reader();
    assert_eq!(other.job(id).expect("reads"), None, "it is not committed");
    driver.commit();
    assert_eq!(other.job(id).expect("reads").expect("is there").state(), JobState::Queued);
    driver.finish(job, None);
    driver.commit();
    let readers: Vec<_> = (0..8).map(|_| std::sync::Arc::clone(&other)).collect();
    let threads = readers
        .into_iter()
        .map(|reader| std::thread::spawn(move || reader.job(id).expect("reads").expect("is there").state()));
    for thread in threads.collect::<Vec<_>>() {
        assert_eq!(thread.join().expect("does not panic"), JobState::Succeeded);
    }
}

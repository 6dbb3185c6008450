//! Lists: filters, pages, bounds.

use laneway_core::{AttemptEnd, Change, Failure, JobId, JobState, Name, Reason, Seq, Session, Wall};

use super::driver::{Driver, START};
use super::{Case, Fixture};
use crate::{CountBy, JobCounts, JobFilter, ROWS_SCANNED_MAX, Search};

pub(super) const CASES: &[Case] = &[
    ("a list shows what its filter says", filters),
    ("a list shows what ended as its filter says", filters_of_ends),
    ("a search finds words and ids", searches),
    ("counts are exact", counts),
    ("deleted jobs are in no list and no count", pruned),
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

fn failed(code: &'static str, message: &str) -> Failure {
    Failure::retryable(code, message)
}

fn filters_of_ends(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for n in 0..8u32 {
        let mut row = driver.draft();
        row.spec.kind = name(if n % 2 == 0 { "even" } else { "odd" });
        driver.submit(row, b"{}");
    }
    driver.finish(Seq(1), None);
    for seq in [2, 3] {
        driver.open(Seq(seq));
        driver.start(Seq(seq));
        driver.fail(Seq(seq), failed("http_status", "the target answered 503"));
    }
    driver.open(Seq(4));
    driver.fail(Seq(4), failed("panicked", "index out of bounds"));
    driver.cancel(Seq(5));
    driver.commit();
    let list = |filter: JobFilter| listed(&driver, &filter);
    let any = JobFilter::default;
    let code = |code: &str| JobFilter { error_code: Some(name(code)), ..any() };
    assert_eq!(list(code("http_status")), [3, 2]);
    assert_eq!(list(code("unknown")), [0; 0]);
    assert_eq!(list(JobFilter { kind: Some(name("even")), ..code("http_status") }), [3]);
    assert_eq!(list(JobFilter { kind: Some(name("even")), ..code("panicked") }), [0; 0]);
    let reasons = |reasons: &[Reason]| JobFilter { reasons: reasons.to_vec(), ..any() };
    assert_eq!(list(reasons(&[Reason::Requested])), [5]);
    assert_eq!(list(reasons(&[Reason::Requested, Reason::Done])), [5, 1]);
    assert_eq!(list(reasons(&[Reason::Merged])), [0; 0]);
    let finished = |seq: u64| driver.jobs[&Seq(seq)].view.end.as_ref().expect("has ended").finished_at;
    assert_eq!(list(JobFilter { finished_before: Some(finished(3)), ..any() }), [2, 1]);
    assert_eq!(list(JobFilter { finished_after: Some(finished(3)), ..any() }), [5, 4]);
    let window = JobFilter {
        finished_after: Some(finished(1)),
        finished_before: Some(finished(4)),
        states: vec![JobState::Failed],
        ..any()
    };
    assert_eq!(list(window), [3, 2]);
    let none = JobFilter { states: vec![JobState::Queued], finished_after: Some(START), ..any() };
    assert_eq!(list(none), [0; 0], "what has not ended has no time of its end");
}

fn searches(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let kinds = ["render.frame", "SendMail", "render.still", "größer"];
    for kind in kinds {
        let mut row = driver.draft();
        row.spec.kind = name(kind);
        row.spec.agent = name("agent-7");
        row.id = JobId(row.id.0 | (0xbeef_0000 + u128::from(row.seq.0)));
        row.spec.tags = vec![name("order-4711"), name("eu")];
        driver.submit(row, b"{}");
    }
    driver.open(Seq(2));
    driver.fail(Seq(2), failed("smtp", "ConnectTimeout after 30 s: mail.example.net:25"));
    driver.commit();
    let list = |text: &str| {
        let search = Search::parse(text).expect("is a search");
        listed(&driver, &JobFilter { search: Some(search), ..JobFilter::default() })
    };
    assert_eq!(list("render"), [3, 1]);
    assert_eq!(list("rend"), [3, 1], "the beginning of a word is enough");
    assert_eq!(list("ender"), [0; 0], "another part is not");
    assert_eq!(list("RENDER frame"), [1]);
    assert_eq!(list("frame render.still"), [0; 0], "every word must be there");
    assert_eq!(list("timeout"), [2]);
    assert_eq!(list("connecttime mail"), [2]);
    assert_eq!(list("smtp"), [2]);
    assert_eq!(list("mail.example.net"), [2]);
    assert_eq!(list("4711"), [4, 3, 2, 1]);
    assert_eq!(list("GRÖS"), [0; 0]);
    assert_eq!(list("GRÖß"), [4]);
    assert_eq!(list("agent-7 eu send"), [2]);
    let id = driver.jobs[&Seq(3)].view.row.id;
    assert_eq!(list(&id.to_string()), [3]);
    assert_eq!(list(&format!("{id} still")), [3]);
    assert_eq!(list(&format!("{id} frame")), [0; 0]);
    let end = format!("{id}").replace('-', "");
    assert_eq!(list(&end[24..]), [3], "the short form of an id");
    assert_eq!(list(&end[24..].to_uppercase()), [3]);
    assert_eq!(list(&end[13..]), [3], "a longer end of it");
    assert_eq!(list(&format!("{} still", &end[24..])), [3]);
    assert_eq!(list(&format!("1{}", &end[24..])), [0; 0], "all digits count");
    assert_eq!(list(&end[25..]), [0; 0], "seven digits are a word");
    // The first digits are of a time that all of them have in common.
    let same = (id.0 >> 96) as u32;
    let all: Vec<u64> = driver
        .jobs
        .values()
        .rev()
        .filter(|job| (job.view.row.id.0 >> 96) as u32 == same)
        .map(|job| job.view.row.seq.0)
        .collect();
    assert_eq!(list(&format!("{same:08x}")), all);
    let filter = JobFilter {
        search: Search::parse("timeout").ok(),
        states: vec![JobState::Failed],
        kind: Some(name("SendMail")),
        tag: Some(name("eu")),
        ..JobFilter::default()
    };
    assert_eq!(listed(&driver, &filter), [2]);
    assert_eq!(listed(&driver, &JobFilter { states: vec![JobState::Queued], ..filter }), [0; 0]);
}

/// The count of jobs must be what listing them finds.
fn counts(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for n in 0..60u32 {
        let mut row = driver.draft();
        row.spec.tenant = name(if n % 3 == 0 { "a" } else { "b" });
        row.spec.lane = name(["main", "slow", "bulk"][n as usize % 3]);
        row.spec.kind = name(&format!("kind-{}", n % 4));
        row.spec.agent = name(&format!("agent-{}", n % 7));
        let job = driver.submit(row, b"{}");
        match n % 6 {
            0 => driver.finish(job, None),
            1 => {
                driver.open(job);
                driver.fail(job, failed(["x", "y"][n as usize % 2], "it broke"));
            }
            2 => drop(driver.open(job)),
            3 => {
                driver.open(job);
                driver.start(job);
            }
            4 => driver.cancel(job),
            _ => {}
        }
        if n % 13 == 0 {
            driver.commit();
        }
    }
    driver.commit();
    let any = JobFilter::default;
    let filters = [
        any(),
        JobFilter { tenant: Some(name("a")), ..any() },
        JobFilter { lane: Some(name("slow")), states: vec![JobState::Failed, JobState::Running], ..any() },
        JobFilter { search: Search::parse("broke kind").ok(), ..any() },
        JobFilter { error_code: Some(name("y")), ..any() },
        JobFilter { kind: Some(name("unknown")), ..any() },
        JobFilter { created_after: Some(driver.jobs[&Seq(31)].view.row.created_at), ..any() },
        JobFilter { finished_before: Some(driver.now), agent: Some(name("agent-3")), ..any() },
    ];
    for by in [CountBy::Nothing, CountBy::Lane, CountBy::Kind, CountBy::Agent, CountBy::ErrorCode] {
        for filter in &filters {
            let mut expected = JobCounts::default();
            for job in driver.reader.jobs(filter, None, 1_000).expect("reads").items {
                expected.all.add(job.state(), 1);
                if let Some(group) = by.group_of(&job) {
                    expected.groups.entry(group).or_default().add(job.state(), 1);
                }
            }
            let counted = driver.reader.count_jobs(filter, by).expect("counts");
            assert_eq!(counted, Some(expected), "{by:?} {filter:?}");
        }
    }
    let all = driver.reader.count_jobs(&any(), CountBy::Nothing).expect("counts").expect("is counted").all;
    assert_eq!((all.sum(), all.get(JobState::Running), all.get(JobState::Queued)), (60, 10, 10));
}

fn pruned(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for _ in 0..10 {
        let job = driver.submit_plain();
        if job.0.is_multiple_of(2) {
            driver.finish(job, None);
        }
    }
    driver.commit();
    let lane = driver.jobs[&Seq(1)].view.row.spec.lane.clone();
    driver.effects.changes.push(Change::JobsPruned {
        lane,
        finished_before: driver.now,
        keyed_finished_before: driver.now,
        max: 3,
    });
    driver.commit();
    assert_eq!(listed(&driver, &JobFilter::default()), [10, 9, 8, 7, 5, 3, 1]);
    let ended = JobFilter { states: vec![JobState::Succeeded], ..JobFilter::default() };
    assert_eq!(listed(&driver, &ended), [10, 8]);
    let kind = driver.jobs[&Seq(1)].view.row.spec.kind.clone();
    let counted = driver.reader.count_jobs(&JobFilter { kind: Some(kind), ..ended }, CountBy::Lane);
    let counted = counted.expect("counts").expect("is counted");
    assert_eq!((counted.all.sum(), counted.all.get(JobState::Succeeded)), (2, 2));
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
    // A store with an index knows at once that there is none.
    let page = driver.reader.jobs(&filter, None, 10).expect("reads");
    assert!(page.items.is_empty() && [None, Some(11)].contains(&page.next), "{:?}", page.next);
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

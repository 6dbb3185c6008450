//! Commits: every field comes back, folding changes nothing, a failed commit leaves nothing.

use std::sync::Arc;

use laneway_core::{
    AttemptEnd, Bytes, Change, EventKind, JobState, Name, Role, Seq, Span, TokenRecord, Wall,
};

use super::driver::{Driver, START, failure, key, rich_spec};
use super::{Case, Fixture};
use crate::{ARTIFACT_LINES_MAX, ARTIFACTS, Keys, LOG_BYTES_MAX, LOG_LINES_MAX, Runnable, StoreError};

pub(super) const CASES: &[Case] = &[
    ("every field of a job comes back", every_field_of_a_job),
    ("every state of a job comes back", every_state_of_a_job),
    ("a whole life in one commit", whole_life_in_one_commit),
    ("several lives of attempts in one commit", several_attempts_in_one_commit),
    ("who holds an attempt comes back", holders),
    ("an attempt that is rebound has the next epoch", rebound),
    ("tokens and overrides come back", tokens_and_overrides),
    ("keys are found again", keys_are_found_again),
    ("a taken number, id or key is rejected", taken_is_rejected),
    ("a failed commit leaves nothing", failed_commit_leaves_nothing),
    ("an empty commit is one", empty_commit),
    ("a store that was closed comes back whole", closed_comes_back),
    ("logs are kept up to a bound", logs_are_bounded),
    ("artifacts are kept however much is logged", artifacts_outlast_logs),
    ("payloads come in the order asked for", payloads_in_order),
];

fn every_field_of_a_job(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut rich = driver.draft();
    rich.spec = rich_spec();
    rich.status.state = JobState::Scheduled;
    rich.status.wake_at = Some(START + Span::secs(5));
    rich.status.attempts = 3;
    rich.status.failures = 2;
    rich.status.losses = 1;
    driver.submit(rich, &[0, 255, 7]);
    let mut row = driver.draft();
    row.spec.priority = i32::MIN;
    row.created_at = Wall(i64::MIN);
    driver.submit(row, b"");
    let mut row = driver.draft();
    row.spec.retry = rich_spec().retry;
    row.spec.retry.as_mut().expect("is set").backoff.jitter = laneway_core::Jitter::Add(Span(9));
    driver.submit(row, &[1; 100_000]);
    driver.commit();
    driver.check();
    driver.reopen(fixture).check();
}

fn every_state_of_a_job(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs: Vec<Seq> = (0..8).map(|_| driver.submit_plain()).collect();
    driver.commit();
    for &job in &jobs[1..] {
        driver.open(job);
    }
    driver.commit();
    for &job in &jobs[2..] {
        driver.start(job);
    }
    driver.commit();
    driver.close(jobs[3], AttemptEnd::Failed, Some(failure()));
    driver.wait(jobs[3], Some(START + Span::hours(1)));
    driver.close(jobs[4], AttemptEnd::Lost, None);
    driver.wait(jobs[4], None);
    driver.finish(jobs[5], Some(b"\x00result"));
    driver.fail(jobs[6], failure());
    driver.cancel(jobs[7]);
    driver.commit();
    let states: Vec<JobState> = driver.jobs.values().map(|known| known.view.state()).collect();
    use JobState::*;
    assert_eq!(states, [Queued, Assigned, Running, Scheduled, Queued, Succeeded, Failed, Canceled]);
    driver.check();
    let mut driver = driver.reopen(fixture);
    driver.check();
    driver.close(jobs[7], AttemptEnd::Canceled, None);
    driver.commit();
    driver.check();
}

fn whole_life_in_one_commit(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    // The first never waits, the second waits in between, the third stays open, the fourth outlives its job.
    let jobs: Vec<Seq> = (0..4).map(|_| driver.submit_plain()).collect();
    for &job in &jobs {
        driver.open(job);
        driver.start(job);
    }
    driver.finish(jobs[0], Some(b"1"));
    driver.close(jobs[1], AttemptEnd::Failed, Some(failure()));
    driver.wait(jobs[1], None);
    driver.open(jobs[1]);
    driver.start(jobs[1]);
    driver.finish(jobs[1], None);
    driver.cancel(jobs[3]);
    driver.commit();
    driver.check();
    driver.reopen(fixture).check();
}

fn several_attempts_in_one_commit(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let job = driver.submit_plain();
    driver.open(job);
    driver.commit();
    // The stored attempt goes, another comes and goes, a third stays.
    driver.start(job);
    driver.close(job, AttemptEnd::Lost, None);
    driver.wait(job, None);
    driver.open(job);
    driver.close(job, AttemptEnd::HandedBack, None);
    driver.open(job);
    driver.commit();
    driver.check();
    // Opened and closed without ever being stored.
    driver.close(job, AttemptEnd::Unanswered, None);
    driver.commit();
    driver.open(job);
    driver.close(job, AttemptEnd::HandedBack, None);
    driver.commit();
    driver.check();
    assert_eq!(driver.known(job).attempts.len(), 4);
    driver.reopen(fixture).check();
}

fn holders(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let job = driver.submit_plain();
    driver.open(job);
    driver.hold(job, "w1", None);
    driver.commit();
    driver.check();
    driver.hold(job, "w1", Some(u32::MAX));
    driver.start(job);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    driver.check();
    driver.close(job, AttemptEnd::Lost, None);
    driver.wait(job, None);
    driver.commit();
    driver.check();
    driver.open(job);
    driver.commit();
    driver.reopen(fixture).check();
}

fn rebound(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs: [Seq; 4] = std::array::from_fn(|_| driver.submit_plain());
    for job in jobs {
        driver.open(job);
        driver.hold(job, "w1", None);
    }
    // In the commit that opened it, too, and more than once.
    driver.rebind(jobs[0]);
    driver.rebind(jobs[0]);
    driver.commit();
    driver.check();
    driver.rebind(jobs[1]);
    driver.start(jobs[1]);
    driver.rebind(jobs[1]);
    driver.start(jobs[2]);
    driver.rebind(jobs[2]);
    driver.rebind(jobs[3]);
    driver.close(jobs[3], AttemptEnd::Lost, None);
    driver.wait(jobs[3], None);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    driver.check();
    for job in &jobs[..3] {
        driver.close(*job, AttemptEnd::Lost, None);
        driver.wait(*job, None);
    }
    driver.commit();
    driver.reopen(fixture).check();
}

fn tokens_and_overrides(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    assert_eq!(driver.store.overrides().expect("reads"), None);
    let token = |id: &'static str, role| TokenRecord {
        id: Name::fixed(id),
        tenant: None,
        role,
        digest: [3; 32],
        note: "".into(),
        created_at: START,
        expires_at: None,
        revoked_at: None,
    };
    let full = TokenRecord {
        tenant: Some(Name::fixed("acme")),
        note: "for the nightly run".into(),
        expires_at: Some(START + Span::hours(1)),
        ..token("b", Role::Worker)
    };
    let mut revoked = full.clone();
    revoked.revoked_at = Some(START + Span::secs(9));
    let others: Vec<TokenRecord> =
        Role::ALL.into_iter().zip(["c", "d", "e", "f", "g"]).map(|(role, id)| token(id, role)).collect();
    for token in others.iter().chain([&full, &revoked]) {
        driver.effects.changes.push(Change::TokenPut(Box::new(token.clone())));
    }
    driver.effects.changes.push(Change::OverridesPut(Bytes::from(&b"first"[..])));
    driver.effects.changes.push(Change::OverridesPut(Bytes::from(&b"second"[..])));
    driver.commit();
    let mut driver = driver.reopen(fixture);
    let expected: Vec<TokenRecord> = [revoked].into_iter().chain(others).collect();
    assert_eq!(driver.store.tokens().expect("reads"), expected);
    assert_eq!(driver.store.overrides().expect("reads").as_deref(), Some(&b"second"[..]));
    assert_eq!(driver.store.counters().expect("reads").clock_seen, None);

    driver.effects.changes.push(Change::TokenForgotten(Name::fixed("c")));
    driver.effects.changes.push(Change::ClockSeen(START + Span::secs(1)));
    driver.effects.changes.push(Change::ClockSeen(START + Span::secs(2)));
    driver.commit();
    let mut driver = driver.reopen(fixture);
    let left: Vec<Name> = driver.store.tokens().expect("reads").into_iter().map(|token| token.id).collect();
    assert_eq!(left, ["b", "d", "e", "f", "g"].map(Name::fixed));
    assert_eq!(driver.store.counters().expect("reads").clock_seen, Some(START + Span::secs(2)));
}

fn keys_are_found_again(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut jobs = Vec::new();
    for (tenant, text) in [("acme", "k1"), ("acme", "k2"), ("other", "k1")] {
        let mut row = driver.draft();
        row.spec.tenant = Name::fixed(tenant);
        row.spec.idempotency = Some(key(text, jobs.len() as u8));
        jobs.push(driver.submit(row, b"{}"));
    }
    driver.finish(jobs[1], None);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    let found = [driver.prior("acme", "k1"), driver.prior("acme", "k2"), driver.prior("other", "k1")];
    assert_eq!(driver.prior("other", "k2"), None);
    assert_eq!(driver.prior("k1", "acme"), None);
    // Looked up together: one answer for each key, in their order, also for a key that occurs twice.
    let [acme, other, k1, k2] = ["acme", "other", "k1", "k2"].map(Name::fixed);
    let jobs_asked = vec![(&other, &k1), (&other, &k2), (&acme, &k2), (&acme, &k1), (&other, &k1)];
    let together = driver.store.priors(&Keys { jobs: jobs_asked, runs: vec![(&acme, &k1)] }).expect("reads");
    assert_eq!(together.jobs, [found[2], None, found[1], found[0], found[2]]);
    assert_eq!(together.runs, [None], "keys of runs are no keys of jobs");
    for (index, (found, job)) in found.into_iter().zip(jobs).enumerate() {
        let found = found.expect("the key is known");
        assert_eq!(found.job, driver.jobs[&job].view.row.id);
        assert_eq!(found.digest, [index as u8; 32]);
    }
}

fn taken_is_rejected(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut row = driver.draft();
    row.spec.idempotency = Some(key("k", 1));
    let stored = row.clone();
    driver.submit(row, b"{}");
    driver.commit();
    let clones: [fn(&mut laneway_core::JobRow, &laneway_core::JobRow); 3] = [
        |row, stored| row.seq = stored.seq,
        |row, stored| row.id = stored.id,
        |row, stored| row.spec.idempotency = stored.spec.idempotency.clone(),
    ];
    for take in clones {
        let known = driver.jobs.clone();
        let events = driver.events.clone();
        driver.submit_plain();
        let mut row = driver.draft();
        take(&mut row, &stored);
        driver
            .effects
            .changes
            .push(Change::JobCreated { row: Arc::new(row), payload: Bytes::from(&b"{}"[..]) });
        let error = driver.try_commit().expect_err("the row is taken");
        assert!(matches!(error, StoreError::Rejected(_)), "{error:?}");
        driver.jobs = known;
        driver.events = events;
    }
    // Within one commit, too.
    for take in &clones[..2] {
        let first = driver.draft();
        let mut second = driver.draft();
        take(&mut second, &first);
        for row in [first, second] {
            driver
                .effects
                .changes
                .push(Change::JobCreated { row: Arc::new(row), payload: Bytes::from(&b"{}"[..]) });
        }
        let error = driver.try_commit().expect_err("the row is taken");
        assert!(matches!(error, StoreError::Rejected(_)), "{error:?}");
    }
    driver.forget_drafts();
    driver.check();
    driver.submit_plain();
    driver.commit();
    driver.check();
}

fn failed_commit_leaves_nothing(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs: Vec<Seq> = (0..4).map(|_| driver.submit_plain()).collect();
    driver.open(jobs[1]);
    driver.open(jobs[2]);
    driver.finish(jobs[3], None);
    driver.commit();
    let (known, events, now) = (driver.jobs.clone(), driver.events.clone(), driver.now);
    // Changes of every kind, then one that is invalid.
    let mut row = driver.draft();
    row.spec.idempotency = Some(key("gone", 1));
    row.spec.lane = Name::fixed("new lane");
    driver.submit(row, b"{}");
    driver.open(jobs[0]);
    driver.start(jobs[1]);
    driver.log(jobs[1], 1, &["line"]);
    driver.close(jobs[2], AttemptEnd::Failed, Some(failure()));
    driver.wait(jobs[2], None);
    driver.finish(jobs[2], None);
    driver.effects.changes.push(Change::OverridesPut(Bytes::from(&b"no"[..])));
    driver.effects.changes.push(Change::EventsPruned { before: Wall(i64::MAX) });
    driver.effects.changes.push(Change::JobsPruned {
        lane: Name::fixed("main"),
        finished_before: Wall(i64::MAX),
        keyed_finished_before: Wall(i64::MAX),
        max: 10,
    });
    let status = driver.jobs[&jobs[3]].view.row.status.clone();
    driver.effects.changes.push(Change::JobMoved { seq: jobs[3], status });
    let error = driver.try_commit().expect_err("an ended job cannot move");
    assert!(matches!(error, StoreError::Disagree(_)), "{error:?}");
    (driver.jobs, driver.events, driver.now) = (known, events, now);
    driver.forget_drafts();
    driver.check();
    assert_eq!(driver.store.overrides().expect("reads"), None);
    assert_eq!(driver.prior("default", "gone"), None);
    assert_eq!(driver.reader.logs(jobs[1], 0, 10).expect("reads"), []);
    assert_eq!(driver.reader.verify_events().expect("verifies"), driver.events.len() as u64);
    // The store still works, also for the lane of the failed commit, which is new to it.
    driver.start(jobs[1]);
    let mut ended = Vec::new();
    for lane in ["another lane", "new lane"] {
        let mut row = driver.draft();
        row.spec.lane = Name::fixed(lane);
        let job = driver.submit(row, b"{}");
        driver.finish(job, None);
        ended.push(job);
    }
    driver.commit();
    driver.check();
    let mut driver = driver.reopen(fixture);
    driver.effects.changes.push(Change::JobsPruned {
        lane: Name::fixed("new lane"),
        finished_before: Wall(i64::MAX),
        keyed_finished_before: Wall(i64::MAX),
        max: 10,
    });
    driver.commit();
    driver.jobs.remove(&ended[1]);
    driver.check();
}

fn empty_commit(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    driver.commit();
    driver.server_event(EventKind::DrainBegan, "stop");
    driver.commit();
    driver.commit();
    driver.check();
    driver.reopen(fixture).check();
}

fn closed_comes_back(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let job = driver.submit_plain();
    driver.submit_plain();
    driver.commit();
    driver.finish(job, None);
    driver.commit();
    assert!(driver.store.close().expect("the store is well"), "nothing is in the way of a close");
    let mut driver = driver.reopen(fixture);
    driver.check();
    driver.submit_plain();
    driver.commit();
    driver.reopen(fixture).check();
}

fn logs_are_bounded(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let (many, long, few) = (driver.submit_plain(), driver.submit_plain(), driver.submit_plain());
    driver.log(few, 1, &["a", "b"]);
    driver.log(few, 1, &["c"]);
    driver.commit();
    driver.log(few, 2, &["", "e"]);
    driver.log(many, 1, &vec!["x"; LOG_LINES_MAX as usize - 1]);
    driver.commit();
    driver.log(many, 1, &["dropped", "dropped"]);
    let half = "y".repeat(LOG_BYTES_MAX as usize / 2);
    driver.log(long, 1, &[&half, &half, "dropped", "dropped"]);
    driver.commit();
    driver.log(many, 1, &["dropped"]);
    driver.log(long, 1, &["dropped"]);
    driver.commit();
    let driver = driver.reopen(fixture);
    let read = |job, after, limit| driver.reader.logs(job, after, limit).expect("reads");
    let texts: Vec<(u64, u32, Box<str>)> =
        read(few, 0, 10).into_iter().map(|line| (line.line, line.attempt, line.text)).collect();
    let expected = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c"), (4, 2, ""), (5, 2, "e")];
    assert_eq!(texts, expected.map(|(line, attempt, text)| (line, attempt, text.into())));
    assert_eq!(read(few, 2, 2).iter().map(|line| line.line).collect::<Vec<_>>(), [3, 4]);
    let lines = read(many, 0, usize::MAX);
    assert_eq!(lines.len() as u64, LOG_LINES_MAX);
    let last = lines.last().expect("is not empty");
    assert_eq!((last.line, last.stream.as_str()), (LOG_LINES_MAX, "laneway"));
    assert!(last.text.contains("dropped: "), "{}", last.text);
    let lines = read(long, 0, 10);
    assert_eq!(lines.len(), 3);
    assert!(lines[2].text.contains("dropped: "), "{}", lines[2].text);
}

fn artifacts_outlast_logs(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let (many, long, first) = (driver.submit_plain(), driver.submit_plain(), driver.submit_plain());
    let all = "y".repeat(LOG_BYTES_MAX as usize);
    driver.log(many, 1, &vec!["x"; LOG_LINES_MAX as usize + 1]);
    driver.log(long, 1, &[&all, "dropped"]);
    // Artifacts may fill the limit of other lines, and are kept all the same.
    driver.log_to(ARTIFACTS, first, 1, &[&all, "made"]);
    driver.commit();
    driver.log(many, 1, &["dropped"]);
    driver.log_to(ARTIFACTS, many, 1, &vec!["made"; ARTIFACT_LINES_MAX as usize + 1]);
    driver.log_to(ARTIFACTS, long, 1, &["made"]);
    driver.log(first, 1, &["dropped", "dropped"]);
    driver.log_to(ARTIFACTS, first, 1, &["made"]);
    driver.commit();
    let driver = driver.reopen(fixture);
    let streams = |job| -> Vec<(u64, String)> {
        let lines = driver.reader.logs(job, 0, usize::MAX).expect("reads");
        lines.into_iter().map(|line| (line.line, line.stream.to_string())).collect()
    };
    let kept = streams(many);
    assert_eq!(kept.len() as u64, LOG_LINES_MAX + ARTIFACT_LINES_MAX);
    assert_eq!(kept[LOG_LINES_MAX as usize - 1], (LOG_LINES_MAX, "laneway".to_owned()));
    assert!(kept[LOG_LINES_MAX as usize..].iter().all(|(_, stream)| stream == ARTIFACTS));
    let numbered = |streams: &[&str]| (1..).zip(streams.iter().map(|&stream| stream.to_owned())).collect();
    let expected: Vec<(u64, String)> = numbered(&["stdout", "laneway", ARTIFACTS]);
    assert_eq!(streams(long), expected);
    let expected: Vec<(u64, String)> = numbered(&[ARTIFACTS, ARTIFACTS, "laneway", ARTIFACTS]);
    assert_eq!(streams(first), expected);
}

fn payloads_in_order(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut jobs: Vec<Seq> = Vec::new();
    for n in 0..5u8 {
        let mut row = driver.draft();
        row.spec.agent = Name::new(&format!("agent-{n}")).expect("is a name");
        jobs.push(driver.submit(row, &[n; 3]));
    }
    for &job in &jobs {
        driver.open(job);
    }
    driver.commit();
    let asked = [jobs[3], jobs[0], jobs[4]];
    let given = driver.store.reader().payloads(&asked).expect("reads");
    for (Runnable { row, payload, merged }, job) in given.into_iter().zip(asked) {
        assert_eq!(row, driver.jobs[&job].view.row);
        assert_eq!(payload, driver.jobs[&job].payload);
        assert!(merged.is_empty());
    }
    assert!(driver.store.reader().payloads(&[]).expect("reads").is_empty());
    let error = driver.store.reader().payloads(&[Seq(99)]).expect_err("there is no such job");
    assert!(matches!(error, StoreError::Disagree(_)), "{error:?}");
}

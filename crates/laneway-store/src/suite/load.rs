//! Loads: everything live, in order, the same after every start.

use laneway_core::engine::Restart;
use laneway_core::{
    AttemptEnd, Change, Effects, ExecutorMode, Mono, Name, Now, Recovery, Seq, Settings, Span, Wall,
};

use super::driver::{Driver, Load, START, load, rich_spec};
use super::{Case, Fixture};
use crate::{Loaded, Store};

pub(super) const CASES: &[Case] = &[
    ("an empty store loads nothing", empty_store),
    ("live jobs among many ended ones", live_among_ended),
    ("an attempt outlives its job", attempt_outlives_its_job),
    ("numbers are never given twice", numbers_are_never_given_twice),
    ("recovering twice is recovering once", recovering_twice),
];

fn empty_store(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    assert_eq!(load(&mut *driver.store), Load::default());
    assert!(driver.store.tokens().expect("reads").is_empty());
    driver.check();
    driver.reopen(fixture).check();
}

fn live_among_ended(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    // Enough for several chunks of live jobs: dense, sparse and empty ones.
    let jobs: Vec<Seq> = (0..4_000).map(|_| driver.submit_plain()).collect();
    driver.commit();
    for (index, &job) in jobs.iter().enumerate() {
        match index {
            0..1_500 if index % 2 == 0 => driver.finish(job, None),
            1_500..3_000 if index % 100 != 0 => driver.finish(job, None),
            3_000..3_900 => driver.finish(job, None),
            _ => {}
        }
    }
    driver.commit();
    driver.check();
    let mut driver = driver.reopen(fixture);
    driver.check();
    for job in [jobs[1], jobs[1_500], jobs[3_999]] {
        driver.finish(job, None);
    }
    driver.commit();
    driver.check();
    driver.reopen(fixture).check();
}

fn attempt_outlives_its_job(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut row = driver.draft();
    row.spec = rich_spec();
    let jobs = [driver.submit(row, b"{}"), driver.submit_plain()];
    for job in jobs {
        driver.open(job);
        driver.start(job);
    }
    driver.cancel(jobs[0]);
    driver.commit();
    let loaded = load(&mut *driver.store);
    assert_eq!(loaded.jobs.len(), 1);
    assert_eq!(loaded.open.len(), 2);
    assert!(loaded.open[0].0.is_some() && loaded.open[1].0.is_none());
    let mut driver = driver.reopen(fixture);
    driver.check();
    driver.close(jobs[0], AttemptEnd::Canceled, None);
    driver.commit();
    driver.check();
}

fn numbers_are_never_given_twice(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for _ in 0..3 {
        let job = driver.submit_plain();
        driver.finish(job, None);
    }
    driver.commit();
    let numbers = load(&mut *driver.store).numbers;
    driver.effects.changes.push(Change::JobsPruned {
        lane: Name::fixed("main"),
        finished_before: Wall(i64::MAX),
        keyed_finished_before: Wall(i64::MAX),
        max: 10,
    });
    driver.effects.changes.push(Change::EventsPruned { before: Wall(i64::MAX) });
    driver.commit();
    driver.jobs.clear();
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).numbers, numbers);
    assert_eq!(driver.store.counters().expect("reads").last_rank_time, 0);
    let job = driver.submit_plain();
    driver.commit();
    let counters = driver.store.counters().expect("reads");
    assert_eq!((counters.last_seq, counters.last_event), (4, 7));
    assert_eq!(counters.last_rank_time, driver.jobs[&job].view.row.rank_time);
    driver.reopen(fixture).check();
}

/// Builds an engine from the store and commits its first effects.
fn recover(store: &mut dyn Store) -> Effects {
    let now = Now { mono: Mono(1), wall: START + Span::hours(1) };
    let tokens = store.tokens().expect("reads");
    let counters = store.counters().expect("reads");
    let mut recovery = Recovery::new(Settings::default(), tokens, counters, 7, now);
    let loaded = store.load(&mut |loaded| match loaded {
        Loaded::Lane(lane) => recovery.lane(lane),
        Loaded::Schedule(schedule) => recovery.schedule(*schedule),
        Loaded::FiringLogEntry(run) => recovery.firing_log_entry(*run),
        Loaded::Job(row) => recovery.job(row),
        Loaded::Open(open) => recovery.open(open),
        Loaded::StillRunning(row, open) => recovery.still_running(row, open),
        Loaded::Session(row) => recovery.session(row),
        Loaded::KeptKeys(row) => recovery.kept_keys(row),
        Loaded::Record(record) => recovery.record(record),
        Loaded::Delivery(row) => recovery.delivery(row, false),
        Loaded::OpenRun(row, ended) => recovery.run(*row, &ended),
        Loaded::Call(row) => recovery.call(*row),
    });
    loaded.expect("loads");
    let mut effects = Effects::default();
    let engine = recovery.finish(now, Restart::Process, &mut effects);
    engine.check_invariants().expect("the engine is well");
    store.commit(store.epoch(), &effects).expect("what follows from a start can be stored");
    effects
}

fn recovering_twice(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let jobs: Vec<Seq> = (0..6)
        .map(|n: u32| {
            let mut row = driver.draft();
            row.spec.timeout = Some(Span::mins(1));
            row.spec.retry = Some(Default::default());
            row.spec.priority = n as i32;
            driver.submit(row, b"{}")
        })
        .collect();
    for &job in &jobs[1..] {
        driver.open(job);
        driver.start(job);
    }
    driver.finish(jobs[4], None);
    driver.cancel(jobs[5]);
    // What ran inside the process died with it.
    let open = driver.known(jobs[1]).view.open.clone().expect("is open");
    driver.close(jobs[1], AttemptEnd::HandedBack, None);
    driver.wait(jobs[1], None);
    driver.commit();
    let mut attached = open;
    attached.mode = ExecutorMode::Attached;
    attached.executor = Name::fixed("local");
    attached.fence.attempt = 2;
    attached.last_event = driver.known(jobs[1]).last_event;
    driver.effects.changes.push(Change::AttemptOpened(attached));
    driver.commit();

    let first = recover(&mut *driver.store);
    assert!(!first.changes.is_empty(), "the attached run is lost");
    let mut driver = driver.reopen(fixture);
    let after_first = load(&mut *driver.store);
    let second = recover(&mut *driver.store);
    assert_eq!(second.changes, [], "there is nothing left to recover");
    let mut driver = driver.reopen(fixture);
    let after_second = load(&mut *driver.store);
    assert_eq!(after_first.jobs, after_second.jobs);
    assert_eq!(after_first.open, after_second.open);
    driver.reader.verify_events().expect("the chain holds");
}

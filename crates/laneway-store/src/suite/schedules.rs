//! Schedules, their slots and the log of their runs: what was put comes back, a slot comes once, the log outlives.

use laneway_core::{
    Bytes, CatchUp, Change, FiringLogEntry, FiringStatus, JobId, Name, Overlap, Schedule, ScheduleId,
    ScheduleSpec, ScheduleState, Span, Timing, Wall,
};

use super::driver::{Driver, START, load, plain_spec, rich_spec};
use super::{Case, Fixture};
use crate::{FiringLogFilter, StoreError};

pub(super) const CASES: &[Case] = &[
    ("schedules of every sort come back", every_sort),
    ("a schedule moves and goes", moves_and_goes),
    ("a name belongs to one schedule of a tenant", names),
    ("a slot comes once", slots),
    ("the run log is read in pages", gc_s8_pages),
    ("a commit that fails leaves no schedule behind", all_or_nothing),
    ("old runs and slots are forgotten", purges),
    ("the newest runs are loaded", newest_runs),
];

fn schedule(n: u128, name: &'static str) -> Schedule {
    Schedule {
        id: ScheduleId(n),
        spec: ScheduleSpec {
            payload: Bytes::from(&b"{}"[..]),
            delete_after_run: Some(false),
            ..ScheduleSpec::new(
                Name::fixed(name),
                Timing::Every { every: Span::secs(5), anchor: Some(START) },
                plain_spec(),
            )
        },
        created_at: START,
        updated_at: START,
        state: ScheduleState { next_at: Some(START + Span::secs(5)), ..ScheduleState::default() },
    }
}

/// A schedule with everything.
fn rich(n: u128) -> Schedule {
    let mut schedule = schedule(n, "every night, ünd more");
    let spec = &mut schedule.spec;
    spec.job = rich_spec();
    spec.tenant = spec.job.tenant.clone();
    spec.timing = Timing::Cron { expr: "0 9 * * 1-5".into(), zone: Some(Name::fixed("Asia/Saigon")) };
    spec.payload = Bytes::from(vec![0xff; 65_536]);
    spec.note = Bytes::from(vec![0; 8_192]);
    spec.catch_up = CatchUp::All { max: 7 };
    spec.overlap = Overlap::CancelRunning;
    spec.jitter = Span::hours(24);
    spec.owner = Some(Name::fixed("user:7"));
    schedule.updated_at = Wall(-5);
    schedule.state = ScheduleState {
        next_at: Some(Wall(i64::MAX)),
        last_slot: Some(Wall(-1)),
        waiting_slot: Some(Wall(0)),
        last_ended_at: Some(START),
        last_status: Some(FiringStatus::Interrupted),
        last_error: Some("it was löst".into()),
        firings: u64::from(u32::MAX) + 1,
    };
    schedule
}

fn run(number: u64, schedule: u128, tenant: &'static str) -> FiringLogEntry {
    FiringLogEntry {
        number,
        schedule: ScheduleId(schedule),
        tenant: Name::fixed(tenant),
        name: Name::fixed("nightly"),
        agent: Name::fixed("default"),
        job: (!number.is_multiple_of(3)).then_some(JobId(number.into())),
        slot: START,
        status: FiringStatus::ALL[(number % 8) as usize],
        summary: number.is_multiple_of(2).then(|| "fertig: ß".into()),
        error: (!number.is_multiple_of(2)).then(|| "kaputt".into()),
        attempts: 4,
        duration_ms: number,
        input_tokens: 5,
        output_tokens: 6,
        ran_at: START,
        ended_at: START + Span::secs(number),
    }
}

fn put(schedule: &Schedule) -> Change {
    Change::SchedulePut(Box::new(schedule.clone()))
}

fn logged(run: &FiringLogEntry) -> Change {
    Change::FiringLogged(Box::new(run.clone()))
}

fn every_sort(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut at = schedule(2, "at");
    at.spec.timing = Timing::At(Wall(-9));
    at.spec.catch_up = CatchUp::Latest;
    at.spec.enabled = false;
    at.state = ScheduleState::default();
    let mut changed = at.clone();
    changed.spec.name = Name::fixed("renamed");
    changed.spec.delete_after_run = Some(true);
    changed.spec.payload = Bytes::from(&b"not JSON"[..]);
    let all = [schedule(1, "every"), changed, rich(u128::MAX)];
    for schedule in [&all[0], &at, &all[2], &all[1]] {
        driver.effects.changes.push(put(schedule));
    }
    driver.commit();
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).schedules, all);
}

fn moves_and_goes(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut one = schedule(1, "one");
    driver.effects.changes.extend([put(&one), put(&schedule(2, "two"))]);
    driver.commit();
    one.spec.enabled = false;
    one.state = rich(1).state;
    let moved = Change::ScheduleMoved { id: one.id, enabled: false, state: Box::new(one.state.clone()) };
    driver.effects.changes.extend([moved.clone(), Change::ScheduleRemoved(ScheduleId(2))]);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).schedules, [one]);
    for id in [2, 3] {
        let Change::ScheduleMoved { enabled, state, .. } = moved.clone() else { unreachable!("it moves") };
        for change in [
            Change::ScheduleMoved { id: ScheduleId(id), enabled, state },
            Change::ScheduleRemoved(ScheduleId(id)),
        ] {
            driver.effects.changes.push(change);
            assert!(matches!(driver.try_commit(), Err(StoreError::Disagree(_))), "there is no schedule {id}");
        }
    }
}

fn names(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let mut other = schedule(2, "nightly");
    other.spec.tenant = Name::fixed("acme");
    other.spec.job.tenant = Name::fixed("acme");
    driver.effects.changes.extend([put(&schedule(1, "nightly")), put(&other)]);
    driver.commit();
    driver.effects.changes.push(put(&schedule(3, "nightly")));
    assert!(matches!(driver.try_commit(), Err(StoreError::Rejected(_))));
    // A name that goes in the same commit is free.
    driver.effects.changes.extend([Change::ScheduleRemoved(ScheduleId(1)), put(&schedule(3, "nightly"))]);
    driver.commit();
    assert_eq!(load(&mut *driver.store).schedules.len(), 2);
}

fn slots(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let slot = |schedule: u128, slot: i64, job: Option<u128>| Change::SlotFired {
        schedule: ScheduleId(schedule),
        slot: Wall(slot),
        job: job.map(JobId),
    };
    driver.effects.changes.extend([slot(1, 10, Some(7)), slot(1, 20, None), slot(2, 10, Some(8))]);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    for again in [slot(1, 10, Some(9)), slot(1, 20, Some(9)), slot(2, 10, None)] {
        driver.effects.changes.push(again);
        assert!(matches!(driver.try_commit(), Err(StoreError::Disagree(_))));
    }
    driver.effects.changes.push(slot(1, 30, Some(9)));
    driver.commit();
}

fn gc_s8_pages(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let runs: Vec<FiringLogEntry> = (1..=5).map(|n| run(n, 1, "default")).collect();
    driver.effects.changes.extend(runs.iter().map(logged));
    driver.effects.changes.extend([logged(&run(6, 2, "default")), logged(&run(7, 3, "acme"))]);
    driver.commit();
    let driver = driver.reopen(fixture);
    let of_one = FiringLogFilter { schedule: Some(ScheduleId(1)), ..FiringLogFilter::default() };
    let mut before = None;
    let mut seen = Vec::new();
    for length in [2, 2, 1] {
        let page = driver.reader.firing_log(&of_one, before, 2).expect("reads");
        assert_eq!((page.items.len(), page.total), (length, 5));
        seen.extend(page.items);
        before = page.next;
    }
    assert_eq!(before, None);
    seen.reverse();
    assert_eq!(seen, runs);
    let total = |tenant: Option<&'static str>, schedule: Option<u128>| {
        let filter = FiringLogFilter { tenant: tenant.map(Name::fixed), schedule: schedule.map(ScheduleId) };
        let page = driver.reader.firing_log(&filter, None, 100).expect("reads");
        assert_eq!(page.total, page.items.len() as u64);
        page.total
    };
    assert_eq!((total(None, None), total(Some("default"), None), total(Some("acme"), None)), (7, 6, 1));
    assert_eq!((total(Some("acme"), Some(1)), total(Some("acme"), Some(3)), total(None, Some(9))), (0, 1, 0));
}

fn all_or_nothing(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let one = schedule(1, "one");
    driver.effects.changes.extend([put(&one), logged(&run(1, 1, "default"))]);
    driver.commit();
    let before = (load(&mut *driver.store).schedules, load(&mut *driver.store).runs);
    let state = Box::new(rich(1).state);
    driver.effects.changes.extend([
        put(&schedule(2, "two")),
        Change::ScheduleMoved { id: one.id, enabled: false, state },
        Change::SlotFired { schedule: one.id, slot: START, job: None },
        logged(&run(2, 1, "default")),
        Change::FiringLogPruned {
            ended_before: Wall(i64::MAX),
            keep: 0,
            slots_before: Wall(i64::MAX),
            max: 10,
        },
        Change::ScheduleRemoved(one.id),
        Change::ScheduleRemoved(ScheduleId(9)),
    ]);
    assert!(driver.try_commit().is_err());
    assert_eq!((load(&mut *driver.store).schedules, load(&mut *driver.store).runs), before);
    driver.effects.changes.push(Change::SlotFired { schedule: one.id, slot: START, job: None });
    driver.commit();
}

fn purges(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for n in 1..=9 {
        driver.effects.changes.push(logged(&run(n, u128::from(n % 2), "default")));
        driver.effects.changes.push(Change::SlotFired {
            schedule: ScheduleId(1),
            slot: Wall(n.cast_signed()),
            job: None,
        });
    }
    driver.commit();
    let purge = |ended_before: u64, keep: u32, slots_before: i64, max: u32| Change::FiringLogPruned {
        ended_before: START + Span::secs(ended_before),
        keep,
        slots_before: Wall(slots_before),
        max,
    };
    let left = |driver: &mut Driver, change: Change| {
        driver.effects.changes.push(change);
        driver.commit();
        let numbers: Vec<u64> = load(&mut *driver.store).runs.iter().map(|run| run.number).collect();
        let page = driver.reader.firing_log(&FiringLogFilter::default(), None, 100).expect("reads");
        assert_eq!(page.total, numbers.len() as u64);
        numbers
    };
    assert_eq!(left(&mut driver, purge(3, 100, 0, 100)), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(left(&mut driver, purge(100, 100, 0, 1)), [4, 5, 6, 7, 8, 9]);
    assert_eq!(left(&mut driver, purge(0, 2, 0, 1)), [5, 6, 7, 8, 9]);
    assert_eq!(left(&mut driver, purge(0, 2, 0, 100)), [6, 7, 8, 9]);
    assert_eq!(left(&mut driver, purge(0, 100, 5, 2)), [6, 7, 8, 9]);
    let again = |slot: i64| Change::SlotFired { schedule: ScheduleId(1), slot: Wall(slot), job: None };
    driver.effects.changes.extend([again(1), again(2)]);
    driver.commit();
    driver.effects.changes.push(again(3));
    assert!(driver.try_commit().is_err(), "only two slots were forgotten");
}

fn newest_runs(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    for n in 1..=300 {
        driver.effects.changes.push(logged(&run(n, 1, "default")));
    }
    driver.commit();
    let mut driver = driver.reopen(fixture);
    let runs = load(&mut *driver.store).runs;
    assert_eq!((runs.len(), runs[0].number, runs[199].number), (200, 101, 300));
    assert_eq!(runs[199], run(300, 1, "default"));
}

//! Runs: stored with their jobs, loaded at a start, listed, and deleted with all their jobs.

use laneway_core::{
    AttemptEnd, Binding, Bytes, CallRow, Change, DeliveryRow, DeliveryState, EndedMember, FailurePolicy,
    MemberOf, Name, NextAnswer, NextCode, OpenAttempt, RunId, RunRow, RunSpec, RunState, Seq, Wall,
};

use super::driver::{Driver, key, load};
use super::{Case, Fixture};
use crate::{JobFilter, RunFilter, StoreError};

pub(super) const CASES: &[Case] = &[
    ("a run comes back as it was put", comes_back),
    ("what a client calls the whole of a run comes back and goes with it", definition_comes_back),
    ("the number of an attempt within its run comes back", numbers_come_back),
    ("a start finds open runs and who of them has ended", found_at_a_start),
    ("a run's idempotency key is its tenant's and is taken once", keyed_once),
    ("runs are listed newest first", listed),
    ("a run that is not stored cannot move", unknown_run),
    ("the jobs of a run stay as long as it is open and go with it", go_together),
    ("what a run still owes keeps it", owing_keeps_it),
    ("runs with an idempotency key are kept longer", keyed_kept_longer),
    ("a prune of runs stops when enough jobs are gone", bounded_prune),
    ("the latest call of a node comes back as long as its run is open", calls_come_back),
];

const EVER: Wall = Wall(i64::MAX);

fn spec() -> RunSpec {
    RunSpec {
        tenant: Name::fixed("default"),
        name: None,
        lane: Name::fixed("main"),
        failure: FailurePolicy::Stop,
        client: None,
        idempotency: None,
        tags: Vec::new(),
    }
}

/// Submits a run whose nodes follow one another.
fn submit(driver: &mut Driver, spec: RunSpec, nodes: usize) -> RunRow {
    let mut jobs: Vec<_> = (0..nodes).map(|_| driver.draft()).collect();
    let name = |node: usize| Name::new(&format!("n{node}")).expect("is a name");
    let row = RunRow {
        first: jobs[0].seq,
        id: RunId(jobs[0].id.0 + 1),
        spec,
        nodes: (0..nodes).map(name).collect(),
        created_at: driver.now,
        submitted_by: Name::fixed("tester"),
        state: RunState::Queued,
        finished_at: None,
    };
    driver.effects.changes.push(Change::RunCreated(Box::new(row.clone())));
    for (node, job) in jobs.iter_mut().enumerate() {
        let above = node.checked_sub(1).map(name);
        let binding = |from: &Name| Binding {
            from: from.clone(),
            source: "/results/ünd~1x".into(),
            target: "/parameters/x/0".into(),
        };
        job.spec.member = Some(Box::new(MemberOf {
            run: row.id,
            node: name(node),
            bindings: above.iter().map(binding).collect(),
            depends_on: above.into_iter().collect(),
            chain: None,
            group: false,
            within: None,
        }));
        driver.submit(job.clone(), b"{}");
    }
    row
}

fn move_to(driver: &mut Driver, row: &RunRow, state: RunState) -> RunRow {
    let finished_at = state.is_terminal().then_some(driver.now);
    driver.effects.changes.push(Change::RunMoved { first: row.first, state, finished_at });
    RunRow { state, finished_at, ..row.clone() }
}

/// Ends all jobs of a run, and the run.
fn end(driver: &mut Driver, row: &RunRow) -> RunRow {
    row.seqs().for_each(|seq| driver.finish(Seq(seq), Some(b"7")));
    let ended = move_to(driver, row, RunState::Succeeded);
    driver.commit();
    ended
}

fn prune(before: Wall, keyed_before: Wall, max: u32) -> Change {
    Change::RunsPruned {
        lane: Name::fixed("main"),
        finished_before: before,
        keyed_finished_before: keyed_before,
        max,
    }
}

fn prune_all(driver: &mut Driver) {
    let prune_jobs = Change::JobsPruned {
        lane: Name::fixed("main"),
        finished_before: EVER,
        keyed_finished_before: EVER,
        max: 1_000,
    };
    driver.effects.changes.extend([prune_jobs, prune(EVER, EVER, 1_000)]);
    driver.commit();
}

fn all(driver: &Driver) -> Vec<RunRow> {
    driver.reader.runs(&RunFilter::default(), None, 1_000).expect("reads").items
}

fn comes_back(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let rich = RunSpec {
        name: Some(Name::fixed("nightly reports")),
        failure: FailurePolicy::Continue,
        client: Some(Name::fixed("desk-7")),
        idempotency: Some(key("order-1", 7)),
        tags: vec![Name::fixed("red"), Name::fixed("big")],
        ..spec()
    };
    let rich = submit(&mut driver, rich, 3);
    let plain = submit(&mut driver, spec(), 1);
    driver.commit();
    let plain = move_to(&mut driver, &plain, RunState::Running);
    let rich = end(&mut driver, &rich);
    for mut driver in [driver.reopen(fixture)] {
        for row in [&rich, &plain] {
            assert_eq!(driver.reader.run(row.id).expect("reads").as_ref(), Some(row));
            let seqs: Vec<Seq> = row.seqs().map(Seq).chain([Seq(77)]).collect();
            let members = driver.reader.jobs_at(&seqs).expect("reads");
            let known: Vec<_> = row.seqs().map(|seq| driver.known(Seq(seq)).view.clone()).collect();
            assert_eq!(members, known);
        }
        assert_eq!(driver.reader.run(RunId(1)).expect("reads"), None);
    }
}

fn numbers_come_back(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let run = submit(&mut driver, spec(), 2);
    driver.commit();
    let (one, two) = (run.first, Seq(run.first.0 + 1));
    for (seq, number) in [(one, 1), (two, 2)] {
        let open = driver.open(seq);
        let open = OpenAttempt { dispatch_seq: number, ..open };
        driver.known(seq).view.open = Some(open.clone());
        *driver.effects.changes.last_mut().expect("an attempt opened") = Change::AttemptOpened(open);
    }
    driver.commit();
    driver.start(two);
    driver.commit();
    driver.close(one, AttemptEnd::Lost, None);
    driver.close(two, AttemptEnd::Lost, None);
    driver.wait(one, None);
    driver.wait(two, None);
    driver.commit();
    let driver = driver.reopen(fixture);
    for (seq, number) in [(one, 1), (two, 2)] {
        let attempts = driver.reader.attempts(seq).expect("reads");
        assert_eq!(attempts, driver.jobs[&seq].attempts);
        assert_eq!(attempts[0].closed.open.dispatch_seq, number);
    }
}

fn found_at_a_start(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let ended = submit(&mut driver, spec(), 2);
    let open = submit(&mut driver, spec(), 3);
    driver.commit();
    end(&mut driver, &ended);
    driver.open(open.first);
    driver.finish(open.first, None);
    let open = move_to(&mut driver, &open, RunState::Running);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    let view = driver.known(open.first).view.clone();
    let member = EndedMember::of(view.row.id, &view.end.expect("it has ended"));
    assert_eq!(load(&mut *driver.store).open_runs, [(open, vec![member])]);
}

fn keyed_once(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let keyed = |tenant| RunSpec { tenant, idempotency: Some(key("k", 1)), ..spec() };
    let mine = submit(&mut driver, keyed(Name::fixed("default")), 1);
    let theirs = submit(&mut driver, keyed(Name::fixed("acme")), 1);
    driver.commit();
    for row in [&mine, &theirs] {
        let prior = driver.prior_run(row.spec.tenant.as_str(), "k").expect("known");
        assert_eq!((prior.run, prior.digest), (row.id, [1; 32]));
    }
    assert_eq!(driver.prior_run("acme", "x"), None);
    let twin = RunRow { first: Seq(90), id: RunId(90), ..mine.clone() };
    driver.effects.changes.push(Change::RunCreated(Box::new(twin)));
    assert!(matches!(driver.try_commit(), Err(StoreError::Rejected(_))));
    assert_eq!(all(&driver).len(), 2);
}

fn listed(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let acme = RunSpec { tenant: Name::fixed("acme"), client: Some(Name::fixed("desk")), ..spec() };
    let rows = [submit(&mut driver, spec(), 2), submit(&mut driver, acme, 1), submit(&mut driver, spec(), 1)];
    driver.commit();
    let ended = end(&mut driver, &rows[0]);
    let ids = |filter: RunFilter, before: Option<Seq>, limit: usize| {
        let page = driver.reader.runs(&filter, before, limit).expect("reads");
        (page.items.iter().map(|row| row.id).collect::<Vec<_>>(), page.next)
    };
    let newest_first: Vec<RunId> = rows.iter().rev().map(|row| row.id).collect();
    assert_eq!(ids(RunFilter::default(), None, 10), (newest_first.clone(), None));
    let (page, next) = ids(RunFilter::default(), None, 2);
    assert_eq!(page, newest_first[..2]);
    assert_eq!(ids(RunFilter::default(), next.map(Seq), 2), (newest_first[2..].to_vec(), None));
    let filter = RunFilter { states: vec![RunState::Succeeded], ..RunFilter::default() };
    assert_eq!(ids(filter, None, 10).0, [ended.id]);
    let filter = RunFilter { tenant: Some(Name::fixed("acme")), ..RunFilter::default() };
    assert_eq!(ids(filter, None, 10).0, [rows[1].id]);
    let filter = RunFilter { client: Some(Name::fixed("desk")), ..RunFilter::default() };
    assert_eq!(ids(filter, None, 10).0, [rows[1].id]);
}

fn unknown_run(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let moved = Change::RunMoved { first: Seq(5), state: RunState::Running, finished_at: None };
    driver.effects.changes.push(moved);
    assert!(matches!(driver.try_commit(), Err(StoreError::Disagree(_))));
}

fn go_together(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let run = submit(&mut driver, spec(), 3);
    let alone = driver.submit_plain();
    driver.commit();
    driver.finish(run.first, Some(b"1"));
    driver.finish(alone, None);
    driver.commit();
    prune_all(&mut driver);
    let stored = |driver: &Driver| {
        let page = driver.reader.jobs(&JobFilter::default(), None, 100).expect("reads");
        page.items.iter().map(|job| job.row.seq.0).collect::<Vec<_>>()
    };
    assert_eq!(stored(&driver), [3, 2, 1], "the run is open, the job outside of it is gone");
    driver.finish(Seq(2), None);
    driver.cancel(Seq(3));
    move_to(&mut driver, &run, RunState::Succeeded);
    driver.commit();
    let mut driver = driver.reopen(fixture);
    prune_all(&mut driver);
    assert_eq!(stored(&driver), [] as [u64; 0]);
    assert_eq!(all(&driver), []);
    assert_eq!(driver.reader.payload(Seq(2)).expect("reads"), None);
    assert_eq!(load(&mut *driver.store).numbers.0, 4, "no number is given twice");
}

fn definition_comes_back(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let (with, without) = (submit(&mut driver, spec(), 2), submit(&mut driver, spec(), 1));
    let definition = Bytes::from(&b"{\"nodes\": []}"[..]);
    driver.effects.changes.push(Change::RunDefined { first: with.first, definition: definition.clone() });
    driver.commit();
    let with = end(&mut driver, &with);
    let mut driver = driver.reopen(fixture);
    assert_eq!(driver.reader.run_definition(with.first).expect("reads"), Some(definition));
    assert_eq!(driver.reader.run_definition(without.first).expect("reads"), None);
    prune_all(&mut driver);
    assert_eq!(driver.reader.run_definition(with.first).expect("reads"), None);
}

fn owing_keeps_it(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let (runs, owes) = (submit(&mut driver, spec(), 2), submit(&mut driver, spec(), 2));
    driver.commit();
    driver.open(runs.first);
    driver.cancel(runs.first);
    driver.cancel(Seq(runs.first.0 + 1));
    let runs = move_to(&mut driver, &runs, RunState::Canceled);
    let owes = end(&mut driver, &owes);
    let mut delivery = DeliveryRow {
        seq: owes.first,
        job: driver.jobs[&owes.first].view.row.id,
        tenant: Name::fixed("default"),
        state: DeliveryState::Waiting,
        tries: 0,
        next_at: Some(driver.now),
        created_at: driver.now,
        ended_at: None,
        last_status: None,
        last_error: None,
        host: "hooks.example:443".into(),
    };
    driver.effects.changes.push(Change::DeliveryPut(Box::new(delivery.clone())));
    driver.commit();
    prune_all(&mut driver);
    assert_eq!(all(&driver), [owes, runs.clone()]);
    delivery.state = DeliveryState::Delivered;
    driver.effects.changes.push(Change::DeliveryPut(Box::new(delivery)));
    prune_all(&mut driver);
    assert_eq!(all(&driver), std::slice::from_ref(&runs));
    driver.close(runs.first, AttemptEnd::Canceled, None);
    prune_all(&mut driver);
    assert_eq!(all(&driver), []);
}

fn keyed_kept_longer(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let keyed = submit(&mut driver, RunSpec { idempotency: Some(key("k", 1)), ..spec() }, 1);
    let plain = submit(&mut driver, spec(), 1);
    driver.commit();
    let keyed = end(&mut driver, &keyed);
    end(&mut driver, &plain);
    driver.effects.changes.push(prune(EVER, keyed.finished_at.expect("it has ended"), 100));
    driver.commit();
    assert_eq!(all(&driver), [keyed]);
    driver.effects.changes.push(prune(EVER, EVER, 100));
    driver.commit();
    assert_eq!(driver.prior_run("default", "k"), None);
}

fn bounded_prune(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let rows: Vec<RunRow> = (0..3).map(|_| submit(&mut driver, spec(), 2)).collect();
    driver.commit();
    let ended: Vec<RunRow> = rows.iter().map(|row| end(&mut driver, row)).collect();
    driver.effects.changes.push(prune(EVER, EVER, 3));
    driver.commit();
    assert_eq!(all(&driver), [ended[2].clone()]);
}

fn calls_come_back(fixture: &dyn Fixture) {
    let mut driver = Driver::new(fixture);
    let run = submit(&mut driver, spec(), 3);
    driver.commit();
    let caller = driver.open(run.first).fence;
    let call = |target: u64, answer: Option<NextAnswer>, result: Option<Bytes>| CallRow {
        target: Seq(run.first.0 + target),
        caller,
        request: Name::fixed("q 1"),
        called_at: Wall(70),
        after: 3,
        until: answer.is_none().then_some(Wall(77)),
        payload: answer.is_none().then(|| b"{\"a\":1}".as_slice().into()),
        answer,
        result,
    };
    let result: Option<Bytes> = Some(b"[1]".as_slice().into());
    let failed = NextAnswer::Failed(NextCode::Timeout, "too slow, ünd".into());
    let rows =
        [call(1, Some(NextAnswer::Done(result.clone())), result.clone()), call(2, Some(failed), result)];
    for first in [call(1, None, None), call(2, None, None)] {
        driver.effects.changes.push(Change::CallPut(Box::new(first)));
    }
    driver.commit();
    assert_eq!(load(&mut *driver.store).calls, [call(1, None, None), call(2, None, None)]);
    let brought =
        |driver: &Driver, node: u64| driver.reader.call_payload(Seq(run.first.0 + node)).expect("reads");
    assert_eq!([0, 1].map(|node| brought(&driver, node)), [None, call(1, None, None).payload]);
    driver.effects.changes.extend(rows.iter().map(|row| Change::CallPut(Box::new(row.clone()))));
    driver.commit();
    assert_eq!(brought(&driver, 1), None);
    let mut driver = driver.reopen(fixture);
    assert_eq!(load(&mut *driver.store).calls, rows);
    let run = end(&mut driver, &run);
    assert_eq!(load(&mut *driver.store).calls, []);
    prune_all(&mut driver);
    assert_eq!(driver.reader.run(run.id).expect("reads"), None);
}

//! Decisions about dispatches.

use super::*;
use crate::worker::samples::dispatch;

fn tasks(max_parallel: usize) -> Tasks {
    let per_node = BTreeMap::from([(Text::fixed("slow"), 1)]);
    Tasks::new(Capacity { max_parallel, per_node })
}

fn order(task: &str, seq: u64, kind: &str, concurrency_key: Option<&str>) -> Order {
    let concurrency_key = concurrency_key.map(Text::fixed);
    let dispatch = Dispatch { concurrency_key, ..dispatch(task, kind) };
    Order { key: key(task, seq), dispatch: Box::new(dispatch) }
}

fn key(task: &str, seq: u64) -> TaskKey {
    TaskKey { task_id: Text::fixed(task), seq }
}

fn take(tasks: &mut Tasks, order: Order) -> Intake {
    tasks.take(Duration::ZERO, order, &Outbox::default(), false, Ok(()))
}

/// A short name for the decision about a dispatch.
fn verdict(intake: &Intake) -> String {
    match intake {
        Intake::Start(_) => "start".to_owned(),
        Intake::Wait { stop } => format!("wait for {}", stop.seq),
        Intake::Again => "again".to_owned(),
        Intake::Stale => "stale".to_owned(),
        Intake::Rejected(rejection) => rejection.code.as_str().to_owned(),
    }
}

#[test]
fn d8_a_dispatch_is_started_once() {
    let mut tasks = tasks(4);
    assert_eq!(verdict(&take(&mut tasks, order("t", 1, "k", None))), "start");
    assert_eq!(verdict(&take(&mut tasks, order("t", 1, "k", None))), "again");
    tasks.end(Duration::ZERO, &key("t", 1)).unwrap();
    assert_eq!(verdict(&take(&mut tasks, order("t", 1, "k", None))), "again", "also after its end");
    assert_eq!(verdict(&take(&mut tasks, order("t", 2, "k", None))), "start");
    assert_eq!(verdict(&take(&mut tasks, order("t", 1, "k", None))), "stale", "an older attempt is over");
}

#[test]
fn d11_one_task_runs_for_each_concurrency_key() {
    let mut tasks = tasks(4);
    assert_eq!(verdict(&take(&mut tasks, order("a", 1, "k", Some("x")))), "start");
    assert_eq!(verdict(&take(&mut tasks, order("b", 2, "k", Some("x")))), "E.CMD.CONCURRENCY_VIOLATION");
    assert_eq!(verdict(&take(&mut tasks, order("c", 3, "k", Some("y")))), "start");
    tasks.end(Duration::ZERO, &key("a", 1)).unwrap();
    assert_eq!(
        verdict(&take(&mut tasks, order("b", 2, "k", Some("x")))),
        "start",
        "a rejection is not remembered"
    );
}

#[test]
fn d12_no_more_tasks_run_at_once_than_registered() {
    let mut tasks = tasks(2);
    assert_eq!(verdict(&take(&mut tasks, order("a", 1, "slow", None))), "start");
    assert_eq!(
        verdict(&take(&mut tasks, order("b", 2, "slow", None))),
        "E.CMD.CONCURRENCY_VIOLATION",
        "its kind"
    );
    assert_eq!(verdict(&take(&mut tasks, order("b", 2, "k", None))), "start");
    assert_eq!(verdict(&take(&mut tasks, order("c", 3, "k", None))), "E.CMD.CONCURRENCY_VIOLATION", "in all");
}

#[test]
fn a_newer_attempt_waits_until_the_older_one_has_ended() {
    let mut tasks = tasks(1);
    assert_eq!(verdict(&take(&mut tasks, order("t", 1, "slow", Some("x")))), "start");
    assert_eq!(verdict(&take(&mut tasks, order("t", 2, "slow", Some("x")))), "wait for 1");
    assert_eq!(verdict(&take(&mut tasks, order("t", 2, "slow", Some("x")))), "again");
    assert_eq!(
        verdict(&take(&mut tasks, order("o", 1, "k", None))),
        "E.CMD.CONCURRENCY_VIOLATION",
        "its slot is taken"
    );
    let (_, next) = tasks.end(Duration::ZERO, &key("t", 1)).unwrap();
    assert_eq!(next.unwrap().key, key("t", 2));
    assert_eq!(tasks.open().count(), 1);
}

#[test]
fn d13_a_draining_worker_accepts_no_task() {
    let mut tasks = tasks(1);
    let intake = tasks.take(Duration::ZERO, order("t", 1, "k", None), &Outbox::default(), true, Ok(()));
    assert_eq!(verdict(&intake), "E.CMD.CONCURRENCY_VIOLATION");
}

#[test]
fn a_rejected_dispatch_may_come_again() {
    let mut tasks = tasks(1);
    let rejection =
        Rejection { code: ErrorCode::ResourceMissing, part: "worker.resources", message: "gone".to_owned() };
    let intake =
        tasks.take(Duration::ZERO, order("t", 1, "k", None), &Outbox::default(), false, Err(rejection));
    assert_eq!(verdict(&intake), "E.RESOURCE.MISSING");
    assert_eq!(verdict(&take(&mut tasks, order("t", 1, "k", None))), "start");
}

#[test]
fn remembered_tasks_are_bounded_and_running_ones_are_kept() {
    let mut tasks = tasks(2);
    take(&mut tasks, order("runs", 1, "k", None));
    for n in 0..REMEMBERED_MAX + 5 {
        let task = format!("t{n}");
        take(&mut tasks, order(&task, 1, "k", None));
        tasks.end(Duration::ZERO, &key(&task, 1)).unwrap();
    }
    assert!(tasks.taken.len() <= REMEMBERED_MAX + 1, "{}", tasks.taken.len());
    assert_eq!(verdict(&take(&mut tasks, order("runs", 1, "k", None))), "again");
    assert!(tasks.taken.contains_key("runs"));
}

#[test]
fn a_stop_is_reported_once_and_stale_outweighs_canceled() {
    let mut tasks = tasks(1);
    take(&mut tasks, order("t", 1, "k", None));
    assert!(tasks.stop(&key("t", 1), StopReason::Canceled));
    assert!(!tasks.stop(&key("t", 1), StopReason::Drain));
    assert!(!tasks.stop(&key("t", 1), StopReason::Stale));
    let (open, _) = tasks.end(Duration::ZERO, &key("t", 1)).unwrap();
    assert_eq!(open.stopping, Some(StopReason::Stale));
    assert!(!tasks.stop(&key("t", 1), StopReason::Canceled));
}

#[test]
fn frames_are_remembered_by_id_and_corr_within_a_connection() {
    let mut tasks = tasks(1);
    let (id, corr) = (Text::fixed("d-1"), Text::fixed("t"));
    assert!(tasks.is_new_frame(&id, Some(&corr)));
    assert!(!tasks.is_new_frame(&id, Some(&corr)));
    assert!(tasks.is_new_frame(&id, None));
    tasks.forget_session();
    assert!(tasks.is_new_frame(&id, Some(&corr)));
    for n in 0..SEEN_MAX {
        tasks.is_new_frame(&Text::fixed(&format!("f{n}")), None);
    }
    assert_eq!((tasks.seen.len(), tasks.seen_order.len()), (SEEN_MAX, SEEN_MAX));
}

#[test]
fn defect_15_a_chain_takes_one_slot() {
    let mut tasks = tasks(1);
    let of_chain = |task: &str, seq: u64, kind: &str, host: &str| {
        let mut order = order(task, seq, kind, None);
        order.dispatch.host_node_id = Some(Text::fixed(host));
        order
    };
    assert_eq!(verdict(&take(&mut tasks, of_chain("m", 1, "slow", "h"))), "start");
    assert_eq!(verdict(&take(&mut tasks, of_chain("h", 2, "slow", "h"))), "start", "its caller waits");
    assert_eq!(verdict(&take(&mut tasks, of_chain("x", 3, "k", "i"))), "E.CMD.CONCURRENCY_VIOLATION");
    assert_eq!(verdict(&take(&mut tasks, order("y", 4, "k", None))), "E.CMD.CONCURRENCY_VIOLATION");
    tasks.end(Duration::ZERO, &key("m", 1)).unwrap();
    assert_eq!(verdict(&take(&mut tasks, order("y", 4, "k", None))), "E.CMD.CONCURRENCY_VIOLATION");
    tasks.end(Duration::ZERO, &key("h", 2)).unwrap();
    assert_eq!(verdict(&take(&mut tasks, order("y", 4, "k", None))), "start");
}

/// A middleware may wait for a container, whose nodes are of no chain.
#[test]
fn defect_15_a_task_that_waits_for_its_chain_takes_no_slot() {
    let mut tasks = tasks(1);
    let mut middleware = order("m", 1, "slow", None);
    middleware.dispatch.host_node_id = Some(Text::fixed("c"));
    assert_eq!(verdict(&take(&mut tasks, middleware)), "start");
    assert_eq!(
        verdict(&take(&mut tasks, order("c::x", 2, "k", None))),
        "E.CMD.CONCURRENCY_VIOLATION",
        "it works"
    );
    tasks.call(&key("m", 1), &Text::fixed("q1"));
    assert_eq!(verdict(&take(&mut tasks, order("c::x", 3, "slow", None))), "start");
    assert_eq!(verdict(&take(&mut tasks, order("c::y", 4, "k", None))), "E.CMD.CONCURRENCY_VIOLATION");
    tasks.end(Duration::ZERO, &key("c::x", 3)).unwrap();
    tasks.answered(&Text::fixed("q1"));
    assert_eq!(
        verdict(&take(&mut tasks, order("z", 5, "k", None))),
        "E.CMD.CONCURRENCY_VIOLATION",
        "it takes a slot again"
    );
    tasks.end(Duration::ZERO, &key("m", 1)).unwrap();
    assert_eq!(verdict(&take(&mut tasks, order("z", 5, "k", None))), "start");
}

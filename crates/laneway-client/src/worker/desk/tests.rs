//! What becomes of dispatches.

use super::*;
use crate::worker::samples::dispatch;

fn desk(max_parallel: usize) -> Desk {
    let per_node = BTreeMap::from([(Text::fixed("slow"), 1)]);
    Desk::new(Capacity { max_parallel, per_node })
}

fn order(task: &str, seq: u64, kind: &str, concurrency_key: Option<&str>) -> Order {
    let concurrency_key = concurrency_key.map(Text::fixed);
    let dispatch = Dispatch { concurrency_key, ..dispatch(task, kind) };
    Order { key: key(task, seq), dispatch: Box::new(dispatch) }
}

fn key(task: &str, seq: u64) -> TaskKey {
    TaskKey { task_id: Text::fixed(task), seq }
}

fn take(desk: &mut Desk, order: Order) -> Intake {
    desk.take(Duration::ZERO, order, &Outbox::default(), false, Ok(()))
}

/// One word for what became of a dispatch.
fn word(intake: &Intake) -> String {
    match intake {
        Intake::Start(_) => "start".to_owned(),
        Intake::Wait { stop } => format!("wait for {}", stop.seq),
        Intake::Again => "again".to_owned(),
        Intake::Stale => "stale".to_owned(),
        Intake::Refused(refusal) => refusal.code.word().to_owned(),
    }
}

#[test]
fn d8_a_dispatch_is_started_once_however_often_it_comes() {
    let mut desk = desk(4);
    assert_eq!(word(&take(&mut desk, order("t", 1, "k", None))), "start");
    assert_eq!(word(&take(&mut desk, order("t", 1, "k", None))), "again");
    desk.end(Duration::ZERO, &key("t", 1)).unwrap();
    assert_eq!(word(&take(&mut desk, order("t", 1, "k", None))), "again", "also after its end");
    assert_eq!(word(&take(&mut desk, order("t", 2, "k", None))), "start");
    assert_eq!(word(&take(&mut desk, order("t", 1, "k", None))), "stale", "an older attempt is over");
}

#[test]
fn d11_one_concurrency_key_is_one_flight() {
    let mut desk = desk(4);
    assert_eq!(word(&take(&mut desk, order("a", 1, "k", Some("x")))), "start");
    assert_eq!(word(&take(&mut desk, order("b", 2, "k", Some("x")))), "E.CMD.CONCURRENCY_VIOLATION");
    assert_eq!(word(&take(&mut desk, order("c", 3, "k", Some("y")))), "start");
    desk.end(Duration::ZERO, &key("a", 1)).unwrap();
    assert_eq!(word(&take(&mut desk, order("b", 2, "k", Some("x")))), "start", "a refusal is not remembered");
}

#[test]
fn d12_no_more_run_at_once_than_was_said() {
    let mut desk = desk(2);
    assert_eq!(word(&take(&mut desk, order("a", 1, "slow", None))), "start");
    assert_eq!(
        word(&take(&mut desk, order("b", 2, "slow", None))),
        "E.CMD.CONCURRENCY_VIOLATION",
        "its kind"
    );
    assert_eq!(word(&take(&mut desk, order("b", 2, "k", None))), "start");
    assert_eq!(word(&take(&mut desk, order("c", 3, "k", None))), "E.CMD.CONCURRENCY_VIOLATION", "in all");
}

#[test]
fn a_newer_attempt_waits_until_the_older_one_has_ended() {
    let mut desk = desk(1);
    assert_eq!(word(&take(&mut desk, order("t", 1, "slow", Some("x")))), "start");
    assert_eq!(word(&take(&mut desk, order("t", 2, "slow", Some("x")))), "wait for 1");
    assert_eq!(word(&take(&mut desk, order("t", 2, "slow", Some("x")))), "again");
    assert_eq!(
        word(&take(&mut desk, order("o", 1, "k", None))),
        "E.CMD.CONCURRENCY_VIOLATION",
        "its place is taken"
    );
    let (_, next) = desk.end(Duration::ZERO, &key("t", 1)).unwrap();
    assert_eq!(next.unwrap().key, key("t", 2));
    assert_eq!(desk.open().count(), 1);
}

#[test]
fn d13_a_draining_worker_takes_nothing() {
    let mut desk = desk(1);
    let intake = desk.take(Duration::ZERO, order("t", 1, "k", None), &Outbox::default(), true, Ok(()));
    assert_eq!(word(&intake), "E.CMD.CONCURRENCY_VIOLATION");
}

#[test]
fn what_does_not_fit_is_refused_and_may_come_again() {
    let mut desk = desk(1);
    let refusal =
        Refusal { code: ErrorCode::ResourceMissing, part: "worker.resources", message: "gone".to_owned() };
    let intake = desk.take(Duration::ZERO, order("t", 1, "k", None), &Outbox::default(), false, Err(refusal));
    assert_eq!(word(&intake), "E.RESOURCE.MISSING");
    assert_eq!(word(&take(&mut desk, order("t", 1, "k", None))), "start");
}

#[test]
fn memory_of_tasks_ends_but_never_before_what_runs() {
    let mut desk = desk(2);
    take(&mut desk, order("runs", 1, "k", None));
    for n in 0..REMEMBERED_MAX + 5 {
        let task = format!("t{n}");
        take(&mut desk, order(&task, 1, "k", None));
        desk.end(Duration::ZERO, &key(&task, 1)).unwrap();
    }
    assert!(desk.taken.len() <= REMEMBERED_MAX + 1, "{}", desk.taken.len());
    assert_eq!(word(&take(&mut desk, order("runs", 1, "k", None))), "again");
    assert!(desk.taken.contains_key("runs"));
}

#[test]
fn a_stop_is_told_once_and_stale_outweighs_canceled() {
    let mut desk = desk(1);
    take(&mut desk, order("t", 1, "k", None));
    assert!(desk.stop(&key("t", 1), StopReason::Canceled));
    assert!(!desk.stop(&key("t", 1), StopReason::Drain));
    assert!(!desk.stop(&key("t", 1), StopReason::Stale));
    let (open, _) = desk.end(Duration::ZERO, &key("t", 1)).unwrap();
    assert_eq!(open.stopping, Some(StopReason::Stale));
    assert!(!desk.stop(&key("t", 1), StopReason::Canceled));
}

#[test]
fn frames_are_remembered_by_id_and_corr_within_a_connection() {
    let mut desk = desk(1);
    let (id, corr) = (Text::fixed("d-1"), Text::fixed("t"));
    assert!(desk.first_sight(&id, Some(&corr)));
    assert!(!desk.first_sight(&id, Some(&corr)));
    assert!(desk.first_sight(&id, None));
    desk.forget_session();
    assert!(desk.first_sight(&id, Some(&corr)));
    for n in 0..SEEN_MAX {
        desk.first_sight(&Text::fixed(&format!("f{n}")), None);
    }
    assert_eq!((desk.seen.len(), desk.seen_order.len()), (SEEN_MAX, SEEN_MAX));
}

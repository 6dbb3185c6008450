//! Dialogues with a scheduler, step by step, without sockets and clocks.

use std::collections::BTreeMap;

use laneway_wire::frame::{
    AuthMode, Capabilities, Channel, Concurrency, ErrorCode, Feedback, MessageType, ResultStatus, Secret,
};
use serde_json::json;

use super::*;
use crate::worker::ended::{Ended, Failure, Outcome};
use crate::worker::outbox::OUTBOX_LEN_MAX;

struct TestEnvironment {
    mem_pct: f64,
}

impl Environment for TestEnvironment {
    fn fits(&self, order: &Order, _: Now) -> Result<(), Rejection> {
        if order.dispatch.node_type != "unknown" {
            return Ok(());
        }
        Err(Rejection {
            code: ErrorCode::CmdUnknown,
            part: "worker.handlers",
            message: "no handler".to_owned(),
        })
    }

    fn vitals(&self) -> Vitals {
        Vitals { mem_pct: Some(self.mem_pct), ..Vitals::default() }
    }
}

/// A worker and the actions that it returned, with a clock that moves only on request.
struct World {
    protocol: Protocol,
    environment: TestEnvironment,
    ms: u64,
    frames: u64,
    sent: Vec<Action>,
}

impl World {
    fn new() -> World {
        let profile = Profile {
            tenant: Text::fixed("acme"),
            identity: WorkerIdentity {
                id: Text::fixed("w-1"),
                version: Text::fixed("1"),
                hostname: Text::fixed("h"),
            },
            timing: Timing {
                heartbeat: Duration::from_secs(5),
                heartbeat_jitter: Duration::ZERO,
                stop_grace: Duration::from_secs(2),
                drain_limit: Duration::from_secs(30),
            },
            capacity: Capacity { max_parallel: 4, per_node: BTreeMap::new() },
            thresholds: Thresholds::default(),
            instance: 7,
            boot_id: Text::fixed("boot-7"),
        };
        let protocol = Protocol::new(profile, fastrand::Rng::with_seed(1));
        World { protocol, environment: TestEnvironment { mem_pct: 10.0 }, ms: 0, frames: 0, sent: Vec::new() }
    }

    /// A worker whose session is up.
    fn up() -> World {
        let mut world = World::new();
        world.connect();
        world
    }

    fn now(&self) -> Now {
        Now { mono: Duration::from_millis(self.ms), wall: Timestamp(jiff::Timestamp::UNIX_EPOCH) }
    }

    fn open(&mut self) {
        let auth = Auth { mode: AuthMode::Token, token: Some(Secret("s".to_owned())), fingerprint: None };
        let concurrency = Concurrency { max_parallel: 4, per_node_limits: None };
        let capabilities = Capabilities {
            concurrency,
            runtimes: List::new(vec![Text::fixed("rust")]).unwrap(),
            features: List::default(),
        };
        let packages = List::default();
        let register = Register {
            capabilities,
            packages,
            channels: None,
            queues: None,
            manifests: None,
            boot_id: None,
            tasks: None,
        };
        self.protocol.dial();
        self.protocol.connected(self.now(), auth, register, &mut self.sent);
    }

    /// Opens a connection and answers until the session is up; drops the actions of the handshake.
    fn connect(&mut self) {
        self.open();
        let handshake = self.last(MessageType::Handshake);
        self.receive_ack(&handshake.id, None);
        let register = self.last(MessageType::Register);
        self.sent.clear();
        self.receive_ack(&register.id, None);
        assert_eq!(self.protocol.state(), WorkerState::Heartbeating);
    }

    fn last(&self, kind: MessageType) -> Frame {
        self.sent()
            .into_iter()
            .rfind(|frame| frame.message.kind() == kind)
            .unwrap_or_else(|| panic!("no {kind:?}"))
    }

    fn sent(&self) -> Vec<Frame> {
        let frames = self.sent.iter().filter_map(|action| match action {
            Action::Send(frame) => Some(frame.clone()),
            _ => None,
        });
        frames.collect()
    }

    /// The types of the frames that were sent, and a name for every other action.
    fn actions(&mut self) -> Vec<String> {
        let actions = self.sent.drain(..).map(|action| match action {
            Action::Send(frame) => match &frame.message {
                Message::Error(error) => error.code.to_string(),
                Message::Result(result) => format!("{:?} {}", result.status, frame.seq.unwrap()),
                other => other.kind().as_str().to_owned(),
            },
            Action::Start(order) => format!("start {} {}", order.key.task_id, order.key.seq),
            Action::Stop(key, why) => format!("stop {} {} {why:?}", key.task_id, key.seq),
            Action::Abandon(key) => format!("abandon {} {}", key.task_id, key.seq),
            Action::Close(why) => format!("close {why:?}"),
            other => format!("{other:?}"),
        });
        actions.collect()
    }

    fn frame(&mut self, kind: &str, payload: serde_json::Value) -> serde_json::Value {
        self.frames += 1;
        json!({"type": kind, "id": format!("s-{}", self.frames), "ts": "2030-01-01T00:00:00Z", "tenant": "acme",
            "sender": {"role": "scheduler", "id": "scheduler-control"}, "payload": payload})
    }

    fn receive(&mut self, frame: &serde_json::Value) {
        let frame = Frame::parse(frame.to_string().as_bytes()).unwrap();
        self.protocol.handle_frame(self.now(), frame, &self.environment, &mut self.sent);
    }

    fn receive_ack(&mut self, id: &str, info: Option<&str>) {
        let mut payload = json!({"ok": true, "for": id});
        if let Some(info) = info {
            payload["info"] = json!(info);
        }
        let frame = self.frame("ack", payload);
        self.receive(&frame);
    }

    fn receive_error(&mut self, code: ErrorCode, corr: Option<&str>, seq: Option<u64>) {
        let mut frame = self.frame("error", json!({"code": code.as_str(), "message": "m"}));
        frame["corr"] = json!(corr);
        frame["seq"] = json!(seq);
        self.receive(&frame);
    }

    fn dispatch(&mut self, task: &str, seq: u64, kind: &str) -> serde_json::Value {
        let payload = json!({"run_id": "r1", "task_id": task, "node_id": "n", "node_type": kind,
            "package_name": "p", "package_version": "1", "parameters": {}, "constraints": {}});
        let mut frame = self.frame("cmd.dispatch", payload);
        frame["corr"] = json!(task);
        frame["seq"] = json!(seq);
        frame["ack"] = json!({"request": true});
        self.receive(&frame);
        frame
    }

    fn end(&mut self, task: &str, seq: u64, ended: Ended) {
        let key = TaskKey { task_id: Text::fixed(task), seq };
        self.protocol.ended(self.now(), &key, ended, &mut self.sent);
    }

    /// Advances the clock and handles everything that becomes due.
    fn pass(&mut self, ms: u64) {
        let until = self.ms + ms;
        while let Some(at) = self.protocol.next_wakeup().map(whole_ms).filter(|at| *at <= until) {
            let before = (self.ms, self.sent.len());
            self.ms = self.ms.max(at);
            self.protocol.handle_tick(self.now(), &self.environment, &mut self.sent);
            // Executing these actions ends the attempt or the connection.
            if matches!(self.sent.last(), Some(Action::Close(_) | Action::Abandon(_))) {
                return;
            }
            assert!(
                before != (self.ms, self.sent.len())
                    || self.protocol.next_wakeup().is_none_or(|next| next > self.now().mono),
                "it wakes up and does nothing at {}",
                self.ms
            );
        }
        self.ms = until;
    }

    fn cut(&mut self) {
        self.protocol.disconnected(self.now());
    }
}

/// The clock of these tests has whole milliseconds.
fn whole_ms(at: Duration) -> u64 {
    at.as_nanos().div_ceil(1_000_000) as u64
}

fn done() -> Ended {
    Ended::Done(Outcome::of(&json!({"n": 1})).unwrap())
}

#[test]
fn d2_the_example_exchange() {
    let mut world = World::new();
    world.open();
    let handshake = world.last(MessageType::Handshake);
    assert!(handshake.wants_ack());
    assert_eq!(world.protocol.state(), WorkerState::Handshaking);
    world.receive_ack(&handshake.id, None);
    let register = world.last(MessageType::Register);
    assert_eq!(world.protocol.state(), WorkerState::Registered);
    world.receive_ack(&register.id, None);
    assert_eq!(world.protocol.state(), WorkerState::Heartbeating);
    let dispatched = world.dispatch("t1", 1, "k");
    let ack = world.last(MessageType::Ack);
    assert_eq!(ack.acknowledges().unwrap(), &dispatched["id"].as_str().unwrap());
    assert_eq!((ack.corr.as_deref(), ack.seq), (Some("t1"), Some(1)));
    world.end("t1", 1, done());
    let result = world.last(MessageType::Result);
    assert_eq!((result.corr.as_deref(), result.seq), (Some("t1"), Some(1)));
    world.receive_ack(&result.id, None);
    world.sent.clear();
    world.pass(11_000);
    assert_eq!(world.actions()[..2], ["heartbeat", "heartbeat"]);
    assert_eq!(world.protocol.outcomes_waiting(), 0);
}

#[test]
fn d3_no_task_runs_before_the_session_is_up() {
    let mut world = World::new();
    world.open();
    world.sent.clear();
    world.dispatch("t1", 1, "k");
    assert_eq!(world.actions(), ["E.SESSION.DENIED"]);
}

#[test]
fn a_task_proves_that_the_registration_arrived() {
    let mut world = World::new();
    world.open();
    let handshake = world.last(MessageType::Handshake);
    world.receive_ack(&handshake.id, None);
    let register = world.last(MessageType::Register);
    world.sent.clear();
    world.dispatch("t1", 1, "k");
    assert_eq!(world.actions(), ["ack", "start t1 1"]);
    assert_eq!(world.protocol.state(), WorkerState::Heartbeating);
    // The late acknowledgement changes nothing.
    world.receive_ack(&register.id, None);
    assert_eq!(world.protocol.state(), WorkerState::Heartbeating);
    world.pass(1_000);
    assert_eq!(world.actions(), ["heartbeat"], "it is not sent again");
}

#[test]
fn d4_a_rejected_token_leads_to_a_retry() {
    let mut world = World::new();
    world.open();
    world.sent.clear();
    world.receive_error(ErrorCode::AuthInvalidToken, None, None);
    assert_eq!(world.actions(), ["close Retry"]);
    world.cut();
    assert_eq!(world.protocol.state(), WorkerState::Backoff);
    assert!(world.protocol.retry_at() > world.now().mono);
    // The same happens when a running session is kicked.
    let mut world = World::up();
    world.sent.clear();
    world.receive_error(ErrorCode::AuthInvalidToken, None, None);
    assert_eq!(world.actions(), ["close Retry"]);
}

#[test]
fn d5_frames_of_another_tenant_or_of_no_scheduler_have_no_effect() {
    let mut world = World::up();
    world.sent.clear();
    for (pointer, value) in [("/tenant", "other"), ("/sender/role", "worker")] {
        let mut frame = world.frame("cmd.drain", json!({}));
        *frame.pointer_mut(pointer).unwrap() = json!(value);
        world.receive(&frame);
        assert_eq!(world.actions(), ["E.SESSION.DENIED"]);
    }
    assert_eq!(world.protocol.state(), WorkerState::Heartbeating);
}

#[test]
fn d1_bad_frames_get_an_error_and_only_many_of_them_end_the_connection() {
    let mut world = World::up();
    world.sent.clear();
    let error = Frame::parse(b"garbage").unwrap_err();
    for _ in 1..BAD_FRAMES_MAX {
        world.protocol.handle_bad_frame(world.now(), &error, &mut world.sent);
        assert_eq!(world.actions(), ["E.CMD.UNKNOWN"]);
    }
    world.protocol.handle_bad_frame(world.now(), &error, &mut world.sent);
    assert_eq!(world.actions(), ["E.CMD.UNKNOWN", "close Retry"]);
    // Broken errors get no answer: the exchange would never end.
    let mut world = World::up();
    world.sent.clear();
    let mut answer = world.frame("error", json!({}));
    answer["payload"] = json!({"code": ""});
    let error = Frame::parse(answer.to_string().as_bytes()).unwrap_err();
    world.protocol.handle_bad_frame(world.now(), &error, &mut world.sent);
    assert!(world.actions().is_empty());
}

#[test]
fn d8_a_duplicate_dispatch_is_acknowledged_and_not_run_again() {
    let mut world = World::up();
    world.pass(0);
    world.sent.clear();
    let frame = world.dispatch("t1", 1, "k");
    assert_eq!(world.actions(), ["ack", "start t1 1"]);
    world.receive(&frame);
    assert_eq!(world.actions(), ["ack"]);
    // Resent under another id, as after a rebind.
    world.dispatch("t1", 1, "k");
    assert_eq!(world.actions(), ["ack"]);
    world.end("t1", 1, done());
    assert_eq!(world.actions(), ["Succeeded 1"]);
    // Its result is not acknowledged yet, so it is sent again.
    world.dispatch("t1", 1, "k");
    world.pass(0);
    assert_eq!(world.actions(), ["ack", "Succeeded 1"]);
    assert_eq!(world.protocol.tally().duplicates, 3);
}

#[test]
fn d9_d16_results_outlive_the_connection_and_are_matched_by_task_and_seq() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.dispatch("t2", 2, "k");
    world.end("t1", 1, done());
    let first = world.last(MessageType::Result);
    world.cut();
    world.sent.clear();
    // It ends while there is no connection.
    world.end("t2", 2, done());
    assert!(world.actions().is_empty());
    world.ms = 3_000;
    world.connect();
    world.pass(0);
    let results: Vec<Frame> =
        world.sent().into_iter().filter(|frame| frame.message.kind() == MessageType::Result).collect();
    assert_eq!(results.iter().map(|frame| frame.seq.unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(results[0], first, "a frame that is sent again is the same frame");
    world.receive_ack(&results[0].id, Some("E.RESULT.DUPLICATE"));
    world.receive_ack(&results[1].id, None);
    assert_eq!(world.protocol.outcomes_waiting(), 0);
    world.sent.clear();
    world.dispatch("t2", 2, "k");
    assert_eq!(world.actions(), ["ack"]);
}

#[test]
fn d10_a_gap_resends_the_results_of_the_run() {
    let mut world = World::up();
    for seq in 1..=3 {
        world.dispatch(&format!("t{seq}"), seq, "k");
        world.end(&format!("t{seq}"), seq, done());
    }
    let first = world.sent().into_iter().find(|frame| frame.message.kind() == MessageType::Result).unwrap();
    world.receive_ack(&first.id, None);
    world.pass(0);
    world.sent.clear();
    world.receive_error(ErrorCode::ResultSeqGap, Some("t3"), Some(3));
    world.pass(0);
    assert_eq!(world.actions(), ["Succeeded 2", "Succeeded 3"]);
}

#[test]
fn d11_d12_d17_a_rejection_is_kept_until_it_is_acknowledged() {
    let mut world = World::up();
    for seq in 1..=4 {
        world.dispatch(&format!("t{seq}"), seq, "k");
    }
    world.sent.clear();
    world.dispatch("t5", 5, "k");
    assert_eq!(world.actions(), ["ack", "E.CMD.CONCURRENCY_VIOLATION"]);
    world.dispatch("t6", 6, "unknown");
    let rejection = world.last(MessageType::Error);
    let Message::Error(error) = &rejection.message else { panic!("no error") };
    let context = error.context.clone().unwrap();
    assert_eq!(context.r#where.as_deref(), Some("worker.handlers"));
    let details: serde_json::Value = context.details.unwrap().read().unwrap();
    assert_eq!(details, json!({"run_id": "r1", "task_id": "t6", "node_id": "n"}));
    assert_eq!((rejection.corr.as_deref(), rejection.seq), (Some("t6"), Some(6)));
    world.sent.clear();
    world.pass(250);
    assert_eq!(
        world.actions().iter().filter(|action| action.starts_with("E.")).count(),
        2,
        "both leave again"
    );
}

#[test]
fn t11_a_canceled_attempt_is_reported() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.sent.clear();
    let mut cancel = world.frame("cmd.cancel", json!({"run_id": "r1", "task_id": "t1"}));
    cancel["ack"] = json!({"request": true});
    world.receive(&cancel);
    assert_eq!(world.actions(), ["ack", "stop t1 1 Canceled"]);
    world.receive(&cancel);
    assert_eq!(world.actions(), ["ack"]);
    world.end("t1", 1, Ended::Failed(Failure::permanent("x", "asked to stop")));
    let Message::Result(result) = world.last(MessageType::Result).message else { panic!("no result") };
    assert_eq!(result.status, ResultStatus::Cancelled);
    assert_eq!(result.error.unwrap().code, "E.RUNNER.CANCELLED");
}

#[test]
fn a_cancel_of_another_attempt_stops_nothing() {
    let mut world = World::up();
    world.dispatch("t1", 2, "k");
    world.sent.clear();
    let mut cancel = world.frame("cmd.cancel", json!({"run_id": "r1", "task_id": "t1"}));
    cancel["seq"] = json!(1);
    world.receive(&cancel);
    assert!(world.actions().is_empty());
}

#[test]
fn t10_an_attempt_that_the_worker_stops_may_be_retried_elsewhere() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.pass(0);
    world.cut();
    world.sent.clear();
    // No answer for three heartbeats: the task is asked to stop before the lease ends, and dropped when it
    // does.
    world.pass(14_999);
    assert_eq!(world.actions(), ["stop t1 1 Lease"]);
    world.pass(1);
    assert_eq!(world.actions(), ["abandon t1 1"]);
    world.end("t1", 1, Ended::Stopped);
    world.connect();
    world.pass(0);
    assert!(world.actions().contains(&"E.RUNNER.CANCELLED".to_owned()));
}

#[test]
fn a_lease_has_the_length_of_the_scheduler_and_counts_from_the_sending() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.pass(0);
    let beat = world.last(MessageType::Heartbeat);
    world.ms = 4_000;
    world.receive_ack(&beat.id, Some("lease_ms=60000"));
    assert_eq!(world.protocol.lease_until, Duration::from_secs(60));
    assert_eq!(world.protocol.latency_ms, Some(4_000));
}

#[test]
fn d14_a_connection_without_replies_is_closed() {
    let mut world = World::up();
    world.sent.clear();
    world.pass(60_000);
    assert_eq!(world.ms, 15_000);
    assert_eq!(world.actions(), ["heartbeat", "heartbeat", "heartbeat", "close Retry"]);
}

#[test]
fn a_handshake_without_a_reply_ends_the_connection() {
    let mut world = World::new();
    world.open();
    world.pass(60_000);
    assert!(world.ms <= HANDSHAKE_LIMIT.as_millis() as u64);
    assert_eq!(world.actions().last().unwrap(), "close Retry");
}

#[test]
fn t13_a_result_without_an_ack_ends_the_connection_and_is_kept() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.end("t1", 1, done());
    world.sent.clear();
    let mut results = 0;
    for _ in 0..200 {
        world.pass(100);
        // Only the result is not acknowledged.
        for frame in world.sent() {
            if frame.message.kind() == MessageType::Heartbeat {
                world.receive_ack(&frame.id, None);
            }
        }
        let actions = world.actions();
        results += actions.iter().filter(|action| *action == "Succeeded 1").count();
        if actions.contains(&"close Retry".to_owned()) {
            assert_eq!(results, 6);
            world.cut();
            world.connect();
            world.pass(0);
            assert!(world.actions().contains(&"Succeeded 1".to_owned()));
            return;
        }
    }
    panic!("the connection was never given up");
}

#[test]
fn d22_a_stale_attempt_is_stopped_and_its_outcome_discarded() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.sent.clear();
    world.receive_error(ErrorCode::SessionStaleBinding, Some("t1"), Some(1));
    assert_eq!(world.actions(), ["stop t1 1 Stale"]);
    world.end("t1", 1, done());
    assert!(world.actions().is_empty(), "its outcome is not sent");
    assert_eq!(world.protocol.outcomes_waiting(), 0);
    // A result that is rejected by the id of its frame is forgotten as well.
    world.dispatch("t2", 2, "k");
    world.end("t2", 2, done());
    let result = world.last(MessageType::Result);
    world.receive_error(ErrorCode::SessionStaleBinding, Some(&result.id), None);
    assert_eq!(world.protocol.outcomes_waiting(), 0);
}

#[test]
fn a_worker_whose_name_was_taken_ends() {
    let mut world = World::up();
    world.sent.clear();
    world.receive_error(ErrorCode::SessionStaleBinding, None, None);
    assert_eq!(world.actions(), ["close Superseded"]);
}

#[test]
fn a_newer_attempt_starts_when_the_older_one_has_ended() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.sent.clear();
    world.dispatch("t1", 2, "k");
    assert_eq!(world.actions(), ["ack", "stop t1 1 Stale"]);
    world.end("t1", 1, done());
    assert_eq!(world.actions(), ["start t1 2"]);
    world.end("t1", 2, done());
    assert_eq!(world.actions(), ["Succeeded 2"]);
}

#[test]
fn d13_a_drain_finishes_tasks_sends_results_and_closes() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.pass(0);
    world.sent.clear();
    let drain = world.frame("cmd.drain", json!({}));
    world.receive(&drain);
    assert_eq!(world.protocol.state(), WorkerState::Draining);
    world.pass(0);
    let beat = world.last(MessageType::Heartbeat);
    let Message::Heartbeat(heartbeat) = &beat.message else { panic!("no heartbeat") };
    assert!(!heartbeat.healthy);
    world.sent.clear();
    world.dispatch("t2", 2, "k");
    assert_eq!(world.actions(), ["ack", "E.CMD.CONCURRENCY_VIOLATION"]);
    let rejected = world.protocol.outcomes_waiting();
    world.end("t1", 1, done());
    let result = world.last(MessageType::Result);
    world.sent.clear();
    world.receive_ack(&result.id, None);
    assert_eq!(rejected, 1, "the rejection still waits");
    assert!(world.actions().is_empty());
    world.pass(250);
    let rejection = world.last(MessageType::Error);
    world.sent.clear();
    world.receive_ack(&rejection.id, None);
    assert_eq!(world.actions(), ["close Done"]);
    assert_eq!(world.protocol.state(), WorkerState::Closed);
}

#[test]
fn a_drain_ends_in_any_case() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.receive_ack("nothing", Some("lease_ms=600000"));
    world.pass(0);
    let beat = world.last(MessageType::Heartbeat);
    world.receive_ack(&beat.id, Some("lease_ms=600000"));
    world.protocol.drain(world.now(), Some(Duration::from_secs(3)), &mut world.sent);
    world.sent.clear();
    world.pass(3_000);
    assert!(world.actions().contains(&"stop t1 1 Drain".to_owned()));
    world.end("t1", 1, Ended::Stopped);
    assert_eq!(world.actions(), ["E.RUNNER.CANCELLED"]);
    world.pass(20_000);
    assert_eq!(world.actions().last().unwrap(), "close Done", "also without acknowledgements");
}

#[test]
fn an_idle_worker_that_is_not_connected_drains_at_once() {
    let mut world = World::new();
    world.protocol.drain(world.now(), None, &mut world.sent);
    assert_eq!(world.actions(), ["close Done"]);
}

#[test]
fn d15_a_full_machine_requests_no_more_work() {
    let mut world = World::up();
    for (mem_pct, healthy) in [(89.9, true), (90.0, false)] {
        world.environment.mem_pct = mem_pct;
        world.sent.clear();
        world.pass(5_000);
        let beat = world.last(MessageType::Heartbeat);
        world.receive_ack(&beat.id, None);
        let Message::Heartbeat(heartbeat) = beat.message else { panic!("no heartbeat") };
        assert_eq!(heartbeat.healthy, healthy, "{mem_pct}");
    }
    assert_eq!(world.protocol.tally().degraded, 1);
}

#[test]
fn t14_feedback_waits_for_a_connection_and_the_newest_is_kept() {
    let mut world = World::up();
    world.dispatch("t1", 1, "k");
    world.cut();
    world.sent.clear();
    let key = TaskKey { task_id: Text::fixed("t1"), seq: 1 };
    for n in 0..FEEDBACK_WAITING_MAX + 3 {
        let feedback = Feedback {
            run_id: Text::fixed("r1"),
            task_id: Text::fixed("t1"),
            stage: None,
            progress: None,
            message: Some(n.to_string()),
            chunks: None,
            metrics: None,
            metadata: None,
        };
        world.protocol.send_for_task(world.now(), &key, Message::Feedback(feedback), &mut world.sent);
    }
    assert!(world.actions().is_empty());
    world.connect();
    let first = world.sent().into_iter().find(|frame| frame.message.kind() == MessageType::Feedback).unwrap();
    assert!(
        matches!(&first.message, Message::Feedback(feedback) if feedback.message.as_deref() == Some("3"))
    );
    assert_eq!(world.protocol.tally().feedback_dropped, 3);
    assert_eq!(Channel::ALL.len(), 6);
}

#[test]
fn a_failure_says_whether_a_retry_helps() {
    let mut world = World::up();
    for (seq, ended, code, retryable) in [
        (1, Ended::Failed(Failure::transient("busy", "later")), "busy", true),
        (2, Ended::Failed(Failure::permanent("", "never")), "E.RUNNER.FAILURE", false),
        (3, Ended::TimedOut, "E.TIMEOUT", true),
        (4, Ended::Panicked("oh".to_owned()), "E.RUNNER.FAILURE", false),
    ] {
        let task = format!("t{seq}");
        world.dispatch(&task, seq, "k");
        world.end(&task, seq, ended);
        let Message::Result(result) = world.last(MessageType::Result).message else { panic!("no result") };
        assert_eq!(result.status, ResultStatus::Failed);
        assert_eq!(result.error.unwrap().code, code);
        let metadata: serde_json::Value = result.metadata.unwrap().read().unwrap();
        assert_eq!(metadata["retryable"], retryable);
    }
}

#[test]
fn a_result_that_no_frame_can_hold_is_a_failure() {
    let mut world = World::up();
    let long = |len: usize| Ended::Done(Outcome::of(&json!({"x": "y".repeat(len)})).unwrap());
    for (seq, len, status) in
        [(1, 4 << 20, ResultStatus::Failed), (2, (4 << 20) - (128 << 10), ResultStatus::Succeeded)]
    {
        world.dispatch(&format!("t{seq}"), seq, "k");
        world.end(&format!("t{seq}"), seq, long(len));
        let frame = world.last(MessageType::Result);
        assert!(Frame::parse(frame.encode().as_bytes()).is_ok());
        assert!(matches!(&frame.message, Message::Result(result) if result.status == status));
    }
}

#[test]
fn a_flood_of_dispatches_is_bounded() {
    let mut world = World::up();
    for seq in 0..OUTBOX_LEN_MAX as u64 + 50 {
        world.dispatch(&format!("t{seq}"), seq, "unknown");
    }
    assert_eq!(world.protocol.outcomes_waiting(), OUTBOX_LEN_MAX);
    assert_eq!(world.protocol.tally().unkept, 50);
    assert_eq!(world.last(MessageType::Error).seq, Some(OUTBOX_LEN_MAX as u64 + 49), "each gets an answer");
}

#[test]
fn reports_wait_until_the_session_is_up() {
    let mut world = World::new();
    let event = laneway_wire::frame::PackageEvent {
        name: Text::fixed("p"),
        version: Text::fixed("1"),
        status: laneway_wire::frame::PackageOutcome::Installed,
        log_url: None,
        details: None,
    };
    world.protocol.report(world.now(), None, Message::PackageEvent(event), &mut world.sent);
    world.open();
    world.pass(1_000);
    assert!(
        world.actions().iter().all(|action| action == "handshake"),
        "nothing leaves before the handshake is done"
    );
    world.cut();
    world.connect();
    world.pass(0);
    let event = world.last(MessageType::PackageEvent);
    world.receive_ack(&event.id, None);
    assert_eq!(world.protocol.outcomes_waiting(), 0);
}

#[test]
fn waits_between_connections_grow() {
    let mut world = World::new();
    let mut longest = Duration::ZERO;
    for _ in 0..12 {
        world.protocol.dial();
        world.cut();
        let wait = world.protocol.retry_at() - world.now().mono;
        assert!(wait <= Duration::from_secs(30));
        longest = longest.max(wait);
    }
    assert!(longest >= Duration::from_secs(15));
    world.connect();
    world.cut();
    assert!(world.protocol.retry_at() - world.now().mono <= Duration::from_millis(500));
}

#[test]
fn a_part_of_a_resource_is_sent_or_rejected_once() {
    let mut world = World::up();
    world.sent.clear();
    let asked = world.frame("resource.read", json!({"resource_id": "res-1", "offset": 4, "limit": 8}));
    world.receive(&asked);
    let id = Text::fixed(asked["id"].as_str().unwrap());
    let read = ResourceRead { resource_id: Text::fixed("res-1"), offset: 4, limit: 8 };
    assert_eq!(world.sent, [Action::Read(id.clone(), read)]);
    world.sent.clear();
    let resource_id = Text::fixed("res-1");
    let data = ResourceData { resource_id, offset: 4, size_bytes: 6, data_base64: "AAE=".to_owned() };
    world.protocol.part_read(world.now(), id.clone(), Ok(data.clone()), &mut world.sent);
    let rejection =
        Rejection { code: ErrorCode::ResourceMissing, part: "worker.resources", message: "no".to_owned() };
    world.protocol.part_read(world.now(), id.clone(), Err(rejection), &mut world.sent);
    let sent = world.sent();
    assert_eq!(sent[0].message, Message::ResourceData(data.clone()));
    assert!(sent.iter().all(|frame| frame.corr.as_ref() == Some(&id) && !frame.wants_ack()));
    assert_eq!(world.actions(), ["resource.data", "E.RESOURCE.MISSING"]);
    // No peer waits for it on another connection.
    world.protocol.disconnected(world.now());
    world.protocol.part_read(world.now(), id, Ok(data), &mut world.sent);
    assert_eq!(world.actions(), Vec::<String>::new());
}

#[test]
fn defect_01_a_process_registers_its_boot_id_and_its_tasks() {
    let registered = |world: &World| match world.last(MessageType::Register).message {
        Message::Register(register) => register,
        other => panic!("{other:?} is not a registration"),
    };
    let mut world = World::new();
    world.connect();
    for (task, seq) in [("runs", 1), ("ended", 2), ("known", 3)] {
        world.dispatch(task, seq, "k");
    }
    world.end("known", 3, done());
    let result = world.last(MessageType::Result);
    world.receive_ack(&result.id, None);
    // The outcome of this task is sent and not acknowledged.
    world.end("ended", 2, done());
    world.protocol.disconnected(world.now());
    world.ms += 60_000;
    world.open();
    let handshake = world.last(MessageType::Handshake);
    world.receive_ack(&handshake.id, None);
    let register = registered(&world);
    assert_eq!(register.boot_id.as_deref(), Some("boot-7"));
    let tasks: Vec<(&str, u64)> =
        register.tasks.iter().flat_map(|tasks| tasks.iter()).map(|task| (&*task.task_id, task.seq)).collect();
    assert_eq!(tasks, [("ended", 2), ("runs", 1)]);
}

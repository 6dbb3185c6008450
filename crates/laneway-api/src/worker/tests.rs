//! Dialogues with a worker, step by step, without sockets and clocks. Every frame of the server is checked against
//! its schema.

mod artifact_chunks;

use std::time::Duration;

use expect_test::{Expect, expect};
use laneway_core::{JobId, Name, Span, Task};
use laneway_wire::frame::{
    Constraints, Dispatch, Drain, ErrorCode, Frame, Handshake, JsonObject, Message, Text, Timestamp,
    check_schema,
};
use serde_json::{Value, json};

use super::handshake::{Authenticate, HandshakeRejection};
use super::messages::{Answer, Member, Question, Ticket};
use super::outbox::OUTBOX_BYTES_MAX;
use super::session::{
    Action, BAD_FRAMES_MAX, BAD_FRAMES_RATE_MAX, Now, QUESTIONS_MAX, Session, SessionState,
    UNAUTHENTICATED_FRAMES_MAX,
};

/// The answer to a registration or a heartbeat.
const ALIVE: Answer = Answer::Alive { lease: Span::secs(30) };

/// Accepts every worker with the token `good`.
struct TestAuthenticator;

impl Authenticate for TestAuthenticator {
    fn admit(&self, tenant: &str, handshake: &Handshake) -> Result<Member, HandshakeRejection> {
        if handshake.auth.token.as_ref().is_none_or(|token| token.0 != "good") {
            return Err(HandshakeRejection::new(ErrorCode::AuthInvalidToken, "the token is unknown"));
        }
        Ok(Member {
            tenant: Name::new(tenant).unwrap(),
            worker: Name::new(&handshake.worker.id).unwrap(),
            version: "1".into(),
            hostname: "h".into(),
        })
    }
}

/// A session with its frames and requests, and a clock that moves only on request.
struct World {
    session: Session,
    ms: u64,
    frames: u64,
    actions: Vec<Action>,
    asked: Vec<(Ticket, Question)>,
    log: String,
}

impl World {
    fn new() -> World {
        let session = Session::new(now(0), 7, Duration::from_secs(5), fastrand::Rng::with_seed(1));
        World { session, ms: 0, frames: 0, actions: Vec::new(), asked: Vec::new(), log: String::new() }
    }

    /// A worker whose session is up.
    fn up() -> World {
        let mut world = World::new();
        world.greet();
        world.receive("register", register());
        world.answer(ALIVE);
        world.receive("heartbeat", heartbeat());
        world.answer(ALIVE);
        world.log.clear();
        world
    }

    /// Does something with the session, and records the frames and requests that follow.
    fn act(&mut self, act: impl FnOnce(&mut Session, Now, &mut Vec<Action>)) {
        act(&mut self.session, now(self.ms), &mut self.actions);
        self.record();
    }

    fn now(&self) -> Now {
        now(self.ms)
    }

    fn greet(&mut self) {
        self.receive("handshake", handshake("good"));
    }

    fn frame(&mut self, kind: &str, payload: Value) -> Value {
        self.frames += 1;
        json!({"type": kind, "id": format!("w-{}", self.frames), "ts": "2030-01-01T00:00:00Z", "tenant": "acme",
            "sender": {"role": "worker", "id": "w1"}, "ack": {"request": true}, "payload": payload})
    }

    fn receive(&mut self, kind: &str, payload: Value) -> Value {
        let frame = self.frame(kind, payload);
        self.receive_frame(&frame);
        frame
    }

    /// A frame about an attempt.
    fn receive_about(&mut self, kind: &str, task: Task, payload: Value) -> Value {
        let mut frame = self.frame(kind, payload);
        frame["corr"] = json!(task.job.to_string());
        frame["seq"] = json!(task.dispatch_seq);
        self.receive_frame(&frame);
        frame
    }

    fn receive_frame(&mut self, frame: &Value) {
        let kind = frame["type"].as_str().unwrap();
        self.log += &format!("worker    {kind} {}\n", frame["id"].as_str().unwrap());
        self.receive_text(&frame.to_string());
    }

    fn receive_text(&mut self, text: &str) {
        self.session.handle_text(self.now(), text.as_bytes(), &TestAuthenticator, &mut self.actions);
        self.record();
    }

    /// The worker acknowledges the last frame that requests it.
    fn receive_ack(&mut self, id: &str, task: Task) {
        let mut frame = self.frame("ack", json!({"ok": true, "for": id}));
        frame["ack"] = json!({"for": id});
        frame["corr"] = json!(task.job.to_string());
        frame["seq"] = json!(task.dispatch_seq);
        self.receive_frame(&frame);
    }

    /// The scheduler answers the oldest request.
    fn answer(&mut self, answer: Answer) {
        let (ticket, _) = self.asked.remove(0);
        self.log += &format!("engine    {answer:?}\n");
        self.session.answered(self.now(), ticket, answer, &mut self.actions);
        self.record();
    }

    fn bind(&mut self, job: u128, seq: u64) -> Task {
        let task = Task { job: JobId(job), dispatch_seq: seq };
        self.session.bind(task, None);
        task
    }

    fn dispatch(&mut self, job: u128, seq: u64) -> (Task, String) {
        let task = self.bind(job, seq);
        self.session.dispatch(self.now(), task, payload(job, "{}"), &mut self.actions);
        let id = self.last_sent().id.to_string();
        self.record();
        (task, id)
    }

    fn last_sent(&self) -> Frame {
        let text = self.actions.iter().rev().find_map(|action| match action {
            Action::Send(text) => Some(text.clone()),
            _ => None,
        });
        Frame::parse(text.expect("nothing was sent").as_bytes()).unwrap()
    }

    /// Moves the clock, and handles everything that becomes due.
    fn pass(&mut self, ms: u64) {
        let until = self.ms + ms;
        while let Some(at) = self.session.next_wakeup().map(whole_ms).filter(|at| *at <= until) {
            self.ms = self.ms.max(at);
            self.session.handle_tick(self.now(), &mut self.actions);
            self.record();
        }
        self.ms = until;
    }

    /// Records frames and requests.
    fn record(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Send(text) => {
                    if let Err(error) = check_schema(&text) {
                        panic!("the scheduler sent a frame that violates its schema: {error}\n{text}");
                    }
                    let frame = Frame::parse(text.as_bytes()).unwrap();
                    self.log += &format!("scheduler {}\n", describe(&frame));
                }
                Action::Ask(ticket, question) => {
                    self.log += &format!("session   asks {}\n", describe_question(&question));
                    self.asked.push((ticket, question));
                }
                Action::Chunk(number, Ok(part)) => {
                    let text = String::from_utf8_lossy(&part.bytes).into_owned();
                    self.log += &format!("session   has part {number}: {text:?} of {}\n", part.size);
                }
                Action::Chunk(number, Err(trouble)) => {
                    self.log += &format!("session   has no part {number}: {trouble:?}\n");
                }
                Action::Missed(count) => self.log += &format!("session   misses {count}\n"),
                Action::Close(closing) => {
                    self.log += &format!("session   closes {} {}\n", closing.code, closing.reason);
                }
            }
        }
    }

    fn check(&mut self, expected: &Expect) {
        expected.assert_eq(&std::mem::take(&mut self.log));
    }
}

fn now(ms: u64) -> Now {
    Now { mono: Duration::from_millis(ms), wall: Timestamp(jiff::Timestamp::UNIX_EPOCH) }
}

/// The clock of these tests has whole milliseconds.
fn whole_ms(at: Duration) -> u64 {
    at.as_nanos().div_ceil(1_000_000) as u64
}

fn payload(job: u128, parameters: &str) -> Dispatch {
    let id = Text::fixed(&JobId(job).to_string());
    Dispatch {
        run_id: id.clone(),
        task_id: id.clone(),
        node_id: id,
        node_type: Text::fixed("resize"),
        package_name: Text::fixed("img"),
        package_version: Text::fixed("1"),
        parameters: JsonObject::from_raw(
            serde_json::value::RawValue::from_string(parameters.to_owned()).unwrap(),
        )
        .unwrap(),
        constraints: Constraints::default(),
        priority: None,
        host_node_id: None,
        middleware_chain: None,
        chain_index: None,
        concurrency_key: None,
        resource_refs: None,
        affinity: None,
        traceparent: None,
        tracestate: None,
    }
}

fn handshake(token: &str) -> Value {
    json!({"protocol": 1, "auth": {"mode": "token", "token": token},
        "worker": {"id": "w1", "version": "1", "hostname": "h"}})
}

fn heartbeat() -> Value {
    json!({"healthy": true, "metrics": {"inflight": 0}})
}

fn register() -> Value {
    json!({"capabilities": {"concurrency": {"max_parallel": 4}, "runtimes": ["rust"], "features": ["kind:resize"]},
        "packages": []})
}

fn result(task: Task) -> Value {
    let id = task.job.to_string();
    json!({"run_id": id, "task_id": id, "status": "SUCCEEDED", "result": {"n": 1}})
}

fn feedback(task: Task) -> Value {
    let id = task.job.to_string();
    json!({"run_id": id, "task_id": id, "progress": 0.5})
}

fn describe(frame: &Frame) -> String {
    let about = |frame: &Frame| {
        let job = frame.corr.as_ref().map(|corr| match JobId::parse(corr) {
            Some(job) => format!(" t{}", job.0),
            None => format!(" {corr}"),
        });
        let seq = frame.seq.map(|seq| format!(" seq={seq}"));
        format!("{}{}", job.unwrap_or_default(), seq.unwrap_or_default())
    };
    match &frame.message {
        Message::Ack(ack) => {
            let info = ack.info.as_ref().map(|info| format!(" {info}")).unwrap_or_default();
            format!("ack {}{info}", ack.r#for)
        }
        Message::Error(error) => format!("error {}{}", error.code, about(frame)),
        other => format!("{}{}", other.kind().as_str(), about(frame)),
    }
}

fn describe_question(question: &Question) -> String {
    match question {
        Question::Register(_) => "register".to_owned(),
        Question::Heartbeat(_) => "heartbeat".to_owned(),
        Question::Accepted(task) => format!("accepted t{}", task.job.0),
        Question::Rejected(task, why) => format!("rejected t{} {}", task.job.0, why.code),
        Question::Ended(ended) => {
            format!("ended t{} seq={} {:?}", ended.task.job.0, ended.task.dispatch_seq, ended.outcome)
        }
        Question::Feedback(task, _) => format!("feedback t{}", task.job.0),
        Question::Package(event) => format!("package {}", event.name),
        Question::Next(task, request) => format!("next t{} {}", task.job.0, request.request_id),
    }
}

#[test]
fn d2_the_example_exchange() {
    let mut world = World::new();
    world.greet();
    assert_eq!(world.session.state(), SessionState::Handshaking);
    world.receive("register", register());
    assert_eq!(world.session.state(), SessionState::Registered);
    world.answer(ALIVE);
    let (task, id) = world.dispatch(1, 1);
    world.receive_ack(&id, task);
    world.answer(Answer::Done);
    world.receive_about("feedback", task, feedback(task));
    world.answer(Answer::Done);
    world.receive_about("result", task, result(task));
    // No frame is acknowledged before the commit.
    world.answer(Answer::Done);
    world.receive("heartbeat", heartbeat());
    world.answer(ALIVE);
    assert_eq!(world.session.state(), SessionState::Heartbeating);
    world.check(&expect![[r#"
        worker    handshake w-1
        scheduler ack w-1
        worker    register w-2
        session   asks register
        engine    Alive { lease: Span(30000) }
        scheduler ack w-2 lease_ms=30000
        scheduler cmd.dispatch t1 seq=1
        worker    ack w-3
        session   asks accepted t1
        engine    Done
        worker    feedback w-4
        session   asks feedback t1
        engine    Done
        scheduler ack w-4
        worker    result w-5
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Done
        scheduler ack w-5
        worker    heartbeat w-6
        session   asks heartbeat
        engine    Alive { lease: Span(30000) }
        scheduler ack w-6 lease_ms=30000
    "#]]);
}

#[test]
fn d1_bad_frames_get_an_error_and_only_many_of_them_end_the_connection() {
    let mut world = World::up();
    world.receive_text("garbage");
    world.receive_text(r#"{"type":"heartbeat","id":"h","ts":"2030-01-01T00:00:00Z","tenant":"acme","sender":{"role":"worker","id":"w1"},"payload":{}}"#);
    world.receive("cmd.dance", json!({}));
    world.receive("cmd.drain", json!({}));
    world.act(|session, now, out| session.handle_binary(now, 3, out));
    world.check(&expect![[r#"
        scheduler error E.CMD.UNKNOWN
        scheduler error E.CMD.UNKNOWN h
        worker    cmd.dance w-4
        scheduler error E.CMD.UNKNOWN w-4
        worker    cmd.drain w-5
        scheduler error E.CMD.UNKNOWN w-5
        scheduler error E.CMD.UNKNOWN
    "#]]);
    for _ in 6..=BAD_FRAMES_MAX {
        world.receive_text("garbage");
    }
    assert!(world.log.ends_with("closes 1008 too many bad frames\n"), "{}", world.log);
    // Good frames between them do not reset the rate.
    let mut world = World::up();
    for _ in 0..BAD_FRAMES_RATE_MAX {
        assert_ne!(world.session.state(), SessionState::Closed);
        world.receive("heartbeat", heartbeat());
        world.answer(ALIVE);
        world.receive_text("garbage");
    }
    assert_eq!(world.session.state(), SessionState::Closed);
    // Broken errors get no reply: the exchange would never end.
    let mut world = World::up();
    world.receive("error", json!({"code": ""}));
    world.check(&expect![[r#"
        worker    error w-4
    "#]]);
}

#[test]
fn d3_no_frame_is_accepted_before_handshake_and_registration() {
    let mut world = World::new();
    world.receive("register", register());
    world.receive("heartbeat", heartbeat());
    world.greet();
    world.receive("heartbeat", heartbeat());
    world.receive("result", result(Task { job: JobId(1), dispatch_seq: 1 }));
    world.check(&expect![[r#"
        worker    register w-1
        scheduler error E.SESSION.DENIED w-1
        worker    heartbeat w-2
        scheduler error E.SESSION.DENIED w-2
        worker    handshake w-3
        scheduler ack w-3
        worker    heartbeat w-4
        scheduler error E.SESSION.DENIED w-4
        worker    result w-5
        scheduler error E.SESSION.DENIED w-5
    "#]]);
    let mut world = World::new();
    for _ in 0..UNAUTHENTICATED_FRAMES_MAX {
        world.receive("register", register());
    }
    assert!(world.log.ends_with("closes 1008 handshake required\n"), "{}", world.log);
}

#[test]
fn d4_a_bad_token_gets_an_error_and_ends_the_connection() {
    let mut world = World::new();
    world.receive("handshake", handshake("bad"));
    world.check(&expect![[r#"
        worker    handshake w-1
        scheduler error E.AUTH.INVALID_TOKEN w-1
        session   closes 1008 the token is not valid here
    "#]]);
    // A token that is revoked later ends a running session.
    let mut world = World::up();
    let (code, reason) = (ErrorCode::AuthInvalidToken, "the token was revoked");
    world.act(|session, now, out| session.close_with_error(now, code, "revoked", reason, out));
    world.check(&expect![[r#"
        scheduler error E.AUTH.INVALID_TOKEN
        session   closes 1008 the token was revoked
    "#]]);
}

#[test]
fn d5_x10_frames_of_another_tenant_or_of_another_worker_have_no_effect() {
    let mut world = World::up();
    let (task, _) = world.dispatch(1, 1);
    world.log.clear();
    for (pointer, value) in [("/tenant", "other"), ("/sender/id", "w2"), ("/sender/role", "scheduler")] {
        let mut frame = world.frame("result", result(task));
        frame["corr"] = json!(task.job.to_string());
        frame["seq"] = json!(1);
        *frame.pointer_mut(pointer).unwrap() = json!(value);
        world.receive_frame(&frame);
    }
    world.check(&expect![[r#"
        worker    result w-4
        scheduler error E.SESSION.DENIED w-4
        worker    result w-5
        scheduler error E.SESSION.DENIED w-5
        worker    result w-6
        scheduler error E.SESSION.DENIED w-6
    "#]]);
    // A handshake that names two workers is rejected.
    let mut world = World::new();
    let mut frame = world.frame("handshake", handshake("good"));
    frame["sender"]["id"] = json!("w2");
    world.receive_frame(&frame);
    world.check(&expect![[r#"
        worker    handshake w-1
        scheduler error E.SESSION.DENIED w-1
        session   closes 1008 the handshake was rejected
    "#]]);
}

#[test]
fn d7_x3_a_dispatch_is_sent_again_until_it_is_acknowledged_but_not_forever() {
    let mut world = World::up();
    world.dispatch(1, 1);
    world.pass(700);
    world.check(&expect![[r#"
        scheduler cmd.dispatch t1 seq=1
        scheduler cmd.dispatch t1 seq=1
        scheduler cmd.dispatch t1 seq=1
    "#]]);
    // A frame without an acknowledgement ends the connection, whatever else the worker sends.
    for _ in 0..4 {
        world.receive("heartbeat", heartbeat());
        world.pass(4_000);
    }
    assert_eq!(world.log.matches("cmd.dispatch").count(), 4);
    assert!(world.log.ends_with("closes 1001 frames are not acknowledged\n"), "{}", world.log);
}

#[test]
fn x2_a_result_that_is_faster_than_its_acknowledgement_finds_its_task() {
    let mut world = World::up();
    // The attempt is bound before the frame is sent; the result arrives before the acknowledgement.
    let (task, id) = world.dispatch(1, 1);
    world.receive_about("result", task, result(task));
    world.receive_ack(&id, task);
    world.answer(Answer::Done);
    world.pass(5_000);
    world.check(&expect![[r#"
        scheduler cmd.dispatch t1 seq=1
        worker    result w-4
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        worker    ack w-5
        engine    Done
        scheduler ack w-4
    "#]]);
}

#[test]
fn x2_a_worker_may_be_faster_than_the_answer_to_its_registration() {
    let mut world = World::new();
    world.greet();
    world.receive("register", register());
    world.log.clear();
    // The engine sends the task before it answers the registration.
    let (task, id) = world.dispatch(1, 1);
    world.receive_ack(&id, task);
    world.receive_about("result", task, result(task));
    world.answer(ALIVE);
    world.answer(Answer::Done);
    world.answer(Answer::Done);
    world.check(&expect![[r#"
        scheduler cmd.dispatch t1 seq=1
        worker    ack w-3
        session   asks accepted t1
        worker    result w-4
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Alive { lease: Span(30000) }
        scheduler ack w-2 lease_ms=30000
        engine    Done
        engine    Done
        scheduler ack w-4
    "#]]);
}

#[test]
fn d8_a_duplicate_frame_gets_the_same_reply_and_has_no_effect() {
    let mut world = World::up();
    let (task, _) = world.dispatch(1, 1);
    world.log.clear();
    let frame = world.receive_about("result", task, result(task));
    world.receive_frame(&frame);
    world.answer(Answer::Done);
    world.receive_frame(&frame);
    world.check(&expect![[r#"
        worker    result w-4
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        worker    result w-4
        engine    Done
        scheduler ack w-4
        worker    result w-4
        scheduler ack w-4
    "#]]);
}

#[test]
fn d9_x1_a_result_counts_once() {
    let mut world = World::up();
    let (task, _) = world.dispatch(1, 1);
    world.log.clear();
    world.receive_about("result", task, result(task));
    world.answer(Answer::Done);
    world.receive_about("result", task, result(task));
    // From an earlier connection, of an attempt that this one does not know.
    let earlier = Task { job: JobId(9), dispatch_seq: 4 };
    world.receive_about("result", earlier, result(earlier));
    world.answer(Answer::Duplicate);
    world.check(&expect![[r#"
        worker    result w-4
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Done
        scheduler ack w-4
        worker    result w-5
        scheduler ack w-5 E.RESULT.DUPLICATE
        worker    result w-6
        session   asks ended t9 seq=4 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Duplicate
        scheduler ack w-6 E.RESULT.DUPLICATE
    "#]]);
}

#[test]
fn d10_a_gap_is_reported_and_the_result_may_be_sent_again() {
    let mut world = World::up();
    let ahead = Task { job: JobId(1), dispatch_seq: 9 };
    let frame = world.receive_about("result", ahead, result(ahead));
    world.answer(Answer::Gap);
    world.receive_frame(&frame);
    world.check(&expect![[r#"
        worker    result w-4
        session   asks ended t1 seq=9 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Gap
        scheduler error E.RESULT.SEQ_GAP t1 seq=9
        worker    result w-4
        session   asks ended t1 seq=9 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
    "#]]);
}

#[test]
fn d22_x7_reports_of_a_worker_that_does_not_own_the_task_are_rejected() {
    let mut world = World::up();
    let foreign = Task { job: JobId(5), dispatch_seq: 1 };
    world.receive_about("result", foreign, result(foreign));
    world.answer(Answer::Stale);
    world.receive_about("feedback", foreign, feedback(foreign));
    let mut frame = world.frame("result", result(foreign));
    frame["payload"]["task_id"] = json!("no job at all");
    world.receive_frame(&frame);
    // An attempt that was unbound does not belong to this worker, either.
    let (task, _) = world.dispatch(6, 1);
    world.act(|session, now, out| session.unbind(now, task, out));
    world.receive_about("result", task, result(task));
    world.answer(Answer::Stale);
    world.check(&expect![[r#"
        worker    result w-4
        session   asks ended t5 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Stale
        scheduler error E.SESSION.STALE_BINDING t5 seq=1
        worker    feedback w-5
        scheduler error E.SESSION.STALE_BINDING t5 seq=1
        worker    result w-6
        scheduler error E.SESSION.STALE_BINDING no job at all
        scheduler cmd.dispatch t6 seq=1
        scheduler error E.SESSION.STALE_BINDING t6 seq=1
        worker    result w-7
        session   asks ended t6 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Stale
        scheduler error E.SESSION.STALE_BINDING t6 seq=1
    "#]]);
}

#[test]
fn x11_errors_are_matched_by_task_and_by_the_id_of_the_dispatch() {
    let mut world = World::up();
    let (one, _) = world.dispatch(1, 1);
    let (_, two) = world.dispatch(2, 2);
    let (three, _) = world.dispatch(3, 3);
    let (four, _) = world.dispatch(4, 4);
    world.log.clear();
    let error = |code: &str| json!({"code": code, "message": "m"});
    world.receive_about("error", one, error("E.CMD.CONCURRENCY_VIOLATION"));
    let mut frame = world.frame("command.error", error("E.RUNNER.CANCELLED"));
    frame["corr"] = json!(two);
    world.receive_frame(&frame);
    world.receive_about("error", three, error("E.RESOURCE.MISSING"));
    world.receive_about("error", four, error("E.MY.OWN"));
    world.receive("error", error("E.INTERNAL"));
    world.check(&expect![[r#"
        worker    error w-4
        session   asks rejected t1 E.CMD.CONCURRENCY_VIOLATION
        worker    command.error w-5
        session   asks ended t2 seq=2 Interrupted
        worker    error w-6
        session   asks ended t3 seq=3 Failed(Failure { code: "E.RESOURCE.MISSING", message: "m", retryable: false, detail: None, retry_after: None })
        worker    error w-7
        session   asks ended t4 seq=4 Failed(Failure { code: "E.MY.OWN", message: "m", retryable: true, detail: None, retry_after: None })
        worker    error w-8
        scheduler ack w-8
    "#]]);
}

#[test]
fn a_stop_is_sent_and_its_result_is_acknowledged() {
    let mut world = World::up();
    let (task, id) = world.dispatch(1, 1);
    world.receive_ack(&id, task);
    world.answer(Answer::Done);
    world.act(|session, now, out| session.cancel(now, task, Some("by a user".to_owned()), out));
    let job = task.job.to_string();
    let stopped = json!({"run_id": job, "task_id": job, "status": "CANCELLED", "result": {}});
    world.receive_about("result", task, stopped);
    // The engine ignores the result of a canceled attempt; the worker has stopped as requested.
    world.answer(Answer::Stale);
    world.pass(1_000);
    world.check(&expect![[r#"
        scheduler cmd.dispatch t1 seq=1
        worker    ack w-4
        session   asks accepted t1
        engine    Done
        scheduler cmd.cancel t1 seq=1
        worker    result w-5
        session   asks ended t1 seq=1 Canceled
        engine    Stale
        scheduler ack w-5
    "#]]);
    // A stop that comes before the payload is read: the worker never receives the task.
    let task = world.bind(2, 2);
    world.act(|session, now, out| session.cancel(now, task, None, out));
    world.act(|session, now, out| session.dispatch(now, task, payload(2, "{}"), out));
    world.check(&expect![[r#"
        session   asks ended t2 seq=2 Canceled
    "#]]);
}

#[test]
fn a_stop_outlives_the_connection_that_it_was_sent_on() {
    let mut world = World::up();
    let task = Task { job: JobId(1), dispatch_seq: 1 };
    world.act(|session, now, out| session.cancel(now, task, None, out));
    let job = task.job.to_string();
    let stopped = json!({"run_id": job, "task_id": job, "status": "CANCELLED", "result": {}});
    world.receive_about("result", task, stopped);
    world.answer(Answer::Stale);
    // An attempt that has ended is not stopped.
    world.act(|session, now, out| session.cancel(now, task, None, out));
    world.check(&expect![[r#"
        scheduler cmd.cancel t1 seq=1
        worker    result w-4
        session   asks ended t1 seq=1 Canceled
        engine    Stale
        scheduler ack w-4
    "#]]);
}

#[test]
fn a_rejected_outcome_is_accepted_when_it_is_sent_again() {
    let mut world = World::up();
    let (task, _) = world.dispatch(1, 1);
    world.log.clear();
    let frame = world.receive_about("result", task, result(task));
    world.answer(Answer::Rejected("the server stops".into()));
    world.receive_frame(&frame);
    world.answer(Answer::Done);
    world.check(&expect![[r#"
        worker    result w-4
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Rejected("the server stops")
        scheduler error E.INTERNAL t1 seq=1
        worker    result w-4
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Done
        scheduler ack w-4
    "#]]);
}

#[test]
fn d13_a_drain_is_sent_and_results_are_still_accepted() {
    let mut world = World::up();
    let (task, id) = world.dispatch(1, 1);
    world.receive_ack(&id, task);
    world.answer(Answer::Done);
    world.log.clear();
    world.act(|session, now, out| session.drain(now, Drain::default(), out));
    assert_eq!(world.session.state(), SessionState::Draining);
    world.receive_about("result", task, result(task));
    world.answer(Answer::Done);
    world.check(&expect![[r#"
        scheduler cmd.drain
        worker    result w-5
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Done
        scheduler ack w-5
    "#]]);
}

#[test]
fn d16_x8_a_superseded_connection_gets_an_error_and_is_closed() {
    let mut world = World::up();
    world.act(|session, now, out| session.superseded(now, out));
    world.receive("heartbeat", heartbeat());
    world.check(&expect![[r#"
        scheduler error E.SESSION.STALE_BINDING
        session   closes 1008 superseded session
        worker    heartbeat w-4
    "#]]);
    // Or the engine says so in the answer to its next frame.
    let mut world = World::up();
    world.receive("heartbeat", heartbeat());
    world.answer(Answer::Superseded);
    assert_eq!(world.session.state(), SessionState::Closed);
}

#[test]
fn d16_outcomes_of_rebound_attempts_are_accepted_under_their_new_fence() {
    let mut world = World::up();
    // The engine has bound the attempt to this connection; the worker sends its result before the dispatch is sent
    // again.
    let task = world.bind(1, 1);
    world.receive_about("result", task, result(task));
    let now = world.now();
    world.session.dispatch(now, task, payload(1, "{}"), &mut world.actions);
    world.answer(Answer::Done);
    world.check(&expect![[r#"
        worker    result w-4
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
        engine    Done
        scheduler ack w-4
    "#]]);
}

#[test]
fn silence_and_late_frames_end_a_connection() {
    let mut world = World::new();
    world.pass(60_000);
    world.check(&expect![[r#"
        session   closes 1008 the handshake came too late
    "#]]);
    let mut world = World::new();
    world.greet();
    world.log.clear();
    world.pass(60_000);
    world.check(&expect![[r#"
        session   closes 1008 the registration came too late
    "#]]);
    let mut world = World::up();
    world.pass(17_000);
    world.check(&expect![[r#"
        session   misses 1
        session   misses 2
    "#]]);
    world.pass(1_000);
    world.check(&expect![[r#"
        session   closes 1001 no frame came for three heartbeats
    "#]]);
}

#[test]
fn d12_frames_without_an_acknowledgement_are_bounded() {
    let mut world = World::up();
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(3 << 20));
    let mut sent = 0;
    for job in 1..=4 {
        let task = world.bind(job, job as u64);
        let now = world.now();
        world.session.dispatch(now, task, payload(job, &large), &mut world.actions);
        sent += world.actions.iter().filter(|action| matches!(action, Action::Send(_))).count();
        for action in std::mem::take(&mut world.actions) {
            if let Action::Ask(_, question) = action {
                world.log += &format!("asks {}\n", describe_question(&question));
            }
        }
    }
    assert_eq!(sent, OUTBOX_BYTES_MAX / (3 << 20));
    world.check(&expect![[r#"
        asks rejected t3 E.CMD.CONCURRENCY_VIOLATION
        asks rejected t4 E.CMD.CONCURRENCY_VIOLATION
    "#]]);
}

#[test]
fn a_flood_of_requests_is_held_back() {
    let mut world = World::up();
    let (task, _) = world.dispatch(1, 1);
    for _ in 0..QUESTIONS_MAX {
        assert!(world.session.has_capacity());
        world.receive_about("feedback", task, feedback(task));
    }
    assert!(!world.session.has_capacity());
    while !world.asked.is_empty() {
        world.answer(Answer::Done);
    }
    assert!(world.session.has_capacity());
}

#[test]
fn older_workers_do_not_wait_for_replies() {
    let mut world = World::new();
    world.greet();
    world.receive("register", register());
    let mut beat = world.frame("heartbeat", json!({"healthy": true, "metrics": {"inflight": 0}}));
    beat.as_object_mut().unwrap().remove("ack");
    world.receive_frame(&beat);
    world.answer(Answer::Alive { lease: Span::secs(90) });
    let (task, id) = world.dispatch(1, 1);
    let mut ack = world.frame("ack", json!({"for": id}));
    ack["ack"] = json!({"for": id});
    world.receive_frame(&ack);
    let mut frame = world.frame("result", result(task));
    frame["corr"] = json!(id);
    frame["seq"] = json!(1);
    world.receive_frame(&frame);
    world.check(&expect![[r#"
        worker    handshake w-1
        scheduler ack w-1
        worker    register w-2
        session   asks register
        worker    heartbeat w-3
        engine    Alive { lease: Span(90000) }
        scheduler ack w-2 lease_ms=90000
        scheduler cmd.dispatch t1 seq=1
        worker    ack w-4
        session   asks accepted t1
        worker    result w-5
        session   asks ended t1 seq=1 Succeeded(Some([123, 34, 110, 34, 58, 49, 125]))
    "#]]);
}

#[test]
fn x5_next_is_accepted_only_for_a_running_task() {
    let mut world = World::up();
    let (task, _) = world.dispatch(1, 1);
    world.log.clear();
    let request =
        json!({"requestId": "q", "runId": "r", "nodeId": "n", "middlewareId": "m", "timeoutMs": 5_000});
    world.receive_about("middleware.next_request", task, request.clone());
    world.receive("middleware.next_request", request);
    world.check(&expect![[r#"
        worker    middleware.next_request w-4
        session   asks next t1 q
        worker    middleware.next_request w-5
        scheduler error E.CMD.UNKNOWN w-5
    "#]]);
}

#[test]
fn a_registration_that_is_rejected_ends_the_connection() {
    let mut world = World::new();
    world.greet();
    world.receive("register", register());
    world.answer(Answer::Rejected("a tenant has at most 10 workers".into()));
    world.check(&expect![[r#"
        worker    handshake w-1
        scheduler ack w-1
        worker    register w-2
        session   asks register
        engine    Rejected("a tenant has at most 10 workers")
        scheduler error E.SESSION.DENIED w-2
        session   closes 1008 the registration was rejected
    "#]]);
}

#[test]
fn only_the_edges_of_the_table_exist() {
    use SessionState::{Closed, Draining, Handshaking, Heartbeating, New, Registered};
    let edges = [
        (New, Handshaking),
        (Handshaking, Registered),
        (Registered, Heartbeating),
        (Registered, Draining),
        (Heartbeating, Draining),
        (New, Closed),
        (Handshaking, Closed),
        (Registered, Closed),
        (Heartbeating, Closed),
        (Draining, Closed),
    ];
    let all = [New, Handshaking, Registered, Heartbeating, Draining, Closed];
    for from in all {
        for to in all {
            assert_eq!(from.next().contains(&to), edges.contains(&(from, to)), "{from:?} -> {to:?}");
        }
    }
}

//! Runs through the loop: data between nodes, restarts, cancels, retries by hand.

use std::sync::Arc;

use laneway_core::{
    Binding, Bytes, Chain, ExecutorMode, ExecutorOffer, Failure, Fence, JobState, Member, Name, NextAnswer,
    NextCall, NextCode, Outcome, Reason, Reply, RunId, RunSpec, RunState, RunSubmission, Span,
};
use laneway_runtime::store::RunFilter;
use laneway_runtime::{Handlers, JobContext, Offered, Place, Retried, RunView, Scheduler};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::house::{TestStore, job_once, origin, start};

/// A node of kind `kind`: `bindings` are (from, source, target).
fn node(
    name: &str,
    kind: &str,
    payload: Value,
    depends_on: &[&str],
    bindings: &[(&str, &str, &str)],
) -> Member {
    let named = |text: &&str| Name::new(text).unwrap();
    let bind = |(from, source, target): &(&str, &str, &str)| Binding {
        from: Name::new(from).unwrap(),
        source: (*source).into(),
        target: (*target).into(),
    };
    Member {
        depends_on: depends_on.iter().map(named).collect(),
        bindings: bindings.iter().map(bind).collect(),
        ..Member::new(
            Name::new(name).unwrap(),
            job_once(kind).spec,
            Bytes::from(payload.to_string().into_bytes()),
        )
    }
}

fn run_of(members: Vec<Member>) -> RunSubmission {
    let spec = RunSpec { name: Some(Name::fixed("report")), ..RunSpec::new(Name::fixed("default")) };
    RunSubmission { spec, members, definition: None, origin: origin(), prior: None, strict_lanes: false }
}

async fn look(scheduler: &Scheduler, run: RunId) -> RunView {
    scheduler.run(None, run).await.unwrap().unwrap()
}

/// Echoes what it got, so that results show what was bound.
fn echo() -> Handlers {
    Handlers::new()
        .on("echo", |ctx: JobContext| async move { Ok::<_, Failure>(ctx.payload().clone()) })
        .on("text", |_: JobContext| async { Ok::<_, Failure>(b"not JSON".to_vec()) })
        .on("skip", |_: JobContext| async { Outcome::Skipped(Some(Bytes::from(&b"{\"why\":1}"[..]))) })
}

async fn end_of(scheduler: &Scheduler, members: Vec<Member>) -> RunView {
    let submitted = scheduler.submit_run(run_of(members)).await.unwrap().unwrap();
    for job in &submitted.jobs {
        scheduler.wait(*job).await.unwrap();
    }
    look(scheduler, submitted.run).await
}

fn result(view: &RunView, node: &str) -> Value {
    let position = view.row.nodes.iter().position(|name| name.as_str() == node).unwrap();
    let result = view.members[position].end.as_ref().unwrap().result.as_ref().unwrap();
    serde_json::from_slice(result).unwrap()
}

#[tokio::test]
async fn t2_t3_results_and_parameters_go_where_bindings_say() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), echo()).await;
    let members = vec![
        node("a", "echo", json!({"rows": [1, 2], "deep": {"x/y": "slash"}}), &[], &[]),
        node("b", "echo", json!({"own": 1}), &["a"], &[("a", "/results/rows/1", "/parameters/second")]),
        node(
            "c",
            "echo",
            json!({"own": 2}),
            &["b"],
            &[
                ("a", "/results/deep/x~1y", "/parameters/new/place"),
                ("b", "/parameters/second", "/parameters/from_b"),
                ("a", "/results/nothing", "/parameters/own"),
            ],
        ),
    ];
    let view = end_of(&scheduler, members).await;
    assert_eq!(view.row.state, RunState::Succeeded);
    assert_eq!(result(&view, "b"), json!({"own": 1, "second": 2}));
    assert_eq!(result(&view, "c"), json!({"own": 2, "new": {"place": "slash"}, "from_b": 2}));
    let stored = scheduler.read(move |reader| reader.payload(view.members[1].row.seq)).await.unwrap();
    assert_eq!(stored.as_deref(), Some(&br#"{"own":1}"#[..]), "nothing of it is written");
}

#[tokio::test]
async fn a_binding_that_cannot_be_carried_out_fails_its_node_for_good() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), echo()).await;
    for (kind, target) in [("echo", "/parameters/text/deeper"), ("text", "/parameters/x")] {
        let members = vec![
            node("a", kind, json!({"v": 1}), &[], &[]),
            node("b", "echo", json!({"text": "t"}), &["a"], &[("a", "/results/v", target)]),
        ];
        let view = end_of(&scheduler, members).await;
        assert_eq!(view.row.state, RunState::Failed);
        let end = view.members[1].end.as_ref().unwrap();
        assert_eq!((end.state, end.reason, end.attempts), (JobState::Failed, Reason::Permanent, 1));
        let error = end.error.as_ref().unwrap();
        assert_eq!(error.code, Name::fixed("binding_clash"));
        assert!(error.message.contains("node"), "{}", error.message);
    }
}

#[tokio::test]
async fn what_was_skipped_brings_its_data_too() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), echo()).await;
    let bound = node("b", "echo", json!({}), &["a"], &[("a", "/results/why", "/parameters/why")]);
    let view = end_of(&scheduler, vec![node("a", "skip", json!({}), &[], &[]), bound]).await;
    assert_eq!(view.members[0].end.as_ref().unwrap().reason, Reason::Skipped);
    assert_eq!(result(&view, "b"), json!({"why": 1}));
}

#[tokio::test]
async fn a_node_is_tried_again_outside_of_its_run_with_what_it_got() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), echo()).await;
    let bound = node("b", "echo", json!({}), &["a"], &[("a", "/results/v", "/parameters/v")]);
    let view = end_of(&scheduler, vec![node("a", "echo", json!({"v": 7}), &[], &[]), bound]).await;
    let again = scheduler.retry(None, view.members[1].row.id, origin()).await.unwrap();
    let Retried::Submitted(submitted) = again else { panic!("{again:?}") };
    let again = scheduler.wait(submitted.job).await.unwrap();
    assert_eq!(again.row.spec.member, None);
    assert_eq!(again.end.unwrap().result.as_deref(), Some(&br#"{"v":7}"#[..]));
}

#[tokio::test]
async fn a_run_that_was_open_goes_on_after_a_restart() {
    let store = TestStore::default();
    let (entered, mut has_entered) = mpsc::channel(1);
    let hangs = echo().on("hang", move |ctx: JobContext| {
        let entered = entered.clone();
        async move {
            entered.send(()).await.unwrap();
            ctx.cancellation().cancelled().await;
            Outcome::Canceled
        }
    });
    let (scheduler, running, _clock) = start(&store, hangs).await;
    let mut slow = node("b", "hang", json!({"v": 5}), &["a"], &[]);
    slow.spec.retry.as_mut().unwrap().losses_max = 3;
    let members = vec![
        node("a", "echo", json!({"v": 4}), &[], &[]),
        slow,
        node("c", "echo", json!({}), &["a", "b"], &[("a", "/results/v", "/parameters/v")]),
    ];
    let submitted = scheduler.submit_run(run_of(members)).await.unwrap().unwrap();
    has_entered.recv().await.unwrap();
    drop((scheduler, running));
    let done = echo().on("hang", |_: JobContext| async { Ok::<_, Failure>(b"1".to_vec()) });
    let (scheduler, _running, _clock) = start(&store, done).await;
    scheduler.wait(submitted.jobs[2]).await.unwrap();
    let view = look(&scheduler, submitted.run).await;
    assert_eq!(view.row.state, RunState::Succeeded);
    assert_eq!(result(&view, "c"), json!({"v": 4}));
    assert_eq!(view.members[1].end.as_ref().unwrap().losses, 1);
}

#[tokio::test]
async fn runs_are_listed_canceled_and_other_tenants_see_nothing_of_them() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), Handlers::new()).await;
    let members =
        || vec![node("a", "nobody", json!({}), &[], &[]), node("b", "nobody", json!({}), &["a"], &[])];
    let first = scheduler.submit_run(run_of(members())).await.unwrap().unwrap();
    let second = scheduler.submit_run(run_of(members())).await.unwrap().unwrap();
    let other = Some(Name::fixed("other"));
    assert_eq!(scheduler.run(other.clone(), first.run).await.unwrap(), None);
    assert_eq!(scheduler.cancel_run(other, first.run, origin()).await.unwrap(), Reply::NotFound);
    let canceled = Reply::RunCanceled { canceled: 2, state: RunState::Canceled };
    assert_eq!(scheduler.cancel_run(None, first.run, origin()).await.unwrap(), canceled);
    assert_eq!(scheduler.cancel_run(None, first.run, origin()).await.unwrap(), Reply::NotFound);
    let open = RunFilter { states: vec![RunState::Queued], ..RunFilter::default() };
    let listed = scheduler.runs(open, None, 10).await.unwrap();
    assert_eq!(listed.items.iter().map(|row| row.id).collect::<Vec<_>>(), [second.run]);
}

#[tokio::test]
async fn the_results_of_nodes_stay_as_long_as_their_run_is_open() {
    let store = TestStore::default();
    let (scheduler, _running, clock) = start(&store, echo()).await;
    let members = vec![node("a", "echo", json!({}), &[], &[]), node("b", "nobody", json!({}), &["a"], &[])];
    let submitted = scheduler.submit_run(run_of(members)).await.unwrap().unwrap();
    scheduler.wait(submitted.jobs[0]).await.unwrap();
    let pass = async |span: Span| {
        clock.advance(span);
        // An answer of the loop means that it has looked at the clock.
        scheduler
            .note(laneway_core::EventKind::CallDone, None, "looks at the clock", origin())
            .await
            .unwrap();
        clock.advance(Span::secs(11));
        scheduler
            .note(laneway_core::EventKind::CallDone, None, "looks at the clock", origin())
            .await
            .unwrap();
    };
    pass(Span::hours(30 * 24)).await;
    assert_eq!(look(&scheduler, submitted.run).await.members.len(), 2);
    scheduler.cancel_run(None, submitted.run, origin()).await.unwrap();
    pass(Span::hours(30 * 24)).await;
    assert_eq!(scheduler.run(None, submitted.run).await.unwrap(), None);
    let job = submitted.jobs[0];
    assert_eq!(scheduler.read(move |reader| reader.job(job)).await.unwrap(), None);
}

/// A place elsewhere: the test plays its workers.
struct Elsewhere {
    offers: mpsc::Sender<Offered>,
    answers: mpsc::Sender<(Fence, Name, NextAnswer)>,
}

impl Place for Elsewhere {
    fn offer(&self, offered: Vec<Offered>) {
        offered.into_iter().for_each(|offered| self.offers.try_send(offered).unwrap());
    }

    fn stop(&self, _: &[Fence], _: Span) {}

    fn answer(&self, fence: Fence, request: Name, answer: NextAnswer) {
        self.answers.try_send((fence, request, answer)).unwrap();
    }
}

#[tokio::test]
async fn a_middleware_elsewhere_calls_its_host_and_hears_the_answer() {
    let (scheduler, _running, _clock) = start(&TestStore::default(), Handlers::new()).await;
    let (offers, mut offered) = mpsc::channel(10);
    let (answers, mut answered) = mpsc::channel(10);
    let kinds = vec![Name::fixed("work")];
    let offer = ExecutorOffer { executor: Name::fixed("far"), mode: ExecutorMode::Leased, kinds, slots: 9 };
    scheduler.add_executor(offer, Arc::new(Elsewhere { offers, answers })).await.unwrap();
    let chain =
        |index| Some(Chain { host: Name::fixed("host"), middlewares: vec![Name::fixed("guard")], index });
    let host = Member { chain: chain(None), ..node("host", "work", json!({"a": 1, "b": 1}), &[], &[]) };
    let guard = Member { chain: chain(Some(0)), ..node("guard", "work", json!({}), &[], &[]) };
    let submitted = scheduler.submit_run(run_of(vec![host, guard])).await.unwrap().unwrap();
    let first = offered.recv().await.unwrap();
    assert_eq!((first.fence.job, first.dispatch_seq), (submitted.jobs[1], 1));
    scheduler.send(laneway_core::Command::Start(first.fence)).await.unwrap();
    let payload: Option<Bytes> = Some(br#"{"b": 2}"#.as_slice().into());
    let (fence, request) = (first.fence, Name::fixed("q1"));
    let call = || {
        let (request, payload) = (request.clone(), payload.clone());
        scheduler.call_next(NextCall { fence, request, index: 0, timeout: None, payload })
    };
    assert_eq!(call().await.unwrap(), Reply::NextCalled);
    let rejected = Reply::NextAnswered(NextAnswer::rejected(NextCode::Duplicate));
    assert_eq!(call().await.unwrap(), rejected);
    let called = offered.recv().await.unwrap();
    assert_eq!((called.fence.job, called.dispatch_seq), (submitted.jobs[0], 2));
    let given = scheduler.payload_of(submitted.jobs[0]).await.unwrap().unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&given).unwrap(), json!({"a": 1, "b": 2}));
    let result: Option<Bytes> = Some(b"7".as_slice().into());
    scheduler.finish(called.fence, Outcome::Succeeded(result.clone())).await.unwrap();
    let told = (first.fence, Name::fixed("q1"), NextAnswer::Done(result.clone()));
    assert_eq!(answered.recv().await.unwrap(), told);
    assert_eq!(call().await.unwrap(), Reply::NextAnswered(NextAnswer::Done(result)));
    scheduler.finish(first.fence, Outcome::Succeeded(None)).await.unwrap();
    let view = look(&scheduler, submitted.run).await;
    assert_eq!(view.row.state, RunState::Succeeded);
    assert_eq!(result_of(&view, 0), json!(7));
}

fn result_of(view: &RunView, position: usize) -> Value {
    result(view, view.row.nodes[position].as_str())
}

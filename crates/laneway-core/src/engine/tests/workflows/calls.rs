//! Middleware chains: nodes of a run that call one another. Ids in names are those of the acceptance lists.

use crate::engine::tests::scenario::{Scenario, check};
use expect_test::expect;

#[test]
fn t1_a_chain_must_agree_with_its_nodes() {
    check(expect![[r#"
        submitrun r h m1 m2 chain=h:m1,m2 odd=h:0
            rejected: invalid: node "h": middleware: the host has no index; take it away
        submitrun r h m1 m2 chain=h:m1,m2 odd=m1:-
            rejected: invalid: node "m1": middleware: index is missing; give the node's place in the chain, from 0
        submitrun r h m1 m2 chain=h:m1,m2 odd=m1:1
            rejected: invalid: node "m1": middleware: the chain does not have this node at index 1
        submitrun r h m1 m2 chain=h:m1,m2 odd=m2:7
            rejected: invalid: node "m2": middleware: the chain does not have this node at index 7
        submitrun r h m1 m2 chain=h:m1,m2 odd=m2:none
            rejected: invalid: node "h": middleware: "m2" is not a node with the same chain; every node of a chain names all of it
        submitrun r h m1 chain=h:m1,m2
            rejected: invalid: node "h": middleware: "m2" is not a node with the same chain; every node of a chain names all of it
        submitrun r m1 m2 chain=h:m1,m2
            rejected: invalid: node "m1": middleware: "h" is not a node with the same chain; every node of a chain names all of it
        submitrun r h<m1 m1 chain=h:m1
            rejected: invalid: node "m1": a node of its own middleware chain depends on it; the order of a chain is its own, take that away
        submitrun r a<h h m1<a chain=h:m1
            rejected: invalid: node "a": depends_on leads back to itself (a -> h -> m1 -> a); take one of these dependencies away
        submitrun r h m1 m2 chain=h:m1,m2
            r submitted
            r started
            r/m1 started #1
    "#]]);
}

#[test]
fn t4_a_chain_does_not_go_on_without_next() {
    check(expect![[r#"
        submitrun r a h<a m1 m2 b<h chain=h:m1,m2
            r submitted
            r started
            r/a started #1
        explain r/m1
            r/m1 is scheduled, 0 ahead: waits for 1: a
        finish r/a ok
            r/a succeeded #1 (done)
            r/m1 queued #0 (released)
            r/m1 started #1
        explain r/m2 | explain r/h | explain r/b
            r/m2 is scheduled, 0 ahead: waits for a call of m1
            r/h is scheduled, 0 ahead: waits for a call of m2
            r/b is scheduled, 0 ahead: waits for 1: h
        next r/m1 q1
            r/m2 queued #0 (called)
            r/m2 started #1
        explain r/h
            r/h is scheduled, 0 ahead: waits for a call of m2
        next r/m2 q2 index=1
            r/h queued #0 (called)
            r/h started #1
        finish r/h ok:page
            r/h returned #1 (returned)
            answer r/m2 q2: done with page
        finish r/m2 ok:framed
            r/m2 returned #1 (returned)
            answer r/m1 q1: done with framed
        finish r/m1 ok:done
            r/m1 succeeded #1 (done)
            r/h succeeded #1 (done)
            r/m2 succeeded #1 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 5 attempts, h=page, m1=done, m2=framed
    "#]]);
}

#[test]
fn t6_host_and_middlewares_end_with_the_outermost() {
    check(expect![[r#"
        submitrun r h m1 chain=h:m1
            r submitted
            r started
            r/m1 started #1
        next r/m1 q1
            r/h queued #0 (called)
            r/h started #1
        finish r/h ok:one
            r/h returned #1 (returned)
            answer r/m1 q1: done with one
        next r/m1 q2
            r/h queued #1 (called)
            r/h started #2
        finish r/h ok:two
            r/h returned #2 (returned)
            answer r/m1 q2: done with two
        finish r/m1 skip
            r/m1 succeeded #1 (skipped)
            r/h succeeded #2 (done)
            r succeeded
        showrun r
            r is succeeded, 3 attempts, h=two
    "#]]);
}

#[test]
fn a_chain_that_is_cut_short_ends_with_the_results_so_far() {
    check(expect![[r#"
        submitrun r h m1 m2 b<h chain=h:m1,m2
            r submitted
            r started
            r/m1 started #1
        finish r/m1 ok:cached
            r/m1 succeeded #1 (done)
            r/h succeeded #0 (skipped)
            r/m2 succeeded #0 (skipped)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 2 attempts, m1=cached
    "#]]);
}

#[test]
fn t7_t9_a_node_that_does_not_wait_for_a_call_is_not_ready() {
    check(expect![[r#"
        given executor far leased kinds=w slots=1 | chain r of m1 around h@w
        submit other kind=w
            other assigned #1
        next r/m1 q1
            r/h queued #0 (called)
        next r/m1 q1
            next_duplicate (duplicate next request)
        next r/m1 q2
            next_target_not_ready (target node not ready)
        start other | finish other ok
            other started #1
            other succeeded #1 (done)
            r/h assigned #1
        next r/m1 q3
            next_target_not_ready (target node not ready)
        start r/h
            r/h started #1
        next r/m1 q4
            next_target_not_ready (target node not ready)
        finish r/h ok:x
            r/h returned #1 (returned)
            answer r/m1 q1: done with x
        next r/m1 q1
            done with x
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #1 (done)
            r succeeded
    "#]]);
}

#[test]
fn calls_from_outside_the_chain_are_rejected() {
    check(expect![[r#"
        submitrun r h m1 m2 x chain=h:m1,m2
            r submitted
            r started
            r/m1 started #1
            r/x started #1
        next r/m1 q1 index=1
            next_invalid_chain (invalid chain index)
        next r/m1 q1 index=9
            next_invalid_chain (invalid chain index)
        next r/x q1
            next_no_chain (middleware chain not found)
        next r/m1! q1
            stale
        next r/m1 q1
            r/m2 queued #0 (called)
            r/m2 started #1
        next r/m2 q1 index=1
            r/h queued #0 (called)
            r/h started #1
        next r/h q1
            next_invalid_chain (invalid chain index)
        cancelrun r
            canceled 4 jobs, canceled
            r/h canceled #1 (requested)
            r/m1 canceled #1 (requested)
            r/m2 canceled #1 (requested)
            r/x canceled #1 (requested)
            r canceled
            stop r/h
            stop r/m1
            stop r/m2
            stop r/x
            answer r/m1 q1: next_cancelled (next request cancelled)
            answer r/m2 q1: next_cancelled (next request cancelled)
        next r/m1 q5
            next_run_finalised (run already in final status)
        next r/x q5
            next_run_finalised (run already in final status)
    "#]]);
}

#[test]
fn t8_a_call_is_withdrawn_when_its_caller_is_gone() {
    check(expect![[r#"
        given leased executor | chain r of m1@w around h@w | start r/m1 | next r/m1 q1 | start r/h
        finish r/m1 fail
            r/m1 retrying #1 (retry)
            stop r/h
        wait 1s
            r/m1 queued #1 (due)
            r/m1 assigned #2
        start r/m1
            r/m1 started #2
        next r/m1 q2
        finish r/h canceled
            stale
            r/h returned #1 (returned)
            r/h queued #1 (called)
            r/h assigned #2
        start r/h
            r/h started #2
        finish r/h ok:again
            r/h returned #2 (returned)
            answer r/m1 q2: done with again
        finish r/m1 ok
            r/m1 succeeded #2 (done)
            r/h succeeded #2 (done)
            r succeeded
        showrun r
            r is succeeded, 4 attempts, h=again
    "#]]);
}

#[test]
fn a_call_without_a_caller_leaves_the_queue() {
    check(expect![[r#"
        given executor there attached kinds=other slots=1 | chain r of m1 around h@other
        submit x kind=other
            x started #1
        next r/m1 q1
            r/h queued #0 (called)
        explain r/h
            r/h is queued, 0 ahead: executor there 1/1
        finish r/m1 fail
            r/m1 retrying #1 (retry)
            r/h returned #0 (returned)
        explain r/h
            r/h is scheduled, 0 ahead: waits for a call of m1, executor there 1/1
        cancel x
            was running
            x canceled #1 (requested)
            stop x
        wait 10s
            r/m1 queued #1 (due)
            x released #1
            r/m1 started #2
        finish r/m1 ok
            r/m1 succeeded #2 (done)
            r/h succeeded #0 (skipped)
            r succeeded
        showrun r
            r is succeeded, 2 attempts
    "#]]);
}

#[test]
fn a_call_that_is_not_answered_in_time_is_a_timeout() {
    check(expect![[r#"
        given chain r of m1 around h
        next r/m1 q1 timeout=5s
            r/h queued #0 (called)
            r/h started #1
        wait 4s
        wait 1s
            answer r/m1 q1: next_timeout (next request timed out)
            stop r/h
        finish r/h ok:late
            stale
            r/h returned #1 (returned)
        next r/m1 q1
            next_timeout (next request timed out)
        next r/m1 q2 timeout=5s
            r/h queued #1 (called)
            r/h started #2
        finish r/h ok:soon
            r/h returned #2 (returned)
            answer r/m1 q2: done with soon
        wait 9s
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #2 (done)
            r succeeded
        showrun r
            r is succeeded, 3 attempts, h=soon
    "#]]);
}

#[test]
fn a_called_node_that_fails_fails_the_call_and_not_the_run() {
    check(expect![[r#"
        given call r of m1 around h
        finish r/h fail
            r/h retrying #1 (retry)
        wait 1s
            r/h queued #1 (due)
            r/h started #2
        finish r/h permanent
            r/h returned #2 (returned)
            answer r/m1 q1: next_failed (it cannot work)
        next r/m1 q2
            r/h queued #2 (called)
            r/h started #3
        finish r/h ok:works
            r/h returned #3 (returned)
            answer r/m1 q2: done with works
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #3 (done)
            r succeeded
        showrun r
            r is succeeded, 4 attempts, h=works
    "#]]);
}

#[test]
fn an_outermost_middleware_that_fails_ends_its_chain() {
    check(expect![[r#"
        submitrun r h m1 b<h c failure=continue chain=h:m1
            r submitted
            r started
            r/m1 started #1
            r/c started #1
        next r/m1 q1
            r/h queued #0 (called)
            r/h started #1
        finish r/m1 permanent
            r/m1 failed #1 (permanent)
            r/h canceled #1 (upstream_failed)
            r/b canceled #0 (upstream_failed)
            stop r/h
            stop r/h
        finish r/h ok
            stale
            r/h released #1
        finish r/c ok
            r/c succeeded #1 (done)
            r failed
        showrun r
            r is failed, 3 attempts
    "#]]);
}

#[test]
fn a_canceled_run_answers_its_calls() {
    check(expect![[r#"
        given call r of m1 around h
        cancelrun r
            canceled 2 jobs, canceled
            r/h canceled #1 (requested)
            r/m1 canceled #1 (requested)
            r canceled
            stop r/h
            stop r/m1
            answer r/m1 q1: next_cancelled (next request cancelled)
        finish r/h canceled
            stale
            r/h released #1
        finish r/m1 canceled
            stale
            r/m1 released #1
        showrun r
            r is canceled, 2 attempts
    "#]]);
}

#[test]
fn a_canceled_host_answers_its_call() {
    check(expect![[r#"
        submitrun r h m1 b<h chain=h:m1
            r submitted
            r started
            r/m1 started #1
        next r/m1 q1
            r/h queued #0 (called)
            r/h started #1
        cancel r/h
            was running
            r/h canceled #1 (requested)
            r/b canceled #0 (upstream_failed)
            stop r/h
            answer r/m1 q1: next_cancelled (next request cancelled)
        finish r/h canceled
            stale
            r/h released #1
        next r/m1 q2
            next_target_not_ready (target node not ready)
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 2 attempts
    "#]]);
}

#[test]
fn t10_a_called_node_that_is_given_back_is_ready_again() {
    check(expect![[r#"
        given call r of m1 around h
        finish r/h back
            r/h queued #1 (handed_back)
            r/h started #2
        finish r/h ok:x
            r/h returned #2 (returned)
            answer r/m1 q1: done with x
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #2 (done)
            r succeeded
    "#]]);
}

#[test]
fn calls_outlive_a_crash() {
    check(expect![[r#"
        given leased executor | chain r of m1@w m2@w around h@w | start r/m1
        next r/m1 q1 timeout=60s
            r/m2 queued #0 (called)
            r/m2 assigned #1
        crash
        start r/m2
            r/m2 started #1
        crash
        next r/m1 q1
            next_duplicate (duplicate next request)
        next r/m2 q2 index=1
            r/h queued #0 (called)
            r/h assigned #1
        start r/h
            r/h started #1
        finish r/h ok:inner
            r/h returned #1 (returned)
            answer r/m2 q2: done with inner
        crash
        next r/m2 q2 index=1
            done with inner
        finish r/m2 ok:outer
            r/m2 returned #1 (returned)
            answer r/m1 q1: done with outer
        crash
        explain r/h
            r/h is scheduled, 0 ahead: waits for a call of m2
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #1 (done)
            r/m2 succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 3 attempts, h=inner, m2=outer
    "#]]);
}

#[test]
fn a_call_that_waited_over_a_crash_still_times_out() {
    check(expect![[r#"
        given leased executor | chain r of m1@w around h@w
        start r/m1 | next r/m1 q1 timeout=20s | start r/h
            r/m1 started #1
            r/h queued #0 (called)
            r/h assigned #1
            r/h started #1
        wait 10s
        crash
        wait 9s
        beat r/m1 | beat r/h
        wait 1s
            answer r/m1 q1: next_timeout (next request timed out)
            stop r/h
        finish r/h canceled
            stale
            r/h returned #1 (returned)
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 2 attempts
    "#]]);
}

/// Its result was taken for the answer to the next call.
#[test]
fn a_node_of_a_withdrawn_call_is_stopped_again_after_a_crash() {
    check(expect![[r#"
        given leased executor | chain r of m1@w around h@w | start r/m1
        next r/m1 q1 timeout=5s
            r/h queued #0 (called)
            r/h assigned #1
        start r/h
            r/h started #1
        wait 5s
            answer r/m1 q1: next_timeout (next request timed out)
            stop r/h
        next r/m1 q2
        crash
            stop r/h
        finish r/h ok:old
            stale
            r/h returned #1 (returned)
            r/h queued #1 (called)
            r/h assigned #2
        start r/h#2
            r/h started #2
        finish r/h#2 ok:new
            r/h returned #2 (returned)
            answer r/m1 q2: done with new
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #2 (done)
            r succeeded
        showrun r
            r is succeeded, 3 attempts, h=new
    "#]]);
}

/// Found by the simulator: the node was tried again, although no caller waited.
#[test]
fn a_called_node_that_times_out_when_its_caller_is_gone_is_not_tried_again() {
    check(expect![[r#"
        given leased executor | chain r of m1@w around h@w timeout=20s | start r/m1
        wait 1s
        next r/m1 q1
            r/h queued #0 (called)
            r/h assigned #1
        start r/h
            r/h started #1
        wait 20s
            stop r/m1
            stop r/h
        finish r/m1 canceled
            stale
            r/m1 retrying #1 (retry)
        finish r/h canceled
            stale
            r/h returned #1 (returned)
        explain r/h
            r/h is scheduled, 0 ahead: waits for a call of m1
    "#]]);
}

/// The time before the call counted after a crash.
#[test]
fn the_queue_timeout_of_a_called_node_begins_with_its_call() {
    check(expect![[r#"
        given executor far leased kinds=w slots=1 | chain r of m1@w around h@w queue=60s | start r/m1
        wait 20s
        beat r/m1
        wait 20s
        beat r/m1
        wait 15s
        beat r/m1
        next r/m1 q1
            r/h queued #0 (called)
        crash
        wait 20s
        explain r/h
            r/h is queued, 0 ahead: executor far 1/1
    "#]]);
}

/// Nodes that call, answer, fail, are given back, canceled and lost, with crashes anywhere: after every step the engine
/// agrees with itself, attempts of a run are numbered without gaps, and in the end every run has ended.
#[test]
fn chains_of_any_life_come_to_an_end() {
    let mut answered = std::collections::BTreeMap::<String, u32>::new();
    for seed in 0..300 {
        let mut state: u64 = seed;
        let mut pick = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut scenario = Scenario::new();
        scenario.play("executor far leased kinds=w slots=9");
        let failure = ["stop", "continue"][pick(2)];
        let kinds = [["h@w", "m1", "m2@w"], ["h", "m1@w", "m2"]][pick(2)];
        let nodes = format!("a {}<a {} {} b<h", kinds[0], kinds[1], kinds[2]);
        scenario.play(&format!("submitrun r {nodes} chain=h:m1,m2 failure={failure}"));
        for step in 0..80 {
            let open = scenario.open_jobs();
            let line = match (pick(20), open.is_empty()) {
                (0, _) => "crash".to_owned(),
                (1..=3, _) | (_, true) => format!("wait {}s", 1 + pick(12)),
                (4, _) if step > 40 => {
                    ["cancel r/h", "cancel r/m2", "cancelrun r", "rebuild"][pick(4)].to_owned()
                }
                (roll, _) => {
                    let name = &open[pick(open.len())];
                    let index = u32::from(name == "r/m2");
                    let timeout = ["", " timeout=3s"][pick(2)];
                    // The outermost middleware mostly calls on: its end is the end of the chain.
                    let roll = if name == "r/m1" && roll > 12 && pick(6) > 0 { 9 } else { roll };
                    match roll {
                        4..=9 => format!("next {name} q{step} index={index}{timeout}"),
                        10..=12 => format!("start {name}"),
                        13 => format!("finish {name} fail"),
                        14 => format!("finish {name} back"),
                        15 => format!("finish {name} {}", ["permanent", "canceled"][pick(2)]),
                        _ => format!("finish {name} ok:{step}"),
                    }
                }
            };
            for effect in scenario.play(&line) {
                if let Some(answer) = effect.strip_prefix("answer ") {
                    let code = answer.split(' ').nth(2).unwrap_or_default();
                    *answered.entry(code.to_owned()).or_default() += 1;
                }
            }
        }
        for _ in 0..100 {
            for name in scenario.open_jobs() {
                scenario.play(&format!("finish {name} ok"));
            }
            scenario.play("wait 12s");
        }
        assert!(scenario.all_runs_ended() && scenario.open_jobs().is_empty(), "seed {seed} does not end");
    }
    for code in ["done", "next_timeout", "next_failed", "next_cancelled"] {
        assert!(
            answered.get(code).is_some_and(|count| *count > 5),
            "too few calls are answered so: {answered:?}"
        );
    }
}

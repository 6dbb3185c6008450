//! Limits of middleware chains: the running part of a chain takes one slot, so that no chain blocks itself.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn a_chain_runs_in_a_lane_that_lets_one_job_run() {
    check(expect![[r#"
        lane main running=1
            config.changed
        submitrun r h m1 m2 chain=h:m1,m2
            r submitted
            r started
            r/m1 started #1
        submit other priority=-9
        next r/m1 q1
            r/m2 queued #0 (called)
            r/m2 started #1
        next r/m2 q2 index=1
            r/h queued #0 (called)
            r/h started #1
        explain other
            other is queued, 0 ahead: lane main 1/1
        finish r/h ok:inner
            r/h returned #1 (returned)
            answer r/m2 q2: done with inner
        finish r/m2 ok:outer
            r/m2 returned #1 (returned)
            answer r/m1 q1: done with outer
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #1 (done)
            r/m2 succeeded #1 (done)
            r succeeded
            other started #1
        finish other ok
            other succeeded #1 (done)
    "#]]);
}

#[test]
fn a_chain_runs_within_every_limit_of_one() {
    check(expect![[r#"
        lane main running=9 per_agent=1
            config.changed
        server running=1 | tenant default running=1 | kind job running=1 | key profile limit=1
            config.changed
            config.changed
            config.changed
            config.changed
        submitrun r h m1 chain=h:m1 keys=profile:a
            r submitted
            r started
            r/m1 started #1
        next r/m1 q1
            r/h queued #0 (called)
            r/h started #1
        finish r/h ok
            r/h returned #1 (returned)
            answer r/m1 q1: done with nothing
        next r/m1 q2
            r/h queued #1 (called)
            r/h started #2
        finish r/h ok
            r/h returned #2 (returned)
            answer r/m1 q2: done with nothing
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #2 (done)
            r succeeded
    "#]]);
}

#[test]
fn a_called_node_takes_a_slot_in_a_limit_that_its_chain_does_not_hold() {
    check(expect![[r#"
        given kind other running=1 | executor there attached kinds=other slots=9
        submit x kind=other
            x started #1
        submitrun r h@other m1 chain=h:m1
            r submitted
            r started
            r/m1 started #1
        next r/m1 q1
            r/h queued #0 (called)
        explain r/h
            r/h is queued, 0 ahead: kind other 1/1
        finish x ok
            x succeeded #1 (done)
            r/h started #1
        finish r/h ok
            r/h returned #1 (returned)
            answer r/m1 q1: done with nothing
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #1 (done)
            r succeeded
    "#]]);
}

#[test]
fn slots_of_an_executor_are_not_shared_and_the_call_times_out() {
    check(expect![[r#"
        given executor far leased kinds=w slots=1 | chain r of m1@w around h@w | start r/m1
        next r/m1 q1 timeout=5s
            r/h queued #0 (called)
        explain r/h
            r/h is queued, 0 ahead: executor far 1/1
        wait 5s
            r/h returned #0 (returned)
            answer r/m1 q1: next_timeout (next request timed out)
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #0 (skipped)
            r succeeded
    "#]]);
}

#[test]
fn a_chain_keeps_its_slot_until_its_last_attempt_has_ended() {
    check(expect![[r#"
        given leased executor | lane main running=1 | chain r of m1@w around h@w
        submit other kind=w
        start r/m1
            r/m1 started #1
        next r/m1 q1
            r/h queued #0 (called)
            r/h assigned #1
        start r/h
            r/h started #1
        cancelrun r
            canceled 2 jobs, canceled
            r/h canceled #1 (requested)
            r/m1 canceled #1 (requested)
            r canceled
            stop r/h
            stop r/m1
            answer r/m1 q1: next_cancelled (next request cancelled)
        finish r/m1 canceled
            stale
            r/m1 released #1
        finish r/h canceled
            stale
            r/h released #1
            other assigned #1
    "#]]);
}

#[test]
fn slots_of_a_chain_are_counted_the_same_after_a_crash() {
    check(expect![[r#"
        given leased executor | lane main running=1 | chain r of m1@w around h@w
        submit other kind=w
        start r/m1
            r/m1 started #1
        next r/m1 q1
            r/h queued #0 (called)
            r/h assigned #1
        start r/h
            r/h started #1
        crash
        finish r/h ok
            r/h returned #1 (returned)
            answer r/m1 q1: done with nothing
        next r/m1 q2
            r/h queued #1 (called)
            r/h assigned #2
        crash
        cancelrun r
            canceled 2 jobs, canceled
            r/h canceled #2 (requested)
            r/m1 canceled #1 (requested)
            r canceled
            stop r/h
            stop r/m1
            answer r/m1 q2: next_cancelled (next request cancelled)
        crash
        finish r/m1 canceled
            stale
            r/m1 released #1
        finish r/h#2 canceled
            stale
            r/h released #2
            other assigned #1
    "#]]);
}

/// Found by the simulator: it panicked.
#[test]
fn a_chain_ends_while_an_inner_call_is_queued() {
    check(expect![[r#"
        given executor there attached kinds=other slots=1
        submit x kind=other
            x started #1
        submitrun r h@other m1 m2 chain=h:m1,m2
            r submitted
            r started
            r/m1 started #1
        next r/m1 q1
            r/m2 queued #0 (called)
            r/m2 started #1
        next r/m2 q2 index=1
            r/h queued #0 (called)
        explain r/h
            r/h is queued, 0 ahead: executor there 1/1
        finish r/m1 ok:done
            r/m1 succeeded #1 (done)
            r/h returned #0 (returned)
            r/h succeeded #0 (skipped)
            r/m2 succeeded #1 (done)
            r succeeded
            stop r/m2
            stop r/m2
            answer r/m2 q2: next_cancelled (next request cancelled)
        finish r/m2 ok
            stale
            r/m2 released #1
        showrun r
            r is succeeded, 2 attempts, m1=done
    "#]]);
}

#[test]
fn defect_15_a_chain_takes_one_slot_on_its_worker() {
    check(expect![[r#"
        worker w1 c1 slots=1 kinds=w
            lease 30 s
            worker.connected w1: registered over c1, 0 attempts rebound
        submitrun r h m1 chain=h:m1 kind=w
            r submitted
            r started
            r/m1 assigned #1
            offer r/m1#1 to c1
        submit other kind=w
        accept c1 r/m1
            r/m1 started #1
        next r/m1 q1
            r/h queued #0 (called)
            r/h assigned #1
            offer r/h#2 to c1
        accept c1 r/h#2
            r/h started #1
        explain other
            other is queued, 0 ahead: 1 workers: 1 full, 0 draining, 0 unwell
        workers
            w1 c1 ready 2/1
        result c1 r/h#2 ok
            r/h returned #1 (returned)
            answer r/m1 q1: done with nothing
        result c1 r/m1 ok
            r/m1 succeeded #1 (done)
            r/h succeeded #1 (done)
            r succeeded
            other assigned #1
            offer other#1 to c1
        workers
            w1 c1 ready 1/1
    "#]]);
}

#[test]
fn defect_15_a_worker_that_drains_gets_nothing_of_a_chain_either() {
    check(expect![[r#"
        given push worker w1 slots=2 | chain r of m1 around h kind=w | accept c1 r/m1
        pulse c1 draining
            worker.drained w1: it says so
        next r/m1 q1
            r/h queued #0 (called)
        worker w2 c2 slots=1 kinds=w
            lease 30 s
            worker.connected w2: registered over c2, 0 attempts rebound
            r/h assigned #1
            offer r/h#2 to c2
        accept c2 r/h#2
            r/h started #1
        result c2 r/h#2 ok
            r/h returned #1 (returned)
            answer r/m1 q1: done with nothing
    "#]]);
}

//! The lanes that a worker serves.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn a_worker_that_names_lanes_gets_jobs_of_those_only() {
    check(expect![[r#"
        given lane gpu | lane cpu | push worker w1 slots=4 lanes=gpu
        submit a1 kind=w lane=gpu | submit b1 kind=w lane=cpu | submit m1 kind=w
            a1 assigned #1
            offer a1#1 to c1
        explain b1
            b1 is queued, 0 ahead: workers lack Lane("cpu")
        worker w2 c2 slots=1 kinds=w lanes=cpu,main
            lease 30 s
            worker.connected w2: registered over c2, 0 attempts rebound
            b1 assigned #1
            offer b1#1 to c2
        explain m1
            m1 is queued, 0 ahead: 1 workers: 1 full, 0 draining, 0 unwell
        workers
            w1 c1 ready 1/4 of gpu
            w2 c2 ready 1/1 of cpu,main
        result c2 b1 ok
            b1 started #1
            b1 succeeded #1 (done)
            m1 assigned #1
            offer m1#1 to c2
    "#]]);
}

#[test]
fn names_that_are_no_lanes_bind_a_worker_to_nothing_until_one_of_them_is() {
    check(expect![[r#"
        given lane gpu | push worker w1 slots=4 lanes=default,high
        workers
            w1 c1 ready 0/4
        submit a1 kind=w lane=gpu | submit m1 kind=w
            a1 assigned #1
            offer a1#1 to c1
            m1 assigned #1
            offer m1#1 to c1
        lane high
            config.changed
        workers
            w1 c1 ready 2/4 of default,high
        submit m2 kind=w | submit h1 kind=w lane=high
            h1 assigned #1
            offer h1#1 to c1
        explain m2
            m2 is queued, 0 ahead: workers lack Lane("main")
        nolane high
            config.changed
            m2 assigned #1
            offer m2#1 to c1
        workers
            w1 c1 ready 4/4
    "#]]);
}

#[test]
fn a_lane_that_is_gone_and_still_has_jobs_finds_its_worker() {
    check(expect![[r#"
        given lane gpu | push worker w1 lanes=gpu,main
        submit a1 kind=w lane=gpu | submit a2 kind=w lane=gpu
            a1 assigned #1
            offer a1#1 to c1
        nolane gpu
            config.changed
        workers
            w1 c1 ready 1/1 of gpu,main
        result c1 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
            a2 assigned #1
            offer a2#1 to c1
    "#]]);
}

#[test]
fn a_rebound_worker_ends_its_attempts_and_gets_jobs_of_its_new_lane() {
    check(expect![[r#"
        given lane gpu | push worker w1 slots=2
        submit m1 kind=w | submit m2 kind=w | submit m3 kind=w | submit g1 kind=w lane=gpu
            m1 assigned #1
            offer m1#1 to c1
            m2 assigned #1
            offer m2#1 to c1
        rebind w1 gpu
            worker.rebound w1: serves gpu from now on
        result c1 m1 ok
            m1 started #1
            m1 succeeded #1 (done)
            g1 assigned #1
            offer g1#1 to c1
        explain m3
            m3 is queued, 0 ahead: workers lack Lane("main")
        result c1 m2 ok
            m2 started #1
            m2 succeeded #1 (done)
        rebind w1 gpu
        rebind w1
            worker.rebound w1: serves every lane from now on
            m3 assigned #1
            offer m3#1 to c1
        workers
            w1 c1 ready 2/2
    "#]]);
}

#[test]
fn a_rebind_of_an_unknown_worker_or_lane_is_rejected() {
    check(expect![[r#"
        given push worker w1
        rebind w2 main
            not found
        rebind w1 main tenant=other
            not found
        rebind w1 nowhere,main
            rejected: invalid: lanes: there is no lane "nowhere"; make it first
        workers
            w1 c1 ready 0/1
    "#]]);
}

#[test]
fn a_rebind_outlives_connections_offers_and_a_rebuilt_engine() {
    check(expect![[r#"
        given lane gpu | push worker w1 slots=2 lanes=main
        submit m1 kind=w
            m1 assigned #1
            offer m1#1 to c1
        rebind w1 gpu
            worker.rebound w1: serves gpu from now on
        worker w1 c2 slots=2 kinds=w lanes=main
            lease 30 s
            worker.superseded w1: c2 takes the place of c1
            worker.connected w1: registered over c2, 1 attempts rebound
            c1 is superseded
            offer m1#1 to c2 again
        offers w1 c2 slots=2 kinds=w,v lanes=main
        gone c2
            worker.disconnected w1: c2 is gone, 1 attempts are held
        worker w1 c3 slots=2 kinds=w lanes=main
            lease 30 s
            worker.connected w1: registered over c3, 1 attempts rebound
            offer m1#1 to c3 again
        drainworker w1
            worker.drained w1: somebody said so
            drain c3
        rebuild
            lease 30 s
            worker.connected w1: registered over c3, 1 attempts rebound
            drain c3
            offer m1#1 to c3 again
        workers
            w1 c3 draining 1/2 of gpu
        undrain w1
            call.done
        submit m2 kind=w | submit g1 kind=w lane=gpu
            g1 assigned #1
            offer g1#1 to c3
        accept c3 m1 | result c3 m1 ok
            m1 started #1
            m1 succeeded #1 (done)
        result c3 g1 ok
            g1 started #1
            g1 succeeded #1 (done)
        gone c3
            worker.disconnected w1: c3 is gone, 0 attempts are held
        worker w1 c4 slots=2 kinds=w lanes=main
            lease 30 s
            worker.connected w1: registered over c4, 0 attempts rebound
            m2 assigned #1
            offer m2#1 to c4
        workers
            w1 c4 ready 1/2 of main
    "#]]);
}

#[test]
fn keys_leave_a_worker_that_no_longer_serves_their_lane_and_pinned_jobs_fail() {
    check(expect![[r#"
        given lane gpu | push workers w1 w2
        submit a1 kind=w stick=k
            a1 assigned #1
            offer a1#1 to c1
        submit b1 kind=w
            b1 assigned #1
            offer b1#1 to c2
        submit a2 kind=w stick=k | submit p1 kind=w pin=w1
        result c2 b1 ok
            b1 started #1
            b1 succeeded #1 (done)
        rebind w1 gpu
            worker.rebound w1: serves gpu from now on
            a2 assigned #1
            p1 failed #0 (unavailable)
            offer a2#1 to c2
        result c1 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
        result c2 a2 ok
            a2 started #1
            a2 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_session_goes_on_with_the_worker_of_its_next_jobs_lane() {
    check(expect![[r#"
        given lane gpu | push worker w1 lanes=gpu | worker w2 c2 slots=1 kinds=w lanes=main
        submit s1 kind=w session=s | submit s2 kind=w session=s lane=gpu | submit s3 kind=w session=s
            s1 assigned #1
            offer s1#1 to c2
        result c2 s1 ok
            s1 started #1
            s1 succeeded #1 (done)
            s2 assigned #1
            offer s2#1 to c1
        rebind w2 gpu
            worker.rebound w2: serves gpu from now on
        result c1 s2 ok
            s2 started #1
            s2 succeeded #1 (done)
        explain s3
            s3 is queued, 0 ahead: workers lack Lane("main")
        rebind w1 main
            worker.rebound w1: serves main from now on
            s3 assigned #1
            offer s3#1 to c1
    "#]]);
}

#[test]
fn strict_kinds_require_a_worker_that_serves_the_lane() {
    check(expect![[r#"
        given lane gpu | server strict=yes | worker w1 c1 slots=1 kinds=v lanes=gpu
        submit a1 kind=v lane=gpu
            a1 assigned #1
            offer a1#1 to c1
        submit b1 kind=v
            rejected: unknown_kind: kind: nobody offers "v"; register a handler or a target for it
    "#]]);
}

/// Found by the simulator: an unanswered task ended with the registration, and the rebind was lost with it.
#[test]
fn a_rebind_is_kept_by_a_worker_whose_last_task_ends_as_it_comes_back() {
    check(expect![[r#"
        given lane gpu | push worker w1 slots=2
        submit m1 kind=w
            m1 assigned #1
            offer m1#1 to c1
        gone c1
            worker.disconnected w1: c1 is gone, 1 attempts are held
        rebind w1 gpu
            worker.rebound w1: serves gpu from now on
        sleep 6s
        worker w1 c2 slots=2 kinds=w
            lease 30 s
            m1 queued #1 (handed_back)
            m1 deferred #1 (handed_back)
            worker.connected w1: registered over c2, 0 attempts rebound
            stop m1
        workers
            w1 c2 ready 0/2 of gpu
    "#]]);
}

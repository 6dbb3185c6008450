//! Placement: which worker gets a job.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn the_least_loaded_worker_is_next_then_the_one_served_longest_ago() {
    check(expect![[r#"
        given push worker w1 slots=2 | worker w2 c2 slots=4 kinds=w | worker w3 c3 slots=1 kinds=v
        submit a1 kind=w | submit a2 kind=w | submit a3 kind=w | submit a4 kind=w | submit a5 kind=w
            a1 assigned #1
            offer a1#1 to c1
            a2 assigned #1
            offer a2#1 to c2
            a3 assigned #1
            offer a3#1 to c2
            a4 assigned #1
            offer a4#1 to c1
            a5 assigned #1
            offer a5#1 to c2
        submit a6 kind=w | submit a7 kind=w | submit b1 kind=v
            a6 assigned #1
            offer a6#1 to c2
            b1 assigned #1
            offer b1#1 to c3
        result c1 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
            a7 assigned #1
            offer a7#1 to c1
    "#]]);
}

#[test]
fn limits_of_single_kinds_hold_and_block_no_other_kind() {
    check(expect![[r#"
        given worker w1 c1 slots=3 kinds=w,v limits=w:1
        submit a1 kind=w | submit a2 kind=w | submit b1 kind=v | submit b2 kind=v | submit b3 kind=v
            a1 assigned #1
            offer a1#1 to c1
            b1 assigned #1
            offer b1#1 to c1
            b2 assigned #1
            offer b2#1 to c1
        result c1 b1 ok
            b1 started #1
            b1 succeeded #1 (done)
            b3 assigned #1
            offer b3#1 to c1
        result c1 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
            a2 assigned #1
            offer a2#1 to c1
        result c1 b2 ok
            b2 started #1
            b2 succeeded #1 (done)
    "#]]);
}

#[test]
fn a_package_must_be_installed_in_the_same_version() {
    check(expect![[r#"
        submit a1 kind=w package=img@1
        explain a1
            a1 is queued, 0 ahead: no executor for w
        worker w1 c1 slots=1 kinds=w packages=img@2
            lease 30 s
            worker.connected w1: registered over c1, 0 attempts rebound
        explain a1
            a1 is queued, 0 ahead: workers lack Package(Package { name: "img", version: "1" })
        offers w1 c1 slots=1 kinds=w packages=img@1,img@2
            a1 assigned #1
            offer a1#1 to c1
        submit a2 kind=k package=img@2
        explain a2
            a2 is queued, 0 ahead: 1 workers: 1 full, 0 draining, 0 unwell
        submit a3 kind=k
            a3 started #1
        result c1 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
            a2 assigned #1
            offer a2#1 to c1
    "#]]);
}

#[test]
fn features_and_labels_are_required_and_explained() {
    check(expect![[r#"
        given push worker w1 features=gpu labels=zone:a | worker w2 c2 slots=1 kinds=v
        submit a1 kind=w features=gpu,big
        explain a1
            a1 is queued, 0 ahead: workers lack Features
        submit a2 kind=w features=gpu labels=zone:b
        explain a2
            a2 is queued, 0 ahead: workers lack Labels
        submit a3 kind=w features=gpu labels=zone:a
            a3 assigned #1
            offer a3#1 to c1
        submit a4 kind=w
        explain a4
            a4 is queued, 0 ahead: 1 workers: 1 full, 0 draining, 0 unwell
        pulse c1 draining
            worker.drained w1: it says so
        explain a4
            a4 is queued, 0 ahead: 1 workers: 0 full, 1 draining, 0 unwell
        pulse c1 unhealthy
        explain a4
            a4 is queued, 0 ahead: 1 workers: 0 full, 0 draining, 1 unwell
        submit a5 kind=u
        explain a5
            a5 is queued, 0 ahead: workers lack Kind
        submit a6 kind=w tenant=other
        explain a6
            a6 is queued, 0 ahead: no executor for w
    "#]]);
}

#[test]
fn d17_sticky_jobs_stay_with_the_worker_of_the_first() {
    check(expect![[r#"
        given push workers w1 w2
        submit a1 kind=w stick=m
            a1 assigned #1
            offer a1#1 to c1
        submit a2 kind=w stick=m
        explain a2
            a2 is queued, 0 ahead: worker w1 is ready
        submit b1 kind=w
            b1 assigned #1
            offer b1#1 to c2
        submit b2 kind=w
        result c2 b1 ok
            b1 started #1
            b1 succeeded #1 (done)
            b2 assigned #1
            offer b2#1 to c2
        result c1 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
            a2 assigned #1
            offer a2#1 to c1
        result c1 a2 ok
            a2 started #1
            a2 succeeded #1 (done)
        worker w2 c3 slots=1 kinds=w
            lease 30 s
            worker.superseded w2: c3 takes the place of c2
            worker.connected w2: registered over c3, 1 attempts rebound
            c2 is superseded
            offer b2#1 to c3 again
        submit a3 kind=w stick=m
            a3 assigned #1
            offer a3#1 to c1
        submit a4 kind=w stick=m
        gone c1
            worker.disconnected w1: c1 is gone, 1 attempts are held
        wait 5s | pulse c3 | wait 5s | pulse c3 | wait 5s | pulse c3
            a3 queued #1 (handed_back)
            a3 deferred #1 (handed_back)
            b2 queued #1 (handed_back)
            b2 deferred #1 (handed_back)
            a4 assigned #1
            stop a3
            stop b2 at c3
            offer a4#1 to c3
            a3 queued #1 (due)
            b2 queued #1 (due)
            a4 queued #1 (handed_back)
            a4 deferred #1 (handed_back)
            b2 assigned #2
            stop a4 at c3
            offer b2#2 to c3
        result c3 b2 ok
            b2 started #2
            b2 succeeded #2 (done)
            a3 assigned #2
            offer a3#2 to c3
        wait 5s | pulse c3 | wait 5s | pulse c3 | wait 5s | pulse c3
            a4 queued #1 (due)
            a3 queued #2 (handed_back)
            a3 deferred #2 (handed_back)
            a4 assigned #2
            stop a3 at c3
            offer a4#2 to c3
            a3 queued #2 (due)
    "#]]);
}

#[test]
fn d17_sticky_ends_when_the_worker_is_lost_or_the_time_is_over() {
    check(expect![[r#"
        given push worker w1 | worker w2 c2 slots=2 kinds=w
        submit a1 kind=w stick=m/8s
            a1 assigned #1
            offer a1#1 to c1
        submit a2 kind=w stick=m/8s
        accept c1 a1
            a1 started #1
        wait 5s | pulse c1 | pulse c2
        wait 3s
            a2 assigned #1
            offer a2#1 to c2
        submit b1 kind=w stick=n
            b1 assigned #1
            offer b1#1 to c2
        result c1 a1 ok
            a1 succeeded #1 (done)
        submit c1 kind=w stick=o
            c1 assigned #1
            offer c1#1 to c1
        submit c2 kind=w stick=o
        accept c1 c1 | accept c2 a2 | accept c2 b1
            c1 started #1
            a2 started #1
            b1 started #1
        wait 2s | pulse c2 | wait 5s | pulse c2 | wait 5s | pulse c2
            worker.degraded w1: two heartbeats are missing
            worker.lost w1: three heartbeats are missing
        explain c2
            c2 is queued, 0 ahead: 2 workers: 1 full, 0 draining, 1 unwell
        result c2 a2 ok
            a2 succeeded #1 (done)
            c2 assigned #1
            offer c2#1 to c2
    "#]]);
}

#[test]
fn d17_preferred_is_tried_first_and_never_waited_for() {
    check(expect![[r#"
        given push worker w1 slots=2 | worker w2 c2 slots=4 kinds=w
        submit a1 kind=w prefer=m
            a1 assigned #1
            offer a1#1 to c1
        submit a2 kind=w prefer=m
            a2 assigned #1
            offer a2#1 to c1
        submit a3 kind=w prefer=m
            a3 assigned #1
            offer a3#1 to c2
        result c1 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
        submit a4 kind=w prefer=m
            a4 assigned #1
            offer a4#1 to c1
    "#]]);
}

#[test]
fn d17_resources_are_respected_or_the_job_fails_at_once() {
    check(expect![[r#"
        given push workers w1 w2
        wait 5s | pulse c1 | pulse c2 | wait 5s | pulse c1 | pulse c2 | wait 5s | pulse c1 | pulse c2
        wait 5s | pulse c1 | pulse c2 | wait 5s | pulse c1 | pulse c2 | wait 5s | pulse c1 | pulse c2
        submit a1 kind=w pin=w2
            a1 assigned #1
            offer a1#1 to c2
        submit a2 kind=w pin=w2
        explain a2
            a2 is queued, 0 ahead: worker w2 is ready
        submit a3 kind=w pin=w2/3s
        submit b1 kind=w
            b1 assigned #1
            offer b1#1 to c1
        submit a4 kind=w pin=w9
            a4 failed #0 (unavailable)
        submit a5 kind=v pin=w2
            a5 failed #0 (unavailable)
        submit a6 kind=w pin=w1,w2
            rejected: invalid: resources: are on workers w1 and w2; use those of one worker
        submit a7 kind=w pin=w1 tenant=other
            a7 failed #0 (unavailable)
        wait 3s
            a3 failed #0 (unavailable)
        gone c2
            worker.disconnected w2: c2 is gone, 1 attempts are held
        explain a2
            a2 is queued, 0 ahead: worker w2 is away
        worker w2 c3 slots=1 kinds=w
            lease 30 s
            worker.connected w2: registered over c3, 1 attempts rebound
            offer a1#1 to c3 again
        result c3 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
            a2 assigned #1
            offer a2#1 to c3
        submit a8 kind=w pin=w2
        wait 2s | pulse c1 | wait 5s | pulse c1 | wait 5s | pulse c1
            b1 queued #1 (handed_back)
            b1 deferred #1 (handed_back)
            stop b1 at c1
            b1 queued #1 (due)
            b1 assigned #2
            offer b1#2 to c1
            a2 queued #1 (handed_back)
            a2 deferred #1 (handed_back)
            b1 queued #2 (handed_back)
            b1 deferred #2 (handed_back)
            worker.degraded w2: two heartbeats are missing
            a8 assigned #1
            stop a2 at c3
            stop b1 at c1
            offer a8#1 to c3
        wait 5s | pulse c1
            a2 queued #1 (due)
            b1 queued #2 (due)
            b1 assigned #3
            offer b1#3 to c1
    "#]]);
}

#[test]
fn after_a_restart_the_worker_that_has_a_resource_is_waited_for() {
    check(expect![[r#"
        given push worker w1
        submit a1 kind=w pin=w1 | submit a2 kind=w pin=w1
            a1 assigned #1
            offer a1#1 to c1
        crash
        explain a2
            a2 is queued, 0 ahead: worker w1 is awaited
        wait 10s
        worker w1 c2 slots=2 kinds=w
            lease 30 s
            worker.connected w1: registered over c2, 1 attempts rebound
            a2 assigned #1
            offer a1#1 to c2 again
            offer a2#1 to c2
        result c2 a2 ok
            a2 started #1
            a2 succeeded #1 (done)
        submit a3 kind=w pin=w1 | submit a4 kind=w pin=w1
            a3 assigned #1
            offer a3#1 to c2
        crash
        wait 30s
            a1 queued #1 (handed_back)
            a1 deferred #1 (handed_back)
            a3 queued #1 (handed_back)
            a3 deferred #1 (handed_back)
            a4 failed #0 (unavailable)
            stop a1
            stop a3
    "#]]);
}

#[test]
fn a_worker_that_is_gone_is_awaited_by_jobs_that_use_its_resources() {
    check(expect![[r#"
        given push worker w1
        wait 5s | pulse c1 | wait 5s | pulse c1 | wait 5s | pulse c1
        wait 5s | pulse c1 | wait 5s | pulse c1 | wait 5s | pulse c1
        drainworker w1
            worker.drained w1: somebody said so
            drain c1
        submit a1 kind=w pin=w1
        explain a1
            a1 is queued, 0 ahead: worker w1 is draining
        gone c1
            worker.disconnected w1: c1 is gone, 0 attempts are held
        explain a1
            a1 is queued, 0 ahead: worker w1 is awaited
        wait 29s
        worker w1 c2 slots=1 kinds=w
            lease 30 s
            worker.connected w1: registered over c2, 0 attempts rebound
            a1 assigned #1
            offer a1#1 to c2
        result c2 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
        drainworker w1
            worker.drained w1: somebody said so
            drain c2
        submit a2 kind=w pin=w1
        gone c2
            worker.disconnected w1: c2 is gone, 0 attempts are held
        wait 30s
            a2 failed #0 (unavailable)
    "#]]);
}

#[test]
fn a_local_executor_goes_before_workers_unless_the_job_has_placement_constraints() {
    check(expect![[r#"
        given worker w1 c1 slots=1 kinds=k,w packages=p@1
        submit a1 kind=k
            a1 started #1
        submit a2 kind=k package=p@1
            a2 assigned #1
            offer a2#1 to c1
        executor other attached kinds=w slots=1
        submit a3 kind=w
            a3 started #1
        withdraw other
        finish a3 ok
            a3 succeeded #1 (done)
        submit a4 kind=w
        result c1 a2 ok
            a2 started #1
            a2 succeeded #1 (done)
            a4 assigned #1
            offer a4#1 to c1
    "#]]);
}

#[test]
fn a_sticky_job_at_its_kinds_limit_blocks_no_other() {
    check(expect![[r#"
        given worker w1 c1 slots=3 kinds=w,v limits=w:1 | worker w2 c2 slots=1 kinds=w,v
        submit a1 kind=w stick=m
            a1 assigned #1
            offer a1#1 to c1
        submit a2 kind=w stick=m
        explain a2
            a2 is queued, 0 ahead: worker w1 is ready
        submit b1 kind=v stick=m
            b1 assigned #1
            offer b1#1 to c1
        submit b2 kind=w
            b2 assigned #1
            offer b2#1 to c2
        result c1 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
            a2 assigned #1
            offer a2#1 to c1
    "#]]);
}

#[test]
fn jobs_of_one_key_run_one_at_a_time_whichever_worker_runs_them() {
    check(expect![[r#"
        given push workers w1 w2 slots=2
        submit a1 kind=w keys=concurrency_key:r | submit a2 kind=w keys=concurrency_key:r
            a1 assigned #1
            offer a1#1 to c1
        explain a2
            a2 is queued, 0 ahead: key concurrency_key:r 1/1
        result c1 a1 ok
            a1 started #1
            a1 succeeded #1 (done)
            a2 assigned #1
            offer a2#1 to c2
    "#]]);
}

#[test]
fn a_new_executor_takes_jobs_that_wait_for_a_busy_worker() {
    check(expect![[r#"
        given push worker w1
        submit a1 kind=w stick=k
            a1 assigned #1
            offer a1#1 to c1
        submit a2 kind=w stick=k
        executor here attached kinds=w slots=1
            a2 started #1
    "#]]);
}

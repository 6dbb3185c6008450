//! Pull workers: claims, reserved jobs, leases for one job, and messages about them.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn b1_b2_b3_claims_are_denied_with_a_reason_and_jobs_stay_queued() {
    check(expect![[r#"
        given lane main dispatch=claim lease=60s
        load busy=0
        claim w1
            denied: NothingEligible, retry in 1500 ms
        submit a1 cost=80 | submit a2 cost=20
        explain a1
            a1 is queued, 0 ahead: no worker of lane main claims
        claim w1 max=10
            denied: TooBig { cost: 80 }, retry in 2000 ms
        claim w1
            granted a1: assigned, 80 units, lease 60 s
            a1 assigned #1
        claim w2
            denied: NeedsMore { needed: 20, free: 10 }, retry in 2000 ms
        claim w3 max=0
            denied: TooBig { cost: 20 }, retry in 2000 ms
        finish a1 ok
            a1 started #1
            a1 succeeded #1 (done)
        claim w2
            granted a2: assigned, 20 units, lease 60 s
            a2 assigned #1
    "#]]);
}

#[test]
fn w1_w10_a_claim_takes_the_next_that_fits_and_pays_its_whole_cost() {
    check(expect![[r#"
        given lane main dispatch=claim lease=60s order=priority | load busy=0
        submit a1 cost=60 | submit big cost=50 priority=-20 | submit small cost=30 | submit tiny cost=1
        claim w1 max=60
            granted big: assigned, 50 units, lease 60 s
            big assigned #1
        capacity
            busy 0 (quiet), 90 usable, 50 used, 0 reserved, 40 free, 1 leases
        claim w2 kinds=k max=40
            granted small: assigned, 30 units, lease 60 s
            small assigned #1
        claim w3
            granted tiny: assigned, 1 units, lease 60 s
            tiny assigned #1
        capacity
            busy 0 (quiet), 90 usable, 81 used, 0 reserved, 9 free, 3 leases
    "#]]);
}

#[test]
fn claims_by_agent_and_kind_find_their_own() {
    check(expect![[r#"
        given lane main dispatch=claim | load busy=0
        submit a1 agent=A kind=x | submit b1 agent=B kind=y | submit b2 agent=B kind=x | submit t1 tenant=T kind=x
        claim w1 agent=C
            denied: NothingEligible, retry in 1500 ms
        claim w1 agent=B kinds=x
            granted b2: assigned, 0 units, lease 30 s
            b2 assigned #1
        claim w1 kinds=y,z
            granted b1: assigned, 0 units, lease 30 s
            b1 assigned #1
        claim w1 kinds=z
            denied: NothingEligible, retry in 1500 ms
        claim w1 tenant=T
            granted t1: assigned, 0 units, lease 30 s
            t1 assigned #1
        claim w1
            granted a1: assigned, 0 units, lease 30 s
            a1 assigned #1
        claim w1
            denied: NothingEligible, retry in 1500 ms
    "#]]);
}

#[test]
fn b4_b5_b10_b11_a_lease_lives_by_heartbeats_and_its_end_frees_the_units() {
    check(expect![[r#"
        given lane main dispatch=claim lease=60s lost=fail | load busy=0
        submit a1 cost=40 | claim w1
            granted a1: assigned, 40 units, lease 60 s
            a1 assigned #1
        capacity
            busy 0 (quiet), 90 usable, 40 used, 0 reserved, 50 free, 1 leases
        renew a1 worker=w1
            a1 started #1
        wait 30s
        renew a1 worker=w1
        wait 30s
        load busy=0
        capacity
            busy 0 (quiet), 90 usable, 40 used, 0 reserved, 50 free, 1 leases
        wait 30s
            a1 failed #1 (lost)
        load busy=0
        capacity
            busy 0 (quiet), 90 usable, 0 used, 0 reserved, 90 free, 0 leases
        renew a1 worker=w1
            not found
        ended a1 ok worker=w1
            not found
        submit a2 cost=40 | claim w1
            granted a2: assigned, 40 units, lease 60 s
            a2 assigned #1
        wait 60s
            a2 failed #1 (lost)
    "#]]);
}

#[test]
fn b6_messages_of_another_worker_change_nothing() {
    check(expect![[r#"
        given lane main dispatch=claim | load busy=0
        submit a1 cost=1 | claim w1 start
            granted a1: running, 1 units, lease 30 s
            a1 started #1
        renew a1 worker=w2
            not yours
        ended a1 ok worker=w2
            not yours
        renew a1! worker=w1
            not found
        renew a1 worker=w1 pid=77
        ended a1 ok worker=w1
            a1 succeeded #1 (done)
        ended a1 ok worker=w1
            not found
    "#]]);
}

#[test]
fn b9_a_revoked_lease_fails_its_job_and_holds_its_units_until_the_attempt_has_ended() {
    check(expect![[r#"
        given lane main dispatch=claim lease=60s | load busy=0
        submit a1 cost=40 | claim w1 start
            granted a1: running, 40 units, lease 60 s
            a1 started #1
        revoke a1
            a1 failed #1 (revoked)
            stop a1
        capacity
            busy 0 (quiet), 90 usable, 40 used, 0 reserved, 50 free, 1 leases
        revoke a1
            not found
        renew a1 worker=w1
            alive, but must stop
        ended a1 canceled worker=w1
            stale
            a1 released #1
        capacity
            busy 0 (quiet), 90 usable, 0 used, 0 reserved, 90 free, 0 leases
    "#]]);
}

#[test]
fn b13_a_unique_job_goes_to_a_worker_that_holds_nothing() {
    check(expect![[r#"
        given lane main dispatch=claim | load busy=0
        submit a1 cost=1 | submit a2 cost=1 unique=yes
        claim w1
            granted a1: assigned, 1 units, lease 30 s
            a1 assigned #1
        claim w1
            denied: Unique, retry in 2000 ms
        claim w2
            granted a2: assigned, 1 units, lease 30 s
            a2 assigned #1
    "#]]);
}

#[test]
fn a_job_stays_unique_while_its_lane_changes_its_dispatch() {
    check(expect![[r#"
        given lane main dispatch=claim | load busy=0
        submit a1 kind=unserved | submit a2 kind=unserved unique=yes
        claim w1
            granted a1: assigned, 0 units, lease 30 s
            a1 assigned #1
        lane main dispatch=push
            config.changed
        lane main dispatch=claim
            config.changed
        claim w1
            denied: Unique, retry in 2000 ms
        claim w2
            granted a2: assigned, 0 units, lease 30 s
            a2 assigned #1
    "#]]);
}

#[test]
fn b14_leases_are_capped_for_the_lane_and_for_each_agent() {
    check(expect![[r#"
        given lane main dispatch=claim running=2 per_agent=1 | load busy=0
        submit a1 agent=A | submit a2 agent=A | submit b1 agent=B | submit c1 agent=C
        claim w1
            granted a1: assigned, 0 units, lease 30 s
            a1 assigned #1
        claim w2 agent=A
            denied: AgentCap { limit: 1 }, retry in 2000 ms
        claim w3
            granted b1: assigned, 0 units, lease 30 s
            b1 assigned #1
        claim w4
            denied: MaxLeases { limit: 2 }, retry in 2000 ms
        finish a1 ok
            a1 started #1
            a1 succeeded #1 (done)
        claim w2 agent=A
            granted a2: assigned, 0 units, lease 30 s
            a2 assigned #1
    "#]]);
}

#[test]
fn b17_b19_b20_w2_w15_a_job_is_reserved_with_its_units_and_queued_again_when_no_worker_comes() {
    check(expect![[r#"
        given lane main dispatch=reserve lease=60s | load busy=0
        submit a1 cost=90 | submit a2 cost=90
            a1 assigned #1
            a2 denied #0 (capacity)
        capacity
            busy 0 (quiet), 90 usable, 90 used, 90 reserved, 0 free, 1 leases
        ack a1 worker=w1
            granted a1: running, 90 units, lease 60 s
            a1 started #1
        capacity
            busy 0 (quiet), 90 usable, 90 used, 0 reserved, 0 free, 1 leases
        ack a1 worker=w2
            denied: Taken, retry in 5000 ms
        ack a1 worker=w1
            granted a1: running, 90 units, lease 60 s, again
        ack a2 worker=w1
            denied: NoCapacity { busy: 0, usable: 90, used: 90 }, retry in 1500 ms
        finish a1 ok
            a1 succeeded #1 (done)
            a2 assigned #1
        capacity
            busy 0 (quiet), 90 usable, 90 used, 90 reserved, 0 free, 1 leases
        wait 29s
        load busy=0
        wait 1s
            a2 queued #1 (handed_back)
            a2 deferred #1 (handed_back)
        capacity
            busy 0 (quiet), 90 usable, 0 used, 0 reserved, 90 free, 0 leases
        explain a2
            a2 is scheduled, 0 ahead: backoff 5000 ms
        wait 5s
            a2 queued #1 (due)
            a2 assigned #2
        wait 30s
            a2 queued #2 (handed_back)
            a2 deferred #2 (handed_back)
        ack a2 worker=w1
            denied: NotYet, retry in 5000 ms
    "#]]);
}

#[test]
fn b18_a_job_whose_time_has_not_come_is_not_reserved() {
    check(expect![[r#"
        given lane main dispatch=reserve | load busy=0
        submit a1 cost=10 after=20s
        ack a1 worker=w1
            denied: NotYet, retry in 5000 ms
        wait 20s
            a1 queued #0 (due)
            a1 assigned #1
        ack a1 worker=w1
            granted a1: running, 10 units, lease 30 s
            a1 started #1
    "#]]);
}

#[test]
fn b21_w4_a_cancel_frees_a_reserved_job_at_once() {
    check(expect![[r#"
        given lane main dispatch=reserve | load busy=0
        submit a1 cost=90 | submit a2 cost=90
            a1 assigned #1
            a2 denied #0 (capacity)
        cancel a1
            was assigned
            a1 canceled #1 (requested)
            a2 assigned #1
        capacity
            busy 0 (quiet), 90 usable, 90 used, 90 reserved, 0 free, 1 leases
        cancel a2
            was assigned
            a2 canceled #1 (requested)
        capacity
            busy 0 (quiet), 90 usable, 0 used, 0 reserved, 90 free, 0 leases
    "#]]);
}

#[test]
fn a_deadline_ends_a_reserved_job_at_once() {
    check(expect![[r#"
        given lane main dispatch=reserve | load busy=0
        submit a1 cost=90 deadline=10s | submit a2 cost=10
            a1 assigned #1
            a2 denied #0 (capacity)
        wait 10s
            a1 failed #1 (expired)
            a2 assigned #1
        capacity
            busy 0 (quiet), 90 usable, 10 used, 10 reserved, 80 free, 1 leases
    "#]]);
}

#[test]
fn a_caller_with_the_fence_may_start_a_reserved_job() {
    check(expect![[r#"
        given lane main dispatch=reserve lease=60s | load busy=0
        submit a1 cost=10
            a1 assigned #1
        start a1
            a1 started #1
        claim w1
            denied: NothingEligible, retry in 1500 ms
        ack a1 worker=w1
            denied: Taken, retry in 5000 ms
        renew a1 worker=w1
        finish a1 ok
            a1 succeeded #1 (done)
    "#]]);
}

#[test]
fn limits_of_unused_names_hold_for_leases() {
    check(expect![[r#"
        given lane main dispatch=claim | load busy=0
        kind closed running=0 | tenant T running=0
            config.changed
            config.changed
        lease a1 worker=w1 kind=closed
            denied: Full, retry in 2000 ms
        lease a1 worker=w1 kind=k tenant=T
            denied: Full, retry in 2000 ms
        lease a1 worker=w1 kind=k
            granted a1: running, 0 units, lease 30 s
            a1 started #1
    "#]]);
}

#[test]
fn w3_nothing_that_ended_ends_again() {
    check(expect![[r#"
        given lane main dispatch=reserve | load busy=0
        submit a1 cost=10 | ack a1 worker=w1
            a1 assigned #1
            granted a1: running, 10 units, lease 30 s
            a1 started #1
        ended a1 ok worker=w1
            a1 succeeded #1 (done)
        ended a1 permanent worker=w1
            not found
        ack a1 worker=w1
            not found
        submit a2 cost=10 | cancel a2
            a2 assigned #1
            was assigned
            a2 canceled #1 (requested)
        finish a2 ok
            stale
    "#]]);
}

#[test]
fn w14_two_workers_never_get_the_same_job() {
    check(expect![[r#"
        given lane main dispatch=reserve lease=60s | load busy=0
        submit a1 agent=A cost=10 | submit b1 agent=B cost=10
            a1 assigned #1
            b1 assigned #1
        claim w1 agent=A
            granted a1: assigned, 10 units, lease 60 s
        claim w2 agent=A
            denied: NothingEligible, retry in 1500 ms
        claim w2
            granted b1: assigned, 10 units, lease 60 s
        claim w3
            denied: NothingEligible, retry in 1500 ms
    "#]]);
}

#[test]
fn w11_a_lease_for_a_new_job_is_given_now_or_never() {
    check(expect![[r#"
        given lane main dispatch=claim lease=60s lost=fail | load busy=0 quiet=normal
        lease a1 worker=w1 cost=60 kind=index quiet=quiet
            denied: NotQuiet { state: Normal }, retry in 10000 ms
        lease a1 worker=w1 cost=60 kind=index quiet=busy priority=-10
            granted a1: running, 60 units, lease 60 s
            a1 started #1
        lease a2 worker=w2 cost=60 kind=index quiet=busy
            denied: NeedsMore { needed: 60, free: 30 }, retry in 2000 ms
        load busy=0 quiet=panic
        lease a2 worker=w2 cost=10 kind=index quiet=busy priority=-10
            denied: Panic, retry in 30000 ms
        lease a3 worker=w2 cost=91 kind=index
            rejected: never_fits: cost: is 91, and an idle machine gives 90 at most; ask for less
        lease a3 worker=w2 cost=10 kind=index session=s
            rejected: invalid: lease: a new job starts now, in a lane for pull workers; leave out what it could wait for (session, keys, not_before, hours, idempotency_key)
        decisions
            - w2 panic
            - w2 needs_more
            a1 w1 admitted
            - w1 not_quiet
    "#]]);
}

#[test]
fn w12_an_attempt_that_takes_too_long_has_failed() {
    check(expect![[r#"
        given lane main dispatch=reserve lease=60s | load busy=0
        submit a1 cost=10 timeout=20s retries=0 | ack a1 worker=w1
            a1 assigned #1
            granted a1: running, 10 units, lease 60 s
            a1 started #1
        wait 20s
            stop a1
        renew a1 worker=w1
            alive, but must stop
        ended a1 canceled worker=w1
            stale
            a1 failed #1 (timed_out)
    "#]]);
}

#[test]
fn a_lost_lease_of_a_lane_that_requeues_is_counted_and_tried_again() {
    check(expect![[r#"
        given lane main dispatch=reserve lease=60s | load busy=0
        submit a1 cost=10 | ack a1 worker=w1
            a1 assigned #1
            granted a1: running, 10 units, lease 60 s
            a1 started #1
        wait 60s
            a1 queued #1 (lost)
            a1 denied #1 (capacity)
        load busy=0
            a1 assigned #2
        ack a1 worker=w2
            granted a1: running, 10 units, lease 60 s
            a1 started #2
        wait 60s
            a1 failed #2 (lost)
    "#]]);
}

#[test]
fn b22_leases_are_armed_anew_after_a_crash_and_keep_their_holders() {
    check(expect![[r#"
        given lane main dispatch=reserve lease=60s | load busy=0
        submit a1 cost=40 | ack a1 worker=w1 | submit a2 cost=40 | submit a3 cost=40
            a1 assigned #1
            granted a1: running, 40 units, lease 60 s
            a1 started #1
            a2 assigned #1
            a3 denied #0 (capacity)
        wait 20s
            a3 denied #0 (capacity)
        crash
            a3 denied #0 (capacity)
        capacity
            busy 8 (busy), 9 usable, 80 used, 40 reserved, 0 free, 2 leases
        renew a1 worker=w2
            not yours
        renew a1 worker=w1
        claim w2
            granted a2: assigned, 40 units, lease 60 s
        wait 59s
            a3 denied #0 (capacity)
        renew a1 worker=w1
        wait 1s
            a2 queued #1 (lost)
            a2 denied #1 (capacity)
    "#]]);
}

#[test]
fn a_lane_that_changes_to_claims_keeps_its_jobs() {
    check(expect![[r#"
        given load busy=0
        submit a1 kind=unserved | submit a2 kind=unserved cost=5
        explain a1
            a1 is queued, 0 ahead: no executor for unserved
        lane main dispatch=claim
            config.changed
        claim w1
            granted a1: assigned, 0 units, lease 30 s
            a1 assigned #1
        claim w2
            granted a2: assigned, 5 units, lease 30 s
            a2 assigned #1
        lane main dispatch=push
            config.changed
        explain a1
            a1 is assigned, 0 ahead
        finish a1 back
            a1 queued #1 (handed_back)
        explain a1
            a1 is queued, 0 ahead: no executor for unserved
    "#]]);
}

#[test]
fn claims_of_a_lane_that_pushes_and_too_many_kinds_are_rejected() {
    check(expect![[r#"
        claim w1
            rejected: invalid: lane: its jobs are pushed to executors; claim in a lane for pull workers
        claim w1 lane=nowhere
            rejected: unknown_lane: lane: there is no lane "nowhere"; create it with PUT /v1/lanes/nowhere, or list all lanes with GET /v1/lanes
        executor leases leased kinds=far slots=1
            rejected: invalid: executor: the name "leases" is reserved by the server; choose another
    "#]]);
}

#[test]
fn a_worker_that_requests_its_lease_again_gets_a_whole_one() {
    check(expect![[r#"
        given lane main dispatch=claim lease=10s | load busy=0
        submit a1
        ack a1 worker=w1
            granted a1: running, 0 units, lease 10 s
            a1 started #1
        wait 8s
        ack a1 worker=w1
            granted a1: running, 0 units, lease 10 s, again, 592000 ms left
        wait 8s
        renew a1 worker=w1
    "#]]);
}

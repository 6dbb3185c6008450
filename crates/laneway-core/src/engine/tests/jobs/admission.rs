//! Admission: caps, idempotency keys, batches, bad deadlines.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn queue_caps_hold_exactly() {
    check(expect![[r#"
        given lane main running=1 queued=3 queued_per_agent=2
        submit a1 | submit a2 | submit a3
            a1 started #1
        submit a4
            rejected: queue_full: the queue is full (agent in this lane: queued_per_agent_max): 2 of 2 jobs wait; submit again later
        submit b1 agent=B
        submit b2 agent=B
            rejected: queue_full: the queue is full (lane: queued_max): 3 of 3 jobs wait; submit again later
        finish a1 ok
            a1 succeeded #1 (done)
            b1 started #1
        submit b3 agent=B
    "#]]);
}

#[test]
fn tenant_and_server_caps() {
    check(expect![[r#"
        given lane main running=1 | tenant t1 queued=1 | server queued=3
        submit x1 tenant=t1 | submit x2 tenant=t1 | submit x3 tenant=t1
            x1 started #1
            rejected: queue_full: the queue is full (tenant: queued_max): 1 of 1 jobs wait; submit again later
        submit y1 tenant=t2 | submit y2 tenant=t2 | submit y3 tenant=t2
            rejected: queue_full: the queue is full (server: limits.queued_max): 3 of 3 jobs wait; submit again later
    "#]]);
}

#[test]
fn the_same_key_gives_the_same_job_and_another_body_is_rejected() {
    check(expect![[r#"
        submit a1 idem=one/x
            a1 started #1
        submit a2 idem=one/x
            a2 exists already
        submit a3 idem=one/y
            rejected: idempotency_mismatch: idempotency_key: "one" was used for another request; choose a new key
        batch b1 b2 idem=two/x
            b1 started #1
    "#]]);
}

#[test]
fn an_atomic_batch_is_all_or_nothing() {
    check(expect![[r#"
        given lane main running=1 queued=2
        batch a1 a2 a3 a4 atomic
            a1 rejected: batch_rejected
            a2 rejected: batch_rejected
            a3 rejected: queue_full
            a4 rejected: queue_full
        batch b1 b2 atomic
            b1 started #1
        batch c1 c2 c3
            c2 rejected: queue_full
            c3 rejected: queue_full
    "#]]);
}

#[test]
fn deadlines_in_the_past_are_rejected_and_nothing_is_kept() {
    check(expect![[r#"
        submit a1 deadline=0s
            rejected: deadline_past: deadline: has passed; give a time in the future
        submit a2 deadline=5s after=9s
            rejected: deadline_past: not_before: comes after the deadline; give an earlier one
    "#]]);
}

#[test]
fn an_unknown_lane_means_main() {
    check(expect![[r#"
        submit a1 lane=nowhere
            a1 started #1
        lane main paused=yes
            config.changed
        submit a2 lane=nowhere
        explain a2
            a2 is queued, 0 ahead: lane main paused
    "#]]);
}

#[test]
fn strict_kinds_reject_a_kind_without_an_executor() {
    check(expect![[r#"
        submit a1 kind=unknown
        explain a1
            a1 is queued, 0 ahead: no executor for unknown
        server strict=yes
            config.changed
        submit a2 kind=unknown
            rejected: unknown_kind: kind: no executor offers "unknown"; register a handler or a target for it
    "#]]);
}

#[test]
fn defect_06_low_storage_stops_starts_and_lets_attempts_end() {
    check(expect![[r#"
        given lane main running=1
        submit a1
            a1 started #1
        submit a2
        storage low
        explain a2
            a2 is queued, 0 ahead: storage low, lane main 1/1
        finish a1 ok
            a1 succeeded #1 (done)
        explain a2
            a2 is queued, 0 ahead: storage low
        storage fine
            a2 started #1
        finish a2 ok
            a2 succeeded #1 (done)
    "#]]);
}

#[test]
fn low_storage_and_draining_close_admission() {
    check(expect![[r#"
        storage low
        submit a1
            rejected: storage_low: storage runs low; free disk space, then submit again
        storage fine
        submit a2
            a2 started #1
        drain
            server.draining
        submit a3
            rejected: draining: the server is stopping; submit again after it has restarted
        finish a2 ok
            a2 succeeded #1 (done)
    "#]]);
}

#[test]
fn defect_11_a_tenant_borrows_free_shares_and_leaves_the_minimum_of_others() {
    check(expect![[r#"
        given tenant t1 queued=99 | tenant t2 queued=99 | lane main running=0 queued=8
        given lane other running=0 queued=8
        submit a1 tenant=t1 | submit a2 tenant=t1 | submit a3 tenant=t1 | submit a4 tenant=t1 | submit a5 tenant=t1 | submit a6 tenant=t1
        submit a7 tenant=t1
        submit a8 tenant=t1
            rejected: queue_full: the queue is full (lane: queued_max): 7 of 8 jobs wait, and the rest is reserved for other tenants; submit again later
        submit b1 tenant=t2
        submit b2 tenant=t2
            rejected: queue_full: the queue is full (lane: queued_max): 8 of 8 jobs wait; submit again later
        submit c1 tenant=t1 lane=other
    "#]]);
}

#[test]
fn defect_11_a_borrowed_share_comes_back_when_its_tenant_needs_it() {
    check(expect![[r#"
        given tenant t1 queued=99 | tenant t2 queued=99 | lane main running=0 queued=8
        batch a1 a2 a3 a4 a5 a6 a7 tenant=t1
        submit b1 tenant=t2
        cancel a1
            was queued
            a1 canceled #0 (requested)
        submit a8 tenant=t1
            rejected: queue_full: the queue is full (lane: queued_max): 7 of 8 jobs wait, and the rest is reserved for other tenants; submit again later
        submit b2 tenant=t2
        cancel a2
            was queued
            a2 canceled #0 (requested)
        submit b3 tenant=t2
        cancel b1 | cancel b2 | cancel b3
            was queued
            b1 canceled #0 (requested)
            was queued
            b2 canceled #0 (requested)
            was queued
            b3 canceled #0 (requested)
        submit a8 tenant=t1 | submit a9 tenant=t1
    "#]]);
}

#[test]
fn defect_11_an_atomic_batch_leaves_the_minimum_of_others() {
    check(expect![[r#"
        given tenant t1 queued=99 | tenant t2 queued=99 | server queued=8 | lane main running=0
        batch a1 a2 a3 a4 a5 a6 a7 a8 atomic tenant=t1
            a1 rejected: batch_rejected
            a2 rejected: batch_rejected
            a3 rejected: batch_rejected
            a4 rejected: batch_rejected
            a5 rejected: batch_rejected
            a6 rejected: batch_rejected
            a7 rejected: batch_rejected
            a8 rejected: queue_full
        batch a1 a2 a3 a4 a5 a6 a7 atomic tenant=t1
        batch b1 b2 atomic tenant=t2
            b1 rejected: batch_rejected
            b2 rejected: queue_full
        batch b1 atomic tenant=t2
    "#]]);
}

#[test]
fn a_tenant_alone_has_the_whole_queue() {
    check(expect![[r#"
        given tenant t1 queued=99 | lane main running=0 queued=2
        submit a1 tenant=t1 | submit a2 tenant=t1 | submit a3 tenant=t1
            rejected: queue_full: the queue is full (lane: queued_max): 2 of 2 jobs wait; submit again later
    "#]]);
}

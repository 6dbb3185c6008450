//! Who is admitted: caps, idempotency keys, batches, bad deadlines.

use super::check;
use expect_test::expect;

#[test]
fn queue_caps_hold_exactly() {
    check(
        "
        lane main running=1 queued=3 queued_per_agent=2
        submit a1 | submit a2 | submit a3
        submit a4
        submit b1 agent=B
        submit b2 agent=B
        finish a1 ok
        submit b3 agent=B
        ",
        expect![[r#"
            lane main running=1 queued=3 queued_per_agent=2
                config.changed
            submit a1 | submit a2 | submit a3
                a1 started #1
            submit a4
                refused: queue_full: the queue is full (agent in this lane: queued_per_agent_max): 2 of 2 jobs wait; submit again later
            submit b1 agent=B
            submit b2 agent=B
                refused: queue_full: the queue is full (lane: queued_max): 3 of 3 jobs wait; submit again later
            finish a1 ok
                a1 succeeded #1 (done)
                b1 started #1
            submit b3 agent=B
        "#]],
    );
}

#[test]
fn tenant_and_server_caps() {
    check(
        "
        lane main running=1 | tenant t1 queued=1 | server queued=3
        submit x1 tenant=t1 | submit x2 tenant=t1 | submit x3 tenant=t1
        submit y1 tenant=t2 | submit y2 tenant=t2 | submit y3 tenant=t2
        ",
        expect![[r#"
            lane main running=1 | tenant t1 queued=1 | server queued=3
                config.changed
                config.changed
                config.changed
            submit x1 tenant=t1 | submit x2 tenant=t1 | submit x3 tenant=t1
                x1 started #1
                refused: queue_full: the queue is full (tenant: queued_max): 1 of 1 jobs wait; submit again later
            submit y1 tenant=t2 | submit y2 tenant=t2 | submit y3 tenant=t2
                refused: queue_full: the queue is full (server: limits.queued_max): 3 of 3 jobs wait; submit again later
        "#]],
    );
}

#[test]
fn the_same_key_gives_the_same_job_and_another_body_is_refused() {
    check(
        "
        submit a1 idem=one/x
        submit a2 idem=one/x
        submit a3 idem=one/y
        batch b1 b2 idem=two/x
        ",
        expect![[r#"
            submit a1 idem=one/x
                a1 started #1
            submit a2 idem=one/x
                a2 exists already
            submit a3 idem=one/y
                refused: idempotency_mismatch: idempotency_key: "one" was used for another request; choose a new key
            batch b1 b2 idem=two/x
                b1 started #1
        "#]],
    );
}

#[test]
fn an_atomic_batch_is_all_or_nothing() {
    check(
        "
        lane main running=1 queued=2
        batch a1 a2 a3 a4 atomic
        batch b1 b2 atomic
        batch c1 c2 c3
        ",
        expect![[r#"
            lane main running=1 queued=2
                config.changed
            batch a1 a2 a3 a4 atomic
                a1 refused: batch_refused
                a2 refused: batch_refused
                a3 refused: queue_full
                a4 refused: queue_full
            batch b1 b2 atomic
                b1 started #1
            batch c1 c2 c3
                c2 refused: queue_full
                c3 refused: queue_full
        "#]],
    );
}

#[test]
fn deadlines_in_the_past_are_refused_and_nothing_is_kept() {
    check(
        "
        submit a1 deadline=0s
        submit a2 deadline=5s after=9s
        ",
        expect![[r#"
            submit a1 deadline=0s
                refused: deadline_past: deadline: has passed; give a time in the future
            submit a2 deadline=5s after=9s
                refused: deadline_past: not_before: comes after the deadline; give an earlier one
        "#]],
    );
}

#[test]
fn an_unknown_lane_means_main() {
    check(
        "submit a1 lane=nowhere\nlane main paused=yes\nsubmit a2 lane=nowhere\nexplain a2",
        expect![[r#"
        submit a1 lane=nowhere
            a1 started #1
        lane main paused=yes
            config.changed
        submit a2 lane=nowhere
        explain a2
            a2 is queued, 0 ahead: lane main paused
    "#]],
    );
}

#[test]
fn strict_kinds_refuse_what_nobody_offers() {
    check(
        "submit a1 kind=unknown\nexplain a1\nserver strict=yes\nsubmit a2 kind=unknown",
        expect![[r#"
        submit a1 kind=unknown
        explain a1
            a1 is queued, 0 ahead: no place for unknown
        server strict=yes
            config.changed
        submit a2 kind=unknown
            refused: unknown_kind: kind: nobody offers "unknown"; register a handler or a target for it
    "#]],
    );
}

#[test]
fn low_storage_and_draining_close_admission() {
    check(
        "storage low\nsubmit a1\nstorage fine\nsubmit a2\ndrain\nsubmit a3\nfinish a2 ok",
        expect![[r#"
        storage low
        submit a1
            refused: storage_low: storage runs low; free disk space, then submit again
        storage fine
        submit a2
            a2 started #1
        drain
            server.draining
        submit a3
            refused: draining: the server is stopping; submit again after it has restarted
        finish a2 ok
            a2 succeeded #1 (done)
    "#]],
    );
}

//! Ended jobs that a call deletes.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn an_ended_job_is_deleted_once() {
    check(expect![[r#"
        submit a1
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
        erase a1
            a1 deleted #1
        erase a1
            not found
        crash
    "#]]);
}

#[test]
fn a_job_that_has_not_ended_is_not_deleted() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 | submit a3 after=60s
            a1 started #1
        erase a1 | erase a2 | erase a3
            rejected: not_ended: job: is running; cancel it first
            rejected: not_ended: job: is queued; cancel it first
            rejected: not_ended: job: is scheduled; cancel it first
        cancel a1
            was running
            a1 canceled #1 (requested)
            stop a1
        erase a1
            rejected: not_ended: job: its last attempt has not ended yet; delete the job when it has
        finish a1 ok
            stale
            a1 released #1
            a2 started #1
        erase a1
            a1 deleted #1
        cancel a3 | erase a3
            was scheduled
            a3 canceled #0 (requested)
            a3 deleted #0
    "#]]);
}

#[test]
fn a_tenant_cannot_delete_anothers_job() {
    check(expect![[r#"
        submit a1 tenant=t1
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
        erase a1 tenant=t2
            not found
        erase a1 tenant=t1
            a1 deleted #1
    "#]]);
}

#[test]
fn the_idempotency_key_of_a_deleted_job_is_free() {
    check(expect![[r#"
        submit a1 idem=key/body
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
        submit a2 idem=key/body
            a2 exists already
        erase a1
            a1 deleted #1
        submit a3 idem=key/other
            a3 started #1
    "#]]);
}

#[test]
fn a_node_stays_with_its_run() {
    check(expect![[r#"
        submitrun r a b<a
            r submitted
            r started
            r/a started #1
        finish r/a ok
            r/a succeeded #1 (done)
            r/b queued #0 (released)
            r/b started #1
        erase r/a
            rejected: in_use: job: is a node of run_01a3185c-5000-7000-a4f2-c06549956b26; it is deleted together with the run
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        erase r/a
            rejected: in_use: job: is a node of run_01a3185c-5000-7000-a4f2-c06549956b26; it is deleted together with the run
    "#]]);
}

#[test]
fn a_merged_job_stays_until_the_job_that_runs_for_it_has_ended() {
    check(expect![[r#"
        submit s1 session=chat debounce=5s | submit s2 session=chat debounce=5s
            s2 canceled #0 (merged)
        erase s2
            rejected: in_use: job: was merged into 01a3185c-5000-7000-a4f2-c06549956b26, which has not ended; delete it after that
        wait 5s
            s1 queued #0 (due)
            s1 started #1
        erase s2
            rejected: in_use: job: was merged into 01a3185c-5000-7000-a4f2-c06549956b26, which has not ended; delete it after that
        finish s1 ok
            s1 succeeded #1 (done)
        erase s2 | erase s1
            s2 deleted #0
            s1 deleted #1
    "#]]);
}

#[test]
fn a_keeper_stays_until_its_keys_are_released() {
    check(expect![[r#"
        submit a1 keys=browser:open
            a1 started #1
        finish a1 keep:browser
            keys.kept a1 keeps browser=open
            a1 succeeded #1 (done)
        erase a1
            rejected: in_use: job: keeps keys; release them first
        release a1
            keys.released a1 released browser=open
        erase a1
            a1 deleted #1
    "#]]);
}

#[test]
fn a_job_stays_until_its_webhook_is_delivered() {
    check(expect![[r#"
        submit a1 callback=host
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
        erase a1
            rejected: in_use: job: its webhook is not delivered yet; delete the job after that
        tried a1 200
        erase a1
            a1 deleted #1
    "#]]);
}

#[test]
fn a_webhook_is_not_sent_again_for_a_job_that_is_being_deleted() {
    check(expect![[r#"
        submit a1 callback=host
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
        tried a1 200
        erase a1 | redeliver a1
            a1 deleted #1
            not found
    "#]]);
}

//! Keys that jobs keep after their end.

use std::collections::BTreeSet;

use crate::engine::tests::scenario::{START, Scenario, check};
use crate::kept_keys::KEEPERS_PER_TENANT_MAX;
use crate::{JobId, KeptKeys, Key, Name};
use expect_test::expect;

#[test]
fn a_kept_key_holds_its_slot_until_it_is_released() {
    check(expect![[r#"
        given key browser limit=2
        submit a1 keys=browser:open | submit a2 keys=browser:open | submit a3 keys=browser:open
            a1 started #1
            a2 started #1
        finish a1 keep:browser
            keys.kept a1 keeps browser=open
            a1 succeeded #1 (done)
        explain a3
            a3 is queued, 0 ahead: key browser:open 2/2, 1 kept
        keyuse browser:open
            1 open, 1 kept, limit 2, full
        finish a2 ok
            a2 succeeded #1 (done)
            a3 started #1
        keyuse browser:open
            1 open, 1 kept, limit 2, full
        kept
            a1 of default keeps browser:open since 0 s
        submit a4 keys=browser:open
        explain a4
            a4 is queued, 0 ahead: key browser:open 2/2, 1 kept
        release a1
            keys.released a1 released browser=open
            a4 started #1
        kept
        keyuse browser:open
            2 open, 0 kept, limit 2, full
    "#]]);
}

#[test]
fn no_other_job_starts_between_the_end_and_the_release() {
    check(expect![[r#"
        submit a1 keys=browser:open | submit a2 keys=browser:open
            a1 started #1
        wait 1s
        finish a1 keep:browser
            keys.kept a1 keeps browser=open
            a1 succeeded #1 (done)
        wait 1s
        explain a2
            a2 is queued, 0 ahead: key browser:open 1/1, 1 kept
        release a1
            keys.released a1 released browser=open
            a2 started #1
    "#]]);
}

#[test]
fn only_the_named_keys_are_kept() {
    check(expect![[r#"
        submit a1 keys=browser:open,profile:p1 | submit a2 keys=profile:p1 | submit a3 keys=browser:open
            a1 started #1
        finish a1 keep:browser
            keys.kept a1 keeps browser=open
            a1 succeeded #1 (done)
            a2 started #1
        kept
            a1 of default keeps browser:open since 0 s
        explain a3
            a3 is queued, 0 ahead: key browser:open 1/1, 1 kept
        release a1
            keys.released a1 released browser=open
            a3 started #1
    "#]]);
}

#[test]
fn a_key_that_the_job_does_not_have_fails_the_attempt() {
    check(expect![[r#"
        submit a1 keys=browser:open
            a1 started #1
        finish a1 keep:browser,tab
            a1 failed #1 (permanent)
        kept
        keyuse browser:open
            0 open, 0 kept, limit 1
    "#]]);
}

#[test]
fn kept_keys_survive_restarts_and_the_end_of_their_tenant_in_memory() {
    check(expect![[r#"
        given key browser limit=1
        submit a1 tenant=t1 keys=browser:open
            a1 started #1
        finish a1 keep:browser
            keys.kept a1 keeps browser=open
            a1 succeeded #1 (done)
        crash
        kept
            a1 of t1 keeps browser:open since 0 s
        rebuild
        submit a2 tenant=t1 keys=browser:open | submit b1 tenant=t2 keys=browser:open
            b1 started #1
        explain a2
            a2 is queued, 0 ahead: key browser:open 1/1, 1 kept
        release a1
            keys.released a1 released browser=open
            a2 started #1
        crash
            a2 queued #1 (lost)
            b1 queued #1 (lost)
            a2 started #2
            b1 started #2
        kept
    "#]]);
}

#[test]
fn releasing_is_idempotent_and_bound_to_the_tenant() {
    check(expect![[r#"
        submit a1 tenant=t1 keys=browser:open
            a1 started #1
        release a1
            keeps no keys
        finish a1 keep:browser
            keys.kept a1 keeps browser=open
            a1 succeeded #1 (done)
        release a1 tenant=t2
            keeps no keys
        kept
            a1 of t1 keeps browser:open since 0 s
        release a1 tenant=t1
            keys.released a1 released browser=open
        release a1 tenant=t1
            keeps no keys
        release a1
            keeps no keys
    "#]]);
}

#[test]
fn a_report_of_a_canceled_job_keeps_nothing() {
    check(expect![[r#"
        submit a1 keys=browser:open
            a1 started #1
        cancel a1
            was running
            a1 canceled #1 (requested)
            stop a1
        finish a1 keep:browser
            stale
            a1 released #1
        kept
        keyuse browser:open
            0 open, 0 kept, limit 1
    "#]]);
}

#[test]
fn a_limit_that_changes_applies_to_kept_keys() {
    check(expect![[r#"
        submit a1 keys=browser:open | submit a2 keys=browser:open
            a1 started #1
        finish a1 keep:browser
            keys.kept a1 keeps browser=open
            a1 succeeded #1 (done)
        key browser limit=2
            config.changed
            a2 started #1
        keyuse browser:open
            1 open, 1 kept, limit 2, full
        key browser limit=1
            config.changed
        keyuse browser:open
            1 open, 1 kept, limit 1, full
        finish a2 ok
            a2 succeeded #1 (done)
        keyuse browser:open
            0 open, 1 kept, limit 1, full
    "#]]);
}

#[test]
fn push_workers_keep_keys_too() {
    check(expect![[r#"
        given push workers w1 slots=2
        submit a1 kind=w keys=browser:open | submit a2 kind=w keys=browser:open
            a1 assigned #1
            offer a1#1 to c1
        result c1 a1 keep:browser
            keys.kept a1 keeps browser=open
            a1 started #1
            a1 succeeded #1 (done)
        release a1
            keys.released a1 released browser=open
            a2 assigned #1
            offer a2#1 to c1
    "#]]);
}

#[test]
fn a_node_of_a_run_keeps_keys_and_a_node_of_a_chain_cannot() {
    check(expect![[r#"
        submitrun r a b<a keys=browser:open
            r submitted
            r started
            r/a started #1
        finish r/a keep:browser
            keys.kept r/a keeps browser=open
            r/a succeeded #1 (done)
            r/b queued #0 (released)
        explain r/b
            r/b is queued, 0 ahead: key browser:open 1/1, 1 kept
        release r/a
            keys.released r/a released browser=open
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        submitrun q h m1 chain=h:m1 keys=tab:t
            q submitted
            q started
            q/m1 started #1
        finish q/m1 keep:tab
            q/m1 failed #1 (permanent)
            q/h canceled #0 (run_failed)
            q failed
        kept
    "#]]);
}

/// One tenant cannot keep so many keys that the server runs out of memory for others.
#[test]
fn a_tenant_keeps_a_bounded_number() {
    let mut scenario = Scenario::new();
    for number in 0..KEEPERS_PER_TENANT_MAX {
        let key = Key { name: Name::fixed("browser"), value: Name::new(&format!("b{number}")).unwrap() };
        let job = JobId(number as u128);
        let row = KeptKeys { job, tenant: Name::fixed("t1"), keys: vec![key], since: START.wall };
        scenario.engine.resume_kept_keys(row);
    }
    scenario.play("submit a1 tenant=t1 keys=browser:one retries=0");
    scenario.play("submit b1 tenant=t2 keys=browser:one");
    let rejected = scenario.play("finish a1 keep:browser");
    assert_eq!(rejected, ["a1 failed #1 (exhausted)"]);
    let kept = scenario.play("finish b1 keep:browser");
    assert_eq!(kept, ["keys.kept b1 keeps browser=one", "b1 succeeded #1 (done)"]);
    let jobs: BTreeSet<Name> = scenario.engine.kept_keys(None).into_iter().map(|row| row.tenant).collect();
    assert_eq!(jobs.len(), 2);
}

//! The gates that block a job, as `explain` lists them.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn every_closed_gate_is_named_with_its_numbers() {
    check(expect![[r#"
        given server running=2 | lane main running=2 per_agent=1 | kind k running=1
        given tenant default running=2 | key profile limit=1
        submit a1 keys=profile:p session=chat | submit b1 agent=B kind=k2
            a1 started #1
            b1 started #1
        submit a2 keys=profile:p session=chat | submit a3 session=chat
        explain a2
            a2 is queued, 0 ahead: session chat 1/1, server 2/2, lane main 2/2, agent A 1/1, tenant 2/2, kind k 1/1, key profile:p 1/1
        explain a3
            a3 is queued, 1 ahead: session chat 1 ahead, session chat 1/1, server 2/2, lane main 2/2, agent A 1/1, tenant 2/2, kind k 1/1
        explain a1
            a1 is running, 0 ahead
    "#]]);
}

#[test]
fn a_job_behind_others_only_waits_for_the_fair_order() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 | submit a3
            a1 started #1
        lane main running=2 paused=no
            config.changed
            a2 started #1
        explain a3
            a3 is queued, 0 ahead: lane main 2/2
        finish a1 ok | finish a2 ok | finish a3 ok
            a1 succeeded #1 (done)
            a3 started #1
            a2 succeeded #1 (done)
            a3 succeeded #1 (done)
        explain a3
            a3 is not live
    "#]]);
}

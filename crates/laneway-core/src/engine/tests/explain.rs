//! Why is my job not running?

use super::check;
use expect_test::expect;

#[test]
fn every_closed_gate_is_named_with_its_figures() {
    check(
        "
        server running=2 | lane main running=2 per_agent=1 | kind k running=1 | tenant default running=2 | key profile limit=1
        submit a1 keys=profile:p session=chat | submit b1 agent=B kind=k2
        submit a2 keys=profile:p session=chat | submit a3 session=chat
        explain a2
        explain a3
        explain a1
        ",
        expect![[r#"
            server running=2 | lane main running=2 per_agent=1 | kind k running=1 | tenant default running=2 | key profile limit=1
                config.changed
                config.changed
                config.changed
                config.changed
                config.changed
            submit a1 keys=profile:p session=chat | submit b1 agent=B kind=k2
                a1 started #1
                b1 started #1
            submit a2 keys=profile:p session=chat | submit a3 session=chat
            explain a2
                a2 is queued, 0 ahead: session chat 1/1, server 2/2, lane main 2/2, agent A 1/1, tenant 2/2, kind k 1/1, key profile:p 1/1
            explain a3
                a3 is queued, 1 ahead: session chat 1 ahead, session chat 1/1, server 2/2, lane main 2/2, agent A 1/1, tenant 2/2, kind k 1/1
            explain a1
                a1 is running, 0 ahead: 
        "#]],
    );
}

#[test]
fn a_job_behind_others_only_waits_for_its_turn() {
    check(
        "lane main running=1\nsubmit a1 | submit a2 | submit a3\nlane main running=2 paused=no\nexplain a3\nfinish a1 ok | finish a2 ok | finish a3 ok\nexplain a3",
        expect![[r#"
        lane main running=1
            config.changed
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
    "#]],
    );
}

//! Which worker gets a job.

use super::check;
use expect_test::expect;

#[test]
fn the_least_loaded_worker_is_next_then_the_one_served_longest_ago() {
    check(
        "
        worker w1 c1 slots=2 kinds=w
        worker w2 c2 slots=4 kinds=w
        worker w3 c3 slots=1 kinds=v
        submit a1 kind=w | submit a2 kind=w | submit a3 kind=w | submit a4 kind=w | submit a5 kind=w
        submit a6 kind=w | submit a7 kind=w | submit b1 kind=v
        result c1 a1 ok
        ",
        expect![[r#"
            worker w1 c1 slots=2 kinds=w
                lease 30 s
                worker.connected w1: registered over c1, 0 attempts rebound
            worker w2 c2 slots=4 kinds=w
                lease 30 s
                worker.connected w2: registered over c2, 0 attempts rebound
            worker w3 c3 slots=1 kinds=v
                lease 30 s
                worker.connected w3: registered over c3, 0 attempts rebound
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
        "#]],
    );
}

#[test]
fn limits_of_single_kinds_hold_and_hold_back_nobody_else() {
    check(
        "
        worker w1 c1 slots=3 kinds=w,v limits=w:1
        submit a1 kind=w | submit a2 kind=w | submit b1 kind=v | submit b2 kind=v | submit b3 kind=v
        result c1 b1 ok
        result c1 a1 ok
        result c1 b2 ok
        ",
        expect![[r#"
            worker w1 c1 slots=3 kinds=w,v limits=w:1
                lease 30 s
                worker.connected w1: registered over c1, 0 attempts rebound
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
        "#]],
    );
}

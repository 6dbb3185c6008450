//! Processes of workers: a process that comes back keeps its tasks, a process that replaces another one does not, and
//! two processes cannot have one name at the same time.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn defect_01_a_process_that_comes_back_keeps_the_tasks_that_it_lists_or_never_received() {
    check(expect![[r#"
        worker w1 c1 slots=3 kinds=w boot=b1 tasks=none
            lease 30 s
            worker.connected w1: registered over c1, 0 attempts rebound
        submit a1 kind=w | submit a2 kind=w | submit a3 kind=w
            a1 assigned #1
            offer a1#1 to c1
            a2 assigned #1
            offer a2#1 to c1
            a3 assigned #1
            offer a3#1 to c1
        accept c1 a1
            a1 started #1
        accept c1 a2
            a2 started #1
        gone c1
            worker.disconnected w1: c1 is gone, 3 attempts are held
        worker w1 c2 slots=3 kinds=w boot=b1 tasks=a1#1
            lease 30 s
            a2 queued #1 (lost)
            worker.connected w1: registered over c2, 2 attempts rebound
            a2 assigned #2
            offer a1#1 to c2 again
            offer a3#1 to c2 again
            offer a2#2 to c2
        result c2 a2#1 ok
            stale
        accept c2 a1
        workers
            w1 c2 ready 3/3
    "#]]);
}

#[test]
fn defect_01_a_new_process_of_a_worker_loses_the_tasks_of_the_old_one() {
    check(expect![[r#"
        given push worker w1 slots=3 boot=b1 tasks=none
        submit a1 kind=w | submit a2 kind=w | submit a3 kind=w
            a1 assigned #1
            offer a1#1 to c1
            a2 assigned #1
            offer a2#1 to c1
            a3 assigned #1
            offer a3#1 to c1
        accept c1 a1
            a1 started #1
        accept c1 a2
            a2 started #1
        cancel a2
            was running
            a2 canceled #1 (requested)
            stop a2 at c1
        gone c1
            worker.disconnected w1: c1 is gone, 3 attempts are held
        worker w1 c2 slots=3 kinds=w boot=b2 tasks=a1#1
            lease 30 s
            a1 queued #1 (lost)
            a2 released #1
            a3 queued #1 (lost)
            worker.connected w1: registered over c2, 0 attempts rebound
            a1 assigned #2
            a3 assigned #2
            offer a1#2 to c2
            offer a3#2 to c2
        accept c2 a1
            a1 started #2
        gone c2
            worker.disconnected w1: c2 is gone, 2 attempts are held
        worker w1 c3 slots=3 kinds=w boot=b3 tasks=none
            lease 30 s
            a1 failed #2 (lost)
            a3 failed #2 (lost)
            worker.connected w1: registered over c3, 0 attempts rebound
        workers
            w1 c3 ready 0/3
    "#]]);
}

#[test]
fn defect_01_without_a_boot_id_a_connection_is_a_new_process_unless_it_lists_its_tasks() {
    check(expect![[r#"
        given push worker w1 slots=2 boot=none tasks=none
        submit a1 kind=w | submit a2 kind=w
            a1 assigned #1
            offer a1#1 to c1
            a2 assigned #1
            offer a2#1 to c1
        accept c1 a1
            a1 started #1
        gone c1
            worker.disconnected w1: c1 is gone, 2 attempts are held
        worker w1 c2 slots=2 kinds=w boot=none tasks=a1#1
            lease 30 s
            a2 queued #1 (lost)
            worker.connected w1: registered over c2, 1 attempts rebound
            a2 assigned #2
            offer a1#1 to c2 again
            offer a2#2 to c2
        gone c2
            worker.disconnected w1: c2 is gone, 2 attempts are held
        worker w1 c3 slots=2 kinds=w boot=none tasks=none
            lease 30 s
            a1 queued #1 (lost)
            a2 failed #2 (lost)
            worker.connected w1: registered over c3, 0 attempts rebound
            a1 assigned #2
            offer a1#2 to c3
    "#]]);
}

#[test]
fn defect_01_the_process_is_known_after_a_restart_of_the_server() {
    check(expect![[r#"
        given push worker w1 boot=b1 tasks=none | worker w2 c2 slots=1 kinds=w boot=b2 tasks=none
        submit a1 kind=w | submit a2 kind=w
            a1 assigned #1
            offer a1#1 to c1
            a2 assigned #1
            offer a2#1 to c2
        accept c1 a1
            a1 started #1
        accept c2 a2
            a2 started #1
        crash
        worker w1 c11 slots=1 kinds=w boot=b1 tasks=a1#1
            lease 30 s
            worker.connected w1: registered over c11, 1 attempts rebound
            offer a1#1 to c11 again
        worker w2 c12 slots=1 kinds=w boot=b3 tasks=a2#1
            lease 30 s
            a2 queued #1 (lost)
            worker.connected w2: registered over c12, 0 attempts rebound
            a2 assigned #2
            offer a2#2 to c12
        rebuild
            lease 30 s
            worker.connected w1: registered over c11, 1 attempts rebound
            offer a1#1 to c11 again
            lease 30 s
            worker.connected w2: registered over c12, 1 attempts rebound
            offer a2#2 to c12 again
    "#]]);
}

#[test]
fn defect_01_a_second_process_is_denied_while_the_first_one_answers() {
    check(expect![[r#"
        given push worker w1 boot=b1 tasks=none every=5s | tasks a1 on c1
        worker w1 c2 slots=1 kinds=w boot=b2 tasks=none
            rejected: name_taken: worker: "w1" is connected already since 2027-01-15T08:00:00Z and answers; stop it or choose another id (--id)
            probe c1
        worker w1 c3 slots=1 kinds=w boot=none tasks=none
            rejected: name_taken: worker: "w1" is connected already since 2027-01-15T08:00:00Z and answers; stop it or choose another id (--id)
            probe c1
        workers
            w1 c1 ready 1/1
        worker w1 c4 slots=1 kinds=w boot=b1 tasks=a1#1
            lease 30 s
            worker.superseded w1: c4 takes the place of c1
            worker.connected w1: registered over c4, 1 attempts rebound
            c1 is superseded
            offer a1#1 to c4 again
        accept c4 a1
        wait 14s
        worker w1 c5 slots=1 kinds=w boot=b2 tasks=none
            rejected: name_taken: worker: "w1" is connected already since 2027-01-15T08:00:00Z and answers; stop it or choose another id (--id)
            probe c4
        wait 1s
        worker w1 c6 slots=1 kinds=w boot=b2 tasks=none
            lease 30 s
            worker.superseded w1: c6 takes the place of c4
            a1 queued #1 (lost)
            worker.connected w1: registered over c6, 0 attempts rebound
            a1 assigned #2
            c4 is superseded
            offer a1#2 to c6
    "#]]);
}

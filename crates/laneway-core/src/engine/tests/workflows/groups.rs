//! Groups: nodes of a run that stand for others. Ids in names are those of the acceptance lists.

use crate::engine::tests::scenario::check;
use expect_test::expect;

#[test]
fn defect_15_the_nodes_of_a_group_wait_for_its_dependencies_and_it_ends_with_them() {
    check(expect![[r#"
        submitrun r a g<a x y<x z b<g group=g:x,y,z
            r submitted
            r started
            r/a started #1
        explain r/x
            r/x is scheduled, 0 ahead: waits for 1: a
        explain r/g
            r/g is scheduled, 0 ahead: waits for 3: x y z
        finish r/a ok
            r/a succeeded #1 (done)
            r/x queued #0 (released)
            r/z queued #0 (released)
            r/x started #1
            r/z started #1
        finish r/x ok
            r/x succeeded #1 (done)
            r/y queued #0 (released)
            r/y started #1
        finish r/z ok
            r/z succeeded #1 (done)
        explain r/g
            r/g is scheduled, 0 ahead: waits for 1: y
        explain r/b
            r/b is scheduled, 0 ahead: waits for 1: g
        finish r/y ok
            r/y succeeded #1 (done)
            r/g succeeded #0 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 5 attempts
    "#]]);
}

#[test]
fn defect_15_groups_may_be_in_groups() {
    check(expect![[r#"
        submitrun r a g<a h x b<g group=g:h;h:x
            r submitted
            r started
            r/a started #1
        finish r/a ok
            r/a succeeded #1 (done)
            r/x queued #0 (released)
            r/x started #1
        finish r/x ok
            r/x succeeded #1 (done)
            r/h succeeded #0 (done)
            r/g succeeded #0 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
    "#]]);
}

#[test]
fn defect_15_an_invalid_group_is_rejected_with_a_reason() {
    check(expect![[r#"
        submitrun r a group=a:b
            rejected: invalid: node "a": group: no node is in it; name it in the `within` of others
        submitrun r g x h<x group=g:x;x:h
            rejected: invalid: node "x": depends_on leads back to itself (x -> h -> x); take one of these dependencies away
        submitrun r g h x group=g:h,x;h:g
            rejected: invalid: node "g": within: the group is in itself; take one of these out
        submitrun r g x<b b<g group=g:x
            rejected: invalid: node "g": depends_on leads back to itself (g -> x -> b -> g); take one of these dependencies away
        submitrun r h m1 x chain=h:m1 group=m1:x
            rejected: invalid: node "m1": group: a middleware cannot be one
        submitrun r h m1 g y chain=h:m1 group=g:h,y
            rejected: invalid: node "m1": within: a middleware is in the same group as its host
    "#]]);
}

#[test]
fn defect_15_a_group_that_is_canceled_takes_its_nodes_along() {
    check(expect![[r#"
        submitrun r g x y<x b<g c group=g:x,y failure=continue
            r submitted
            r started
            r/x started #1
            r/c started #1
        cancel r/g
            was scheduled
            r/g canceled #0 (requested)
            r/b canceled #0 (upstream_failed)
            r/x canceled #1 (upstream_failed)
            r/y canceled #0 (upstream_failed)
            stop r/x
        finish r/c ok
            r/c succeeded #1 (done)
            r succeeded
        submitrun s g x y<x z b<g c group=g:x,y,z failure=continue
            s submitted
            s started
            s/x started #1
            s/z started #1
            s/c started #1
        finish s/x permanent
            s/x failed #1 (permanent)
            s/g canceled #0 (upstream_failed)
            s/y canceled #0 (upstream_failed)
            s/b canceled #0 (upstream_failed)
            s/z canceled #1 (upstream_failed)
            stop s/z
        finish s/c ok
            s/c succeeded #1 (done)
            s failed
        submitrun t g x y b<g group=g:x,y
            t submitted
            t started
            t/x started #1
            t/y started #1
        finish t/x permanent
            t/x failed #1 (permanent)
            t/g canceled #0 (run_failed)
            t/y canceled #1 (run_failed)
            t/b canceled #0 (run_failed)
            t failed
            stop t/y
    "#]]);
}

/// T5 and T7: a group behind a chain starts when it is called, its end is the answer, and meanwhile it is not ready.
#[test]
fn defect_15_t5_t7_a_group_behind_a_chain_starts_when_it_is_called() {
    check(expect![[r#"
        submitrun r a g<a m1 x y<x b<g chain=g:m1 group=g:x,y
            r submitted
            r started
            r/a started #1
        finish r/a ok
            r/a succeeded #1 (done)
            r/m1 queued #0 (released)
            r/m1 started #1
        explain r/x
            r/x is scheduled, 0 ahead: waits for 1: g
        next r/m1 q1
            r/x queued #0 (released)
            r/x started #1
        next r/m1 q2
            next_target_not_ready (target node not ready)
        finish r/x ok
            r/x succeeded #1 (done)
            r/y queued #0 (released)
            r/y started #1
        next r/m1 q3
            next_target_not_ready (target node not ready)
        finish r/y ok
            r/y succeeded #1 (done)
            answer r/m1 q1: done with nothing
        next r/m1 q1
            done with nothing
        next r/m1 q4
            next_target_not_ready (target node not ready)
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/g succeeded #0 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        showrun r
            r is succeeded, 5 attempts
    "#]]);
}

#[test]
fn defect_15_a_group_that_is_never_called_is_skipped_and_one_whose_node_fails_says_so() {
    check(expect![[r#"
        submitrun r g m1 x y<x b<g chain=g:m1 group=g:x,y
            r submitted
            r started
            r/m1 started #1
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/x succeeded #0 (skipped)
            r/y succeeded #0 (skipped)
            r/g succeeded #0 (skipped)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        submitrun s g m1 x y<x b<g chain=g:m1 group=g:x,y failure=continue
            s submitted
            s started
            s/m1 started #1
        next s/m1 q1
            s/x queued #0 (released)
            s/x started #1
        finish s/x permanent
            s/x failed #1 (permanent)
            s/y canceled #0 (upstream_failed)
            s/g canceled #0 (upstream_failed)
            s/b canceled #0 (upstream_failed)
            answer s/m1 q1: next_failed (target node failed)
        finish s/m1 ok
            s/m1 succeeded #1 (done)
            s failed
        submitrun t g m1 x y<x b<g chain=g:m1 group=g:x,y
            t submitted
            t started
            t/m1 started #1
        next t/m1 q1
            t/x queued #0 (released)
            t/x started #1
        finish t/m1 ok
            t/m1 succeeded #1 (done)
            t/x canceled #1 (upstream_failed)
            t/y succeeded #0 (skipped)
            t/g succeeded #0 (done)
            t/b queued #0 (released)
            t/b started #1
            stop t/x
        finish t/x ok
            stale
            t/x released #1
        finish t/b ok
            t/b succeeded #1 (done)
            t succeeded
    "#]]);
}

#[test]
fn defect_15_groups_outlive_a_restart() {
    check(expect![[r#"
        submitrun r g x y<x b<g group=g:x,y
            r submitted
            r started
            r/x started #1
        finish r/x ok
            r/x succeeded #1 (done)
            r/y queued #0 (released)
            r/y started #1
        rebuild
        explain r/g
            r/g is scheduled, 0 ahead: waits for 1: y
        finish r/y ok
            r/y succeeded #1 (done)
            r/g succeeded #0 (done)
            r/b queued #0 (released)
            r/b started #1
        finish r/b ok
            r/b succeeded #1 (done)
            r succeeded
        submitrun s g m1 x y<x b<g chain=g:m1 group=g:x,y
            s submitted
            s started
            s/m1 started #1
        rebuild
        explain s/x
            s/x is scheduled, 0 ahead: waits for 1: g
        next s/m1 q1
            s/x queued #0 (released)
            s/x started #1
        finish s/x ok
            s/x succeeded #1 (done)
            s/y queued #0 (released)
            s/y started #1
        rebuild
        explain s/y
            s/y is running, 0 ahead
        finish s/y ok
            s/y succeeded #1 (done)
            answer s/m1 q1: done with nothing
        finish s/m1 ok
            s/m1 succeeded #1 (done)
            s/g succeeded #0 (done)
            s/b queued #0 (released)
            s/b started #1
        finish s/b ok
            s/b succeeded #1 (done)
            s succeeded
    "#]]);
}

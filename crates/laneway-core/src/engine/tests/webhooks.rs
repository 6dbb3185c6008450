//! Webhook deliveries: one for each end with a callback, tried until it is answered or given up.

use crate::engine::tests::scenario::{Scenario, check};
use crate::{Callback, DeliveryState, Name};
use expect_test::expect;

#[test]
fn pt_w10_pt_w11_every_end_with_a_callback_is_delivered_and_no_other() {
    check(expect![[r#"
        submit a1 callback=h | submit a2 | submit a3 callback=h retries=0 | submit a4 callback=h after=60s
            a1 started #1
            a2 started #1
            a3 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
        finish a2 ok
            a2 succeeded #1 (done)
        finish a3 fail
            a3 failed #1 (exhausted)
            deliver a3 try 1
        cancel a4
            was scheduled
            a4 canceled #0 (requested)
            deliver a4 try 1
    "#]]);
}

#[test]
fn x2_canceling_a_running_job_is_delivered_once_and_counted_once() {
    check(expect![[r#"
        submit a1 callback=h
            a1 started #1
        cancel a1
            was running
            a1 canceled #1 (requested)
            stop a1
            deliver a1 try 1
        finish a1 ok
            stale
            a1 released #1
        tried a1 200
        counts main
            main: 0 wait, 0 open; submitted 1 rejected 0 succeeded 0 failed 0 canceled 1 expired 0; dispatched 1 after 0 ms, 1 attempts of 0 ms
            A: 0 wait, 0 open; submitted 1 rejected 0 succeeded 0 failed 0 canceled 1 expired 0; dispatched 1 after 0 ms, 1 attempts of 0 ms
    "#]]);
}

#[test]
fn x3_an_expired_job_is_delivered_once_and_nothing_in_flight_changes() {
    check(expect![[r#"
        given lane main running=1
        submit a1 callback=h | submit a2 callback=h deadline=5s
            a1 started #1
        wait 6s
            a2 failed #0 (expired)
            deliver a2 try 1
        tried a2 200
        counts main
            main: 0 wait, 1 open; submitted 2 rejected 0 succeeded 0 failed 1 canceled 0 expired 1; dispatched 1 after 0 ms, 0 attempts of 0 ms
            A: 0 wait, 1 open; submitted 2 rejected 0 succeeded 0 failed 1 canceled 0 expired 1; dispatched 1 after 0 ms, 0 attempts of 0 ms
    "#]]);
}

#[test]
fn a_rejected_job_has_no_delivery() {
    check(expect![[r#"
        given lane main running=0 queued=0
        submit a1 callback=h record=yes
            rejected: queue_full: the queue is full (lane: queued_max): 0 of 0 jobs wait; submit again later
            a1 rejected #0 (queue_full)
        tick
    "#]]);
}

#[test]
fn pt_w7_pt_w9_a_receiver_that_fails_is_tried_again_with_growing_waits() {
    let mut scenario = Scenario::new();
    scenario.play("submit a1 callback=h");
    assert_eq!(scenario.play("finish a1 ok"), ["a1 succeeded #1 (done)", "deliver a1 try 1"]);
    // The longest each wait can become, just short of it, and over it.
    let waits = [(1, "500"), (5, "down"), (30, "307"), (120, "404"), (600, "503"), (3_600, "500")];
    for (number, (wait, answer)) in (1..).zip(waits) {
        if number > 1 {
            assert_eq!(scenario.play(&format!("wait {}s", wait * 8 / 10 - 1)), [""; 0], "try {number}");
            let effects = scenario.play(&format!("wait {}s", wait * 4 / 10 + 2));
            assert_eq!(effects, [format!("deliver a1 try {number}")]);
        }
        scenario.play(&format!("tried a1 {answer}"));
    }
    let row = scenario.delivery("a1");
    assert_eq!((row.state, row.tries, row.last_status), (DeliveryState::Failed, 6, Some(500)));
    assert_eq!(row.last_error.as_deref(), Some("the receiver answered 500"));
    assert_eq!(scenario.play("wait 7200s"), [""; 0]);
}

#[test]
fn a_receiver_that_is_gone_and_an_address_that_is_not_allowed_are_given_up_at_once() {
    let mut scenario = Scenario::new();
    for (name, answer) in [("a1", "410"), ("a2", "forbidden")] {
        scenario.play(&format!("submit {name} callback=h"));
        scenario.play(&format!("finish {name} ok"));
        scenario.play(&format!("tried {name} {answer}"));
        let row = scenario.delivery(name);
        assert_eq!((row.state, row.tries, row.next_at), (DeliveryState::Failed, 1, None));
    }
    assert_eq!(scenario.play("wait 7200s"), [""; 0]);
}

#[test]
fn a_late_or_doubled_report_of_a_try_changes_nothing() {
    check(expect![[r#"
        submit a1 callback=h
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
        tried a1 500
        tried a1 200
            stale
        wait 7s
            deliver a1 try 2
        tried a1 200
        tried a1 200
            stale
    "#]]);
}

#[test]
fn a_delivery_that_waits_at_a_crash_waits_after_it() {
    check(expect![[r#"
        submit a1 callback=h | submit a2 callback=h | submit a3 callback=h
            a1 started #1
            a2 started #1
            a3 started #1
        finish a1 ok | finish a2 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
            a2 succeeded #1 (done)
            deliver a2 try 1
        tried a1 500
        crash
            a3 queued #1 (lost)
            a3 started #2
            deliver a2 try 1
        tried a2 200
        wait 7s
            deliver a1 try 2
        finish a3 ok
            a3 succeeded #2 (done)
            deliver a3 try 1
    "#]]);
}

#[test]
fn a_delivery_that_is_under_way_during_a_rebuild_is_not_sent_twice() {
    check(expect![[r#"
        submit a1 callback=h | submit a2 callback=h
            a1 started #1
            a2 started #1
        finish a1 ok | finish a2 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
            a2 succeeded #1 (done)
            deliver a2 try 1
        tried a2 500
        rebuild
        tried a1 200
        wait 7s
            deliver a2 try 2
    "#]]);
}

#[test]
fn a_delivery_is_sent_again_by_hand_by_its_owner() {
    check(expect![[r#"
        submit a1 callback=h tenant=t1
            a1 started #1
        finish a1 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
        redeliver a1 tenant=t1
        tried a1 200
        redeliver a1 tenant=t2
            not found
        redeliver a1 tenant=t1
            call.done
            deliver a1 try 2
        tried a1 500
        redeliver a1
            call.done
            deliver a1 try 3
        tried a1 200
        tried a1 200
            stale
    "#]]);
}

#[test]
fn open_deliveries_are_bounded_and_those_beyond_the_bound_are_dropped() {
    check(expect![[r#"
        given server webhooks_open=1 webhooks_pending=3
        submit a1 callback=h | submit a2 callback=h | submit a3 callback=h
            a1 started #1
            a2 started #1
            a3 started #1
        finish a1 ok | finish a2 ok | finish a3 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
            a2 succeeded #1 (done)
            a3 succeeded #1 (done)
        tried a1 200
            deliver a2 try 1
        redeliver a3
            call.done
    "#]]);
    let mut scenario = Scenario::new();
    for line in ["server webhooks_pending=0", "submit a1 callback=h", "finish a1 ok"] {
        scenario.play(line);
    }
    let row = scenario.delivery("a1");
    assert_eq!((row.state, row.ended_at.is_some()), (DeliveryState::Dropped, true));
}

/// A tenant that fills the queue of deliveries must not drop those of others.
#[test]
fn defect_11_waiting_deliveries_of_two_tenants_leave_some_for_a_third() {
    let mut scenario = Scenario::new();
    scenario.play("server webhooks_open=1 webhooks_pending=32");
    let mut waiting = |tenant: &str| {
        let owed = (0..40).filter(|number| {
            let name = format!("{tenant}{number}");
            scenario.play(&format!("submit {name} callback=h tenant={tenant}"));
            scenario.play(&format!("finish {name} ok"));
            scenario.delivery(&name).state == DeliveryState::Waiting
        });
        owed.count()
    };
    assert_eq!([waiting("a"), waiting("b"), waiting("c")], [28, 2, 1]);
}

#[test]
fn a_receiver_that_does_not_answer_blocks_no_other_receiver() {
    check(expect![[r#"
        given server webhooks_open=6 webhooks_host=2
        submit s1 callback=slow | submit s2 callback=slow | submit s3 callback=slow | submit b1 callback=b | submit b2 callback=b
            s1 started #1
            s2 started #1
            s3 started #1
            b1 started #1
            b2 started #1
        finish s1 ok | finish s2 ok | finish s3 ok | finish b1 ok | finish b2 ok
            s1 succeeded #1 (done)
            deliver s1 try 1
            s2 succeeded #1 (done)
            deliver s2 try 1
            s3 succeeded #1 (done)
            b1 succeeded #1 (done)
            deliver b1 try 1
            b2 succeeded #1 (done)
            deliver b2 try 1
        tried b1 200
        tried b2 200
        tried s1 down
            deliver s3 try 1
    "#]]);
}

#[test]
fn defect_11_slow_receivers_of_one_tenant_leave_tries_for_others() {
    let mut scenario = Scenario::new();
    scenario.play("server webhooks_open=8 webhooks_host=2");
    for name in ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"] {
        // Each receiver is slow: none of these tries ends.
        scenario.play(&format!("submit {name} callback={name} tenant=slow"));
    }
    scenario.play("submit b1 callback=h tenant=t2");
    scenario.play("submit b2 callback=h tenant=t2");
    let slow: Vec<String> = (1..=8)
        .flat_map(|n| scenario.play(&format!("finish a{n} ok")))
        .filter(|line| line.contains("deliver"))
        .collect();
    assert_eq!(slow.len(), 7, "one tenant alone has all tries but the reserve: {slow:?}");
    assert_eq!(scenario.play("finish b1 ok"), ["b1 succeeded #1 (done)", "deliver b1 try 1"]);
    assert_eq!(scenario.play("finish b2 ok"), ["b2 succeeded #1 (done)"]);
    assert_eq!(scenario.play("tried a1 200"), Vec::<String>::new(), "the reserve is free again first");
    assert_eq!(
        scenario.play("tried a2 200"),
        ["deliver b2 try 1"],
        "then the tenant with the fewest is next"
    );
    assert_eq!(
        scenario.play("tried b1 200"),
        ["deliver a8 try 1"],
        "no other tenant waits: it is lent again"
    );
}

#[test]
fn the_fair_queue_alternates_between_tenants_and_hosts() {
    check(expect![[r#"
        given server webhooks_open=1 webhooks_host=1
        submit a1 callback=h | submit a2 callback=h | submit a3 callback=g | submit b1 callback=h tenant=t2
            a1 started #1
            a2 started #1
            a3 started #1
            b1 started #1
        finish a1 ok | finish a2 ok | finish a3 ok | finish b1 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
            a2 succeeded #1 (done)
            a3 succeeded #1 (done)
            b1 succeeded #1 (done)
        tried a1 200
            deliver a3 try 1
        tried a3 200
            deliver b1 try 1
        tried b1 200
            deliver a2 try 1
    "#]]);
}

#[test]
fn a_raised_limit_sends_waiting_deliveries_at_once() {
    check(expect![[r#"
        given server webhooks_host=1
        submit a1 callback=h | submit a2 callback=h | submit a3 callback=h
            a1 started #1
            a2 started #1
            a3 started #1
        finish a1 ok | finish a2 ok | finish a3 ok
            a1 succeeded #1 (done)
            deliver a1 try 1
            a2 succeeded #1 (done)
            a3 succeeded #1 (done)
        server webhooks_host=2
            config.changed
            deliver a2 try 1
        rebuild
        tried a1 200
            deliver a3 try 1
    "#]]);
}

#[test]
fn a_tenant_with_too_many_deliveries_loses_its_own_only() {
    let mut scenario = Scenario::new();
    for line in [
        "server webhooks_tenant=1",
        "submit a1 callback=h tenant=t1 | submit a2 callback=h tenant=t1",
        "submit b1 callback=h tenant=t2",
        "finish a1 ok | finish a2 ok | finish b1 ok",
    ] {
        line.split('|').for_each(|command| drop(scenario.play(command.trim())));
    }
    let state = |name: &str| scenario.delivery(name).state;
    assert_eq!(["a1", "a2", "b1"].map(state), {
        use DeliveryState::{Dropped, Waiting};
        [Waiting, Dropped, Waiting]
    });
    let why = scenario.delivery("a2").last_error.clone().unwrap_or_default();
    assert!(why.contains("webhooks.pending_per_tenant_max"), "{why}");
    let effects = scenario.play("redeliver a2");
    assert!(effects[0].contains("webhooks.pending_per_tenant_max"), "{effects:?}");
    scenario.play("tried a1 200");
    assert_eq!(scenario.play("redeliver a2"), ["call.done", "deliver a2 try 1"]);
}

#[test]
fn receivers_are_distinguished_by_host_and_port() {
    let same = [
        "https://hooks.example/a",
        "https://HOOKS.example:443?b",
        "https://hooks.example.#c",
        "https://user@hooks.example/",
    ];
    let host = |url: &str| Callback { url: url.into(), format: Name::fixed("laneway") }.host();
    for url in same {
        assert_eq!(host(url), "hooks.example:443", "{url}");
    }
    assert_eq!(host("http://hooks.example/"), "hooks.example:80");
    assert_eq!(host("http://hooks.example:8080/x:9"), "hooks.example:8080");
    assert_eq!(host("http://[::1]/"), "[::1]:80");
    assert_eq!(host("http://[::1]:90/"), "[::1]:90");
}

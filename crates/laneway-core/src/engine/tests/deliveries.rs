//! Who is owed the news of an end: one delivery for each, tried until it is answered or given up.

use super::check;
use super::story::Story;
use crate::{Callback, DeliveryState, Name};
use expect_test::expect;

#[test]
fn pt_w10_pt_w11_every_end_with_a_callback_is_told_and_no_other() {
    check(
        "
        submit a1 callback=h | submit a2 | submit a3 callback=h retries=0 | submit a4 callback=h after=60s
        finish a1 ok
        finish a2 ok
        finish a3 fail
        cancel a4
        ",
        expect![[r#"
            submit a1 callback=h | submit a2 | submit a3 callback=h retries=0 | submit a4 callback=h after=60s
                a1 started #1
                a2 started #1
                a3 started #1
            finish a1 ok
                a1 succeeded #1 (done)
                tell a1 try 1
            finish a2 ok
                a2 succeeded #1 (done)
            finish a3 fail
                a3 failed #1 (exhausted)
                tell a3 try 1
            cancel a4
                was scheduled
                a4 canceled #0 (requested)
                tell a4 try 1
        "#]],
    );
}

#[test]
fn x2_canceling_a_running_job_is_told_once_and_counted_once() {
    check(
        "
        submit a1 callback=h
        cancel a1
        finish a1 ok
        tried a1 200
        counts main
        ",
        expect![[r#"
            submit a1 callback=h
                a1 started #1
            cancel a1
                was running
                a1 canceled #1 (requested)
                stop a1
                tell a1 try 1
            finish a1 ok
                stale
                a1 released #1
            tried a1 200
            counts main
                main: 0 wait, 0 open; submitted 1 rejected 0 succeeded 0 failed 0 canceled 1 expired 0; dispatched 1 after 0 ms, 1 runs of 0 ms
                A: 0 wait, 0 open; submitted 1 rejected 0 succeeded 0 failed 0 canceled 1 expired 0; dispatched 1 after 0 ms, 1 runs of 0 ms
        "#]],
    );
}

#[test]
fn x3_an_expired_job_is_told_once_and_nothing_in_flight_changes() {
    check(
        "
        lane main running=1
        submit a1 callback=h | submit a2 callback=h deadline=5s
        wait 6s
        tried a2 200
        counts main
        ",
        expect![[r#"
            lane main running=1
                config.changed
            submit a1 callback=h | submit a2 callback=h deadline=5s
                a1 started #1
            wait 6s
                a2 failed #0 (expired)
                tell a2 try 1
            tried a2 200
            counts main
                main: 0 wait, 1 open; submitted 2 rejected 0 succeeded 0 failed 1 canceled 0 expired 1; dispatched 1 after 0 ms, 0 runs of 0 ms
                A: 0 wait, 1 open; submitted 2 rejected 0 succeeded 0 failed 1 canceled 0 expired 1; dispatched 1 after 0 ms, 0 runs of 0 ms
        "#]],
    );
}

#[test]
fn a_rejected_job_is_owed_nothing() {
    check(
        "
        lane main running=0 queued=0
        submit a1 callback=h record=yes
        tick
        ",
        expect![[r#"
            lane main running=0 queued=0
                config.changed
            submit a1 callback=h record=yes
                rejected: queue_full: the queue is full (lane: queued_max): 0 of 0 jobs wait; submit again later
                a1 rejected #0 (queue_full)
            tick
        "#]],
    );
}

#[test]
fn pt_w7_pt_w9_a_receiver_that_fails_is_tried_again_with_growing_waits() {
    let mut story = Story::new();
    story.play("submit a1 callback=h");
    assert_eq!(story.play("finish a1 ok"), ["a1 succeeded #1 (done)", "tell a1 try 1"]);
    // The longest each wait can become, just short of it, and over it.
    let waits = [(1, "500"), (5, "down"), (30, "307"), (120, "404"), (600, "503"), (3_600, "500")];
    for (number, (wait, answer)) in (1..).zip(waits) {
        if number > 1 {
            assert_eq!(story.play(&format!("wait {}s", wait * 8 / 10 - 1)), [""; 0], "try {number}");
            let said = story.play(&format!("wait {}s", wait * 4 / 10 + 2));
            assert_eq!(said, [format!("tell a1 try {number}")]);
        }
        story.play(&format!("tried a1 {answer}"));
    }
    let row = story.delivery("a1");
    assert_eq!((row.state, row.tries, row.last_status), (DeliveryState::Failed, 6, Some(500)));
    assert_eq!(row.last_error.as_deref(), Some("the receiver answered 500"));
    assert_eq!(story.play("wait 7200s"), [""; 0]);
}

#[test]
fn a_receiver_that_is_gone_and_an_address_that_is_not_allowed_are_given_up_at_once() {
    let mut story = Story::new();
    for (name, answer) in [("a1", "410"), ("a2", "forbidden")] {
        story.play(&format!("submit {name} callback=h"));
        story.play(&format!("finish {name} ok"));
        story.play(&format!("tried {name} {answer}"));
        let row = story.delivery(name);
        assert_eq!((row.state, row.tries, row.next_at), (DeliveryState::Failed, 1, None));
    }
    assert_eq!(story.play("wait 7200s"), [""; 0]);
}

#[test]
fn a_late_or_doubled_word_about_a_try_changes_nothing() {
    check(
        "
        submit a1 callback=h
        finish a1 ok
        tried a1 500
        tried a1 200
        wait 7s
        tried a1 200
        tried a1 200
        ",
        expect![[r#"
            submit a1 callback=h
                a1 started #1
            finish a1 ok
                a1 succeeded #1 (done)
                tell a1 try 1
            tried a1 500
            tried a1 200
                stale
            wait 7s
                tell a1 try 2
            tried a1 200
            tried a1 200
                stale
        "#]],
    );
}

#[test]
fn what_was_owed_at_a_crash_is_owed_after_it() {
    check(
        "
        submit a1 callback=h | submit a2 callback=h | submit a3 callback=h
        finish a1 ok | finish a2 ok
        tried a1 500
        crash
        tried a2 200
        wait 7s
        finish a3 ok
        ",
        expect![[r#"
            submit a1 callback=h | submit a2 callback=h | submit a3 callback=h
                a1 started #1
                a2 started #1
                a3 started #1
            finish a1 ok | finish a2 ok
                a1 succeeded #1 (done)
                tell a1 try 1
                a2 succeeded #1 (done)
                tell a2 try 1
            tried a1 500
            crash
                a3 queued #1 (lost)
                a3 started #2
                tell a2 try 1
            tried a2 200
            wait 7s
                tell a1 try 2
            finish a3 ok
                a3 succeeded #2 (done)
                tell a3 try 1
        "#]],
    );
}

#[test]
fn what_is_under_way_when_memory_is_thrown_away_is_not_told_twice() {
    check(
        "
        submit a1 callback=h | submit a2 callback=h
        finish a1 ok | finish a2 ok
        tried a2 500
        rebuild
        tried a1 200
        wait 7s
        ",
        expect![[r#"
            submit a1 callback=h | submit a2 callback=h
                a1 started #1
                a2 started #1
            finish a1 ok | finish a2 ok
                a1 succeeded #1 (done)
                tell a1 try 1
                a2 succeeded #1 (done)
                tell a2 try 1
            tried a2 500
            rebuild
            tried a1 200
            wait 7s
                tell a2 try 2
        "#]],
    );
}

#[test]
fn a_delivery_is_sent_again_by_hand_by_its_owner() {
    check(
        "
        submit a1 callback=h tenant=t1
        finish a1 ok
        redeliver a1 tenant=t1
        tried a1 200
        redeliver a1 tenant=t2
        redeliver a1 tenant=t1
        tried a1 500
        redeliver a1
        tried a1 200
        tried a1 200
        ",
        expect![[r#"
            submit a1 callback=h tenant=t1
                a1 started #1
            finish a1 ok
                a1 succeeded #1 (done)
                tell a1 try 1
            redeliver a1 tenant=t1
            tried a1 200
            redeliver a1 tenant=t2
                not found
            redeliver a1 tenant=t1
                call.done
                tell a1 try 2
            tried a1 500
            redeliver a1
                call.done
                tell a1 try 3
            tried a1 200
            tried a1 200
                stale
        "#]],
    );
}

#[test]
fn only_so_many_are_under_way_and_beyond_the_bound_the_news_is_dropped() {
    check(
        "
        server news_open=1 news_pending=2
        submit a1 callback=h | submit a2 callback=h | submit a3 callback=h
        finish a1 ok | finish a2 ok | finish a3 ok
        tried a1 200
        redeliver a3
        ",
        expect![[r#"
            server news_open=1 news_pending=2
                config.changed
            submit a1 callback=h | submit a2 callback=h | submit a3 callback=h
                a1 started #1
                a2 started #1
                a3 started #1
            finish a1 ok | finish a2 ok | finish a3 ok
                a1 succeeded #1 (done)
                tell a1 try 1
                a2 succeeded #1 (done)
                a3 succeeded #1 (done)
            tried a1 200
                tell a2 try 1
            redeliver a3
                call.done
        "#]],
    );
    let mut story = Story::new();
    for line in ["server news_pending=0", "submit a1 callback=h", "finish a1 ok"] {
        story.play(line);
    }
    let row = story.delivery("a1");
    assert_eq!((row.state, row.ended_at.is_some()), (DeliveryState::Dropped, true));
}

#[test]
fn a_receiver_that_does_not_answer_keeps_nobody_elses_news() {
    check(
        "
        server news_open=6 news_host=2
        submit s1 callback=slow | submit s2 callback=slow | submit s3 callback=slow | submit b1 callback=b | submit b2 callback=b
        finish s1 ok | finish s2 ok | finish s3 ok | finish b1 ok | finish b2 ok
        tried b1 200
        tried b2 200
        tried s1 down
        ",
        expect![[r#"
            server news_open=6 news_host=2
                config.changed
            submit s1 callback=slow | submit s2 callback=slow | submit s3 callback=slow | submit b1 callback=b | submit b2 callback=b
                s1 started #1
                s2 started #1
                s3 started #1
                b1 started #1
                b2 started #1
            finish s1 ok | finish s2 ok | finish s3 ok | finish b1 ok | finish b2 ok
                s1 succeeded #1 (done)
                tell s1 try 1
                s2 succeeded #1 (done)
                tell s2 try 1
                s3 succeeded #1 (done)
                b1 succeeded #1 (done)
                tell b1 try 1
                b2 succeeded #1 (done)
            tried b1 200
                tell b2 try 1
            tried b2 200
            tried s1 down
                tell s3 try 1
        "#]],
    );
}

#[test]
fn defect_11_slow_receivers_of_one_tenant_leave_tries_for_others() {
    let mut story = Story::new();
    story.play("server news_open=8 news_host=2");
    for name in ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"] {
        // Each receiver is slow: none of these tries ends.
        story.play(&format!("submit {name} callback={name} tenant=slow"));
    }
    story.play("submit b1 callback=h tenant=t2");
    let slow: Vec<String> = (1..=8)
        .flat_map(|n| story.play(&format!("finish a{n} ok")))
        .filter(|line| line.contains("tell"))
        .collect();
    assert_eq!(slow.len(), 4, "one tenant alone has half of the tries: {slow:?}");
    assert_eq!(story.play("finish b1 ok"), ["b1 succeeded #1 (done)", "tell b1 try 1"]);
    assert_eq!(
        story.play("tried b1 200"),
        Vec::<String>::new(),
        "what is free stays free for the next tenant"
    );
    assert_eq!(story.play("tried a1 200"), ["tell a5 try 1"]);
}

#[test]
fn lines_take_turns_and_a_tenant_has_its_own() {
    check(
        "
        server news_open=1 news_host=1
        submit a1 callback=h | submit a2 callback=h | submit a3 callback=g | submit b1 callback=h tenant=t2
        finish a1 ok | finish a2 ok | finish a3 ok | finish b1 ok
        tried a1 200
        tried a3 200
        tried b1 200
        ",
        expect![[r#"
            server news_open=1 news_host=1
                config.changed
            submit a1 callback=h | submit a2 callback=h | submit a3 callback=g | submit b1 callback=h tenant=t2
                a1 started #1
                a2 started #1
                a3 started #1
                b1 started #1
            finish a1 ok | finish a2 ok | finish a3 ok | finish b1 ok
                a1 succeeded #1 (done)
                tell a1 try 1
                a2 succeeded #1 (done)
                a3 succeeded #1 (done)
                b1 succeeded #1 (done)
            tried a1 200
                tell a3 try 1
            tried a3 200
                tell b1 try 1
            tried b1 200
                tell a2 try 1
        "#]],
    );
}

#[test]
fn a_raised_limit_lets_a_line_move_at_once() {
    check(
        "
        server news_host=1
        submit a1 callback=h | submit a2 callback=h | submit a3 callback=h
        finish a1 ok | finish a2 ok | finish a3 ok
        server news_host=2
        rebuild
        tried a1 200
        ",
        expect![[r#"
            server news_host=1
                config.changed
            submit a1 callback=h | submit a2 callback=h | submit a3 callback=h
                a1 started #1
                a2 started #1
                a3 started #1
            finish a1 ok | finish a2 ok | finish a3 ok
                a1 succeeded #1 (done)
                tell a1 try 1
                a2 succeeded #1 (done)
                a3 succeeded #1 (done)
            server news_host=2
                config.changed
                tell a2 try 1
            rebuild
            tried a1 200
                tell a3 try 1
        "#]],
    );
}

#[test]
fn a_tenant_with_too_many_deliveries_loses_its_own_only() {
    let mut story = Story::new();
    for line in [
        "server news_tenant=1",
        "submit a1 callback=h tenant=t1 | submit a2 callback=h tenant=t1",
        "submit b1 callback=h tenant=t2",
        "finish a1 ok | finish a2 ok | finish b1 ok",
    ] {
        line.split('|').for_each(|command| drop(story.play(command.trim())));
    }
    let state = |name: &str| story.delivery(name).state;
    assert_eq!(["a1", "a2", "b1"].map(state), {
        use DeliveryState::{Dropped, Waiting};
        [Waiting, Dropped, Waiting]
    });
    let why = story.delivery("a2").last_error.clone().unwrap_or_default();
    assert!(why.contains("webhooks.pending_per_tenant_max"), "{why}");
    let said = story.play("redeliver a2");
    assert!(said[0].contains("webhooks.pending_per_tenant_max"), "{said:?}");
    story.play("tried a1 200");
    assert_eq!(story.play("redeliver a2"), ["call.done", "tell a2 try 1"]);
}

#[test]
fn receivers_are_told_apart_by_host_and_port() {
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

//! Counters by lane and agent: every event counts, and every end counts once.

use std::sync::Arc;

use super::scenario::{START, Scenario, check, submission};
use crate::command::AdminCommand;
use crate::engine::{Counts, Engine};
use crate::{Command, Effects, ExecutorMode, ExecutorOffer, Name, Notice, Outcome, Settings};
use expect_test::expect;

#[test]
fn pt_m1_to_m6_each_event_counts_once_globally_and_for_its_agent() {
    check(expect![[r#"
        given lane main running=2 queued_per_agent=2
        submit a1 retries=0 | submit a2 | submit a3 | submit a4 | submit a5
            a1 started #1
            a2 started #1
            rejected: queue_full: the queue is full (agent in this lane: queued_per_agent_max): 2 of 2 jobs wait; submit again later
        finish a1 permanent
            a1 failed #1 (permanent)
            a3 started #1
        finish a2 ok
            a2 succeeded #1 (done)
            a4 started #1
        submit b1 agent=B deadline=5s
        cancel a3
            was running
            a3 canceled #1 (requested)
            stop a3
        wait 6s
            b1 failed #0 (expired)
        finish a3 canceled
            stale
            a3 released #1
        counts main
            main: 0 wait, 1 open; submitted 5 rejected 1 succeeded 1 failed 2 canceled 1 expired 1; dispatched 4 after 0 ms, 3 attempts of 6000 ms
            A: 0 wait, 1 open; submitted 4 rejected 1 succeeded 1 failed 1 canceled 1 expired 0; dispatched 4 after 0 ms, 3 attempts of 6000 ms
            B: 0 wait, 0 open; submitted 1 rejected 0 succeeded 0 failed 1 canceled 0 expired 1; dispatched 0 after 0 ms, 0 attempts of 0 ms
    "#]]);
}

#[test]
fn pt_m7_queue_waits_and_run_times_are_counted_apart() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2 | submit a3
            a1 started #1
        wait 100ms
        finish a1 ok
            a1 succeeded #1 (done)
            a2 started #1
        wait 200ms
        finish a2 ok
            a2 succeeded #1 (done)
            a3 started #1
        counts main
            main: 0 wait, 1 open; submitted 3 rejected 0 succeeded 2 failed 0 canceled 0 expired 0; dispatched 3 after 400 ms, 2 attempts of 300 ms
            A: 0 wait, 1 open; submitted 3 rejected 0 succeeded 2 failed 0 canceled 0 expired 0; dispatched 3 after 400 ms, 2 attempts of 300 ms
    "#]]);
}

#[test]
fn pt_m8_nothing_dispatched_is_nothing_counted() {
    check(expect![[r#"
        counts main
            main: 0 wait, 0 open; submitted 0 rejected 0 succeeded 0 failed 0 canceled 0 expired 0; dispatched 0 after 0 ms, 0 attempts of 0 ms
        submit a1 after=60s
        counts main
            main: 1 wait, 0 open; submitted 1 rejected 0 succeeded 0 failed 0 canceled 0 expired 0; dispatched 0 after 0 ms, 0 attempts of 0 ms
            A: 1 wait, 0 open; submitted 1 rejected 0 succeeded 0 failed 0 canceled 0 expired 0; dispatched 0 after 0 ms, 0 attempts of 0 ms
        wait 61s
            a1 queued #0 (due)
            a1 started #1
        counts main
            main: 0 wait, 1 open; submitted 1 rejected 0 succeeded 0 failed 0 canceled 0 expired 0; dispatched 1 after 1000 ms, 0 attempts of 0 ms
            A: 0 wait, 1 open; submitted 1 rejected 0 succeeded 0 failed 0 canceled 0 expired 0; dispatched 1 after 1000 ms, 0 attempts of 0 ms
    "#]]);
}

#[test]
fn pt_m10_pt_m11_submits_of_two_agents_add_up_and_a_retry_is_no_second_dispatch() {
    check(expect![[r#"
        batch a1 a2 a3 a4 a5
            a1 started #1
            a2 started #1
            a3 started #1
            a4 started #1
            a5 started #1
        batch b1 b2 b3 b4 b5 agent=B
            b1 started #1
            b2 started #1
            b3 started #1
            b4 started #1
            b5 started #1
        finish a1 fail | wait 2s | finish a1 ok
            a1 retrying #1 (retry)
            a1 queued #1 (due)
            a1 started #2
            a1 succeeded #2 (done)
        cancel b1 | finish b1 canceled
            was running
            b1 canceled #1 (requested)
            stop b1
            stale
            b1 released #1
        counts main
            main: 0 wait, 8 open; submitted 10 rejected 0 succeeded 1 failed 0 canceled 1 expired 0; dispatched 10 after 0 ms, 3 attempts of 2000 ms
            A: 0 wait, 4 open; submitted 5 rejected 0 succeeded 1 failed 0 canceled 0 expired 0; dispatched 5 after 0 ms, 2 attempts of 0 ms
            B: 0 wait, 4 open; submitted 5 rejected 0 succeeded 0 failed 0 canceled 1 expired 0; dispatched 5 after 0 ms, 1 attempts of 2000 ms
    "#]]);
}

#[test]
fn x1_canceling_a_queued_job_leaves_running_jobs_alone() {
    check(expect![[r#"
        given lane main running=1
        submit a1 | submit a2
            a1 started #1
        cancel a2
            was queued
            a2 canceled #0 (requested)
        counts main
            main: 0 wait, 1 open; submitted 2 rejected 0 succeeded 0 failed 0 canceled 1 expired 0; dispatched 1 after 0 ms, 0 attempts of 0 ms
            A: 0 wait, 1 open; submitted 2 rejected 0 succeeded 0 failed 0 canceled 1 expired 0; dispatched 1 after 0 ms, 0 attempts of 0 ms
        submit a3
        finish a1 ok
            a1 succeeded #1 (done)
            a3 started #1
        counts main
            main: 0 wait, 1 open; submitted 3 rejected 0 succeeded 1 failed 0 canceled 1 expired 0; dispatched 2 after 0 ms, 1 attempts of 0 ms
            A: 0 wait, 1 open; submitted 3 rejected 0 succeeded 1 failed 0 canceled 1 expired 0; dispatched 2 after 0 ms, 1 attempts of 0 ms
    "#]]);
}

#[test]
fn a_rejection_of_an_atomic_batch_and_of_an_unknown_agent_count_as_rejected() {
    check(expect![[r#"
        given lane main running=0 queued=1
        batch a1 a2 atomic
            a1 rejected: batch_rejected
            a2 rejected: queue_full
        submit a1
        submit s1 agent=newcomer record=yes
            rejected: queue_full: the queue is full (lane: queued_max): 1 of 1 jobs wait; submit again later
            s1 rejected #0 (queue_full)
        counts main
            main: 1 wait, 0 open; submitted 1 rejected 2 succeeded 0 failed 0 canceled 0 expired 0; dispatched 0 after 0 ms, 0 attempts of 0 ms
            A: 1 wait, 0 open; submitted 1 rejected 1 succeeded 0 failed 0 canceled 0 expired 0; dispatched 0 after 0 ms, 0 attempts of 0 ms
            newcomer: 0 wait, 0 open; submitted 0 rejected 1 succeeded 0 failed 0 canceled 0 expired 0; dispatched 0 after 0 ms, 0 attempts of 0 ms
    "#]]);
}

#[test]
fn agents_that_are_forgotten_stay_in_the_statistics_of_their_lane() {
    // Without a scenario: it recounts everything after every step, and there are many steps.
    let mut engine = Engine::new(Settings::default(), 7, START);
    let mut effects = Effects::default();
    let executor = ExecutorOffer {
        executor: Name::fixed("local"),
        mode: ExecutorMode::Attached,
        kinds: vec![Name::fixed("k")],
        slots: 10,
    };
    engine.apply(START, Command::Admin(AdminCommand::Offer(executor)), &mut effects);
    // More than the agents that are remembered without jobs, and more than are listed.
    let agents = 10_050;
    for number in 0..agents {
        effects.clear();
        let submission = submission(&format!("agent=a{number}"));
        engine.apply(START, Command::Submit(Arc::new(submission)), &mut effects);
        let offer = effects.notices.drain(..).find_map(|notice| match notice {
            Notice::Offer(offer) => Some(offer),
            _ => None,
        });
        let offer = offer.expect("it starts at once");
        engine.apply(START, Command::Finish(offer.fence, Outcome::Succeeded(None)), &mut effects);
    }
    let stats = engine.stats(None);
    let counts = stats.lanes[0].counts;
    assert_eq!((counts.submitted, counts.succeeded, counts.dispatched), (agents, agents, agents));
    assert_eq!(engine.stats(Some(&Name::fixed("default"))).lanes[0].counts, counts);
    assert_eq!(engine.stats(Some(&Name::fixed("other"))).lanes[0].counts, Counts::default());
    assert_eq!(stats.agents.len(), 1_000, "the list of agents is bounded");
    engine.check_invariants().expect("the engine agrees with itself");
}

#[test]
fn a_flood_of_unknown_agents_is_counted_in_bounded_memory_and_their_first_job_takes_their_count_along() {
    let mut scenario = Scenario::new();
    scenario.play("lane main running=0 queued=0");
    let unknown = 10_050;
    for number in 0..unknown {
        scenario.play(&format!("submit j agent=a{number}"));
    }
    scenario.play("lane main running=0 queued=1");
    scenario.play("submit j agent=a7");
    let effects = scenario.play("counts main");
    let lane = format!("main: 1 wait, 0 open; submitted 1 rejected {unknown} succeeded 0");
    assert!(effects[0].starts_with(&lane), "{}", effects[0]);
    let agent = effects.iter().find(|line| line.starts_with("a7:")).expect("it has a job, so it is listed");
    assert!(agent.starts_with("a7: 1 wait, 0 open; submitted 1 rejected 1 "), "{agent}");
}

//! Groups that are called: their nodes share the slot of the caller, in limits and on workers.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;

use crate::engine::random::rng::Rng;
use crate::engine::tests::scenario::{Scenario, check};

#[test]
fn defect_15_a_group_that_is_called_starts_in_the_slot_of_its_caller() {
    check(expect![[r#"
        given push worker w1
        submitrun r g m1 x y chain=g:m1 group=g:x,y kind=w
            r submitted
            r started
            r/m1 assigned #1
            offer r/m1#1 to c1
        submit other kind=w
        accept c1 r/m1
            r/m1 started #1
        next r/m1 q1
            r/x queued #0 (released)
            r/y queued #0 (released)
            r/x assigned #1
            offer r/x#2 to c1
        accept c1 r/x#2
            r/x started #1
        explain r/y
            r/y is queued, 0 ahead: 1 workers: 1 full, 0 draining, 0 unwell
        workers
            w1 c1 ready 2/1
        result c1 r/x#2 ok
            r/x succeeded #1 (done)
            r/y assigned #1
            offer r/y#3 to c1
        accept c1 r/y#3
            r/y started #1
        explain other
            other is queued, 0 ahead: 1 workers: 1 full, 0 draining, 0 unwell
        result c1 r/y#3 ok
            r/y succeeded #1 (done)
            answer r/m1 q1: done with nothing
        result c1 r/m1 ok
            r/m1 succeeded #1 (done)
            r/g succeeded #0 (done)
            r succeeded
            other assigned #1
            offer other#1 to c1
        workers
            w1 c1 ready 1/1
    "#]]);
}

#[test]
fn defect_15_one_node_of_a_called_group_at_a_time_shares_the_callers_slot() {
    check(expect![[r#"
        given lane main running=2
        submitrun r g m1 x y z chain=g:m1 group=g:x,y,z
            r submitted
            r started
            r/m1 started #1
        submit other
            other started #1
        next r/m1 q1
            r/x queued #0 (released)
            r/y queued #0 (released)
            r/z queued #0 (released)
            r/x started #1
        explain r/z
            r/z is queued, 1 ahead: lane main 2/2
        explain other
            other is running, 0 ahead
        finish r/x ok
            r/x succeeded #1 (done)
            r/y started #1
        finish r/y ok
            r/y succeeded #1 (done)
            r/z started #1
        finish r/z ok
            r/z succeeded #1 (done)
            answer r/m1 q1: done with nothing
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/g succeeded #0 (done)
            r succeeded
        finish other ok
            other succeeded #1 (done)
        lane main running=1
            config.changed
        submitrun s g m1 x chain=g:m1 group=g:x
            s submitted
            s started
            s/m1 started #1
        submit more
        next s/m1 q1
            s/x queued #0 (released)
            s/x started #1
        explain more
            more is queued, 0 ahead: lane main 1/1
        finish s/x ok
            s/x succeeded #1 (done)
            answer s/m1 q1: done with nothing
        finish s/m1 ok
            s/m1 succeeded #1 (done)
            s/g succeeded #0 (done)
            s succeeded
            more started #1
    "#]]);
}

#[test]
fn defect_15_groups_and_chains_in_a_called_group_share_its_callers_slot() {
    check(expect![[r#"
        given lane main running=1 | push worker w1
        submitrun r g m1 i x h m2 chain=g:m1;h:m2 group=g:i,h,m2;i:x kind=w
            r submitted
            r started
            r/m1 assigned #1
            offer r/m1#1 to c1
        accept c1 r/m1
            r/m1 started #1
        next r/m1 q1
            r/x queued #0 (released)
            r/m2 queued #0 (released)
            r/x assigned #1
            offer r/x#2 to c1
        accept c1 r/x#2
            r/x started #1
        explain r/m2
            r/m2 is queued, 0 ahead: lane main 1/1, 1 workers: 1 full, 0 draining, 0 unwell
        result c1 r/x#2 ok
            r/x succeeded #1 (done)
            r/i succeeded #0 (done)
            r/m2 assigned #1
            offer r/m2#3 to c1
        accept c1 r/m2#3
            r/m2 started #1
        next r/m2 q2
            r/h queued #0 (called)
            r/h assigned #1
            offer r/h#4 to c1
        accept c1 r/h#4
            r/h started #1
        workers
            w1 c1 ready 3/1
        rebuild
            lease 30 s
            worker.connected w1: registered over c1, 3 attempts rebound
            offer r/m1#1 to c1 again
            offer r/h#4 to c1 again
            offer r/m2#3 to c1 again
        workers
            w1 c1 ready 3/1
        result c1 r/h#4 ok
            r/h returned #1 (returned)
            answer r/m2 q2: done with nothing
        result c1 r/m2#3 ok
            r/m2 succeeded #1 (done)
            r/h succeeded #1 (done)
            answer r/m1 q1: done with nothing
        result c1 r/m1 ok
            r/m1 succeeded #1 (done)
            r/g succeeded #0 (done)
            r succeeded
        showrun r
            r is succeeded, 4 attempts
    "#]]);
}

#[test]
fn defect_15_a_shared_slot_of_a_group_outlives_a_restart_and_its_caller() {
    check(expect![[r#"
        given push worker w1 slots=2
        submitrun r g m1 x y chain=g:m1 group=g:x,y kind=w
            r submitted
            r started
            r/m1 assigned #1
            offer r/m1#1 to c1
        accept c1 r/m1
            r/m1 started #1
        next r/m1 q1
            r/x queued #0 (released)
            r/y queued #0 (released)
            r/x assigned #1
            r/y assigned #1
            offer r/x#2 to c1
            offer r/y#3 to c1
        accept c1 r/x#2
            r/x started #1
        accept c1 r/y#3
            r/y started #1
        workers
            w1 c1 ready 3/2
        rebuild
            lease 30 s
            worker.connected w1: registered over c1, 3 attempts rebound
            offer r/m1#1 to c1 again
            offer r/x#2 to c1 again
            offer r/y#3 to c1 again
        workers
            w1 c1 ready 3/2
        submit other kind=w
        explain other
            other is queued, 0 ahead: 1 workers: 1 full, 0 draining, 0 unwell
        result c1 r/m1 fail
            r/m1 retrying #1 (retry)
        explain other
            other is queued, 0 ahead: 1 workers: 1 full, 0 draining, 0 unwell
        result c1 r/x#2 ok
            r/x succeeded #1 (done)
            other assigned #1
            offer other#1 to c1
    "#]]);
}

#[test]
fn defect_15_a_chain_that_succeeds_skips_queued_nodes_of_its_group() {
    check(expect![[r#"
        given lane main running=1
        submitrun r g m1 x y chain=g:m1 group=g:x,y
            r submitted
            r started
            r/m1 started #1
        next r/m1 q1
            r/x queued #0 (released)
            r/y queued #0 (released)
            r/x started #1
        finish r/m1 ok
            r/m1 succeeded #1 (done)
            r/x canceled #1 (upstream_failed)
            r/y returned #0 (returned)
            r/y succeeded #0 (skipped)
            r/g succeeded #0 (done)
            r succeeded
            stop r/x
        finish r/x ok
            stale
            r/x released #1
        showrun r
            r is succeeded, 2 attempts
    "#]]);
}

/// Runs with groups in chains and chains in groups, whose nodes end in any order. The engine recounts itself after every
/// step; the limit of running jobs holds, and no node waits for a slot that its own caller has.
struct Crowd {
    scenario: Scenario,
    rng: Rng,
    /// The numbers of tasks of the worker.
    tasks: BTreeMap<String, String>,
    /// Middlewares that wait for an answer.
    waiting: BTreeSet<String>,
    ended: BTreeSet<String>,
    calls: u32,
}

impl Crowd {
    const NODES: &str = "g m1 i x y<x z h m2 c m3 p q \
        chain=g:m1;h:m2;c:m3 group=g:i,z,h,m2,c,m3;i:x,y;c:p,q";

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.secret() % bound
    }

    fn play(&mut self, line: &str) {
        for effect in self.scenario.play(line) {
            let words: Vec<&str> = effect.split_whitespace().collect();
            match words[..] {
                ["offer", task, "to", ..] => {
                    let (job, number) = task.split_once('#').expect("a task has a number");
                    self.tasks.insert(job.to_owned(), number.to_owned());
                    self.play(&format!("accept c1 {task}"));
                }
                ["answer", caller, ..] => drop(self.waiting.remove(caller)),
                [run, "succeeded" | "failed"] => drop(self.ended.insert(run.to_owned())),
                [code, ..] if code.starts_with("next_") => {
                    let caller = line.split(' ').nth(1).expect("a call names its caller");
                    self.waiting.remove(caller);
                }
                _ => {}
            }
        }
    }

    /// The running jobs that wait for no answer.
    fn working(&self) -> Vec<String> {
        let open = self.scenario.open_jobs().into_iter();
        open.filter(|job| !self.waiting.contains(job)).collect()
    }

    fn step(&mut self, job: &str) {
        let calls = job.contains("/m") && self.calls % 3 != 2;
        self.calls += 1;
        if calls {
            self.waiting.insert(job.to_owned());
            return self.play(&format!("next {job} q{}", self.calls));
        }
        let fails = !job.contains("/m") && self.below(12) == 0;
        self.end(job, if fails { "fail" } else { "ok" });
    }

    fn end(&mut self, job: &str, outcome: &str) {
        match self.tasks.get(job) {
            Some(number) => self.play(&format!("result c1 {job}#{number} {outcome}")),
            None => self.play(&format!("finish {job} {outcome}")),
        }
    }

    fn run(seed: u64) {
        let rng = Rng::new(seed.into());
        let (tasks, waiting, ended) = Default::default();
        let mut crowd = Crowd { scenario: Scenario::new(), rng, tasks, waiting, ended, calls: 0 };
        let (running, slots) = (1 + crowd.below(3) as usize, 1 + crowd.below(3));
        crowd.play(&format!("lane main running={running}"));
        crowd.play(&format!("worker w1 c1 slots={slots} kinds=w"));
        let runs = ["r", "s"];
        for run in runs {
            let nodes = Crowd::NODES.split(' ').map(|node| match node.split_once('<') {
                _ if node.contains('=') => node.to_owned(),
                _ if crowd.rng.secret().is_multiple_of(2) => node.to_owned(),
                Some((node, above)) => format!("{node}@w<{above}"),
                None => format!("{node}@w"),
            });
            let nodes: Vec<String> = nodes.collect();
            crowd.play(&format!("submitrun {run} {}", nodes.join(" ")));
        }
        for _ in 0..600 {
            let of_ended = |job: &String| crowd.ended.iter().any(|run| job.starts_with(&format!("{run}/")));
            let working = crowd.working();
            let count = working.iter().filter(|job| !of_ended(job)).count();
            assert!(count <= running, "seed {seed}: {working:?} run, and the limit is {running}");
            if working.is_empty() && crowd.ended.len() == runs.len() {
                return;
            }
            if working.is_empty() {
                // Long enough for every retry, and never so long that the worker is lost.
                for _ in 0..20 {
                    crowd.play("wait 4s");
                    crowd.play("pulse c1");
                }
                assert!(!crowd.working().is_empty(), "seed {seed}: {:?} wait for ever", crowd.waiting);
                continue;
            }
            if crowd.below(15) == 0 {
                crowd.play("rebuild");
            }
            // Now and then a middleware ends although it waits.
            let impatient =
                crowd.waiting.iter().next().cloned().filter(|_| crowd.rng.secret().is_multiple_of(25));
            if let Some(job) = impatient {
                crowd.waiting.remove(&job);
                crowd.end(&job, "ok");
                continue;
            }
            let job = working[crowd.below(working.len() as u64) as usize].clone();
            crowd.step(&job);
        }
        panic!("seed {seed}: the runs do not end");
    }
}

#[test]
fn defect_15_groups_in_chains_and_chains_in_groups_always_end_in_few_slots() {
    for seed in 0..60 {
        Crowd::run(seed);
    }
}

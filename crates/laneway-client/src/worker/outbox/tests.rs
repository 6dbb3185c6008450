//! Which frames are kept, and when they are sent again.

use laneway_wire::frame::{AckNote, Drain, List, Message, Role, Sender, Timestamp};

use super::*;

fn frame(id: &str, seq: u64) -> Frame {
    Frame {
        id: Text::fixed(id),
        ts: Timestamp(jiff::Timestamp::UNIX_EPOCH),
        tenant: Text::fixed("t"),
        sender: Sender { role: Role::Worker, id: Text::fixed("w") },
        corr: None,
        seq: Some(seq),
        ack: AckNote::requested(),
        flags: List::default(),
        message: Message::Drain(Drain::default()),
    }
}

fn outcome(task: &str, seq: u64, run: &str) -> Keep {
    Keep::Outcome { key: TaskKey { task_id: Text::fixed(task), seq }, run_id: Text::fixed(run) }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn sent(outbox: &mut Outbox, now: u64) -> Vec<String> {
    let due = outbox.take_due(ms(now), true, || 0.0);
    due.frames.iter().map(|frame| frame.id.to_string()).collect()
}

#[test]
fn acknowledged_frames_are_removed() {
    let mut outbox = Outbox::default();
    outbox.put(ms(0), frame("a", 1), outcome("t", 1, "r"), 0.0);
    outbox.put(ms(0), frame("b", 2), Keep::Greeting, 0.0);
    assert_eq!(outbox.remove("a"), Some(outcome("t", 1, "r")));
    assert_eq!(outbox.remove("a"), None);
    assert_eq!(outbox.outcomes(), 0);
    outbox.forget_session();
    assert_eq!((outbox.len(), outbox.bytes), (0, 0));
    assert_eq!(outbox.next_due(true), None);
}

#[test]
fn outcomes_wait_for_a_session_and_outlive_it() {
    let mut outbox = Outbox::default();
    outbox.put(ms(0), frame("a", 1), outcome("t", 1, "r"), 0.0);
    assert_eq!(outbox.next_due(false), None);
    assert!(outbox.take_due(ms(9_000), false, || 0.0).frames.is_empty());
    outbox.forget_session();
    assert!(outbox.has(&TaskKey { task_id: Text::fixed("t"), seq: 1 }));
    outbox.rewind(ms(9_000), |keep| *keep != Keep::Greeting);
    assert_eq!(sent(&mut outbox, 9_000), ["a"]);
}

#[test]
fn d10_results_of_a_run_are_sent_again_in_the_order_of_their_seq() {
    let mut outbox = Outbox::default();
    for (id, seq, run) in [("c", 3, "r1"), ("a", 1, "r1"), ("x", 2, "r2"), ("b", 2, "r1")] {
        outbox.put(ms(0), frame(id, seq), outcome(id, seq, run), 0.0);
    }
    assert_eq!(outbox.run_of("b").unwrap(), "r1");
    outbox.rewind(ms(10), |keep| matches!(keep, Keep::Outcome { run_id, .. } if *run_id == *"r1"));
    assert_eq!(sent(&mut outbox, 10), ["a", "b", "c"]);
}

#[test]
fn a_full_outbox_is_reported() {
    let mut outbox = Outbox::default();
    for n in 0..10 {
        outbox.put(ms(0), frame(&format!("f{n}"), n), outcome(&format!("t{n}"), n, "r"), 0.0);
    }
    assert!(!outbox.is_full(OUTBOX_LEN_MAX - 11));
    assert!(outbox.is_full(OUTBOX_LEN_MAX - 10));
}

//! Translations. Tests of the HTTP API are in `tests/it`.

use laneway_core::{CapScope, Full, JobId, JobState, Span, Wall};

use super::error::sanitized;
use super::time::{Given, go_duration, parse, rfc3339};
use super::translate::{full_message, job_id, state_name, states_of, task_id};
use crate::names::name_of;

#[test]
fn pt_x2_messages_give_nothing_away() {
    for (message, clean) in [
        ("\u{1b}[31mred\u{1b}[0m text", "red text"),
        ("a\0\0\nb", "a b"),
        ("open /home/me/secret.txt: denied", "open [path]: denied".trim_end_matches(": denied")),
        ("C:\\Users\\me\\x is gone", "[path] is gone"),
        ("see \"/etc/passwd\", please", "see \"[path]\", please"),
        ("http://example.org/home/page stays", "http://example.org/home/page stays"),
        ("/homeless stays", "/homeless stays"),
        ("", "error"),
        ("\u{1b}[2J\n", "error"),
    ] {
        let text = sanitized(message);
        assert!(text.starts_with(clean), "{message:?}: {text:?}");
        assert!(!text.contains("secret") && !text.contains("passwd"), "{text}");
    }
    let long = sanitized(&"ä".repeat(2_000));
    assert!(long.ends_with("...") && long.len() <= 1_024 + 3, "{}", long.len());
}

#[test]
fn ids_go_both_ways_and_nothing_else_is_one() {
    let job = JobId(0x0190_a5b0_1234_7000_8000_0000_0000_0001);
    assert_eq!(job_id(&task_id(job)), Some(job));
    for other in [
        "",
        "tsk_",
        "batch",
        "tsk_0190",
        "tsk_0190A5B0123470008000000000000001",
        "0190a5b0123470008000000000000001",
    ] {
        assert_eq!(job_id(other), None, "{other}");
    }
}

#[test]
fn every_id_of_an_agent_has_a_name_of_its_own() {
    let long = "x".repeat(500);
    let ids = ["a1", " ", "  ", "%20", "~%20", "~", " a", "a\n", "é", &long, &format!("{long}y")];
    let names: std::collections::BTreeSet<String> = ids.iter().map(|id| name_of(id).to_string()).collect();
    assert_eq!(names.len(), ids.len(), "{names:?}");
    assert_eq!(name_of("é").as_str(), "é", "a valid name stays as it is");
}

#[test]
fn their_states_are_ours() {
    let names: Vec<&str> = JobState::ALL.into_iter().map(state_name).collect();
    assert_eq!(names, ["queued", "queued", "assigned", "running", "done", "failed", "cancelled", "rejected"]);
    assert_eq!(states_of(" done ,failed,,nonsense"), [JobState::Succeeded, JobState::Failed]);
    assert_eq!(states_of("queued"), [JobState::Scheduled, JobState::Queued]);
    assert!(states_of("").is_empty());
}

#[test]
fn defect_18_a_deadline_may_lie_at_the_end_of_the_calendar() {
    let last = jiff::Timestamp::MAX.as_millisecond();
    for far in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999999-12:00"] {
        let given = parse(far).map(|Given { at, text }| (at.0, text));
        assert_eq!(given, Some((last, far.to_owned())));
    }
}

#[test]
fn times_are_rfc_3339_and_keep_their_offset() {
    let given = |text: &str| parse(text).map(|Given { at, text }| (at.0, text));
    assert_eq!(given("2023-11-14T22:13:20Z"), Some((1_700_000_000_000, "2023-11-14T22:13:20Z".to_owned())));
    let offset = given("2023-11-15T00:13:20.120000000+02:00");
    assert_eq!(offset, Some((1_700_000_000_120, "2023-11-15T00:13:20.12+02:00".to_owned())));
    assert_eq!(given("2023-11-14T22:13:20-00:00").unwrap().1, "2023-11-14T22:13:20Z");
    for wrong in [
        "",
        "2023-11-14",
        "2023-11-14 22:13:20Z",
        "2023-11-14T22:13:20",
        "2023-11-14T22:13:20z",
        "2023-11-14T22:13:20+0200",
        "2023-02-30T22:13:20Z",
        "9999-13-31T23:59:59Z",
        "9999-12-31T23:59:59+99:00",
        "2023-11-14T22:13:20.Z",
        "2023-11-14T22:13:20Z[UTC]",
        "ä023-11-14T22:13:20Z",
    ] {
        assert_eq!(given(wrong), None, "{wrong}");
    }
    assert_eq!(rfc3339(Wall(1_700_000_000_050)), "2023-11-14T22:13:20.05Z");
}

#[test]
fn lengths_of_time_are_written_as_go_does() {
    for (ms, text) in [
        (0, "0s"),
        (250, "250ms"),
        (1_500, "1.5s"),
        (300_000, "5m0s"),
        (3_600_000, "1h0m0s"),
        (90_061_000, "25h1m1s"),
    ] {
        assert_eq!(go_duration(Span(ms)), text);
    }
}

#[test]
fn full_queues_have_two_codes() {
    let full = |scope| Full { scope, waiting: 2, cap: 2 };
    assert_eq!(
        full_message(full(CapScope::Agent), "a\"1"),
        "rejected: agent queue full for \"a\\\"1\" (2/2)"
    );
    for scope in [CapScope::Server, CapScope::Lane, CapScope::Tenant] {
        assert_eq!(full_message(full(scope), "a1"), "rejected: global queue full (2/2)");
    }
}

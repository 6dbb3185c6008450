//! Tests of payloads, and of what every job of a kind gets. The kinds at work are tested with the program.

use laneway_core::{Bytes, JobSpec, Name};
use serde_json::{Value, json};

use super::*;

fn bytes(payload: &Value) -> Bytes {
    Bytes::from(payload.to_string().into_bytes())
}

fn bad(kind: &'static str, payload: Value) -> (String, PayloadProblem) {
    let spec = JobSpec::new(Name::fixed("default"), Name::fixed(kind));
    let checked = validate(&spec, payload.to_string().as_bytes()).expect("the kind is built in");
    let bad = checked.expect_err("the payload is not valid");
    (bad.field, bad.problem)
}

#[test]
fn an_error_names_the_field_and_the_problem() {
    let field = |name: &str, problem| (name.to_owned(), problem);
    assert_eq!(bad(BROWSER_START, json!({})), field("profileId", PayloadProblem::Missing));
    assert_eq!(bad(BROWSER_START, json!({"profileId": 1})), field("profileId", PayloadProblem::Type));
    assert_eq!(bad(BROWSER_STOP, json!({"profileId": "a/b"})), field("profileId", PayloadProblem::Range));
    let long = "a".repeat(65);
    assert_eq!(bad(BROWSER_STOP, json!({"profileId": long})), field("profileId", PayloadProblem::TooLong));
    let unknown = json!({"profileId": "p", "headles": true});
    assert_eq!(bad(BROWSER_START, unknown), field("headles", PayloadProblem::Unknown));
    assert_eq!(bad(CACHE_CLEAR_LOCAL, json!([])), field("payload", PayloadProblem::Type));
    let url = json!({"profileId": "p", "url": "javascript:alert(1)"});
    assert_eq!(bad(BROWSER_START, url), field("url", PayloadProblem::Range));
    let port = json!({"proxy": {"host": "h", "port": 0}});
    assert_eq!(bad(PROXY_TEST, port), field("proxy.port", PayloadProblem::Range));
    let both = json!({"profileId": "p", "script": {"steps": []}, "program": {"path": "/bin/true"}});
    assert_eq!(bad(SCRIPT_RUN, both), field("program", PayloadProblem::Range));
    assert_eq!(
        bad(RECYCLE_BIN_CLEANUP, json!({"retentionDays": 9_999})),
        field("retentionDays", PayloadProblem::Range)
    );
    let spec = JobSpec::new(Name::fixed("default"), Name::fixed("echo"));
    assert!(validate(&spec, b"anything").is_none());
}

#[test]
fn payloads_are_written_as_they_are_read() {
    let start = json!({"profileId": "p1", "headless": false, "url": "https://example.com/"});
    assert_eq!(StartPayload::parse(&bytes(&start)).unwrap().to_json(), start);
    let clone = json!({"profileId": "p1", "name": "Copy", "newProfileId": "p2"});
    assert_eq!(ClonePayload::parse(&bytes(&clone)).unwrap().to_json(), clone);
    let program =
        json!({"profileId": "p1", "program": {"path": "/bin/true", "args": ["a"], "input": {"n": 1}}});
    assert_eq!(ScriptPayload::parse(&bytes(&program)).unwrap().to_json(), program);
    let test = json!({"proxy": {"scheme": "http", "host": "h", "port": 1, "username": "u", "password": "s"}});
    assert_eq!(ProxyTestPayload::parse(&bytes(&test)).unwrap().to_json(), test);
    assert!(!format!("{:?}", ProxyTestPayload::parse(&bytes(&test)).unwrap()).contains("\"s\""));
    assert_eq!(CleanupPayload::parse(b"").unwrap().to_json(), json!({}));
}

#[test]
fn every_job_gets_its_lane_and_keys() {
    let prepared = |kind: &'static str, lane: &'static str, payload: Value| {
        let mut spec = JobSpec::new(Name::fixed("default"), Name::fixed(kind));
        spec.lane = Name::fixed(lane);
        prepare(None, &mut spec, &mut bytes(&payload));
        let keys: Vec<String> = spec.keys.iter().map(|key| format!("{}={}", key.name, key.value)).collect();
        (spec.lane.to_string(), keys.join(" "))
    };
    let all = |lane: &str, keys: &str| (lane.to_owned(), keys.to_owned());
    let profile = json!({"profileId": "p1"});
    assert_eq!(
        prepared(BROWSER_START, "main", profile.clone()),
        all("browsers", "browser=open browser_profile=p1")
    );
    assert_eq!(prepared(BROWSER_STOP, "main", profile.clone()), all("browsers", "browser_profile=p1"));
    assert_eq!(prepared(BROWSER_STOP_ALL, "main", json!({})), all("browsers", ""));
    assert_eq!(prepared(SCRIPT_RUN, "bulk", profile.clone()), all("bulk", "browser_profile=p1"));
    assert_eq!(prepared(BROWSER_START, "main", json!("no object")), all("browsers", "browser=open"));
    assert_eq!(prepared("echo", "main", profile), all("main", ""));
}

#[test]
fn profile_errors_are_permanent_unless_they_can_pass() {
    let retryable = |error: ProfileError| match NotDone::from(error) {
        NotDone::Failed(failure) => failure.retryable,
        NotDone::Canceled => panic!("it is no cancellation"),
    };
    assert!(!retryable(ProfileError::NotFound("p".to_owned())));
    assert!(!retryable(ProfileError::Trashed("p".to_owned())));
    assert!(retryable(ProfileError::InUse { id: "p".to_owned(), by: crate::uses::Use::Open }));
    assert!(retryable(ProfileError::Conflict("p".to_owned())));
}

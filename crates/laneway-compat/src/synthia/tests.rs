//! Translations. Tests of the HTTP API are in `tests/it`.

use laneway_core::{JobState, Wall};
use serde_json::{Value, json};

use super::decode::{Form, exactly, in_any_case};
use super::time::{iso, read, stamp};
use super::vocabulary::{PRIORITIES, intent_state, job_state, priority_name};

fn wrong(form: Form) -> Value {
    use axum::response::IntoResponse;
    let Err(problem) = form.finish() else { return Value::Null };
    let response = problem.into_response();
    assert_eq!(response.status(), 422);
    let body = futures_util::FutureExt::now_or_never(axum::body::to_bytes(response.into_body(), 1 << 20));
    let body: Value = serde_json::from_slice(&body.unwrap().unwrap()).unwrap();
    body["detail"].clone()
}

fn form(body: Value) -> Form {
    Form::of_body(body.to_string().as_bytes()).unwrap()
}

#[test]
fn whole_numbers_are_taken_as_their_server_takes_them() {
    for (given, taken) in [
        (json!("5"), 5),
        (json!(5), 5),
        (json!(5.0), 5),
        (json!(" 7 "), 7),
        (json!("5.0"), 5),
        (json!(true), 1),
    ] {
        let mut form = form(json!({"n": given}));
        assert_eq!(form.int("n", 1..=100), taken, "{given}");
        assert_eq!(wrong(form), Value::Null);
    }
    for (given, r#type) in [
        (json!(1.5), "int_from_float"),
        (json!("x"), "int_parsing"),
        (json!("1.5"), "int_parsing"),
        (json!(null), "int_type"),
        (json!([1]), "int_type"),
        (json!(0), "greater_than_equal"),
        (json!(101), "less_than_equal"),
        (json!(1e300), "less_than_equal"),
    ] {
        let mut form = form(json!({"n": given}));
        form.int("n", 1..=100);
        assert_eq!(wrong(form)[0]["type"], r#type, "{given}");
    }
}

#[test]
fn all_errors_of_a_body_are_reported_at_once() {
    let mut form = form(json!({"b": 1, "t": [1, "x"], "when": "soon", "yes": "maybe"}));
    form.text("a");
    form.text("b");
    form.texts("t");
    form.opt_time("when");
    form.flag("yes");
    let wrong = wrong(form);
    let types: Vec<&str> = wrong.as_array().unwrap().iter().map(|w| w["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        ["missing", "string_type", "string_type", "datetime_from_date_parsing", "bool_parsing"]
    );
    assert_eq!(wrong[0]["loc"], json!(["body", "a"]));
    assert_eq!(wrong[2]["loc"], json!(["body", "t", 0]));
}

#[test]
fn choices_match_exactly_or_in_any_case() {
    for given in ["NORMAL", "normal", "Normal"] {
        let mut form = form(json!({"priority": given}));
        assert_eq!(form.choice("priority", "enum", &PRIORITIES, in_any_case), Some(0));
    }
    let mut form = form(json!({"priority": "HIGHEST"}));
    assert_eq!(form.choice("priority", "enum", &PRIORITIES, in_any_case), None);
    let expected = "'urgent', 'high', 'normal', 'low' or 'background'";
    assert_eq!(wrong(form)[0]["ctx"]["expected"], expected);
    let mut form = self::form(json!({"state": "queued"}));
    assert_eq!(form.choice("state", "enum", &[("QUEUED", ())], exactly), None);
}

#[test]
fn bodies_that_are_not_objects_are_rejected() {
    for (body, r#type) in
        [("", "missing"), ("  \n", "missing"), ("[1]", "model_attributes_type"), ("{\"a\":", "json_invalid")]
    {
        let problem = Form::of_body(body.as_bytes()).unwrap_err();
        assert!(format!("{problem:?}").contains(r#type), "{body:?}: {problem:?}");
    }
}

#[test]
fn w5_times_without_an_offset_are_utc() {
    for text in [
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:13:20",
        "2023-11-14 22:13:20",
        "2023-11-15T00:13:20+02:00",
        "2023-11-14T22:13:20.000",
    ] {
        assert_eq!(read(&json!(text)), Some(Wall(1_700_000_000_000)), "{text}");
    }
    assert_eq!(read(&json!(1_700_000_000)), Some(Wall(1_700_000_000_000)));
    assert_eq!(read(&json!(1_700_000_000_123_i64)), Some(Wall(1_700_000_000_123)));
    for text in ["", "soon", "2023-13-01", "22:13"] {
        assert_eq!(read(&json!(text)), None, "{text}");
    }
    assert_eq!(stamp(Wall(1_700_000_000_123)), "2023-11-14T22:13:20.123000Z");
    assert_eq!(iso(Wall(1_700_000_000_000)), "2023-11-14T22:13:20+00:00");
    assert_eq!(iso(Wall(1_700_000_000_123)), "2023-11-14T22:13:20.123000+00:00");
}

#[test]
fn a3_their_names_map_to_ours() {
    let vocabulary: Vec<&str> = JobState::ALL.into_iter().map(intent_state).collect();
    let expected = ["QUEUED", "QUEUED", "DISPATCHING", "RUNNING", "DONE", "FAILED", "CANCELED", "FAILED"];
    assert_eq!(vocabulary, expected);
    let vocabulary: Vec<&str> = JobState::ALL.into_iter().map(|state| job_state(state, None)).collect();
    assert_eq!(
        vocabulary,
        ["queued", "queued", "leased", "running", "completed", "failed", "failed", "failed"]
    );
    for (name, priority) in PRIORITIES {
        assert_eq!(priority_name(priority), name);
    }
}

#[test]
fn queries_are_unescaped_and_the_last_of_a_name_counts() {
    let mut form = Form::of_query(Some("a=1&addon_id=a%20b%2Bc+d&a=2&flag"));
    assert_eq!(form.int_or("a", 0, 0..=9), 2);
    assert_eq!(form.opt_text("addon_id").as_deref(), Some("a b+c d"));
    assert_eq!(form.opt_text("flag").as_deref(), Some(""));
}

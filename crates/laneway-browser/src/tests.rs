//! Tests of lists, bodies and paths. Calls to real instances are in the tests of `laneway-compat`.

use serde_json::{Value, json};

use reqwest::Url;

use crate::action::TabAction;
use crate::tabs::{tabs_of, url_below};

fn ids(body: &str) -> Option<Vec<String>> {
    let mut ids: Vec<String> = tabs_of(body.as_bytes())?.into_iter().collect();
    ids.sort();
    Some(ids)
}

#[test]
fn lists_of_tabs_are_read_in_every_shape() {
    let both = Some(vec!["a".to_owned(), "b".to_owned()]);
    for body in [
        r#"{"tabs":[{"id":"a"},{"tabId":"b","url":"x"}]}"#,
        r#"[{"id":"a"},{"id":"b"}]"#,
        r#"["a","b",7,{"id":""},{"id":9}]"#,
        r#"{"count":2,"tabs":["a","b"]}"#,
    ] {
        assert_eq!(ids(body), both, "{body}");
    }
    for body in ["", "no", "{}", r#"{"tabs":{}}"#, "7"] {
        assert_eq!(ids(body), None, "{body}");
    }
}

#[test]
fn tabs_in_paths_are_escaped() {
    let base = Url::parse("http://127.0.0.1:1/base/").unwrap();
    for (tab, path) in [
        ("a", "/base/tabs/a/action"),
        ("a/../b", "/base/tabs/a%2F..%2Fb/action"),
        ("a b?c#d%e", "/base/tabs/a%20b%3Fc%23d%25e/action"),
    ] {
        assert_eq!(url_below(&base, &["tabs", tab, "action"]).path(), path);
    }
}

fn body_of(payload: Value) -> Value {
    let action: TabAction = serde_json::from_value(payload).unwrap();
    serde_json::from_slice(&action.body()).unwrap()
}

#[test]
fn pt_e1_the_body_has_kind_ref_selector_and_params_with_their_types() {
    let body = body_of(json!({
        "tabId": "t", "action": "type", "ref": "e5", "selector": "#in",
        "params": {"text": "hi", "delay": 5, "ratio": 0.5, "slow": true, "keys": ["a", null], "at": {"x": 1}},
    }));
    let expected = json!({
        "kind": "type", "ref": "e5", "selector": "#in",
        "text": "hi", "delay": 5, "ratio": 0.5, "slow": true, "keys": ["a", null], "at": {"x": 1},
    });
    assert_eq!(body, expected);
}

#[test]
fn pt_e2_params_never_take_the_place_of_fields() {
    let params = json!({"kind": "evil", "Kind": "evil", "ref": "evil", "selector": "evil", "tabId": "evil", "text": "kept"});
    let body = body_of(json!({"tabId": "t", "action": "click", "params": params}));
    assert_eq!(body, json!({"kind": "click", "text": "kept"}));
}

#[test]
fn pt_e3_empty_ref_and_selector_are_left_out() {
    assert_eq!(
        body_of(json!({"tabId": "t", "action": "click", "ref": "", "selector": ""})),
        json!({"kind": "click"})
    );
}

//! Frames, by table. Tests with sockets are in `tests/it`.

use serde_json::{Value, json};

use super::frame::{self, Problem, Request};

#[test]
fn requests_are_read() {
    let request = Request::read(r#"{"type":"req","id":7,"method":"m","params":[1]}"#).unwrap();
    assert_eq!((request.id.as_str(), request.method.as_str()), ("7", "m"));
    assert!(request.params.is_empty(), "parameters that are not an object count as none");
    let long = format!(r#"{{"type":"req","id":"{}","method":"m"}}"#, "x".repeat(257));
    assert!(Request::read(&long).is_err());
}

#[test]
fn frames_are_written_in_the_order_of_their_documents() {
    assert_eq!(
        frame::answer("1", &Ok(json!({"a": 1}))),
        r#"{"type":"res","id":"1","ok":true,"payload":{"a":1}}"#
    );
    let problem = Problem::invalid("no").because("why").retry(Some(5));
    assert_eq!(
        frame::answer("", &Err(problem)),
        r#"{"type":"res","id":"","ok":false,"error":{"code":"INVALID_REQUEST","message":"no","details":{"reason":"why"},"retryable":true,"retryAfterMs":5}}"#
    );
    assert_eq!(
        frame::event("cron", &Value::Null, Some(3)),
        r#"{"type":"event","event":"cron","payload":null,"seq":3}"#
    );
}

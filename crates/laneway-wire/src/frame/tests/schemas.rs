//! The published schemas match the types, and accept and reject the same frames.

use std::collections::BTreeMap;

use expect_test::expect_file;
use serde_json::{Value, json};

use super::samples::{bad_payloads, broken, frame, payloads};
use crate::frame::{Frame, MessageType, check_schema, published_schema, schemas};

fn is_valid(frame: &Value) -> bool {
    check_schema(&frame.to_string()).is_ok()
}

#[test]
fn the_published_schemas_match_the_types() {
    for (name, schema) in schemas() {
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        expect_file![format!("../../../../../docs/schema/ws/{name}")].assert_eq(&text);
        assert_eq!(published_schema(&name), Some(text.as_str()), "{name}");
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/ws");
    assert_eq!(
        std::fs::read_dir(folder).unwrap().count(),
        MessageType::ALL.len() + 1,
        "a schema without a type"
    );
}

#[test]
fn every_schema_is_valid_and_closed_where_frames_are() {
    for (name, schema) in schemas() {
        jsonschema::draft202012::meta::validate(&schema).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["$id"], *name);
        assert_eq!(schema["additionalProperties"], false, "{name} is open");
        assert!(!schema.to_string().contains("$ref"), "{name} refers to another schema");
    }
}

#[test]
fn d1_schemas_and_types_accept_the_same_good_frames() {
    for (kind, payload) in payloads() {
        let frame = frame(kind, payload);
        assert!(is_valid(&frame), "the schema rejects {frame}");
        let read =
            Frame::parse(frame.to_string().as_bytes()).unwrap_or_else(|error| panic!("{frame}: {error}"));
        let written: Value = serde_json::from_str(&read.encode()).unwrap();
        assert!(is_valid(&written), "the written frame does not match the schema: {written}");
    }
}

#[test]
fn d1_schemas_and_types_reject_the_same_bad_payloads() {
    let good: BTreeMap<&str, Value> = payloads().into_iter().collect();
    for (kind, pointer, value, _) in bad_payloads() {
        let frame = frame(kind, broken(good[kind].clone(), pointer, value));
        assert!(!is_valid(&frame), "the schema accepts {frame}");
        assert!(Frame::parse(frame.to_string().as_bytes()).is_err(), "the type accepts {frame}");
    }
}

#[test]
fn d1_schemas_and_types_agree_on_envelopes() {
    let bad: [(&str, Option<Value>); 14] = [
        ("/id", None),
        ("/id", Some(json!(""))),
        ("/id", Some(json!(7))),
        ("/ts", Some(json!("yesterday"))),
        ("/ts", Some(json!("2030-01-01T08:00:00"))),
        ("/tenant", Some(json!(""))),
        ("/sender", Some(json!({"role": "boss", "id": "x"}))),
        ("/sender", Some(json!({"role": "worker"}))),
        ("/payload", Some(json!([]))),
        ("/seq", Some(json!(-1))),
        ("/ack", Some(Value::Null)),
        ("/ack", Some(json!({"please": true}))),
        ("/flags", Some(json!([""]))),
        ("/more", Some(json!(1))),
    ];
    let drain = frame("cmd.drain", json!({}));
    for (pointer, value) in bad {
        let frame = broken(drain.clone(), pointer, value);
        assert!(!is_valid(&frame), "the schema accepts {frame}");
        assert!(Frame::parse(frame.to_string().as_bytes()).is_err(), "the type accepts {frame}");
    }
    let good: [(&str, Value); 6] = [
        ("/corr", Value::Null),
        ("/corr", json!("t1")),
        ("/seq", Value::Null),
        ("/ack", json!({"for": null, "request": null})),
        ("/ack", json!({"for": "x", "request": true})),
        ("/flags", json!(["trace"])),
    ];
    for (pointer, value) in good {
        let frame = broken(drain.clone(), pointer, Some(value));
        assert!(is_valid(&frame), "the schema rejects {frame}");
        assert!(Frame::parse(frame.to_string().as_bytes()).is_ok(), "the type rejects {frame}");
    }
}

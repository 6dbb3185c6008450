//! Frames are read, rejected and written correctly.

mod samples;
mod schemas;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use self::samples::{bad_payloads, broken, dispatch, frame, payloads};
use super::*;

fn parse(frame: &Value) -> Result<Frame, FrameError> {
    Frame::parse(frame.to_string().as_bytes())
}

#[test]
fn every_type_has_a_sample_and_comes_back_as_it_was() {
    let names: BTreeSet<&str> = payloads().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(names, MessageType::ALL.iter().map(|kind| kind.as_str()).collect());
    for (kind, payload) in payloads() {
        let mut sent = frame(kind, payload);
        sent["corr"] = json!("t1");
        sent["seq"] = json!(3);
        sent["ack"] = json!({"request": true});
        sent["flags"] = json!(["trace"]);
        let read = parse(&sent).unwrap();
        assert_eq!(read.message.kind().as_str(), kind);
        let written: Value = serde_json::from_str(&read.encode()).unwrap();
        assert_eq!(written["corr"], "t1");
        assert_eq!(written["ts"], "2030-01-01T07:00:00Z");
        // No field of the payload is lost. `null` and absent mean the same.
        if kind != "handshake" {
            let numbers = |value: &Value| value.to_string().replace("40.0", "40");
            assert_eq!(numbers(&written["payload"]), numbers(&sent["payload"]));
        }
        assert_eq!(Frame::parse(read.encode().as_bytes()).unwrap(), read);
    }
}

#[test]
fn d1_the_error_names_the_field_the_frame_and_the_right_code() {
    let good: BTreeMap<&str, Value> = payloads().into_iter().collect();
    for (kind, pointer, value, field) in bad_payloads() {
        let error = parse(&frame(kind, broken(good[kind].clone(), pointer, value))).unwrap_err();
        assert_eq!(error.field.as_deref().unwrap_or_default(), field, "{kind} {pointer}: {error}");
        assert_eq!(error.part, FramePart::Payload);
        assert_eq!(error.id.as_deref(), Some(format!("{kind}-1").as_str()));
        let expected = if kind.starts_with("pkg.") { ErrorCode::PkgInvalid } else { ErrorCode::CmdUnknown };
        assert_eq!(error.code, expected, "{kind} {pointer}");
        assert!(!error.message.contains(" at line "), "{error}");
    }
}

#[test]
fn d1_the_envelope_is_checked_before_the_payload() {
    let mut both = frame("cmd.drain", json!({"limit_ms": 0}));
    both["tenant"] = json!("");
    let error = parse(&both).unwrap_err();
    assert_eq!((error.part, error.field.as_deref()), (FramePart::Envelope, Some("tenant")));
    assert_eq!(error.id.as_deref(), Some("cmd.drain-1"));
    assert_eq!(error.kind.as_deref(), Some("cmd.drain"));
}

#[test]
fn x13_garbage_gets_a_reply_and_is_never_fatal() {
    let cases: [(&[u8], FramePart); 7] = [
        (b"", FramePart::Json),
        (b"\xff\xfe\x00", FramePart::Json),
        (b"{", FramePart::Json),
        (b"[1,2]", FramePart::Json),
        (b"null", FramePart::Json),
        (b"{}", FramePart::Envelope),
        (b"{\"id\":1}", FramePart::Envelope),
    ];
    for (bytes, part) in cases {
        let error = Frame::parse(bytes).unwrap_err();
        assert_eq!((error.part, error.code), (part, ErrorCode::CmdUnknown), "{bytes:?}: {error}");
        // The reply is a frame itself.
        let report = serde_json::to_string(&error.report()).unwrap();
        assert!(serde_json::from_str::<ErrorReport>(&report).is_ok(), "{report}");
    }
    let unknown = parse(&frame("cmd.dance", json!({}))).unwrap_err();
    assert_eq!((unknown.part, unknown.code), (FramePart::Type, ErrorCode::CmdUnknown));
    assert_eq!(unknown.kind.as_deref(), Some("cmd.dance"));
}

#[test]
fn a_frame_may_be_as_long_as_the_limit_and_no_longer() {
    let mut sent = frame("cmd.drain", json!({"reason": ""}));
    let free = FRAME_LEN_MAX - sent.to_string().len();
    sent["payload"]["reason"] = json!("x".repeat(free));
    assert!(parse(&sent).is_ok());
    sent["payload"]["reason"] = json!("x".repeat(free + 1));
    assert_eq!(parse(&sent).unwrap_err().part, FramePart::Size);
}

#[test]
fn lists_and_names_are_bounded() {
    let mut sent = frame("cmd.drain", json!({}));
    sent["flags"] = json!(vec!["f"; FLAGS_MAX]);
    assert!(parse(&sent).is_ok());
    sent["flags"] = json!(vec!["f"; FLAGS_MAX + 1]);
    assert_eq!(parse(&sent).unwrap_err().field.as_deref(), Some("flags"));
    let mut sent = frame("cmd.drain", json!({}));
    sent["id"] = json!("ä".repeat(TEXT_LEN_MAX));
    assert!(parse(&sent).is_ok());
    sent["id"] = json!("ä".repeat(TEXT_LEN_MAX + 1));
    assert_eq!(parse(&sent).unwrap_err().field.as_deref(), Some("id"));
}

#[test]
fn deep_nesting_is_carried_unread() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let mut sent = frame("cmd.dispatch", dispatch()).to_string();
    sent = sent.replace("{\"width\":3}", &format!("{{\"deep\":{deep}}}"));
    match Frame::parse(sent.as_bytes()) {
        Ok(read) => {
            let Message::Dispatch(dispatch) = read.message else { panic!("no dispatch") };
            assert!(dispatch.parameters.read::<Value>().is_err());
        }
        Err(error) => assert_eq!(error.code, ErrorCode::CmdUnknown),
    }
}

#[test]
fn frames_of_older_workers_are_read() {
    let error = json!({"code": "E.RUNNER.FAILURE", "message": "no"});
    let read = parse(&frame("command.error", error)).unwrap();
    assert_eq!(read.message.kind(), MessageType::Error);
    assert!(read.encode().contains("\"type\":\"error\""));

    let read = parse(&frame("ack", json!({"for": "x"}))).unwrap();
    assert!(matches!(&read.message, Message::Ack(ack) if ack.ok));
    assert_eq!(read.acknowledges().unwrap(), &"x");
    let mut bare = frame("ack", json!({}));
    assert!(parse(&bare).is_err());
    bare["ack"] = json!({"for": "y"});
    assert_eq!(parse(&bare).unwrap().acknowledges().unwrap(), &"y");

    let mut register = payloads().into_iter().find(|(kind, _)| *kind == "register").unwrap().1;
    let channels = register.as_object_mut().unwrap().remove("channels").unwrap();
    register["queues"] = channels;
    let Message::Register(register) = parse(&frame("register", register)).unwrap().message else {
        panic!("no register")
    };
    assert_eq!(register.channels(), ["default"]);
}

#[test]
fn t1_middleware_metadata_must_fit_together() {
    let with = |changes: Value| {
        let mut payload = dispatch();
        for (key, value) in changes.as_object().unwrap() {
            payload[key] = value.clone();
        }
        parse(&frame("cmd.dispatch", payload))
    };
    let mut host = dispatch();
    host.as_object_mut().unwrap().remove("chain_index");
    host["node_id"] = json!("n1");
    assert!(parse(&frame("cmd.dispatch", host.clone())).is_ok());
    assert!(with(json!({"node_id": "m1", "chain_index": 0})).is_ok());
    // The source document says that the host's index is `null`.
    host["chain_index"] = Value::Null;
    assert!(parse(&frame("cmd.dispatch", host)).is_ok());

    let mut no_host = dispatch();
    no_host.as_object_mut().unwrap().remove("host_node_id");
    let mut no_chain = dispatch();
    no_chain.as_object_mut().unwrap().remove("middleware_chain");
    let wrong = [
        with(json!({"chain_index": 2})),
        with(json!({"chain_index": 0})),
        with(json!({"node_id": "n1"})),
        with(json!({"chain_index": null})),
        parse(&frame("cmd.dispatch", no_host)),
        parse(&frame("cmd.dispatch", no_chain)),
    ];
    for rejected in wrong {
        let error = rejected.unwrap_err();
        assert_eq!(error.code, ErrorCode::DispatchInvalidMetadata, "{error}");
        assert!(error.field.is_some());
    }
}

#[test]
fn codes_convert_to_names_and_back() {
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::parse(code.as_str()), Some(code));
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
    }
    assert_eq!(ErrorCode::parse("E.SOMETHING.ELSE"), None);
}

#[test]
fn secrets_are_sent_and_never_printed() {
    let read = parse(&frame("handshake", payloads().remove(0).1)).unwrap();
    assert!(read.encode().contains("s3cret"));
    assert!(!format!("{read:?}").contains("s3cret"));
}

#[test]
fn acks_carry_pairs_for_programs() {
    let ack = |info: &str| Ack { ok: true, r#for: Text::fixed("x"), info: Some(info.to_owned()) };
    assert_eq!(ack("lease_ms=30000 heartbeat_ms=5000").info_ms("heartbeat_ms"), Some(5_000));
    assert_eq!(ack("E.RESULT.DUPLICATE").info_ms("lease_ms"), None);
    assert_eq!(ack("lease_ms=soon").info_ms("lease_ms"), None);
}

/// JSON of any shape, not too deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Frame::parse(&bytes);
    }

    #[test]
    fn no_json_panics(json in any_json()) {
        let _ = parse(&json);
    }

    #[test]
    fn no_damage_to_a_good_frame_panics(which in 0..17usize, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (kind, payload) = payloads().swap_remove(which);
        let mut bytes = frame(kind, payload).to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = Frame::parse(&bytes) {
            prop_assert_eq!(Frame::parse(read.encode().as_bytes()).unwrap(), read);
        }
    }

    #[test]
    fn a_field_of_any_type_is_read_or_named(which in 0..17usize, at in any::<prop::sample::Index>(), json in any_json()) {
        let (kind, mut payload) = payloads().swap_remove(which);
        let keys: Vec<String> = payload.as_object().unwrap().keys().cloned().collect();
        payload[&keys[at.index(keys.len())]] = json;
        match parse(&frame(kind, payload)) {
            Ok(read) => prop_assert_eq!(Frame::parse(read.encode().as_bytes()).unwrap(), read),
            Err(error) => prop_assert!(error.id.is_some()),
        }
    }
}

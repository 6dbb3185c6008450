//! The types accept and reject the right input.

use std::borrow::Cow;

use serde_json::{from_str, to_string};

use crate::{
    BackoffRequest, BatchRequest, CatchUpRequest, JobRequest, Priority, SchedulePatchRequest,
    ScheduleRequest, SessionRequest,
};

#[test]
fn reads_a_full_request_without_copying() {
    let body = r#"{"kind":"k","payload":{"a":[1, 2]},"agent":"a","lane":"l","session":{"key":"s","max_concurrent":2},
        "priority":"HIGH","keys":{"profile":"p1","tab":"t"},"not_before":"x","deadline":"y","queue_timeout":"1m",
        "timeout":"30s","retry":{"retries_max":1,"losses_max":0,"backoff":{"base":"1s","jitter":{"percent":10}}},
        "idempotency_key":"i","tags":["t1"]}"#;
    let request: JobRequest<'_> = from_str(body).unwrap();
    assert!(matches!(request.kind, Cow::Borrowed("k")));
    assert_eq!(request.payload.unwrap().get(), r#"{"a":[1, 2]}"#);
    assert_eq!(request.priority, Some(Priority::Name(Cow::Borrowed("HIGH"))));
    assert!(matches!(request.session, Some(SessionRequest::Object(ref s)) if s.max_concurrent == Some(2)));
    let keys = request.keys.as_ref().unwrap();
    assert!(keys.0.iter().all(|(name, value)| matches!((name, value), (Cow::Borrowed(_), Cow::Borrowed(_)))));
    let again: JobRequest<'_> = from_str(body).unwrap();
    assert_eq!(to_string(&again).unwrap(), to_string(&request).unwrap());
}

#[test]
fn keeps_repeated_keys_for_the_server_to_reject() {
    let request: JobRequest<'_> = from_str(r#"{"kind":"k","keys":{"a":"1","a":"2"}}"#).unwrap();
    assert_eq!(request.keys.unwrap().0.len(), 2);
}

#[test]
fn control_objects_reject_bad_fields() {
    for (body, expected) in [
        (r#"{"kind":"k","kind":"l"}"#, "duplicate field `kind`"),
        (r#"{"kind":"k","knd":1}"#, "unknown field `knd`"),
        (r#"{"payload":1}"#, "missing field `kind`"),
        (r#"{"kind":1}"#, "invalid type: integer `1`, expected a string"),
        (r#"{"kind":"k","priority":1.5}"#, "invalid type: floating point `1.5`, expected an integer"),
        (r#"{"kind":"k","priority":3000000000}"#, "invalid value: integer `3000000000`"),
        (r#"{"kind":"k","priority":-3000000000}"#, "invalid value: integer `-3000000000`"),
        (r#"{"kind":"k","priority":18446744073709551616}"#, "invalid type: floating point"),
        (r#"{"kind":"k","session":5}"#, "expected a session's name"),
        (r#"{"kind":"k","session":{"key":"a","key":"b"}}"#, "duplicate field `key`"),
        (r#"{"kind":"k","session":{"key":"a","mod":"b"}}"#, "unknown field `mod`"),
        (r#"{"kind":"k","keys":{"a":1}}"#, "expected a string"),
        (r#"{"kind":"k","keys":["a"]}"#, "expected an object of names and values"),
        (r#"{"kind":"k","retry":{"backoff":{"bse":"1s"}}}"#, "unknown field `bse`"),
        (r#"{"kind":"k","retry":[1,2,"cron"]}"#, "invalid type: sequence, expected an object"),
        (
            r#"{"kind":"k","retry":{"backoff":{"jitter":["1s",null]}}}"#,
            "invalid type: sequence, expected an object",
        ),
        (r#"{"kind":"k","retry":{"retries_max":-1}}"#, "invalid value: integer `-1`"),
    ] {
        let error = from_str::<JobRequest<'_>>(body).unwrap_err().to_string();
        assert!(error.contains(expected), "{body}: {error}");
    }
}

#[test]
fn reads_both_shapes_of_backoff() {
    let request: JobRequest<'_> = from_str(r#"{"kind":"k","retry":{"backoff":"cron"}}"#).unwrap();
    assert!(matches!(request.retry.unwrap().backoff, Some(BackoffRequest::Preset(Cow::Borrowed("cron")))));
}

#[test]
fn reads_a_batch() {
    let batch: BatchRequest<'_> = from_str(r#"{"jobs":[{"kind":"a"},{"kind":"b"}]}"#).unwrap();
    assert_eq!((batch.jobs.len(), batch.atomic), (2, false));
    assert!(from_str::<BatchRequest<'_>>(r#"{"jobs":[],"atomic":1}"#).is_err());
    assert!(from_str::<BatchRequest<'_>>(r#"{"jobs":[["a"]]}"#).is_err());
}

#[test]
fn reads_both_shapes_of_catch_up() {
    let read = |text: &str| {
        let body = format!(r#"{{"name":"n","every":"1h","job":{{"kind":"k"}},"catch_up":{text}}}"#);
        from_str::<ScheduleRequest<'_>>(&body)
            .map(|request| request.catch_up)
            .map_err(|error| error.to_string())
    };
    assert_eq!(read("\"latest\"").unwrap(), Some(CatchUpRequest::Name("latest".to_owned())));
    assert!(matches!(read(r#"{"all":7}"#).unwrap(), Some(CatchUpRequest::Object(object)) if object.all == 7));
    assert!(read(r#"{"all":7,"max":1}"#).unwrap_err().contains("unknown field `max`"));
    assert!(read("5").unwrap_err().contains("expected `skip`, `latest`, or an object"));
}

#[test]
fn a_patch_distinguishes_null_from_absent() {
    let patch: SchedulePatchRequest<'_> = from_str(r#"{"zone":null,"jitter":"5s"}"#).unwrap();
    assert_eq!((patch.zone, patch.jitter, patch.overlap), (Some(None), Some(Some("5s".to_owned())), None));
    let again: SchedulePatchRequest<'_> = from_str(r#"{"zone":null}"#).unwrap();
    assert_eq!(to_string(&again).unwrap(), r#"{"zone":null}"#);
    assert!(from_str::<SchedulePatchRequest<'_>>(r#"{"tenant":"t"}"#).is_err());
}

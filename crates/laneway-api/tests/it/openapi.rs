//! The OpenAPI document: its text, its vocabularies, and that the server accepts what it allows.

mod generate;

use std::collections::BTreeSet;

use expect_test::expect_file;
use serde_json::{Value, json};

use crate::world::{World, answer};
use generate::Generator;

/// Strings of requests without constraints.
const FREE_IN_REQUESTS: [&str; 4] =
    ["InstanceRequest.token", "LeaseError.message", "LeaseReport.message", "LeaseRevoke.reason"];

/// Strings of responses without constraints: prose of people and programs, and names, which this API or a dialect checked
/// on input. All others must have a constraint.
const FREE_IN_ANSWERS: [&str; 54] = [
    "action",
    "actor",
    "agent",
    "changed",
    "client",
    "code",
    "depends_on",
    "detail",
    "error",
    "features",
    "field",
    "hostname",
    "id",
    "key",
    "keys",
    "kind",
    "kinds",
    "labels",
    "lane",
    "lanes",
    "last_error",
    "links",
    "local",
    "message",
    "name",
    "needs_restart",
    "next",
    "node",
    "within",
    "note",
    "outcome",
    "executor",
    "reason",
    "replaces",
    "request_id",
    "resource_id",
    "runtimes",
    "secret",
    "session",
    "stream",
    "submitted_by",
    "summary",
    "tabs",
    "tags",
    "tenant",
    "text",
    "title",
    "type",
    "value",
    "version",
    "waiting_for",
    "worker",
    "worker_id",
    "zone",
];

/// Fields of responses that share a name with a free one and nevertheless have a vocabulary or a format.
const NOT_FREE: [&str; 10] = [
    "AuditEntry.action",
    "Event.type",
    "EventJob.reason",
    "EventRun.id",
    "Hold.code",
    "Job.id",
    "Job.reason",
    "Lease.id",
    "Problem.code",
    "Warning.code",
];

/// Error codes about the state of the server or the time, not about the form of the request.
const NOT_ABOUT_FORM: [&str; 8] = [
    "already_exists",
    "deadline_past",
    "idempotency_mismatch",
    "never_fits",
    "no_future_run",
    "session_full",
    "stale",
    "unknown_lane",
];

#[tokio::test]
async fn describes_the_api() {
    let world = World::new().await;
    let served = world.ask("GET", "/openapi.json", "").await;
    expect_file!["../../../../docs/schema/openapi.json"]
        .assert_eq(&format!("{:#}\n", laneway_api::openapi()));
    assert_eq!(served, *laneway_api::openapi(), "the server serves the file");
}

#[tokio::test]
async fn defect_19_every_string_has_a_vocabulary_a_format_or_a_bound_or_is_free() {
    let world = World::new().await;
    let served = world.ask("GET", "/openapi.json", "").await;
    let mut open = BTreeSet::new();
    for (name, schema) in served["components"]["schemas"].as_object().unwrap() {
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            find_open(&format!("{name}.{field}"), property, &mut open);
        }
        if schema.get("properties").is_none() {
            find_open(name, schema, &mut open);
        }
    }
    let asked = in_requests(&served);
    let is_free = |name: &String| {
        let (schema, field) = name.split_once('.').unwrap_or((name, ""));
        let field = field.trim_end_matches(['[', ']', '{', '}']);
        match asked.contains(schema) {
            true => FREE_IN_REQUESTS.contains(&name.as_str()),
            false => FREE_IN_ANSWERS.contains(&field) && !NOT_FREE.contains(&name.as_str()),
        }
    };
    let bare: Vec<&String> = open.iter().filter(|name| !is_free(name)).collect();
    assert!(bare.is_empty(), "add constraints for these to openapi/fields.rs: {bare:#?}");
    let is_open = |field: &&str| open.iter().any(|name| name.contains(&format!(".{field}")));
    let gone: Vec<&&str> = FREE_IN_ANSWERS.iter().filter(|field| !is_open(field)).collect();
    assert!(gone.is_empty(), "no response has these any more: {gone:?}");
}

/// Every schema in a request.
fn in_requests(document: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let operations = document["paths"].as_object().unwrap().values();
    let operations = operations.flat_map(|path| path.as_object().unwrap().values());
    let mut left: Vec<&Value> = operations.filter_map(|operation| operation.get("requestBody")).collect();
    while let Some(value) = left.pop() {
        let name = value.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        if let Some(name) = name.filter(|name| found.insert((*name).to_owned())) {
            left.push(&document["components"]["schemas"][name]);
        }
        match value {
            Value::Object(object) => left.extend(object.values()),
            Value::Array(list) => left.extend(list),
            _ => {}
        }
    }
    found
}

/// Adds the names of strings without constraints.
fn find_open(name: &str, schema: &Value, open: &mut BTreeSet<String>) {
    let kinds = match &schema["type"] {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let constrained = ["enum", "format", "pattern", "maxLength"].iter().any(|key| schema.get(key).is_some());
    if kinds.contains(&"string") && !constrained {
        open.insert(name.to_owned());
    }
    if kinds.contains(&"array") {
        find_open(&format!("{name}[]"), &schema["items"], open);
    }
    if schema["additionalProperties"].is_object() {
        find_open(&format!("{name}{{}}"), &schema["additionalProperties"], open);
    }
    for shape in schema["oneOf"].as_array().into_iter().flatten() {
        find_open(name, shape, open);
    }
}

#[tokio::test]
async fn defect_19_requests_that_match_the_schema_are_not_rejected_for_their_form() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_browsers(dir.path()).await;
    world.ask("POST", "/v1/profiles", r#"{"id":"made"}"#).await;
    let document = world.ask("GET", "/openapi.json", "").await;
    let made =
        world.ask("POST", "/v1/schedules", r#"{"name":"patched","every":"1h","job":{"kind":"k"}}"#).await;
    world.ask("PUT", "/v1/lanes/asked", r#"{"dispatch":"claim"}"#).await;
    let patched = format!("/v1/schedules/{}", made["id"].as_str().unwrap());
    for (schema, method, path) in [
        ("JobRequest", "POST", "/v1/jobs"),
        ("ScheduleRequest", "POST", "/v1/schedules"),
        ("PreviewRequest", "POST", "/v1/schedules/preview"),
        ("LaneRequest", "PUT", "/v1/lanes/made"),
        ("RunRequest", "POST", "/v1/runs"),
        ("BatchRequest", "POST", "/v1/jobs/batch"),
        ("LeaseRequest", "POST", "/v1/leases"),
        ("InstanceRequest", "PUT", "/v1/instances/made"),
        ("SchedulePatchRequest", "PATCH", &patched),
        ("ProfileRequest", "POST", "/v1/profiles"),
        ("ProfilePatchRequest", "PATCH", "/v1/profiles/made"),
        ("StartBrowserRequest", "POST", "/v1/browsers/made/start"),
    ] {
        let validator = validator(&document, schema);
        let (mut tried, mut rejected) = (BTreeSet::new(), Vec::new());
        for seed in 0..120 {
            let request = Generator::new(&document, seed).request(schema);
            let errors: Vec<String> =
                validator.iter_errors(&request).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "seed {seed}: {request} is not what {schema} allows: {errors:?}");
            tried.extend(request.as_object().unwrap().keys().cloned());
            let (status, body) = answer(world.request(method, path).body(request.to_string())).await;
            let code = body["code"].as_str().unwrap_or_default();
            if !status.is_success() && !NOT_ABOUT_FORM.contains(&code) {
                rejected.push(format!("seed {seed}: {status} {}\nto {request}", body["detail"]));
            }
        }
        assert!(rejected.is_empty(), "{schema}: {}", rejected.join("\n"));
        let known = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        let left: Vec<&String> = known.keys().filter(|key| !tried.contains(*key)).collect();
        let left_out = |key: &str| match schema {
            "LeaseRequest" => ["job", "new"].contains(&key),
            "InstanceRequest" => key == "url",
            _ => key == "callback",
        };
        assert!(left.iter().all(|key| left_out(key)), "{schema}: never tried {left:?}");
    }
}

#[tokio::test]
async fn defect_19_the_schema_rejects_what_the_server_rejects() {
    let world = World::new().await;
    let document = world.ask("GET", "/openapi.json", "").await;
    let validator = validator(&document, "JobRequest");
    for wrong in [
        json!({}),
        json!({"kind": ""}),
        json!({"kind": "a b"}),
        json!({"kind": "x".repeat(129)}),
        json!({"kind": "k", "lnae": "main"}),
        json!({"kind": "k", "agent": "é"}),
        json!({"kind": "k", "session": ""}),
        json!({"kind": "k", "session": {"key": "s", "max_concurrent": 0}}),
        json!({"kind": "k", "session": {"key": "s", "mode": "collect"}}),
        json!({"kind": "k", "priority": "soon"}),
        json!({"kind": "k", "keys": {"a": ""}}),
        json!({"kind": "k", "tags": ["ok", "no way"]}),
        json!({"kind": "k", "tags": vec!["t"; 17]}),
        json!({"kind": "k", "not_before": "tomorrow"}),
        json!({"kind": "k", "deadline": "2030-01-01"}),
        json!({"kind": "k", "timeout": "30"}),
        json!({"kind": "k", "timeout": "0s"}),
        json!({"kind": "k", "queue_timeout": "-1s"}),
        json!({"kind": "k", "quiet": "silent"}),
        json!({"kind": "k", "hours": "late"}),
        json!({"kind": "k", "cost": 101}),
        json!({"kind": "k", "retry": {"retries_max": 10_001}}),
        json!({"kind": "k", "retry": {"backoff": "fast"}}),
        json!({"kind": "k", "retry": {"backoff": {"factor": 0}}}),
        json!({"kind": "k", "retry": {"backoff": {"jitter": {"percent": 101}}}}),
    ] {
        let (status, problem) = answer(world.request("POST", "/v1/jobs").body(wrong.to_string())).await;
        assert_eq!(status, 400, "{wrong}: {problem}");
        assert!(!validator.is_valid(&wrong), "the schema allows {wrong}");
    }
}

#[tokio::test]
async fn defect_19_bounds_of_bodies_are_in_the_schema() {
    let world = World::new().await;
    let document = world.ask("GET", "/openapi.json", "").await;
    world.ask("PUT", "/v1/lanes/asked", r#"{"dispatch":"claim"}"#).await;
    let (job, token) = (
        |fields: Value| merged(json!({"kind": "k"}), fields),
        |lives: &str| json!({"role": "viewer", "tenant": "acme", "expires_in": lives}),
    );
    let schedule = |fields| merged(json!({"name": "s", "job": {"kind": "k"}}), fields);
    let backoff = |fields: Value| job(json!({"retry": {"backoff": fields}}));
    let session = |fields| job(json!({"session": merged(json!({"key": "s"}), fields)}));
    let lease = |kinds: usize| json!({"worker": "w", "lane": "asked", "kinds": vec!["k"; kinds]});
    for (schema, call, right, wrong) in [
        ("JobRequest", "POST /v1/jobs", job(json!({"timeout": "366d"})), job(json!({"timeout": "367d"}))),
        (
            "JobRequest",
            "POST /v1/jobs",
            job(json!({"timeout": "365d23h59m59s999ms"})),
            job(json!({"timeout": "366d1ms"})),
        ),
        ("JobRequest", "POST /v1/jobs", job(json!({"timeout": "8784h"})), job(json!({"timeout": "8785h"}))),
        (
            "JobRequest",
            "POST /v1/jobs",
            job(json!({"queue_timeout": "1ms"})),
            job(json!({"queue_timeout": "0ms"})),
        ),
        (
            "JobRequest",
            "POST /v1/jobs",
            job(json!({"not_before": "1970-01-01T00:00:00Z"})),
            job(json!({"not_before": "1969-12-31T23:59:59Z"})),
        ),
        (
            "JobRequest",
            "POST /v1/jobs",
            job(json!({"deadline": "9999-12-31T23:59:59Z"})),
            job(json!({"deadline": "9999-12-31T23:59:59-01:00"})),
        ),
        (
            "JobRequest",
            "POST /v1/jobs",
            backoff(json!({"max": "366d"})),
            backoff(json!({"max": "31622400001ms"})),
        ),
        (
            "JobRequest",
            "POST /v1/jobs",
            session(json!({"debounce": "10m"})),
            session(json!({"debounce": "601s"})),
        ),
        (
            "JobRequest",
            "POST /v1/jobs",
            session(json!({"debounce": "1s", "debounce_max": "1h"})),
            session(json!({"debounce": "1s", "debounce_max": "61m"})),
        ),
        (
            "ScheduleRequest",
            "POST /v1/schedules",
            schedule(json!({"every": "100ms"})),
            schedule(json!({"every": "99ms"})),
        ),
        (
            "ScheduleRequest",
            "POST /v1/schedules",
            schedule(json!({"name": "t", "every": "366d"})),
            schedule(json!({"every": "367d"})),
        ),
        (
            "ScheduleRequest",
            "POST /v1/schedules",
            schedule(json!({"name": "u", "every": "2d", "jitter": "24h"})),
            schedule(json!({"every": "2d", "jitter": "1441m"})),
        ),
        ("PreviewRequest", "POST /v1/schedules/preview", json!({"every": "100ms"}), json!({"every": "1ms"})),
        ("LaneRequest", "PUT /v1/lanes/made", json!({"retention": "3650d"}), json!({"retention": "3651d"})),
        ("LaneRequest", "PUT /v1/lanes/made", json!({"aging_step": "1ms"}), json!({"aging_step": "0s"})),
        ("LeaseRequest", "POST /v1/leases", lease(64), lease(65)),
    ] {
        let validator = validator(&document, schema);
        let (method, path) = call.split_once(' ').unwrap();
        let ask = async |body: &Value| answer(world.request(method, path).body(body.to_string())).await;
        let (status, problem) = ask(&right).await;
        let code = problem["code"].as_str().unwrap_or_default();
        assert!(status.is_success() || NOT_ABOUT_FORM.contains(&code), "{right}: {status} {problem}");
        assert!(validator.is_valid(&right), "the schema does not allow {right}");
        let (status, problem) = ask(&wrong).await;
        assert!([400, 422].contains(&status.as_u16()), "{wrong}: {status} {problem}");
        assert!(!validator.is_valid(&wrong), "the schema allows {wrong}");
    }
    let lanes = |count: usize| json!({"lanes": vec!["main"; count]});
    // The first token closes an open server, so these two are checked against the schema only.
    let tokens = validator(&document, "TokenRequest");
    assert!(tokens.is_valid(&token("366d")) && !tokens.is_valid(&token("367d")));
    let rebind = validator(&document, "RebindRequest");
    assert!(rebind.is_valid(&lanes(256)) && !rebind.is_valid(&lanes(257)));
}

fn merged(mut base: Value, more: Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

/// Parameters without constraints: cursors of the server, and names that are looked up.
const FREE_PARAMETERS: [&str; 2] = ["cursor", "Last-Event-ID"];

#[tokio::test]
async fn defect_19_every_parameter_has_a_constraint() {
    let world = World::new().await;
    let document = world.ask("GET", "/openapi.json", "").await;
    let (mut bare, mut seen) = (BTreeSet::new(), 0);
    for (path, operations) in document["paths"].as_object().unwrap() {
        for operation in operations.as_object().unwrap().values() {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap();
                let mut open = BTreeSet::new();
                find_open(name, &parameter["schema"], &mut open);
                seen += 1;
                if !open.is_empty() && !FREE_PARAMETERS.contains(&name) {
                    bare.insert(format!("{path} {name}"));
                }
            }
        }
    }
    assert!(seen > 100, "{seen}");
    assert!(bare.is_empty(), "add constraints for these to openapi/fields.rs: {bare:#?}");
}

#[tokio::test]
async fn defect_19_bounds_of_parameters_are_in_the_schema() {
    let world = World::new().await;
    let document = world.ask("GET", "/openapi.json", "").await;
    let id = world.submit(r#"{"kind":"unserved"}"#).await;
    for (path, parameter, right, wrong) in [
        ("/v1/jobs/{id}", "wait", "0s", "61s"),
        ("/v1/jobs/{id}", "wait", "0ms", "60001ms"),
        ("/v1/jobs", "limit", "500", "501"),
        ("/v1/jobs", "created_after", "1970-01-01T00:00:00Z", "1969-01-01T00:00:00Z"),
        ("/v1/jobs", "kind", "k", "a b"),
        ("/v1/audit", "action", "cmd.dispatch", "job.cancelled"),
        ("/v1/audit", "action", "job.canceled", "cmd"),
        ("/v1/jobs", "Laneway-Tenant", "default", "a b"),
    ] {
        let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        let schema = &parameters.iter().find(|one| one["name"] == parameter).unwrap()["schema"];
        let validator =
            jsonschema::draft202012::options().should_validate_formats(true).build(schema).unwrap();
        for (value, taken) in [(right, true), (wrong, false)] {
            let path = path.replace("{id}", &id);
            let request = match parameter {
                "Laneway-Tenant" => world.request("GET", &path).header(parameter, value),
                _ => world.request("GET", &format!("{path}?{parameter}={}", value.replace(' ', "%20"))),
            };
            let (status, problem) = answer(request).await;
            assert_eq!(status.is_success(), taken, "{parameter}={value}: {status} {problem}");
            let number = value.parse::<u64>().map(Value::from).ok().filter(|_| schema["type"] != "string");
            assert_eq!(
                validator.is_valid(&number.unwrap_or(json!(value))),
                taken,
                "{parameter}={value}: {schema}"
            );
        }
    }
}

/// A validator for one schema of the document, formats included.
fn validator(document: &Value, schema: &str) -> jsonschema::Validator {
    let root = json!({
        "$ref": format!("#/components/schemas/{schema}"),
        "components": document["components"],
    });
    jsonschema::draft202012::options().should_validate_formats(true).build(&root).unwrap()
}

//! The tools against the OpenAPI document, and arguments on their way into requests.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

fn call(tool: &str, arguments: Value) -> Result<Call, WrongArgument> {
    find(tool).unwrap().call(object(arguments))
}

fn path(tool: &str, arguments: Value) -> String {
    call(tool, arguments).unwrap().request.path
}

#[test]
fn tools_and_operations_have_the_same_order() {
    let listed: Vec<&str> = all().iter().map(|tool| &*tool.name).collect();
    let called: Vec<&str> = OPERATIONS.iter().map(|operation| operation.tool).collect();
    assert_eq!(listed, called);
}

#[test]
fn arguments_go_to_the_path_the_query_and_the_body() {
    assert_eq!(path("stop_session", json!({"key": "chat 42/../x"})), "/v1/sessions/chat%2042%2F..%2Fx/stop");
    let listed =
        path("list_jobs", json!({"state": ["queued", "running"], "limit": 5, "explain": true, "lane": null}));
    assert_eq!(listed, "/v1/jobs?explain=true&limit=5&state=queued%2Crunning");
    let submitted = call("submit_job", json!({"kind": "echo", "payload": {"n": 1}, "wait_s": 5})).unwrap();
    assert_eq!(submitted.wait_s, Some(5));
    assert_eq!(submitted.request.path, "/v1/jobs");
    let body: Value = serde_json::from_slice(&submitted.request.body.unwrap()).unwrap();
    assert_eq!(body, json!({"kind": "echo", "payload": {"n": 1}}));
    assert_eq!(call("submit_job", json!({"kind": "echo"})).unwrap().wait_s, None);
    assert_eq!(call("wait_for_job", json!({"id": "a"})).unwrap().wait_s, Some(WAIT_S_DEFAULT));
}

#[test]
fn arguments_that_fit_nowhere_are_named() {
    for (tool, arguments, field, code) in [
        ("get_job", json!({}), "id", "invalid_field"),
        ("get_job", json!({"id": 7}), "id", "invalid_field"),
        ("get_job", json!({"id": ".."}), "id", "invalid_field"),
        ("get_job", json!({"id": "a", "wait": "5s"}), "wait", "unknown_field"),
        ("list_jobs", json!({"lane": {"a": 1}}), "lane", "invalid_field"),
        ("wait_for_job", json!({"id": "a", "wait_s": 0}), "wait_s", "invalid_field"),
        ("wait_for_job", json!({"id": "a", "wait_s": 3601}), "wait_s", "invalid_field"),
        ("submit_job", json!({"kind": "echo", "wait_s": "5s"}), "wait_s", "invalid_field"),
    ] {
        let wrong = call(tool, arguments.clone()).unwrap_err();
        assert_eq!((wrong.field.as_str(), wrong.code), (field, code), "{tool} {arguments}");
    }
}

/// The bounds of a value that a tool must state as the API does.
const BOUNDS: [&str; 8] =
    ["type", "enum", "minimum", "maximum", "minLength", "maxLength", "maxItems", "maxProperties"];

/// A schema of the API without references, and without `null`: a tool leaves out what it does not set.
fn resolved(schema: &Value, api: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        return resolved(&api["components"]["schemas"][name.rsplit('/').next().unwrap()], api);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choices: Vec<Value> = choices
            .iter()
            .filter(|choice| choice["type"] != "null")
            .map(|choice| resolved(choice, api))
            .collect();
        return if choices.len() == 1 { choices[0].clone() } else { json!({"anyOf": choices}) };
    }
    let mut schema = schema.clone();
    for list in ["type", "enum"] {
        if let Some(items) = schema[list].as_array() {
            let items: Vec<Value> =
                items.iter().filter(|item| !item.is_null() && *item != "null").cloned().collect();
            schema[list] = if list == "type" && items.len() == 1 { items[0].clone() } else { json!(items) };
        }
    }
    schema
}

/// Collects where a schema of a tool says something else than the API.
fn compare(at: &str, tool: &Value, api_schema: &Value, api: &Value, offences: &mut Vec<String>) {
    let expected = resolved(api_schema, api);
    for bound in BOUNDS {
        let (ours, theirs) = (tool.get(bound), expected.get(bound).filter(|value| !value.is_null()));
        if ours != theirs {
            offences.push(format!("{at}: {bound} is {ours:?}, the API has {theirs:?}"));
        }
    }
    if let Some(pattern) = tool.get("pattern").filter(|pattern| Some(*pattern) != expected.get("pattern")) {
        offences.push(format!("{at}: the pattern {pattern} is not the API's"));
    }
    if let Some(choices) = tool["anyOf"].as_array() {
        for (index, choice) in choices.iter().enumerate() {
            compare(&format!("{at}.{index}"), choice, &expected["anyOf"][index], api, offences);
        }
    }
    if tool.get("items").is_some() {
        compare(&format!("{at}[]"), &tool["items"], &expected["items"], api, offences);
    }
    for (name, property) in tool["properties"].as_object().into_iter().flatten() {
        match expected["properties"].get(name) {
            Some(theirs) => compare(&format!("{at}.{name}"), property, theirs, api, offences),
            None => offences.push(format!("{at}.{name}: the API has no such field")),
        }
    }
    for name in expected["required"].as_array().into_iter().flatten() {
        if !tool["required"].as_array().is_some_and(|required| required.contains(name)) {
            offences.push(format!("{at}: the API requires {name}"));
        }
    }
}

/// The fields of an operation in one schema: its parameters, and its body.
fn fields_of(operation: &Value, api: &Value) -> Value {
    let mut fields = JsonObject::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        if parameter["in"] != "header" {
            fields.insert(parameter["name"].as_str().unwrap().to_owned(), parameter["schema"].clone());
        }
    }
    let body = resolved(&operation["requestBody"]["content"]["application/json"]["schema"], api);
    for (name, field) in body["properties"].as_object().into_iter().flatten() {
        fields.insert(name.clone(), field.clone());
    }
    json!({"type": "object", "properties": fields, "required": body["required"]})
}

#[test]
fn the_schemas_state_the_names_the_types_and_the_bounds_of_the_api() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/openapi.json");
    let api: Value = serde_json::from_str(&std::fs::read_to_string(document).unwrap()).unwrap();
    let mut offences = Vec::new();
    let mut compared = BTreeSet::new();
    for (tool, operation) in all().iter().zip(&OPERATIONS) {
        let method = if operation.method == Method::Get { "get" } else { "post" };
        let described = &api["paths"][operation.path][method];
        assert!(described.is_object(), "{} calls an operation that does not exist", operation.tool);
        let mut schema = Value::Object((*tool.input_schema).clone());
        if operation.waits != Waits::Never {
            let wait = schema["properties"].as_object_mut().unwrap().remove(WAIT).unwrap();
            assert_eq!((&wait["minimum"], &wait["maximum"]), (&json!(1), &json!(WAIT_S_MAX)));
        }
        for name in schema["properties"].as_object().unwrap().keys() {
            compared.insert(name.clone());
        }
        compare(operation.tool, &schema, &fields_of(described, &api), &api, &mut offences);
    }
    assert!(compared.len() > 30, "only {compared:?} were compared");
    assert!(offences.is_empty(), "\n{}", offences.join("\n"));
}

#[test]
fn every_tool_and_every_argument_is_described() {
    for tool in all() {
        assert!(tool.description.as_ref().is_some_and(|text| text.len() > 20), "{}", tool.name);
        assert!(
            tool.annotations.as_ref().is_some_and(|hints| hints.read_only_hint.is_some()),
            "{}",
            tool.name
        );
        for (name, schema) in tool.input_schema["properties"].as_object().unwrap() {
            assert!(
                schema["description"].as_str().is_some_and(|text| text.len() > 10),
                "{}.{name}",
                tool.name
            );
        }
    }
}

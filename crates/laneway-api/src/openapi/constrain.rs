//! Adds the constraints of `fields.rs` to the document.

use serde_json::{Map, Value};

use super::fields;

/// Adds vocabularies, formats, patterns and bounds to every schema and parameter of a document.
pub fn constrain(document: &mut Value) {
    let schemas = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut);
    for (name, schema) in schemas.into_iter().flatten() {
        constrain_schema(name, schema);
    }
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (path, operations) in paths.into_iter().flatten() {
        for operation in operations.as_object_mut().into_iter().flat_map(Map::values_mut) {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap_or_default().to_owned();
                if let (Some(rule), Some(schema)) =
                    (fields::of_parameter(path, &name), parameter.get_mut("schema"))
                {
                    add(schema, &rule);
                }
            }
        }
    }
}

fn constrain_schema(name: &str, schema: &mut Value) {
    if let Some(rule) = fields::of_schema(name, "") {
        match schema.get_mut("oneOf").and_then(Value::as_array_mut) {
            // The rule applies to the form that is a string.
            Some(shapes) => {
                shapes.iter_mut().filter(|shape| is(shape, "string")).for_each(|shape| add(shape, &rule))
            }
            None => add(schema, &rule),
        }
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (field, property) in properties.into_iter().flatten() {
        let is_value =
            ["string", "integer", "number", "array", "object"].iter().any(|kind| is(property, kind));
        if let Some(rule) = fields::of_schema(name, field).filter(|rule| is_value && fits(property, rule)) {
            add(property, &rule);
        }
    }
}

/// True for a schema of this type, nullable or not.
fn is(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == kind,
        Value::Array(kinds) => kinds.iter().any(|one| one == kind),
        _ => false,
    }
}

/// Rules for strings are found by name, and do not apply to a number of the same name.
fn fits(property: &Value, rule: &Value) -> bool {
    let about_texts = ["enum", "pattern", "format", "minLength", "maxLength"];
    is(property, "string") || !about_texts.iter().any(|key| rule.get(key).is_some())
}

/// Merges the keys of a rule into a schema. The vocabulary of a nullable field includes null.
fn add(schema: &mut Value, rule: &Value) {
    let nullable = is(schema, "null");
    let Some(schema) = schema.as_object_mut() else { return };
    for (key, value) in rule.as_object().into_iter().flatten() {
        match schema.get_mut(key) {
            // The field keeps its own description.
            Some(Value::String(description)) if key == "description" => {
                *description = format!("{} {}", description.trim_end(), value.as_str().unwrap_or_default());
            }
            Some(below @ Value::Object(_)) if value.is_object() => add(below, value),
            _ => {
                let mut value = value.clone();
                if let (true, "enum", Value::Array(values)) = (nullable, key.as_str(), &mut value) {
                    values.push(Value::Null);
                }
                schema.insert(key.clone(), value);
            }
        }
    }
}

//! Checks frames against the published schemas. For tests of both sides of the worker protocol (feature `schemas`).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

use super::schema::{file_name, schemas};

/// Validates the envelope of a frame first, then its payload. The error names the violation.
pub fn check_schema(frame: &str) -> Result<(), String> {
    static VALIDATORS: OnceLock<BTreeMap<String, Validator>> = OnceLock::new();
    let validators = VALIDATORS.get_or_init(|| {
        let options = || jsonschema::draft202012::options().should_validate_formats(true);
        let validator =
            |schema: &Value| options().build(schema).expect("a published schema is a valid schema");
        schemas().into_iter().map(|(name, schema)| (name, validator(&schema))).collect()
    });
    let frame: Value = serde_json::from_str(frame).map_err(|error| error.to_string())?;
    let kind = frame["type"].as_str().ok_or("`type` is not a string")?;
    for (name, part) in [("envelope", &frame), (kind, &frame["payload"])] {
        let validator =
            validators.get(&file_name(name)).ok_or_else(|| format!("the type {name:?} is unknown"))?;
        validator.validate(part).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

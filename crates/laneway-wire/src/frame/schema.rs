//! The JSON Schemas (2020-12) of the envelope and of every payload, generated from the types that read them.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::Envelope;
use super::message::MessageType;

/// The schemas: file name and content, the envelope first. No schema refers to another file.
pub fn schemas() -> Vec<(String, Value)> {
    let envelope = generator().into_root_schema_for::<Envelope<'_>>();
    let mut files = vec![finish("envelope", envelope)];
    files.extend(MessageType::ALL.into_iter().map(|kind| finish(kind.as_str(), kind.schema(generator()))));
    files
}

/// The file name of the schema of a type, or of the envelope.
pub(super) fn file_name(name: &str) -> String {
    format!("ws.{name}.schema.json")
}

fn generator() -> schemars::SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| {
            // No schema has definitions to look up.
            settings.inline_subschemas = true;
        })
        .into_generator()
}

/// Sets the title of a schema. The names of Rust types mean nothing to readers of schemas.
fn finish(name: &str, mut schema: schemars::Schema) -> (String, Value) {
    let file = file_name(name);
    schema.insert("$id".to_owned(), file.as_str().into());
    schema.insert("title".to_owned(), name.into());
    (file, schema.to_value())
}

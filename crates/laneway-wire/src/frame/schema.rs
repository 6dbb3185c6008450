//! The JSON Schemas (2020-12) of the envelope and of every payload, generated from the types that read them.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::message::MessageType;
use super::resource::DATA_LEN_MAX;
use super::*;

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

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| {
            // No schema has definitions to look up.
            settings.inline_subschemas = true;
        })
        .into_generator()
}

/// Sets the title of a schema. The names of Rust types mean nothing to readers of schemas.
fn finish(name: &str, mut schema: Schema) -> (String, Value) {
    let file = file_name(name);
    schema.insert("$id".to_owned(), file.as_str().into());
    schema.insert("title".to_owned(), name.into());
    (file, schema.to_value())
}

impl MessageType {
    /// The schema of the payload.
    fn schema(self, generator: SchemaGenerator) -> Schema {
        fn of<T: JsonSchema>(generator: SchemaGenerator) -> Schema {
            generator.into_root_schema_for::<T>()
        }
        match self {
            MessageType::Handshake => of::<Handshake>(generator),
            MessageType::Register => of::<Register>(generator),
            MessageType::Ack => of::<Ack>(generator),
            MessageType::Heartbeat => of::<Heartbeat>(generator),
            MessageType::Dispatch => of::<Dispatch>(generator),
            MessageType::Cancel => of::<Cancel>(generator),
            MessageType::Drain => of::<Drain>(generator),
            MessageType::Feedback => of::<Feedback>(generator),
            MessageType::Result => of::<TaskResult>(generator),
            MessageType::Error => of::<ErrorReport>(generator),
            MessageType::Install => of::<Install>(generator),
            MessageType::Uninstall => of::<Uninstall>(generator),
            MessageType::PackageEvent => of::<PackageEvent>(generator),
            MessageType::NextRequest => of::<NextRequest>(generator),
            MessageType::NextResponse => of::<NextResponse>(generator),
            MessageType::ResourceRead => of::<ResourceRead>(generator),
            MessageType::ResourceData => of::<ResourceData>(generator),
        }
    }
}

impl JsonSchema for Text {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "maxLength": TEXT_LEN_MAX})
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

impl JsonSchema for JsonObject {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "JsonObject".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object"})
    }
}

impl<T: JsonSchema, const MIN: usize, const MAX: usize> JsonSchema for List<T, MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("List_of_{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        let mut schema = json_schema!({"type": "array", "items": items, "maxItems": MAX});
        if MIN > 0 {
            schema.insert("minItems".to_owned(), MIN.into());
        }
        schema
    }
}

impl<V: JsonSchema, const MAX: usize> JsonSchema for Table<V, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Table_of_{}", V::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let values = generator.subschema_for::<V>();
        let names = generator.subschema_for::<Text>();
        json_schema!({
            "type": "object", "additionalProperties": values, "propertyNames": names, "maxProperties": MAX
        })
    }
}

pub(super) fn text_or_data(schema: &mut Schema) {
    schema.insert("not".to_owned(), serde_json::json!({"required": ["text", "data_base64"]}));
}

pub(super) fn url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "uri"})
}

pub(super) fn data_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "maxLength": DATA_LEN_MAX,
        "description": "The bytes, as base64: at most the requested number, and none only past the end."
    })
}

/// The schema of an id that may be absent.
pub(super) fn id_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "maxLength": TEXT_LEN_MAX})
}

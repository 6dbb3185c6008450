//! Frames by which a worker tells how a task goes and how it ended, and by which either side says what went wrong.

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::session::METRICS_MAX;
use super::text::{self, JsonObject, List, Table, Text, Timestamp};

/// Most chunks in one frame.
pub const CHUNKS_MAX: usize = 256;
/// Most artifacts of one result.
pub const ARTIFACTS_MAX: usize = 256;

/// How a task goes. May be lost; says nothing final.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    /// The run that the task is part of.
    pub run_id: Text,
    /// The task.
    pub task_id: Text,
    /// Where in its life the task is, such as `running`, `streaming`, `waiting_inputs`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub stage: Option<Text>,
    /// How far it is, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::fraction")]
    #[schemars(with = "f64", range(min = 0.0, max = 1.0))]
    pub progress: Option<f64>,
    /// How it goes, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub message: Option<String>,
    /// What it writes, in order.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_objects")]
    #[schemars(with = "List<Chunk, 0, CHUNKS_MAX>")]
    pub chunks: Option<List<Chunk, 0, CHUNKS_MAX>>,
    /// Figures of its own, such as a loss or a rate.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Table<f64, METRICS_MAX>")]
    pub metrics: Option<Table<f64, METRICS_MAX>>,
    /// Whatever else; `results` is merged into what the task has given so far.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub metadata: Option<JsonObject>,
}

/// A piece of what a task writes: text, or bytes as base64, never both.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(transform = text_or_data)]
#[serde(deny_unknown_fields)]
pub struct Chunk {
    /// Where it belongs.
    pub channel: Channel,
    /// Its place in its channel, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", default)]
    pub index: Option<u64>,
    /// What sort of data it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", default)]
    pub mime_type: Option<String>,
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", default)]
    pub text: Option<String>,
    /// Bytes, as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", default)]
    pub data_base64: Option<String>,
    /// Whatever else; `terminal: true` ends the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JsonObject", default)]
    pub metadata: Option<JsonObject>,
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Chunk, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            channel: Channel,
            #[serde(default, deserialize_with = "text::present")]
            index: Option<u64>,
            #[serde(default, deserialize_with = "text::present")]
            mime_type: Option<String>,
            #[serde(default, deserialize_with = "text::present")]
            text: Option<String>,
            #[serde(default, deserialize_with = "text::present")]
            data_base64: Option<String>,
            #[serde(default, deserialize_with = "text::present")]
            metadata: Option<JsonObject>,
        }
        let Fields { channel, index, mime_type, text, data_base64, metadata } =
            Fields::deserialize(deserializer)?;
        if text.is_some() && data_base64.is_some() {
            return Err(D::Error::custom("has both `text` and `data_base64`; give one of them"));
        }
        Ok(Chunk { channel, index, mime_type, text, data_base64, metadata })
    }
}

fn text_or_data(schema: &mut schemars::Schema) {
    schema.insert("not".to_owned(), serde_json::json!({"required": ["text", "data_base64"]}));
}

/// Where a chunk belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Log lines.
    Log,
    /// What a language model writes.
    Llm,
    /// Figures.
    Metric,
    /// Anything else.
    Custom,
}

impl Channel {
    /// All of them.
    pub const ALL: [Channel; 6] =
        [Channel::Stdout, Channel::Stderr, Channel::Log, Channel::Llm, Channel::Metric, Channel::Custom];

    /// The channel as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Channel::Stdout => "stdout",
            Channel::Stderr => "stderr",
            Channel::Log => "log",
            Channel::Llm => "llm",
            Channel::Metric => "metric",
            Channel::Custom => "custom",
        }
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    /// The run that the task is part of.
    pub run_id: Text,
    /// The task; the envelope's `seq` names the attempt.
    pub task_id: Text,
    /// How it ended.
    pub status: ResultStatus,
    /// What it gave; `{}` where nothing.
    pub result: JsonObject,
    /// How long it ran.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "u64")]
    pub duration_ms: Option<u64>,
    /// Whatever else; `retryable` says whether trying a failed task again may help.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub metadata: Option<JsonObject>,
    /// What it made.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_objects")]
    #[schemars(with = "List<Artifact, 0, ARTIFACTS_MAX>")]
    pub artifacts: Option<List<Artifact, 0, ARTIFACTS_MAX>>,
    /// What went wrong, with `FAILED` and `CANCELLED`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_object")]
    #[schemars(with = "ResultError")]
    pub error: Option<ResultError>,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ResultStatus {
    /// It did what it should.
    Succeeded,
    /// It did not.
    Failed,
    /// There was nothing to do; what depends on it goes on.
    Skipped,
    /// It was told to stop, and did.
    Cancelled,
}

/// Something that a task made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Its name in the worker's resource registry.
    pub resource_id: Text,
    /// The worker that has it.
    pub worker_id: Text,
    /// What sort of thing it is.
    pub r#type: Text,
    /// How large it is.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "u64")]
    pub size_bytes: Option<u64>,
    /// True where the result holds the data itself.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "bool")]
    pub inline: Option<bool>,
    /// When it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Timestamp")]
    pub expires_at: Option<Timestamp>,
    /// Whatever else is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub metadata: Option<JsonObject>,
}

/// What went wrong with a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultError {
    /// A stable word: one of the protocol's codes, or the handler's own.
    pub code: Text,
    /// What happened, for people.
    pub message: String,
    /// What helps, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub remediation: Option<String>,
}

/// A frame or a command could not be done. Also read under the type `command.error`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorReport {
    /// A stable word: one of the protocol's codes, or another one.
    pub code: Text,
    /// What happened, for people.
    #[serde(deserialize_with = "text::prose")]
    #[schemars(length(min = 1))]
    pub message: String,
    /// What helps, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub remediation: Option<String>,
    /// Where it happened.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_object")]
    #[schemars(with = "ErrorContext")]
    pub context: Option<ErrorContext>,
}

/// Where something went wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorContext {
    /// The part that says so, such as `worker.runner`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub r#where: Option<String>,
    /// Whatever helps to understand it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub details: Option<JsonObject>,
}

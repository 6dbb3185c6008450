//! Frames with reports of tasks, and error reports of either side.

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::session::METRICS_MAX;
use super::text::{self, JsonObject, List, Table, Text, Timestamp};

/// The largest number of chunks in a frame.
pub const CHUNKS_MAX: usize = 256;
/// The largest number of artifacts of a result.
pub const ARTIFACTS_MAX: usize = 256;

/// A progress report. It may be lost, and it is never final.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    /// The run that the task is part of.
    pub run_id: Text,
    /// The task.
    pub task_id: Text,
    /// The stage of the task, such as `running`, `streaming`, `waiting_inputs`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub stage: Option<Text>,
    /// The progress, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::fraction")]
    #[schemars(with = "f64", range(min = 0.0, max = 1.0))]
    pub progress: Option<f64>,
    /// A message for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub message: Option<String>,
    /// The output of the task, in order.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_objects")]
    #[schemars(with = "List<Chunk, 0, CHUNKS_MAX>")]
    pub chunks: Option<List<Chunk, 0, CHUNKS_MAX>>,
    /// Metrics of the task, such as a loss or a rate.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Table<f64, METRICS_MAX>")]
    pub metrics: Option<Table<f64, METRICS_MAX>>,
    /// Further metadata. `results` is merged into the task's results so far.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub metadata: Option<JsonObject>,
}

/// A piece of the output of a task: text, or bytes as base64, never both.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(transform = super::schema::text_or_data)]
#[serde(deny_unknown_fields)]
pub struct Chunk {
    /// Its channel.
    pub channel: Channel,
    /// Its index in the channel, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", default)]
    pub index: Option<u64>,
    /// The media type of the data.
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
    /// Further metadata. `terminal: true` ends the channel.
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

/// The channel of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Log lines.
    Log,
    /// The output of a language model.
    Llm,
    /// Metrics.
    Metric,
    /// Anything else.
    Custom,
}

impl Channel {
    /// All of them.
    pub const ALL: [Channel; 6] =
        [Channel::Stdout, Channel::Stderr, Channel::Log, Channel::Llm, Channel::Metric, Channel::Custom];

    /// The name on the wire.
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

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    /// The run that the task is part of.
    pub run_id: Text,
    /// The task; the envelope's `seq` names the attempt.
    pub task_id: Text,
    /// The status.
    pub status: ResultStatus,
    /// The result. `{}` when there is none.
    pub result: JsonObject,
    /// How long the task ran, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "u64")]
    pub duration_ms: Option<u64>,
    /// Further metadata. `retryable` says whether a retry of a failed task may help.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub metadata: Option<JsonObject>,
    /// The artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_objects")]
    #[schemars(with = "List<Artifact, 0, ARTIFACTS_MAX>")]
    pub artifacts: Option<List<Artifact, 0, ARTIFACTS_MAX>>,
    /// The error, with `FAILED` and `CANCELLED`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_object")]
    #[schemars(with = "ResultError")]
    pub error: Option<ResultError>,
}

/// The status of a task that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ResultStatus {
    /// The task succeeded.
    Succeeded,
    /// The task failed.
    Failed,
    /// The task had nothing to do. Nodes that depend on it go on.
    Skipped,
    /// The task stopped on request.
    Cancelled,
}

/// An artifact of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Its name in the worker's resource registry.
    pub resource_id: Text,
    /// The worker that has it.
    pub worker_id: Text,
    /// The type of the artifact.
    pub r#type: Text,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "u64")]
    pub size_bytes: Option<u64>,
    /// True when the result contains the data itself.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "bool")]
    pub inline: Option<bool>,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Timestamp")]
    pub expires_at: Option<Timestamp>,
    /// Further metadata.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub metadata: Option<JsonObject>,
}

/// The error of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultError {
    /// A stable code: one of the protocol's codes, or one of the handler.
    pub code: Text,
    /// What happened, for people.
    pub message: String,
    /// The remedy, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub remediation: Option<String>,
}

/// A frame or a command failed. Also read under the type `command.error`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorReport {
    /// A stable code: one of the protocol's codes, or another one.
    pub code: Text,
    /// What happened, for people.
    #[serde(deserialize_with = "text::prose")]
    #[schemars(length(min = 1))]
    pub message: String,
    /// The remedy, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub remediation: Option<String>,
    /// Where it happened.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_object")]
    #[schemars(with = "ErrorContext")]
    pub context: Option<ErrorContext>,
}

/// The context of an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorContext {
    /// The part that reports it, such as `worker.runner`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub r#where: Option<String>,
    /// Further details.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub details: Option<JsonObject>,
}

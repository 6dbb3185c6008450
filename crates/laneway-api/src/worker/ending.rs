//! Converts a worker's result: the outcome of the attempt, its artifacts, and its metadata.

use laneway_core::{Bytes, Failure, Name, Outcome};
use laneway_runtime::feedback::report_line;
use laneway_wire::frame::{Artifact, ErrorCode, ErrorReport, ResultError, ResultStatus, TaskResult};
use serde_json::{Map, Value, json};

/// The longest stored result, in bytes.
pub const RESULT_LEN_MAX: usize = 1 << 20;
/// The longest stored description of an artifact, in bytes.
const ARTIFACT_LEN_MAX: usize = 8 << 10;
/// The longest stored message of a failure, in bytes. The rest is cut.
pub const MESSAGE_LEN_MAX: usize = 4 << 10;
/// The longest stored detail of a failure, in bytes. The result is omitted from a longer one.
const DETAIL_LEN_MAX: usize = 256 << 10;

/// The end of an attempt, as its worker reported it.
pub struct TaskOutcome {
    /// The outcome.
    pub outcome: Outcome,
    /// The artifacts, each as JSON.
    pub artifacts: Vec<Box<str>>,
    /// The metadata, as a line of the job's log.
    pub reported: Option<Box<str>>,
}

impl From<Outcome> for TaskOutcome {
    fn from(outcome: Outcome) -> TaskOutcome {
        TaskOutcome { outcome, artifacts: Vec::new(), reported: None }
    }
}

impl TaskOutcome {
    /// Converts a result.
    pub fn of(result: TaskResult) -> TaskOutcome {
        let TaskResult { status, result, metadata, artifacts, error, .. } = result;
        let made = |artifacts: &[Artifact]| artifacts.iter().filter_map(encoded).collect();
        let metadata: Option<Map<String, Value>> =
            metadata.and_then(|metadata| serde_json::from_str(metadata.get()).ok());
        let outcome = match status {
            ResultStatus::Succeeded | ResultStatus::Skipped => succeeded(status, result.get()),
            ResultStatus::Cancelled => Outcome::Canceled,
            ResultStatus::Failed => {
                let retryable = metadata.as_ref().and_then(|metadata| metadata.get("retryable")?.as_bool());
                Outcome::Failed(failed(result.get(), error, retryable.unwrap_or(true)))
            }
        };
        let reported = metadata.filter(|metadata| !metadata.is_empty());
        TaskOutcome {
            outcome,
            artifacts: artifacts.as_deref().map(made).unwrap_or_default(),
            reported: reported.map(|metadata| report_line(&json!({ "metadata": metadata })).into()),
        }
    }
}

fn succeeded(status: ResultStatus, json: &str) -> Outcome {
    if json.len() > RESULT_LEN_MAX {
        let message = format!(
            "the result has {} bytes; at most {RESULT_LEN_MAX} are stored; return large data as an artifact",
            json.len()
        );
        return Outcome::Failed(Failure::permanent("result_too_large", message));
    }
    let result = Some(json.as_bytes().into());
    match status {
        ResultStatus::Skipped => Outcome::Skipped(result),
        _ => Outcome::Succeeded(result),
    }
}

/// A failure with everything that its worker reported. Without an `error`, the result may have the cause.
fn failed(json: &str, error: Option<ResultError>, retryable: bool) -> Failure {
    let result: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
    let (code, message, remediation) = match error {
        Some(error) => (code_name(&error.code), error.message, error.remediation),
        None => {
            let report = result.get("error").or(result.get("message"));
            let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            let message = report.and_then(|report| text(report).or_else(|| text(report.get("message")?)));
            let code = report.and_then(|report| text(report.get("code")?));
            let code = code.unwrap_or_else(|| ErrorCode::RunnerFailure.as_str().to_owned());
            (code_name(&code), message.unwrap_or_else(|| "the worker gave no reason".to_owned()), None)
        }
    };
    let detail = Detail { result: (!result.is_empty()).then_some(result), remediation, ..Detail::default() };
    Failure {
        code,
        message: cut(&message, MESSAGE_LEN_MAX).into(),
        retryable,
        detail: detail.encoded(),
        retry_after: None,
    }
}

/// The details of a failure beside its code and message.
#[derive(Default)]
pub struct Detail {
    result: Option<Map<String, Value>>,
    remediation: Option<String>,
    part: Option<String>,
    details: Option<Value>,
}

impl Detail {
    /// The details of an `error` frame.
    pub fn of_report(error: &ErrorReport) -> Option<Bytes> {
        let context = error.context.as_ref();
        let details = context.and_then(|context| context.details.as_ref());
        let detail = Detail {
            remediation: error.remediation.clone(),
            part: context.and_then(|context| context.r#where.clone()),
            details: details.and_then(|details| serde_json::from_str(details.get()).ok()),
            ..Detail::default()
        };
        detail.encoded()
    }

    /// The detail as JSON, bounded. A part that does not fit is omitted and marked.
    fn encoded(self) -> Option<Bytes> {
        let Detail { result, remediation, part, details } = self;
        let mut all = Map::new();
        let remediation = remediation.map(|text| cut(&text, MESSAGE_LEN_MAX).into());
        let part = part.map(|text| cut(&text, MESSAGE_LEN_MAX).into());
        for (name, value) in [("remediation", remediation), ("where", part), ("details", details)] {
            all.extend(value.map(|value: Value| (name.to_owned(), value)));
        }
        all.extend(result.map(|result| ("result".to_owned(), Value::Object(result))));
        for large in ["result", "details"] {
            let len = Value::Object(all.clone()).to_string().len();
            if len > DETAIL_LEN_MAX && all.remove(large).is_some() {
                all.insert("left_out".to_owned(), format!("{large}: {len} bytes").into());
            }
        }
        (!all.is_empty()).then(|| Value::Object(all).to_string().into_bytes().into())
    }
}

/// An artifact as JSON. Metadata that is too long is omitted.
fn encoded(artifact: &Artifact) -> Option<Box<str>> {
    let json = serde_json::to_string(artifact).ok()?;
    if json.len() <= ARTIFACT_LEN_MAX {
        return Some(json.into());
    }
    serde_json::to_string(&Artifact { metadata: None, ..artifact.clone() }).ok().map(Box::from)
}

/// A worker's code as a name. An invalid code becomes a fixed name.
pub fn code_name(code: &str) -> Name {
    Name::new(cut(code, Name::LEN_MAX)).unwrap_or_else(|_| Name::fixed("E.RUNNER.FAILURE"))
}

/// The longest prefix of `text` with at most `len_max` bytes.
pub fn cut(text: &str, len_max: usize) -> &str {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

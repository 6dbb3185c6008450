//! Runs the steps of a script, one after the other.

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ARTIFACT_BYTES_MAX, Script, ScriptError, ScriptOutput, Step};
use crate::page::{Page, PageError, PageLimits, bytes_of};

impl Script {
    /// Runs the steps. The result is `{"results": {…}, "artifacts": […], "steps": n}`: the results of steps with a name, and the names of
    /// screenshots and PDFs.
    pub async fn run(
        &self,
        page: &Page,
        out: &dyn ScriptOutput,
        stop: &CancellationToken,
    ) -> Result<Value, ScriptError> {
        let deadline = Instant::now() + self.time;
        let mut kept =
            Kept { results: Map::new(), artifacts: Vec::new(), result_bytes: 0, artifact_bytes: 0 };
        for (at, step) in self.steps.iter().enumerate() {
            let kind = step.action.kind();
            out.log(&format!("steps[{at}] {kind}"));
            let start = Instant::now();
            let result = self.act(at, step, page, deadline, stop).await?;
            log_dialogs(at, &result, out);
            kept.keep(self, at, step, result, out)?;
            out.log(&format!("steps[{at}] {kind} done in {} ms", start.elapsed().as_millis()));
        }
        Ok(json!({"results": kept.results, "artifacts": kept.artifacts, "steps": self.steps.len()}))
    }

    async fn act(
        &self,
        at: usize,
        step: &Step,
        page: &Page,
        deadline: Instant,
        stop: &CancellationToken,
    ) -> Result<Value, ScriptError> {
        let time_left = deadline.saturating_duration_since(Instant::now());
        let limits = PageLimits {
            time: step.time.min(time_left),
            result_bytes: self.result_bytes,
            ..PageLimits::default()
        };
        let kind = step.action.kind();
        page.act(&step.action, &limits, stop).await.map_err(|error| match error {
            PageError::Canceled => ScriptError::Canceled,
            // The step had less time than its own limit.
            error if error.is_timeout() && time_left <= step.time => {
                ScriptError::TimedOut { step: at, kind, limit_ms: self.time.as_millis() as u64 }
            }
            source => ScriptError::Step { step: at, kind, source },
        })
    }
}

/// What a script has produced so far.
struct Kept {
    results: Map<String, Value>,
    artifacts: Vec<String>,
    result_bytes: usize,
    artifact_bytes: usize,
}

impl Kept {
    fn keep(
        &mut self,
        script: &Script,
        at: usize,
        step: &Step,
        result: Value,
        out: &dyn ScriptOutput,
    ) -> Result<(), ScriptError> {
        let kind = step.action.kind();
        if step.is_capture() {
            return self.keep_artifact(at, step, &result, out);
        }
        let Some(name) = &step.name else { return Ok(()) };
        self.result_bytes += name.len() + result.to_string().len();
        if self.result_bytes > script.result_bytes {
            return Err(ScriptError::ResultsTooLarge { step: at, kind, bytes_max: script.result_bytes });
        }
        // What was asked for, without the object around it.
        let value = match result {
            Value::Object(mut fields) if kind == "extract" => fields.remove("value").unwrap_or_default(),
            Value::Object(mut fields) if kind == "evaluate" => fields.remove("result").unwrap_or_default(),
            other => other,
        };
        self.results.insert(name.clone(), value);
        Ok(())
    }

    fn keep_artifact(
        &mut self,
        at: usize,
        step: &Step,
        result: &Value,
        out: &dyn ScriptOutput,
    ) -> Result<(), ScriptError> {
        let kind = step.action.kind();
        let format = result["format"].as_str().unwrap_or("bin");
        let name = match &step.name {
            Some(name) if name.ends_with(&format!(".{format}")) => name.clone(),
            Some(name) => format!("{name}.{format}"),
            None => format!("{kind}-{at}.{format}"),
        };
        let failed = |reason: String| ScriptError::Artifact { step: at, kind, name: name.clone(), reason };
        let Some((bytes, content_type)) = bytes_of(result) else {
            return Err(failed("the browser sent no data".to_owned()));
        };
        self.artifact_bytes += bytes.len();
        if self.artifact_bytes > ARTIFACT_BYTES_MAX {
            return Err(failed(format!("the artifacts have more than {ARTIFACT_BYTES_MAX} bytes together")));
        }
        out.artifact(&name, content_type, bytes).map_err(failed)?;
        self.artifacts.push(name);
        Ok(())
    }
}

fn log_dialogs(at: usize, result: &Value, out: &dyn ScriptOutput) {
    for dialog in result["dialogs"].as_array().into_iter().flatten() {
        let text = |field: &str| dialog[field].as_str().unwrap_or_default();
        out.log(&format!("steps[{at}] the page opened a dialog ({}): {}", text("type"), text("message")));
    }
}

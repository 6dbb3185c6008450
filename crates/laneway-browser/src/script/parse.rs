//! Reads a script. Every error names the step and the field.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::{ARTIFACTS_MAX, BadScript, RESULT_BYTES_MAX, STEPS_MAX, Script, Step, TIME_MAX};
use crate::page::fields::Fields;
use crate::page::{BadAction, PageAction};

/// The longest name of a result, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// The time limit of a script that gives none: the default of the kind `script_run`.
const TIME_DEFAULT: Duration = Duration::from_secs(300);
/// The time limit of a step that gives none.
const STEP_TIME_DEFAULT: Duration = Duration::from_secs(30);

impl Script {
    /// Reads a script: `{"steps": [{"kind": "navigate", "url": "…"}, …]}`. Its other fields are `timeoutMs`, `stepTimeoutMs` and
    /// `resultBytesMax`. Unknown fields are errors.
    pub fn parse(script: &Value) -> Result<Script, BadScript> {
        let of_script = |bad: BadAction| BadScript { step: None, field: bad.field, reason: bad.reason };
        let fields = Fields::new(script, "script").map_err(of_script)?;
        let time_max = TIME_MAX.as_millis() as f64;
        let millis = |name, default: Duration| {
            let number = fields.number(name, 1.0, time_max).map_err(of_script)?;
            Ok(number.map_or(default, |ms| Duration::from_millis(ms as u64)))
        };
        let time = millis("timeoutMs", TIME_DEFAULT)?;
        let step_time = millis("stepTimeoutMs", STEP_TIME_DEFAULT)?;
        let result_bytes =
            fields.number("resultBytesMax", 1.0, RESULT_BYTES_MAX as f64).map_err(of_script)?;
        let bad = |reason: String| BadScript { step: None, field: "steps".to_owned(), reason };
        let steps = fields.value("steps").ok_or_else(|| bad("it is required".to_owned()))?;
        fields.no_others().map_err(of_script)?;
        let steps = steps.as_array().ok_or_else(|| bad("it must be a list".to_owned()))?;
        if steps.is_empty() || steps.len() > STEPS_MAX {
            return Err(bad(format!("it must have 1 to {STEPS_MAX} steps, and has {}", steps.len())));
        }
        let mut names = BTreeSet::new();
        let mut read = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            let of_step = |bad: BadAction| BadScript { step: Some(at), field: bad.field, reason: bad.reason };
            let step = Step::read(step, step_time).map_err(of_step)?;
            if let Some(name) = &step.name
                && !names.insert(name.clone())
            {
                let reason = format!("another step has the name {name:?}, too");
                return Err(BadScript { step: Some(at), field: "name".to_owned(), reason });
            }
            read.push(step);
        }
        if read.iter().filter(|step| step.is_capture()).count() > ARTIFACTS_MAX {
            return Err(bad(format!("it has more than {ARTIFACTS_MAX} screenshots and PDFs")));
        }
        Ok(Script {
            steps: read,
            time,
            result_bytes: result_bytes.map_or(RESULT_BYTES_MAX, |bytes| bytes as usize),
        })
    }

    /// True if a step runs JavaScript of the caller, for which a role may be needed.
    pub fn runs_javascript(&self) -> bool {
        self.steps.iter().any(|step| step.action.runs_javascript())
    }

    /// The time limit of the whole script.
    pub fn time(&self) -> Duration {
        self.time
    }
}

impl Step {
    fn read(step: &Value, default_time: Duration) -> Result<Step, BadAction> {
        let fields = Fields::new(step, "step")?;
        let action = PageAction::read(&fields)?;
        let name = fields.text("name")?;
        if let Some(name) = &name {
            // The name becomes a part of a file name.
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_plain || name.starts_with('.') {
                let reason = format!(
                    "{name:?}: it must have 1 to {NAME_BYTES_MAX} letters, digits, dots, dashes or underscores, and begin with no dot"
                );
                return Err(BadAction { field: "name".to_owned(), reason });
            }
        }
        let time = fields.number("timeoutMs", 1.0, TIME_MAX.as_millis() as f64)?;
        fields.no_others()?;
        let time = time.map_or(default_time, |ms| Duration::from_millis(ms as u64));
        Ok(Step { action, name, time })
    }

    /// True for a screenshot or a PDF.
    pub(super) fn is_capture(&self) -> bool {
        matches!(self.action.kind(), "screenshot" | "pdf")
    }
}

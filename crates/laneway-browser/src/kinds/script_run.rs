//! The kind `script_run`: a script of steps on a page, or a program with the DevTools URL in its environment.
//!
//! Both run code of the submitter, so the submitter needs the role `browsers.script_role`. It is looked up here, by the name of
//! the submitter that the job carries: whichever way the job came, its payload is no way around the role. Only a time limit is a
//! reason to try again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use laneway_core::{Failure, Outcome};
use laneway_runtime::executors::JobContext;
use serde_json::{Value, json};

use super::{NotDone, SCRIPT_TIMEOUT_MAX_SECS, ScriptPayload, ScriptWork, program, succeeded};
use crate::browsers::Browsers;
use crate::fleet::Running;
use crate::page::Page;
use crate::script::{Script, ScriptError, ScriptOutput};

/// How much sooner a script ends than its attempt.
const MARGIN: Duration = Duration::from_millis(500);
/// Most bytes of screenshots and PDFs of one attempt, which are in memory until it has ended.
const ARTIFACT_BYTES_MAX: usize = 64 << 20;
/// Most screenshots and PDFs of one attempt.
const ARTIFACTS_MAX: usize = 100;

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    browsers.check_script_right(context.row())?;
    let ScriptPayload { profile_id, tab_id, work } = ScriptPayload::parse(context.payload())?;
    if context.timeout().is_some_and(|timeout| timeout.0 > 1_000 * SCRIPT_TIMEOUT_MAX_SECS) {
        let message = format!("the timeout of a script is at most {SCRIPT_TIMEOUT_MAX_SECS} s");
        return Err(Failure::permanent("bad_payload", message).into());
    }
    browsers.profiles().active(context.tenant(), &profile_id).await?;
    let running = browsers.fleet().get(context.tenant(), &profile_id).ok_or_else(|| {
        let message = format!("the browser of {profile_id} is not open; start it with browser_start");
        Failure::permanent("not_open", message)
    })?;
    match work {
        ScriptWork::Script(script) => run_script(&context, &running, tab_id, &script).await,
        ScriptWork::Program(spec) => program::run(&browsers, &context, &running, &spec).await,
    }
}

async fn run_script(
    context: &JobContext,
    running: &Running,
    tab_id: Option<String>,
    script: &Value,
) -> Result<Outcome, NotDone> {
    let script = Script::parse(&with_time(context, script))
        .map_err(|bad| Failure::permanent("bad_payload", format!("script: {bad}")))?;
    let (page, is_new) = page_for(running, tab_id.as_deref()).await?;
    let output = Arc::new(Output { context: context.clone(), artifacts: Mutex::default() });
    let ran = tokio::select! {
        ran = script.run(&page, output.as_ref(), context.cancellation()) => ran.map_err(|error| not_done(context, error)),
        exit = running.browser.exited() => {
            let message = format!("the browser ended while the script ran: {exit}");
            Err(Failure::permanent("browser_crashed", message).into())
        }
    };
    if is_new {
        // A tab that is gone already needs no closing.
        drop(running.browser.close_tab(page.tab()).await);
    }
    let stored = output.store().await?;
    let mut result = ran?;
    if let Some(result) = result.as_object_mut() {
        result.insert("artifactCount".to_owned(), json!(stored));
    }
    succeeded(&result)
}

/// The script with the time that the attempt has left, unless it sets a limit itself. It ends a little before the attempt does, so
/// that it can say at which step it was.
fn with_time(context: &JobContext, script: &Value) -> Value {
    let mut script = script.clone();
    if let (Some(fields), Some(left)) = (script.as_object_mut(), context.time_left())
        && !fields.contains_key("timeoutMs")
    {
        let ms = u64::try_from(left.saturating_sub(MARGIN).as_millis()).unwrap_or(u64::MAX);
        fields.insert("timeoutMs".to_owned(), json!(ms.clamp(1, 1_000 * SCRIPT_TIMEOUT_MAX_SECS)));
    }
    script
}

/// The tab, or a new one.
async fn page_for(running: &Running, tab: Option<&str>) -> Result<(Page, bool), Failure> {
    match tab {
        Some(tab) => match running.browser.page(tab).await {
            Ok(page) => Ok((page, false)),
            Err(error) => Err(Failure::permanent("tab_not_found", error.to_string())),
        },
        None => match running.browser.new_tab().await {
            Ok(page) => Ok((page, true)),
            Err(error) => Err(Failure::permanent("browser_crashed", error.to_string())),
        },
    }
}

fn not_done(context: &JobContext, error: ScriptError) -> NotDone {
    match error {
        ScriptError::Canceled => NotDone::Canceled,
        error => {
            // A dialect may show less than that.
            context.log(&error.to_string());
            let failure = Failure::permanent(error.code(), error.to_string());
            Failure { retryable: error.retryable(), ..failure }.into()
        }
    }
}

/// Log lines go to the job at once, artifacts are collected and stored at the end, whether the script succeeds or not.
struct Output {
    context: JobContext,
    artifacts: Mutex<Vec<Made>>,
}

struct Made {
    name: String,
    media_type: String,
    bytes: Vec<u8>,
}

impl ScriptOutput for Output {
    fn log(&self, line: &str) {
        self.context.log(line);
    }

    fn artifact(&self, name: &str, content_type: &str, bytes: Vec<u8>) -> Result<(), String> {
        let mut made = self.artifacts.lock().unwrap_or_else(PoisonError::into_inner);
        let so_far: usize = made.iter().map(|made| made.bytes.len()).sum();
        if so_far + bytes.len() > ARTIFACT_BYTES_MAX {
            return Err(format!(
                "the artifacts of a script have at most {ARTIFACT_BYTES_MAX} bytes together"
            ));
        }
        if made.len() >= ARTIFACTS_MAX {
            return Err(format!("a script makes at most {ARTIFACTS_MAX} artifacts"));
        }
        made.push(Made { name: name.to_owned(), media_type: content_type.to_owned(), bytes });
        Ok(())
    }
}

impl Output {
    /// Stores what was collected. Returns how many there are.
    async fn store(&self) -> Result<usize, Failure> {
        let made = std::mem::take(&mut *self.artifacts.lock().unwrap_or_else(PoisonError::into_inner));
        let count = made.len();
        for (number, Made { name, media_type, bytes }) in (1..).zip(made) {
            let stored = self.context.store_artifact(number, &name, &media_type, bytes).await;
            stored.map_err(|error| {
                Failure::permanent("artifact_failed", format!("the artifact {name:?} is not stored: {error}"))
            })?;
        }
        Ok(count)
    }
}

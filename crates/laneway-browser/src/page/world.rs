//! Calls functions of `world.js` inside of the page, and JavaScript of the caller.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::frames::{Frame, page_call};
use super::{PageError, Run};
use crate::devtools::DevToolsError;

/// The functions.
const WORLD: &str = include_str!("world.js");
/// The name of the world.
const NAME: &str = "laneway";
/// The longest error of a script that is kept, in letters.
const ERROR_LETTERS_MAX: usize = 2_000;
/// The functions that scroll to their element.
const SHOWING: [&str; 6] = ["point", "box", "focus", "caret", "fill", "into_view"];
/// How often a call is repeated when a navigation took its document away.
const TRIES_MAX: usize = 3;
/// How much longer than its action the browser lets a script run. It answers with a text that does not name the cause, so it comes second.
const BROWSER_TIME: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// Calls a function of `world.js` with an element, and with `more` arguments.
    pub(super) async fn ask(&self, selector: &str, name: &str, more: Value) -> Result<Value, PageError> {
        let place = self.place(selector)?;
        if SHOWING.contains(&name) {
            self.show_frames(&place.frames, selector).await?;
        }
        let mut args = vec![Value::from(place.selector)];
        args.extend(more.as_array().into_iter().flatten().cloned());
        let asked = self.ask_in(&place.frames, selector, name, &args.into()).await;
        // The page knows its own number of the element, the caller that of the snapshot.
        asked.map_err(|error| match error {
            PageError::StaleRef(_) => PageError::StaleRef(selector.trim_start_matches("ref:").to_owned()),
            error => error,
        })
    }

    /// Calls a function of `world.js` that is about the whole page, or the frame of the action.
    pub(super) async fn ask_page(&self, name: &str, args: Value) -> Result<Value, PageError> {
        self.ask_in(&self.frames()?, "the page", name, &args).await
    }

    /// Calls a function of `world.js` in the document that these frames lead to. `element` is what its errors are about.
    pub(super) async fn ask_in(
        &self,
        frames: &[String],
        element: &str,
        name: &str,
        args: &Value,
    ) -> Result<Value, PageError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let asked = match self.frame(frames).await {
                Ok(frame) => self.ask_once(&frame, element, name, args).await,
                Err(error) => Err(error),
            };
            match asked {
                Err(PageError::DevTools(DevToolsError::Rejected { message, .. }))
                    if tries < TRIES_MAX && is_of_another_document(&message) => {}
                other => return other,
            }
        }
    }

    /// Evaluates an expression with the functions of `world.js` in a frame.
    pub(super) async fn evaluate_in(
        &self,
        frame: &Frame,
        expression: &str,
        by_value: bool,
    ) -> Result<Value, PageError> {
        let params = json!({"frameId": frame.id, "worldName": NAME});
        let world = page_call(self, frame, "Page.createIsolatedWorld", params).await?;
        let params = json!({
            "expression": format!("{WORLD}\n{expression}"), "contextId": world["executionContextId"],
            "returnByValue": by_value,
        });
        page_call(self, frame, "Runtime.evaluate", params).await
    }

    async fn ask_once(
        &self,
        frame: &Frame,
        element: &str,
        name: &str,
        args: &Value,
    ) -> Result<Value, PageError> {
        let letters_max = self.limits.result_bytes;
        let expression = format!("laneway.call({}, {args}, {letters_max})", Value::from(name));
        let evaluated = self.evaluate_in(frame, &expression, true).await?;
        let answer = evaluated["result"]["value"].as_str().and_then(|text| serde_json::from_str(text).ok());
        let Some(mut answer): Option<Value> = answer else {
            return Err(PageError::Evaluate(exception_of(&evaluated)));
        };
        let reason = answer["reason"].as_str().unwrap_or_default().to_owned();
        match answer["error"].as_str() {
            None => Ok(answer["ok"].take()),
            Some("missing") => Err(PageError::NoElement(element.to_owned())),
            Some("stale") => Err(PageError::StaleRef(reason)),
            Some("selector") => Err(PageError::BadSelector { selector: element.to_owned(), reason }),
            Some("large") => Err(PageError::ResultTooLarge { bytes_max: self.limits.result_bytes }),
            Some("unusable") => Err(PageError::NotUsable { element: element.to_owned(), reason }),
            Some(_) => Err(PageError::Evaluate(reason)),
        }
    }

    /// Runs JavaScript of the caller in the page's own world, and waits for promises. The result is cut off inside of the page if it is too
    /// large, so that no page can flood the connection.
    pub(super) async fn evaluate(&self, expression: &str) -> Result<Value, PageError> {
        let code = Value::from(expression);
        let letters_max = self.limits.result_bytes;
        let wrapped = format!(
            "(async () => {{ const json = JSON.stringify(await (0, eval)({code})); \
             return json === undefined ? null : json.length > {letters_max} ? false : json; }})()"
        );
        // The deadline ends the action. The browser's own limit is for a script whose server died.
        let time_left = self.deadline.saturating_duration_since(Instant::now()) + BROWSER_TIME;
        let params = json!({
            "expression": wrapped, "awaitPromise": true, "returnByValue": true, "userGesture": true,
            "allowUnsafeEvalBlockedByCSP": true, "timeout": time_left.as_millis() as u64,
        });
        let evaluated = self.call("Runtime.evaluate", params).await?;
        if !evaluated["exceptionDetails"].is_null() {
            return Err(PageError::Evaluate(exception_of(&evaluated)));
        }
        let too_large = PageError::ResultTooLarge { bytes_max: self.limits.result_bytes };
        match &evaluated["result"]["value"] {
            Value::String(json) if json.len() > self.limits.result_bytes => Err(too_large),
            Value::String(json) => {
                serde_json::from_str(json).map_err(|error| PageError::Evaluate(error.to_string()))
            }
            Value::Bool(false) => Err(too_large),
            _ => Ok(Value::Null),
        }
    }
}

fn exception_of(evaluated: &Value) -> String {
    let details = &evaluated["exceptionDetails"];
    let thrown = &details["exception"];
    let text = thrown["description"].as_str().or(thrown["value"].as_str()).or(details["text"].as_str());
    text.unwrap_or("no reason given").chars().take(ERROR_LETTERS_MAX).collect()
}

/// True if a navigation took the document of a call away.
pub(super) fn is_of_another_document(message: &str) -> bool {
    [
        "context was destroyed",
        "Cannot find context",
        "navigated or closed",
        "No frame",
        "uniqueContextId not found",
        // A frame that got another process.
        "Session with given id not found",
    ]
    .iter()
    .any(|text| message.contains(text))
}

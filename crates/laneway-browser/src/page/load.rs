//! Opens addresses, and waits for what happens on a page.

use std::time::Duration;

use reqwest::Url;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::action::{Condition, Move, Until};
use super::world::is_of_another_document;
use super::{PageError, Run};
use crate::devtools::DevToolsError;

/// How often a condition inside of the page is checked.
const CHECK: Duration = Duration::from_millis(50);
/// How long no request may be open until a page counts as idle, as in PinchTab.
const IDLE: Duration = Duration::from_millis(500);
/// The longest address in an error text, in letters.
const URL_LETTERS_MAX: usize = 300;

impl Run<'_> {
    pub(super) async fn navigate(&self, url: &str, until: Until) -> Result<Value, PageError> {
        self.check_address(url)?;
        let before = self.page.state.document().count;
        let sent = self.call("Page.navigate", json!({"url": url}));
        let answer = match timeout_at(self.deadline, sent).await {
            Ok(answer) => answer?,
            Err(_) => return Err(self.late(format!("an answer of {}", shown(url)))),
        };
        let failed = |reason: &str| PageError::Navigation { url: shown(url), reason: reason.to_owned() };
        if answer["isDownload"] == true {
            return Err(failed("it is a download, and a page was expected"));
        }
        if let Some(error) = answer["errorText"].as_str().filter(|error| !error.is_empty()) {
            return Err(failed(error));
        }
        // Without a loader the address is a place on the same document.
        if answer["loaderId"].is_string() {
            self.loaded_after(before, until, url).await?;
        }
        self.about().await
    }

    pub(super) async fn move_in_history(&self, to: Move, until: Until) -> Result<Value, PageError> {
        let before = self.page.state.document().count;
        match to {
            Move::Reload => self.call("Page.reload", json!({})).await.map(drop)?,
            Move::Back | Move::Forward => {
                let history = self.call("Page.getNavigationHistory", json!({})).await?;
                let step = if to == Move::Back { -1 } else { 1 };
                let at = history["currentIndex"].as_i64().unwrap_or(0) + step;
                let entry = usize::try_from(at).ok().and_then(|at| history["entries"].get(at));
                let Some(entry) = entry else {
                    let reason =
                        if to == Move::Back { "nothing to go back to" } else { "nothing to go forward to" };
                    return Err(PageError::Navigation {
                        url: "the history".to_owned(),
                        reason: format!("there is {reason}"),
                    });
                };
                let url = entry["url"].as_str().unwrap_or_default();
                self.check_address(url)?;
                let is_same_document = self.without_fragment(url).await?;
                self.call("Page.navigateToHistoryEntry", json!({"entryId": entry["id"]})).await?;
                if is_same_document {
                    return self.about().await;
                }
            }
        }
        self.loaded_after(before, until, "the page").await?;
        self.about().await
    }

    /// True if the address is the current one apart from the fragment.
    async fn without_fragment(&self, url: &str) -> Result<bool, PageError> {
        let now = self.ask_page("about", json!([])).await?;
        let bare = |url: &str| url.split('#').next().unwrap_or_default().to_owned();
        Ok(bare(url) == bare(now["url"].as_str().unwrap_or_default()))
    }

    /// Waits for the document after the first `before` ones.
    async fn loaded_after(&self, before: u64, until: Until, url: &str) -> Result<(), PageError> {
        let state = &self.page.state;
        let loaded = state.until(|state| {
            let document = state.document();
            document.count > before
                && match until {
                    Until::Load | Until::Idle => document.loaded,
                    Until::Parsed => document.parsed || document.loaded,
                    Until::Nothing => true,
                }
        });
        timeout_at(self.deadline, loaded)
            .await
            .map_err(|_| self.late(format!("the load of {}", shown(url))))?;
        match until {
            Until::Idle => self.idle().await,
            _ => Ok(()),
        }
    }

    /// Waits for the navigation that a click caused.
    pub(super) async fn after_navigation(&self, before: u64) -> Result<(), PageError> {
        self.loaded_after(before, Until::Load, "the next page").await
    }

    async fn about(&self) -> Result<Value, PageError> {
        let mut about = self.ask_page("about", json!([])).await?;
        if let Some(status) = self.page.state.status() {
            about["status"] = status.into();
        }
        Ok(about)
    }

    /// Only pages of the web, empty pages and data. An address with JavaScript would be a way around the right to evaluate.
    fn check_address(&self, url: &str) -> Result<(), PageError> {
        let denied =
            |reason: &str| Err(PageError::UrlNotAllowed { url: shown(url), reason: reason.to_owned() });
        let Ok(parsed) = Url::parse(url) else {
            return denied("it is no full URL; give one such as https://example.com/");
        };
        match parsed.scheme() {
            "http" | "https" | "data" => Ok(()),
            "about" if parsed.path() == "blank" => Ok(()),
            "file" if self.page.hub.allows_file_urls() => Ok(()),
            "file" => denied("file URLs are off; an operator can allow them"),
            _ => denied("the scheme must be http, https or data"),
        }
    }

    pub(super) async fn wait(&self, condition: &Condition) -> Result<Value, PageError> {
        let start = Instant::now();
        match condition {
            Condition::Time(time) => {
                if start + *time > self.deadline {
                    sleep_until(self.deadline).await;
                    return Err(self.late(format!("the end of {} ms", time.as_millis())));
                }
                sleep(*time).await;
            }
            Condition::Loaded(Until::Idle) => self.idle().await?,
            Condition::Loaded(until) => {
                let loaded = self.page.state.until(|state| {
                    let document = state.document();
                    // A tab that has shown nothing yet has an empty document, which is loaded.
                    document.count == 0 || document.loaded || (*until == Until::Parsed && document.parsed)
                });
                timeout_at(self.deadline, loaded).await.map_err(|_| self.late("the load of the page"))?;
            }
            Condition::Element { selector, state } => {
                self.check_until(&format!("the element {selector} ({state})"), state, selector).await?;
            }
            Condition::Text(text) => self.check_until(&format!("the text {text:?}"), "text", text).await?,
            Condition::Url(url) => self.check_until(&format!("the URL {url}"), "url", url).await?,
            Condition::Function(expression) => self.check_function(expression).await?,
        }
        Ok(json!({"waited": true, "elapsedMs": start.elapsed().as_millis() as u64}))
    }

    /// Asks the page until a condition is true.
    async fn check_until(&self, what: &str, condition: &str, argument: &str) -> Result<(), PageError> {
        loop {
            match timeout_at(self.deadline, self.is(condition, argument)).await {
                Err(_) => return Err(self.late(what)),
                Ok(Ok(answer)) if answer == true => return Ok(()),
                Ok(Ok(_)) => {}
                // Nothing of a frame that is not there can be seen. A frame may come later.
                Ok(Err(PageError::NoFrame(_))) if condition == "hidden" => return Ok(()),
                Ok(Err(PageError::NoFrame(_))) => {}
                // The document is being replaced; the next one may have it.
                Ok(Err(PageError::DevTools(DevToolsError::Rejected { message, .. })))
                    if is_of_another_document(&message) => {}
                Ok(Err(error)) => return Err(error),
            }
            self.pause(what).await?;
        }
    }

    async fn is(&self, condition: &str, argument: &str) -> Result<Value, PageError> {
        match condition {
            "text" | "url" => self.ask_page("is", json!([argument, condition])).await,
            _ => self.ask(argument, "is", json!([condition])).await,
        }
    }

    async fn check_function(&self, expression: &str) -> Result<(), PageError> {
        let what = "the condition of the function";
        loop {
            match timeout_at(self.deadline, self.evaluate(expression)).await {
                Err(_) => return Err(self.late(what)),
                Ok(Ok(Value::Null | Value::Bool(false))) => {}
                Ok(Ok(Value::String(text))) if text.is_empty() => {}
                Ok(Ok(value)) if value.as_f64() == Some(0.0) => {}
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(PageError::DevTools(DevToolsError::Rejected { message, .. })))
                    if is_of_another_document(&message) => {}
                Ok(Err(error)) => return Err(error),
            }
            self.pause(what).await?;
        }
    }

    async fn pause(&self, what: &str) -> Result<(), PageError> {
        if Instant::now() + CHECK >= self.deadline {
            sleep_until(self.deadline).await;
            return Err(self.late(what));
        }
        sleep(CHECK).await;
        Ok(())
    }

    /// Waits until no request was open for a while.
    async fn idle(&self) -> Result<(), PageError> {
        let state = &self.page.state;
        let idle = async {
            loop {
                state.until(|state| state.quiet_since().is_some()).await;
                let Some(since) = state.quiet_since() else { continue };
                if since.elapsed() >= IDLE {
                    return;
                }
                sleep_until(since + IDLE).await;
                if state.quiet_since() == Some(since) {
                    return;
                }
            }
        };
        timeout_at(self.deadline, idle).await.map_err(|_| self.late("an idle network"))
    }
}

/// An address as it is in an error text.
fn shown(url: &str) -> String {
    let url = laneway_runtime::config::shown_url(url);
    match url.char_indices().nth(URL_LETTERS_MAX) {
        Some((end, _)) => format!("{}…", &url[..end]),
        None => url,
    }
}

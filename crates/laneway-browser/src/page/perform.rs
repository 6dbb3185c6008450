//! Does one action.

use serde_json::{Value, json};

use super::action::{At, Verb};
use super::keyboard::{Chord, Stroke, strokes};
use super::{PageAction, PageError, Run};
use crate::devtools::DialogReply;

impl Run<'_> {
    pub(super) async fn perform(&self, action: &PageAction) -> Result<Value, PageError> {
        match &action.verb {
            Verb::Click { .. } => self.click(&action.verb).await,
            Verb::Hover(at) => {
                let (x, y) = self.point(at).await?;
                self.mouse("mouseMoved", x, y, json!({})).await?;
                Ok(json!({"hovered": true}))
            }
            Verb::Mouse { event, at, button, delta } => {
                let (x, y) = self.point(at).await?;
                let more = match *event {
                    "mouseMoved" => json!({}),
                    "mouseWheel" => json!({"deltaX": delta.0, "deltaY": delta.1}),
                    _ => json!({"button": button, "clickCount": 1}),
                };
                self.mouse(event, x, y, more).await?;
                Ok(json!({"x": x, "y": y}))
            }
            Verb::Focus(selector) => {
                self.ask(selector, "focus", json!([])).await?;
                Ok(json!({"focused": true}))
            }
            Verb::Type { selector, text } => self.type_text(selector.as_deref(), text).await,
            Verb::Insert { text } => {
                self.call("Input.insertText", json!({"text": text})).await?;
                Ok(json!({"inserted": text}))
            }
            Verb::Fill { selector, value } => {
                self.ask(selector, "fill", json!([value])).await?;
                Ok(json!({"filled": value}))
            }
            Verb::Press { selector, chord } => self.press(selector.as_deref(), chord).await,
            Verb::Key { chord, is_down } => {
                self.call("Input.dispatchKeyEvent", chord.event(*is_down)).await?;
                Ok(json!({if *is_down { "down" } else { "up" }: chord.name()}))
            }
            Verb::Select { selector, values } => {
                let selected = self.ask(selector, "select", json!([values])).await?;
                Ok(json!({"selected": selected}))
            }
            Verb::Scroll { selector, by } => self.scroll(selector.as_deref(), *by).await,
            Verb::Check { selector, on } => self.check(selector, *on).await,
            Verb::Navigate { url, until } => self.navigate(url, *until).await,
            Verb::Move(to, until) => self.move_in_history(*to, *until).await,
            Verb::Wait(condition) => self.wait(condition).await,
            Verb::Screenshot { selector, full_page, format, quality } => {
                self.screenshot(selector.as_deref(), *full_page, format, *quality).await
            }
            Verb::Pdf { landscape, background, scale, pages } => {
                self.pdf(*landscape, *background, *scale, pages).await
            }
            Verb::Evaluate { expression } => Ok(json!({"result": self.evaluate(expression).await?})),
            Verb::Extract { selector, what, attribute, all } => {
                let found = self.ask(selector, "extract", json!([what, attribute, all])).await?;
                Ok(json!({"value": found}))
            }
            Verb::Text => self.ask_page("text", json!([])).await,
            Verb::Snapshot { filter } => self.snapshot(filter).await,
        }
    }

    async fn click(&self, verb: &Verb) -> Result<Value, PageError> {
        let Verb::Click { at, count, button, by_dom, wait_nav, dialog } = verb else {
            return Ok(Value::Null);
        };
        let reply = dialog.as_ref().map(|(accept, text)| DialogReply { accept: *accept, text: text.clone() });
        self.page.state.answer_next_dialog(reply);
        let before = self.page.state.document().count;
        if let (true, At::Element(selector)) = (by_dom, at) {
            self.ask(selector, "click", json!([])).await?;
        } else {
            let (x, y) = self.point(at).await?;
            self.mouse("mouseMoved", x, y, json!({})).await?;
            for click in 1..=*count {
                for event in ["mousePressed", "mouseReleased"] {
                    self.mouse(event, x, y, json!({"button": button, "clickCount": click})).await?;
                }
            }
        }
        if *wait_nav {
            self.after_navigation(before).await?;
        }
        Ok(json!({"clicked": true}))
    }

    /// A place in pixels.
    async fn point(&self, at: &At) -> Result<(f64, f64), PageError> {
        match at {
            At::Point(x, y) => Ok((*x, *y)),
            At::Element(selector) => self.point_of(selector).await,
        }
    }

    async fn mouse(&self, event: &str, x: f64, y: f64, more: Value) -> Result<(), PageError> {
        let mut params = more;
        params["type"] = event.into();
        params["x"] = x.into();
        params["y"] = y.into();
        self.call("Input.dispatchMouseEvent", params).await.map(drop)
    }

    async fn type_text(&self, selector: Option<&str>, text: &str) -> Result<Value, PageError> {
        if let Some(selector) = selector {
            self.ask(selector, "caret", json!([])).await?;
        }
        for stroke in strokes(text) {
            match stroke {
                Stroke::Events(down, up) => {
                    self.call("Input.dispatchKeyEvent", down).await?;
                    self.call("Input.dispatchKeyEvent", up).await?;
                }
                Stroke::Insert(letter) => {
                    self.call("Input.insertText", json!({"text": letter})).await?;
                }
            }
        }
        Ok(json!({"typed": text}))
    }

    async fn press(&self, selector: Option<&str>, chord: &Chord) -> Result<Value, PageError> {
        if let Some(selector) = selector {
            self.ask(selector, "focus", json!([])).await?;
        }
        self.call("Input.dispatchKeyEvent", chord.event(true)).await?;
        self.call("Input.dispatchKeyEvent", chord.event(false)).await?;
        Ok(json!({"pressed": chord.name()}))
    }

    async fn scroll(&self, selector: Option<&str>, by: Option<(f64, f64)>) -> Result<Value, PageError> {
        let position = match (selector, by) {
            (Some(selector), Some((x, y))) => self.ask(selector, "scroll", json!([x, y])).await?,
            (Some(selector), None) => self.ask(selector, "into_view", json!([])).await?,
            (None, by) => {
                let (x, y) = by.unwrap_or_default();
                self.ask_page("scroll", json!([null, x, y])).await?
            }
        };
        let mut result = json!({"scrolled": true});
        for field in ["x", "y", "width", "height"] {
            if !position[field].is_null() {
                result[field] = position[field].clone();
            }
        }
        Ok(result)
    }

    /// Clicks a checkbox if it is not as it shall be.
    async fn check(&self, selector: &str, on: bool) -> Result<Value, PageError> {
        let is_on = || async { self.ask(selector, "checked", json!([])).await.map(|on| on == true) };
        if is_on().await? != on {
            let (x, y) = self.point(&At::Element(selector.to_owned())).await?;
            self.mouse("mouseMoved", x, y, json!({})).await?;
            for event in ["mousePressed", "mouseReleased"] {
                self.mouse(event, x, y, json!({"button": "left", "clickCount": 1})).await?;
            }
            if is_on().await? != on {
                let reason = format!("is still {} after a click", if on { "not checked" } else { "checked" });
                return Err(PageError::NotUsable { element: selector.to_owned(), reason });
            }
        }
        Ok(json!({"checked": on}))
    }
}

//! Elements and the frames that they are in: which document an action is about, and where its elements are in the window.
//!
//! A frame is found by the selector of its element in the document around it, each time anew: a frame that navigates has another
//! document, and perhaps another process with a session of its own. A ref of a snapshot knows the frames that lead to its element.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{PageError, Run};

/// Nodes of a snapshot, all frames together.
const SNAPSHOT_NODES_MAX: usize = 2_000;
/// Frames within frames of which a snapshot has the elements.
const SNAPSHOT_DEPTH_MAX: usize = 5;
/// How long a frame within a page may take to list its elements. A snapshot leaves out the elements of one that hangs.
const SNAPSHOT_FRAME_LIMIT: Duration = Duration::from_secs(2);

/// How long a window may take to show what was scrolled.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);

/// An element: the selectors of the frames that lead to it, the outermost first, and its own selector in the innermost one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) frames: Vec<String>,
    pub(crate) selector: String,
}

/// A document: the DevTools session of its process, and the id of its frame.
pub(super) struct Frame {
    pub(super) session: Arc<str>,
    pub(super) id: String,
}

/// The number of a ref: `e5`, `ref:e5`, `ref:5`. `None`: it is another selector.
fn ref_of(selector: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match selector.strip_prefix("ref:") {
        Some(rest) => Some(rest),
        None => Some(selector).filter(|text| text.strip_prefix('e').is_some_and(is_number)),
    }
}

impl Run<'_> {
    /// Where an element is. The frames of a ref are those of its snapshot; other selectors are for the frame of the action.
    pub(super) fn place(&self, selector: &str) -> Result<Place, PageError> {
        match ref_of(selector) {
            Some(of_snapshot) => {
                let number = of_snapshot.trim_start_matches('e').parse().ok();
                let place = number.and_then(|number| self.page.state.place_of_ref(number));
                place.ok_or_else(|| PageError::StaleRef(of_snapshot.to_owned()))
            }
            None => Ok(Place { frames: self.frames()?, selector: selector.to_owned() }),
        }
    }

    /// The frames of the action. The first of them can be a ref.
    pub(super) fn frames(&self) -> Result<Vec<String>, PageError> {
        let Some((first, rest)) = self.frames.split_first() else { return Ok(Vec::new()) };
        let mut frames = match ref_of(first) {
            Some(of_snapshot) => {
                let number = of_snapshot.trim_start_matches('e').parse().ok();
                let place = number.and_then(|number| self.page.state.place_of_ref(number));
                let Place { mut frames, selector } =
                    place.ok_or_else(|| PageError::StaleRef(of_snapshot.to_owned()))?;
                frames.push(selector);
                frames
            }
            None => vec![first.clone()],
        };
        frames.extend_from_slice(rest);
        Ok(frames)
    }

    /// The document that these frames lead to.
    pub(super) async fn frame(&self, frames: &[String]) -> Result<Frame, PageError> {
        let page = self.page;
        let mut frame = Frame { session: page.state.session.clone(), id: page.tab().to_owned() };
        for selector in frames {
            frame = self.child(&frame, selector).await?;
        }
        Ok(frame)
    }

    async fn child(&self, parent: &Frame, selector: &str) -> Result<Frame, PageError> {
        let missing = || PageError::NoFrame(selector.to_owned());
        let expression = format!("laneway.frame({})", Value::from(selector));
        let found = self.evaluate_in(parent, &expression, false).await?;
        let object = found["result"]["objectId"].as_str().ok_or_else(missing)?;
        let described = page_call(self, parent, "DOM.describeNode", json!({"objectId": object})).await;
        page_call(self, parent, "Runtime.releaseObject", json!({"objectId": object})).await?;
        let id = described?["node"]["frameId"].as_str().ok_or_else(missing)?.to_owned();
        // A frame of another site has a process and a session of its own.
        let session = self.page.hub.session_of_frame(&id).unwrap_or_else(|| parent.session.clone());
        Ok(Frame { session, id })
    }

    /// The middle of an element in pixels of the window. Every frame around it must show that place.
    pub(super) async fn point_of(&self, selector: &str) -> Result<(f64, f64), PageError> {
        let place = self.place(selector)?;
        let point = self.ask(selector, "point", json!([])).await?;
        if !place.frames.is_empty() {
            self.settle().await;
        }
        self.in_the_window(&place.frames, selector, "frame_point", number(&point, "x"), number(&point, "y"))
            .await
    }

    /// The rectangle of an element in pixels of the whole page, for a screenshot.
    pub(super) async fn box_of(&self, selector: &str) -> Result<Value, PageError> {
        let place = self.place(selector)?;
        let mut rect = self.ask(selector, "box", json!([])).await?;
        let (x, y) = (number(&rect, "x"), number(&rect, "y"));
        let (x, y) = self.in_the_window(&place.frames, selector, "frame_corner", x, y).await?;
        let scrolled = self.ask_in(&[], "the page", "scrolled", &json!([])).await?;
        rect["x"] = (x + number(&scrolled, "x")).into();
        rect["y"] = (y + number(&scrolled, "y")).into();
        Ok(rect)
    }

    /// Scrolls to each of these frames. Otherwise a document would scroll the ones around it later, when its element is in use already.
    pub(super) async fn show_frames(&self, frames: &[String], element: &str) -> Result<(), PageError> {
        for depth in 0..frames.len() {
            let shown = self.ask_in(&frames[..depth], element, "show", &json!([frames[depth]])).await;
            shown.map_err(|error| match error {
                PageError::NoElement(_) => PageError::NoFrame(frames[depth].clone()),
                PageError::StaleRef(_) => PageError::StaleRef(element.trim_start_matches("ref:").to_owned()),
                error => error,
            })?;
        }
        Ok(())
    }

    /// Waits until the window shows what was scrolled: until then the mouse would hit what was there before.
    async fn settle(&self) {
        let painted =
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))";
        let params = json!({"expression": painted, "awaitPromise": true});
        let painted = timeout(SETTLE_LIMIT, self.call("Runtime.evaluate", params)).await;
        if !matches!(painted, Ok(Ok(_))) {
            tracing::debug!(tab = self.page.tab(), "the window was not painted in time");
        }
    }

    /// A place in a document, as seen from the window.
    async fn in_the_window(
        &self,
        frames: &[String],
        element: &str,
        name: &str,
        mut x: f64,
        mut y: f64,
    ) -> Result<(f64, f64), PageError> {
        for depth in (0..frames.len()).rev() {
            let args = json!([frames[depth], x, y]);
            let around = self.ask_in(&frames[..depth], element, name, &args).await?;
            (x, y) = (number(&around, "x"), number(&around, "y"));
        }
        Ok((x, y))
    }

    /// The elements of the page, or of the frame of the action, with those of the frames in it. From now on refs are of this snapshot.
    pub(super) async fn snapshot(&self, filter: &str) -> Result<Value, PageError> {
        let top = self.frames()?;
        let args = json!([filter, SNAPSHOT_NODES_MAX]);
        let mut page = self.ask_in(&top, "the page", "snapshot", &args).await?;
        let mut open = vec![(top, Value::Null, nodes_of(&mut page))];
        let (mut nodes, mut places) = (Vec::new(), Vec::new());
        while nodes.len() < SNAPSHOT_NODES_MAX
            && let Some((frames, owner, left)) = open.last_mut()
        {
            let Some(mut node) = left.next() else {
                open.pop();
                continue;
            };
            let (frames, owner) = (frames.clone(), owner.clone());
            let selector = format!("ref:{}", node["ref"].as_str().unwrap_or_default());
            let own = Value::from(format!("e{}", nodes.len()));
            node["ref"] = own.clone();
            if !owner.is_null() {
                node["frame"] = owner;
            }
            let is_frame = node["tag"] == "iframe";
            nodes.push(node);
            places.push(Place { frames: frames.clone(), selector: selector.clone() });
            if is_frame && open.len() <= SNAPSHOT_DEPTH_MAX {
                let inner: Vec<String> = frames.into_iter().chain([selector]).collect();
                let asked = timeout(SNAPSHOT_FRAME_LIMIT, self.ask_in(&inner, "the page", "snapshot", &args));
                // A frame that goes away or does not answer is no reason to have no snapshot.
                if let Ok(Ok(mut found)) = asked.await {
                    open.push((inner, own, nodes_of(&mut found)));
                }
            }
        }
        self.page.state.set_refs(places);
        page["count"] = nodes.len().into();
        page["nodes"] = nodes.into();
        match page.to_string().len() > self.limits.result_bytes {
            true => Err(PageError::ResultTooLarge { bytes_max: self.limits.result_bytes }),
            false => Ok(page),
        }
    }
}

/// A command for the process of a frame.
pub(super) async fn page_call(
    run: &Run<'_>,
    frame: &Frame,
    method: &'static str,
    params: Value,
) -> Result<Value, PageError> {
    run.page.call_in(&frame.session, method, params).await
}

fn nodes_of(snapshot: &mut Value) -> std::vec::IntoIter<Value> {
    match snapshot["nodes"].take() {
        Value::Array(nodes) => nodes.into_iter(),
        _ => Vec::new().into_iter(),
    }
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::ref_of;

    #[test]
    fn refs_are_recognized() {
        for (selector, expected) in [
            ("e5", Some("e5")),
            ("ref:e5", Some("e5")),
            ("ref:5", Some("5")),
            ("em", None),
            ("e", None),
            ("#e5", None),
            ("text:e5", None),
        ] {
            assert_eq!(ref_of(selector), expected, "{selector}");
        }
    }
}

//! The action kinds, and their parameters as PinchTab's clients write them.
//!
//! An element is named by `selector` or `ref`. A selector is CSS, or begins with `xpath:`, `text:` or `css:`; a ref such as `e5` is
//! of the latest snapshot. `frame` names the frame that has the element. Fields that an action does not know are ignored, as PinchTab does; steps of scripts reject them.

use std::time::Duration;

use serde_json::Value;

use super::fields::{Fields, bad};
use super::keyboard::Chord;

/// An action that is valid in form.
#[derive(Clone, Debug, PartialEq)]
pub struct PageAction {
    kind: &'static str,
    pub(crate) verb: Verb,
    frames: Vec<String>,
}

/// An action that is not valid. The text names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct BadAction {
    /// The field.
    pub field: String,
    /// What is wrong with it, and what is expected.
    pub reason: String,
}

/// What to do, with everything that it needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verb {
    Click {
        at: At,
        count: u32,
        button: &'static str,
        by_dom: bool,
        wait_nav: bool,
        dialog: Option<(bool, Option<String>)>,
    },
    Hover(At),
    Mouse {
        event: &'static str,
        at: At,
        button: &'static str,
        delta: (f64, f64),
    },
    Focus(String),
    Type {
        selector: Option<String>,
        text: String,
    },
    Insert {
        text: String,
    },
    Fill {
        selector: String,
        value: String,
    },
    Press {
        selector: Option<String>,
        chord: Chord,
    },
    Key {
        chord: Chord,
        is_down: bool,
    },
    Select {
        selector: String,
        values: Vec<String>,
    },
    Scroll {
        selector: Option<String>,
        by: Option<(f64, f64)>,
    },
    Check {
        selector: String,
        on: bool,
    },
    Navigate {
        url: String,
        until: Until,
    },
    Move(Move, Until),
    Wait(Condition),
    Screenshot {
        selector: Option<String>,
        full_page: bool,
        format: &'static str,
        quality: Option<u8>,
    },
    Pdf {
        landscape: bool,
        background: bool,
        scale: f64,
        pages: String,
    },
    Evaluate {
        expression: String,
    },
    Extract {
        selector: String,
        what: &'static str,
        attribute: Option<String>,
        all: bool,
    },
    Text,
    Snapshot {
        filter: &'static str,
    },
}

/// A place on the page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum At {
    /// The middle of an element.
    Element(String),
    /// Pixels from the top left corner of the window.
    Point(f64, f64),
}

/// Through the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Back,
    Forward,
    Reload,
}

/// When a page counts as loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Load,
    Parsed,
    Idle,
    Nothing,
}

/// What to wait for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    Time(Duration),
    Element { selector: String, state: &'static str },
    Text(String),
    Url(String),
    Loaded(Until),
    Function(String),
}

/// Every kind, for the text of an error.
const KINDS: [&str; 30] = [
    "back",
    "check",
    "click",
    "dblclick",
    "evaluate",
    "extract",
    "fill",
    "focus",
    "forward",
    "hover",
    "keyboard-inserttext",
    "keyboard-type",
    "keydown",
    "keyup",
    "mouse-down",
    "mouse-move",
    "mouse-up",
    "mouse-wheel",
    "navigate",
    "pdf",
    "press",
    "reload",
    "screenshot",
    "scroll",
    "select",
    "snapshot",
    "text",
    "type",
    "uncheck",
    "wait",
];
/// The longest `wait` for a time, in milliseconds, as in PinchTab.
const WAIT_MS_MAX: f64 = 30_000.0;
/// Frames within frames.
const FRAMES_MAX: usize = 8;
/// How far a direction scrolls, in pixels.
const SCROLL_STEP: f64 = 800.0;
/// The largest coordinate, in pixels.
const PIXELS_MAX: f64 = 1_000_000.0;

impl PageAction {
    /// Reads the body of an action: `{"kind": "click", "selector": "#b", …}`.
    pub fn parse(body: &Value) -> Result<PageAction, BadAction> {
        PageAction::read(&Fields::new(body, "action")?)
    }

    pub(crate) fn read(fields: &Fields<'_>) -> Result<PageAction, BadAction> {
        let asked = fields.required("kind")?;
        let alias = match asked.as_str() {
            "scrollintoview" => "scroll",
            "eval" => "evaluate",
            other => other,
        };
        let Some(kind) = KINDS.into_iter().find(|kind| *kind == alias) else {
            return Err(bad("kind", format!("{asked:?} is not known; give one of {}", KINDS.join(", "))));
        };
        let verb = verb_of(kind, fields)?;
        let frames = frames(&verb, fields)?;
        Ok(PageAction { kind, verb, frames })
    }

    /// The selectors of the frames that the action is about, the outermost first.
    pub(super) fn frames(&self) -> &[String] {
        &self.frames
    }

    /// The kind: `click`, `type`, ….
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// True if the action runs JavaScript of the caller, for which a role may be needed.
    pub fn runs_javascript(&self) -> bool {
        matches!(self.verb, Verb::Evaluate { .. } | Verb::Wait(Condition::Function(_)))
    }
}

fn verb_of(kind: &str, fields: &Fields<'_>) -> Result<Verb, BadAction> {
    Ok(match kind {
        "click" | "dblclick" => click(fields, if kind == "click" { 1 } else { 2 })?,
        "hover" => Verb::Hover(at(fields)?),
        "mouse-move" | "mouse-down" | "mouse-up" | "mouse-wheel" => mouse(kind, fields)?,
        "focus" => Verb::Focus(element(fields)?),
        "type" => Verb::Type { selector: optional_element(fields)?, text: fields.required("text")? },
        "keyboard-type" => Verb::Type { selector: None, text: fields.required("text")? },
        "keyboard-inserttext" => Verb::Insert { text: fields.required("text")? },
        "fill" => {
            let value = fields.text("value")?.or(fields.text("text")?);
            let value = value.ok_or_else(|| bad("value", "it is required; an empty one clears the field"))?;
            Verb::Fill { selector: element(fields)?, value }
        }
        "press" => Verb::Press { selector: optional_element(fields)?, chord: chord(fields)? },
        "keydown" | "keyup" => Verb::Key { chord: chord(fields)?, is_down: kind == "keydown" },
        "select" => Verb::Select { selector: element(fields)?, values: values(fields)? },
        "scroll" => scroll(fields)?,
        "check" | "uncheck" => Verb::Check { selector: element(fields)?, on: kind == "check" },
        "navigate" => Verb::Navigate { url: fields.required("url")?, until: until(fields, "waitUntil")? },
        "back" => Verb::Move(Move::Back, until(fields, "waitUntil")?),
        "forward" => Verb::Move(Move::Forward, until(fields, "waitUntil")?),
        "reload" => Verb::Move(Move::Reload, until(fields, "waitUntil")?),
        "wait" => Verb::Wait(condition(fields)?),
        "screenshot" => screenshot(fields)?,
        "pdf" => Verb::Pdf {
            landscape: fields.flag("landscape")?,
            background: fields.flag("printBackground")?,
            scale: fields.number("scale", 0.1, 2.0)?.unwrap_or(1.0),
            pages: fields.text("pageRanges")?.unwrap_or_default(),
        },
        "evaluate" => {
            let expression = fields.text("expression")?.or(fields.text("script")?);
            Verb::Evaluate { expression: expression.ok_or_else(|| bad("expression", "it is required"))? }
        }
        "extract" => Verb::Extract {
            selector: element(fields)?,
            what: fields.word("what", &["text", "html", "value"])?,
            attribute: fields.text("attribute")?,
            all: fields.flag("all")?,
        },
        "text" => Verb::Text,
        "snapshot" => Verb::Snapshot { filter: fields.word("filter", &["all", "interactive"])? },
        other => return Err(bad("kind", format!("{other:?} is not known"))),
    })
}

/// The frames: a selector, or a list of them, the outermost first. Only what is about an element or a document has them.
fn frames(verb: &Verb, fields: &Fields<'_>) -> Result<Vec<String>, BadAction> {
    let element = match verb {
        Verb::Click { at, .. } | Verb::Hover(at) | Verb::Mouse { at, .. } => match at {
            At::Element(selector) => Some(selector),
            At::Point(..) => None,
        },
        Verb::Focus(selector)
        | Verb::Fill { selector, .. }
        | Verb::Select { selector, .. }
        | Verb::Check { selector, .. }
        | Verb::Extract { selector, .. }
        | Verb::Wait(Condition::Element { selector, .. }) => Some(selector),
        Verb::Type { selector, .. }
        | Verb::Press { selector, .. }
        | Verb::Scroll { selector, .. }
        | Verb::Screenshot { selector, .. } => selector.as_ref(),
        Verb::Text | Verb::Snapshot { .. } | Verb::Wait(Condition::Text(_) | Condition::Url(_)) => None,
        Verb::Insert { .. }
        | Verb::Key { .. }
        | Verb::Navigate { .. }
        | Verb::Move(..)
        | Verb::Wait(_)
        | Verb::Pdf { .. }
        | Verb::Evaluate { .. } => return Ok(Vec::new()),
    };
    let Some(value) = fields.value("frame") else { return Ok(Vec::new()) };
    let texts = match value {
        Value::Array(texts) => texts.iter().map(|text| text.as_str().map(str::to_owned)).collect(),
        text => text.as_str().map(|text| vec![text.to_owned()]),
    };
    let frames: Option<Vec<String>> =
        texts.filter(|texts: &Vec<String>| (1..=FRAMES_MAX).contains(&texts.len()));
    let frames = frames.filter(|frames| frames.iter().all(|frame| !frame.is_empty()));
    let Some(frames) = frames else {
        return Err(bad("frame", format!("it must be a selector, or a list of 1 to {FRAMES_MAX} of them")));
    };
    let needs_element = matches!(
        verb,
        Verb::Click { .. }
            | Verb::Hover(_)
            | Verb::Mouse { .. }
            | Verb::Type { .. }
            | Verb::Press { .. }
            | Verb::Screenshot { .. }
    );
    match element {
        None if needs_element => Err(bad("frame", "it needs the selector of an element in the frame")),
        Some(element) if element.starts_with("ref:") => {
            Err(bad("frame", "a ref knows its frame; give selector with frame"))
        }
        _ => Ok(frames),
    }
}

fn optional_element(fields: &Fields<'_>) -> Result<Option<String>, BadAction> {
    let reference = fields.text("ref")?.filter(|text| !text.is_empty());
    let selector = fields.text("selector")?.filter(|text| !text.is_empty());
    match (selector, reference) {
        (Some(_), Some(_)) => Err(bad("ref", "give selector or ref, not both")),
        (Some(selector), None) => Ok(Some(selector)),
        (None, Some(reference)) => Ok(Some(format!("ref:{reference}"))),
        (None, None) => Ok(None),
    }
}

fn element(fields: &Fields<'_>) -> Result<String, BadAction> {
    optional_element(fields)?.ok_or_else(|| bad("selector", "it is required; give selector or ref"))
}

fn optional_at(fields: &Fields<'_>) -> Result<Option<At>, BadAction> {
    let x = fields.number("x", 0.0, PIXELS_MAX)?;
    let y = fields.number("y", 0.0, PIXELS_MAX)?;
    match (optional_element(fields)?, x, y) {
        (Some(element), _, _) => Ok(Some(At::Element(element))),
        (None, Some(x), Some(y)) => Ok(Some(At::Point(x, y))),
        (None, None, None) => Ok(None),
        (None, None, Some(_)) => Err(bad("x", "it is required with y")),
        (None, Some(_), None) => Err(bad("y", "it is required with x")),
    }
}

fn at(fields: &Fields<'_>) -> Result<At, BadAction> {
    optional_at(fields)?.ok_or_else(|| bad("selector", "it is required; give selector, ref, or x and y"))
}

fn click(fields: &Fields<'_>, count: u32) -> Result<Verb, BadAction> {
    let dialog = match fields.text("dialogAction")?.as_deref() {
        None => None,
        Some("accept") => Some((true, fields.text("dialogText")?)),
        Some("dismiss") => Some((false, None)),
        Some(other) => {
            return Err(bad("dialogAction", format!("{other:?} is not known; give accept or dismiss")));
        }
    };
    fields.text("dialogText")?;
    let by_dom = fields.word("mode", &["mouse", "dom"])? == "dom";
    let at = at(fields)?;
    if by_dom && matches!(at, At::Point(..)) {
        return Err(bad("mode", "dom needs an element; give selector or ref"));
    }
    let button = fields.word("button", &["left", "right", "middle"])?;
    Ok(Verb::Click { at, count, button, by_dom, wait_nav: fields.flag("waitNav")?, dialog })
}

fn mouse(kind: &str, fields: &Fields<'_>) -> Result<Verb, BadAction> {
    let event = match kind {
        "mouse-move" => "mouseMoved",
        "mouse-down" => "mousePressed",
        "mouse-up" => "mouseReleased",
        _ => "mouseWheel",
    };
    let delta = |name| fields.number(name, -PIXELS_MAX, PIXELS_MAX);
    let delta = (delta("deltaX")?.unwrap_or(0.0), delta("deltaY")?.unwrap_or(0.0));
    Ok(Verb::Mouse {
        event,
        at: at(fields)?,
        button: fields.word("button", &["left", "right", "middle"])?,
        delta,
    })
}

fn chord(fields: &Fields<'_>) -> Result<Chord, BadAction> {
    let key = fields.required("key")?;
    Chord::parse(&key).map_err(|reason| bad("key", reason))
}

fn values(fields: &Fields<'_>) -> Result<Vec<String>, BadAction> {
    if let Some(value) = fields.text("value")? {
        return Ok(vec![value]);
    }
    let Some(values) = fields.value("values") else { return Err(bad("value", "it is required")) };
    let texts = values.as_array().map(|values| values.iter().map(|value| value.as_str().map(str::to_owned)));
    texts.and_then(Iterator::collect).ok_or_else(|| bad("values", "it must be a list of texts"))
}

fn scroll(fields: &Fields<'_>) -> Result<Verb, BadAction> {
    let number = |name| fields.number(name, -PIXELS_MAX, PIXELS_MAX);
    let x = number("scrollX")?.or(number("deltaX")?);
    let y = number("scrollY")?.or(number("deltaY")?);
    let pixels = number("pixels")?;
    let far = pixels.unwrap_or(SCROLL_STEP);
    let direction = match fields.text("direction")?.as_deref() {
        None => pixels.map(|pixels| (0.0, pixels)),
        Some("down") => Some((0.0, far)),
        Some("up") => Some((0.0, -far)),
        Some("right") => Some((far, 0.0)),
        Some("left") => Some((-far, 0.0)),
        Some(other) => {
            return Err(bad("direction", format!("{other:?} is not known; give down, up, left or right")));
        }
    };
    let by = match (x, y) {
        (None, None) => direction,
        (x, y) => Some((x.unwrap_or(0.0), y.unwrap_or(0.0))),
    };
    let selector = optional_element(fields)?;
    if selector.is_none() && by.is_none() {
        return Err(bad("scrollY", "it is required without selector; give scrollX, scrollY or direction"));
    }
    Ok(Verb::Scroll { selector, by })
}

fn until(fields: &Fields<'_>, name: &'static str) -> Result<Until, BadAction> {
    Ok(match fields.word(name, &["load", "domcontentloaded", "networkidle", "none"])? {
        "domcontentloaded" => Until::Parsed,
        "networkidle" => Until::Idle,
        "none" => Until::Nothing,
        _ => Until::Load,
    })
}

fn condition(fields: &Fields<'_>) -> Result<Condition, BadAction> {
    let mut found = Vec::new();
    let time = fields.number("ms", 0.0, WAIT_MS_MAX)?;
    found.extend(time.map(|ms| Condition::Time(Duration::from_millis(ms as u64))));
    let state = fields.word("state", &["visible", "present", "hidden"])?;
    found.extend(optional_element(fields)?.map(|selector| Condition::Element { selector, state }));
    found.extend(fields.text("text")?.map(Condition::Text));
    found.extend(fields.text("url")?.map(Condition::Url));
    found.extend(fields.text("function")?.or(fields.text("fn")?).map(Condition::Function));
    if fields.value("load").is_some() {
        let until = fields.word(
            "load",
            &["load", "ready-state", "domcontentloaded", "content-loaded", "networkidle", "network-idle"],
        )?;
        found.push(Condition::Loaded(match until {
            "networkidle" | "network-idle" => Until::Idle,
            "domcontentloaded" | "content-loaded" => Until::Parsed,
            _ => Until::Load,
        }));
    }
    match (found.pop(), found.is_empty()) {
        (Some(condition), true) => Ok(condition),
        (Some(_), false) => {
            Err(bad("selector", "give one condition: selector, text, url, load, function or ms"))
        }
        (None, _) => {
            Err(bad("selector", "a condition is required: selector, text, url, load, function or ms"))
        }
    }
}

fn screenshot(fields: &Fields<'_>) -> Result<Verb, BadAction> {
    let format = match fields.word("format", &["png", "jpeg", "jpg", "webp"])? {
        "jpg" => "jpeg",
        format => format,
    };
    let quality = fields.number("quality", 0.0, 100.0)?.map(|quality| quality as u8);
    let full_page = fields.flag("fullPage")? | fields.flag("beyondViewport")?;
    Ok(Verb::Screenshot { selector: optional_element(fields)?, full_page, format, quality })
}

//! Feedback of a running attempt besides its progress: pieces of its output, and changes to its partial result.
//!
//! It is sent to listeners and never stored: durable data is in the job's log and in its result. Every piece and every
//! change of one attempt has a number of its own, 1, 2, 3, …, so that a listener sees what it missed.

use laneway_core::{JobId, Name, Wall};
use serde_json::{Map, Value};

use crate::executors::cut;

/// Most bytes of pieces and changes in one report; longer ones are cut or left out, with a note.
pub const FEEDBACK_BYTES_MAX: usize = 64 << 10;
/// Most changes in one report; the rest is left out.
pub const CHANGES_MAX: usize = 256;

/// The stream of a job's log that holds what its runs reported beside text, one JSON object a line, in order:
/// `{"metrics": …}`, `{"metadata": …}`, `{"chunk": {"channel", "index", "metadata"}}`.
pub const REPORTS: &str = "reports";
/// Longest line of that stream in bytes: a longer report is left out, and its line says so.
pub const REPORT_LEN_MAX: usize = 8 << 10;

/// The line that keeps a report.
pub fn report_line(report: &Value) -> String {
    let line = report.to_string();
    if line.len() <= REPORT_LEN_MAX {
        return line;
    }
    serde_json::json!({"left_out_bytes": line.len()}).to_string()
}

/// The metrics and metadata that attempts of a job reported, merged over the lines of one attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reported {
    attempt: u32,
    /// The latest value of each metric.
    pub metrics: Map<String, Value>,
    /// Metadata: a later value replaces an earlier one, `null` removes it.
    pub metadata: Map<String, Value>,
}

impl Reported {
    /// Takes up a line of the stream [`REPORTS`]. Lines of a later attempt replace those of an earlier one.
    pub fn add(&mut self, attempt: u32, line: &str) {
        let Ok(Value::Object(mut report)) = serde_json::from_str(line) else { return };
        if attempt != self.attempt {
            *self = Reported { attempt, ..Reported::default() };
        }
        for (field, all) in [("metrics", &mut self.metrics), ("metadata", &mut self.metadata)] {
            let Some(Value::Object(fields)) = report.remove(field) else { continue };
            for (name, value) in fields {
                match value {
                    Value::Null => drop(all.remove(&name)),
                    value => drop(all.insert(name, value)),
                }
            }
        }
    }
}

/// One report.
#[derive(Clone, Debug, PartialEq)]
pub struct Feedback {
    /// The job.
    pub job: JobId,
    /// The tenant of the job.
    pub tenant: Name,
    /// The attempt that says so.
    pub attempt: u32,
    /// The number of its first piece or change. The others follow, pieces first.
    pub first: u64,
    /// Pieces of what it writes.
    pub pieces: Vec<Piece>,
    /// Changes to what it has so far.
    pub changes: Vec<Change>,
    /// The time of the report.
    pub at: Wall,
}

/// A piece of what a run writes.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Piece {
    /// Where it belongs: `stdout`, `stderr`, `llm`, ….
    pub channel: &'static str,
    /// The text, or bytes in base64.
    pub body: Body,
    /// The type of the body.
    pub mime_type: Option<Box<str>>,
    /// Further data of it, as JSON.
    pub metadata: Option<Value>,
    /// True: a part of it was cut off.
    pub is_cut: bool,
}

/// The content of a piece.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Text.
    Text(Box<str>),
    /// Bytes, in base64.
    Base64(Box<str>),
}

impl Default for Body {
    fn default() -> Body {
        Body::Text(Box::default())
    }
}

/// A change to what a run has so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Where: a JSON pointer.
    pub path: String,
    /// The new value. `None`: it was removed.
    pub value: Option<Value>,
}

/// Cuts pieces so that all of them together have at most [`FEEDBACK_BYTES_MAX`] bytes.
pub fn bounded(mut pieces: Vec<Piece>) -> Vec<Piece> {
    let mut left = FEEDBACK_BYTES_MAX;
    for piece in &mut pieces {
        let metadata = piece.metadata.as_ref().map_or(0, |metadata| metadata.to_string().len());
        if metadata > left {
            (piece.metadata, piece.is_cut) = (None, true);
        }
        left = left.saturating_sub(metadata);
        match &mut piece.body {
            Body::Text(text) if text.len() > left => (*text, piece.is_cut) = (cut(text, left).into(), true),
            // A part of base64 is no base64.
            Body::Base64(text) if text.len() > left => (*text, piece.is_cut) = (Box::default(), true),
            Body::Text(_) | Body::Base64(_) => {}
        }
        let (Body::Text(text) | Body::Base64(text)) = &piece.body;
        left -= text.len();
    }
    pieces
}

/// The changes that follow when `patch` is merged into what a run has: objects are merged, `null` takes away, everything
/// else is put in place.
pub fn changes_of(patch: &Value) -> Vec<Change> {
    let (mut changes, mut left) = (Vec::new(), FEEDBACK_BYTES_MAX);
    collect(patch, String::new(), &mut changes, &mut left);
    changes
}

fn collect(patch: &Value, path: String, changes: &mut Vec<Change>, left: &mut usize) {
    if changes.len() >= CHANGES_MAX {
        return;
    }
    if let Value::Object(fields) = patch
        && !fields.is_empty()
    {
        for (name, value) in fields {
            let name = name.replace('~', "~0").replace('/', "~1");
            collect(value, format!("{path}/{name}"), changes, left);
        }
        return;
    }
    // The whole cannot be taken away or replaced by something that is no object.
    if path.is_empty() {
        return;
    }
    let len = path.len() + patch.to_string().len();
    if let Some(rest) = left.checked_sub(len) {
        *left = rest;
        changes.push(Change { path, value: (!patch.is_null()).then(|| patch.clone()) });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        Body, CHANGES_MAX, FEEDBACK_BYTES_MAX, Piece, REPORT_LEN_MAX, Reported, bounded, changes_of,
        report_line,
    };

    fn changes(patch: &Value) -> Vec<(String, Option<Value>)> {
        changes_of(patch).into_iter().map(|change| (change.path, change.value)).collect()
    }

    #[test]
    fn a_merge_is_a_list_of_changes() {
        let patch = json!({"a": {"b/c": 1, "d~": null}, "list": [1], "empty": {}});
        assert_eq!(
            changes(&patch),
            [
                ("/a/b~1c".into(), Some(json!(1))),
                ("/a/d~0".into(), None),
                ("/empty".into(), Some(json!({}))),
                ("/list".into(), Some(json!([1]))),
            ]
        );
        assert_eq!(changes(&json!(7)), [], "the whole stays an object");
    }

    #[test]
    fn reports_are_merged_within_an_attempt() {
        let mut reported = Reported::default();
        for line in [
            r#"{"metrics": {"loss": 1}}"#,
            r#"{"metadata": {"a": 1, "b": {"c": 2}}}"#,
            "no JSON",
            r#"{"metrics": {"rate": 2}, "metadata": {"a": null}}"#,
            r#"{"chunk": {"channel": "stdout", "metadata": {"x": 1}}}"#,
        ] {
            reported.add(1, line);
        }
        assert_eq!(Value::Object(reported.metrics.clone()), json!({"loss": 1, "rate": 2}));
        assert_eq!(Value::Object(reported.metadata.clone()), json!({"b": {"c": 2}}));
        reported.add(2, r#"{"metrics": {"loss": 7}}"#);
        assert_eq!(
            Value::Object(reported.metrics.clone()),
            json!({"loss": 7}),
            "another attempt begins anew"
        );
        assert!(reported.metadata.is_empty());
        let long = report_line(&json!({"metadata": {"text": "x".repeat(REPORT_LEN_MAX)}}));
        assert!(long.contains("left_out_bytes") && long.len() < 100, "{long}");
    }

    #[test]
    fn one_report_is_bounded() {
        let many: serde_json::Map<String, Value> = (0..1_000).map(|n| (n.to_string(), json!(n))).collect();
        assert_eq!(changes(&Value::Object(many)).len(), CHANGES_MAX);
        let long = "x".repeat(FEEDBACK_BYTES_MAX);
        assert_eq!(changes(&json!({"long": long, "short": 1})), [("/short".into(), Some(json!(1)))]);
        let text =
            |text: &str| Piece { channel: "stdout", body: Body::Text(text.into()), ..Piece::default() };
        let pieces = bounded(vec![text("one"), text(&long), text("three")]);
        let lens: Vec<_> = pieces.iter().map(|piece| (piece.body.clone(), piece.is_cut)).collect();
        assert_eq!(lens[0], (Body::Text("one".into()), false));
        assert_eq!(lens[1], (Body::Text(long[3..].into()), true));
        assert_eq!(lens[2], (Body::Text("".into()), true));
    }
}

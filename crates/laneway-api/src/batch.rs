//! Finds the jobs of a batch in a body that arrives in parts, so that each can be parsed at once and its bytes dropped.
//!
//! The splitter keeps the job that has arrived in part and the *frame*: the body with an empty list of jobs. It finds
//! where jobs end, and leaves it to the parser to decide whether they are JSON. `v1/submit.rs` feeds it.

use laneway_wire::{BATCH_JOBS_MAX, JobRequest, UpTo};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{ApiError, Code};
use crate::json::{self, Origin, Position};

/// The most bytes outside of the jobs. They are kept until the body ends, like a small batch.
const FRAME_MAX: usize = 1 << 20;
/// The buffer for jobs keeps this many bytes from one job to the next.
const KEPT: usize = 64 << 10;
/// The length up to which a string is searched byte by byte.
const SHORT_TEXT: usize = 16;
/// Jobs are two levels deeper than the body, so that they may be as deep as a single job.
const DEPTH_MAX: usize = json::DEPTH_MAX + 2;

/// A batch whose jobs are not parsed yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnreadBatch<'a> {
    /// The jobs.
    #[serde(borrow)]
    pub jobs: UpTo<&'a RawValue, BATCH_JOBS_MAX>,
    /// True: the server admits all jobs or none.
    #[serde(default)]
    pub atomic: bool,
}

/// Splits the body of a batch.
#[derive(Default)]
pub struct Splitter {
    part: Part,
    nesting: Nesting,
    /// The position of the next byte.
    at: Position,
    frame: Vec<u8>,
    key: Key,
    /// Where the list of jobs begins in the frame, and where it ends in the body.
    list: Option<(Position, Position)>,
    job: Vec<u8>,
    job_at: Position,
    jobs: usize,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Default)]
enum Part {
    #[default]
    Frame,
    /// The list, after its bracket.
    First,
    /// The list, after a comma.
    Next,
    /// The list, after a job.
    After,
    /// An object, a list or a string in place of a job.
    Nested,
    /// A number or a literal in place of a job.
    Scalar,
}

/// What the last bytes of the frame are.
#[derive(Clone, Copy, Default)]
enum Key {
    #[default]
    Other,
    /// A string on the first level that begins here.
    Text(usize),
    /// The name `jobs`.
    Name,
    /// The name `jobs` and a colon.
    Colon,
}

impl Splitter {
    /// Takes the next bytes, and calls `found` with each job that is complete, and with its position. The item limit
    /// applies when a job too many begins.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut found: impl FnMut(&[u8], &Origin) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        // Where the job begins in these bytes.
        let mut from = 0;
        let mut index = 0;
        while let Some(&byte) = bytes.get(index) {
            if matches!(self.part, Part::Nested) {
                // Almost all bytes of a batch are here.
                let (len, closed) = self.nesting.skip(&bytes[index..]);
                self.at.step_all(&bytes[index..index + len]);
                index += len;
                if closed {
                    self.complete(&bytes[from..index], &mut found)?;
                }
                continue;
            }
            if matches!(self.part, Part::Scalar) && ends_scalar(byte) {
                self.complete(&bytes[from..index], &mut found)?;
            }
            match self.part {
                Part::Frame => self.step_frame(byte)?,
                Part::First | Part::Next | Part::After => {
                    from = index;
                    self.step_list(byte)?;
                }
                Part::Nested | Part::Scalar => {}
            }
            self.at.step(byte);
            index += 1;
        }
        if matches!(self.part, Part::Nested | Part::Scalar) {
            self.job.extend_from_slice(&bytes[from..]);
        }
        Ok(())
    }

    /// The body has ended. Returns whether the batch is atomic.
    pub fn finish(
        mut self,
        mut found: impl FnMut(&[u8], &Origin) -> Result<(), ApiError>,
    ) -> Result<bool, ApiError> {
        if matches!(self.part, Part::Nested | Part::Scalar) {
            self.complete(&[], &mut found)?;
        }
        if matches!(self.part, Part::Next) {
            return Err(json::malformed_at("EOF while parsing a value", self.at.line, self.at.column));
        }
        let mut origin = Origin::default();
        if let Some((from, to)) = self.list {
            let to = if matches!(self.part, Part::Frame) { to } else { self.at };
            (origin.from, origin.to) = (from, to);
        }
        let frame = json::check_part(&self.frame, DEPTH_MAX, &origin)?;
        let UnreadBatch { atomic, .. } = json::parse_part(frame, &origin)?;
        Ok(atomic)
    }

    fn step_frame(&mut self, byte: u8) -> Result<(), ApiError> {
        if self.frame.len() == FRAME_MAX {
            let detail = format!(
                "the body has more than {FRAME_MAX} bytes outside of the list jobs; send only the fields jobs and atomic"
            );
            return Err(ApiError::new(Code::InvalidField, detail));
        }
        self.frame.push(byte);
        if matches!((self.key, byte), (Key::Colon, b'[')) && self.nesting.depth == 1 {
            let mut list = Position::default();
            self.frame.iter().for_each(|&byte| list.step(byte));
            self.list = Some((list, list));
            self.part = Part::First;
            return Ok(());
        }
        let was_text = self.nesting.in_string;
        self.nesting.step(byte);
        self.key = match (self.key, byte) {
            (Key::Text(from), _) if was_text => match self.nesting.in_string {
                true => Key::Text(from),
                false if is_jobs(&self.frame[from..]) => Key::Name,
                false => Key::Other,
            },
            (_, b'"') if self.nesting.depth == 1 && !was_text => Key::Text(self.frame.len() - 1),
            (Key::Name, b':') => Key::Colon,
            (key, byte) if byte.is_ascii_whitespace() => key,
            _ => Key::Other,
        };
        Ok(())
    }

    fn step_list(&mut self, byte: u8) -> Result<(), ApiError> {
        let malformed = |message| Err(json::malformed_at(message, self.at.line, self.at.column + 1));
        match (self.part, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (Part::Next, b']') => return malformed("trailing comma"),
            (_, b']') => {
                if let Some((_, end)) = &mut self.list {
                    *end = self.at;
                }
                self.frame.push(byte);
                (self.part, self.key) = (Part::Frame, Key::Other);
                self.nesting = Nesting { depth: 1, ..Nesting::default() };
            }
            (Part::After, b',') => self.part = Part::Next,
            (Part::After, _) => return malformed("expected `,` or `]`"),
            (_, b',') => return malformed("expected value"),
            _ => return self.begin(byte),
        }
        Ok(())
    }

    /// A job begins with this byte.
    fn begin(&mut self, byte: u8) -> Result<(), ApiError> {
        if self.jobs == BATCH_JOBS_MAX {
            let detail = format!("jobs: has more than {BATCH_JOBS_MAX} items; give at most {BATCH_JOBS_MAX}");
            let mut error = ApiError::new(Code::InvalidField, detail);
            error.field = Some("jobs".to_owned());
            return Err(error);
        }
        self.job_at = self.at;
        self.nesting = Nesting::default();
        self.nesting.step(byte);
        self.part = if self.nesting.is_closed() { Part::Scalar } else { Part::Nested };
        Ok(())
    }

    /// A job ends with these bytes.
    fn complete(
        &mut self,
        end: &[u8],
        found: &mut impl FnMut(&[u8], &Origin) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let origin = Origin { depth: 2, job: Some(self.jobs), from: Position::default(), to: self.job_at };
        self.jobs += 1;
        self.part = Part::After;
        if self.job.is_empty() {
            return found(end, &origin);
        }
        self.job.extend_from_slice(end);
        found(&self.job, &origin)?;
        self.job.clear();
        self.job.shrink_to(KEPT);
        Ok(())
    }
}

/// Parses a job of a batch. The outer error is one of the whole body, which is not JSON or has a string that cannot be
/// read back. The inner one is the job's own.
pub fn parse_job<'a>(job: &'a [u8], origin: &Origin) -> Result<Result<JobRequest<'a>, ApiError>, ApiError> {
    let text = json::check_part(job, DEPTH_MAX, origin)?;
    let parsed = json::parse_job_text(text);
    if parsed.is_err() {
        serde_json::from_str::<&RawValue>(text).map_err(|error| origin.malformed(&error))?;
    }
    Ok(parsed)
}

/// True for the name `jobs`, in quotes.
fn is_jobs(name: &[u8]) -> bool {
    serde_json::from_slice::<String>(name).is_ok_and(|name| name == "jobs")
}

/// How many bytes of a string come before its end or an escape.
fn text_len(bytes: &[u8]) -> usize {
    // Most strings are short, and a call costs more than a few bytes.
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\');
    if let Some(len) = bytes.iter().take(SHORT_TEXT).position(ends) {
        return len;
    }
    let short = bytes.len().min(SHORT_TEXT);
    short + memchr::memchr2(b'"', b'\\', &bytes[short..]).unwrap_or(bytes.len() - short)
}

fn is_structure(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'[' | b'}' | b']')
}

fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b']' | b'}')
}

/// How deep the next byte is, and whether it is in a string. It only has to be right for valid JSON.
#[derive(Clone, Copy, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    fn step(&mut self, byte: u8) {
        match (self.in_string, byte) {
            (true, _) if self.escaped => self.escaped = false,
            (true, b'\\') => self.escaped = true,
            (_, b'"') => self.in_string = !self.in_string,
            (false, b'{' | b'[') => self.depth += 1,
            (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Steps over bytes until what began outside of them is closed. Returns how many there are, and whether it is closed.
    fn skip(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            if self.in_string && !self.escaped {
                at += text_len(&bytes[at..]);
                if at == bytes.len() {
                    break;
                }
            }
            let byte = bytes[at];
            at += 1;
            if is_structure(byte) || self.in_string {
                self.step(byte);
                if self.is_closed() {
                    return (at, true);
                }
            }
        }
        (at, false)
    }

    fn is_closed(&self) -> bool {
        self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use laneway_wire::{BatchRequest, JobRequest};

    use super::*;

    /// The kinds of the jobs, or the code of the error of each, and whether the batch is atomic. The body arrives in parts
    /// of this length.
    fn split(body: &[u8], part: usize) -> Result<(Vec<String>, bool), ApiError> {
        let mut splitter = Splitter::default();
        let mut jobs = Vec::new();
        let mut found = |job: &[u8], origin: &Origin| {
            let parsed = parse_job(job, origin)?;
            jobs.push(parsed.map_or_else(|error| format!("{:?}", error.code), |job| job.kind.into_owned()));
            Ok(())
        };
        for part in body.chunks(part) {
            splitter.feed(part, &mut found)?;
        }
        let atomic = splitter.finish(&mut found)?;
        Ok((jobs, atomic))
    }

    #[test]
    fn defect_09_jobs_are_found_however_the_body_is_cut() {
        let body = br#" { "x\"jobs" : 1 } "#;
        assert_eq!(split(body, 1).unwrap_err().code, Code::UnknownField);
        let kinds = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect::<Vec<_>>();
        for (body, expected) in [
            (r#"{"jobs":[]}"#, (kinds(&[]), false)),
            (r#"{"jobs":[{"kind":"a"}]}"#, (kinds(&["a"]), false)),
            (
                "{\n \"atomic\" : true ,\n \"jobs\" : [ {\"kind\":\"a]}\"} ,\n{\"kind\":\"b\\\\\"}]\n}\n",
                (kinds(&["a]}", "b\\"]), true),
            ),
            (
                r#"{"\u006aobs":[{"kind":"a","payload":[[{"jobs":[1]}],"\""]},7,"x",[1],null],"atomic":false}"#,
                (kinds(&["a", "InvalidField", "InvalidField", "InvalidField", "InvalidField"]), false),
            ),
        ] {
            for part in [1, 2, 3, 7, 1_000] {
                assert_eq!(split(body.as_bytes(), part).unwrap(), expected, "{body} in parts of {part}");
            }
        }
    }

    /// Errors have the codes, the texts and the positions that a parser of the whole body gives.
    #[test]
    fn defect_09_errors_are_those_of_the_whole_body() {
        for body in [
            "",
            " ",
            "null",
            "[]",
            r#"{"#,
            r#"{}"#,
            r#"{"jobs"#,
            r#"{"jobs":"#,
            r#"{"jobs":null}"#,
            r#"{"jobs":{"a":[1]}}"#,
            r#"{"jobs":["#,
            r#"{"jobs":[{"kind":"a"}"#,
            r#"{"jobs":[{"kind":"a"},"#,
            r#"{"jobs":[{"kind":"a"},]}"#,
            r#"{"jobs":[,{"kind":"a"}]}"#,
            r#"{"jobs":[{"kind":"a"},,{"kind":"a"}]}"#,
            "{\"jobs\":[{\"kind\":\"a\"}\n {\"kind\":\"b\"}]}",
            "{\"jobs\":[{\"kind\":\"a\"},\n {\"kind\":\"b\",]}",
            "{\"jobs\":[{\"kind\":\"a\"},\n {\"kind\":\n\"b\"]}",
            r#"{"jobs":[{"kind":"a"},{"kind":"b"#,
            r#"{"jobs":[{"kind":"a"}]"#,
            "{\"jobs\":[{\"kind\":\"a\"}\n]]",
            "{\"jobs\":[{\"kind\":\"a\"}\n,{\"kind\":\"a\"}] \"atomic\":true}",
            "{\"jobs\":[{\"kind\":\"a\"}],\n\"atomic\":tru}",
            r#"{"jobs":[{"kind":"a"}],"atomic":1}"#,
            r#"{"jobs":[{"kind":"a"}],"atmic":true}"#,
            r#"{"jobs":[{"kind":"a"}],"jobs":[]}"#,
            r#"{"jobs":[{"kind":"a"}]} x"#,
            r#"{"jobs":[{"kind":"a"},}]}"#,
            r#"{"jobs":[{"kind":"a"},{"kind":"\u0000"}]}"#,
            r#"{"jobs":[{"kind":"a"},{"kind":"a","tags":["x","\ud800"]}]}"#,
            r#"{"jobs":[{"kind":"a"}],"atomic":"\u0000"}"#,
        ] {
            let whole = json::check(body.as_bytes(), DEPTH_MAX)
                .and_then(|text| json::parse_text::<UnreadBatch<'_>>(text).map(drop))
                .expect_err(body);
            for part in [1, 5, 1_000] {
                let error = split(body.as_bytes(), part).expect_err(body);
                let shown = (error.code, error.field.as_deref(), error.detail.as_ref());
                assert_eq!(shown, (whole.code, whole.field.as_deref(), whole.detail.as_ref()), "{body}");
            }
        }
        let deep = format!(r#"{{"jobs":[{{"kind":"k","payload":{}"#, "[".repeat(64));
        let complete = format!("{deep}{}}}]}}", "]".repeat(64));
        for body in [deep, complete] {
            assert_eq!(split(body.as_bytes(), 10).unwrap_err().code, Code::TooDeep);
        }
        // The parser does not see what follows a literal.
        let error = split(br#"{"jobs":[{"kind":"a"},nul]}"#, 3).unwrap_err();
        assert_eq!(error.detail, "EOF while parsing a value at line 1 column 25");
        let error = split(b"{\"jobs\":[{\"kind\":\"a\"},{\"kind\":\"\xff\"}]}", 3).unwrap_err();
        assert_eq!(error.detail, "the body is not UTF-8 after byte 31");
    }

    /// What serializes a batch is read back.
    #[test]
    fn defect_09_a_serialized_batch_is_read_back() {
        let job: JobRequest<'_> = serde_json::from_str(r#"{"kind":"k","payload":{"a":["\"]"]}}"#).unwrap();
        let batch = BatchRequest { jobs: vec![job; 3], atomic: true };
        let body = serde_json::to_vec_pretty(&batch).unwrap();
        assert_eq!(split(&body, 4).unwrap(), (vec!["k".to_owned(); 3], true));
    }

    #[test]
    fn defect_09_a_job_too_many_ends_the_batch_when_it_begins() {
        let body = format!(r#"{{"jobs":[{}"#, "1,".repeat(BATCH_JOBS_MAX));
        let mut splitter = Splitter::default();
        splitter.feed(body.as_bytes(), |_, _| Ok(())).unwrap();
        let error = splitter.feed(b"{", |_, _| Ok(())).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (Code::InvalidField, Some("jobs")));
        assert_eq!(error.detail, "jobs: has more than 10000 items; give at most 10000");
    }

    /// The splitter keeps the job that is incomplete, and little else.
    #[test]
    fn defect_09_little_of_a_body_is_kept() {
        let mut splitter = Splitter::default();
        let large = format!(r#"{{"kind":"k","payload":"{}"}},"#, "x".repeat(1 << 20));
        splitter.feed(b"{\"jobs\":[", |_, _| Ok(())).unwrap();
        for _ in 0..20 {
            for part in large.as_bytes().chunks(10_000) {
                splitter.feed(part, |_, _| Ok(())).unwrap();
            }
            assert!(splitter.job.capacity() <= KEPT && splitter.frame.len() < 20);
        }
        let padding = vec![b' '; FRAME_MAX + 1];
        let error = Splitter::default().feed(&padding, |_, _| Ok(())).unwrap_err();
        assert!(error.detail.contains("outside of the list jobs"), "{}", error.detail);
    }
}

//! Free text in filters of lists: which words a job has, and which searches find it.
//!
//! A word is a sequence of letters and digits, in lower case. A search finds a job if every word of the search begins a word of
//! the job's kind, agent, tags, or of the code or message of its error. So `time` finds `timeout`, and `out` does not. This rule
//! needs a small index: stores index words, and no store has to read jobs that do not match.

use laneway_core::{Failure, JobId, JobSpec};
use thiserror::Error;

use crate::JobView;

/// Longest search in bytes.
pub const SEARCH_LEN_MAX: usize = 200;
/// Most words of a search.
pub const SEARCH_WORDS_MAX: usize = 8;
/// How much of a word counts, in bytes. Longer words are cut, in jobs and in searches alike.
pub const WORD_LEN_MAX: usize = 32;
/// How many words of an error's message count: enough for a sentence, not for a stack trace.
pub const ERROR_WORDS_MAX: usize = 48;
/// Fewest hexadecimal digits of a part of an id. The first digits are a time: fewer would name the jobs of hours.
const ID_DIGITS_MIN: usize = 8;
const ID_DIGITS: usize = 32;

/// A text that jobs are searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    text: Box<str>,
    terms: Vec<Term>,
}

/// A part of a search between white space. A job has it if its id begins or ends with it, or if it has all of its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The range of ids that begin with it, if it can be the beginning of one.
    pub ids: Option<(JobId, JobId)>,
    /// The end of an id that it can be.
    pub end: Option<IdEnd>,
    /// Its words. Each begins a word of the job.
    pub words: Vec<Box<str>>,
}

/// The last digits of an id, at least eight: the short form of ids in tables, or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdEnd {
    value: u128,
    mask: u128,
}

impl IdEnd {
    /// The last eight digits of an id.
    pub fn short(id: JobId) -> u32 {
        id.0 as u32
    }

    /// The last eight digits.
    pub fn short_part(&self) -> u32 {
        self.value as u32
    }

    /// Does the id end so?
    pub fn fits(&self, id: JobId) -> bool {
        id.0 & self.mask == self.value
    }
}

/// Why a text cannot be searched for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SearchError {
    /// There is no letter and no digit.
    #[error("has no word; give letters or digits")]
    Empty,
    /// Too long.
    #[error("has {0} bytes; at most {SEARCH_LEN_MAX} are allowed")]
    TooLong(usize),
    /// Too many words.
    #[error("has {0} words; at most {SEARCH_WORDS_MAX} are allowed")]
    TooManyWords(usize),
}

impl Search {
    /// Reads a search.
    pub fn parse(text: &str) -> Result<Search, SearchError> {
        if text.len() > SEARCH_LEN_MAX {
            return Err(SearchError::TooLong(text.len()));
        }
        let terms = text.split_whitespace().map(Term::of).filter(|term| !term.words.is_empty());
        let terms: Vec<Term> = terms.collect();
        match terms.iter().map(|term| term.words.len()).sum() {
            0 => Err(SearchError::Empty),
            count if count > SEARCH_WORDS_MAX => Err(SearchError::TooManyWords(count)),
            _ => Ok(Search { text: text.trim().into(), terms }),
        }
    }

    /// The text, as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its parts. All of them must be found.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Does it find this job?
    pub fn matches(&self, job: &JobView) -> bool {
        let mut words = Vec::new();
        spec_words(&job.row.spec, &mut |word| words.push(word.into()));
        if let Some(error) = job.end.as_ref().and_then(|end| end.error.as_ref()) {
            error_words(error, &mut |word| words.push(word.into()));
        }
        self.terms.iter().all(|term| term.matches(job.row.id, &words))
    }
}

impl Term {
    fn of(text: &str) -> Term {
        let mut words = Vec::new();
        plain_words(text, &mut |word| words.push(word.into()));
        let digits = id_digits(text);
        Term { ids: digits.as_deref().and_then(ids_of), end: digits.as_deref().and_then(end_of), words }
    }

    fn matches(&self, id: JobId, words: &[Box<str>]) -> bool {
        self.ids.is_some_and(|(from, to)| (from..=to).contains(&id))
            || self.end.is_some_and(|end| end.fits(id))
            || self.words.iter().all(|wanted| words.iter().any(|word| word.starts_with(&**wanted)))
    }
}

/// The digits of a part of an id, which may have hyphens between them.
fn id_digits(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|char| *char != '-').collect();
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && (ID_DIGITS_MIN..=ID_DIGITS).contains(&digits.len())).then_some(digits)
}

/// The ids that begin with these digits.
fn ids_of(digits: &str) -> Option<(JobId, JobId)> {
    let bits = 4 * (ID_DIGITS - digits.len()) as u32;
    let from = u128::from_str_radix(digits, 16).ok()? << bits;
    Some((JobId(from), JobId(from | ((1 << bits) - 1))))
}

/// The ids that end with these digits.
fn end_of(digits: &str) -> Option<IdEnd> {
    let value = u128::from_str_radix(digits, 16).ok()?;
    Some(IdEnd { value, mask: u128::MAX >> (4 * (ID_DIGITS - digits.len())) })
}

/// The words of a job as it was submitted. A word may come twice.
pub fn spec_words(spec: &JobSpec, word: &mut dyn FnMut(&str)) {
    words_of(spec.kind.as_str(), word);
    words_of(spec.agent.as_str(), word);
    spec.tags.iter().for_each(|tag| words_of(tag.as_str(), word));
}

/// The words of the error that ended a job. A word may come twice.
pub fn error_words(error: &Failure, word: &mut dyn FnMut(&str)) {
    words_of(error.code.as_str(), word);
    let mut count = 0;
    words_of(&error.message, &mut |text| {
        count += 1;
        if count <= ERROR_WORDS_MAX {
            word(text);
        }
    });
}

/// The words of a text, and their parts: `ConnectTimeout` is `connecttimeout`, `connect` and `timeout`.
pub fn words_of(text: &str, word: &mut dyn FnMut(&str)) {
    for run in text.split(|char: char| !char.is_alphanumeric()).filter(|run| !run.is_empty()) {
        word(&lower(run));
        let mut rest = run;
        while let Some(at) = hump(rest) {
            word(&lower(&rest[..at]));
            rest = &rest[at..];
        }
        if rest.len() < run.len() {
            word(&lower(rest));
        }
    }
}

/// The words of a search: whole ones only.
fn plain_words(text: &str, word: &mut dyn FnMut(&str)) {
    for run in text.split(|char: char| !char.is_alphanumeric()).filter(|run| !run.is_empty()) {
        word(&lower(run));
    }
}

/// Where a capital letter follows a small one.
fn hump(run: &str) -> Option<usize> {
    let mut before = false;
    for (at, char) in run.char_indices() {
        if before && char.is_uppercase() {
            return Some(at);
        }
        before = char.is_lowercase();
    }
    None
}

/// In lower case, and cut where a word ends to count.
fn lower(run: &str) -> String {
    let mut word = run.to_lowercase();
    if word.len() > WORD_LEN_MAX {
        let end = (0..=WORD_LEN_MAX).rev().find(|at| word.is_char_boundary(*at)).unwrap_or(0);
        word.truncate(end);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        words_of(text, &mut |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn words_are_letters_and_digits_in_lower_case_and_the_parts_of_camel_case() {
        assert_eq!(words("connect_timeout: 10.0.0.1"), ["connect", "timeout", "10", "0", "0", "1"]);
        assert_eq!(words("ConnectTimeout HTTP"), ["connecttimeout", "connect", "timeout", "http"]);
        assert_eq!(words("Überlauf größer"), ["überlauf", "größer"]);
        assert_eq!(words(" -.,- "), [""; 0]);
        assert_eq!(words(&"ä".repeat(40)), ["ä".repeat(16)], "cut between two characters");
    }

    #[test]
    fn a_search_has_words_and_parts_of_ids() {
        let search = Search::parse(" time  0190a5b0-12 ").unwrap();
        let [time, id] = search.terms() else { panic!("two terms: {search:?}") };
        assert_eq!((time.ids, &*time.words[0]), (None, "time"));
        let low = 0x0001_90a5_b012 << 88;
        assert_eq!(id.ids, Some((JobId(low), JobId(low + (1 << 88) - 1))));
        let end = id.end.expect("it can be an end");
        assert!(
            end.fits(JobId(0x0190_0000_0000_7000_8000_0001_90a5_b012)) && end.short_part() == 0x90a5_b012
        );
        assert!(!end.fits(JobId(0x0190_0000_0000_7000_8000_0002_90a5_b012)), "all digits count");
        assert_eq!(time.end, None);
        let whole = JobId(0x0190_a5b0_1234_7000_8000_0000_0000_0001);
        let search = Search::parse(&whole.to_string()).unwrap();
        assert_eq!(search.terms()[0].ids, Some((whole, whole)));
        assert_eq!(Search::parse(" -/ "), Err(SearchError::Empty));
        assert_eq!(Search::parse(&"x ".repeat(101)), Err(SearchError::TooLong(202)));
        assert_eq!(Search::parse(&"x ".repeat(9)), Err(SearchError::TooManyWords(9)));
    }
}

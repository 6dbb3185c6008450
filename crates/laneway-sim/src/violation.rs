//! A broken rule: which one, and what was seen.

use std::fmt;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule's short name, as the list in `docs/decisions/0003-simulator.md` has it.
    pub rule: &'static str,
    /// What was seen, for people.
    pub story: String,
}

impl Violation {
    /// This rule, with this story.
    pub fn new(rule: &'static str, story: impl Into<String>) -> Violation {
        Violation { rule, story: story.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.story)
    }
}

/// What a check gives.
pub type Checked = Result<(), Violation>;

/// Gives the story when the rule does not hold.
pub fn hold(rule: &'static str, holds: bool, story: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation::new(rule, story())) }
}

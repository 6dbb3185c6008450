//! Names that users give to things: tenants, kinds, agents, lanes, sessions, keys, tags.
//!
//! A `Name` that exists is short and printable. APIs check further rules (the native API is stricter than some
//! dialects).

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// A short printable text, cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The text is empty.
    #[error("is empty; give 1 to {max} bytes", max = Name::LEN_MAX)]
    Empty,
    /// The text is too long.
    #[error("has {0} bytes; at most {max} are allowed", max = Name::LEN_MAX)]
    TooLong(usize),
    /// The text holds a control character or surrounding white space.
    #[error("holds a control character or begins or ends with a space")]
    NotPrintable,
}

impl Name {
    /// Longest name in bytes: long enough for a session key of five parts, short enough to keep a million of them.
    pub const LEN_MAX: usize = 128;

    /// Makes a name of `text`, if it is one.
    pub fn new(text: &str) -> Result<Name, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > Name::LEN_MAX {
            return Err(NameError::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) || text.trim() != text {
            return Err(NameError::NotPrintable);
        }
        Ok(Name(text.into()))
    }

    /// A name written in the program itself. Panics when `text` is not a name.
    pub fn fixed(text: &'static str) -> Name {
        Name::new(text).expect("names in the program are names")
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True when the name is made of `[A-Za-z0-9._:-]` only, as the native API demands.
    pub fn is_plain(&self) -> bool {
        self.0.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
    }
}

/// Lets a set of names be searched by a text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

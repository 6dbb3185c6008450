//! The path of a key: `lanes.main.running_max`.

use std::fmt;

/// The path of a key, from its section down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// The path of the whole tree.
    pub fn root() -> KeyPath {
        KeyPath::default()
    }

    /// A path of these parts.
    pub fn of(parts: &[&str]) -> KeyPath {
        KeyPath(parts.iter().map(|part| (*part).to_owned()).collect())
    }

    /// The path of `part` below this one.
    pub fn join(&self, part: &str) -> KeyPath {
        let mut parts = self.0.clone();
        parts.push(part.to_owned());
        KeyPath(parts)
    }

    /// The parts, from the section down.
    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// The path without its last part, and that part.
    pub fn split_last(&self) -> Option<(KeyPath, &str)> {
        let (last, rest) = self.0.split_last()?;
        Some((KeyPath(rest.to_vec()), last))
    }

    /// The same path with its last part gone.
    pub fn parent(&self) -> Option<KeyPath> {
        self.split_last().map(|(parent, _)| parent)
    }

    /// True when the path is `other` or lies below it.
    pub fn starts_with(&self, other: &[&str]) -> bool {
        self.0.len() >= other.len() && self.0.iter().zip(other).all(|(mine, theirs)| mine == theirs)
    }
}

impl fmt::Display for KeyPath {
    /// As in TOML: parts with dots or other signs are quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            if is_bare(part) {
                f.write_str(part)?
            } else {
                write!(f, "{}", toml::Value::String(part.clone()))?
            }
        }
        Ok(())
    }
}

fn is_bare(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

//! Golden dialogues: runs every file of a dialect below `scenarios/`, and compares the actual dialogue with the file.
//!
//! The transports (`dialogues.rs` for HTTP, `goclaw/dialogues.rs` for WebSockets) parse their own files. Values that
//! vary are placeholders, numbered in the order of their appearance. `UPDATE_EXPECT=1` writes the actual dialogues
//! into the files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Runs every dialogue of a dialect. `run` takes the name and the text of a file and returns the actual dialogue.
pub async fn check_all(dialect: &str, run: impl AsyncFn(&str, &str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(dialect);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "the dialogues are missing: {files:?}");
    let mut wrong = String::new();
    for file in files {
        let written = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let actual = run(&name, &written).await;
        if actual == written {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&file, actual).unwrap();
        } else {
            write!(wrong, "\n=== {name}, actual responses:\n{actual}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}\nUPDATE_EXPECT=1 writes this into the files");
}

/// Placeholders and the values that they stand for.
#[derive(Default)]
pub struct Placeholders(Vec<(String, String)>);

impl Placeholders {
    /// Adds a placeholder.
    pub fn add(&mut self, name: String, value: String) {
        self.0.push((name, value));
    }

    /// Adds the next placeholder of a kind, such as `<job 2>`, unless the value has one.
    pub fn add_numbered(&mut self, kind: &str, value: &str) {
        if self.0.iter().any(|(_, known)| known == value) {
            return;
        }
        let begin = format!("<{kind} ");
        let number = self.0.iter().filter(|(name, _)| name.starts_with(&begin)).count() + 1;
        self.add(format!("{begin}{number}>"), value.to_owned());
    }

    /// The value of a placeholder.
    pub fn value(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// The text with values for its placeholders.
    pub fn filled_in(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// The text with placeholders for its values.
    pub fn hidden(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(value, name))
    }
}

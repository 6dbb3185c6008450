//! A configuration as a user gives it, and the checks of the reference. The tests of the dialects share this file, with
//! a `schema` of their own.

use std::path::PathBuf;

use expect_test::Expect;
use laneway_runtime::config::{Config, ConfigErrors, Layers, Overrides};
use toml::Table;

use super::schema;

/// A file, an environment and flags, in a directory that lives as long as this.
pub struct Given {
    dir: tempfile::TempDir,
    environment: Vec<(String, String)>,
    flags: Table,
}

impl Given {
    pub fn file(text: &str) -> Given {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("laneway.toml"), text).expect("a file");
        Given { dir, environment: Vec::new(), flags: Table::new() }
    }

    pub fn variable(mut self, name: &str, text: &str) -> Given {
        self.environment.push((name.to_owned(), text.to_owned()));
        self
    }

    pub fn flags(mut self, text: &str) -> Given {
        self.flags = text.parse().expect("flags are TOML");
        self
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("laneway.toml")
    }

    pub fn layers(&self) -> Result<Layers, ConfigErrors> {
        Layers::read(&schema(), Some(&self.path()), self.environment.clone(), self.flags.clone())
    }

    pub fn config(&self) -> Config {
        self.layers()
            .and_then(|layers| layers.resolve(&Overrides::none()))
            .unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// The text of every problem, without the directory.
    pub fn problems(&self, expected: Expect) {
        let errors =
            self.layers().and_then(|layers| layers.resolve(&Overrides::none())).expect_err("mistakes");
        expected.assert_eq(&format!("{errors}\n").replace(&format!("{}/", self.dir.path().display()), ""));
    }
}

/// The reference with its examples. An example is a commented line that is a key or a section; sentences are not TOML.
pub fn reference_with_examples() -> String {
    let uncommented = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if rest.parse::<Table>().is_ok_and(|table| !table.is_empty()) => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    schema().defaults().lines().map(uncommented).collect()
}

/// Checks that a comment stands above every key of the reference.
pub fn check_comments() {
    let (schema, mut before) = (schema(), "");
    for line in schema.defaults().lines() {
        let is_key = line
            .split_once(" = ")
            .is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        assert!(!is_key || before.starts_with("# "), "{line}");
        before = line;
    }
}

//! Reads the files and manifests of the repository, for the tests that check them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A text file of the repository.
pub struct SourceFile {
    /// From the root of the repository, with forward slashes.
    pub path: String,
    pub text: String,
}

impl SourceFile {
    /// The file's name without its folders.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap()
    }

    /// True for files that have only tests.
    pub fn is_test(&self) -> bool {
        self.name() == "tests.rs" || self.path.contains("/tests/")
    }

    /// The lines before the file's own test module, with their numbers from 1.
    pub fn lines_without_tests(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        self.text[..end].lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The same without comments.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines_without_tests()
            .map(|(number, line)| (number, line.split("//").next().unwrap()))
            .filter(|(_, line)| !line.trim().is_empty())
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every text file of the repository whose name ends in one of `endings`, by path.
pub fn files(endings: &[&str]) -> Vec<SourceFile> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, &root, endings, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no files end in {endings:?}: the walk is broken");
    found
}

/// Every Rust file below `crates/`.
pub fn rust_files() -> Vec<SourceFile> {
    files(&[".rs"]).into_iter().filter(|file| file.path.starts_with("crates/")).collect()
}

/// One file by its path from the root.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The packages of the workspace, from `cargo metadata`.
pub fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The names of all crates that are compiled into the crate `laneway` with these arguments of `cargo tree`.
pub fn dependencies(args: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "-p", "laneway", "-e", "normal", "--prefix", "none", "-f", "{lib}"])
        .args(args)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn collect(root: &Path, folder: &Path, endings: &[&str], found: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(
                name.as_str(),
                "target" | ".git" | "laneway-data" | "node_modules" | "dist" | ".venv"
            ) {
                collect(root, &path, endings, found);
            }
            continue;
        }
        if !endings.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        // An editor may have removed the file since the folder was listed; other files are not text.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let path = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        found.push(SourceFile { path, text });
    }
}

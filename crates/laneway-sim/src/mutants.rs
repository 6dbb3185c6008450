//! Mutants: known bugs of this field, as edits of the sources, so that the simulator can prove that it catches them.
//!
//! A file of `mutants/` has a description in its first line, and then edits. An edit names a file, the text to find (which
//! must occur exactly once) and the text to put `before`, `after` or `instead` of it:
//!
//! ```text
//! A retry starts before its backoff has passed.
//!
//! @@ crates/laneway-core/src/engine/jobs/finish.rs
//! self.count_waiting(job);
//! @@ before
//! if crate::mutant::on("retry-before-backoff") { … }
//! ```
//!
//! A second line of the description, `store: sqlite`, names a bug of the SQLite store: its worlds run on real files.
//!
//! `shared.edits` is applied first, then the mutants in the order of their names. All of them are in one build; the
//! environment variable `LANEWAY_MUTANT` switches one on (`mutants/switch.rs`). The crates themselves contain none of this.

mod build;
mod runner;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

pub use build::build;
pub use runner::{replay, run_all};

/// The name of the file with the edits that several mutants need.
const SHARED: &str = "shared.edits";

/// A known bug.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Its name, which is also the name of its file.
    pub name: String,
    /// The bug in one sentence.
    pub description: String,
    /// True: it is a bug of the SQLite store.
    pub sqlite: bool,
    edits: Vec<Edit>,
}

#[derive(Clone, Debug)]
struct Edit {
    /// The path of the file, relative to the workspace.
    file: String,
    find: String,
    place: Place,
    text: String,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Before,
    After,
    Instead,
}

/// The files of the workspace that the simulator is built from, by their path relative to the workspace.
pub type Sources = BTreeMap<String, Vec<u8>>;

/// The workspace that this program was built from.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

/// Every mutant in the order of the names. The first one holds the shared edits and is no mutant itself.
pub fn load(workspace: &Path) -> Result<(Mutant, Vec<Mutant>), String> {
    let folder = workspace.join("crates/laneway-sim/mutants");
    let shared = read_text(&folder.join(SHARED)).and_then(|text| Mutant::parse(SHARED, &text))?;
    let mut mutants = Vec::new();
    for path in list(&folder)? {
        let name =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".mutant"));
        if let Some(name) = name {
            mutants.push(Mutant::parse(name, &read_text(&path)?)?);
        }
    }
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok((shared, mutants))
}

/// The sources with the edits of every mutant. Fails when an edit does not apply.
pub fn mutated_sources(workspace: &Path) -> Result<Sources, String> {
    let mut sources = build::read_sources(workspace)?;
    let (shared, mutants) = load(workspace)?;
    let faults: Vec<String> = std::iter::once(&shared)
        .chain(&mutants)
        .flat_map(|mutant| mutant.edits.iter().map(move |edit| (mutant, edit)))
        .filter_map(|(mutant, edit)| {
            edit.apply(&mut sources).err().map(|fault| format!("{}: {fault}", mutant.name))
        })
        .collect();
    if faults.is_empty() { Ok(sources) } else { Err(faults.join("\n")) }
}

impl Mutant {
    fn parse(name: &str, text: &str) -> Result<Mutant, String> {
        let fault = |what: &str| format!("{name}: {what}");
        let mut blocks = text.split("\n@@ ");
        let description = blocks.next().unwrap_or_default().trim();
        let (description, sqlite) = match description.strip_suffix("\nstore: sqlite") {
            Some(description) => (description, true),
            None => (description, false),
        };
        if description.is_empty() || description.contains('\n') {
            return Err(fault("the description must be one line"));
        }
        let mut edits = Vec::new();
        while let Some(find) = blocks.next() {
            let (file, find) = find.split_once('\n').ok_or_else(|| fault("an edit has no text to find"))?;
            let text = blocks.next().ok_or_else(|| fault("an edit has no new text"))?;
            let (place, text) = text.split_once('\n').ok_or_else(|| fault("an edit has no new text"))?;
            let place = match place {
                "before" => Place::Before,
                "after" => Place::After,
                "instead" => Place::Instead,
                other => return Err(fault(&format!("{other:?} is none of before, after, instead"))),
            };
            let (find, text) = (find.trim_matches('\n').to_owned(), text.trim_matches('\n').to_owned());
            edits.push(Edit { file: file.to_owned(), find, place, text });
        }
        if edits.is_empty() {
            return Err(fault("there is no edit"));
        }
        Ok(Mutant { name: name.to_owned(), description: description.to_owned(), sqlite, edits })
    }

    /// True when its edits contain its own switch.
    pub fn has_switch(&self) -> bool {
        let switch = format!("mutant::on(\"{}\")", self.name);
        self.edits.iter().any(|edit| edit.text.contains(&switch))
    }
}

impl Edit {
    fn apply(&self, sources: &mut Sources) -> Result<(), String> {
        let Edit { file, find, place, text } = self;
        let source = sources.get_mut(file).ok_or_else(|| format!("{file} does not exist"))?;
        let before = String::from_utf8_lossy(source);
        let count = before.matches(find.as_str()).count();
        if find.is_empty() || count != 1 {
            let first = find.lines().next().unwrap_or_default();
            return Err(format!("{file} contains {count} times, not once: {first}"));
        }
        let new = match place {
            Place::Before => format!("{text}\n{find}"),
            Place::After => format!("{find}\n{text}"),
            Place::Instead => text.clone(),
        };
        *source = before.replacen(find.as_str(), &new, 1).into_bytes();
        Ok(())
    }
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let paths = fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<PathBuf>>>()
    });
    paths.map_err(|error| format!("{}: {error}", folder.display()))
}

fn read_text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "It is late.\n\n@@ a.rs\nlet x = 1;\n@@ after\nlet x = x + 1;\n\n@@ a.rs\n2\n@@ instead\n3\n";

    #[test]
    fn edits_apply_in_order() {
        let mutant = Mutant::parse("late", TEXT).unwrap();
        assert_eq!(mutant.description, "It is late.");
        let mut sources = Sources::from([("a.rs".to_owned(), b"let x = 1;\nx * 2\n".to_vec())]);
        mutant.edits.iter().for_each(|edit| edit.apply(&mut sources).unwrap());
        assert_eq!(sources["a.rs"], b"let x = 1;\nlet x = x + 1;\nx * 3\n");
    }

    #[test]
    fn an_edit_that_does_not_apply_names_the_file_and_the_text() {
        let mutant = Mutant::parse("late", TEXT).unwrap();
        let mut sources = Sources::from([("a.rs".to_owned(), b"let y = 1;\n".to_vec())]);
        let fault = mutant.edits[0].apply(&mut sources).unwrap_err();
        assert_eq!(fault, "a.rs contains 0 times, not once: let x = 1;");
        assert!(mutant.edits[0].apply(&mut Sources::new()).is_err());
    }

    #[test]
    fn a_file_without_edits_is_no_mutant() {
        for text in [
            "",
            "One line.",
            "One line.\n\n@@ a.rs\nfind\n@@ behind\ntext\n",
            "Two\nlines.\n@@ a.rs\nx\n@@ after\ny\n",
        ] {
            assert!(Mutant::parse("late", text).is_err(), "{text:?}");
        }
    }
}

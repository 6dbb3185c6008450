//! No retired word of docs/glossary.md comes back: not in code, comments, file names, pages, configuration or help texts.

use std::ops::Range;

use crate::docs::table_after;
use crate::repository::{self, SourceFile};

const GLOSSARY: &str = "docs/glossary.md";

/// Files that may have a retired word, each with its reason. An empty word stands for all of them.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (GLOSSARY, "", "it has the table"),
    ("CHANGELOG.md", "", "its old entries stay as they are"),
    ("Cargo.lock", "", "names of other projects"),
    ("crates/laneway/tests/it/vocabulary.rs", "", "it tests itself with them"),
    (
        "crates/laneway-store/migrations/postgres/0004_schema.sql",
        "run log",
        "a view has the name of another system's table",
    ),
    ("crates/laneway-store/tests/it/postgres.rs", "run log", "it reads that view"),
    ("docs/guides/postgresql.md", "run log", "it names that view"),
    ("STYLE.md", "told", "it quotes a sentence to avoid"),
];

/// A retired word, as the parts of a name or a phrase.
struct Retired {
    parts: Vec<String>,
    instead: String,
}

impl Retired {
    fn text(&self) -> String {
        self.parts.join(" ")
    }
}

/// The words in `code` in the table of retired words.
fn retired_words() -> Vec<Retired> {
    let mut retired = Vec::new();
    for row in table_after(GLOSSARY, "## Retired words") {
        for code in row[0].split('`').skip(1).step_by(2) {
            let parts = code.split_whitespace().map(str::to_lowercase).collect();
            retired.push(Retired { parts, instead: row[1].clone() });
        }
    }
    assert!(retired.len() > 20, "only {} retired words found: the search is broken", retired.len());
    retired
}

/// Where the words of a text are: runs of letters, parts of `snake_case` and of `CamelCase`.
fn words(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut words: Vec<Range<usize>> = Vec::new();
    for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| byte.is_ascii_alphabetic()) {
        let next_is_lower = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
        match words.last_mut().filter(|word| word.end == at) {
            // A capital begins a word, except inside of an acronym.
            Some(word)
                if !byte.is_ascii_uppercase() || (bytes[at - 1].is_ascii_uppercase() && !next_is_lower) =>
            {
                word.end = at + 1;
            }
            _ => words.push(at..at + 1),
        }
    }
    words
}

/// True when `word` is `retired`, in the plural or in another form.
fn is_form_of(word: &str, retired: &str) -> bool {
    let word = word.to_lowercase();
    match word.strip_prefix(retired) {
        Some(ending) => matches!(ending, "" | "s" | "d" | "ed"),
        None => retired.strip_suffix('e').is_some_and(|stem| word == format!("{stem}ing")),
    }
}

/// The offsets at which `retired` stands in `text`. The words of a phrase may be on two lines or in one identifier.
fn occurrences(text: &str, words: &[Range<usize>], retired: &Retired) -> Vec<usize> {
    let stands_at = |window: &&[Range<usize>]| {
        let are_forms =
            window.iter().zip(&retired.parts).all(|(word, part)| is_form_of(&text[word.clone()], part));
        let belong_together = window.windows(2).all(|pair| {
            text[pair[0].end..pair[1].start].chars().all(|c| c.is_whitespace() || "_-/*#\"\\".contains(c))
        });
        are_forms && belong_together
    };
    words.windows(retired.parts.len()).filter(stands_at).map(|window| window[0].start).collect()
}

fn offences(file: &SourceFile, retired: &[Retired]) -> Vec<String> {
    let excepted = |word: &str| {
        EXCEPTIONS.iter().any(|(path, only, _)| *path == file.path && (only.is_empty() || *only == word))
    };
    let (of_path, of_text) = (words(&file.path), words(&file.text));
    let mut offences = Vec::new();
    for retired in retired.iter().filter(|retired| !excepted(&retired.text())) {
        let (word, instead) = (retired.text(), &retired.instead);
        if !occurrences(&file.path, &of_path, retired).is_empty() {
            offences.push(format!("{}: the name of the file: {word:?}; use: {instead}", file.path));
        }
        for at in occurrences(&file.text, &of_text, retired) {
            let line = file.text[..at].matches('\n').count() + 1;
            offences.push(format!("{}:{line}: {word:?}; use: {instead}", file.path));
        }
    }
    offences
}

#[test]
fn retired_words_do_not_come_back() {
    let retired = retired_words();
    let files = repository::files(&[""]);
    let offences: Vec<String> = files.iter().flat_map(|file| offences(file, &retired)).collect();
    assert!(offences.is_empty(), "retired words ({GLOSSARY} says why):\n  {}\n", offences.join("\n  "));
}

#[test]
fn retired_words_are_found_in_every_form() {
    let retired =
        |text: &str| Retired { parts: text.split(' ').map(str::to_owned).collect(), instead: String::new() };
    let is_found = |text: &str, word: &str| !occurrences(text, &words(text), &retired(word)).is_empty();
    for (text, word) in [
        ("The house rejects it.", "house"),
        ("Origin::house(\"test\")", "house"),
        ("struct RunLog;", "run log"),
        ("fn was_told_twice()", "told"),
        ("HTTPNews", "news"),
        ("it was\n/// set aside", "set aside"),
        ("refusing", "refuse"),
        ("gathered", "gather"),
    ] {
        assert!(is_found(text, word), "{word:?} is not found in {text:?}");
    }
    for (text, word) in [
        ("a warehouse", "house"),
        ("trailing zeros", "trail"),
        ("the set. Aside from it", "set aside"),
        ("newspaper", "news"),
    ] {
        assert!(!is_found(text, word), "{word:?} is found in {text:?}");
    }
}

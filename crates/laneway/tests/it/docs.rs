//! Compares the documentation with the code: tables with enums, links with files.

use std::collections::BTreeSet;

use laneway_client::worker::WorkerState;
use laneway_core::{AttemptEnd, JobState, Reason};
use laneway_wire::frame::{ErrorCode, Frame, MessageType};

use crate::repository;

/// The cells of the first table after `marker` on a page, without the head and the line below it.
pub fn table_after(page: &str, marker: &str) -> Vec<Vec<String>> {
    let text = repository::read(page);
    let (_, rest) = text.split_once(marker).unwrap_or_else(|| panic!("{page} has no {marker:?}"));
    let rows: Vec<Vec<String>> = rest
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    rows.into_iter().skip(2).collect()
}

#[test]
fn the_transition_table_is_the_code() {
    let rows = table_after("docs/job-lifecycle.md", "<!-- the transition table");
    assert_eq!(rows.len(), JobState::ALL.len());
    for (row, from) in rows.iter().zip(JobState::ALL) {
        assert_eq!(row[0], from.as_str());
        for (cell, to) in row[1..].iter().zip(JobState::ALL) {
            let expected = if from.allows(to) { "yes" } else { "–" };
            assert_eq!(cell, expected, "{from} -> {to}");
        }
    }
}

#[test]
fn the_reasons_are_the_code() {
    let rows = table_after("docs/job-lifecycle.md", "<!-- the reasons");
    let listed: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(listed, known);
    for row in &rows {
        for state in row[1].split(", ") {
            assert!(JobState::parse(state).is_some(), "{state:?} is no state");
        }
    }
}

#[test]
fn the_attempt_ends_are_the_code() {
    let rows = table_after("docs/job-lifecycle.md", "<!-- the attempt ends");
    let listed: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let known: Vec<&str> = AttemptEnd::ALL.iter().map(|end| end.as_str()).collect();
    assert_eq!(listed, known);
}

#[test]
fn the_worker_states_are_the_code() {
    let rows = table_after("docs/worker-protocol.md", "<!-- the state table");
    assert_eq!(rows.len(), WorkerState::ALL.len());
    for (row, state) in rows.iter().zip(WorkerState::ALL) {
        assert_eq!(row[0], state.as_str());
        let next: Vec<&str> = state.next().iter().map(|state| state.as_str()).collect();
        assert_eq!(row[2], next.join(", "), "{state}");
    }
}

#[test]
fn the_error_codes_of_workers_are_the_code() {
    let rows = table_after("docs/worker-protocol.md", "## Error codes");
    let listed: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let known: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(listed, known);
}

/// The names in the last column of the first table after `marker`, by the first column.
fn tests_after(page: &str, marker: &str) -> Vec<(String, Vec<String>)> {
    let names = |cell: &String| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let rows = table_after(page, marker);
    rows.iter().map(|row| (row[0].clone(), row.last().map(names).unwrap_or_default())).collect()
}

const WORKERS: &str = "docs/worker-protocol.md";
const ASTRAFLOW: &str = "docs/compat/astraflow.md";
const NAMED: &str = "<!-- every test that is named here is there -->";

#[test]
fn tests_that_pages_name_are_there() {
    let sources = repository::files(&[".rs"]);
    let is_there = |name: &str| {
        let written = format!("fn {name}(");
        sources.iter().any(|source| source.text.contains(&written))
    };
    for (page, marker) in [(WORKERS, "## Error codes"), (WORKERS, NAMED), (ASTRAFLOW, NAMED)] {
        let rows = tests_after(page, marker);
        assert!(rows.len() > 15, "{page}: the table after {marker:?} is gone");
        for (row, tests) in rows {
            assert!(!tests.is_empty(), "{page}: {row} has no test");
            let missing: Vec<&String> = tests.iter().filter(|name| !is_there(name)).collect();
            assert!(missing.is_empty(), "{page}: {row} names tests that are not there: {missing:?}");
        }
    }
}

#[test]
fn every_promise_and_every_weakness_has_a_test_that_carries_its_id() {
    let promises = (1..=22).map(|n| format!("D{n}"));
    let shown = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 16, 17, 18].map(|n| format!("T{n}"));
    let weaknesses = (1..=16).map(|n| format!("X{n}"));
    for (page, wanted) in
        [(WORKERS, promises.chain(shown).collect::<Vec<_>>()), (ASTRAFLOW, weaknesses.collect())]
    {
        let rows = tests_after(page, NAMED);
        for id in wanted {
            let found = rows.iter().find(|(row, _)| *row == id);
            let (_, tests) = found.unwrap_or_else(|| panic!("{page} does not name {id}"));
            let test_id = id.to_lowercase();
            let carries = |name: &String| name.split('_').any(|part| part == test_id);
            assert!(tests.iter().any(carries), "{page}: no test of {id} carries its id: {tests:?}");
        }
    }
}

#[test]
fn every_frame_has_an_example_that_can_be_read() {
    let text = repository::read("docs/worker-protocol.md");
    let examples = text.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut shown = BTreeSet::new();
    for example in examples {
        let frame = Frame::parse(example.as_bytes()).unwrap_or_else(|error| panic!("{error} in {example}"));
        shown.insert(frame.message.kind());
    }
    assert_eq!(shown, MessageType::ALL.into_iter().collect());
}

#[test]
fn links_between_pages_lead_somewhere() {
    let root = repository::root();
    let mut broken = BTreeSet::new();
    for page in repository::files(&[".md"]) {
        let folder = root.join(&page.path).parent().unwrap().to_owned();
        for target in links(&page.text) {
            let file = target.split('#').next().unwrap();
            let outside = target.contains("://") || target.starts_with("mailto:");
            if !outside && !file.is_empty() && !folder.join(file).exists() {
                broken.insert(format!("{} -> {target}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "links to nothing: {broken:#?}");
}

#[test]
fn files_that_pages_name_are_there() {
    let crates = repository::root().join("crates");
    let mut missing = BTreeSet::new();
    let mut seen = 0;
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = repository::read(page);
        let named = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|code| code.starts_with("laneway") && code.contains('/'));
        for path in named.filter(|path| !path.contains(['<', ' '])).flat_map(expand) {
            seen += 1;
            if !crates.join(&path).exists() {
                missing.insert(format!("{page}: {path}"));
            }
        }
    }
    assert!(seen > 20, "only {seen} files found: the search is broken");
    assert!(missing.is_empty(), "pages name files that are not there: {missing:#?}");
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn expand(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (choices, after) = rest.split_once('}').unwrap();
    choices.split(',').map(|choice| format!("{before}{choice}{after}")).collect()
}

/// The targets of `[text](target)`, outside of fenced code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, part) in text.split("```").enumerate() {
        if index % 2 == 1 {
            continue;
        }
        for (at, _) in part.match_indices("](") {
            if let Some(target) = part[at + 2..].split(')').next() {
                found.push(target.to_owned());
            }
        }
    }
    found
}

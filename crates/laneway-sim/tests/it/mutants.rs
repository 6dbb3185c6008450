//! Every mutant can be applied to the sources of today. `laneway-sim --mutants` builds and runs them.

use laneway_sim::mutants::{load, mutated_sources, workspace};

#[test]
fn every_edit_applies() {
    let sources = mutated_sources(&workspace()).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(sources.contains_key("Cargo.lock"));
}

/// The switch of each mutant has the name of its file, and occurs in its edits.
#[test]
fn every_mutant_has_its_switch() {
    let (_, mutants) = load(&workspace()).unwrap();
    assert!(mutants.len() >= 71, "only {} mutants", mutants.len());
    for mutant in mutants {
        assert!(mutant.has_switch(), "{} is never switched on", mutant.name);
        assert!(mutant.description.ends_with('.'), "{}: the description is a sentence", mutant.name);
    }
}

/// Cargo would take mutated crates with the version of the workspace for the crates of the workspace.
#[test]
fn the_mutated_crates_have_a_version_of_their_own() {
    let version = |manifest: &str| {
        let line = manifest.lines().find(|line| line.starts_with("version = "));
        line.expect("the workspace has a version").to_owned()
    };
    let root = workspace();
    let plain = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let sources = mutated_sources(&root).unwrap();
    let mutated = String::from_utf8(sources["Cargo.toml"].clone()).unwrap();
    assert_ne!(version(&mutated), version(&plain));
}

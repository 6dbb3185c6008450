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

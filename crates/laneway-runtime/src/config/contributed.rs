//! Reads the sections that other crates contribute: entries with names that users give, and sections with fixed keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use laneway_core::Name;

use super::build::fixed;
use super::schema::{FixedSection, Schema, SectionEntry};
use super::section::Section;

/// The entries of contributed sections, by section and name.
pub(super) type Entries = BTreeMap<&'static str, BTreeMap<Name, Arc<dyn SectionEntry>>>;

pub(super) fn entries(root: &Section<'_>, schema: &Schema) -> Entries {
    let mut all = Entries::new();
    for contributed in schema.entry_sections() {
        let mut entries = BTreeMap::new();
        for (name, section) in root.named(contributed.name, None, contributed.len_max) {
            if let Some(entry) = (contributed.read)(&section) {
                entries.insert(name, entry);
            }
            section.finish();
        }
        all.insert(contributed.name, entries);
    }
    all
}

/// The contributed sections with fixed keys, by name.
pub(super) type Sections = BTreeMap<&'static str, Arc<dyn SectionEntry>>;

pub(super) fn fixed_sections(root: &Section<'_>, schema: &Schema) -> Sections {
    let read = |contributed: &&'static FixedSection| {
        let section = fixed(root, schema, contributed.name);
        let values = (contributed.read)(&section);
        section.finish();
        (contributed.name, values)
    };
    schema.fixed_sections().iter().map(read).collect()
}

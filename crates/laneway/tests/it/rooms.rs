//! The rooms of the engine are closed: their fields are private, and their handles are typed.
//!
//! A room is a struct that `Engine` has as a field. Only the folder of a room touches its fields, so a reader of that
//! folder knows everything that can change them.

use crate::repository::{self, SourceFile};

const ENGINE: &str = "crates/laneway-core/src/engine.rs";

fn engine_files() -> Vec<SourceFile> {
    let mut files = repository::rust_files();
    files.retain(|file| file.path.starts_with("crates/laneway-core/src/engine") && !file.is_test());
    files
}

/// The lines of the fields of a struct, with their numbers from 1. Relies on rustfmt.
fn fields<'a>(file: &'a SourceFile, name: &str) -> Option<Vec<(usize, &'a str)>> {
    let opens = |line: &str| {
        line.split_once("struct ").is_some_and(|(_, rest)| {
            rest.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '<']) && rest.ends_with('{'))
        })
    };
    let mut lines = file.text.lines().enumerate().skip_while(|(_, line)| !opens(line));
    lines.next()?;
    let is_field = |line: &str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("//") && !line.starts_with('#')
    };
    let body = lines.take_while(|(_, line)| *line != "}");
    Some(body.filter(|(_, line)| is_field(line)).map(|(index, line)| (index + 1, line.trim())).collect())
}

/// The names of the rooms: the types of the engine's own fields that are declared below `engine/`.
fn rooms(files: &[SourceFile]) -> Vec<String> {
    let engine = files.iter().find(|file| file.path == ENGINE).expect("the engine is where it was");
    let types = fields(engine, "Engine").expect("the engine is a struct").into_iter();
    let types = types.filter_map(|(_, line)| Some(line.split_once(": ")?.1.trim_end_matches(',').to_owned()));
    let rooms: Vec<String> =
        types.filter(|name| files.iter().any(|file| fields(file, name).is_some())).collect();
    assert!(rooms.len() > 8, "only {rooms:?} found: the search is broken");
    rooms
}

#[test]
fn the_fields_of_a_room_are_private() {
    let files = engine_files();
    let mut offences = Vec::new();
    for room in rooms(&files) {
        for file in &files {
            let visible = fields(file, &room).unwrap_or_default().into_iter();
            let visible = visible.filter(|(_, line)| line.starts_with("pub"));
            offences.extend(visible.map(|(number, line)| format!("{}:{number}: {room}: {line}", file.path)));
        }
    }
    assert!(
        offences.is_empty(),
        "only the folder of a room touches its fields:\n  {}\n",
        offences.join("\n  ")
    );
}

#[test]
fn handles_are_typed() {
    let mut offences = Vec::new();
    for file in engine_files() {
        for (number, line) in file.code_lines() {
            let is_alias = line.trim_start().trim_start_matches("pub").contains("type ")
                && ["= u32;", "= usize;"].iter().any(|end| line.ends_with(end));
            let is_sentinel = line.contains("const NONE: u32") || line.contains("const NONE: usize");
            if is_alias || is_sentinel {
                offences.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    assert!(
        offences.is_empty(),
        "a handle is an `Ix<T>`, its absence `None`:\n  {}\n",
        offences.join("\n  ")
    );
}

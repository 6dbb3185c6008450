//! ARCHITECTURE.md is true: its map names every module, and its walks name files and functions that exist.

use std::collections::BTreeSet;
use std::path::Path;

use crate::repository;

const PAGE: &str = "ARCHITECTURE.md";

/// A table of the page: its heading, its columns, and its rows.
struct Table {
    heading: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// All tables of the page, each with the last heading before it.
fn tables() -> Vec<Table> {
    let text = repository::read(PAGE);
    let mut tables: Vec<Table> = Vec::new();
    let mut heading = String::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim().to_owned();
        }
        let is_row = line.starts_with('|');
        if is_row {
            let cells: Vec<String> =
                line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
            match tables.last_mut().filter(|_| inside) {
                Some(table) if !cells[0].starts_with("---") => table.rows.push(cells),
                Some(_) => {}
                None => tables.push(Table { heading: heading.clone(), columns: cells, rows: Vec::new() }),
            }
        }
        inside = is_row;
    }
    tables
}

/// The texts in backticks.
fn codes(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The tables of the map: one for each crate, with the column `module`. Gives the crate and its modules.
fn map() -> Vec<(String, BTreeSet<String>)> {
    let of_modules = |table: &Table| table.columns.first().is_some_and(|column| column == "module");
    let modules = |table: &Table| table.rows.iter().flat_map(|row| codes(&row[0])).collect();
    tables()
        .iter()
        .filter(|table| of_modules(table))
        .map(|table| (table.heading.trim_matches('`').to_owned(), modules(table)))
        .collect()
}

#[test]
fn the_map_names_modules_that_exist() {
    let mut missing = Vec::new();
    for (name, modules) in map() {
        let sources = repository::root().join("crates").join(&name).join("src");
        missing.extend(
            modules
                .iter()
                .filter(|module| !sources.join(module).exists())
                .map(|module| format!("{name}: {module}")),
        );
    }
    assert!(missing.is_empty(), "{PAGE} names modules that do not exist:\n  {}\n", missing.join("\n  "));
}

/// The modules directly in a folder: files by name, folders only if no file has their name.
fn modules_in(folder: &Path) -> BTreeSet<String> {
    let entries =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries
        .filter(|name| name.ends_with(".rs") && !matches!(name.as_str(), "lib.rs" | "main.rs" | "tests.rs"))
        .collect()
}

#[test]
fn the_map_names_every_module() {
    let map = map();
    let mut missing = Vec::new();
    for package in repository::packages() {
        let name = package["name"].as_str().unwrap();
        let Some((_, named)) = map.iter().find(|(named, _)| named == name) else {
            missing.push(format!("{name} has no table"));
            continue;
        };
        let sources = repository::root().join("crates").join(name).join("src");
        // The engine is a crate in a folder: its modules are named, too.
        for (folder, prefix) in [(sources.clone(), ""), (sources.join("engine"), "engine/")] {
            if !folder.exists() {
                continue;
            }
            for module in modules_in(&folder) {
                let (file, subfolder) =
                    (format!("{prefix}{module}"), format!("{prefix}{}/", module.trim_end_matches(".rs")));
                let under = named.iter().any(|path| path.starts_with(&subfolder));
                if !named.contains(&file) && !under {
                    missing.push(format!("{name}: {file}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{PAGE} does not name:\n  {}\n", missing.join("\n  "));
}

/// True when a text defines this function or method: `name` or `Type::name`.
fn defines(text: &str, function: &str) -> bool {
    let name = function.rsplit("::").next().unwrap();
    [format!("fn {name}("), format!("fn {name}<")].iter().any(|definition| text.contains(definition))
}

#[test]
fn the_walks_name_functions_that_exist() {
    let walks: Vec<Table> = tables()
        .into_iter()
        .filter(|table| table.columns.iter().take(3).eq(["step", "file", "function"]))
        .collect();
    assert!(walks.len() >= 5, "only {} walks found: the search is broken", walks.len());
    let mut wrong = Vec::new();
    for walk in walks {
        for row in &walk.rows {
            let place = format!("{}, step {}", walk.heading, row[0]);
            let (files, functions) = (codes(&row[1]), codes(&row[2]));
            if files.is_empty() || functions.is_empty() {
                wrong.push(format!("{place}: names no file or no function"));
            }
            let crates = repository::root().join("crates");
            let texts: Vec<(&String, String)> = files
                .iter()
                .map(|file| (file, std::fs::read_to_string(crates.join(file)).unwrap_or_default()))
                .collect();
            for (file, text) in &texts {
                if text.is_empty() {
                    wrong.push(format!("{place}: there is no file {file}"));
                } else if !functions.iter().any(|function| defines(text, function)) {
                    wrong.push(format!("{place}: {file} defines none of {functions:?}"));
                }
            }
            for function in &functions {
                if !texts.iter().any(|(_, text)| defines(text, function)) {
                    wrong.push(format!("{place}: no function {function} in {files:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{PAGE}:\n  {}\n", wrong.join("\n  "));
}

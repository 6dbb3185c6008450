//! Tests of the rules of ARCHITECTURE.md that a machine can check.
//!
//! Every test collects all offences before it fails, so that one execution shows all of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{self, SourceFile};

/// Longest file in lines, without its tests.
const FILE_LINES_MAX: usize = 600;
/// Longest file that holds only tests, in lines.
const TEST_FILE_LINES_MAX: usize = 1_000;
/// Longest function in lines, signature and closing brace included.
const FUNCTION_LINES_MAX: usize = 70;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Functions that may be longer, each with its reason.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[(
    "crates/laneway-api/src/render/stats.rs",
    "hold",
    "one short arm for each thing that can hold a job back",
)];

/// Which crates of ours a crate may use.
fn allowed_edges() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let table: [(&str, &[&str]); 15] = [
        ("laneway-core", &[]),
        ("laneway-no-schema", &[]),
        ("laneway-wire", &["laneway-no-schema"]),
        ("laneway-store", &["laneway-core"]),
        ("laneway-runtime", &["laneway-core", "laneway-store"]),
        ("laneway-browser", &["laneway-core", "laneway-runtime"]),
        (
            "laneway-api",
            &["laneway-core", "laneway-runtime", "laneway-browser", "laneway-wire", "laneway-no-schema"],
        ),
        ("laneway-client", &["laneway-wire"]),
        ("laneway-mcp", &["laneway-wire"]),
        ("laneway-dashboard", &["laneway-wire"]),
        ("laneway-compat", &["laneway-core", "laneway-runtime", "laneway-browser"]),
        ("laneway-cluster", &["laneway-core", "laneway-api"]),
        ("laneway-sim", &["laneway-core", "laneway-store", "laneway-runtime"]),
        (
            "laneway-bench",
            &[
                "laneway-core",
                "laneway-store",
                "laneway-runtime",
                "laneway-wire",
                "laneway-api",
                "laneway-client",
            ],
        ),
        (
            "laneway",
            &[
                "laneway-bench",
                "laneway-core",
                "laneway-store",
                "laneway-runtime",
                "laneway-browser",
                "laneway-wire",
                "laneway-api",
                "laneway-client",
                "laneway-mcp",
                "laneway-compat",
                "laneway-dashboard",
                "laneway-cluster",
            ],
        ),
    ];
    table.into_iter().map(|(from, to)| (from, to.iter().copied().collect())).collect()
}

fn assert_none(rule: &str, offences: Vec<String>) {
    assert!(offences.is_empty(), "{rule}:\n  {}\n", offences.join("\n  "));
}

fn offences_in<'a>(
    files: impl IntoIterator<Item = &'a SourceFile>,
    is_offence: impl Fn(&SourceFile, &str) -> bool,
) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        for (number, line) in file.code_lines() {
            if is_offence(file, line) {
                offences.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    offences
}

/// True when `line` holds `name` with no letter, digit or underscore on either side.
fn has_identifier(line: &str, name: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(at, _)| {
        !line[..at].ends_with(part_of_name) && !line[at + name.len()..].starts_with(part_of_name)
    })
}

#[test]
fn crates_use_only_what_they_may() {
    let allowed = allowed_edges();
    let mut offences = Vec::new();
    for package in repository::packages() {
        let from = package["name"].as_str().unwrap();
        let Some(may_use) = allowed.get(from) else {
            offences.push(format!("{from} has no row in the table of edges"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            // Dev-dependencies are free.
            let ours = allowed.contains_key(to) && dependency["kind"] != "dev";
            if ours && !may_use.contains(to) {
                offences.push(format!("{from} uses {to}"));
            }
        }
    }
    assert_none("a crate uses another one that it must not see", offences);
}

/// See docs/decisions/0015-build-profiles.md.
#[test]
fn the_build_stays_small() {
    let program = repository::dependencies(&[]);
    let library = repository::dependencies(&["--no-default-features"]);
    assert!(program.contains("clap") && library.contains("tokio"), "the search is broken: {library:?}");
    let offences = |names: &BTreeSet<String>, unwanted: &[&str]| {
        let is_unwanted = |name: &&String| unwanted.iter().any(|unwanted| name.starts_with(unwanted));
        names.iter().filter(is_unwanted).cloned().collect()
    };
    assert_none(
        "the program has no crates of ICU and no regular expressions",
        offences(&program, &["icu_", "regex"]),
    );
    let of_the_program =
        ["clap", "indicatif", "laneway_bench", "laneway_client", "laneway_mcp", "rmcp", "tracing_subscriber"];
    assert_none(
        "a program that embeds the library compiles no command line",
        offences(&library, &of_the_program),
    );
}

#[test]
fn the_engine_is_pure() {
    const FOREIGN: [&str; 14] = [
        "Instant",
        "SystemTime",
        "HashMap",
        "HashSet",
        "RandomState",
        "thread",
        "fs",
        "net",
        "env",
        "process",
        "Mutex",
        "RwLock",
        "serde",
        "tokio",
    ];
    let files = repository::rust_files();
    let core =
        files.iter().filter(|file| file.path.starts_with("crates/laneway-core/src/") && !file.is_test());
    let offences = offences_in(core, |_, line| {
        FOREIGN.iter().any(|name| has_identifier(line, name))
            || line.contains("println!")
            || line.contains("async ")
    });
    assert_none("laneway-core does no I/O, reads no clock, iterates no hash map, knows no JSON", offences);

    let package = repository::packages().into_iter().find(|p| p["name"] == "laneway-core").unwrap();
    let extra = package["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|dependency| dependency["kind"] != "dev")
        .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
        .filter(|name| name != "thiserror" && name != "jiff")
        .collect();
    // jiff is the calendar of schedules: with time zones that are part of the program, it reads no clock and no file.
    assert_none("laneway-core depends on nothing but thiserror and jiff", extra);
}

/// Features of our crates, each with its reason. None of them may change the code that ships.
const FEATURES: &[(&str, &str, &str)] = &[
    ("laneway-store", "suite", "the conformance suite of stores, used by tests only"),
    ("laneway-wire", "schemas", "the generators of the published schemas, used by tests only"),
    ("laneway-api", "schemas", "the generator of the OpenAPI document, used by tests only"),
    ("laneway", "program", "the command line; a program that embeds the library leaves it out"),
    ("laneway", "default", "the command line"),
];

/// Files beside `lib.rs` whose lines may depend on a feature, each with its reason.
const FEATURE_FILES: &[(&str, &str, &str)] = &[
    (
        "crates/laneway-wire/src/frame.rs",
        "schemas",
        "the modules that generate and check the schemas of frames",
    ),
    ("crates/laneway-wire/src/job_request.rs", "schemas", "the schema of a type whose form is its own"),
];

#[test]
fn tests_and_mutants_run_the_code_that_ships() {
    let mut offences = Vec::new();
    for package in repository::packages() {
        let name = package["name"].as_str().unwrap();
        for feature in package["features"].as_object().unwrap().keys() {
            if !FEATURES.iter().any(|(package, known, _)| (*package, *known) == (name, feature.as_str())) {
                offences.push(format!("{name} has the feature {feature}"));
            }
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let ours = dependency["name"].as_str().unwrap().starts_with("laneway");
            if ours && dependency["kind"] != "dev" && dependency["features"] != serde_json::json!([]) {
                offences.push(format!("{name} turns on features of {}", dependency["name"]));
            }
        }
    }
    let files = repository::rust_files();
    let sources = files.iter().filter(|file| file.path.contains("/src/") && !file.is_test());
    offences.extend(offences_in(sources, |file, line| {
        let known = || {
            let in_root = FEATURES.iter().any(|(package, feature, _)| {
                file.path == format!("crates/{package}/src/lib.rs")
                    && line.contains(&format!("\"{feature}\""))
            });
            let listed = |(path, feature, _): &(&str, &str, &str)| {
                file.path == *path && line.trim() == format!("#[cfg(feature = \"{feature}\")]")
            };
            in_root || FEATURE_FILES.iter().any(listed)
        };
        let switched =
            line.contains("cfg(feature") || line.contains("cfg!(feature") || line.contains("not(feature");
        let mutated = line.contains("mutant::on(") && !file.path.starts_with("crates/laneway-sim/");
        (switched && !known()) || mutated
    }));
    assert_none("no feature, cfg or switch changes the code that ships", offences);
}

#[test]
fn only_the_loop_applies_commands() {
    let files = repository::rust_files();
    let runtime = files.iter().filter(|file| {
        file.path.starts_with("crates/laneway-runtime/src/")
            && !file.is_test()
            && !matches!(file.name(), "batch.rs" | "one_by_one.rs")
    });
    let mut offences =
        offences_in(runtime, |_, line| line.contains("engine.apply(") || line.contains("Engine::apply"));
    let above = files.iter().filter(|file| {
        ["crates/laneway-api/src/", "crates/laneway-compat/src/", "crates/laneway/src/"]
            .iter()
            .any(|above| file.path.starts_with(above))
            && !file.is_test()
    });
    offences.extend(offences_in(above, |_, line| {
        line.contains("Engine::") || has_identifier(line, "laneway_core::Engine")
    }));
    assert_none("only batch.rs and batch/one_by_one.rs of laneway-runtime call Engine::apply", offences);
}

#[test]
fn only_the_store_contains_sql() {
    let files = repository::rust_files();
    let others = files.iter().filter(|file| {
        !file.path.starts_with("crates/laneway-store/")
            && !file.path.starts_with("crates/laneway-bench/")
            && !file.is_test()
    });
    let offences = offences_in(others, |_, line| has_identifier(line, "rusqlite"));
    assert_none("SQL lives in laneway-store (and in the raw limits of laneway-bench)", offences);
}

#[test]
fn the_environment_is_read_in_two_files() {
    let files = repository::rust_files();
    let sources = files.iter().filter(|file| {
        !file.is_test()
            && file.path.contains("/src/")
            && !file.path.ends_with("src/main.rs")
            && file.path != "crates/laneway-runtime/src/config.rs"
    });
    let offences = offences_in(sources, |_, line| {
        ["env::var(", "env::vars(", "env::var_os(", "env::vars_os("].iter().any(|call| line.contains(call))
    });
    assert_none("only main.rs and config.rs read the environment", offences);
}

#[test]
fn every_file_says_what_it_is_for() {
    let offences = repository::rust_files()
        .into_iter()
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| file.path)
        .collect();
    assert_none("every Rust file opens with //!", offences);
}

#[test]
fn roots_hold_no_functions() {
    let files = repository::rust_files();
    let roots = files.iter().filter(|file| matches!(file.name(), "lib.rs" | "mod.rs"));
    let offences = offences_in(roots, |_, line| has_identifier(line, "fn"));
    assert_none("lib.rs holds prose and re-exports", offences);
}

#[test]
fn files_and_functions_are_short() {
    let mut offences = Vec::new();
    for file in repository::rust_files() {
        let (lines, most) = match file.is_test() {
            true => (file.text.lines().count(), TEST_FILE_LINES_MAX),
            false => (file.lines_without_tests().count(), FILE_LINES_MAX),
        };
        if lines > most && !LONG_FILES.iter().any(|(path, _)| *path == file.path) {
            offences.push(format!("{} has {lines} lines; at most {most}", file.path));
        }
        if !file.is_test() {
            offences.extend(long_functions(&file));
        }
    }
    assert_none("files and functions fit a reader's head", offences);
}

/// Functions longer than allowed. Relies on rustfmt: a function ends at the first `}` in its own column.
fn long_functions(file: &SourceFile) -> Vec<String> {
    let lines: Vec<&str> = file.lines_without_tests().map(|(_, line)| line).collect();
    let mut offences = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some(name) = function_name(code) else { continue };
        // A declaration ends in a semicolon and a body on the same line in a brace: neither is long.
        let opening = lines[start..].iter().find(|line| line.ends_with([';', '{', '}']));
        if !opening.is_some_and(|line| line.ends_with('{')) {
            continue;
        }
        let closing = format!("{}}}", " ".repeat(line.len() - code.len()));
        let length = lines[start..].iter().position(|line| *line == closing).map_or(1, |end| end + 1);
        let excused =
            LONG_FUNCTIONS.iter().any(|(path, function, _)| *path == file.path && *function == name);
        if length > FUNCTION_LINES_MAX && !excused {
            offences.push(format!("{}:{}: {name} has {length} lines", file.path, start + 1));
        }
    }
    offences
}

/// The name of the function that begins in this line, if one does.
fn function_name(code: &str) -> Option<&str> {
    const BEFORE: [&str; 6] = ["pub ", "pub(crate) ", "pub(super) ", "async ", "const ", "unsafe "];
    let mut rest = code;
    while let Some(shorter) = BEFORE.iter().find_map(|name| rest.strip_prefix(name)) {
        rest = shorter;
    }
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

#[test]
fn nothing_unfinished_lands() {
    let patterns = [concat!("FIX", "ME"), concat!("X", "XX"), concat!("dbg", "!(")];
    let mut offences = Vec::new();
    for file in repository::files(&[".rs", ".toml", ".sql", ".md"]) {
        for (index, line) in file.text.lines().enumerate() {
            // STYLE.md has to name what it forbids.
            if file.path != "STYLE.md" && patterns.iter().any(|name| line.contains(name)) {
                offences.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    assert_none("unfinished work is finished or written down elsewhere", offences);
}

#[test]
fn the_repository_stands_alone() {
    let outside = [
        concat!("/wo", "rk/"),
        concat!("../sha", "red"),
        concat!("sha", "red/DESIGN"),
        concat!("sha", "red/STYLE"),
        concat!("/ro", "ot/"),
        concat!("/tmp/br", "ief"),
        concat!("reliability", ".md"),
        concat!("DESIGN", ".md"),
    ];
    let mut offences = Vec::new();
    for file in repository::files(&[".rs", ".toml", ".sql", ".md", ".svg", ".json", ".yml", "run", "test"]) {
        for (index, line) in file.text.lines().enumerate() {
            if outside.iter().any(|name| line.contains(name)) {
                offences.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    assert_none("nothing here points outside the repository", offences);
}

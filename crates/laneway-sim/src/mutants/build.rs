//! Builds the mutated simulator from a copy of the sources below the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::{Sources, list, mutated_sources, workspace};

/// The crates that the simulator is built from.
const CRATES: [&str; 4] = ["laneway-core", "laneway-store", "laneway-runtime", "laneway-sim"];
/// The name of the mutated program, as `shared.edits` has it. It does not replace the simulator.
const PROGRAM: &str = "laneway-sim-mutants";
/// Variables that `cargo run` sets for this program. Build scripts of dependencies would run again if they saw them.
const CARGO_VARIABLES: [&str; 8] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// Builds the simulator with all mutants in it, in release mode, and gives the path of the program.
///
/// It shares the target directory with the workspace, so that dependencies are not compiled again. Cargo names a crate's files
/// after the crate's version and its path below the workspace. `shared.edits` gives the copy another version: with the same
/// one, the next build of the workspace would find the mutated crates in place of its own.
pub fn build() -> Result<PathBuf, String> {
    let workspace = workspace();
    let program = env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    let target = program.ancestors().nth(2).ok_or("this program is not in a target directory")?;
    let copy = target.join("mutants");
    let mut sources = mutated_sources(&workspace)?;
    let switch =
        sources.remove("crates/laneway-sim/mutants/switch.rs").ok_or("mutants/switch.rs does not exist")?;
    sources.insert("crates/laneway-core/src/mutant.rs".to_owned(), switch);
    write_copy(&copy, &sources)?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--quiet", "--bin", PROGRAM, "--target-dir"])
        .arg(target)
        .current_dir(&copy);
    CARGO_VARIABLES.iter().for_each(|name| {
        cargo.env_remove(name);
    });
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "the mutated sources do not compile:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(target.join("release").join(PROGRAM).with_extension(env::consts::EXE_EXTENSION))
}

/// Reads the sources of the simulator's crates and the files of the workspace that a build needs.
pub(super) fn read_sources(workspace: &Path) -> Result<Sources, String> {
    let mut sources = Sources::new();
    for name in ["Cargo.toml", "Cargo.lock"] {
        read_into(&mut sources, workspace, &workspace.join(name))?;
    }
    for name in CRATES {
        read_into(&mut sources, workspace, &workspace.join("crates").join(name))?;
    }
    Ok(sources)
}

fn read_into(sources: &mut Sources, workspace: &Path, path: &Path) -> Result<(), String> {
    if path.is_dir() {
        return list(path)?.iter().try_for_each(|entry| read_into(sources, workspace, entry));
    }
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    sources.insert(relative(workspace, path), bytes);
    Ok(())
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Makes the copy equal to the sources. Equal files are left alone, so that Cargo compiles only changes.
fn write_copy(copy: &Path, sources: &Sources) -> Result<(), String> {
    let fault = |path: &Path, error| format!("{}: {error}", path.display());
    for (name, bytes) in sources {
        let path = copy.join(name);
        if fs::read(&path).is_ok_and(|old| old == *bytes) {
            continue;
        }
        let folder = path.parent().unwrap_or(copy);
        fs::create_dir_all(folder).map_err(|error| fault(folder, error))?;
        fs::write(&path, bytes).map_err(|error| fault(&path, error))?;
    }
    let mut written = Sources::new();
    read_into(&mut written, copy, copy)?;
    for name in written.keys().filter(|name| name.ends_with(".rs") && !sources.contains_key(*name)) {
        let path = copy.join(name);
        fs::remove_file(&path).map_err(|error| fault(&path, error))?;
    }
    Ok(())
}

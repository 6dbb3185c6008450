//! Finds the program: the configured one, or one of the usual names in `PATH`.

use std::path::{Path, PathBuf};

use laneway_runtime::config::program_directories;

/// The names under which distributions install it, in the order in which they are tried.
const NAMES: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell"];

/// A program that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chromium {
    program: PathBuf,
}

/// There is no such program. Its text says what to install.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// The configured path is not an executable file.
    #[error(
        "the configured Chromium {} is not an executable file; correct browsers.chromium, or remove it to search PATH",
        .0.display()
    )]
    Configured(PathBuf),
    /// No usual name is in `PATH`.
    #[error(
        "there is no Chromium in PATH; install it (Debian and Ubuntu: apt-get install chromium) or set browsers.chromium to its path"
    )]
    InPath,
}

impl Chromium {
    /// The configured program, or the first one in `PATH`.
    pub fn find(configured: Option<&Path>) -> Result<Chromium, NotFound> {
        match configured {
            Some(program) if is_executable(program) => Ok(Chromium { program: program.to_owned() }),
            Some(program) => Err(NotFound::Configured(program.to_owned())),
            None => in_path(program_directories()).ok_or(NotFound::InPath),
        }
    }

    /// Where it is.
    pub fn program(&self) -> &Path {
        &self.program
    }
}

/// The first program with a usual name in these directories.
fn in_path(directories: Vec<PathBuf>) -> Option<Chromium> {
    directories
        .into_iter()
        .flat_map(|directory| NAMES.map(|name| directory.join(name)))
        .find(|program| is_executable(program))
        .map(|program| Chromium { program })
}

fn is_executable(program: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    program.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_program_with_a_usual_name_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str, mode: u32| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let directories = || ["a", "b", "c"].map(|name| directory.path().join(name)).to_vec();
        assert_eq!(in_path(directories()), None);
        place("a/chromium", 0o644);
        place("b/firefox", 0o755);
        let chrome = place("c/google-chrome", 0o755);
        assert_eq!(in_path(directories()).unwrap().program(), chrome);
        let chromium = place("b/chromium", 0o755);
        assert_eq!(in_path(directories()).unwrap().program(), chromium);
        let text = NotFound::InPath.to_string();
        assert!(text.contains("apt-get install chromium") && text.contains("browsers.chromium"), "{text}");
    }
}

//! Packages of handlers: downloaded, verified, unpacked beside the old version, and only then moved into the
//! package folder.
//!
//! A package is an archive (zip or tar.gz) with a `manifest.json` that names the requested package and version.
//! It is installed in `<folder>/<name>/<version>/`. A failed installation leaves the installed version unchanged.

mod fetch;
mod unpack;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use laneway_wire::frame::{ErrorCode, Install, JsonObject, Text, Uninstall};
use serde::Deserialize;
use thiserror::Error;

use super::handlers::Handler;

pub use fetch::ARCHIVE_LEN_MAX;
pub use unpack::{ENTRIES_MAX, UNPACKED_LEN_MAX};

/// Longest manifest in bytes.
pub const MANIFEST_LEN_MAX: u64 = 1 << 20;
/// Longest name or version of a package, in bytes: it becomes the name of a folder.
const PART_LEN_MAX: usize = 100;

/// An installed package.
#[derive(Clone, Debug, PartialEq)]
pub struct InstalledPackage {
    /// Its name.
    pub name: Text,
    /// Its version.
    pub version: Text,
    /// Its manifest.
    pub manifest: JsonObject,
    /// Where its files are.
    pub folder: PathBuf,
}

/// Makes the handlers of a package, by kind. The error is the reason why it cannot.
pub type Loader = Arc<dyn Fn(&InstalledPackage) -> Result<Vec<(Text, Handler)>, String> + Send + Sync>;

/// Why a package was not installed or removed.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct PackageError {
    /// The code of the answer.
    pub code: ErrorCode,
    /// What is wrong.
    pub message: String,
}

impl PackageError {
    fn invalid(message: impl Into<String>) -> PackageError {
        PackageError { code: ErrorCode::PkgInvalid, message: message.into() }
    }

    fn io(doing: &str, error: &std::io::Error) -> PackageError {
        PackageError { code: ErrorCode::Internal, message: format!("{doing}: {error}") }
    }
}

/// The installed packages of a worker.
#[derive(Clone)]
pub struct Packages {
    folder: PathBuf,
    loader: Loader,
    /// Serialises changes, so that a version is never partly installed.
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl Packages {
    /// Packages in this folder, which is created if it does not exist.
    pub fn open(folder: &Path, loader: Loader) -> Result<Packages, PackageError> {
        fs::create_dir_all(folder)
            .map_err(|error| PackageError::io("creating the package folder", &error))?;
        let packages = Packages { folder: folder.to_owned(), loader, lock: Arc::default() };
        packages.sweep();
        Ok(packages)
    }

    /// The installed packages with their handlers. A package that cannot be loaded is skipped and logged.
    pub fn load(&self) -> Vec<(InstalledPackage, Vec<(Text, Handler)>)> {
        let mut found = Vec::new();
        for name in folders(&self.folder) {
            for version in folders(&name) {
                let loaded = read_package(&version, None).and_then(|package| {
                    let handlers = (self.loader)(&package).map_err(PackageError::invalid)?;
                    Ok((package, handlers))
                });
                match loaded {
                    Ok(loaded) => found.push(loaded),
                    Err(error) => {
                        tracing::warn!(folder = %version.display(), %error, "a package cannot be loaded");
                    }
                }
            }
        }
        found
    }

    /// Installs a package: download, verify, unpack beside, check, and only then move it into place.
    pub async fn install(
        &self,
        install: &Install,
    ) -> Result<(InstalledPackage, Vec<(Text, Handler)>), PackageError> {
        let (name, version) = (path_part(&install.name)?, path_part(&install.version)?);
        let (Some(url), Some(sha256)) = (&install.url, &install.sha256) else {
            let message = "a package needs a `url` and its `sha256`";
            return Err(PackageError::invalid(message));
        };
        let _guard = self.lock.lock().await;
        let staging = tempdir_in(&self.folder)?;
        let archive = staging.path.join("archive");
        fetch::fetch(url, sha256, &archive).await?;
        let target = self.folder.join(name).join(version);
        let (install, loader) = (install.clone(), Arc::clone(&self.loader));
        let work = tokio::task::spawn_blocking(move || {
            let fresh = staging.path.join("files");
            unpack::unpack(&archive, &fresh)?;
            let mut package = read_package(&fresh, Some((&install.name, &install.version)))?;
            // The handlers are loaded before anything is moved: a package that cannot be loaded
            // replaces nothing.
            loader(&package).map_err(PackageError::invalid)?;
            move_into_folder(&fresh, &target, &staging.path)?;
            package.folder = target;
            let handlers = loader(&package).map_err(PackageError::invalid)?;
            Ok((package, handlers))
        });
        work.await.map_err(|error| PackageError { code: ErrorCode::Internal, message: error.to_string() })?
    }

    /// Removes a package: one version, or all. Returns the removed versions.
    pub async fn uninstall(&self, uninstall: &Uninstall) -> Result<Vec<Text>, PackageError> {
        let folder = self.folder.join(path_part(&uninstall.name)?);
        let _guard = self.lock.lock().await;
        let versions: Vec<PathBuf> = match &uninstall.version {
            Some(version) => vec![folder.join(path_part(version)?)],
            None => folders(&folder),
        };
        let mut removed = Vec::new();
        for version in versions.iter().filter(|version| version.is_dir()) {
            // The version is moved away first, so that it is either complete or gone.
            let staging = tempdir_in(&self.folder)?;
            fs::rename(version, staging.path.join("removed"))
                .map_err(|error| PackageError::io("removing a package", &error))?;
            let name = version.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            removed.extend(Text::new(name));
        }
        if removed.is_empty() {
            let message = format!("the package {:?} is not installed", uninstall.name.as_str());
            return Err(PackageError::invalid(message));
        }
        let _ = fs::remove_dir(&folder);
        Ok(removed)
    }

    /// Removes unfinished work that a crash left behind.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(STAGING) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Prefix of folders that hold unfinished work. No package name begins with a dot.
const STAGING: &str = ".staging-";

/// A folder that is removed when it is dropped.
struct Staging {
    path: PathBuf,
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn tempdir_in(folder: &Path) -> Result<Staging, PackageError> {
    let path = folder.join(format!("{STAGING}{:016x}", fastrand::u64(..)));
    fs::create_dir(&path).map_err(|error| PackageError::io("making a folder", &error))?;
    Ok(Staging { path })
}

/// Moves `fresh` to `target`. On failure, the earlier content of `target` is restored.
fn move_into_folder(fresh: &Path, target: &Path, staging: &Path) -> Result<(), PackageError> {
    let failed = |error: std::io::Error| PackageError::io("moving the package into its folder", &error);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let old = staging.join("old");
    let had_old = target.exists();
    if had_old {
        fs::rename(target, &old).map_err(failed)?;
    }
    fs::rename(fresh, target).map_err(|error| {
        if had_old {
            let _ = fs::rename(&old, target);
        }
        failed(error)
    })
}

/// The folders in a folder, by name. Hidden folders are skipped.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

/// Reads the manifest of the package in `folder`, which must match the request in `asked`.
fn read_package(folder: &Path, asked: Option<(&Text, &Text)>) -> Result<InstalledPackage, PackageError> {
    #[derive(Deserialize)]
    struct Names {
        name: Text,
        version: Text,
    }
    let path = folder.join("manifest.json");
    let metadata = fs::symlink_metadata(&path)
        .map_err(|_| PackageError::invalid("the archive has no manifest.json at its top"))?;
    if !metadata.is_file() || metadata.len() > MANIFEST_LEN_MAX {
        let message = format!("manifest.json is not a file of at most {MANIFEST_LEN_MAX} bytes");
        return Err(PackageError::invalid(message));
    }
    let text =
        fs::read_to_string(&path).map_err(|error| PackageError::io("reading manifest.json", &error))?;
    let wrong = |error: serde_json::Error| PackageError::invalid(format!("manifest.json: {error}"));
    let manifest: JsonObject = serde_json::from_str(&text).map_err(wrong)?;
    let Names { name, version } = manifest.read().map_err(wrong)?;
    if let Some((asked_name, asked_version)) = asked
        && (&name != asked_name || &version != asked_version)
    {
        let message =
            format!("manifest.json names {name} {version}; {asked_name} {asked_version} was requested");
        return Err(PackageError::invalid(message));
    }
    Ok(InstalledPackage { name, version, manifest, folder: folder.to_owned() })
}

/// A package name or version that is safe as the name of a folder.
fn path_part(text: &Text) -> Result<&str, PackageError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    if text.chars().all(plain) && !text.starts_with('.') && text.len() <= PART_LEN_MAX {
        return Ok(text.as_str());
    }
    let message = format!(
        "{:?} is not a valid package name or version; use letters, digits and . _ - +",
        text.as_str()
    );
    Err(PackageError::invalid(message))
}

//! Packages of handlers: fetched, verified, unpacked beside the old ones, and only then put in their place.
//!
//! A package is an archive (zip or tar.gz) with a `manifest.json` that says the name and the version it was asked for. It
//! stands in `<folder>/<name>/<version>/`. Whatever goes wrong on the way, what stood before stands still.

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

/// A package that stands.
#[derive(Clone, Debug, PartialEq)]
pub struct InstalledPackage {
    /// Its name.
    pub name: Text,
    /// Its version.
    pub version: Text,
    /// What it says of itself.
    pub manifest: JsonObject,
    /// Where its files are.
    pub folder: PathBuf,
}

/// Makes handlers of a package, by kind. What cannot be made is an error with its reason.
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

/// The packages of a worker.
#[derive(Clone)]
pub struct Packages {
    folder: PathBuf,
    loader: Loader,
    /// One change at a time, so that a version is never half there.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Packages {
    /// Packages in this folder, which is made where it is not there.
    pub fn open(folder: &Path, loader: Loader) -> Result<Packages, PackageError> {
        fs::create_dir_all(folder)
            .map_err(|error| PackageError::io("making the folder of packages", &error))?;
        let packages = Packages { folder: folder.to_owned(), loader, turn: Arc::default() };
        packages.sweep();
        Ok(packages)
    }

    /// What stands, with its handlers. A package that cannot be used is left out and logged.
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
                        tracing::warn!(folder = %version.display(), %error, "a package cannot be used");
                    }
                }
            }
        }
        found
    }

    /// Installs a package: fetch, verify, unpack beside, check, and only then put it in its place.
    pub async fn install(
        &self,
        install: &Install,
    ) -> Result<(InstalledPackage, Vec<(Text, Handler)>), PackageError> {
        let (name, version) = (path_part(&install.name)?, path_part(&install.version)?);
        let (Some(url), Some(sha256)) = (&install.url, &install.sha256) else {
            let message = "a package is installed from a `url` with its `sha256`; both are needed";
            return Err(PackageError::invalid(message));
        };
        let _turn = self.turn.lock().await;
        let staging = tempdir_in(&self.folder)?;
        let archive = staging.path.join("archive");
        fetch::fetch(url, sha256, &archive).await?;
        let target = self.folder.join(name).join(version);
        let (install, loader) = (install.clone(), Arc::clone(&self.loader));
        let work = tokio::task::spawn_blocking(move || {
            let fresh = staging.path.join("files");
            unpack::unpack(&archive, &fresh)?;
            let mut package = read_package(&fresh, Some((&install.name, &install.version)))?;
            // The handlers are asked for before anything is moved: a package that cannot be used replaces nothing.
            loader(&package).map_err(PackageError::invalid)?;
            put_in_place(&fresh, &target, &staging.path)?;
            package.folder = target;
            let handlers = loader(&package).map_err(PackageError::invalid)?;
            Ok((package, handlers))
        });
        work.await.map_err(|error| PackageError { code: ErrorCode::Internal, message: error.to_string() })?
    }

    /// Removes a package: one version, or all. Gives the versions that were removed.
    pub async fn uninstall(&self, uninstall: &Uninstall) -> Result<Vec<Text>, PackageError> {
        let folder = self.folder.join(path_part(&uninstall.name)?);
        let _turn = self.turn.lock().await;
        let versions: Vec<PathBuf> = match &uninstall.version {
            Some(version) => vec![folder.join(path_part(version)?)],
            None => folders(&folder),
        };
        let mut removed = Vec::new();
        for version in versions.iter().filter(|version| version.is_dir()) {
            // Moved away first: a version is there or it is not.
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

    /// Removes what a crash left half done.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(STAGING) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// What the folders begin with that hold unfinished work. No package's name begins with a dot.
const STAGING: &str = ".staging-";

/// A folder that goes when it is dropped.
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

/// Puts `fresh` where `target` is. What stood there stands again if that fails.
fn put_in_place(fresh: &Path, target: &Path, staging: &Path) -> Result<(), PackageError> {
    let failed = |error: std::io::Error| PackageError::io("putting the package in its place", &error);
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

/// The folders in a folder, by name; hidden ones are not ours.
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

/// Reads the manifest of the package in `folder`, which must be the one that was `asked` for.
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
        let message = format!("manifest.json is no file of at most {MANIFEST_LEN_MAX} bytes");
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
            format!("manifest.json says {name} {version}; {asked_name} {asked_version} was asked for");
        return Err(PackageError::invalid(message));
    }
    Ok(InstalledPackage { name, version, manifest, folder: folder.to_owned() })
}

/// A name or a version that may be the name of a folder: it cannot lead anywhere else.
fn path_part(text: &Text) -> Result<&str, PackageError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    if text.chars().all(plain) && !text.starts_with('.') && text.len() <= PART_LEN_MAX {
        return Ok(text.as_str());
    }
    let message =
        format!("{:?} is no name of a package or version: letters, digits and . _ - +", text.as_str());
    Err(PackageError::invalid(message))
}

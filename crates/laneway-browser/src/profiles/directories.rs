//! The data directories of profiles: where they are, how one is copied, cleared and removed.
//!
//! Everything here blocks on the file system, on a thread of its own.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use laneway_core::{JobId, Name};
use laneway_runtime::artifacts::folder_name;
use tokio_util::sync::CancellationToken;

use super::profile::ProfileId;

/// Directories of a profile that hold only what Chromium can load or make again, below the data directory.
const CACHES: [&str; 15] = [
    "Default/Cache",
    "Default/Code Cache",
    "Default/GPUCache",
    "Default/DawnCache",
    "Default/DawnGraphiteCache",
    "Default/DawnWebGPUCache",
    "Default/Media Cache",
    "Default/Application Cache",
    "Default/Service Worker/CacheStorage",
    "Default/Service Worker/ScriptCache",
    "ShaderCache",
    "GrShaderCache",
    "GraphiteDawnCache",
    "GPUPersistentCache",
    "component_crx_cache",
];
/// Files that belong to a running browser, and not to its data.
const OF_A_PROCESS: [&str; 5] =
    ["SingletonLock", "SingletonCookie", "SingletonSocket", "DevToolsActivePort", "RunningChromeVersion"];
/// Deepest folder that is copied or counted: far deeper than Chromium's.
const DEPTH_MAX: u32 = 64;

/// The directories of all profiles.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    root: PathBuf,
}

/// What was copied or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files of these that share their blocks with the original.
    pub shared: u64,
}

impl Directories {
    pub fn new(root: PathBuf) -> Directories {
        Directories { root }
    }

    /// The directory of a profile.
    pub fn of(&self, tenant: &Name, id: &ProfileId) -> PathBuf {
        self.root.join(folder_name(tenant.as_str())).join(id.as_str())
    }

    /// The directory of a profile, if no part of its path is a link to elsewhere.
    pub async fn checked(&self, tenant: &Name, id: &ProfileId) -> io::Result<PathBuf> {
        let (root, path) = (self.root.clone(), self.of(tenant, id));
        blocking(move || has_no_links(&root, &path).map(|()| path)).await
    }

    /// Removes the directory of a profile, if there is one.
    pub async fn remove(&self, tenant: &Name, id: &ProfileId) -> io::Result<()> {
        let path = self.checked(tenant, id).await?;
        blocking(move || remove_tree(&path)).await
    }

    /// Removes the caches in the directory of a profile.
    pub async fn clear_caches(&self, tenant: &Name, id: &ProfileId) -> io::Result<Tally> {
        let (root, path) = (self.root.clone(), self.of(tenant, id));
        blocking(move || {
            let mut tally = Tally::default();
            for cache in CACHES.map(|cache| path.join(cache)) {
                has_no_links(&root, &cache)?;
                count(&cache, DEPTH_MAX, &mut tally)?;
                remove_tree(&cache)?;
            }
            Ok(tally)
        })
        .await
    }

    /// Copies the directory of a profile for the copy `to`. The job names the unfinished copy: what an earlier attempt left is
    /// removed first, and nothing is left of a copy that fails or is canceled.
    pub async fn copy(
        &self,
        tenant: &Name,
        from: &ProfileId,
        to: &ProfileId,
        job: JobId,
        stop: CancellationToken,
    ) -> io::Result<Tally> {
        let (from, finished) = (self.checked(tenant, from).await?, self.checked(tenant, to).await?);
        let unfinished = finished.with_file_name(format!("copy.{job}"));
        blocking(move || {
            remove_tree(&unfinished)?;
            remove_tree(&finished)?;
            let mut tally = Tally::default();
            let copied = copy_tree(&from, &unfinished, DEPTH_MAX, &stop, &mut tally)
                .and_then(|()| fs::rename(&unfinished, &finished));
            if copied.is_err() {
                remove_tree(&unfinished)?;
            }
            copied.map(|()| tally)
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The error names the first part of the path below `root` that is a link.
fn has_no_links(root: &Path, path: &Path) -> io::Result<()> {
    let parts: Vec<&Path> = path.ancestors().take_while(|part| *part != root).collect();
    for part in parts.into_iter().rev() {
        match fs::symlink_metadata(part) {
            Ok(found) if found.is_symlink() => {
                let message = format!("{} is a link; replace it by a directory", part.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            Ok(_) => {}
            // What is not there is made by us.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn count(path: &Path, depth: u32, tally: &mut Tally) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() && depth > 0 {
            count(&entry.path(), depth - 1, tally)?;
        } else if metadata.is_file() {
            tally.files += 1;
            tally.bytes += metadata.len();
        }
    }
    Ok(())
}

/// Copies a folder. Links, sockets and the files of a running browser are left out: they mean the original.
fn copy_tree(
    from: &Path,
    to: &Path,
    depth: u32,
    stop: &CancellationToken,
    tally: &mut Tally,
) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        // A profile that was never started has no directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        if stop.is_cancelled() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the copy was canceled"));
        }
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        let target = to.join(&name);
        if kind.is_dir() {
            if depth == 0 {
                return Err(io::Error::other(format!("{} is too deep", entry.path().display())));
            }
            copy_tree(&entry.path(), &target, depth - 1, stop, tally)?;
        } else if kind.is_file() && !is_of_a_process(&name) {
            let (bytes, shared) = copy_file(&entry.path(), &target)?;
            tally.files += 1;
            tally.bytes += bytes;
            tally.shared += u64::from(shared);
        }
    }
    Ok(())
}

fn is_of_a_process(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    OF_A_PROCESS.contains(&name.as_ref()) || name.starts_with("laneway-")
}

/// Copies a file. Where the file system can, the copy shares the blocks of the original until one of them is written.
fn copy_file(from: &Path, to: &Path) -> io::Result<(u64, bool)> {
    let source = File::open(from)?;
    let target = File::create(to)?;
    #[cfg(target_os = "linux")]
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return Ok((source.metadata()?.len(), true));
    }
    let mut reader = source;
    let mut writer = target;
    Ok((io::copy(&mut reader, &mut writer)?, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories() -> (tempfile::TempDir, Directories, Name) {
        let dir = tempfile::tempdir().unwrap();
        let directories = Directories::new(dir.path().to_owned());
        (dir, directories, Name::fixed("default"))
    }

    fn id(text: &str) -> ProfileId {
        ProfileId::parse(text).unwrap()
    }

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn no_path_leaves_the_root() {
        let directories = Directories::new(PathBuf::from("/profiles"));
        assert_eq!(directories.of(&Name::fixed("default"), &id("p1")), PathBuf::from("/profiles/default/p1"));
        assert_eq!(
            directories.of(&Name::fixed("../etc"), &id("p1")),
            PathBuf::from("/profiles/%2e%2e%2fetc/p1")
        );
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a\\b",
            "A",
            "a.b",
            "-a",
            "_a",
            "copy.1",
            "a\0",
            "ä",
            "\u{ff0e}\u{ff0e}",
            "a\u{2215}b",
            "a\u{202e}",
            "p1\n",
        ] {
            assert!(ProfileId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn no_link_leaves_the_root() {
        let (dir, directories, tenant) = directories();
        let outside = tempfile::tempdir().unwrap();
        write(outside.path().join("Cache/a"), "kept");
        let link = |from: PathBuf| {
            fs::create_dir_all(from.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(outside.path(), from).unwrap();
        };
        link(directories.of(&tenant, &id("p1")));
        link(directories.of(&tenant, &id("p2")).join("Default"));
        link(dir.path().join("linked"));
        write(directories.of(&tenant, &id("p3")).join("Default/Cookies"), "kept");
        let linked = Name::fixed("linked");
        for (tenant, profile) in [(&tenant, "p1"), (&linked, "p9")] {
            for found in [
                directories.checked(tenant, &id(profile)).await.map(drop),
                directories.remove(tenant, &id(profile)).await,
                directories.clear_caches(tenant, &id(profile)).await.map(drop),
                directories
                    .copy(tenant, &id(profile), &id("p8"), JobId(7), CancellationToken::new())
                    .await
                    .map(drop),
                directories
                    .copy(tenant, &id("p3"), &id(profile), JobId(7), CancellationToken::new())
                    .await
                    .map(drop),
            ] {
                assert!(found.unwrap_err().to_string().contains("is a link"));
            }
        }
        let inside = directories.clear_caches(&tenant, &id("p2")).await.unwrap_err();
        assert!(inside.to_string().contains("p2/Default is a link"), "{inside}");
        assert_eq!(fs::read_to_string(outside.path().join("Cache/a")).unwrap(), "kept");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn caches_go_and_data_stays() {
        let (_dir, directories, tenant) = directories();
        let path = directories.of(&tenant, &id("p1"));
        write(path.join("Default/Cache/a/b"), "12345");
        write(path.join("ShaderCache/c"), "123");
        write(path.join("Default/Cookies"), "kept");
        let tally = directories.clear_caches(&tenant, &id("p1")).await.unwrap();
        assert_eq!((tally.files, tally.bytes), (2, 8));
        assert!(path.join("Default/Cookies").exists() && !path.join("Default/Cache").exists());
        assert_eq!(directories.clear_caches(&tenant, &id("p1")).await.unwrap(), Tally::default());
    }

    #[tokio::test]
    async fn a_copy_has_the_data_without_what_belongs_to_the_process() {
        let (_dir, directories, tenant) = directories();
        let (from, to) = (directories.of(&tenant, &id("p1")), directories.of(&tenant, &id("p2")));
        write(from.join("Default/Cookies"), "kept");
        write(from.join("DevToolsActivePort"), "9222");
        std::os::unix::fs::symlink("/etc/passwd", from.join("SingletonLock")).unwrap();
        write(to.with_file_name(format!("copy.{}", JobId(7))).join("left over"), "x");
        let stop = CancellationToken::new();
        let tally = directories.copy(&tenant, &id("p1"), &id("p2"), JobId(7), stop.clone()).await.unwrap();
        assert_eq!((tally.files, tally.bytes), (1, 4));
        assert_eq!(fs::read_to_string(to.join("Default/Cookies")).unwrap(), "kept");
        assert!(!to.join("DevToolsActivePort").exists() && !to.join("left over").exists());
        assert!(fs::symlink_metadata(to.join("SingletonLock")).is_err());
        // A copy that is canceled leaves nothing.
        stop.cancel();
        let canceled = directories.copy(&tenant, &id("p1"), &id("p3"), JobId(8), stop).await;
        assert_eq!(canceled.unwrap_err().kind(), io::ErrorKind::Interrupted);
        let left: Vec<_> =
            fs::read_dir(to.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}

//! Artifacts of handlers in this process: files below the data directory, one folder for each tenant.
//!
//! A file is named by its job, its attempt and its number, so that nothing that a handler or a client says is part of a path. A
//! tenant has a limit of bytes; files expire. Both are checked when a file is added, and by [`ArtifactFiles::sweep`].

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use laneway_core::{JobId, Name, Wall};
use laneway_store::sqlite::files::open_private;
use thiserror::Error;

use super::{Part, PartTrouble};

/// The name of this process where artifacts name their worker.
pub const LOCAL_WORKER: &str = "laneway.local";
/// Most artifacts of one attempt.
const PER_ATTEMPT_MAX: u32 = 1_000;

/// The directory of artifacts. Clones share it.
#[derive(Clone, Debug)]
pub struct ArtifactFiles {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    retention: Duration,
    bytes_per_tenant_max: u64,
    /// Held while a file is added: two that are added at once must not both fit below the limit.
    adding: Mutex<()>,
}

/// Names a file: the artifact of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: u32,
    /// Its number within the attempt, from 1.
    pub number: u32,
}

/// Why an artifact was not stored.
#[derive(Debug, Error)]
pub enum NotStored {
    /// The tenant has no space left.
    #[error(
        "the artifact has {len} bytes, and the artifacts of the tenant have {used} of at most {max}; wait until some expire, or raise limits.artifacts_per_tenant_max"
    )]
    Full {
        /// Its bytes.
        len: u64,
        /// The bytes that the tenant has stored.
        used: u64,
        /// The limit.
        max: u64,
    },
    /// The attempt made too many.
    #[error("an attempt may make at most {PER_ATTEMPT_MAX} artifacts")]
    TooMany,
    /// This server stores no artifacts.
    #[error("the server keeps its jobs in memory and stores no artifacts; give it a data directory")]
    NoDirectory,
    /// The file cannot be written.
    #[error("the artifact cannot be written: {0}")]
    Io(#[from] io::Error),
}

impl ArtifactFiles {
    /// Stores artifacts below `root`, which is made when it is first needed.
    pub fn new(root: PathBuf, retention: Duration, bytes_per_tenant_max: u64) -> ArtifactFiles {
        let inner = Inner { root, retention, bytes_per_tenant_max, adding: Mutex::default() };
        ArtifactFiles { inner: Arc::new(inner) }
    }

    /// How long a file is kept.
    pub fn retention(&self) -> Duration {
        self.inner.retention
    }

    /// Stores a file. Blocks.
    pub(crate) fn add(&self, tenant: &Name, id: FileId, bytes: &[u8], now: Wall) -> Result<(), NotStored> {
        if id.number > PER_ATTEMPT_MAX {
            return Err(NotStored::TooMany);
        }
        let _adding = self.inner.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.folder(tenant);
        fs::create_dir_all(&folder)?;
        let used = self.sweep_folder(&folder, now)?;
        let (len, max) = (bytes.len() as u64, self.inner.bytes_per_tenant_max);
        if used.saturating_add(len) > max {
            return Err(NotStored::Full { len, used, max });
        }
        let path = folder.join(id.file_name());
        let new = path.with_extension("new");
        let written = open_private(&new).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        });
        if written.is_err() {
            drop(fs::remove_file(&new));
        }
        Ok(written?)
    }

    /// A part of a file. Blocks.
    pub fn read(&self, tenant: &Name, id: FileId, offset: u64, limit: u32) -> Result<Part, PartTrouble> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => PartTrouble::Missing,
            _ => PartTrouble::Failed(error.to_string().into()),
        };
        let mut file = File::open(self.folder(tenant).join(id.file_name())).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        file.seek(SeekFrom::Start(offset.min(size))).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(limit.into()).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Part { size, bytes })
    }

    /// Removes the expired files of every tenant. Blocks.
    pub fn sweep(&self, now: Wall) -> io::Result<()> {
        let folders = match fs::read_dir(&self.inner.root) {
            Ok(folders) => folders,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let _adding = self.inner.adding.lock().unwrap_or_else(PoisonError::into_inner);
        for folder in folders {
            let folder = folder?;
            if folder.file_type()?.is_dir() {
                self.sweep_folder(&folder.path(), now)?;
            }
        }
        Ok(())
    }

    /// Removes expired files. Returns the bytes of those that stay.
    fn sweep_folder(&self, folder: &Path, now: Wall) -> io::Result<u64> {
        let now = UNIX_EPOCH + Duration::from_millis(u64::try_from(now.0).unwrap_or(0));
        let mut used = 0;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let age = now.duration_since(metadata.modified()?).unwrap_or_default();
            let abandoned = entry.path().extension().is_some_and(|end| end == "new");
            if age > self.inner.retention || abandoned {
                fs::remove_file(entry.path())?;
            } else {
                used += metadata.len();
            }
        }
        Ok(used)
    }

    fn folder(&self, tenant: &Name) -> PathBuf {
        self.inner.root.join(folder_name(tenant.as_str()))
    }
}

impl FileId {
    /// The id that clients see.
    pub(crate) fn resource(self) -> String {
        format!("{}-{}", self.attempt, self.number)
    }

    /// Reads what [`FileId::resource`] wrote.
    pub fn parse(job: JobId, resource: &str) -> Option<FileId> {
        let (attempt, number) = resource.split_once('-')?;
        let id = FileId { job, attempt: attempt.parse().ok()?, number: number.parse().ok()? };
        (id.resource() == resource).then_some(id)
    }

    fn file_name(self) -> String {
        format!("{}-{}", self.job, self.resource())
    }
}

/// A name as the name of a folder: letters, digits, `_` and `-` stay, every other byte is escaped. So no name means the folder
/// above or another one below, and no two names mean the same folder.
pub fn folder_name(name: &str) -> String {
    let mut folder = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => folder.push(byte.into()),
            // Upper-case letters are escaped, too: some file systems do not tell them from lower-case ones.
            byte => folder.push_str(&format!("%{byte:02x}")),
        }
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path, max: u64) -> ArtifactFiles {
        ArtifactFiles::new(dir.join("artifacts"), Duration::from_secs(3_600), max)
    }

    fn id(number: u32) -> FileId {
        FileId { job: JobId(7), attempt: 1, number }
    }

    /// The present, as files are stamped with it.
    fn now() -> Wall {
        crate::Clock::system().now().wall
    }

    #[test]
    fn a_file_is_read_in_parts_by_its_own_tenant_only() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), 100);
        let acme = Name::fixed("acme");
        files.add(&acme, id(1), b"hello", now()).unwrap();
        assert_eq!(files.read(&acme, id(1), 1, 3), Ok(Part { size: 5, bytes: b"ell".to_vec() }));
        assert_eq!(files.read(&acme, id(1), 9, 3), Ok(Part { size: 5, bytes: Vec::new() }));
        assert_eq!(files.read(&Name::fixed("other"), id(1), 0, 9), Err(PartTrouble::Missing));
        assert_eq!(files.read(&acme, id(2), 0, 9), Err(PartTrouble::Missing));
    }

    #[test]
    fn a_tenant_has_a_limit_of_bytes_and_expired_files_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), 10);
        let (acme, other) = (Name::fixed("acme"), Name::fixed("other"));
        files.add(&acme, id(1), &[0; 8], now()).unwrap();
        let full = files.add(&acme, id(2), &[0; 8], now()).unwrap_err();
        assert!(matches!(full, NotStored::Full { len: 8, used: 8, max: 10 }), "{full}");
        files.add(&other, id(1), &[0; 8], now()).unwrap();
        assert!(matches!(files.add(&other, id(PER_ATTEMPT_MAX + 1), &[], now()), Err(NotStored::TooMany)));
        let old = File::options().write(true).open(files.folder(&acme).join(id(1).file_name())).unwrap();
        old.set_modified(UNIX_EPOCH).unwrap();
        files.add(&acme, id(2), &[0; 8], now()).unwrap();
        assert_eq!(files.read(&acme, id(1), 0, 1), Err(PartTrouble::Missing));
        files.sweep(now()).unwrap();
        assert!(files.read(&acme, id(2), 0, 1).is_ok());
    }

    #[test]
    fn no_name_leaves_its_folder_and_no_two_share_one() {
        assert_eq!(folder_name("acme-1_x"), "acme-1_x");
        for (name, folder) in [("..", "%2e%2e"), ("a/b", "a%2fb"), ("A", "%41"), ("%41", "%2541")] {
            assert_eq!(folder_name(name), folder);
        }
        for resource in ["", "1", "1-", "-1", "1-1-1", "01-1", "../1-1", "1-+1"] {
            assert_eq!(FileId::parse(JobId(7), resource), None, "{resource:?}");
        }
        assert_eq!(FileId::parse(JobId(7), "1-3"), Some(id(3)));
    }
}

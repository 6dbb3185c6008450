//! One server for each data directory: a lock that the system releases when its process dies.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use super::files;
use crate::StoreError;

/// Kinds of file systems whose locks and fsyncs cannot be trusted across machines.
const NETWORK: [&str; 11] =
    ["nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ncpfs"];

/// The lock on a data directory; free again when it drops.
pub(super) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock of `dir`, or returns an error that names the process that has it.
    pub fn take(dir: &Path) -> Result<DirLock, StoreError> {
        let path = dir.join(files::LOCK);
        let cannot =
            |error: std::io::Error| StoreError::Unusable(format!("cannot lock {}: {error}", path.display()));
        let mut file = files::open_private(&path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(dir, &mut file)),
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        // The number is only a hint for people; the lock itself does not need it, and a full disk may not take it. Written
        // before the file is cut, so that no space is given away that is needed again.
        let number = format!("{}\n", std::process::id());
        if file.write_all(number.as_bytes()).is_err() || file.set_len(number.len() as u64).is_err() {
            tracing::debug!(file = %path.display(), "the number of this process cannot be written");
        }
        Ok(DirLock { _file: file })
    }

    /// Takes the lock of `dir` without changing or making anything. `None`: another one has it.
    pub fn take_unchanged(dir: &Path) -> Option<UnchangedLock> {
        let file = match File::open(dir.join(files::LOCK)) {
            Ok(file) => file,
            // No server was ever here, or it is a copy.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Some(UnchangedLock(None)),
            Err(_) => return None,
        };
        // Shared: two checks may run at once.
        file.try_lock_shared().ok().map(|()| UnchangedLock(Some(file)))
    }
}

/// Stores servers from starting in a directory, without having changed it; free again when it drops.
pub(super) struct UnchangedLock(
    #[expect(dead_code, reason = "the lock is held by the open file")] Option<File>,
);

fn taken(dir: &Path, file: &mut File) -> StoreError {
    let mut pid = String::new();
    let holder = match file.take(32).read_to_string(&mut pid) {
        Ok(_) if is_process(pid.trim()) => format!("process {}", pid.trim()),
        _ => "another process".to_owned(),
    };
    StoreError::Locked(format!(
        "data directory {} is in use by {holder}; stop it or choose another directory",
        dir.display()
    ))
}

/// True when a process of this number is alive. A check holds the lock without writing its own number.
fn is_process(pid: &str) -> bool {
    !pid.is_empty() && (!Path::new("/proc/self").exists() || Path::new("/proc").join(pid).exists())
}

/// Rejects a directory on a network file system, where that can be seen.
pub(super) fn check_file_system(dir: &Path) -> Result<(), StoreError> {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mounts") else { return Ok(()) };
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    match file_system_of(&dir, &mounts) {
        Some(kind) if NETWORK.contains(&kind) => Err(StoreError::Unusable(format!(
            "data directory {} is on a network file system ({kind}), where locks and fsync cannot be trusted; choose a \
             local disk",
            dir.display()
        ))),
        _ => Ok(()),
    }
}

/// The kind of file system that `dir` is on: that of the longest mount point above it, the last one where two are equal.
fn file_system_of<'a>(dir: &Path, mounts: &'a str) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (fields.next(), fields.next()) else { continue };
        let point = point.replace("\\040", " ");
        if dir.starts_with(&point) && best.is_none_or(|(len, _)| point.len() >= len) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
/dev/vda / ext4 rw 0 0
server:/export /data nfs4 rw 0 0
/dev/vdb /data/local xfs rw 0 0
host /with\\040space 9p rw 0 0
";

    #[test]
    #[cfg(target_os = "linux")]
    fn defect_06_a_number_that_cannot_be_written_does_not_keep_the_lock_from_being_taken() {
        let dir = tempfile::tempdir().unwrap();
        // Every write to it fails for want of space.
        std::os::unix::fs::symlink("/dev/full", dir.path().join(files::LOCK)).unwrap();
        let lock = DirLock::take(dir.path()).unwrap();
        assert!(matches!(DirLock::take(dir.path()), Err(StoreError::Locked(_))));
        drop(lock);
        assert!(DirLock::take(dir.path()).is_ok());
    }

    #[test]
    fn longest_mount_point_counts() {
        let kind = |dir: &str| file_system_of(Path::new(dir), MOUNTS);
        assert_eq!(kind("/home/x"), Some("ext4"));
        assert_eq!(kind("/data/x"), Some("nfs4"));
        assert_eq!(kind("/data/local/x"), Some("xfs"));
        assert_eq!(kind("/database"), Some("ext4"));
        assert_eq!(kind("/with space/x"), Some("9p"));
    }
}

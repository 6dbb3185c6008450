//! Unpacks an untrusted archive: regular files and folders below one folder, within limits.
//!
//! Every path is checked before anything is written. Links of any sort are rejected: packages do not need them,
//! and links are how archives reach outside their folder.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;

use super::PackageError;

/// Most entries of one archive.
pub const ENTRIES_MAX: usize = 20_000;
/// Most bytes that an archive may unpack to.
pub const UNPACKED_LEN_MAX: u64 = 1 << 30;
/// Longest path inside an archive, in bytes.
const PATH_LEN_MAX: usize = 512;

/// Unpacks `archive`, a zip or a tar.gz according to its first bytes, into the new folder `target`.
pub(super) fn unpack(archive: &Path, target: &Path) -> Result<(), PackageError> {
    let broken = |error: io::Error| PackageError::invalid(format!("the archive cannot be read: {error}"));
    let mut file = File::open(archive).map_err(broken)?;
    let mut magic = [0; 4];
    let len = file.read(&mut magic).map_err(broken)?;
    file.seek(SeekFrom::Start(0)).map_err(broken)?;
    fs::create_dir(target).map_err(|error| PackageError::io("making a folder", &error))?;
    let mut unpacked = Unpacked { target, entries: 0, bytes: 0 };
    match &magic[..len] {
        [b'P', b'K', 3, 4] => unpack_zip(file, &mut unpacked),
        [0x1f, 0x8b, ..] => unpack_tar(GzDecoder::new(file), &mut unpacked),
        _ => Err(PackageError::invalid("the archive is neither a zip nor a tar.gz")),
    }
}

fn unpack_zip(file: File, unpacked: &mut Unpacked<'_>) -> Result<(), PackageError> {
    let broken =
        |error: zip::result::ZipError| PackageError::invalid(format!("the zip cannot be read: {error}"));
    let mut archive = zip::ZipArchive::new(file).map_err(broken)?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(broken)?;
        let path = entry.name().to_owned();
        let mode = entry.unix_mode();
        // The type bits of a unix mode: the only mark of a link.
        let kind = match mode.map(|mode| mode & 0o170_000) {
            _ if entry.is_dir() => Kind::Folder,
            None | Some(0 | 0o100_000) => {
                Kind::File { executable: mode.is_some_and(|mode| mode & 0o111 != 0) }
            }
            Some(_) => Kind::Other,
        };
        unpacked.add(Path::new(&path), kind, &mut entry)?;
    }
    Ok(())
}

fn unpack_tar(bytes: impl Read, unpacked: &mut Unpacked<'_>) -> Result<(), PackageError> {
    let broken = |error: io::Error| PackageError::invalid(format!("the tar.gz cannot be read: {error}"));
    // The unpacked size is limited while reading, headers included, however small the archive is.
    let limit = UNPACKED_LEN_MAX + (ENTRIES_MAX as u64) * 4_096;
    let mut archive = tar::Archive::new(bytes.take(limit));
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        let kind = match entry.header().entry_type() {
            tar::EntryType::Directory => Kind::Folder,
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let mode = entry.header().mode().map_err(broken)?;
                Kind::File { executable: mode & 0o111 != 0 }
            }
            tar::EntryType::XGlobalHeader => continue,
            _ => Kind::Other,
        };
        unpacked.add(&path, kind, &mut entry)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Kind {
    Folder,
    File { executable: bool },
    Other,
}

struct Unpacked<'a> {
    target: &'a Path,
    entries: usize,
    bytes: u64,
}

impl Unpacked<'_> {
    fn add(&mut self, path: &Path, kind: Kind, body: &mut impl Read) -> Result<(), PackageError> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(PackageError::invalid(format!("the archive has more than {ENTRIES_MAX} entries")));
        }
        let inside = inside(path)?;
        let target = self.target.join(&inside);
        let failed = |error: io::Error| PackageError::io("unpacking", &error);
        match kind {
            Kind::Folder => fs::create_dir_all(&target).map_err(failed),
            Kind::File { executable } => {
                if inside.as_os_str().is_empty() {
                    return Err(PackageError::invalid("the archive has a file without a name"));
                }
                if let Some(parent) = target.parent() {
                    fs::create_dir_all(parent).map_err(failed)?;
                }
                self.write(&target, executable, body)
            }
            Kind::Other => {
                let message = format!("{:?} in the archive is neither a file nor a folder", path.display());
                Err(PackageError::invalid(message))
            }
        }
    }

    fn write(&mut self, target: &Path, executable: bool, body: &mut impl Read) -> Result<(), PackageError> {
        let left = UNPACKED_LEN_MAX - self.bytes;
        // Only new files: a duplicate entry could otherwise replace a file that was already checked.
        let mut file = File::create_new(target)
            .map_err(|error| PackageError::invalid(format!("{}: {error}", target.display())))?;
        let written = io::copy(&mut body.take(left + 1), &mut file)
            .map_err(|error| PackageError::invalid(format!("the archive cannot be read: {error}")))?;
        if written > left {
            let message = format!("the archive unpacks to more than {UNPACKED_LEN_MAX} bytes");
            return Err(PackageError::invalid(message));
        }
        self.bytes += written;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = if executable { 0o755 } else { 0o644 };
            let permissions = fs::Permissions::from_mode(mode);
            file.set_permissions(permissions).map_err(|error| PackageError::io("unpacking", &error))?;
        }
        Ok(())
    }
}

/// The path, if it cannot lead out of its parent folder.
fn inside(path: &Path) -> Result<PathBuf, PackageError> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => inside.push(part),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => {
                let message = format!("the path {:?} in the archive leads out of it", path.display());
                return Err(PackageError::invalid(message));
            }
        }
    }
    if path.as_os_str().len() > PATH_LEN_MAX || path.to_string_lossy().contains(['\\', '\0']) {
        let message = format!("the path {:?} in the archive cannot be used", path.display());
        return Err(PackageError::invalid(message));
    }
    Ok(inside)
}

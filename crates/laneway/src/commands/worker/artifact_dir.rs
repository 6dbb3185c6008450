//! Artifacts of programs: the files that each program leaves in a folder of its own.
//!
//! The folders are in one that belongs to this worker and is removed with it. The folder of a failed program is
//! removed at once; one whose files became artifacts is removed with the last of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use laneway_client::worker::{Failure, ResourceBody, Task};
use laneway_wire::frame::{ARTIFACTS_MAX, Artifact, ErrorCode, JsonObject};
use serde_json::json;
use tempfile::TempDir;

/// Most bytes of all files that one program may leave.
const MADE_BYTES_MAX: u64 = 2 << 30;

/// The folder for artifacts. Clones share it.
#[derive(Clone)]
pub struct ArtifactDir {
    root: Arc<TempDir>,
    ttl: Option<Duration>,
}

impl ArtifactDir {
    /// A folder below `parent`, or below the system's temporary folder. Artifacts are kept for `ttl`.
    pub fn open(parent: Option<&Path>, ttl: Option<Duration>) -> anyhow::Result<ArtifactDir> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("laneway-worker-");
        let root = match parent {
            None => builder.tempdir(),
            // Programs may run in another folder, where a relative path means something else.
            Some(parent) => fs::create_dir_all(parent)
                .and_then(|()| parent.canonicalize())
                .and_then(|parent| builder.tempdir_in(parent)),
        };
        let root = root.with_context(|| match parent {
            Some(parent) => format!("cannot create a folder in --artifacts {}", parent.display()),
            None => "cannot create a folder for artifacts; name one with --artifacts".to_owned(),
        })?;
        Ok(ArtifactDir { root: Arc::new(root), ttl })
    }

    /// A new folder for one attempt.
    pub fn attempt_dir(&self) -> Result<AttemptDir, Failure> {
        let made = tempfile::Builder::new().prefix("run-").tempdir_in(self.root.path());
        let folder = made.map_err(|error| internal("created for the program", &error))?;
        Ok(AttemptDir { folder, artifact_dir: self.clone() })
    }
}

/// The folder of one attempt. It is removed on drop with all its files.
pub struct AttemptDir {
    folder: TempDir,
    artifact_dir: ArtifactDir,
}

impl AttemptDir {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes artifacts of all its files, ordered by name.
    pub async fn collect(self, task: Task) -> Result<Vec<Artifact>, Failure> {
        let collecting = tokio::task::spawn_blocking(move || self.collect_now(&task));
        collecting.await.unwrap_or_else(|error| {
            let message = format!("the artifacts of the program cannot be read: {error}");
            Err(Failure::permanent(ErrorCode::Internal.as_str(), message))
        })
    }

    fn collect_now(self, task: &Task) -> Result<Vec<Artifact>, Failure> {
        let files = list_files(self.path())?;
        let mut artifacts = Vec::with_capacity(files.len());
        for (name, path) in files {
            let mut artifact = task.keep("file", ResourceBody::FileInFolder(path), self.artifact_dir.ttl)?;
            artifact.metadata = JsonObject::of(&match mime_of(&name) {
                Some(mime_type) => json!({"name": name, "mime_type": mime_type}),
                None => json!({"name": name}),
            })
            .ok();
            artifacts.push(artifact);
        }
        if !artifacts.is_empty() {
            // From now on it is removed with the last of its files.
            let _ = self.folder.keep();
        }
        Ok(artifacts)
    }
}

/// The files of a folder by name, within the limits.
fn list_files(folder: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let unreadable = |error: io::Error| internal("read", &error);
    let (mut files, mut bytes) = (Vec::new(), 0_u64);
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Does not follow links: the target of a link is not a file of the program.
        let metadata = entry.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            let message =
                format!("the program left {name:?} in LANEWAY_ARTIFACTS, which is not a regular file");
            return Err(Failure::permanent("bad_artifact", message));
        }
        bytes = bytes.saturating_add(metadata.len());
        files.push((name, entry.path()));
        if files.len() > ARTIFACTS_MAX {
            let message = format!("the program left more than {ARTIFACTS_MAX} files in LANEWAY_ARTIFACTS");
            return Err(Failure::permanent("too_many_artifacts", message));
        }
    }
    if bytes > MADE_BYTES_MAX {
        let message =
            format!("the program left {bytes} bytes in LANEWAY_ARTIFACTS; at most {MADE_BYTES_MAX} are kept");
        return Err(Failure::permanent("artifacts_too_large", message));
    }
    files.sort();
    Ok(files)
}

fn internal(what: &str, error: &io::Error) -> Failure {
    Failure::transient(
        ErrorCode::Internal.as_str(),
        format!("the folder for artifacts cannot be {what}: {error}"),
    )
}

/// The media type of a file, by its extension.
fn mime_of(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "xml" => "application/xml",
        "json" => "application/json",
        "ndjson" | "jsonl" => "application/x-ndjson",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "tar" => "application/x-tar",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_taken_by_name_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert_eq!(list_files(folder.path()).unwrap(), []);
        for name in ["b.txt", "a.png"] {
            fs::write(path(name), name).unwrap();
        }
        let files = list_files(folder.path()).unwrap();
        assert_eq!(files, [("a.png".to_owned(), path("a.png")), ("b.txt".to_owned(), path("b.txt"))]);
        std::os::unix::fs::symlink("/etc/hostname", path("link")).unwrap();
        assert_eq!(list_files(folder.path()).unwrap_err().code, "bad_artifact");
        fs::remove_file(path("link")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        assert_eq!(list_files(folder.path()).unwrap_err().code, "bad_artifact");
    }

    #[test]
    fn what_is_left_behind_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        // A sparse file takes no disk space.
        let sparse = |name: &str, len: u64| {
            fs::File::create(folder.path().join(name)).unwrap().set_len(len).unwrap();
        };
        sparse("0", MADE_BYTES_MAX);
        assert_eq!(list_files(folder.path()).unwrap().len(), 1);
        sparse("1", 1);
        assert_eq!(list_files(folder.path()).unwrap_err().code, "artifacts_too_large");
        sparse("0", 0);
        (2..ARTIFACTS_MAX).for_each(|n| sparse(&n.to_string(), 0));
        assert_eq!(list_files(folder.path()).unwrap().len(), ARTIFACTS_MAX);
        sparse("more", 0);
        assert_eq!(list_files(folder.path()).unwrap_err().code, "too_many_artifacts");
    }
}

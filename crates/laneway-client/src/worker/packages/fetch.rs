//! Downloads an archive up to a size limit, and checks its digest.

use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

use super::PackageError;

/// Longest archive in bytes.
pub const ARCHIVE_LEN_MAX: u64 = 256 << 20;
/// How long a download may take.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(300);
/// How long opening a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Downloads `url` to `target` if its digest is `sha256`.
pub(super) async fn fetch(url: &str, sha256: &str, target: &Path) -> Result<(), PackageError> {
    let parsed: reqwest::Url = url
        .parse()
        .map_err(|error| PackageError::invalid(format!("the url {url:?} cannot be read: {error}")))?;
    let file = File::create(target).map_err(|error| PackageError::io("writing the archive", &error))?;
    let mut sink = Sink { file, digest: Sha256::new(), len: 0 };
    match parsed.scheme() {
        "http" | "https" => download(parsed, &mut sink).await?,
        "file" => {
            let path = parsed
                .to_file_path()
                .map_err(|()| PackageError::invalid(format!("the url {url:?} does not name a local file")))?;
            sink = copy_within(DOWNLOAD_LIMIT, path, sink).await?;
        }
        other => {
            let message = format!("the url scheme {other:?} is not supported; use https, http or file");
            return Err(PackageError::invalid(message));
        }
    }
    let found: String = sink.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if !found.eq_ignore_ascii_case(sha256) {
        let message = format!("the archive's sha256 is {found}, expected {sha256}");
        return Err(PackageError::invalid(message));
    }
    Ok(())
}

struct Sink {
    file: File,
    digest: Sha256,
    len: u64,
}

impl Sink {
    fn take(&mut self, bytes: &[u8]) -> Result<(), PackageError> {
        self.len += bytes.len() as u64;
        if self.len > ARCHIVE_LEN_MAX {
            let message = format!("the archive has more than {ARCHIVE_LEN_MAX} bytes");
            return Err(PackageError::invalid(message));
        }
        self.digest.update(bytes);
        self.file.write_all(bytes).map_err(|error| PackageError::io("writing the archive", &error))
    }
}

async fn download(url: reqwest::Url, sink: &mut Sink) -> Result<(), PackageError> {
    let failed =
        |error: reqwest::Error| PackageError::invalid(format!("the archive cannot be fetched: {error}"));
    let client = reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(CONNECT_LIMIT)
        .timeout(DOWNLOAD_LIMIT)
        .build()
        .map_err(failed)?;
    let answer =
        client.get(url).send().await.and_then(reqwest::Response::error_for_status).map_err(failed)?;
    let mut body = answer.bytes_stream();
    while let Some(bytes) = body.next().await {
        sink.take(&bytes.map_err(failed)?)?;
    }
    Ok(())
}

/// Copies a file on a blocking thread, with a time limit.
async fn copy_within(limit: Duration, path: PathBuf, mut sink: Sink) -> Result<Sink, PackageError> {
    let copying = tokio::task::spawn_blocking(move || copy(&path, &mut sink).map(|()| sink));
    match tokio::time::timeout(limit, copying).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => Err(PackageError::invalid(format!("the archive cannot be read: {error}"))),
        Err(_) => Err(PackageError::invalid(format!("the archive could not be read within {limit:?}"))),
    }
}

/// Only regular files are read: anything else may block forever, or never end.
fn copy(path: &Path, sink: &mut Sink) -> Result<(), PackageError> {
    let unreadable =
        |why: &dyn Display| PackageError::invalid(format!("{} cannot be read: {why}", path.display()));
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty());
    let mut file = File::from(file.map_err(|error| unreadable(&error))?);
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    if !metadata.is_file() {
        return Err(unreadable(&"it is not a regular file"));
    }
    if metadata.len() > ARCHIVE_LEN_MAX {
        return Err(unreadable(&format_args!("it has more than {ARCHIVE_LEN_MAX} bytes")));
    }
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => sink.take(&buffer[..len])?,
            Err(error) => return Err(PackageError::io("reading the archive", &error)),
        }
    }
}

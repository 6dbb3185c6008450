//! Brings an archive here, never more of it than is allowed, and checks that it is the one that was meant.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use sha2::{Digest, Sha256};

use super::PackageError;

/// Longest archive in bytes.
pub const ARCHIVE_LEN_MAX: u64 = 256 << 20;
/// How long a download may take.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(300);
/// How long a connection may take to stand.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Writes what is at `url` to `target`, if its digest is `sha256`.
pub(super) async fn fetch(url: &str, sha256: &str, target: &Path) -> Result<(), PackageError> {
    let parsed: reqwest::Url = url
        .parse()
        .map_err(|error| PackageError::invalid(format!("the url {url:?} cannot be read: {error}")))?;
    let file = File::create(target).map_err(|error| PackageError::io("writing the archive", &error))?;
    let mut sink = Sink { file, digest: Sha256::new(), len: 0 };
    match parsed.scheme() {
        "http" | "https" => download(parsed, &mut sink).await?,
        "file" => {
            let path = parsed.to_file_path().map_err(|()| {
                PackageError::invalid(format!("the url {url:?} names no file of this machine"))
            })?;
            copy(&path, &mut sink)?;
        }
        other => {
            let message = format!("the url begins with {other:?}; https, http and file are known");
            return Err(PackageError::invalid(message));
        }
    }
    let found: String = sink.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if !found.eq_ignore_ascii_case(sha256) {
        let message =
            format!("the archive's sha256 is {found}, not {sha256}: it is not the one that was meant");
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

fn copy(path: &Path, sink: &mut Sink) -> Result<(), PackageError> {
    let mut file = File::open(path)
        .map_err(|error| PackageError::invalid(format!("{} cannot be read: {error}", path.display())))?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => sink.take(&buffer[..len])?,
            Err(error) => return Err(PackageError::io("reading the archive", &error)),
        }
    }
}

//! Reads parts of registered resources, never a whole file at once.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp as Wall};
use laneway_wire::frame::{ErrorCode, ResourceData, ResourceRead};

use super::{RESOURCE_READ_HOLD, ResourceBody, Resources, missing};
use crate::worker::tasks::Rejection;

impl Resources {
    /// A part of a resource. It may read a file, so it must be called on a blocking thread.
    pub(in crate::worker) fn read(&self, asked: &ResourceRead, now: Wall) -> Result<ResourceData, Rejection> {
        let ResourceRead { resource_id, offset, limit } = asked;
        let body = self.hold_for_reader(resource_id, *offset, now)?;
        let (size_bytes, data_base64) = part(&body, *offset, *limit).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return missing(format!("the file of the resource {:?} is gone", resource_id.as_str()));
            }
            let message = format!("the resource {:?} cannot be read: {error}", resource_id.as_str());
            Rejection { code: ErrorCode::Internal, part: "worker.resources", message }
        })?;
        Ok(ResourceData { resource_id: resource_id.clone(), offset: *offset, size_bytes, data_base64 })
    }

    /// The body of a resource, kept for a while. A resource that expires during a download can be read to its
    /// end.
    fn hold_for_reader(&self, resource_id: &str, offset: u64, now: Wall) -> Result<ResourceBody, Rejection> {
        let mut shared = self.lock();
        let Some(resource) = shared.get_mut(resource_id) else {
            return Err(missing(format!("there is no resource {resource_id:?}")));
        };
        let goes_on = offset > 0 && resource.read_until > now;
        if resource.expires_at <= now && !goes_on {
            return Err(missing(format!("the resource {resource_id:?} has expired")));
        }
        let hold = SignedDuration::try_from(RESOURCE_READ_HOLD).unwrap_or(SignedDuration::ZERO);
        resource.read_until = now.checked_add(hold).unwrap_or(Wall::MAX);
        Ok(resource.body.clone())
    }
}

/// The size of the whole resource, and the part as base64.
fn part(body: &ResourceBody, offset: u64, limit: u32) -> io::Result<(u64, String)> {
    match body {
        ResourceBody::Bytes(bytes) => {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let end = start.saturating_add(limit as usize).min(bytes.len());
            Ok((bytes.len() as u64, STANDARD.encode(&bytes[start..end])))
        }
        ResourceBody::File(path) | ResourceBody::FileInFolder(path) => part_of_file(path, offset, limit),
    }
}

fn part_of_file(path: &Path, offset: u64, limit: u32) -> io::Result<(u64, String)> {
    // Opening a pipe would block until it has a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it is not a file"));
    }
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let len = size.saturating_sub(offset).min(u64::from(limit));
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    if len > 0 {
        file.seek(SeekFrom::Start(offset))?;
        file.take(len).read_to_end(&mut bytes)?;
    }
    Ok((size, STANDARD.encode(&bytes)))
}

//! The commit log: every commit is durable here before it is acknowledged, and is written to the tables afterwards.
//!
//! A commit is one record, appended with one write and one `fdatasync`. Records are numbered without gaps, and the checksum of
//! each covers the one before it. The log is a directory of segments. A segment has its full size before it is used, so that
//! an append changes no metadata of the file system. A segment whose commits are all durable in the tables is used again.
//!
//! This module knows nothing of tables and of what a record holds.

mod kept;
mod record;
mod scan;
mod segment;

pub(crate) use kept::{KEPT, KeptSegments};
pub(crate) use record::LogId;
pub(crate) use scan::{Known, Logged, Scan, read_history, scan, segments_of};

use std::io;
use std::path::{Path, PathBuf};

use record::{Head, RECORD_ALIGN};
use segment::Segment;

use crate::{Epoch, StoreError};

/// The directory of the segments, below the data directory.
pub(crate) const DIR: &str = "log";
/// The size of the first segment. Each new one has twice the size of the one before it.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// The size of a segment at most, unless a single record is larger.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// Free bytes of the disk below which no segment is made before it is needed.
const SPARE_FREE_MIN: u64 = 128 << 20;
/// Capacity of the buffer that is kept between records.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// The writing end of the log.
pub(crate) struct CommitLog {
    dir: PathBuf,
    id: LogId,
    current: Option<Segment>,
    /// Segments that are full, oldest first, with the number of the last record of each.
    full: Vec<(PathBuf, u64)>,
    /// A segment that is ready for use.
    spare: Option<Segment>,
    /// The number of the last record.
    last: u64,
    /// Its checksum.
    sum: u32,
    size: u64,
    buffer: Vec<u8>,
    /// Where segments go that are not needed any more. `None`: they are used again.
    kept: Option<KeptSegments>,
    /// The next append breaks off. True: in the middle of its record.
    breaks: Option<bool>,
}

impl CommitLog {
    /// Continues the log after the end that was found: in its last segment, so that a start needs no disk space.
    ///
    /// The last record is written once more. If its sync failed before, it can be read, but may not be on the disk, and another
    /// sync would not write it: the system takes it for written.
    pub fn continue_after(
        dir: &Path,
        id: LogId,
        scan: Scan,
        kept: Option<KeptSegments>,
    ) -> io::Result<CommitLog> {
        segment::remove_spares(dir);
        let resume = |(path, at): (PathBuf, u64)| Segment::resume(path, scan.last_at.min(at)..at);
        let current = scan.tail.map(resume).transpose()?;
        let mut full = scan.segments;
        full.retain(|(path, _)| current.as_ref().is_none_or(|current| current.path() != path));
        Ok(CommitLog {
            dir: dir.to_owned(),
            id,
            current,
            full,
            spare: None,
            last: scan.last,
            sum: scan.sum,
            size: SEGMENT_BYTES_MIN,
            buffer: Vec::new(),
            kept,
            breaks: None,
        })
    }

    /// The number of the last record.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Appends a record and makes it durable. `body` writes its bytes. After [`StoreError::Full`] nothing was written, and the
    /// call may be repeated; after any other error the log must not be used again.
    pub fn append(&mut self, epoch: Epoch, body: impl FnOnce(&mut Vec<u8>)) -> Result<u64, StoreError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.resize(Head::LEN, 0);
        body(&mut buffer);
        let number = self.last + 1;
        let sum = Head::seal(&mut buffer, self.id, number, epoch, self.sum)?;
        let appended = self.write(number, &buffer);
        buffer.shrink_to(BUFFER_BYTES_MAX);
        self.buffer = buffer;
        appended?;
        (self.last, self.sum) = (number, sum);
        Ok(number)
    }

    fn write(&mut self, number: u64, record: &[u8]) -> Result<(), StoreError> {
        let fits = self.current.as_ref().is_some_and(|segment| segment.fits(record.len()));
        if !fits {
            self.begin_segment(number, record.len() as u64)?;
        }
        let segment = self.current.as_mut().expect("a segment was begun");
        let appended = match self.breaks.take() {
            None => segment.append(record),
            Some(torn) => segment.append_in_part(if torn { &record[..Head::LEN] } else { &[] }),
        };
        appended.map_err(|error| self.failed("write", &error))
    }

    /// The next append breaks off, and the log must not be used afterwards.
    pub fn break_next_append(&mut self, torn: bool) {
        self.breaks = Some(torn);
    }

    fn begin_segment(&mut self, number: u64, record_len: u64) -> Result<(), StoreError> {
        let needed = Segment::bytes_for(record_len);
        let spare = match self.spare.take().filter(|spare| spare.size() >= needed) {
            Some(spare) => spare,
            None => self.create_segment(needed).map_err(|error| {
                let why =
                    format!("cannot create a segment of the commit log in {}: {error}", self.dir.display());
                if error.kind() == io::ErrorKind::StorageFull {
                    StoreError::Full(why)
                } else {
                    StoreError::Failed(why)
                }
            })?,
        };
        let begun = spare.begin(&self.dir, self.id, number, self.sum);
        let begun = begun.map_err(|error| self.failed("begin a segment of", &error))?;
        // A crash may have left an empty segment of the same name.
        self.full.retain(|(path, _)| path != begun.path());
        if let Some(full) = self.current.replace(begun) {
            self.full.push((full.path().to_owned(), number - 1));
        }
        self.size = (self.size * 2).min(SEGMENT_BYTES_MAX);
        Ok(())
    }

    /// A new segment. On a full disk it is as small as its first record allows: the space is needed for the tables, too.
    fn create_segment(&self, needed: u64) -> io::Result<Segment> {
        match Segment::create(&self.dir, self.size.max(needed)) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Segment::create(&self.dir, needed),
            created => created,
        }
    }

    /// The size of the segment that should be made ready for the next change of segments; `None`: there is one.
    pub fn spare_wanted(&self) -> Option<(PathBuf, u64)> {
        let half_full = self.current.as_ref().is_some_and(Segment::is_half_full);
        (self.spare.is_none() && half_full).then(|| (self.dir.clone(), self.size))
    }

    /// Takes a segment that is ready.
    pub fn put_spare(&mut self, spare: Segment) {
        match &self.spare {
            None => self.spare = Some(spare),
            Some(_) => spare.remove(),
        }
    }

    /// All records up to this one are durable in the tables: their segments are not needed any more. One of them is kept for
    /// use, if it is large enough.
    pub fn release(&mut self, stored: u64) {
        let needed = self.full.iter().take_while(|(_, last)| *last <= stored).count();
        if let Some(kept) = self.kept.as_ref().filter(|_| needed > 0) {
            self.full.drain(..needed).for_each(|(path, _)| kept.take(&path));
            return kept.prune();
        }
        for (path, _) in self.full.drain(..needed) {
            let size = self.size;
            let reused = self.spare.is_none().then(|| Segment::reuse(&path, &self.dir, size)).flatten();
            match reused {
                Some(spare) => self.spare = Some(spare),
                None => drop(std::fs::remove_file(&path)),
            }
        }
    }

    /// Removes every segment: the tables have everything, and are durable.
    pub fn remove(&mut self) -> io::Result<()> {
        if let Some(kept) = &self.kept {
            let current = self.current.as_ref().map(Segment::path);
            self.full.iter().map(|(path, _)| path.as_path()).chain(current).for_each(|path| kept.take(path));
            kept.prune();
        }
        (self.current, self.spare) = (None, None);
        self.full.clear();
        match std::fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the oldest kept segment. False: there is none.
    pub fn drop_kept(&mut self) -> bool {
        self.kept.as_ref().is_some_and(KeptSegments::drop_oldest)
    }

    fn failed(&self, what: &str, error: &io::Error) -> StoreError {
        StoreError::Failed(format!("cannot {what} the commit log {}: {error}", self.dir.display()))
    }
}

/// Makes a segment of this size in `dir`. On a disk with little space it makes none: others need the space more.
pub(crate) fn make_spare((dir, size): (PathBuf, u64)) -> io::Result<Segment> {
    let stat = rustix::fs::statvfs(&dir)?;
    if stat.f_bavail.saturating_mul(stat.f_frsize) < SPARE_FREE_MIN {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Segment::create(&dir, size)
}

const _: () = assert!(SEGMENT_BYTES_MIN.is_multiple_of(RECORD_ALIGN as u64));

#[cfg(test)]
mod tests;

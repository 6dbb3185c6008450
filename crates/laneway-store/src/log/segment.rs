//! One file of the log.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{LogId, RECORD_ALIGN, SegmentHeader};
use crate::sqlite::files::open_private;

/// Counts segments that are made ready. The loop and the writer of the tables may both make one at the same time.
static READY: AtomicU64 = AtomicU64::new(0);
/// The extension of segments in use. Their names are the numbers of their first records.
pub(super) const EXTENSION: &str = "log";
/// A new segment is written in pieces of this size. The page cache then holds small pieces, and a sync writes back only those
/// that changed.
const PIECE: usize = 4096;

/// Where a segment is until it is begun.
fn spare_path(dir: &Path) -> PathBuf {
    dir.join(format!("spare-{}", READY.fetch_add(1, Ordering::Relaxed)))
}

/// Removes segments that were never begun.
pub(super) fn remove_spares(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("spare-") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The name of the segment that begins with this record.
pub(super) fn name_of(first: u64) -> String {
    format!("{first:020}.{EXTENSION}")
}

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    file: File,
    path: PathBuf,
    size: u64,
    /// Where the next record goes.
    at: u64,
}

impl Segment {
    /// Bytes of a segment that has space for a record of this size.
    pub fn bytes_for(record_len: u64) -> u64 {
        SegmentHeader::LEN as u64 + record_len
    }

    /// Makes a segment of full size. It has no name of its own before it is begun.
    pub fn create(dir: &Path, size: u64) -> io::Result<Segment> {
        crate::sqlite::files::make_private_dir(dir)?;
        let path = spare_path(dir);
        let size = size.next_multiple_of(PIECE as u64);
        if let Err(error) = Segment::fill(&path, size) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Segment::open(path, size)
    }

    fn fill(path: &Path, size: u64) -> io::Result<()> {
        let file = open_private(path)?;
        file.set_len(0)?;
        let zeros = [0; PIECE];
        for at in (0..size).step_by(PIECE) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()
    }

    fn open(path: PathBuf, size: u64) -> io::Result<Segment> {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Segment { file, path, size, at: 0 })
    }

    /// Opens a segment whose last record is in this range. It is written again, and the next one goes behind it.
    pub fn resume(path: PathBuf, last: Range<u64>) -> io::Result<Segment> {
        let size = std::fs::metadata(&path)?.len();
        let segment = Segment { at: last.end, ..Segment::open(path, size)? };
        let len = usize::try_from(last.end - last.start).map_err(io::Error::other)?;
        if len > 0 {
            let mut record = vec![0; len];
            segment.file.read_exact_at(&mut record, last.start)?;
            segment.file.write_all_at(&record, last.start)?;
            segment.file.sync_data()?;
        }
        Ok(segment)
    }

    /// Makes a spare of a segment that is not needed any more; `None`: it is too small, or cannot be used.
    pub fn reuse(path: &Path, dir: &Path, size_min: u64) -> Option<Segment> {
        let size = std::fs::metadata(path).ok()?.len();
        let spare = spare_path(dir);
        if size < size_min || std::fs::rename(path, &spare).is_err() {
            return None;
        }
        Segment::open(spare, size).ok()
    }

    /// Begins to use the segment: its first record is `first`. Its header and its name are durable before the first record is
    /// written, so that a record without them is damage.
    pub fn begin(mut self, dir: &Path, id: LogId, first: u64, sum_before: u32) -> io::Result<Segment> {
        let path = dir.join(name_of(first));
        let header = SegmentHeader { id, first, sum_before };
        self.file.write_all_at(&header.encode(), 0)?;
        self.file.sync_data()?;
        std::fs::rename(&self.path, &path)?;
        File::open(dir)?.sync_all()?;
        (self.path, self.at) = (path, SegmentHeader::LEN as u64);
        Ok(self)
    }

    /// Has it space for a record of this size?
    pub fn fits(&self, record_len: usize) -> bool {
        self.at + record_len as u64 <= self.size
    }

    /// Appends a record and makes it durable.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        debug_assert!(record.len().is_multiple_of(RECORD_ALIGN));
        self.file.write_all_at(record, self.at)?;
        self.file.sync_data()?;
        self.at += record.len() as u64;
        Ok(())
    }

    /// Appends a part of a record and fails, as if the process ended then.
    pub fn append_in_part(&mut self, part: &[u8]) -> io::Result<()> {
        self.file.write_all_at(part, self.at)?;
        Err(io::Error::other("the append broke off"))
    }

    /// Is more than half of it used?
    pub fn is_half_full(&self) -> bool {
        self.at * 2 > self.size
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where the next record goes.
    #[cfg(test)]
    pub fn end(&self) -> u64 {
        self.at
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it: it is not needed.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

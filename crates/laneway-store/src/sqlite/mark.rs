//! The file `laneway.db-mark`: what was last committed, beside the database.
//!
//! SQLite drops frames of its log that are cut off or damaged, and reads a database without its log, both without an
//! error: commits that were acknowledged would be gone in silence. The mark is written after every commit that is
//! durable, without an fsync of its own, so it never names more than was durable. After a kill it is exact; after a
//! power cut it may be older, but is of the same generation of the log, because a new generation is synced.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::Numbers;
use super::files;

const MAGIC: &[u8; 8] = b"LNWYMRK1";
/// Two copies, written in turn, each in a sector of its own: one of them is always complete.
const SLOTS: u64 = 2;
const SLOT: u64 = 512;
/// Bytes of one copy.
const LEN: usize = 120;
/// Where the header of the log has its salts, which change with every generation.
const SALTS_AT: u64 = 16;

/// What was last committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// Counts the writes of the mark.
    pub count: u64,
    /// The last event that was committed.
    pub last_event: u64,
    /// The hash of its batch.
    pub hash: [u8; 32],
    /// Commits since then, all without events.
    pub quiet: u64,
    /// The generation of the log; zeros while it is empty.
    pub salts: [u8; 8],
    /// How many frames the log had.
    pub frames: u64,
    /// The checkpoint that everything before this generation of the log is in.
    pub base: u64,
    /// The last checkpoint that moved everything.
    pub done: u64,
    /// The inode of the database: a copy has another one.
    pub db_inode: u64,
    /// The inode of the mark itself.
    pub mark_inode: u64,
}

impl Mark {
    /// Reads the mark of a directory; `None`: there is none, or it cannot be read.
    pub fn read(dir: &Path) -> Option<Mark> {
        let file = File::open(dir.join(files::MARK)).ok()?;
        let slots = (0..SLOTS).filter_map(|slot| {
            let mut bytes = [0; LEN];
            file.read_exact_at(&mut bytes, slot * SLOT).ok()?;
            Mark::decode(&bytes)
        });
        slots.max_by_key(|mark| mark.count)
    }

    fn encode(&self) -> [u8; LEN] {
        let Mark { count, last_event, hash, quiet, salts, frames, base, done, db_inode, mark_inode } = self;
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend_from_slice(MAGIC);
        for number in [count, last_event, quiet, frames, base, done, db_inode, mark_inode] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(salts);
        bytes.extend_from_slice(hash);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes.try_into().expect("the parts of a mark have 120 bytes")
    }

    fn decode(bytes: &[u8; LEN]) -> Option<Mark> {
        let (body, sum) = bytes.split_at(LEN - 4);
        if &bytes[..8] != MAGIC || sum != crc32fast::hash(body).to_be_bytes() {
            return None;
        }
        let number = |at: usize| {
            let part: [u8; 8] = bytes[8 + at * 8..16 + at * 8].try_into().ok()?;
            Some(u64::from_be_bytes(part))
        };
        Some(Mark {
            count: number(0)?,
            last_event: number(1)?,
            quiet: number(2)?,
            frames: number(3)?,
            base: number(4)?,
            done: number(5)?,
            db_inode: number(6)?,
            mark_inode: number(7)?,
            salts: bytes[72..80].try_into().ok()?,
            hash: bytes[80..112].try_into().ok()?,
        })
    }
}

/// The salts of the log of a directory: which generation it is. `None`: there is no log file; zeros: it is empty.
pub(super) fn salts_of(dir: &Path) -> Option<[u8; 8]> {
    let file = File::open(dir.join(files::WAL)).ok()?;
    Some(read_salts(&file).unwrap_or_default())
}

fn read_salts(log: &File) -> io::Result<[u8; 8]> {
    let mut salts = [0; 8];
    log.read_exact_at(&mut salts, SALTS_AT)?;
    Ok(salts)
}

/// Stores the mark of an open store.
pub(super) struct Marker {
    file: File,
    /// SQLite holds no locks on the log, so that a handle of our own does no harm.
    log: Option<File>,
    log_path: PathBuf,
    mark: Mark,
}

impl Marker {
    /// Takes the mark over, or makes one, and makes it durable.
    pub fn begin(dir: &Path, before: Option<Mark>) -> io::Result<Marker> {
        let path = dir.join(files::MARK);
        let file = files::open_private(&path)?;
        file.set_len(SLOTS * SLOT)?;
        let mark = Mark {
            db_inode: files::inode(&dir.join(files::DB)),
            mark_inode: files::inode(&path),
            ..before.unwrap_or_default()
        };
        Ok(Marker { file, log: None, log_path: dir.join(files::WAL), mark })
    }

    /// Notes what the store holds when it is opened or closed, and makes it durable. `base` and `done` are those of
    /// [`Mark`]; `None`: they stay.
    pub fn settle(&mut self, numbers: &Numbers, log: LogEnd, moved: Option<(u64, u64)>) -> io::Result<()> {
        if let Some((base, done)) = moved {
            (self.mark.base, self.mark.done) = (base, done);
        }
        if self.mark.last_event != numbers.last_event || log.frames == 0 {
            self.mark.quiet = 0;
        }
        (self.mark.last_event, self.mark.hash) = (numbers.last_event, numbers.hash);
        (self.mark.salts, self.mark.frames) = (log.salts, log.frames);
        self.write()?;
        self.file.sync_all()
    }

    /// Notes a commit that is durable. An error is not the commit's: the mark then names less than there is, which is
    /// always allowed.
    pub fn committed(&mut self, numbers: &Numbers, frames: u64, checkpoints: u64) {
        if self.mark.last_event == numbers.last_event {
            self.mark.quiet += 1;
        } else {
            self.mark.quiet = 0;
        }
        (self.mark.last_event, self.mark.hash, self.mark.frames) = (numbers.last_event, numbers.hash, frames);
        let salts = self.current_salts();
        let is_new = salts != self.mark.salts;
        if is_new {
            // The log begins anew only when all of it is in the database, the latest checkpoint's number included.
            (self.mark.salts, self.mark.base, self.mark.done) = (salts, checkpoints, checkpoints);
        }
        let written = self.write();
        if is_new && written.is_ok() {
            drop(self.file.sync_data());
        }
    }

    /// Notes that a checkpoint moved everything.
    pub fn moved(&mut self, checkpoints: u64) {
        (self.mark.done, self.mark.quiet) = (checkpoints, 0);
        drop(self.write());
    }

    fn current_salts(&mut self) -> [u8; 8] {
        if self.log.is_none() {
            self.log = File::open(&self.log_path).ok();
        }
        self.log.as_ref().and_then(|log| read_salts(log).ok()).unwrap_or_default()
    }

    fn write(&mut self) -> io::Result<()> {
        self.mark.count += 1;
        self.file.write_all_at(&self.mark.encode(), self.mark.count % SLOTS * SLOT)
    }
}

/// How far the log is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogEnd {
    /// Its generation.
    pub salts: [u8; 8],
    /// How many frames it has.
    pub frames: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_one_damaged_copy_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Mark::read(dir.path()), None);
        let mut marker = Marker::begin(dir.path(), None).unwrap();
        let numbers = Numbers { last_event: 7, hash: [3; 32], ..Numbers::default() };
        marker.settle(&numbers, LogEnd { salts: [1; 8], frames: 5 }, Some((2, 2))).unwrap();
        let first = Mark::read(dir.path()).unwrap();
        assert_eq!((first.last_event, first.frames, first.base, first.done), (7, 5, 2, 2));
        marker.committed(&Numbers { last_event: 9, ..numbers }, 8, 2);
        let second = Mark::read(dir.path()).unwrap();
        assert_eq!((second.last_event, second.quiet, second.frames), (9, 0, 8));
        // The newer copy is damaged: the older one holds.
        let at = second.count % SLOTS * SLOT + 20;
        marker.file.write_all_at(&[0xff], at).unwrap();
        assert_eq!(Mark::read(dir.path()), Some(first));
    }
}

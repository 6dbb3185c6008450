//! The file `laneway.db-mark`: what was last committed, beside the database.
//!
//! SQLite drops frames of its write-ahead log that are cut off or damaged, and reads a database without that log, both without
//! an error. The commit log has what is lost so, unless a checkpoint was under way. The mark says whether one was, and which
//! commit was acknowledged last. It is written after every commit that is durable, without an fsync of its own, so it never
//! names more than was durable. After a kill it is exact; after a power cut it may be older. What it says about checkpoints
//! is synced.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files;

const MAGIC: &[u8; 8] = b"LNWYMRK2";
/// Two copies, written in turn, each in a sector of its own: one of them is always complete.
const SLOTS: u64 = 2;
const SLOT: u64 = 512;
/// Bytes of one copy.
const LEN: usize = 96;
/// Where the header of the write-ahead log has its salts, which change with every generation.
const SALTS_AT: u64 = 16;

/// What was last committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// Counts the writes of the mark.
    pub count: u64,
    /// The last commit that was acknowledged.
    pub commit: u64,
    /// The last checkpoint that was begun.
    pub begun: u64,
    /// The last checkpoint that moved everything into the database.
    pub done: u64,
    /// How many frames the write-ahead log had when the checkpoint `begun` was begun.
    pub frames: u64,
    /// The generation of the write-ahead log at that time; zeros while it was empty.
    pub salts: [u8; 8],
    /// The generation of the write-ahead log at the last transaction.
    pub wal: [u8; 8],
    /// How many checkpoints were begun when that generation began: all of them are in the database.
    pub base: u64,
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

    /// Was a checkpoint under way? Then the database is complete only together with its write-ahead log.
    pub fn is_moving(&self) -> bool {
        self.begun != self.done
    }

    fn encode(&self) -> [u8; LEN] {
        let Mark { count, commit, begun, done, frames, salts, wal, base, db_inode, mark_inode } = self;
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend_from_slice(MAGIC);
        for number in [count, commit, begun, done, frames, base, db_inode, mark_inode] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(salts);
        bytes.extend_from_slice(wal);
        bytes.resize(LEN - 4, 0);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes.try_into().expect("the parts of a mark have 96 bytes")
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
            commit: number(1)?,
            begun: number(2)?,
            done: number(3)?,
            frames: number(4)?,
            base: number(5)?,
            db_inode: number(6)?,
            mark_inode: number(7)?,
            salts: bytes[72..80].try_into().ok()?,
            wal: bytes[80..88].try_into().ok()?,
        })
    }
}

/// The salts of the write-ahead log of a directory: which generation it is. `None`: there is no file; zeros: it is empty.
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
    /// SQLite holds no locks on the write-ahead log, so that a handle of our own does no harm.
    wal: PathBuf,
    mark: Mark,
}

impl Marker {
    /// Takes the mark over, or makes one.
    pub fn begin(dir: &Path, before: Option<Mark>) -> io::Result<Marker> {
        let path = dir.join(files::MARK);
        let file = files::open_private(&path)?;
        file.set_len(SLOTS * SLOT)?;
        let mark = Mark {
            db_inode: files::inode(&dir.join(files::DB)),
            mark_inode: files::inode(&path),
            ..before.unwrap_or_default()
        };
        Ok(Marker { file, wal: dir.join(files::WAL), mark })
    }

    /// Notes what the store holds when it is opened or closed, and makes that durable. `moved`: everything is in the database
    /// without its write-ahead log.
    pub fn settle(&mut self, commit: u64, moved: bool) -> io::Result<()> {
        self.mark.commit = commit;
        if moved {
            self.mark.done = self.mark.begun;
        }
        self.write()?;
        self.file.sync_all()
    }

    /// Notes a commit that is durable. An error is not the commit's: the mark then names less than there is, which is
    /// always allowed.
    pub fn committed(&mut self, commit: u64) {
        self.mark.commit = commit;
        drop(self.write());
    }

    /// Notes the generation of the write-ahead log after a transaction. `checkpoints`: how many were begun.
    pub fn transacted(&mut self, checkpoints: u64) {
        let wal = self.current_salts();
        if wal != self.mark.wal {
            (self.mark.wal, self.mark.base) = (wal, checkpoints);
            drop(self.write());
        }
    }

    /// A checkpoint begins: until it is done, the database needs this generation of the write-ahead log, with this many frames.
    pub fn begins(&mut self, frames: u64) -> io::Result<()> {
        self.mark.begun += 1;
        (self.mark.frames, self.mark.salts) = (frames, self.current_salts());
        self.write()?;
        self.file.sync_data()
    }

    /// The checkpoint moved everything.
    pub fn moved(&mut self) -> io::Result<()> {
        self.mark.done = self.mark.begun;
        self.write()?;
        self.file.sync_data()
    }

    fn current_salts(&self) -> [u8; 8] {
        File::open(&self.wal).ok().and_then(|log| read_salts(&log).ok()).unwrap_or_default()
    }

    fn write(&mut self) -> io::Result<()> {
        self.mark.count += 1;
        self.file.write_all_at(&self.mark.encode(), self.mark.count % SLOTS * SLOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_copy_that_is_complete_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Mark::read(dir.path()), None);
        let mut marker = Marker::begin(dir.path(), None).unwrap();
        marker.settle(3, true).unwrap();
        marker.committed(4);
        let read = Mark::read(dir.path()).unwrap();
        assert_eq!((read.commit, read.begun, read.done, read.is_moving()), (4, 0, 0, false));
        marker.begins(77).unwrap();
        let read = Mark::read(dir.path()).unwrap();
        assert_eq!((read.commit, read.frames, read.is_moving()), (4, 77, true));
        // The last write was torn: the one before it counts.
        let newest = read.count % SLOTS * SLOT;
        marker.file.write_all_at(&[0xff; 10], newest + 20).unwrap();
        assert_eq!(Mark::read(dir.path()).unwrap().commit, 4);
        assert!(!Mark::read(dir.path()).unwrap().is_moving());
        marker.file.write_all_at(&[0xff; 600], 0).unwrap();
        assert_eq!(Mark::read(dir.path()), None);
    }
}

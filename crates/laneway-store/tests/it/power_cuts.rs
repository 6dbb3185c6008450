//! Power cuts: what was written since the last sync may be on the disk in any part. Nothing that was acknowledged is lost.
//!
//! The files are copied after every commit. An image is made of two such copies: what was synced is as in the first one. Every
//! sector of the commit log that the next commit wrote is there, missing or torn; every page of SQLite's write-ahead log, which
//! is not synced, may be of any earlier time. `LANEWAY_POWER_CUTS` sets how many images are made (200 by default), and
//! `LANEWAY_POWER_SEED` replays them. Checkpoints are not cut here: SQLite syncs before and after them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use laneway_store::suite::driver::{Driver, load};
use laneway_store::{SqliteOptions, SqliteStore};

use super::SqliteFixture;
use super::killed::Killed;

const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// The files of a data directory, by their paths below it.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Copies by another process: closing SQLite's files in this one would drop its locks.
fn snapshot(dir: &Path) -> Files {
    let copy = tempfile::tempdir().unwrap();
    assert!(Command::new("cp").arg("-r").arg(dir.join(".")).arg(copy.path()).status().unwrap().success());
    let mut files = Files::new();
    for folder in ["", "log"] {
        for entry in std::fs::read_dir(copy.path().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            // SQLite makes the index of its log anew, and segments that are not begun yet hold nothing.
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_file() && !name.ends_with("-shm") && !name.starts_with("spare") && name != "lock" {
                files.insert(Path::new(folder).join(name), std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Writes an image over the files that are there. They keep their inodes, as after a power cut.
fn put(dir: &Path, image: &Files) {
    for entry in std::fs::read_dir(dir.join("log")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for name in ["laneway.db-wal", "laneway.db-shm"] {
        let _ = std::fs::remove_file(dir.join(name));
    }
    for (path, bytes) in image {
        std::fs::write(dir.join(path), bytes).unwrap();
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// `old` with a random part of what `new` has in its place, in pieces; a piece may be torn in the middle.
fn mixed(old: &[u8], new: &[u8], piece: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = old.to_vec();
    bytes.resize(old.len().max(if random.below(2) == 0 { new.len() } else { old.len() }), 0);
    for at in (0..bytes.len().min(new.len())).step_by(piece) {
        let end = (at + piece).min(bytes.len()).min(new.len());
        let end = match random.below(8) {
            0..=3 => continue,
            4 => at + random.below(end - at + 1),
            _ => end,
        };
        bytes[at..end].copy_from_slice(&new[at..end]);
    }
    bytes
}

/// What a power cut may leave that comes while the next commit is written: `before` is synced, `next` is not.
fn image(earlier: &Files, before: &Files, next: &Files, random: &mut Random) -> Files {
    let mut image = Files::new();
    for (path, new) in next.iter().filter(|(path, _)| path.starts_with("log")) {
        // A segment has its full size and its header before it gets its name.
        let begun = || [&new[..SECTOR], &vec![0; new.len() - SECTOR]].concat();
        let old = before.get(path).cloned().unwrap_or_else(begun);
        image.insert(path.clone(), mixed(&old, new, SECTOR, random));
    }
    // The tables and the mark have nothing of a commit that is not durable in the log.
    for (path, new) in before.iter().filter(|(path, _)| !path.starts_with("log")) {
        let old = earlier.get(path).cloned().unwrap_or_default();
        let bytes = if path.ends_with("laneway.db-wal") {
            mixed(&old, new, PAGE, random)
        } else if path.ends_with("laneway.db-mark") {
            // Two sectors, written in turn; each is whole.
            let choice = random.below(4);
            let slot = |at: usize, new: &[u8]| {
                let whole = if choice >> at & 1 == 0 { &old } else { new };
                whole[at * SECTOR..(at + 1) * SECTOR].to_vec()
            };
            [slot(0, new), slot(1, new)].concat()
        } else {
            new.clone()
        };
        image.insert(path.clone(), bytes);
    }
    image
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_power_cut_loses_an_acknowledged_commit() {
    let images = number("LANEWAY_POWER_CUTS").unwrap_or(200);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("LANEWAY_POWER_SEED").unwrap_or(clock.as_nanos() as u64 | 1);
    println!("{images} power cuts, LANEWAY_POWER_SEED={seed}");
    let mut random = Random(seed);
    let fixture = SqliteFixture::new();
    let mut driver = Driver::new(&Killed(&fixture));
    let mut snapshots = vec![(snapshot(&fixture.path()), 0)];
    for commit in 1..=24 {
        for _ in 0..1 + random.below(8) {
            let row = driver.draft();
            driver.submit(row, &vec![commit as u8; random.below(3_000)]);
        }
        driver.commit();
        if random.below(2) == 0 {
            // The tables catch up when something of them is read.
            driver.reader.first_event().unwrap();
        }
        snapshots.push((snapshot(&fixture.path()), driver.jobs.len()));
    }
    drop(driver);
    for cut in 0..images {
        let at = random.below(snapshots.len() - 1);
        let earlier = random.below(at + 1);
        let ((before, acked), (next, under_way)) = (&snapshots[at], &snapshots[at + 1]);
        put(&fixture.path(), &image(&snapshots[earlier].0, before, next, &mut random));
        let opened = SqliteStore::open(&fixture.path(), SqliteOptions::default());
        let mut store =
            opened.unwrap_or_else(|error| panic!("seed {seed}, cut {cut} at commit {at}: {error}"));
        let found = load(&mut store).jobs.len();
        assert!(
            found == *acked || found == *under_way,
            "seed {seed}, cut {cut} at commit {at}: {found} jobs, and {acked} or {under_way} must be there"
        );
        store.abandon();
    }
}

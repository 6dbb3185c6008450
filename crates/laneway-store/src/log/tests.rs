//! Tests of the log on its own: torn ends, damage, segments.

use std::os::unix::fs::FileExt;

use super::record::SegmentHeader;
use super::*;

const ID: LogId = LogId([7; 16]);

fn known(stored: u64, complete: u64) -> Known {
    Known { id: ID, stored, complete, accept_loss: false }
}

/// The numbers and bodies of records.
type Records = Vec<(u64, Vec<u8>)>;

/// All records after `stored`.
fn read(dir: &Path, known: Known) -> Result<(Scan, Records), StoreError> {
    let mut found = Vec::new();
    let end = scan(dir, known, &mut |logged| {
        found.push((logged.number, logged.body.to_vec()));
        Ok(())
    })?;
    Ok((end, found))
}

fn log_in(dir: &Path) -> CommitLog {
    let (end, _) = read(dir, known(0, 0)).unwrap();
    CommitLog::continue_after(dir, ID, end, None).unwrap()
}

fn append(log: &mut CommitLog, body: &[u8]) -> u64 {
    log.append(Epoch(3), |out| out.extend_from_slice(body)).unwrap()
}

fn body(number: u64) -> Vec<u8> {
    vec![number as u8; (number as usize * 97) % 2_000]
}

fn filled(count: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut log = log_in(dir.path());
    for number in 1..=count {
        assert_eq!(append(&mut log, &body(number)), number);
    }
    dir
}

#[test]
fn records_come_back_in_order() {
    let dir = filled(900);
    assert!(segments_of(dir.path()).unwrap().len() > 1, "several segments");
    let (end, found) = read(dir.path(), known(0, 900)).unwrap();
    assert_eq!((end.last, end.records), (900, 900));
    assert!(found.iter().all(|(number, bytes)| *bytes == body(*number)));
    // Those that the tables have are not read again.
    let (_, found) = read(dir.path(), known(890, 900)).unwrap();
    assert_eq!(found.len(), 10);
}

#[test]
fn an_empty_log_has_no_end() {
    let dir = tempfile::tempdir().unwrap();
    let (end, found) = read(&dir.path().join("missing"), known(0, 0)).unwrap();
    assert_eq!((end.last, found.len()), (0, 0));
    let error = read(&dir.path().join("missing"), known(5, 0)).map(|(end, _)| end.last);
    // Without a segment, the store itself checks whether one must be there.
    assert_eq!(error.unwrap(), 5);
}

/// Every way in which the write of the last record can be torn: the log ends before it.
#[test]
fn a_torn_end_is_cut() {
    for cut in [0, 1, 31, 32, 40, 511, 512, 600, 1_000, 1_023] {
        let dir = filled(3);
        let mut log = log_in(dir.path());
        append(&mut log, &[9; 900]);
        let segment = segments_of(dir.path()).unwrap().pop().unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&segment).unwrap();
        let at = log.current.as_ref().unwrap().end() - 1_024;
        file.write_all_at(&vec![0; 1_024 - cut], at + cut as u64).unwrap();
        drop(log);
        let (end, found) = read(dir.path(), known(0, 3)).unwrap();
        let whole = cut >= 32 + 900;
        assert_eq!(end.last, if whole { 4 } else { 3 }, "cut at {cut}");
        assert_eq!(found.len() as u64, end.last);
        // The log goes on, and the torn record is never read.
        let mut log = CommitLog::continue_after(dir.path(), ID, end, None).unwrap();
        let number = append(&mut log, b"next");
        let (end, found) = read(dir.path(), known(0, number)).unwrap();
        assert_eq!((end.last, found.last().unwrap().1.as_slice()), (number, &b"next"[..]));
        // What was acknowledged must not be cut.
        if !whole {
            let dir = filled(3);
            let mut log = log_in(dir.path());
            append(&mut log, &[9; 900]);
            let segment = segments_of(dir.path()).unwrap().pop().unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&segment).unwrap();
            file.write_all_at(&vec![0; 1_024 - cut], at + cut as u64).unwrap();
            let error = read(dir.path(), known(0, 4)).unwrap_err();
            assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
        }
    }
}

/// Every byte of a short log, flipped: damage, or the same records.
#[test]
fn a_flipped_bit_is_damage() {
    let dir = filled(4);
    let segment = segments_of(dir.path()).unwrap().pop().unwrap();
    let bytes = std::fs::read(&segment).unwrap();
    let (_, expected) = read(dir.path(), known(0, 4)).unwrap();
    let used = SegmentHeader::LEN + 4 * 512 + 512;
    for at in 0..used {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&segment, &flipped).unwrap();
        match read(dir.path(), known(0, 4)) {
            Ok((_, found)) => assert_eq!(found, expected, "byte {at}"),
            Err(StoreError::Damaged(why)) => assert!(why.contains("offset"), "{why}"),
            Err(other) => panic!("byte {at}: {other:?}"),
        }
    }
}

#[test]
fn gaps_and_foreign_logs_are_rejected() {
    let damaged = |dir: &Path, known: Known| match read(dir, known) {
        Err(StoreError::Damaged(why)) => why,
        other => panic!("{other:?}"),
    };
    let dir = filled(900);
    let paths = segments_of(dir.path()).unwrap();
    // A segment in the middle is missing.
    std::fs::remove_file(&paths[1]).unwrap();
    assert!(damaged(dir.path(), known(0, 900)).contains("does not continue"));
    // The first ones are missing, and the tables do not have them.
    std::fs::remove_file(&paths[0]).unwrap();
    assert!(damaged(dir.path(), known(3, 900)).contains("are missing"));
    // The last one is missing: the mark, or the tables, know better.
    let dir = filled(900);
    std::fs::remove_file(segments_of(dir.path()).unwrap().pop().unwrap()).unwrap();
    damaged(dir.path(), known(0, 900));
    damaged(dir.path(), known(900, 0));
    // A log of another store.
    let dir = filled(3);
    assert!(damaged(dir.path(), Known { id: LogId([8; 16]), ..known(0, 3) }).contains("another store"));
}

#[test]
fn accepted_damage_ends_the_log() {
    let dir = filled(900);
    let paths = segments_of(dir.path()).unwrap();
    let mut bytes = std::fs::read(&paths[0]).unwrap();
    bytes[SegmentHeader::LEN + 40] ^= 1;
    std::fs::write(&paths[0], bytes).unwrap();
    let (end, found) = read(dir.path(), Known { accept_loss: true, ..known(0, 900) }).unwrap();
    assert!(found.is_empty());
    assert_eq!((end.last, end.segments.len()), (0, paths.len()));
}

#[test]
fn segments_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = log_in(dir.path());
    for number in 1..=1_200 {
        append(&mut log, &[number as u8; 12_000]);
        if number % 50 == 0 {
            log.release(number - 10);
        }
        if let Some(spare) = log.spare_wanted() {
            log.put_spare(make_spare(spare).unwrap());
        }
    }
    let bytes: u64 = segments_of(dir.path()).unwrap().iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(bytes <= 3 * SEGMENT_BYTES_MAX, "{bytes} bytes are held");
    let (end, found) = read(dir.path(), known(1_190, 1_200)).unwrap();
    assert_eq!((end.last, found.len()), (1_200, 10));
    // A segment that was used before holds older records behind its end; they are not taken for damage.
    log.release(1_200);
    assert!(segments_of(dir.path()).unwrap().len() <= 2);
}

#[test]
fn a_large_record_has_a_segment_of_its_own() {
    let dir = filled(3);
    let mut log = log_in(dir.path());
    append(&mut log, &vec![1; 40 << 20]);
    append(&mut log, b"small");
    let (end, found) = read(dir.path(), known(3, 5)).unwrap();
    assert_eq!((end.last, found[0].1.len()), (5, 40 << 20));
}

#[test]
fn a_segment_that_was_begun_and_never_written_is_empty() {
    let dir = filled(3);
    let segment = segments_of(dir.path()).unwrap().pop().unwrap();
    let bytes = std::fs::read(&segment).unwrap();
    // A crash after the rename: the file has the header and the records of its earlier use, or nothing.
    for content in [bytes, vec![0; 4096]] {
        let empty = dir.path().join("00000000000000000004.log");
        std::fs::write(&empty, content).unwrap();
        let (end, found) = read(dir.path(), known(0, 3)).unwrap();
        assert_eq!((end.last, found.len()), (3, 3));
        // It is replaced, and is not taken for one that is full.
        let mut log = CommitLog::continue_after(dir.path(), ID, end, None).unwrap();
        assert_eq!(append(&mut log, b"x"), 4);
        assert_eq!(read(dir.path(), known(3, 4)).unwrap().0.last, 4);
        std::fs::remove_file(&empty).unwrap();
    }
}

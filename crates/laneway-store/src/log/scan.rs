//! Reads the log: after a start, for a check, and for a backup.
//!
//! Only the record that was being written when the server died may be incomplete: every record is durable before the next
//! one is begun. Anything else that does not check out is damage, because a record after it, the mark beside the database, or
//! the tables show that it was complete once.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::record::{Head, LogId, RECORD_ALIGN, SegmentHeader};
use super::segment::{EXTENSION, name_of};
use crate::StoreError;

/// What else is known about the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The log's id.
    pub id: LogId,
    /// Records up to this one are in the tables.
    pub stored: u64,
    /// This record was complete. It may be older than `stored`.
    pub complete: u64,
    /// True: what follows a damaged record is dropped.
    pub accept_loss: bool,
}

/// A record, as it was appended.
#[derive(Debug)]
pub(crate) struct Logged<'a> {
    /// Its number.
    pub number: u64,
    /// Its body.
    pub body: &'a [u8],
}

/// The end of a log.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The number of its last record.
    pub last: u64,
    /// The checksum of that.
    pub sum: u32,
    /// Its segments, oldest first, with the number of the last record of each.
    pub segments: Vec<(PathBuf, u64)>,
    /// The end of the last segment, where the log goes on.
    pub tail: Option<(PathBuf, u64)>,
    /// Where its last record begins, in the last segment that has one.
    pub last_at: u64,
    /// How many records were read.
    pub records: u64,
}

/// The segments of the log in `dir`, oldest first.
pub(crate) fn segments_of(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::Unusable(format!("cannot read {}: {error}", dir.display()))),
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .collect();
    paths.sort_unstable();
    Ok(paths)
}

/// Reads every record after `known.stored`, in order, and checks all of them.
pub(crate) fn scan(
    dir: &Path,
    known: Known,
    visit: &mut dyn FnMut(Logged<'_>) -> Result<(), StoreError>,
) -> Result<Scan, StoreError> {
    let paths = segments_of(dir)?;
    let mut end: Option<Scan> = None;
    for (at, path) in paths.iter().enumerate() {
        let read = read_segment(path, known, &mut end, at + 1 == paths.len(), visit);
        match read {
            Err(StoreError::Damaged(why)) if known.accept_loss => {
                tracing::warn!(%why, "damage accepted: the rest of the commit log is dropped");
                break;
            }
            other => other?,
        }
    }
    let mut end = end.unwrap_or(Scan { last: known.stored, ..Scan::default() });
    // Segments behind accepted damage are removed with the others.
    for path in paths {
        if !end.segments.iter().any(|(known, _)| *known == path) {
            let last = end.last;
            end.segments.push((path, last));
        }
    }
    if known.accept_loss {
        end.last = end.last.max(known.stored);
        return Ok(end);
    }
    if end.last < known.stored {
        return Err(StoreError::Damaged(format!(
            "the commit log {} ends with commit {}, and the tables have commit {}: it is of another time, or its end is missing",
            dir.display(),
            end.last,
            known.stored
        )));
    }
    if end.last < known.complete {
        return Err(StoreError::Damaged(format!(
            "the commit log {} ends with commit {}, and commit {} was acknowledged: its end is missing or damaged",
            dir.display(),
            end.last,
            known.complete
        )));
    }
    Ok(end)
}

/// Reads the records after `known.stored` of a log that was kept, in order: kept segments of the data directory, then those
/// in use. After a graceful stop, the chain of checksums begins anew. Where records are missing or damaged, nothing after them
/// is read, and the error says which.
pub(crate) fn read_history(
    data_dir: &Path,
    known: Known,
    visit: &mut dyn FnMut(Logged<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut paths = segments_of(&data_dir.join(super::KEPT))?;
    paths.extend(segments_of(&data_dir.join(super::DIR))?);
    // Segments before the one with the first record that is wanted are not needed.
    let next = known.stored + 1;
    let needed =
        paths.iter().rposition(|path| first_of(path).is_some_and(|first| first <= next)).unwrap_or(0);
    let mut end: Option<Scan> = None;
    for path in &paths[needed.min(paths.len())..] {
        let bytes = read_file(path)?;
        let damaged = |why: String| StoreError::Damaged(format!("the commit log {}: {why}", path.display()));
        let last = end.as_ref().map_or(known.stored, |end| end.last);
        let header = SegmentHeader::decode(&bytes).filter(|header| path.ends_with(name_of(header.first)));
        let Some(header) = header else {
            if has_record_after(last, known.id, &bytes, 0) {
                return Err(damaged("the header is not what was written".into()));
            }
            continue;
        };
        if header.id != known.id {
            return Err(damaged("the log is not that of the store that the backup was made of".into()));
        }
        if header.first > last + 1 {
            let missing = format!("commits {} to {} are missing", last + 1, header.first - 1);
            return Err(damaged(format!(
                "{missing}: take a later backup, or keep the log longer (log.keep)"
            )));
        }
        let before = Scan { last: header.first - 1, sum: header.sum_before, ..Scan::default() };
        let goes_on = |end: &Scan| header.first == end.last + 1 && [0, end.sum].contains(&header.sum_before);
        if end.as_ref().is_some_and(|end| !goes_on(end)) {
            return Err(damaged(format!(
                "the segment does not continue the one before it at commit {}",
                last + 1
            )));
        }
        let scan = end.insert(before);
        let at = read_records(&bytes, known, scan, visit)?;
        if has_record_after(scan.last + 1, known.id, &bytes, at) {
            return Err(damaged(format!(
                "commit {} is not what was written, and others follow it",
                scan.last + 1
            )));
        }
    }
    match end {
        Some(end) if end.last >= known.stored => Ok(()),
        _ => Err(StoreError::Unusable(format!(
            "{} has no commit log that goes on after the backup; log.keep keeps it",
            data_dir.display()
        ))),
    }
}

/// The number of the first record, from the name of a segment.
fn first_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}

fn read_segment(
    path: &Path,
    known: Known,
    end: &mut Option<Scan>,
    is_last: bool,
    visit: &mut dyn FnMut(Logged<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let bytes = read_file(path)?;
    let damaged = |offset: usize, why: String| {
        StoreError::Damaged(format!("the commit log {}, offset {offset}: {why}", path.display()))
    };
    let last = end.as_ref().map_or(known.stored, |end| end.last);
    // The header is durable before the first record. A power cut before that may leave an old one, or none.
    let header = SegmentHeader::decode(&bytes).filter(|header| path.ends_with(name_of(header.first)));
    let Some(header) = header else {
        if is_last && !has_record_after(last, known.id, &bytes, 0) {
            let scan = end.get_or_insert(Scan { last, ..Scan::default() });
            scan.segments.push((path.to_owned(), last));
            return Ok(());
        }
        return Err(damaged(0, "the header is not what was written".into()));
    };
    if header.id != known.id {
        return Err(damaged(0, "the log is of another store".into()));
    }
    let scan = match end {
        None if header.first > known.stored + 1 => {
            return Err(damaged(
                0,
                format!(
                    "commits {} to {} are missing: the tables are older than the log, or a segment is missing",
                    known.stored + 1,
                    header.first - 1
                ),
            ));
        }
        None => end.insert(Scan { last: header.first - 1, sum: header.sum_before, ..Scan::default() }),
        Some(scan) if header.first == scan.last + 1 && header.sum_before == scan.sum => scan,
        Some(scan) => {
            let missing = scan.last + 1;
            return Err(damaged(
                0,
                format!("the segment does not continue the one before it at commit {missing}"),
            ));
        }
    };
    // Where the segment has none.
    scan.last_at = u64::MAX;
    let at = read_records(&bytes, known, scan, visit)?;
    scan.segments.push((path.to_owned(), scan.last));
    // The end of the log, or damage? A later record shows that this one was complete.
    if has_record_after(scan.last + 1, known.id, &bytes, at) {
        return Err(damaged(
            at,
            format!("commit {} is not what was written, and others follow it", scan.last + 1),
        ));
    }
    if is_last && scan.last < known.complete.max(known.stored) {
        return Err(damaged(at, format!("commit {} is missing or not what was written", scan.last + 1)));
    }
    scan.tail = is_last.then(|| (path.to_owned(), at as u64));
    Ok(())
}

/// Reads records until one does not check out. Returns where that is.
fn read_records(
    bytes: &[u8],
    known: Known,
    scan: &mut Scan,
    visit: &mut dyn FnMut(Logged<'_>) -> Result<(), StoreError>,
) -> Result<usize, StoreError> {
    let mut at = SegmentHeader::LEN;
    loop {
        let head = bytes.get(at..).and_then(|rest| Head::decode(known.id, rest));
        let Some(head) = head.filter(|head| head.number == scan.last + 1) else { return Ok(at) };
        let body = bytes.get(at + Head::LEN..at + Head::LEN + head.len);
        let Some(body) = body.filter(|body| head.fits(scan.sum, body)) else { return Ok(at) };
        if head.number > known.stored {
            visit(Logged { number: head.number, body })?;
        }
        (scan.last, scan.sum, scan.last_at) = (head.number, head.sum, at as u64);
        scan.records += 1;
        at += (Head::LEN + head.len).next_multiple_of(RECORD_ALIGN);
    }
}

/// Is there a record of this log with a higher number behind `at`? Segments are used again, so there may be older ones.
fn has_record_after(number: u64, id: LogId, bytes: &[u8], at: usize) -> bool {
    let mut places = (at + RECORD_ALIGN..bytes.len()).step_by(RECORD_ALIGN);
    places.any(|at| Head::decode(id, &bytes[at..]).is_some_and(|head| head.number > number))
}

fn read_file(path: &Path) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| StoreError::Unusable(format!("cannot read {}: {error}", path.display())))?;
    Ok(bytes)
}

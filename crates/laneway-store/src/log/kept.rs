//! Segments that are kept after the tables have their commits, for a restore to a point in time.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::scan::segments_of;
use crate::sqlite::files::make_private_dir;

/// The directory of kept segments, below the data directory.
pub(crate) const KEPT: &str = "log-kept";

/// Where segments go that the tables do not need any more, and how long they stay there.
#[derive(Clone, Debug)]
pub(crate) struct KeptSegments {
    dir: PathBuf,
    /// `None`: nothing is removed.
    keep: Option<Duration>,
}

impl KeptSegments {
    /// The kept segments of a data directory. `keep`: how long; zero keeps none and removes those that are there. `None`: the
    /// caller does not know the setting, so segments are kept if some are there, and none is removed.
    pub fn of(data_dir: &Path, keep: Option<Duration>) -> Option<KeptSegments> {
        let dir = data_dir.join(KEPT);
        if keep == Some(Duration::ZERO) {
            // It may not exist.
            let _ = std::fs::remove_dir_all(dir);
            return None;
        }
        (keep.is_some() || dir.is_dir()).then_some(KeptSegments { dir, keep })
    }

    /// Takes a segment. Without it a restore to a later point fails and says so; the server does not need it.
    pub fn take(&self, segment: &Path) {
        let Some(name) = segment.file_name() else { return };
        let moved = make_private_dir(&self.dir).and_then(|()| std::fs::rename(segment, self.dir.join(name)));
        if let Err(error) = moved {
            tracing::warn!(%error, segment = %segment.display(), "a segment of the commit log cannot be kept");
            let _ = std::fs::remove_file(segment);
        }
    }

    /// Removes segments that are old enough. The oldest go first, and no gap is left.
    pub fn prune(&self) {
        let Some(keep) = self.keep else { return };
        let now = SystemTime::now();
        let is_old = |path: &PathBuf| {
            let written = std::fs::metadata(path).and_then(|file| file.modified());
            written.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > keep))
        };
        for path in segments_of(&self.dir).unwrap_or_default().into_iter().take_while(is_old) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Removes the oldest segment: the disk is full. False: there is none.
    pub fn drop_oldest(&self) -> bool {
        let oldest = segments_of(&self.dir).unwrap_or_default().into_iter().next();
        let removed = oldest.is_some_and(|path| std::fs::remove_file(path).is_ok());
        if removed {
            tracing::warn!("the disk is full: the oldest kept segment of the commit log was removed");
        }
        removed
    }
}

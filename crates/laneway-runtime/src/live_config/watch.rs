//! Notices that the configuration file changed.
//!
//! The file's directory is watched, not the file: editors and deployment tools replace files, and a watch on a replaced
//! file hears nothing more. So events are only a hint; whether the file changed is decided by its content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::LiveConfig;

/// How long to wait after the first hint, so that a file that is written in pieces is read once and whole.
const SETTLE: Duration = Duration::from_millis(200);

/// Reloads the configuration when its file changes, until it is dropped.
pub struct ConfigWatch {
    _watcher: RecommendedWatcher,
    _stop: DropGuard,
}

/// Why a file cannot be watched.
#[derive(Debug, Error)]
#[error("cannot watch {path} for changes: {source}; send SIGHUP to reload it", path = path.display())]
pub struct WatchError {
    path: PathBuf,
    source: notify::Error,
}

impl ConfigWatch {
    /// `seen` is the content that the configuration in force was read from.
    pub(super) fn start(
        live: LiveConfig,
        file: PathBuf,
        seen: Option<Arc<[u8]>>,
    ) -> Result<ConfigWatch, WatchError> {
        let failed = |source| WatchError { path: file.clone(), source };
        let (hint, hints) = mpsc::channel(1);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // A full channel holds a hint already. Reading the file is an event, too, and no reason to read it.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                let _ = hint.try_send(());
            }
        })
        .map_err(failed)?;
        watcher.watch(directory_of(&file), RecursiveMode::NonRecursive).map_err(failed)?;
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(follow(live, file, seen, hints)));
        Ok(ConfigWatch { _watcher: watcher, _stop: stop.drop_guard() })
    }
}

async fn follow(live: LiveConfig, file: PathBuf, mut seen: Option<Arc<[u8]>>, mut hints: mpsc::Receiver<()>) {
    loop {
        // Looks before it waits: the file may have changed between its first reading and the watch.
        let now: Option<Arc<[u8]>> = tokio::fs::read(&file).await.ok().map(Arc::from);
        if now != seen {
            seen = now;
            // The reload logs what became of it.
            let _ = live.reload().await;
        }
        if hints.recv().await.is_none() {
            return;
        }
        tokio::time::sleep(SETTLE).await;
        let _ = hints.try_recv();
    }
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

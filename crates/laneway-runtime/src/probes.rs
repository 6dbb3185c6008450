//! Reads the load of the machine every few seconds and reports it to the engine.
//!
//! The readings come from a [`LoadSource`], so that tests can replace it; `rating.rs` rates them. If a source has no reading,
//! no report is sent: the last reading gets old, and the engine counts the machine as busy.

mod api_meter;
mod board;
mod host;
mod rating;

pub use api_meter::{ApiLoad, ApiMeter, InFlight};
pub use board::{LoadBoard, Minute};
pub use host::{HostSample, LoadSource, ProcSource};
pub use rating::{Rater, Rating};

use laneway_core::command::AdminCommand;
use std::sync::Arc;
use std::time::Duration;

use laneway_core::{CapacitySettings, Command, LoadReading};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::Config;
use crate::live_config::LiveConfig;
use crate::scheduler::{Scheduler, Stopped};

/// Looks at the machine until it is dropped.
pub struct LoadProbe {
    latest: watch::Receiver<Option<Rating>>,
    _stop: DropGuard,
}

impl LoadProbe {
    /// Looks at this machine every `capacity.sample_every`, while `capacity.measured` is on.
    pub fn start(scheduler: Scheduler, live: &LiveConfig) -> LoadProbe {
        LoadProbe::start_with(scheduler, live.subscribe(), Box::new(ProcSource::new("/proc")))
    }

    /// The same, with a source of one's own.
    pub fn start_with(
        scheduler: Scheduler,
        configs: watch::Receiver<Arc<Config>>,
        source: Box<dyn LoadSource>,
    ) -> LoadProbe {
        let (rated, latest) = watch::channel(None);
        let probing = Probing {
            scheduler,
            configs,
            source: Some(source),
            rater: Rater::default(),
            rated,
            blind: false,
        };
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(probing.go_on()));
        LoadProbe { latest, _stop: stop.drop_guard() }
    }

    /// The last rating of the machine, with the readings behind it.
    pub fn latest(&self) -> Option<Rating> {
        self.latest.borrow().clone()
    }
}

struct Probing {
    scheduler: Scheduler,
    configs: watch::Receiver<Arc<Config>>,
    /// `None` only while a look is under way.
    source: Option<Box<dyn LoadSource>>,
    rater: Rater,
    rated: watch::Sender<Option<Rating>>,
    /// True after a read that failed, so that a machine without readings does not fill the log.
    blind: bool,
}

impl Probing {
    async fn go_on(mut self) {
        loop {
            let CapacitySettings { measured, sample_every, .. } =
                self.configs.borrow_and_update().settings().capacity.clone();
            if measured && self.look().await.is_err() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(sample_every.0)) => {}
                changed = self.configs.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn look(&mut self) -> Result<(), Stopped> {
        let Some(mut source) = self.source.take() else { return Ok(()) };
        let at = self.scheduler.now().mono;
        // A file system that hangs must hang no task but this one.
        let looked = tokio::task::spawn_blocking(move || {
            let sample = source.sample();
            (source, sample)
        });
        let Ok((source, sample)) = looked.await else {
            tracing::error!(
                "the look at the machine's load panicked; jobs that cost units see a busy machine"
            );
            return Err(Stopped);
        };
        self.source = Some(source);
        let host = match sample {
            Ok(Some(host)) => host,
            // The first look only sees where counters stand.
            Ok(None) => return Ok(()),
            Err(error) => {
                if !self.blind {
                    tracing::warn!(%error, "the machine's load cannot be read; jobs that cost units see a busy machine");
                }
                self.blind = true;
                return Ok(());
            }
        };
        self.blind = false;
        let rating = self.rater.rate(host, self.scheduler.api_meter().load());
        let (busy, quiet) = (rating.busy, rating.quiet);
        self.scheduler.load_board().put(self.scheduler.wall(), rating.clone());
        let was = self.rated.send_replace(Some(rating)).map(|rating| rating.quiet);
        if was.is_some_and(|was| was != quiet) {
            tracing::debug!(busy, quiet = quiet.as_str(), "the machine is in another state");
        }
        self.scheduler
            .send(Command::Admin(AdminCommand::Load(LoadReading { busy, quiet, at })))
            .await
            .map(drop)
    }
}

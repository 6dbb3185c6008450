//! Builds a gateway: a scheduler, a handler, and the session options of messages.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

use laneway_compat::agent_turn::AGENT_TURN;
use laneway_compat::outbound::Deliveries;
use laneway_core::Name;
use laneway_core::settings::DEFAULT_TENANT;
use laneway_runtime::IntoOutcome;

use super::handle::Gateway;
use super::request::{Attachments, Options};
use super::run::Run;
use crate::{Embedded, StartError};

/// Returns how full the context of a session is: tokens used, and tokens that fit.
pub(super) type Estimate = Box<dyn Fn(&str) -> Option<(u64, u64)> + Send + Sync>;
/// The current estimate; it can be changed while the gateway runs.
pub(super) type Estimates = Arc<RwLock<Option<Estimate>>>;

/// A gateway that is not started yet.
#[must_use = "nothing runs until `start` is called"]
pub struct Builder {
    embedded: Embedded,
    attachments: Arc<Attachments>,
    estimates: Estimates,
    defaults: Option<Options>,
    tenant: Name,
}

impl Builder {
    pub(super) fn new(embedded: Embedded) -> Builder {
        // Only has to differ from process to process; the standard library's hasher has a random seed.
        let boot = RandomState::new().build_hasher().finish();
        let estimates = Estimates::default();
        let asked = Arc::clone(&estimates);
        let embedded = embedded.token_estimate(move |_, session| {
            let estimate = asked.read().unwrap_or_else(PoisonError::into_inner);
            estimate.as_ref().and_then(|estimate| estimate(session.as_str()))
        });
        Builder {
            embedded,
            attachments: Arc::new(Attachments::new(boot)),
            estimates,
            defaults: None,
            tenant: Name::fixed(DEFAULT_TENANT),
        }
    }

    /// Sets the handler of turns; its result is the answer. Without a handler, turns wait for another
    /// executor of the kind `agent_turn`.
    pub fn handler<F, Fut>(mut self, handler: F) -> Builder
    where
        F: Fn(Run) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let attachments = Arc::clone(&self.attachments);
        self.embedded = self.embedded.handler(AGENT_TURN, move |job| handler(Run::of(job, &attachments)));
        self
    }

    /// Adds a lane of this size to those of the configuration.
    pub fn lane(mut self, name: &str, concurrency: u32) -> Builder {
        let size = i64::from(effective(concurrency));
        self.embedded = self.embedded.setting(format!("lanes.{name}.running_max"), size);
        self
    }

    /// The default session options of messages. Without this, those of `[chat]` in the configuration at the
    /// time of the message.
    pub fn defaults(mut self, options: Options) -> Builder {
        self.defaults = Some(options);
        self
    }

    /// The tenant of the turns. Defaults to `default`. Panics when `tenant` is not a valid name.
    pub fn tenant(mut self, tenant: &str) -> Builder {
        self.tenant = Name::new(tenant).unwrap_or_else(|error| panic!("the tenant {tenant:?} {error}"));
        self
    }

    /// Sets the token estimate; see [`Gateway::set_token_estimate`].
    pub fn token_estimate(
        self,
        estimate: impl Fn(&str) -> Option<(u64, u64)> + Send + Sync + 'static,
    ) -> Builder {
        *self.estimates.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(estimate));
        self
    }

    /// Recovers the store and starts. Must be called on a tokio runtime; the handler runs on it.
    pub async fn start(self) -> Result<Gateway, StartError> {
        let Builder { embedded, attachments, estimates, defaults, tenant } = self;
        let laneway = embedded.start().await?;
        let deliveries = Deliveries::start(laneway.scheduler().clone());
        Ok(Gateway::new(laneway, deliveries, attachments, estimates, defaults, tenant))
    }
}

/// The size of a lane; two by default.
pub(super) fn effective(concurrency: u32) -> u32 {
    if concurrency == 0 { 2 } else { concurrency }
}

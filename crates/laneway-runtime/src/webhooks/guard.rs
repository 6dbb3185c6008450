//! The guard against callbacks to addresses inside the network of the server.
//!
//! An address is checked when it is submitted and again before every call, and the call goes to exactly the addresses
//! that were checked then: a name that meant something public a moment ago and means something private now is not
//! called. Whatever cannot be checked is rejected.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use laneway_core::Name;
use laneway_core::job::CALLBACK_URL_LEN_MAX;
use reqwest::Url;
use thiserror::Error;
use tokio::sync::{OnceCell, watch};

use super::address::is_public;
use super::turns::Turns;
use crate::config::Config;

/// How long a name may take to resolve.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(8);
/// Most names that are resolved at once for submits; callers beyond wait in line.
const RESOLVING_MAX: u32 = 64;
/// Most names of one batch; more are not asked for.
const BATCH_NAMES_MAX: usize = 256;
/// Most addresses of a name that are looked at; a name with more is rejected.
const ADDRESSES_MAX: usize = 64;

/// Why an address may not be called. The texts are stable: dialects show them as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GuardError {
    /// It is no URL.
    #[error("invalid callback URL")]
    Invalid,
    /// It is another scheme's.
    #[error("callback URL must use http or https")]
    Scheme,
    /// It has no host.
    #[error("callback URL host is required")]
    NoHost,
    /// It holds a user or a password.
    #[error("callback URL credentials are not allowed")]
    Credentials,
    /// It leads to somewhere that is not public.
    #[error("callback URL host is not allowed")]
    NotAllowed,
    /// Its name could not be resolved.
    #[error("could not resolve callback host")]
    Unresolved,
}

impl GuardError {
    /// True when asking again later may end otherwise.
    pub fn may_pass(self) -> bool {
        self == GuardError::Unresolved
    }
}

/// An address that may be called now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Where to.
    pub url: Url,
    /// The host, as the call names it.
    pub host: String,
    /// The checked addresses: the request must go to one of these.
    pub addresses: Vec<SocketAddr>,
}

/// A host's addresses, some day.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Turns names into addresses.
pub trait Resolver: Send + Sync {
    /// The addresses of a name.
    fn resolve(&self, host: &str) -> Resolving;
}

/// Asks whatever the system asks.
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: &str) -> Resolving {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Decides who may be called.
#[derive(Clone)]
pub struct Guard {
    resolver: Arc<dyn Resolver>,
    allowed: Allowed,
    turns: Arc<Turns>,
    /// Whose turns the guard takes. Callers without a tenant share those of `*`.
    tenant: Name,
    resolve_timeout: Duration,
    /// Answers that are used again, for as long as this handle and its clones live.
    cache: Option<Arc<Mutex<Answers>>>,
}

/// Recently resolved names. A caller that needs a name that is being resolved waits for that answer.
type Answers = BTreeMap<String, Arc<OnceCell<Answer>>>;

type Answer = Result<Vec<IpAddr>, GuardError>;

/// Hosts that the operator trusts.
#[derive(Clone)]
enum Allowed {
    Fixed(Arc<[String]>),
    Live(watch::Receiver<Arc<Config>>),
}

impl Guard {
    /// A guard that follows `webhooks.allow_hosts` of the configuration.
    pub fn live(configs: watch::Receiver<Arc<Config>>) -> Guard {
        Guard::with(Arc::new(SystemResolver), Allowed::Live(configs))
    }

    /// A guard with a resolver and trusted hosts of its own.
    pub fn new(resolver: Arc<dyn Resolver>, allow_hosts: &[&str]) -> Guard {
        let hosts = allow_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Guard::with(resolver, Allowed::Fixed(hosts))
    }

    fn with(resolver: Arc<dyn Resolver>, allowed: Allowed) -> Guard {
        let (turns, tenant) = (Arc::new(Turns::new(RESOLVING_MAX)), Name::fixed("*"));
        Guard { resolver, allowed, turns, tenant, resolve_timeout: RESOLVE_TIMEOUT, cache: None }
    }

    /// The same guard with less patience for names.
    pub fn resolve_timeout(self, resolve_timeout: Duration) -> Guard {
        Guard { resolve_timeout, ..self }
    }

    /// The same guard for one batch: every name is resolved once.
    pub fn for_batch(&self) -> Guard {
        Guard { cache: Some(Arc::default()), ..self.clone() }
    }

    /// The same guard on behalf of a tenant, which shares the turns to resolve names with others.
    pub fn on_behalf_of(&self, tenant: &Name) -> Guard {
        Guard { tenant: tenant.clone(), ..self.clone() }
    }

    /// True when this address may be called.
    pub async fn check(&self, text: &str) -> Result<Checked, GuardError> {
        let url = parse(text)?;
        let host = url.host_str().ok_or(GuardError::NoHost)?.to_owned();
        let port = url.port_or_known_default().ok_or(GuardError::Scheme)?;
        let plain = host.trim_end_matches('.').to_ascii_lowercase();
        let trusted = self.is_trusted(&plain, port);
        if !trusted && (plain == "localhost" || plain.ends_with(".localhost")) {
            return Err(GuardError::NotAllowed);
        }
        let literal = plain.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let found = match literal {
            Ok(address) => vec![address],
            Err(_) => self.resolve(&plain).await?,
        };
        if !trusted && !found.iter().all(|address| is_public(*address)) {
            return Err(GuardError::NotAllowed);
        }
        let addresses = found.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        Ok(Checked { url, host, addresses })
    }

    async fn resolve(&self, host: &str) -> Answer {
        let Some(cache) = &self.cache else { return self.ask(host).await };
        let cell = {
            let mut answers = cache.lock().unwrap_or_else(PoisonError::into_inner);
            if answers.len() >= BATCH_NAMES_MAX && !answers.contains_key(host) {
                return Err(GuardError::Unresolved);
            }
            Arc::clone(answers.entry(host.to_owned()).or_default())
        };
        cell.get_or_init(|| self.ask(host)).await.clone()
    }

    async fn ask(&self, host: &str) -> Answer {
        let turn = Arc::clone(&self.turns).take(self.tenant.clone());
        let (resolver, host) = (Arc::clone(&self.resolver), host.to_owned());
        // The turn is held until the system has answered, not until we are tired of waiting: a thread that still asks must
        // not free a permit.
        let asking = async {
            // A caller that stops waiting for a permit leaves the queue.
            let turn = turn.await;
            let asked = tokio::spawn(async move {
                let _turn = turn;
                resolver.resolve(&host).await.ok()
            });
            asked.await.ok().flatten()
        };
        let answered = tokio::time::timeout(self.resolve_timeout, asking).await;
        let found = answered.ok().flatten().ok_or(GuardError::Unresolved)?;
        // In their order, each once.
        let mut seen = BTreeSet::new();
        let addresses: Vec<IpAddr> = found.into_iter().filter(|address| seen.insert(*address)).collect();
        match addresses.len() {
            0 => Err(GuardError::Unresolved),
            1..=ADDRESSES_MAX => Ok(addresses),
            _ => Err(GuardError::NotAllowed),
        }
    }

    fn is_trusted(&self, host: &str, port: u16) -> bool {
        let matches = |entry: &String| is_match(entry, host, port);
        match &self.allowed {
            Allowed::Fixed(hosts) => hosts.iter().any(matches),
            Allowed::Live(configs) => configs.borrow().webhooks.allow_hosts.iter().any(matches),
        }
    }
}

/// The part of an address that may be logged: no user, no query, no fragment.
pub fn redacted(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return "an address that is no URL".to_owned() };
    let cleared = url.set_username("").is_ok() && url.set_password(None).is_ok();
    url.set_query(None);
    url.set_fragment(None);
    if cleared || url.username().is_empty() { url.into() } else { format!("{}:…", url.scheme()) }
}

/// Checks the form of an address, before any name is resolved.
fn parse(text: &str) -> Result<Url, GuardError> {
    let strange = |letter: char| letter.is_control() || letter.is_whitespace();
    if text.is_empty() || text.len() > CALLBACK_URL_LEN_MAX || text.contains(strange) {
        return Err(GuardError::Invalid);
    }
    // A parser for browsers takes the first part of the path for the host where there is none.
    let no_host = |rest: &str| {
        let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
        authority.is_empty() || (authority.starts_with(':') && !authority.contains('@'))
    };
    let web = ["http://", "https://"]
        .into_iter()
        .find(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    if web.is_some_and(|scheme| no_host(&text[scheme.len()..])) {
        return Err(GuardError::NoHost);
    }
    let url = match Url::parse(text) {
        Ok(url) => url,
        // It has no scheme at all.
        Err(_) if !text.contains(':') => return Err(GuardError::Scheme),
        Err(_) => return Err(GuardError::Invalid),
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(GuardError::Scheme);
    }
    if web.is_none() {
        // Such as `http:host`, which browsers mend.
        return Err(GuardError::Invalid);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(GuardError::Credentials);
    }
    match url.host_str() {
        Some(host) if !host.trim_end_matches('.').is_empty() => Ok(url),
        _ => Err(GuardError::NoHost),
    }
}

/// True when an entry of the list of trusted hosts matches this host and port.
fn is_match(entry: &str, host: &str, port: u16) -> bool {
    let (name, of_port) = match entry.rsplit_once(':') {
        // The last colon of an address in brackets is not a port's, nor is one of a bare address.
        Some((name, digits)) if !name.contains(':') || name.ends_with(']') => (name, digits.parse().ok()),
        _ => (entry, None),
    };
    let name = name.trim_end_matches('.');
    let same_host = match name.strip_prefix("*.") {
        Some(parent) => host.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')),
        None => name == host,
    };
    same_host && of_port.is_none_or(|of_port: u16| of_port == port)
}

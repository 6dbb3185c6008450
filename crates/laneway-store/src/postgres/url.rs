//! The address of a database: `postgres://user:password@host:port/database?sslmode=verify-full`.
//!
//! The password is never printed: only [`Target::display`] is for people.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::session::CONNECT_MAX;
use super::tls::Tls;
use crate::StoreError;

/// How long a silent connection waits before the system asks the other end.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The name of our connections among those of the server.
pub(super) const APPLICATION: &str = "laneway";
/// How long sent bytes may stay unacknowledged.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

/// Where the database is.
#[derive(Clone)]
pub(super) struct Target {
    config: Config,
    tls: Tls,
    display: String,
}

/// True for an address of a PostgreSQL database.
pub fn is_postgres_url(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// An address without its password, also where it is not a valid one.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "of another form".into() };
    // The query may name a password, with any character in it.
    let (rest, query) = match rest.to_ascii_lowercase().find("password=") {
        None => (rest.to_owned(), None),
        Some(at) => {
            let (before, from) = rest.split_at(at);
            let after = from.split_once('&').map(|(_, after)| after).filter(|after| !after.contains('@'));
            (before.trim_end_matches(['?', '&']).to_owned(), after)
        }
    };
    // A password may hold any character, although most of them should be escaped: it ends at the last @.
    let mut shown = match rest.rsplit_once('@') {
        None => format!("{scheme}://{rest}"),
        Some((user, host)) => format!("{scheme}://{}@{host}", user.split(':').next().unwrap_or_default()),
    };
    if let Some(query) = query.filter(|query| !query.to_ascii_lowercase().contains("password")) {
        shown.push(if shown.contains('?') { '&' } else { '?' });
        shown.push_str(query);
    }
    shown
}

/// What an address says, beside the files that it names.
struct Parsed {
    config: Config,
    /// The certificate of the server is checked.
    verified: bool,
    /// The file with the certificates of trusted authorities.
    roots: Option<PathBuf>,
}

/// Why an address is not valid, without its password.
pub fn check_url(url: &str) -> Result<(), String> {
    parse(url).map(|_| ())
}

fn parse(url: &str) -> Result<Parsed, String> {
    if !is_postgres_url(url) {
        return Err("it does not begin with postgres://".into());
    }
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut kept, mut mode, mut roots) = (Vec::new(), None, None);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => roots = Some(PathBuf::from(value)),
            _ => kept.push(part),
        }
    }
    let base = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
    let mut config: Config = base.parse().map_err(|error: tokio_postgres::Error| {
        let source = std::error::Error::source(&error).map(|source| source.to_string());
        source.unwrap_or_else(|| error.to_string())
    })?;
    if config.get_hosts().is_empty() {
        return Err("it names no host".into());
    }
    if config.get_dbname().is_none() {
        return Err("it names no database".into());
    }
    if config.get_user().is_none() {
        return Err("it names no user".into());
    }
    let (mode, verified) = match mode {
        Some("disable") => (SslMode::Disable, false),
        None | Some("prefer" | "allow") => (SslMode::Prefer, false),
        Some("require") => (SslMode::Require, roots.is_some()),
        Some("verify-full" | "verify-ca") => (SslMode::Require, true),
        Some(_) => return Err("sslmode is one of disable, prefer, require and verify-full".into()),
    };
    let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    config
        .ssl_mode(if local { SslMode::Disable } else { mode })
        .application_name(APPLICATION)
        .connect_timeout(CONNECT_MAX)
        .keepalives_idle(KEEPALIVE)
        .keepalives_interval(KEEPALIVE)
        .keepalives_retries(3)
        .tcp_user_timeout(UNACKNOWLEDGED_MAX);
    Ok(Parsed { config, verified, roots })
}

impl Target {
    /// Reads an address.
    pub fn parse(url: &str) -> Result<Target, StoreError> {
        let display = without_password(url);
        let Parsed { config, verified, roots } = parse(url).map_err(|why| {
            StoreError::Unusable(format!(
                "the store URL {display} is not valid: {why}; write postgres://user:password@host:port/database"
            ))
        })?;
        let tls = Tls::new(verified, roots.as_deref())?;
        Ok(Target { config, tls, display })
    }

    /// What a connection needs.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The encryption.
    pub fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// For people, without the password.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// The user.
    pub fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// The database.
    pub fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://me:secret@db:5433/jobs", "postgres://me@db:5433/jobs"),
            ("postgres://me:se@cret@db/jobs?sslmode=require", "postgres://me@db/jobs?sslmode=require"),
            ("postgres://db/jobs?password=secret&user=me", "postgres://db/jobs?user=me"),
            ("postgres://me@db/jobs", "postgres://me@db/jobs"),
            ("postgres://me:se/cr?t@db/jobs", "postgres://me@db/jobs"),
            ("postgres://me:secret@a:1,b:2/jobs?x=y", "postgres://me@a:1,b:2/jobs?x=y"),
            ("postgres://db/jobs?user=me&password=se@cret", "postgres://db/jobs?user=me"),
            ("postgres://db/jobs?PASSWORD=secret&sslmode=require", "postgres://db/jobs?sslmode=require"),
            ("postgres:me:secret", "of another form"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn a_wrong_url_is_rejected_with_the_reason() {
        for (url, why) in [
            ("mysql://me@db/jobs", "does not begin with postgres://"),
            ("postgres://me:secret@/jobs?x", "is not valid"),
            ("postgres://me:secret@db", "names no database"),
            ("postgres://db/jobs", "names no user"),
            ("postgres://me:secret@db/jobs?sslmode=maybe", "sslmode is one of"),
            ("postgres://me:secret@db:port/jobs", "port"),
        ] {
            let Err(StoreError::Unusable(message)) = Target::parse(url) else { panic!("{url} was taken") };
            assert!(message.contains(why), "{url}: {message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}

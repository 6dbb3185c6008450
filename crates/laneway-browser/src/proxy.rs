//! Proxies: how they are written, a test of one, and a relay for those that Chromium cannot log in to.

mod check;
mod connect;
mod relay;
mod socks;

use std::fmt;
use std::net::Ipv6Addr;

use laneway_runtime::config::Secret;
use reqwest::Url;

pub use check::{ProxyError, ProxyReport, test, test_with};
pub use connect::Trust;
pub(crate) use relay::Relay;

const SCHEMES: [Scheme; 3] = [Scheme::Http, Scheme::Https, Scheme::Socks5];

/// The protocol that is spoken with a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS version 5. The proxy resolves names.
    Socks5,
}

impl Scheme {
    /// As it is written in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Socks5 => "socks5",
        }
    }
}

/// A proxy. Its password is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    scheme: Scheme,
    host: String,
    port: u16,
    credentials: Option<(String, Secret)>,
}

/// A proxy that is not valid. The text names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("proxy.{field}: {reason}")]
pub struct BadProxy {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it, and what is expected.
    pub reason: String,
}

impl Proxy {
    /// A proxy from its parts. The scheme is `http`, `https` or `socks5`. A password without a user is not valid.
    pub fn new(
        scheme: &str,
        host: &str,
        port: u16,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Proxy, BadProxy> {
        let bad = |field, reason: String| Err(BadProxy { field, reason });
        let Some(scheme) = SCHEMES.into_iter().find(|known| known.as_str() == scheme) else {
            return bad("scheme", format!("{scheme:?} is not known; give http, https or socks5"));
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        // The host becomes a part of a command line and of requests.
        let is_name = !bare.is_empty()
            && bare.len() <= 253
            && bare.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
        if !is_name && bare.parse::<Ipv6Addr>().is_err() {
            return bad("host", format!("{host:?} is no host name and no IP address"));
        }
        if port == 0 {
            return bad("port", "it must be from 1 to 65535".to_owned());
        }
        let credentials =
            match (user.filter(|user| !user.is_empty()), password.filter(|text| !text.is_empty())) {
                (None, None) => None,
                (None, Some(_)) => return bad("user", "there is a password, but no user".to_owned()),
                (Some(user), password) => Some((user.to_owned(), Secret::new(password.unwrap_or_default()))),
            };
        if let Some((user, password)) = &credentials {
            let is_usable = |text: &str| text.len() <= 255 && !text.chars().any(char::is_control);
            if !is_usable(user) || (scheme != Scheme::Socks5 && user.contains(':')) {
                return bad("user", "it must have at most 255 printable letters, and no colon".to_owned());
            }
            if !is_usable(password.reveal()) {
                return bad("password", "it must have at most 255 printable letters".to_owned());
            }
        }
        Ok(Proxy { scheme, host: bare.to_owned(), port, credentials })
    }

    /// A proxy from a URL: `socks5://user:password@host:1080`. Special letters of user and password are percent-encoded. Without a
    /// port it is 80, 443 or 1080.
    pub fn parse(url: &str) -> Result<Proxy, BadProxy> {
        // The text may have a password, so it is not repeated.
        let bad = |reason: &str| BadProxy { field: "url", reason: reason.to_owned() };
        let parsed = Url::parse(url)
            .map_err(|_| bad("it is no URL; give one such as http://user:password@host:8080"))?;
        if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(bad("it has more than scheme, user, password, host and port"));
        }
        let host = parsed.host_str().ok_or_else(|| bad("it has no host"))?;
        let usual_port = if parsed.scheme() == "socks5" { 1080 } else { 80 };
        let port = parsed.port_or_known_default().unwrap_or(usual_port);
        let decoded = |text: &str| decode(text).ok_or_else(|| bad("user or password are not valid UTF-8"));
        let (user, password) = (decoded(parsed.username())?, decoded(parsed.password().unwrap_or_default())?);
        Proxy::new(parsed.scheme(), host, port, Some(&user), Some(&password))
    }

    /// User and password.
    pub(crate) fn credentials(&self) -> Option<(String, Secret)> {
        self.credentials.clone()
    }

    /// The protocol.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The user, if there are credentials.
    pub fn user(&self) -> Option<&str> {
        self.credentials.as_ref().map(|(user, _)| user.as_str())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme.as_str();
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

//! A test of a proxy: one request through it, with the time that each part takes.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::connect::{Stream, Trust, basic_authorization, connect, open_tunnel, read_head};
use super::{Proxy, Scheme, socks};

/// The longest part of the target's answer that is searched for an address, in bytes.
const BODY_BYTES_MAX: u64 = 8 << 10;

/// What a test of a proxy measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyReport {
    /// The status of the target's answer.
    pub status: u16,
    /// Until the proxy accepted the connection.
    pub connect: Duration,
    /// Until the target's answer began.
    pub total: Duration,
    /// The address under which the target saw the request, if the target's answer says it in plain text or JSON.
    pub address: Option<IpAddr>,
}

/// Why a test of a proxy failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Something did not happen in time.
    #[error("{0} timed out")]
    TimedOut(&'static str),
    /// The proxy cannot be reached.
    #[error("cannot connect to the proxy {proxy}: {reason}")]
    Connect {
        /// The proxy, without credentials.
        proxy: String,
        /// The system's error.
        reason: String,
    },
    /// The proxy wants other credentials.
    #[error("the proxy {proxy} rejected the credentials")]
    Credentials {
        /// The proxy, without credentials.
        proxy: String,
    },
    /// The proxy does not speak its protocol, or its certificate is not valid.
    #[error("the proxy {proxy} does not answer as a proxy of this scheme does: {reason}")]
    Protocol {
        /// The proxy, without credentials.
        proxy: String,
        /// What came instead.
        reason: String,
    },
    /// The proxy did not reach the target.
    #[error("the proxy {proxy} does not reach {target}: {reason}")]
    Target {
        /// The proxy, without credentials.
        proxy: String,
        /// The target.
        target: String,
        /// The proxy's reason.
        reason: String,
    },
    /// The target is no `http` or `https` URL.
    #[error("the target {0} is not valid: give an http or https URL")]
    BadTarget(String),
}

impl ProxyError {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            ProxyError::TimedOut(_) => "proxy_timed_out",
            ProxyError::Connect { .. } => "proxy_unreachable",
            ProxyError::Credentials { .. } => "proxy_credentials",
            ProxyError::Protocol { .. } => "proxy_protocol",
            ProxyError::Target { .. } => "proxy_target",
            ProxyError::BadTarget(_) => "bad_target",
        }
    }

    /// True if another attempt may succeed: after a connection timeout.
    pub fn retryable(&self) -> bool {
        matches!(self, ProxyError::TimedOut(_))
    }
}

/// Requests `target` through the proxy. Certificates must be of a public authority.
pub async fn test(proxy: &Proxy, target: &Url, limit: Duration) -> Result<ProxyReport, ProxyError> {
    test_with(proxy, target, limit, &Trust::public()).await
}

/// As [`test`], with other authorities.
pub async fn test_with(
    proxy: &Proxy,
    target: &Url,
    limit: Duration,
    trust: &Trust,
) -> Result<ProxyReport, ProxyError> {
    let is_web = matches!(target.scheme(), "http" | "https");
    let (Some(host), Some(port), true) = (target.host_str(), target.port_or_known_default(), is_web) else {
        return Err(ProxyError::BadTarget(target.to_string()));
    };
    let start = Instant::now();
    let deadline = start + limit;
    let within = |part: &'static str| move |_| ProxyError::TimedOut(part);
    let stream = timeout_at(deadline, connect(proxy, trust))
        .await
        .map_err(within("the connection to the proxy"))??;
    let connected = start.elapsed();
    let request = Request { proxy, target, host, port, trust };
    let mut stream =
        timeout_at(deadline, request.send(stream)).await.map_err(within("the proxy's answer"))??;
    let head = timeout_at(deadline, read_head(&mut stream))
        .await
        .map_err(within("the answer of the target"))?
        .map_err(|reason| request.unreached(reason))?;
    let total = start.elapsed();
    let through_http = proxy.scheme() != Scheme::Socks5 && target.scheme() == "http";
    match head.status {
        407 if through_http => return Err(ProxyError::Credentials { proxy: proxy.to_string() }),
        502 | 504 if through_http => return Err(request.unreached(format!("it answers {}", head.status))),
        _ => {}
    }
    let mut body = head.rest;
    // The address is a courtesy: an answer that does not end is not waited for.
    let patience = deadline.min(Instant::now() + Duration::from_secs(1));
    let _ = timeout_at(patience, stream.take(BODY_BYTES_MAX).read_to_end(&mut body)).await;
    let address = address_in(&head.content_type, &body);
    Ok(ProxyReport { status: head.status, connect: connected, total, address })
}

/// One request through a proxy.
struct Request<'a> {
    proxy: &'a Proxy,
    target: &'a Url,
    host: &'a str,
    port: u16,
    trust: &'a Trust,
}

impl Request<'_> {
    /// Sends it over a connection to the proxy. The stream that is returned gives the answer.
    async fn send(&self, mut stream: Box<dyn Stream>) -> Result<Box<dyn Stream>, ProxyError> {
        let is_tls = self.target.scheme() == "https";
        let mut absolute = false;
        match self.proxy.scheme() {
            Scheme::Socks5 => {
                let failed = |error| socks::failed(error, self.proxy, self.target);
                socks::log_in(&mut stream, self.proxy.credentials.as_ref()).await.map_err(failed)?;
                socks::connect(&mut stream, self.host, self.port).await.map_err(failed)?;
            }
            Scheme::Http | Scheme::Https if is_tls => {
                open_tunnel(&mut stream, self.proxy, self.host, self.port).await?;
            }
            Scheme::Http | Scheme::Https => absolute = true,
        }
        if is_tls {
            let reached = self.trust.connect(self.host, stream).await;
            stream = reached.map_err(|reason| self.unreached(reason))?;
        }
        let sent = stream.write_all(self.text(absolute).as_bytes()).await;
        sent.map_err(|error| self.unreached(error.to_string()))?;
        Ok(stream)
    }

    fn text(&self, absolute: bool) -> String {
        let mut target = self.target.clone();
        target.set_fragment(None);
        // Credentials of the target belong into a header, and none is sent.
        let _ = (target.set_username(""), target.set_password(None));
        let whole = target.as_str();
        let path = match target.query() {
            Some(query) => format!("{}?{query}", target.path()),
            None => target.path().to_owned(),
        };
        let authority = match self.target.port() {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.to_owned(),
        };
        let line = if absolute { whole } else { &path };
        let authorization = match &self.proxy.credentials {
            Some(credentials) if absolute => {
                format!("Proxy-Authorization: {}\r\n", basic_authorization(credentials))
            }
            _ => String::new(),
        };
        format!(
            "GET {line} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: laneway\r\nAccept: */*\r\n{authorization}Connection: close\r\n\r\n"
        )
    }

    fn unreached(&self, reason: String) -> ProxyError {
        ProxyError::Target { proxy: self.proxy.to_string(), target: self.target.to_string(), reason }
    }
}

/// The first IP address in a short text or JSON answer.
fn address_in(content_type: &str, body: &[u8]) -> Option<IpAddr> {
    let is_data = content_type.starts_with("text/plain") || content_type.starts_with("application/json");
    let text = std::str::from_utf8(body).ok().filter(|_| is_data)?;
    let parts = text.split(|c: char| !(c.is_ascii_hexdigit() || c == '.' || c == ':'));
    parts.filter(|part| part.len() >= 3).find_map(|part| part.parse().ok())
}

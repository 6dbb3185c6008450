//! The program's side of the HTTP API: one call, one answer, and every error with its exit code.
//!
//! It knows paths, headers and errors. What is asked and how answers look is the business of `commands/`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use laneway_wire::Problem;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::GLOBAL;
use crate::exit::{Exit, Trouble};

/// Where a server is unless told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7717";

/// Where the server is and who asks.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    /// Where the server is
    #[arg(
        long,
        global = true,
        env = "LANEWAY_URL",
        hide_env_values = true,
        default_value = DEFAULT_URL,
        value_name = "URL",
        help_heading = GLOBAL
    )]
    pub url: String,
    /// The token to call with
    #[arg(
        long,
        global = true,
        env = "LANEWAY_TOKEN",
        hide_env_values = true,
        value_name = "SECRET",
        help_heading = GLOBAL
    )]
    pub token: Option<String>,
    /// Trust the certificate authorities in this PEM file, too
    #[arg(
        long,
        global = true,
        env = "LANEWAY_CA",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = GLOBAL
    )]
    pub ca: Option<PathBuf>,
    /// Show this client certificate: a PEM file with certificate and key
    #[arg(
        long,
        global = true,
        env = "LANEWAY_CERT",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = GLOBAL
    )]
    pub cert: Option<PathBuf>,
}

/// How long a connection may take to stand. Answers themselves may take as long as they need.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a single call may take; streams are not calls.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to a server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<String>,
}

impl Client {
    /// A client that has not called yet.
    pub fn new(args: &ServerArgs) -> anyhow::Result<Client> {
        let ServerArgs { url, token, ca, cert } = args;
        let base: Url = url
            .parse()
            .ok()
            .filter(|base: &Url| base.has_host() && !base.cannot_be_a_base())
            .filter(|base: &Url| matches!(base.scheme(), "http" | "https"))
            .ok_or_else(|| {
                Trouble::new(Exit::Usage, format!("--url {url:?} is no URL; write http://host:port"))
            })?;
        let mut builder = reqwest::Client::builder().no_proxy().connect_timeout(CONNECT_TIMEOUT);
        if let Some(path) = ca {
            let pem = std::fs::read(path).with_context(|| format!("cannot read --ca {}", path.display()))?;
            for certificate in reqwest::Certificate::from_pem_bundle(&pem)? {
                builder = builder.add_root_certificate(certificate);
            }
        }
        if let Some(path) = cert {
            let pem =
                std::fs::read(path).with_context(|| format!("cannot read --cert {}", path.display()))?;
            builder = builder.identity(reqwest::Identity::from_pem(&pem)?);
        }
        Ok(Client { http: builder.build()?, base, token: token.clone() })
    }

    /// Where the server is.
    pub fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Reads something.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> anyhow::Result<T> {
        read(self.call(self.request(Method::GET, path).query(query)).await?).await
    }

    /// Changes something, with a body.
    pub async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        read(self.call(self.request(method, path).json(body)).await?).await
    }

    /// Changes something with a body; there is nothing to read in the answer.
    pub async fn post_empty(&self, path: &[&str], body: &impl Serialize) -> anyhow::Result<()> {
        self.call(self.request(Method::POST, path).json(body)).await.map(drop)
    }

    /// Changes something, without a body.
    pub async fn post<T: DeserializeOwned>(&self, path: &[&str]) -> anyhow::Result<T> {
        read(self.call(self.request(Method::POST, path)).await?).await
    }

    /// Removes something.
    pub async fn delete(&self, path: &[&str]) -> anyhow::Result<()> {
        self.call(self.request(Method::DELETE, path)).await.map(drop)
    }

    /// Opens a stream of server-sent events, after event `after` where one is given.
    pub async fn stream(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        after: Option<u64>,
    ) -> anyhow::Result<Response> {
        let mut request = self.http.get(self.url(path)).query(query).header("accept", "text/event-stream");
        if let Some(number) = after {
            request = request.header("last-event-id", number.to_string());
        }
        self.call(self.authorized(request)).await
    }

    /// Opens something that may be too long to hold: it takes as long as it takes.
    pub async fn open(&self, path: &[&str]) -> anyhow::Result<Response> {
        self.call(self.authorized(self.http.get(self.url(path)))).await
    }

    /// True when something that speaks like a server answers at all, whatever it says.
    pub async fn is_there(&self) -> bool {
        let probe = self.http.get(self.url(&["livez"])).timeout(Duration::from_secs(2)).send().await;
        probe.is_ok_and(|response| response.status().is_success())
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        self.authorized(self.http.request(method, self.url(path)).timeout(CALL_TIMEOUT))
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// The URL of a path; every part is escaped, so that no name can leave its place.
    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    async fn call(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.bytes().await.unwrap_or_default();
        Err(refused(status, serde_json::from_slice(&body).ok(), &body).into())
    }

    fn unreachable(&self, error: &reqwest::Error) -> Trouble {
        let (base, cause) = (self.base(), root_cause(error));
        // TLS tells its errors as texts only.
        if cause.contains("CertificateRequired") {
            let message = format!("the server at {base} asks for a client certificate; show one with --cert");
            return Trouble::new(Exit::NotAllowed, message);
        }
        let message = if cause.contains("invalid peer certificate") {
            format!("the certificate of {base} is not trusted ({cause}); name its authority with --ca")
        } else if error.is_timeout() && !error.is_connect() {
            format!("the server at {base} took too long to answer")
        } else if error.is_connect() {
            format!(
                "no server answers at {base} ({cause})\nstart one with `laneway serve`, or name another with --url"
            )
        } else {
            format!("the call to {base} broke off ({cause})")
        };
        Trouble::new(Exit::Unreachable, message)
    }
}

/// What the innermost error says; the outer ones only repeat the URL.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// An answer that began well and did not end so.
pub fn broke_off(what: &str, error: &reqwest::Error) -> Trouble {
    Trouble::new(Exit::Unreachable, format!("the {what} broke off ({})", root_cause(error)))
}

async fn read<T: DeserializeOwned>(response: Response) -> anyhow::Result<T> {
    let url = response.url().clone();
    let body = response.bytes().await.map_err(|error| {
        let message = format!("the answer of {url} broke off ({})", root_cause(&error));
        Trouble::new(Exit::Unreachable, message)
    })?;
    serde_json::from_slice(&body).with_context(|| {
        format!("{url} answers what this version does not understand; are both of the same version?")
    })
}

fn refused(status: StatusCode, problem: Option<Problem>, body: &[u8]) -> Trouble {
    let exit = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::NotAllowed,
        StatusCode::NOT_FOUND => Exit::NotFound,
        _ => Exit::Refused,
    };
    let Some(problem) = problem else {
        let text: String =
            String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(200).collect();
        return Trouble::new(exit, format!("the server says {status}: {text}"));
    };
    let mut message = problem.detail.clone();
    if let Some(field) = &problem.field
        && !message.contains(field.as_str())
    {
        message = format!("{field}: {message}");
    }
    message = format!("{message} [{}]", problem.code);
    if let Some(millis) = problem.retry_after_ms {
        message = format!("{message}\nasking again may help in {}", crate::moment::short(millis));
    }
    if exit == Exit::NotAllowed {
        message = format!("{message}\ngive a token with --token or LANEWAY_TOKEN");
    }
    Trouble { exit, message, problem: Some(Box::new(problem)), config: None }
}

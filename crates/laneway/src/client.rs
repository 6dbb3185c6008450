//! The program's side of the HTTP API: calls, answers, and every error with its exit code.
//!
//! It handles paths, headers and errors. The requests and the rendering of answers are in `commands/`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use laneway_wire::Problem;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::GLOBAL;
use crate::exit::{CliError, Exit};

/// The default URL of a server.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7717";

/// The server and the credentials to call it with.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    /// The URL of the server
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
    /// The token to call with; every user of the machine can see it in the list of processes, so prefer
    /// LANEWAY_TOKEN or --token-file
    #[arg(
        long,
        global = true,
        env = "LANEWAY_TOKEN",
        hide_env_values = true,
        value_name = "SECRET",
        help_heading = GLOBAL
    )]
    pub token: Option<String>,
    /// Read the token from this file; overrides --token
    #[arg(
        long,
        global = true,
        env = "LANEWAY_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = GLOBAL
    )]
    pub token_file: Option<PathBuf>,
    /// Also trust the certificate authorities in this PEM file
    #[arg(
        long,
        global = true,
        env = "LANEWAY_CA",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = GLOBAL
    )]
    pub ca: Option<PathBuf>,
    /// Use this client certificate: a PEM file with certificate and key
    #[arg(
        long,
        global = true,
        env = "LANEWAY_CERT",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = GLOBAL
    )]
    pub cert: Option<PathBuf>,
    /// True when `--url` is on the command line. A URL from the environment is only the usual server.
    #[arg(skip)]
    pub is_asked_for: bool,
}

/// How long opening a connection may take. Answers have no limit here.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a single call may take. Streams have no limit.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of a server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<String>,
}

impl Client {
    /// A client that has made no call yet.
    pub fn new(args: &ServerArgs) -> anyhow::Result<Client> {
        let ServerArgs { url, token, token_file, ca, cert, is_asked_for: _ } = args;
        let base: Url = url
            .parse()
            .ok()
            .filter(|base: &Url| base.has_host() && !base.cannot_be_a_base())
            .filter(|base: &Url| matches!(base.scheme(), "http" | "https"))
            .ok_or_else(|| {
                CliError::new(Exit::Usage, format!("--url {url:?} is not a URL; write http://host:port"))
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
        let token = match token_file {
            None => token.clone(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read --token-file {}", path.display()))?;
                Some(text.trim().to_owned())
            }
        };
        Ok(Client { http: builder.build()?, base, token })
    }

    /// The URL of the server.
    pub fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// True when the server is on this machine.
    pub fn is_local(&self) -> bool {
        let host = self.base.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// A GET.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> anyhow::Result<T> {
        read(self.call(self.request(Method::GET, path).query(query)).await?).await
    }

    /// A call with a body.
    pub async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        read(self.call(self.request(method, path).json(body)).await?).await
    }

    /// A call with a body whose answer has no content.
    pub async fn post_empty(&self, path: &[&str], body: &impl Serialize) -> anyhow::Result<()> {
        self.call(self.request(Method::POST, path).json(body)).await.map(drop)
    }

    /// A POST without a body.
    pub async fn post<T: DeserializeOwned>(&self, path: &[&str]) -> anyhow::Result<T> {
        read(self.call(self.request(Method::POST, path)).await?).await
    }

    /// A DELETE.
    pub async fn delete(&self, path: &[&str]) -> anyhow::Result<()> {
        self.call(self.request(Method::DELETE, path)).await.map(drop)
    }

    /// A DELETE with parameters.
    pub async fn delete_with(&self, path: &[&str], query: &[(&str, String)]) -> anyhow::Result<()> {
        self.call(self.request(Method::DELETE, path).query(query)).await.map(drop)
    }

    /// Opens a stream of server-sent events, after event `after` if given.
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

    /// Opens a download of any size, without a time limit.
    pub async fn open(&self, path: &[&str]) -> anyhow::Result<Response> {
        self.call(self.authorized(self.http.get(self.url(path)))).await
    }

    /// Sends a request whose path and query are escaped already, and returns the answer, whatever its status.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> anyhow::Result<Response> {
        let url: Url = format!("{}{path}", self.base()).parse()?;
        let mut request = self.authorized(self.http.request(method, url).timeout(CALL_TIMEOUT));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        Ok(request.send().await.map_err(|error| self.unreachable(&error))?)
    }

    /// True when a server answers at all, with any status.
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

    /// The URL of a path. Every part is escaped, so that no name can change the path.
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
        Err(rejected(status, serde_json::from_slice(&body).ok(), &body).into())
    }

    fn unreachable(&self, error: &reqwest::Error) -> CliError {
        let (base, cause) = (self.base(), root_cause(error));
        // TLS errors are available as text only.
        if cause.contains("CertificateRequired") {
            let message = format!("the server at {base} requires a client certificate; give one with --cert");
            return CliError::new(Exit::NotAllowed, message);
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
            format!("the call to {base} was interrupted ({cause})")
        };
        CliError::new(Exit::Unreachable, message)
    }
}

/// The message of the innermost error; the outer ones only repeat the URL.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// True when an older server does not know a query parameter: a call without it helps.
pub fn is_unknown_parameter(error: &anyhow::Error) -> bool {
    is_problem(error, "unknown_field")
}

/// True when the server rejected a call with this code.
pub fn is_problem(error: &anyhow::Error, code: &str) -> bool {
    let problem = error.downcast_ref::<CliError>().and_then(|cli_error| cli_error.problem.as_deref());
    problem.is_some_and(|problem| problem.code == code)
}

/// The error for an answer that was cut off.
pub fn broke_off(what: &str, error: &reqwest::Error) -> CliError {
    CliError::new(Exit::Unreachable, format!("the {what} was interrupted ({})", root_cause(error)))
}

async fn read<T: DeserializeOwned>(response: Response) -> anyhow::Result<T> {
    let url = response.url().clone();
    let body = response.bytes().await.map_err(|error| {
        let message = format!("the answer of {url} was interrupted ({})", root_cause(&error));
        CliError::new(Exit::Unreachable, message)
    })?;
    serde_json::from_slice(&body).with_context(|| {
        format!(
            "{url} sent an answer that this version cannot parse; are server and client of the same version?"
        )
    })
}

fn rejected(status: StatusCode, problem: Option<Problem>, body: &[u8]) -> CliError {
    let exit = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::NotAllowed,
        StatusCode::NOT_FOUND => Exit::NotFound,
        _ => Exit::Rejected,
    };
    let Some(problem) = problem else {
        let text: String =
            String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(200).collect();
        return CliError::new(exit, format!("the server answered {status}: {text}"));
    };
    let mut message = problem.detail.clone();
    if let Some(field) = &problem.field
        && !message.contains(field.as_str())
    {
        message = format!("{field}: {message}");
    }
    message = format!("{message} [{}]", problem.code);
    if let Some(millis) = problem.retry_after_ms {
        message = format!("{message}\ntry again in {}", crate::time_args::short(millis));
    }
    if exit == Exit::NotAllowed {
        message = format!("{message}\nset LANEWAY_TOKEN to a token, or name its file with --token-file");
    }
    CliError { exit, message, problem: Some(Box::new(problem)), config: None }
}

//! The dashboard as routes: who reads, what is asked, and the headers of every response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, LOCATION, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;

use crate::call::{Caller, Failure};
use crate::context::{Answer, Context, Page, Reply};
use crate::counts::Counts;
use crate::fragments::Fragments;
use crate::live::Pulses;
use crate::sessions::{Opened, Sessions};
use crate::shell::{self, Shell};
use crate::{assets, csrf, live, login, pages};

/// What pages may load: only files of this dashboard.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// The largest form, in bytes.
const FORM_BYTES_MAX: usize = 256 * 1024;
/// The header of requests for the main part of a page alone.
const FRAGMENT: &str = "x-laneway-fragment";
/// The cookie of a session.
pub const SESSION_COOKIE: &str = "laneway_session";
/// The cookie with the note that the next page shows.
const NOTE_COOKIE: &str = "laneway_note";

/// Where and how the dashboard is served.
#[derive(Clone)]
pub struct Settings {
    /// The path of the dashboard, such as `/ui`.
    pub prefix: String,
    /// True when the server speaks TLS.
    pub tls: bool,
    /// The configuration without any change, as the API shows it.
    pub defaults: Arc<serde_json::Value>,
    /// Canceled when the server stops. Open pages lose their streams then.
    pub closing: CancellationToken,
    /// Copies what the gate of the API needs to know of a connection.
    pub carry: fn(&Extensions) -> Extensions,
}

/// The dashboard over one API.
#[derive(Clone)]
pub struct Dashboard {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) api: Router,
    pub(crate) settings: Settings,
    pub(crate) sessions: Sessions,
    pub(crate) fragments: Fragments,
    pub(crate) pulses: Pulses,
    pub(crate) counts: Counts,
    /// The value against forged requests for readers without a session: those of an open server, and those with a client
    /// certificate.
    csrf: String,
    /// Stands for the value in pages until they are sent, so that readers can share a page.
    placeholder: String,
}

impl Dashboard {
    /// The dashboard over the router of the native API. Fails when the system has no random numbers.
    pub fn new(api: Router, settings: Settings) -> Result<Dashboard, getrandom::Error> {
        let inner = Inner {
            api,
            settings,
            sessions: Sessions::default(),
            fragments: Fragments::default(),
            pulses: Pulses::default(),
            counts: Counts::default(),
            csrf: crate::sessions::random()?,
            placeholder: crate::sessions::random()?,
        };
        Ok(Dashboard { inner: Arc::new(inner) })
    }

    /// Its routes.
    pub fn routes(&self) -> Router {
        let prefix = &self.inner.settings.prefix;
        let name = prefix.rsplit('/').next().unwrap_or_default().to_owned();
        let to_root = move || async move { redirect(&format!("{name}/")) };
        Router::new()
            .route(prefix, any(to_root))
            .route(&format!("{prefix}/"), any(answer))
            .route(&format!("{prefix}/{{*path}}"), any(answer))
            .with_state(Arc::clone(&self.inner))
    }
}

/// Answers one request, with the headers that all responses have.
async fn answer(State(dashboard): State<Arc<Inner>>, request: Request) -> Response {
    let mut response = route(&dashboard, request).await;
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    );
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

async fn route(dashboard: &Arc<Inner>, request: Request) -> Response {
    let path = request.uri().path();
    let path =
        path.strip_prefix(&dashboard.settings.prefix).unwrap_or(path).trim_start_matches('/').to_owned();
    let (tenant, path) = match split_tenant(&path) {
        Some((tenant, Some(rest))) => (Some(tenant), rest.to_owned()),
        Some((_, None)) => return redirect(&format!("{path}/")),
        None => (None, path),
    };
    if let Some(file) = assets::find(&path) {
        return assets::respond(file, request.headers());
    }
    let (parts, body) = request.into_parts();
    let extensions = (dashboard.settings.carry)(&parts.extensions);
    let visit = Visit { dashboard, path, tenant, headers: &parts.headers, extensions };
    match (&parts.method, visit.path.as_str()) {
        (&Method::GET | &Method::HEAD, _) => {
            let fields = parse_fields(parts.uri.query().unwrap_or_default().as_bytes());
            visit.read(fields, parts.uri.query().unwrap_or_default()).await
        }
        (&Method::POST, _) => match axum::body::to_bytes(body, FORM_BYTES_MAX).await {
            Ok(form) => visit.change(parse_fields(&form)).await,
            Err(_) => {
                visit.failed(None, &Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "the form is too large"))
            }
        },
        _ => visit
            .failed(None, &Failure::new(StatusCode::METHOD_NOT_ALLOWED, "pages are read and forms are sent")),
    }
}

fn parse_fields(text: &[u8]) -> Vec<(String, String)> {
    form_urlencoded::parse(text).into_owned().collect()
}

/// One request.
struct Visit<'a> {
    dashboard: &'a Arc<Inner>,
    /// The path below the root of the dashboard, or of the tenant.
    path: String,
    /// The only tenant that a server-wide reader wants to see.
    tenant: Option<String>,
    headers: &'a HeaderMap,
    extensions: Extensions,
}

impl Visit<'_> {
    /// Answers a request for a page, a stream, or a download.
    async fn read(&self, fields: Vec<(String, String)>, query: &str) -> Response {
        if self.path == "login" {
            let next = fields.iter().find(|(name, _)| name == "next").map_or("", |(_, value)| value.as_str());
            return self.login_page(None, next);
        }
        let session = self.session();
        let context = match self.context(session.as_ref(), fields).await {
            Ok(context) => context,
            Err(failure) if failure.status == StatusCode::UNAUTHORIZED => return self.ask_for_login(query),
            Err(failure) => return self.failed(None, &failure),
        };
        if self.path == "live" {
            return live::respond(&self.dashboard.pulses, &context, &self.dashboard.settings.closing);
        }
        let csrf = session.map_or_else(|| self.dashboard.csrf.clone(), |session| session.csrf);
        let is_fragment = self.headers.contains_key(FRAGMENT);
        let key = is_fragment.then(|| format!("{} {}?{query}", context.view(), self.path));
        let kept = |at| key.as_ref().and_then(|key| self.dashboard.fragments.find(key, at));
        let mut shared = kept(Instant::now());
        let mut guard = None;
        if let (None, Some(key)) = (&shared, &key) {
            guard = Some(self.dashboard.fragments.wait(key).await);
            shared = kept(Instant::now());
        }
        if let Some(html) = shared {
            return html_response(StatusCode::OK, html.replace(&self.dashboard.placeholder, &csrf));
        }
        let segments = segments(&self.path);
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match pages::read(&context, &segments).await {
            Ok(Reply::Page(page)) => {
                if let Some(key) = key {
                    self.dashboard.fragments.keep(key, page.html.clone(), Instant::now());
                }
                drop(guard);
                self.send_page(&context, StatusCode::OK, page, is_fragment, &csrf)
            }
            Ok(other) => self.send(other),
            Err(failure) => self.failed(Some((&context, is_fragment)), &failure),
        }
    }

    /// Answers a form.
    async fn change(&self, fields: Vec<(String, String)>) -> Response {
        if !csrf::is_same_origin(self.headers) {
            return self.failed(
                None,
                &Failure::new(StatusCode::FORBIDDEN, "the form comes from a page of another site"),
            );
        }
        let field =
            |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
        if self.path == "login" {
            let token = field("token").unwrap_or_default().trim().to_owned();
            return self.log_in(token, field("next").unwrap_or_default()).await;
        }
        let session = self.session();
        let expected = session.as_ref().map_or(&self.dashboard.csrf, |session| &session.csrf);
        if !csrf::is_expected(expected, field(csrf::FIELD)) {
            let detail = "the form is out of date; go back, reload the page, and send it again";
            return self.failed(None, &Failure::new(StatusCode::FORBIDDEN, detail));
        }
        if self.path == "logout" {
            return self.log_out();
        }
        let context = match self.context(session.as_ref(), fields.clone()).await {
            Ok(context) => context,
            Err(failure) if failure.status == StatusCode::UNAUTHORIZED => return self.ask_for_login(""),
            Err(failure) => return self.failed(None, &failure),
        };
        let segments = segments(&self.path);
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match pages::change(&context, &segments).await {
            // The answer to a form may be a page, such as the question before a change of many jobs.
            Ok(Reply::Page(page)) => self.send_page(&context, StatusCode::OK, page, false, expected),
            Ok(other) => {
                self.dashboard.fragments.clear();
                self.dashboard.counts.clear();
                self.send(other)
            }
            Err(failure) => self.failed(Some((&context, false)), &failure),
        }
    }

    /// Who reads, and the API in the reader's name.
    async fn context(
        &self,
        session: Option<&Opened>,
        fields: Vec<(String, String)>,
    ) -> Result<Context, Failure> {
        let token = session.map(|session| session.token.as_str());
        let mut api = Caller::new(&self.dashboard.api, &self.extensions, self.headers, token);
        if let Some(tenant) = &self.tenant {
            api = api.only_of(tenant)?;
        }
        let reader = api.get("/v1/caller").await?;
        Ok(Context {
            api,
            reader,
            fields,
            root: self.root(),
            base: self.base(),
            tenant: self.tenant.clone(),
            csrf: self.dashboard.placeholder.clone(),
            defaults: Arc::clone(&self.dashboard.settings.defaults),
            counts: self.dashboard.counts.clone(),
            now: crate::format::now(),
        })
    }

    fn session(&self) -> Option<Opened> {
        let id = cookie(self.headers, SESSION_COOKIE)?;
        self.dashboard.sessions.find(&id, Instant::now())
    }

    /// The way from this path to the root of the dashboard for all tenants. Only requests below it set the cookie of a session.
    fn base(&self) -> String {
        match (&self.tenant, self.path.matches('/').count()) {
            (None, _) => self.root(),
            (Some(_), depth) => "../".repeat(depth + 1),
        }
    }

    /// The way from this path to the root of the dashboard, or of the tenant.
    fn root(&self) -> String {
        match self.path.matches('/').count() {
            0 => "./".to_owned(),
            depth => "../".repeat(depth),
        }
    }

    fn ask_for_login(&self, query: &str) -> Response {
        if self.headers.contains_key(FRAGMENT) || self.path == "live" {
            return html_response(StatusCode::UNAUTHORIZED, "log in".to_owned());
        }
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let tenant = self.tenant.as_ref().map(|tenant| format!("@{tenant}/")).unwrap_or_default();
        let next = crate::call::query([("next", format!("{tenant}{}{query}", self.path).as_str())]);
        let mut response = redirect(&format!("{}login{next}", self.base()));
        if self.tenant.is_none() && cookie(self.headers, SESSION_COOKIE).is_some() {
            set_cookie(&mut response, &self.cookie_of(SESSION_COOKIE, "", Some(Duration::ZERO)));
        }
        response
    }

    fn login_page(&self, failure: Option<&Failure>, next: &str) -> Response {
        let status = failure.map_or(StatusCode::OK, |failure| failure.status);
        html_response(status, login::page(failure, login::next(next)))
    }

    async fn log_in(&self, token: String, next: &str) -> Response {
        let api = Caller::new(&self.dashboard.api, &self.extensions, self.headers, Some(&token));
        let reader: laneway_wire::Caller = match api.get("/v1/caller").await {
            Ok(reader) => reader,
            Err(failure) => return self.login_page(Some(&failure), next),
        };
        let id = match self.dashboard.sessions.open(token, reader.tenant, Instant::now()) {
            Ok(id) => id,
            Err(_) => {
                let failure =
                    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the system has no random numbers");
                return self.login_page(Some(&failure), next);
            }
        };
        let next = login::next(next);
        let mut response = redirect(&format!("./{next}"));
        set_cookie(&mut response, &self.cookie_of(SESSION_COOKIE, &id, Some(crate::sessions::LIFE)));
        response
    }

    fn log_out(&self) -> Response {
        if let Some(id) = cookie(self.headers, SESSION_COOKIE) {
            self.dashboard.sessions.close(&id);
        }
        let mut response = redirect("./login");
        set_cookie(&mut response, &self.cookie_of(SESSION_COOKIE, "", Some(Duration::ZERO)));
        response
    }

    /// A cookie of the dashboard. It names no path: the browser takes the directory of the request, which is the dashboard's own
    /// path, also behind a proxy that adds a prefix. So only requests to the root of the dashboard may set one.
    fn cookie_of(&self, name: &str, value: &str, life: Option<Duration>) -> String {
        let over_tls = self.dashboard.settings.tls || is_https(self.headers);
        let secure = if over_tls { "; Secure" } else { "" };
        let life = life.map(|life| format!("; Max-Age={}", life.as_secs())).unwrap_or_default();
        format!("{name}={value}; HttpOnly; SameSite=Strict{secure}{life}")
    }

    fn send(&self, reply: Reply) -> Response {
        match reply {
            Reply::Raw(response) => response,
            Reply::Go { to, note } => {
                // The note goes through the root, so that its cookie has the path of the dashboard.
                let note = crate::call::segment(&note).to_string();
                let mut response = redirect(&format!("{}{to}", self.root()));
                let path = format!("; Path={}", self.cookie_path());
                set_cookie(
                    &mut response,
                    &(self.cookie_of(NOTE_COOKIE, &note, Some(Duration::from_secs(30))) + &path),
                );
                response
            }
            Reply::Page(page) => html_response(StatusCode::OK, page.html),
        }
    }

    /// The path of the note's cookie: everything, because a proxy may have added a prefix that the server does not see. The note
    /// is no secret.
    fn cookie_path(&self) -> &'static str {
        "/"
    }

    fn send_page(
        &self,
        context: &Context,
        status: StatusCode,
        page: Page,
        is_fragment: bool,
        csrf: &str,
    ) -> Response {
        if is_fragment {
            return html_response(status, page.html.replace(&self.dashboard.placeholder, csrf));
        }
        let note = cookie(self.headers, NOTE_COOKIE);
        let shown = note.as_deref().map(|note| percent_decode_str(note).decode_utf8_lossy().into_owned());
        let has_session = cookie(self.headers, SESSION_COOKIE).is_some();
        let html = Shell::new(context, &page, shown.as_deref(), has_session).html();
        let mut response = html_response(status, html.replace(&self.dashboard.placeholder, csrf));
        if note.is_some() {
            let path = format!("; Path={}", self.cookie_path());
            set_cookie(&mut response, &(self.cookie_of(NOTE_COOKIE, "", Some(Duration::ZERO)) + &path));
        }
        response
    }

    fn failed(&self, context: Option<(&Context, bool)>, failure: &Failure) -> Response {
        let html = shell::failure(failure);
        match context {
            Some((context, is_fragment)) => {
                let csrf = self.session().map_or_else(|| self.dashboard.csrf.clone(), |session| session.csrf);
                let page = Page { title: shell::title_of(failure.status).to_owned(), active: "", html };
                self.send_page(context, failure.status, page, is_fragment, &csrf)
            }
            None => html_response(
                failure.status,
                shell::bare(&self.root(), shell::title_of(failure.status), &html),
            ),
        }
    }
}

/// The tenant at the beginning of a path, and the rest: `@acme/jobs`. Without a rest, the slash after the tenant is missing.
fn split_tenant(path: &str) -> Option<(String, Option<&str>)> {
    let named = path.strip_prefix('@')?;
    let (tenant, rest) = match named.split_once('/') {
        Some((tenant, rest)) => (tenant, Some(rest)),
        None => (named, None),
    };
    Some((percent_decode_str(tenant).decode_utf8_lossy().into_owned(), rest))
}

/// The parts of a path, decoded.
fn segments(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect()
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.to_owned())
        .filter(|value| !value.is_empty())
}

/// True when the browser says that it speaks TLS, to a proxy in front of the server.
fn is_https(headers: &HeaderMap) -> bool {
    let begins = |name: &str, start: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.starts_with(start))
    };
    begins("origin", "https://") || begins("x-forwarded-proto", "https")
}

fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, value);
    }
}

/// A response that leads to another page.
pub fn redirect(to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(value) = HeaderValue::from_str(to) {
        response.headers_mut().insert(LOCATION, value);
    }
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    response
}

/// A response with HTML.
pub fn html_response(status: StatusCode, html: String) -> Response {
    let mut response = Response::new(Body::from(html));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// The answer for a path without a page.
pub fn no_page() -> Answer {
    Err(Failure::new(StatusCode::NOT_FOUND, "this page does not exist"))
}

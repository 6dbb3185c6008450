//! The dashboard from outside: as HTTP, and in real Chromium.
//!
//! Tests that need Chromium fail without it: install it (`apt-get install chromium`). Their screenshots are kept in
//! `dashboard-screenshots` of the target folder.

mod buttons;
mod chromium;
mod content;
mod hostile;
mod job_changes;
mod pages;
mod pictures;
mod roles;

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::Server;

/// Longer than anything here takes, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server, and a browser without pictures: cookies and redirects are handled by the test.
struct World {
    server: Server,
    client: Client,
    _dir: TempDir,
}

impl World {
    fn new(flags: &[&str]) -> World {
        World::over(TempDir::new().unwrap(), flags)
    }

    /// A server over a data directory that exists.
    fn over(dir: TempDir, flags: &[&str]) -> World {
        let server = Server::start(dir.path(), flags);
        let client = Client::builder().redirect(Policy::none()).timeout(PATIENCE).build().unwrap();
        World { server, client, _dir: dir }
    }

    fn at(&self, path: &str) -> String {
        format!("{}/ui/{path}", self.server.url)
    }

    async fn get(&self, path: &str, cookie: &str) -> Response {
        self.client.get(self.at(path)).header("cookie", cookie).send().await.unwrap()
    }

    /// Sends a form.
    async fn post(&self, path: &str, cookie: &str, fields: &[(&str, &str)]) -> Response {
        let mut body = reqwest::Url::parse("http://x/").unwrap();
        body.query_pairs_mut().extend_pairs(fields);
        self.client
            .post(self.at(path))
            .header("cookie", cookie)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body.query().unwrap_or_default().to_owned())
            .send()
            .await
            .unwrap()
    }

    /// Calls the API.
    async fn call(&self, method: &str, path: &str, token: &str, body: Value) -> Value {
        let method = method.parse().unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.server.url));
        if !body.is_null() {
            request = request.json(&body);
        }
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// A token of a role, for the tenant `default`, or for the whole server.
    async fn token(&self, admin: &str, role: &str, tenant: &str) -> String {
        let token = self.call("POST", "/v1/tokens", admin, json!({"role": role, "tenant": tenant})).await;
        token["secret"].as_str().unwrap().to_owned()
    }

    /// Logs in, and returns the cookie.
    async fn log_in(&self, token: &str) -> String {
        let response = self.post("login", "", &[("token", token)]).await;
        assert_eq!(response.status(), 303, "{}", response.text().await.unwrap());
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    /// The value against forged requests in a page.
    async fn csrf(&self, cookie: &str) -> String {
        let page = self.get("lanes", cookie).await.text().await.unwrap();
        match page.split_once("name=\"csrf\" value=\"") {
            Some((_, rest)) => rest.split('"').next().unwrap().to_owned(),
            None => String::new(),
        }
    }

    /// Waits until a job is in a state.
    async fn until(&self, job: &str, token: &str, state: &str) {
        let wait = async {
            while self.call("GET", &format!("/v1/jobs/{job}?wait=1s"), token, Value::Null).await["state"]
                != state
            {}
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap();
    }

    /// Waits until a resource is as it should be: it is read again after each event.
    async fn until_at(&self, path: &str, is_reached: impl Fn(&Value) -> bool) {
        let wait = async {
            let mut events = self.client.get(format!("{}/v1/events", self.server.url)).send().await.unwrap();
            while !is_reached(&self.call("GET", path, "", Value::Null).await) {
                events.chunk().await.unwrap().expect("the server has a stream of events");
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            panic!("{path} stays {}", self.call("GET", path, "", Value::Null).await);
        }
    }
}

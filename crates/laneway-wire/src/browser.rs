//! Open browsers on the server's machine, and their tabs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An open browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenBrowser {
    /// Its profile.
    pub profile: String,
    /// The process id of Chromium.
    pub pid: u32,
    /// The port of DevTools on the loopback address of the server's machine.
    pub debug_port: u16,
    /// The URL of DevTools, for programs on the server's machine. A program that knows it controls the browser.
    pub devtools_url: String,
    /// When it was started.
    pub started_at: String,
    /// The job that started it.
    pub job_id: String,
}

/// The open browsers of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrowserList {
    /// The browsers, by profile.
    pub browsers: Vec<OpenBrowser>,
    /// How many browsers of the tenant may be open. A start beyond that waits.
    pub limit: u32,
}

/// A tab of an open browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrowserTab {
    /// Its id. Jobs of the kind `tab_action` name it.
    pub id: String,
    /// The address that it shows.
    pub url: String,
    /// The title of its page.
    pub title: String,
}

/// The tabs of an open browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrowserTabList {
    /// The tabs.
    pub tabs: Vec<BrowserTab>,
}

/// How to start a browser.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartBrowserRequest {
    /// True: without a window. Defaults to `browsers.headless` of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headless: Option<bool>,
    /// The page that the first tab opens: an `http`, `https`, `file` or `about` URL. Defaults to an empty page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "https://example.com/")]
    pub url: Option<String>,
}

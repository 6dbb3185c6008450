//! Why an action failed.

use crate::devtools::DevToolsError;

/// Why an action failed, in terms that an operator understands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// No element matches.
    #[error("no element matches {0}")]
    NoElement(String),
    /// The selector is not valid.
    #[error("the selector {selector} is not valid: {reason}")]
    BadSelector {
        /// Which one.
        selector: String,
        /// The browser's reason.
        reason: String,
    },
    /// The element cannot be used in this way.
    #[error("the element {element} {reason}")]
    NotUsable {
        /// Which one.
        element: String,
        /// Why.
        reason: String,
    },
    /// There is no such frame.
    #[error("no frame matches {0}; give the selector of an <iframe>")]
    NoFrame(String),
    /// The reference is not of the latest snapshot of the page.
    #[error("there is no element with the ref {0}; take a new snapshot of the page")]
    StaleRef(String),
    /// The address may not be opened.
    #[error("the URL {url} is not allowed: {reason}")]
    UrlNotAllowed {
        /// The address.
        url: String,
        /// Why.
        reason: String,
    },
    /// The page could not be loaded.
    #[error("cannot load {url}: {reason}")]
    Navigation {
        /// The address.
        url: String,
        /// Chromium's reason, such as `net::ERR_NAME_NOT_RESOLVED`.
        reason: String,
    },
    /// JavaScript of the caller threw an error.
    #[error("the script failed in the page: {0}")]
    Evaluate(String),
    /// The result has more bytes than it may have.
    #[error("the result has more than {bytes_max} bytes")]
    ResultTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The action did not end in time.
    #[error("{waiting_for} did not happen within {limit_ms} ms")]
    TimedOut {
        /// What was waited for.
        waiting_for: String,
        /// The limit.
        limit_ms: u64,
    },
    /// The caller canceled the action.
    #[error("the action was canceled")]
    Canceled,
    /// The process of the tab crashed.
    #[error("the tab crashed")]
    TabCrashed,
    /// The tab was closed, or the browser ended.
    #[error("the tab is closed")]
    Closed,
    /// The browser rejected a command of the action.
    #[error("{0}")]
    DevTools(DevToolsError),
}

impl PageError {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            PageError::NoElement(_) => "element_not_found",
            PageError::BadSelector { .. } => "bad_selector",
            PageError::NotUsable { .. } => "element_not_usable",
            PageError::NoFrame(_) => "frame_not_found",
            PageError::StaleRef(_) => "stale_ref",
            PageError::UrlNotAllowed { .. } => "url_not_allowed",
            PageError::Navigation { .. } => "navigation_failed",
            PageError::Evaluate(_) => "evaluate_failed",
            PageError::ResultTooLarge { .. } => "result_too_large",
            PageError::TimedOut { .. } => "timed_out",
            PageError::Canceled => "canceled",
            PageError::TabCrashed => "tab_crashed",
            PageError::Closed => "tab_closed",
            PageError::DevTools(_) => "devtools_failed",
        }
    }

    /// True if a time limit was the reason.
    pub fn is_timeout(&self) -> bool {
        matches!(self, PageError::TimedOut { .. } | PageError::DevTools(DevToolsError::Silent { .. }))
    }
}

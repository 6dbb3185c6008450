//! The style sheet, the script and the icon of the pages.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use sha2::{Digest, Sha256};

/// A file that pages load.
pub struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

static FILES: [Asset; 3] = [
    Asset { name: "style.css", kind: "text/css; charset=utf-8", text: include_str!("../assets/style.css") },
    Asset { name: "app.js", kind: "text/javascript; charset=utf-8", text: include_str!("../assets/app.js") },
    Asset { name: "icon.svg", kind: "image/svg+xml", text: include_str!("../assets/icon.svg") },
];

/// Names the state of all files. Pages add it to the addresses of files, so that browsers may keep them.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut digest = Sha256::new();
    for file in &FILES {
        digest.update(file.text);
    }
    digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
});

/// The file of a path.
pub fn find(path: &str) -> Option<&'static Asset> {
    let name = path.strip_prefix("assets/")?;
    FILES.iter().find(|file| file.name == name)
}

/// The response with a file.
pub fn respond(file: &Asset, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", *VERSION);
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = Response::new(if is_known { Body::empty() } else { Body::from(file.text) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=86400"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
}

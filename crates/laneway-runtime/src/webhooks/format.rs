//! Formats of webhooks, by name. The APIs that render jobs provide them.

use std::collections::BTreeMap;
use std::sync::Arc;

use laneway_core::{Bytes, Name};
use laneway_store::JobView;

/// The format of jobs that were submitted to the native API.
pub const NATIVE_FORMAT: &str = "laneway";

/// An ended job, as a format gets it.
#[derive(Debug)]
pub struct Ended<'a> {
    /// The job as stored.
    pub job: &'a JobView,
    /// The payload of the job.
    pub payload: &'a Bytes,
}

/// The rendered webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The header `content-type`.
    pub content_type: &'static str,
    /// More headers. Those that the sender sets itself (`webhook-…`, `content-type`, `host`) are not taken from here.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Headers with the time and a plain signature, for receivers that know no Standard Webhooks.
    pub signed: Option<PlainSignature>,
}

/// The names of the headers of a plain signature: `sha256=` and the HMAC of the body in hexadecimal digits. Its key is the
/// text of the tenant's secret as it is configured. Without a secret there is no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSignature {
    /// The header with the seconds since 1970.
    pub timestamp: &'static str,
    /// The header with the signature.
    pub signature: &'static str,
}

/// Turns an ended job into what is sent. Must not block and must give the same for the same job.
pub trait CallbackFormat: Send + Sync {
    /// Renders the webhook of this job.
    fn render(&self, ended: &Ended<'_>) -> Rendered;
}

/// Every format by its name.
#[derive(Clone, Default)]
pub struct Formats(BTreeMap<Name, Arc<dyn CallbackFormat>>);

impl Formats {
    /// None.
    pub fn new() -> Formats {
        Formats::default()
    }

    /// The same, and this one.
    pub fn with(mut self, name: &'static str, format: Arc<dyn CallbackFormat>) -> Formats {
        self.0.insert(Name::fixed(name), format);
        self
    }

    /// The format of that name.
    pub fn get(&self, name: &Name) -> Option<&dyn CallbackFormat> {
        self.0.get(name).map(|format| &**format)
    }
}

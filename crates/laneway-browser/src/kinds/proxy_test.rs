//! The kind `proxy_test`: requests a page through a proxy, and measures how long it takes.

use std::time::Duration;

use laneway_core::{Failure, Outcome};
use laneway_runtime::config::{Secret, is_sealed};
use laneway_runtime::executors::JobContext;
use serde_json::json;

use super::{NotDone, ProxyTestPayload, TestedProxy, succeeded};
use crate::browsers::Browsers;
use crate::profiles::ProxySpec;
use crate::proxy;

/// The owner of an encrypted password in a payload.
pub(super) const PASSWORD_OWNER: &str = "proxy_test";
/// How long a test may take, if the job has no timeout.
const LIMIT: Duration = Duration::from_secs(15);
/// The test ends a little before the attempt does, so that it can say what it waited for.
const MARGIN: Duration = Duration::from_millis(500);

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    let ProxyTestPayload { proxy, url } = ProxyTestPayload::parse(context.payload())?;
    let spec = match proxy {
        TestedProxy::Given(spec) => opened(&browsers, spec)?,
        TestedProxy::OfProfile(id) => {
            let profile = browsers.profiles().active(context.tenant(), &id).await?;
            let none = || Failure::permanent("no_proxy", format!("the profile {id} has no proxy"));
            profile.fields.proxy.ok_or_else(none)?
        }
    };
    let proxy = spec.to_proxy()?;
    let target = url.unwrap_or_else(|| browsers.settings().proxy_test_url.clone());
    let limit = context.time_left().unwrap_or(LIMIT).saturating_sub(MARGIN);
    let tested = tokio::select! {
        biased;
        () = context.cancellation().cancelled() => return Err(NotDone::Canceled),
        tested = proxy::test(&proxy, &target, limit) => tested,
    };
    let report = tested.map_err(|error| Failure {
        retryable: error.retryable(),
        ..Failure::permanent(error.code(), error.to_string())
    })?;
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    succeeded(&json!({
        "ok": true,
        "status": report.status,
        "connectMs": ms(report.connect),
        "totalMs": ms(report.total),
        "address": report.address.map(|address| address.to_string()),
    }))
}

/// The proxy with its password decrypted.
fn opened(browsers: &Browsers, mut spec: ProxySpec) -> Result<ProxySpec, Failure> {
    if let Some(sealed) = spec.password.as_ref().filter(|password| is_sealed(password.reveal())) {
        let opened = browsers.secret_key().and_then(|key| key.open_text(PASSWORD_OWNER, sealed.reveal()));
        let opened = opened.ok_or_else(|| {
            let message = "the password of the proxy cannot be decrypted: secret.key has changed since the job was submitted; submit it again";
            Failure::permanent("password_unreadable", message)
        })?;
        spec.password = Some(Secret::new(&opened));
    }
    Ok(spec)
}

//! The routers of a running scheduler: the native API with the dialects, MCP and the dashboard, and one for each dialect with its
//! own port.

use std::sync::Arc;

use axum::Router;
use axum::http::Extensions;
use laneway::{DashboardSettings, Laneway, McpSettings};
use laneway_api::{Api, Peer, router, router_of, router_with};
use laneway_compat::agent_turn::is_allowed;
use laneway_dashboard::{Dashboard, Settings as DashboardMount};
use laneway_runtime::config::{Config, Mount};
use tokio_util::sync::CancellationToken;

use crate::dialects;
use crate::exit::{CliError, Exit};
use crate::mcp;

/// The routers, and what they belong to.
pub struct Apps {
    /// The state that they share.
    pub api: Api,
    /// The router of the main port.
    pub main: Router,
    /// Each dialect of the main port, with its prefix.
    pub beside: Vec<(&'static str, String)>,
    /// Each dialect with its own port.
    pub apart: Vec<(&'static str, Mount, Router)>,
    /// The path of the dashboard.
    pub dashboard: Option<String>,
}

impl Apps {
    /// Builds them. Their streams end with `stop`.
    pub fn of(laneway: &Laneway, config: &Config, stop: &CancellationToken) -> anyhow::Result<Apps> {
        let api = Api::new(laneway.scheduler().clone(), laneway.live_config().clone(), is_allowed)?;
        if let Some(browsers) = laneway.browsers() {
            api.serve_browsers(browsers.clone());
        }
        api.resume_operations();
        let (apart, beside): (Vec<_>, Vec<_>) = dialects::switched_on(laneway, &config.dialects)
            .into_iter()
            .partition(|(_, mount)| mount.listen.is_some());
        let names: Vec<_> =
            beside.iter().map(|(dialect, mount)| (dialect.name, mount.prefix.clone())).collect();
        check_prefix(config, names.iter().map(|(name, prefix)| (*name, prefix.as_str())))?;
        let mut mounted: Vec<_> = beside.into_iter().map(|(dialect, _)| dialect).collect();
        if McpSettings::of(config).is_some_and(|mcp| mcp.enabled) {
            mounted.push(mcp::endpoint(&api, stop.clone()));
        }
        let app = router_with(api.clone(), mounted)
            .map_err(|clash| CliError::new(Exit::Config, clash.to_string()))?;
        let (main, dashboard) = with_dashboard(app, &api, config, stop)?;
        let apart = apart
            .into_iter()
            .map(|(dialect, mount)| (dialect.name, mount, router_of(&api, dialect)))
            .collect();
        Ok(Apps { api, main, beside: names, apart, dashboard })
    }
}

/// Adds the dashboard to the main port, if it is switched on. The result has its path.
fn with_dashboard(
    app: Router,
    api: &Api,
    config: &Config,
    stop: &CancellationToken,
) -> anyhow::Result<(Router, Option<String>)> {
    let Some(DashboardSettings { prefix, .. }) =
        DashboardSettings::of(config).filter(|settings| settings.enabled)
    else {
        return Ok((app, None));
    };
    let defaults = Config::builtin(laneway::config_schema()).to_json();
    let mount = DashboardMount {
        prefix: prefix.clone(),
        tls: config.server.tls.is_some(),
        defaults: Arc::new(defaults),
        closing: stop.clone(),
        carry,
    };
    let dashboard = Dashboard::new(router(api.clone()), mount)?;
    api.serve_dashboard(prefix);
    Ok((app.merge(dashboard.routes()), Some(prefix.clone())))
}

/// The dashboard and a dialect cannot have the same path.
fn check_prefix<'a>(
    config: &Config,
    dialects: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), CliError> {
    let Some(DashboardSettings { enabled: true, prefix }) = DashboardSettings::of(config) else {
        return Ok(());
    };
    let below = |path: &str| path == prefix || path.starts_with(&format!("{prefix}/"));
    match dialects.into_iter().find(|(_, path)| below(path)) {
        None => Ok(()),
        Some((dialect, path)) => Err(CliError::new(
            Exit::Config,
            format!(
                "dialects.{dialect}.prefix is {path:?}, the path of the dashboard; change dashboard.prefix"
            ),
        )),
    }
}

/// What the gate of the API needs to know of a connection.
fn carry(from: &Extensions) -> Extensions {
    let mut carried = Extensions::new();
    if let Some(peer) = from.get::<Peer>() {
        carried.insert(peer.clone());
    }
    carried
}

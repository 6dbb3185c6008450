//! The schema of the configuration: the native sections, the dialects, the browsers, the dashboard, the cluster,
//! MCP, OpenTelemetry, and the instances of browser tabs.

use std::sync::{Arc, LazyLock};

use laneway_browser::{BROWSERS, INSTANCES};
use laneway_runtime::config::Schema;
use laneway_runtime::otel::OTEL;

use crate::cluster::CLUSTER;
use crate::dashboard::DASHBOARD;
use crate::mcp_settings::MCP;

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    Schema::new(&laneway_compat::SECTIONS, &[&INSTANCES], &[&BROWSERS, &DASHBOARD, &CLUSTER, &MCP, &OTEL])
});

/// Every section that the configuration may have, with its defaults.
pub fn config_schema() -> &'static Arc<Schema> {
    &SCHEMA
}

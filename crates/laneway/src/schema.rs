//! The schema of the configuration: the native sections, the dialects, the browsers, the dashboard, and the instances of browser tabs.

use std::sync::{Arc, LazyLock};

use laneway_browser::{BROWSERS, INSTANCES};
use laneway_runtime::config::Schema;

use crate::dashboard::DASHBOARD;

static SCHEMA: LazyLock<Arc<Schema>> =
    LazyLock::new(|| Schema::new(&laneway_compat::SECTIONS, &[&INSTANCES], &[&BROWSERS, &DASHBOARD]));

/// Every section that the configuration may have, with its defaults.
pub fn config_schema() -> &'static Arc<Schema> {
    &SCHEMA
}

//! The pages, one file each, and the paths that lead to them.

mod agents;
mod audit;
mod browsers;
mod capacity;
mod job;
mod jobs;
mod lanes;
mod operations;
mod overview;
mod runs;
mod schedules;
mod sessions;
mod settings;
mod tenants;
mod webhooks;
mod workers;

use crate::context::{Answer, Context};
use crate::dashboard::no_page;

/// Answers a request for a page.
pub async fn read(context: &Context, path: &[&str]) -> Answer {
    match path {
        [] => overview::show(context).await,
        ["jobs"] => jobs::list(context).await,
        ["jobs", id] => job::show(context, id).await,
        ["jobs", id, "payload"] => job::download_payload(context, id).await,
        ["jobs", id, "result"] => job::download_result(context, id).await,
        ["artifacts", id] => job::download_artifact(context, id).await,
        ["operations"] => operations::list(context).await,
        ["operations", id] => operations::show(context, id).await,
        ["runs"] => runs::list(context).await,
        ["runs", id] => runs::show(context, id).await,
        ["schedules"] => schedules::list(context).await,
        ["schedules", id] => schedules::show(context, id).await,
        ["sessions"] => sessions::list(context).await,
        ["sessions", key] => sessions::show(context, key).await,
        ["lanes"] => lanes::list(context).await,
        ["lanes", name] => lanes::show(context, name).await,
        ["agents"] => agents::list(context).await,
        ["workers"] => workers::list(context).await,
        ["capacity"] => capacity::show(context).await,
        ["browsers"] => browsers::list(context).await,
        ["webhooks"] => webhooks::list(context).await,
        ["webhooks", id] => webhooks::show(context, id).await,
        ["audit"] => audit::list(context).await,
        ["settings"] => settings::show(context).await,
        ["tenants"] => tenants::list(context).await,
        _ => no_page(),
    }
}

/// Answers a form.
pub async fn change(context: &Context, path: &[&str]) -> Answer {
    match path {
        ["jobs", "selected"] => jobs::act_on_selected(context).await,
        ["jobs", id, action @ ("cancel" | "retry" | "reschedule" | "priority" | "delete")] => {
            job::act(context, id, action).await
        }
        ["operations"] => operations::start(context).await,
        ["operations", id, "cancel"] => operations::cancel(context, id).await,
        ["runs", id, "cancel"] => runs::cancel(context, id).await,
        ["schedules", id, action @ ("pause" | "resume" | "fire")] => {
            schedules::act(context, id, action).await
        }
        ["sessions", "reset"] => sessions::reset_all(context).await,
        ["sessions", key, action @ ("stop" | "stopall" | "reset")] => {
            sessions::act(context, key, action).await
        }
        ["lanes", name, action @ ("pause" | "resume")] => lanes::act(context, name, action).await,
        ["lanes", name, "limits"] => lanes::change_limits(context, name).await,
        ["workers", id, action @ ("drain" | "resume")] => workers::act(context, id, action).await,
        ["leases", id, "revoke"] => capacity::revoke(context, id).await,
        ["browsers", profile, action @ ("start" | "stop")] => browsers::act(context, profile, action).await,
        ["webhooks", id, "replay"] => webhooks::replay(context, id).await,
        ["settings"] => settings::change(context).await,
        ["settings", "reload"] => settings::reload(context).await,
        _ => no_page(),
    }
}

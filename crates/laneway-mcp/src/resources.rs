//! Resources: a job and a run by their ids.

use rmcp::model::ResourceTemplate;

use crate::api::{ApiRequest, escape};

/// The type of every resource.
pub const JSON: &str = "application/json";

/// The templates, always in the same order.
pub fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("laneway://jobs/{id}", "job")
            .with_title("A job")
            .with_description("A job: its state, attempts, progress, result or error.")
            .with_mime_type(JSON),
        ResourceTemplate::new("laneway://runs/{id}", "run")
            .with_title("A workflow run")
            .with_description("A workflow run: its state, and the job of each node.")
            .with_mime_type(JSON),
    ]
}

/// The request that reads a resource.
pub fn request(uri: &str) -> Option<ApiRequest> {
    let (noun, id) = uri.strip_prefix("laneway://")?.split_once('/')?;
    let is_id =
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    (is_id && matches!(noun, "jobs" | "runs")).then(|| ApiRequest::get(format!("/v1/{noun}/{}", escape(id))))
}

#[cfg(test)]
mod tests {
    use super::request;

    #[test]
    fn only_jobs_and_runs_are_resources() {
        let path = |uri| request(uri).map(|request| request.path);
        assert_eq!(path("laneway://jobs/0199-a").as_deref(), Some("/v1/jobs/0199-a"));
        assert_eq!(path("laneway://runs/run_0199").as_deref(), Some("/v1/runs/run_0199"));
        for foreign in [
            "laneway://tokens/1",
            "laneway://jobs/",
            "laneway://jobs/1/payload",
            "file:///etc/passwd",
            "laneway://jobs/..",
            "",
        ] {
            assert_eq!(path(foreign), None, "{foreign}");
        }
    }
}

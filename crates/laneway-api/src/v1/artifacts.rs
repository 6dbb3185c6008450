//! Artifacts: listed, and downloaded through their worker, or from a file of this server.

use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use laneway_core::{Name, Span, Wall};
use laneway_runtime::store::{LogView, Reader, StoreError};
use laneway_runtime::{ARTIFACTS, ArtifactId, LOCAL_WORKER, PartTrouble};
use laneway_wire::{ArtifactList, JobArtifact, Problem};

use crate::api::Api;
use crate::auth::Caller;
use crate::download::{Download, Holder, NotBegun, Source};
use crate::error::{ApiError, Code};
use crate::query::{Call, NoParameters, PathArtifact, PathJob};
use crate::range::Wanted;
use crate::reply::{self, Answer};
use crate::v1::jobs;

/// The log lines that are read at once when all of them are scanned.
const LOG_PAGE: usize = 1_000;
/// When a worker that is away may be back. It tries to reconnect within seconds.
const AWAY_RETRY: Span = Span::secs(5);
/// When a download slot may be free again.
const BUSY_RETRY: Span = Span::secs(1);
/// The longest media type that is sent.
const MIME_LEN_MAX: usize = 100;
/// The longest file name that is sent, in characters.
const NAME_LEN_MAX: usize = 120;

/// Lists the artifacts of a job, in order. An artifact that was reported twice appears once, as it was last reported.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/artifacts", operation_id = "list_job_artifacts", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = ArtifactList), (status = 404, description = "not_found", body = Problem))
)]
pub async fn list_job_artifacts(Call(api, caller): Call, PathJob(id): PathJob, _: NoParameters) -> Answer {
    let view = jobs::find(&api, &caller, id).await?;
    let lines = api.scheduler.read(move |reader| {
        let (mut made, mut after) = (Vec::new(), 0);
        loop {
            let page = reader.logs(view.row.seq, after, LOG_PAGE)?;
            let Some(last) = page.last() else { return Ok(made) };
            after = last.line;
            made.extend(page.into_iter().filter(|line| line.stream.as_str() == ARTIFACTS));
        }
    });
    let mut artifacts: Vec<JobArtifact> = Vec::new();
    for line in lines.await? {
        let Some(artifact) = artifact_of(ArtifactId { job: id, line: line.line }, &line) else { continue };
        artifacts.retain(|known| {
            (&known.worker_id, &known.resource_id) != (&artifact.worker_id, &artifact.resource_id)
        });
        artifacts.push(artifact);
    }
    reply::ok(&ArtifactList { artifacts })
}

/// Downloads an artifact through its worker. Supports one `Range` of bytes.
#[utoipa::path(
    get, path = "/v1/artifacts/{id}", operation_id = "get_artifact", tag = "jobs", params(("id" = String, Path)),
    responses(
        (status = 200, description = "The data", content_type = "application/octet-stream"),
        (status = 206, description = "The bytes of the `Range`", content_type = "application/octet-stream"),
        (status = 404, description = "not_found", body = Problem),
        (status = 409, description = "conflict: the job's result contains the data itself", body = Problem),
        (status = 410, description = "gone: the artifact has expired, or its worker no longer has it", body = Problem),
        (status = 416, description = "range_not_satisfiable", body = Problem),
        (status = 429, description = "too_many: downloads", body = Problem),
        (status = 502, description = "worker_failed: the worker failed to send the artifact", body = Problem),
        (status = 503, description = "worker_away: the worker is not connected", body = Problem),
        (status = 504, description = "worker_timeout: the worker did not respond in time", body = Problem)
    )
)]
pub async fn get_artifact(
    Call(api, caller): Call,
    _: NoParameters,
    PathArtifact(id): PathArtifact,
    headers: HeaderMap,
) -> Answer {
    let (tenant, artifact) = find(&api, &caller, id).await?;
    check(&artifact, id, api.scheduler.wall())?;
    let holder = holder_of(&api, &tenant, id, &artifact.worker_id).await?;
    let slot = api.downloads.admit(&tenant, &holder).ok_or_else(|| {
        let detail =
            "the limit of downloads at once is reached, for this worker, for the tenant or in total; send the request again later";
        later(Code::TooMany, detail, BUSY_RETRY)
    })?;
    let wanted = Wanted::of(&headers);
    let source = Source { api: api.clone(), caller, holder, resource: artifact.resource_id.clone() };
    let download = source.begin(wanted).await.map_err(not_begun)?;
    let headers = headers_of(&artifact, &download, wanted)?;
    let mut response = Response::new(download.body(slot));
    if wanted != Wanted::All {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response.headers_mut().extend(headers);
    Ok(response)
}

/// The artifact and its tenant, if the caller may see its job.
async fn find(api: &Api, caller: &Caller, id: ArtifactId) -> Result<(Name, JobArtifact), ApiError> {
    let no_artifact = || {
        let detail = "the artifact does not exist; `GET /v1/jobs/{id}/artifacts` lists those of a job until its retention ends";
        ApiError::new(Code::NotFound, detail)
    };
    let found = api.scheduler.read(move |reader| line_of(reader, id)).await?;
    let (tenant, line) = found
        .filter(|(tenant, _)| caller.scope().is_none_or(|scope| scope == tenant))
        .ok_or_else(no_artifact)?;
    artifact_of(id, &line).map(|artifact| (tenant, artifact)).ok_or_else(no_artifact)
}

/// The log line of an artifact, and the tenant of its job.
fn line_of(reader: &dyn Reader, id: ArtifactId) -> Result<Option<(Name, LogView)>, StoreError> {
    let Some(view) = reader.job(id.job)? else { return Ok(None) };
    let line = reader.logs(view.row.seq, id.line - 1, 1)?.pop();
    let line = line.filter(|line| line.line == id.line && line.stream.as_str() == ARTIFACTS);
    Ok(line.map(|line| (view.row.spec.tenant, line)))
}

/// The artifact in a log line. `None` when it cannot be read.
fn artifact_of(id: ArtifactId, line: &LogView) -> Option<JobArtifact> {
    let artifact: JobArtifact = serde_json::from_str(&line.text).ok()?;
    Some(JobArtifact { id: id.to_string(), href: id.href(), attempt: line.attempt, ..artifact })
}

/// Checks that the worker can have the artifact.
fn check(artifact: &JobArtifact, id: ArtifactId, now: Wall) -> Result<(), ApiError> {
    if artifact.inline == Some(true) {
        let detail =
            format!("the job's result contains the data itself; read it with GET /v1/jobs/{}", id.job);
        return Err(ApiError::new(Code::Conflict, detail));
    }
    let expires_at = artifact.expires_at.as_deref().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    match expires_at {
        Some(at) if at.as_millisecond() <= now.0 => {
            let detail = format!("the artifact expired at {at}; run the job again to create a new one");
            Err(ApiError::new(Code::Gone, detail))
        }
        _ => Ok(()),
    }
}

/// This server, or the current connection of the worker.
async fn holder_of(api: &Api, tenant: &Name, id: ArtifactId, worker: &str) -> Result<Holder, ApiError> {
    if worker == LOCAL_WORKER {
        return Ok(Holder::Server { tenant: tenant.clone(), job: id.job });
    }
    let view = match Name::new(worker) {
        Ok(worker) => api.scheduler.worker(tenant.clone(), worker).await?,
        Err(_) => None,
    };
    view.and_then(|(view, _)| view.connection).map(Holder::Worker).ok_or_else(away)
}

fn away() -> ApiError {
    let detail = "the worker that has the artifact is not connected; send the request again when it is back";
    later(Code::WorkerAway, detail, AWAY_RETRY)
}

fn later(code: Code, detail: &'static str, retry_after: Span) -> ApiError {
    ApiError { retry_after: Some(retry_after), ..ApiError::new(code, detail) }
}

fn not_begun(error: NotBegun) -> ApiError {
    let trouble = match error {
        NotBegun::OutOfRange(size) => {
            let detail = format!("the artifact has {size} bytes; request a range of those");
            return ApiError::new(Code::RangeNotSatisfiable, detail);
        }
        NotBegun::Trouble(trouble) => trouble,
    };
    match trouble {
        PartTrouble::Away => away(),
        PartTrouble::Missing => {
            let detail = "the worker no longer has the artifact; run the job again to create a new one";
            ApiError::new(Code::Gone, detail)
        }
        PartTrouble::Unknown => {
            let detail = "the worker does not support `resource.read`; update the worker";
            ApiError::new(Code::WorkerFailed, detail)
        }
        PartTrouble::TimedOut => {
            let detail = "the worker did not respond in time; send the request again, and check the worker if that does not help";
            ApiError::new(Code::WorkerTimeout, detail)
        }
        PartTrouble::Busy => {
            let detail = "the worker has too many reads at once; send the request again in a moment";
            later(Code::TooMany, detail, BUSY_RETRY)
        }
        PartTrouble::Failed(why) => {
            let detail = format!("the worker failed to send the artifact: {why}; its log may say more");
            ApiError::new(Code::WorkerFailed, detail)
        }
    }
}

/// The headers of a download. Metadata of the worker is used only where it is harmless, and no browser shows the data
/// as a page of this server.
fn headers_of(artifact: &JobArtifact, download: &Download, wanted: Wanted) -> Result<HeaderMap, ApiError> {
    let text = |key: &str| artifact.metadata.as_ref().and_then(|metadata| metadata.get(key)?.as_str());
    let mime = text("mime_type").filter(|mime| is_mime(mime)).unwrap_or("application/octet-stream");
    let name = text("name").unwrap_or(&artifact.id);
    let value = |text: &str| HeaderValue::from_str(text).map_err(ApiError::internal);
    let Download { size, start, end, .. } = download;
    let mut headers = HeaderMap::from_iter([
        (CONTENT_TYPE, value(mime)?),
        (CONTENT_LENGTH, HeaderValue::from(end - start)),
        (CONTENT_DISPOSITION, value(&disposition(name))?),
        (ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
    ]);
    if wanted != Wanted::All {
        headers.insert(CONTENT_RANGE, value(&format!("bytes {start}-{}/{size}", end - 1))?);
    }
    Ok(headers)
}

/// True for a plain media type such as `image/png`, without parameters.
fn is_mime(text: &str) -> bool {
    let is_token = |token: &str| {
        let signs = b"+-._";
        token.starts_with(|first: char| first.is_ascii_alphanumeric())
            && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || signs.contains(&byte))
    };
    text.len() <= MIME_LEN_MAX
        && text.split_once('/').is_some_and(|(sort, detail)| is_token(sort) && is_token(detail))
}

/// Marks the data as a file with a name: the last part of a path, without characters that are special to a shell, a
/// browser or a reader.
fn disposition(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let kept = |sign: &char| sign.is_alphanumeric() || " ._-()+,=@".contains(*sign);
    let clean: String = last.chars().filter(kept).take(NAME_LEN_MAX).collect();
    let clean = clean.trim_start_matches(['.', ' ', '-']).trim_end_matches(['.', ' ']);
    let clean = if clean.is_empty() { "artifact" } else { clean };
    let plain: String = clean.chars().map(|sign| if sign.is_ascii() { sign } else { '_' }).collect();
    if plain == clean {
        return format!("attachment; filename=\"{plain}\"");
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let escaped: String = clean
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{escaped}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_a_worker_have_a_status_and_a_remedy() {
        let status = |trouble: PartTrouble| {
            let error = not_begun(trouble.into());
            (error.code.status().as_u16(), error.retry_after.is_some())
        };
        assert_eq!(status(PartTrouble::Away), (503, true));
        assert_eq!(status(PartTrouble::Busy), (429, true));
        assert_eq!(status(PartTrouble::Missing), (410, false));
        assert_eq!(status(PartTrouble::Unknown), (502, false));
        assert_eq!(status(PartTrouble::Failed("E.INTERNAL".into())), (502, false));
        assert_eq!(status(PartTrouble::TimedOut), (504, false));
        assert_eq!(not_begun(NotBegun::OutOfRange(3)).code.status().as_u16(), 416);
    }

    #[test]
    fn only_plain_media_types_are_sent() {
        for good in ["image/png", "application/vnd.api+json", "text/plain", "x-y/z.1_2"] {
            assert!(is_mime(good), "{good}");
        }
        let long = format!("a/{}", "b".repeat(MIME_LEN_MAX));
        for bad in
            ["", "png", "/", "a/", "/b", "a/b/c", "text/html; charset=x", "a/b\r\nx: y", "a b/c", &long]
        {
            assert!(!is_mime(bad), "{bad:?}");
        }
    }

    #[test]
    fn file_names_are_harmless() {
        let sent = |name: &str| disposition(name).replace("attachment; ", "");
        assert_eq!(sent("report 1.pdf"), "filename=\"report 1.pdf\"");
        assert_eq!(sent("../../etc/passwd"), "filename=\"passwd\"");
        assert_eq!(sent("C:\\x\\.bashrc"), "filename=\"bashrc\"");
        assert_eq!(sent("a\"; x=\"b\r\nc"), "filename=\"a x=bc\"");
        assert_eq!(sent("für.txt"), "filename=\"f_r.txt\"; filename*=UTF-8''f%C3%BCr.txt");
        assert_eq!(sent("gpj.\u{202e}exe"), "filename=\"gpj.exe\"");
        for nothing in ["", "..", "/", "\u{202e}"] {
            assert_eq!(sent(nothing), "filename=\"artifact\"");
        }
        assert_eq!(sent(&"x".repeat(999)).len(), NAME_LEN_MAX + "filename=\"\"".len());
    }
}

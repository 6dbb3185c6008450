//! Reads the parameters of lists and paths. Unknown and repeated parameters are rejected, as in bodies. So are
//! parameters and bodies of operations that have none, because the client expects an effect of them.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use laneway_browser::{BadPayload, ProfileId};
use laneway_core::nearest::nearest;
use laneway_core::{AttemptId, JobId, JobState, Name, Reason, RunId, ScheduleId, Wall};
use laneway_runtime::ArtifactId;
use laneway_runtime::store::{JobFilter, Search};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::Api;
use crate::auth::Caller;
use crate::body;
use crate::convert;
use crate::error::{ApiError, Code};
use crate::json;

/// The largest and the default number of entries of a page.
pub const LIMIT_MAX: usize = 500;
const LIMIT_DEFAULT: usize = 50;
/// Parameters that may have several values.
const REPEATED: [&str; 2] = ["state", "reason"];
/// The parameters of [`Parameters::job_filter`].
pub const JOB_FILTERS: [&str; 13] = [
    "state",
    "lane",
    "agent",
    "kind",
    "session",
    "tag",
    "error_code",
    "reason",
    "search",
    "created_before",
    "created_after",
    "finished_before",
    "finished_after",
];

/// The API and its caller, which almost every operation needs.
pub struct Call(pub Api, pub Caller);

impl FromRequestParts<Api> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Call, ApiError> {
        Ok(Call(api.clone(), Caller::from_request_parts(parts, api).await?))
    }
}

/// Parameters, in the order of the request.
pub struct Parameters(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Parameters, ApiError> {
        let Query(pairs) = Query::from_request_parts(parts, state).await.map_err(|_| {
            ApiError::new(
                Code::InvalidField,
                "the parameters after ? cannot be read; encode them as name=value&…",
            )
        })?;
        Ok(Parameters(pairs))
    }
}

/// The operation has no parameters.
pub struct NoParameters;

impl<S: Send + Sync> FromRequestParts<S> for NoParameters {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<NoParameters, ApiError> {
        if parts.uri.query().is_none_or(str::is_empty) {
            return Ok(NoParameters);
        }
        Parameters::from_request_parts(parts, state).await?.only(&[]).map(|_| NoParameters)
    }
}

/// The operation has neither parameters nor a body. An empty object is accepted: some clients send one with every
/// POST.
pub struct NoInput;

/// The body that is accepted where none is expected.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl FromRequest<Api> for NoInput {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<NoInput, ApiError> {
        OptionalBody::<Nothing>::from_request(request, api).await.map(|_| NoInput)
    }
}

/// The operation has parameters and no body. An empty object is accepted.
pub struct NoBody;

impl FromRequest<Api> for NoBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<NoBody, ApiError> {
        let (parts, body) = request.into_parts();
        read_optional::<Nothing>(api, &parts.headers, body).await.map(|_| NoBody)
    }
}

/// The body of an operation without parameters. An empty body has the default values.
pub struct OptionalBody<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<Api> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<OptionalBody<T>, ApiError> {
        let (mut parts, body) = request.into_parts();
        NoParameters::from_request_parts(&mut parts, api).await?;
        read_optional(api, &parts.headers, body).await.map(OptionalBody)
    }
}

/// The body, or the default values if it is empty.
async fn read_optional<T: DeserializeOwned + Default>(
    api: &Api,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, ApiError> {
    let bytes = body::read(headers, body, api.config.current().server.body_max).await?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    json::check_content_type(headers)?;
    json::parse(&bytes, json::DEPTH_MAX)
}

/// The body of an operation without parameters.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Api> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<JsonBody<T>, ApiError> {
        let (mut parts, body) = request.into_parts();
        NoParameters::from_request_parts(&mut parts, api).await?;
        json::check_content_type(&parts.headers)?;
        let bytes = body::read(&parts.headers, body, api.config.current().server.body_max).await?;
        json::parse(&bytes, json::DEPTH_MAX).map(JsonBody)
    }
}

/// The name in a path.
pub struct PathName(pub Name);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathName, ApiError> {
        convert::name("the name in the path", &path_text(parts, state).await).map(PathName)
    }
}

/// The job in a path.
pub struct PathJob(pub JobId);

impl<S: Send + Sync> FromRequestParts<S> for PathJob {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathJob, ApiError> {
        convert::job_id(&path_text(parts, state).await).map(PathJob)
    }
}

/// The artifact in a path.
pub struct PathArtifact(pub ArtifactId);

impl<S: Send + Sync> FromRequestParts<S> for PathArtifact {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathArtifact, ApiError> {
        convert::artifact_id(&path_text(parts, state).await).map(PathArtifact)
    }
}

/// The lease in a path.
pub struct PathLease(pub AttemptId);

impl<S: Send + Sync> FromRequestParts<S> for PathLease {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathLease, ApiError> {
        convert::lease_id(&path_text(parts, state).await).map(PathLease)
    }
}

/// The session in a path. Characters such as `/` must be percent-encoded.
pub struct PathKey(pub Name);

impl<S: Send + Sync> FromRequestParts<S> for PathKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathKey, ApiError> {
        convert::session_key("the key in the path", &path_text(parts, state).await).map(PathKey)
    }
}

/// The schedule in a path.
pub struct PathSchedule(pub ScheduleId);

impl<S: Send + Sync> FromRequestParts<S> for PathSchedule {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathSchedule, ApiError> {
        convert::schedule_id(&path_text(parts, state).await).map(PathSchedule)
    }
}

/// The run in a path.
pub struct PathRun(pub RunId);

impl<S: Send + Sync> FromRequestParts<S> for PathRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathRun, ApiError> {
        convert::run_id(&path_text(parts, state).await).map(PathRun)
    }
}

/// The profile in a path.
pub struct PathProfile(pub ProfileId);

impl<S: Send + Sync> FromRequestParts<S> for PathProfile {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathProfile, ApiError> {
        let parsed = ProfileId::parse(&path_text(parts, state).await);
        let bad =
            |bad: BadPayload| ApiError::new(Code::InvalidId, format!("the id in the path {}", bad.message));
        parsed.map(PathProfile).map_err(bad)
    }
}

/// The variable part of the path. Empty when it is not UTF-8.
async fn path_text<S: Send + Sync>(parts: &mut Parts, state: &S) -> String {
    let text = Path::<String>::from_request_parts(parts, state).await;
    text.map(|Path(text)| text).unwrap_or_default()
}

impl Parameters {
    /// Parameters from another source than a path.
    pub fn of(pairs: Vec<(String, String)>) -> Parameters {
        Parameters(pairs)
    }

    /// Rejects parameters that are not in `known`, and repeated ones (except [`REPEATED`]).
    pub fn only(self, known: &[&str]) -> Result<Parameters, ApiError> {
        for (index, (name, _)) in self.0.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let detail = match known {
                    [] => format!("{name}: this path has no parameters"),
                    known => match nearest(name, known.iter().copied()) {
                        Some(meant) => format!("{name}: unknown parameter; did you mean {meant}?"),
                        None => format!("{name}: unknown parameter; use {}", known.join(", ")),
                    },
                };
                let mut error = ApiError::new(Code::UnknownField, detail);
                error.field = Some(name.clone());
                return Err(error);
            }
            if !REPEATED.contains(&name.as_str()) && self.0[..index].iter().any(|(other, _)| other == name) {
                return Err(ApiError::field(name.as_str(), "appears twice; send it once"));
            }
        }
        Ok(self)
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The parameter as a name.
    pub fn name(&self, name: &str) -> Result<Option<Name>, ApiError> {
        self.get(name).map(|value| convert::name(name, value)).transpose()
    }

    /// The parameter as a time.
    fn time(&self, name: &str) -> Result<Option<Wall>, ApiError> {
        self.get(name).map(|value| convert::time(name, value)).transpose()
    }

    /// The parameter as a number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let parse =
            |value: &str| value.parse().map_err(|_| ApiError::field(name, "must be a non-negative integer"));
        self.get(name).map(parse).transpose()
    }

    /// The parameter as a boolean. Absent means false.
    pub fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::field(name, "must be true or false")),
        }
    }

    /// The number of entries of the page.
    pub fn limit(&self) -> Result<usize, ApiError> {
        Ok(self.limit_up_to(LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT))
    }

    /// The requested number of entries, for a list with at most `max`.
    pub fn limit_up_to(&self, max: usize) -> Result<Option<usize>, ApiError> {
        let Some(limit) = self.number("limit")? else { return Ok(None) };
        match usize::try_from(limit) {
            Ok(limit) if (1..=max).contains(&limit) => Ok(Some(limit)),
            _ => Err(ApiError::field("limit", format!("must be from 1 to {max}"))),
        }
    }

    /// The filter of a list of jobs, within `scope`.
    pub fn job_filter(&self, scope: Option<&Name>) -> Result<JobFilter, ApiError> {
        let search = self
            .get("search")
            .map(|text| Search::parse(text).map_err(|error| ApiError::field("search", error.to_string())));
        Ok(JobFilter {
            tenant: scope.cloned(),
            states: self.names("state", &JobState::ALL, JobState::as_str, JobState::parse)?,
            reasons: self.names("reason", &Reason::ALL, Reason::as_str, Reason::parse)?,
            lane: self.name("lane")?,
            agent: self.name("agent")?,
            kind: self.name("kind")?,
            session: self.get("session").map(|key| convert::session_key("session", key)).transpose()?,
            tag: self.name("tag")?,
            error_code: self.name("error_code")?,
            search: search.transpose()?,
            created_before: self.time("created_before")?,
            created_after: self.time("created_after")?,
            finished_before: self.time("finished_before")?,
            finished_after: self.time("finished_after")?,
        })
    }

    /// The requested values, each once: repeated parameters, lists with commas, or both.
    pub fn names<T: Copy + Ord>(
        &self,
        parameter: &str,
        all: &[T],
        name_of: fn(T) -> &'static str,
        parse: fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, ApiError> {
        let mut found = Vec::new();
        let given =
            self.0.iter().filter(|(name, _)| name == parameter).flat_map(|(_, value)| value.split(','));
        for text in given {
            let value = parse(text.trim()).ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|value| name_of(*value)).collect();
                ApiError::field(parameter, format!("must be one or more of {}", names.join(", ")))
            })?;
            if !found.contains(&value) {
                found.push(value);
            }
        }
        found.sort();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> Parameters {
        Parameters(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn reads_states_repeated_or_with_commas() {
        let list = parameters(&[("state", "running,queued"), ("state", "failed"), ("state", "queued")]);
        let states = list.job_filter(None).unwrap().states;
        assert_eq!(states, [JobState::Queued, JobState::Running, JobState::Failed]);
        assert_eq!(
            parameters(&[("state", "lost")]).job_filter(None).unwrap_err().field.as_deref(),
            Some("state")
        );
    }

    #[test]
    fn rejects_unknown_and_repeated_parameters() {
        let error = parameters(&[("lne", "a")]).only(&["lane"]).map(drop).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (Code::UnknownField, Some("lne")));
        let error = parameters(&[("lane", "a"), ("lane", "b")]).only(&["lane"]).map(drop).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (Code::InvalidField, Some("lane")));
    }

    #[test]
    fn bounds_the_page() {
        assert_eq!(parameters(&[]).limit(), Ok(50));
        assert_eq!(parameters(&[("limit", "500")]).limit(), Ok(500));
        for limit in ["0", "501", "-1", "x", "99999999999999999999"] {
            assert_eq!(
                parameters(&[("limit", limit)]).limit().unwrap_err().field.as_deref(),
                Some("limit"),
                "{limit}"
            );
        }
    }
}

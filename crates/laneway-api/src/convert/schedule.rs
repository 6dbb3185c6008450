//! Converts requests about schedules.
//!
//! A timing from here is valid in form. The engine, which knows the time, decides whether it will ever fire.

use std::borrow::Cow;
use std::collections::BTreeMap;

use laneway_core::schedule::{CATCH_UP_MAX, EVERY_MIN, FireMode, JITTER_MAX, Plan};
use laneway_core::{
    Bytes, CatchUp, JobSpec, Name, Overlap, Rejection, RejectionCode, Schedule, SchedulePatch, ScheduleSpec,
    Settings, Span, Timing, TimingError, Wall,
};
use laneway_runtime::config::{format_span, merge_patch};
use laneway_wire::{CatchUpRequest, JobRequest, SchedulePatchRequest, ScheduleRequest, SessionRequest};
use serde_json::Value;
use serde_json::value::RawValue;

use super::session::one_of;
use super::{DefaultNames, SPAN_MAX, span, spec_with, time};
use crate::callback;
use crate::error::{ApiError, Code};
use crate::json::{self, StrictValue};
use crate::render;

/// The largest and the default number of firings in a preview.
const PREVIEW_COUNT_MAX: u32 = 100;
const PREVIEW_COUNT: u32 = 5;

/// The fields of a timing: one of `cron`, `every` and `at`, with its options.
#[derive(Clone, Copy, Default)]
pub struct TimingFields<'a> {
    /// A cron expression.
    pub cron: Option<&'a str>,
    /// Its time zone.
    pub zone: Option<&'a str>,
    /// An interval.
    pub every: Option<&'a str>,
    /// The start of its grid.
    pub anchor: Option<&'a str>,
    /// A single time.
    pub at: Option<&'a str>,
}

/// The spec of a schedule of `tenant`, and the payload of its jobs.
pub fn schedule_spec(
    request: &ScheduleRequest<'_>,
    tenant: &Name,
    settings: &Settings,
    names: &DefaultNames,
    now: Wall,
) -> Result<ScheduleSpec, ApiError> {
    let ScheduleRequest {
        name,
        cron,
        zone,
        every,
        anchor,
        at,
        job,
        enabled,
        catch_up: missed,
        overlap: meets,
        jitter: spread,
        delete_after_run,
    } = request;
    let fields = TimingFields {
        cron: cron.as_deref(),
        zone: zone.as_deref(),
        every: every.as_deref(),
        anchor: anchor.as_deref(),
        at: at.as_deref(),
    };
    Ok(ScheduleSpec {
        tenant: tenant.clone(),
        name: schedule_name(name)?,
        timing: timing(&fields, now)?,
        job: template(job, tenant, settings, names)?,
        payload: payload(job.payload),
        enabled: enabled.unwrap_or(true),
        delete_after_run: *delete_after_run,
        catch_up: missed.as_ref().map(catch_up).transpose()?.unwrap_or_default(),
        overlap: meets.as_deref().map(overlap).transpose()?.unwrap_or_default(),
        jitter: spread.as_deref().map(jitter).transpose()?.unwrap_or_default(),
        note: Bytes::from([]),
        owner: None,
    })
}

/// Converts a patch of a schedule. `null` restores the default.
pub fn schedule_patch(
    request: &SchedulePatchRequest<'_>,
    old: &Schedule,
    settings: &Settings,
    names: &DefaultNames,
    now: Wall,
) -> Result<SchedulePatch, ApiError> {
    let SchedulePatchRequest {
        name,
        cron: _,
        zone: _,
        every: _,
        anchor: _,
        at: _,
        job,
        enabled,
        catch_up: missed,
        overlap: meets,
        jitter: spread,
        delete_after_run,
    } = request;
    let timing = patched_timing(request, old, settings, now)?;
    let one_shot = timing.as_ref().unwrap_or(&old.spec.timing).is_one_shot();
    let (job, payload) = match job {
        None => (None, None),
        Some(raw) if !raw.get().starts_with('{') => {
            return Err(ApiError::field("job", "must be an object with the fields to change"));
        }
        Some(raw) => {
            let (job, payload) = patched_job(raw, old, settings, names)
                .map_err(|error| if error.field.is_none() { error } else { error.within("job") })?;
            (Some(Box::new(job)), payload)
        }
    };
    Ok(SchedulePatch {
        made_from: None,
        name: name.as_deref().map(schedule_name).transpose()?,
        timing,
        job,
        payload,
        enabled: *enabled,
        delete_after_run: delete_after_run.map(|flag| flag.unwrap_or(one_shot)),
        catch_up: or_default(missed.as_ref().map(Option::as_ref), catch_up)?,
        overlap: or_default(meets.as_ref().map(Option::as_deref), overlap)?,
        jitter: or_default(spread.as_ref().map(Option::as_deref), jitter)?,
        note: None,
        owner: None,
    })
}

/// The timing of the fields. Exactly one of `cron`, `every` and `at` must be set.
pub fn timing(fields: &TimingFields<'_>, now: Wall) -> Result<Timing, ApiError> {
    let TimingFields { cron, zone, every, anchor, at } = *fields;
    let timing = match (cron, every, at) {
        (Some(expr), None, None) => {
            Timing::Cron { expr: expr.into(), zone: zone.map(zone_name).transpose()? }
        }
        (None, Some(every), None) => Timing::Every {
            every: interval(every)?,
            anchor: anchor.map(|anchor| time("anchor", anchor)).transpose()?,
        },
        (None, None, Some(at)) => Timing::At(time("at", at)?),
        (None, None, None) => {
            return Err(ApiError::field("cron", "is missing; set one of cron, every and at"));
        }
        _ => {
            let second = if cron.is_some() && every.is_some() { "every" } else { "at" };
            return Err(ApiError::field(second, "is a second timing; set only one of cron, every and at"));
        }
    };
    if zone.is_some() && cron.is_none() {
        return Err(ApiError::field("zone", "is valid with cron only; omit it"));
    }
    if anchor.is_some() && every.is_none() {
        return Err(ApiError::field("anchor", "is valid with every only; omit it"));
    }
    Plan::new(&timing, now).map_err(|error| timing_error(&error))?;
    Ok(timing)
}

/// The API error for an invalid timing.
pub fn timing_error(error: &TimingError) -> ApiError {
    let code = match error {
        TimingError::Past | TimingError::Never => Code::NoFutureRun,
        _ => Code::InvalidField,
    };
    about_field(ApiError::new(code, error.to_string()))
}

/// The API error for a rejection of the engine about a schedule.
pub fn rejected_schedule(rejection: Rejection) -> ApiError {
    let is_about_field = matches!(
        rejection.code,
        RejectionCode::Invalid
            | RejectionCode::NoFutureRun
            | RejectionCode::NameTaken
            | RejectionCode::UnknownKind
    );
    let error = ApiError::from(rejection);
    if is_about_field { about_field(error) } else { error }
}

/// The engine's message begins with its own name of the field. This replaces it with the API's name.
fn about_field(mut error: ApiError) -> ApiError {
    let Some((path, rest)) = error.detail.split_once(": ") else { return error };
    if !path.bytes().all(|b| b.is_ascii_lowercase() || b"._".contains(&b)) {
        return error;
    }
    let field = match path {
        "timing.expr" => "cron".to_owned(),
        "timing.zone" => "zone".to_owned(),
        "timing.every" => "every".to_owned(),
        "timing.at" => "at".to_owned(),
        "catch_up.max" => "catch_up.all".to_owned(),
        "name" | "jitter" => path.to_owned(),
        _ if path.starts_with("job.") => path.to_owned(),
        _ => format!("job.{path}"),
    };
    error.detail = Cow::Owned(format!("{field}: {rest}"));
    error.field = Some(field);
    error
}

/// The mode of a manual fire.
pub fn fire_mode(text: Option<&str>) -> Result<FireMode, ApiError> {
    match text {
        None | Some("force") => Ok(FireMode::Force),
        Some("due") => Ok(FireMode::Due),
        Some(_) => Err(ApiError::field("mode", one_of(&["force", "due"]))),
    }
}

/// The number of firings in a preview.
pub fn preview_count(count: Option<u32>) -> Result<usize, ApiError> {
    match count.unwrap_or(PREVIEW_COUNT) {
        count @ 1..=PREVIEW_COUNT_MAX => Ok(count as usize),
        _ => Err(ApiError::field("count", format!("must be from 1 to {PREVIEW_COUNT_MAX}"))),
    }
}

/// The timing of a patch: a new one, the old one with another zone or anchor, or none.
fn patched_timing(
    request: &SchedulePatchRequest<'_>,
    old: &Schedule,
    settings: &Settings,
    now: Wall,
) -> Result<Option<Timing>, ApiError> {
    let SchedulePatchRequest { cron, zone, every, anchor, at, .. } = request;
    let default_zone = settings.schedules.zone.as_str();
    let zone = zone.as_ref().map(|zone| zone.as_deref().unwrap_or(default_zone));
    let now_text = render::time(now);
    let anchor = anchor.as_ref().map(|anchor| anchor.as_deref().unwrap_or(&now_text));
    let mut fields =
        TimingFields { cron: cron.as_deref(), zone, every: every.as_deref(), anchor, at: at.as_deref() };
    let kept = match &old.spec.timing {
        Timing::Every { every, .. } => format_span(*every),
        _ => String::new(),
    };
    if cron.is_none() && every.is_none() && at.is_none() {
        if zone.is_none() && anchor.is_none() {
            return Ok(None);
        }
        match &old.spec.timing {
            Timing::Cron { expr, .. } => fields.cron = Some(expr),
            Timing::Every { .. } => fields.every = Some(&kept),
            Timing::At(_) => {
                let field = if zone.is_some() { "zone" } else { "anchor" };
                return Err(ApiError::field(field, "is not valid with at; omit it"));
            }
        }
    }
    timing(&fields, now).map(Some)
}

/// The template with the patch merged into it, and the new payload if the patch has one.
fn patched_job(
    raw: &RawValue,
    old: &Schedule,
    settings: &Settings,
    names: &DefaultNames,
) -> Result<(JobSpec, Option<Bytes>), ApiError> {
    let StrictValue(patch) = json::parse_text(raw.get())?;
    let Value::Object(mut patch) = patch else {
        return Err(ApiError::internal("a parsed object is not an object"));
    };
    let payload = match patch.remove("payload") {
        None => None,
        // Read again, to keep the bytes that were sent.
        Some(_) => {
            let fields: BTreeMap<Cow<'_, str>, &RawValue> =
                serde_json::from_str(raw.get()).map_err(ApiError::internal)?;
            Some(payload(fields.get("payload").copied()))
        }
    };
    let job = serde_json::to_value(render::template(&old.spec.job)).map_err(ApiError::internal)?;
    let Value::Object(mut job) = job else {
        return Err(ApiError::internal("a stored template is not an object"));
    };
    merge_patch(&mut job, &patch);
    let text = Value::Object(job).to_string();
    let request: JobRequest<'_> = json::parse_text(&text)?;
    let spec = read_template(&request, &old.spec.tenant, settings, names)?;
    Ok((spec, payload))
}

/// The template of the jobs. Errors name the field within `job`.
fn template(
    request: &JobRequest<'_>,
    tenant: &Name,
    settings: &Settings,
    names: &DefaultNames,
) -> Result<JobSpec, ApiError> {
    read_template(request, tenant, settings, names).map_err(|error| error.within("job"))
}

fn read_template(
    request: &JobRequest<'_>,
    tenant: &Name,
    settings: &Settings,
    names: &DefaultNames,
) -> Result<JobSpec, ApiError> {
    let sent_at =
        matches!(&request.session, Some(SessionRequest::Object(session)) if session.sent_at.is_some());
    for (field, given) in [
        ("not_before", request.not_before.is_some()),
        ("deadline", request.deadline.is_some()),
        ("idempotency_key", request.idempotency_key.is_some()),
        ("session.sent_at", sent_at),
        ("traceparent", request.traceparent.is_some()),
        ("tracestate", request.tracestate.is_some()),
    ] {
        if given {
            return Err(ApiError::field(field, "is set by the schedule; omit it"));
        }
    }
    let spec = spec_with(request, tenant, settings, names, &names.cron, &settings.schedules.retry)?;
    if request.lane.is_some() {
        settings.check_lane(&spec.lane)?;
    }
    // The caller checks the URL, as for jobs.
    Ok(JobSpec { callback: request.callback.as_deref().map(callback::native), ..spec })
}

fn payload(raw: Option<&RawValue>) -> Bytes {
    raw.map_or("null", RawValue::get).as_bytes().into()
}

fn schedule_name(text: &str) -> Result<Name, ApiError> {
    Name::new(text).map_err(|error| ApiError::field("name", error))
}

fn zone_name(text: &str) -> Result<Name, ApiError> {
    Name::new(text).map_err(|error| ApiError::field("zone", error))
}

fn interval(text: &str) -> Result<Span, ApiError> {
    match span("every", text)? {
        span if span < EVERY_MIN => {
            let bounds = (format_span(EVERY_MIN), format_span(SPAN_MAX));
            Err(ApiError::field("every", format!("is out of range; use {} to {}", bounds.0, bounds.1)))
        }
        span => Ok(span),
    }
}

fn catch_up(request: &CatchUpRequest) -> Result<CatchUp, ApiError> {
    match request {
        CatchUpRequest::Name(text) => match text.as_str() {
            "skip" => Ok(CatchUp::Skip),
            "latest" => Ok(CatchUp::Latest),
            "all" => Ok(CatchUp::ALL),
            _ => {
                Err(ApiError::field("catch_up", "must be skip, latest, or an object such as {\"all\": 100}"))
            }
        },
        CatchUpRequest::Object(object) if (1..=CATCH_UP_MAX).contains(&object.all) => {
            Ok(CatchUp::All { max: object.all })
        }
        CatchUpRequest::Object(_) => {
            Err(ApiError::field("catch_up.all", format!("must be from 1 to {CATCH_UP_MAX}")))
        }
    }
}

fn overlap(text: &str) -> Result<Overlap, ApiError> {
    Overlap::parse(text)
        .ok_or_else(|| ApiError::field("overlap", one_of(Overlap::ALL.map(Overlap::as_str).as_slice())))
}

fn jitter(text: &str) -> Result<Span, ApiError> {
    match span("jitter", text)? {
        span if span > JITTER_MAX => {
            Err(ApiError::field("jitter", format!("is longer than {}; use less", format_span(JITTER_MAX))))
        }
        span => Ok(span),
    }
}

/// A field of a patch: absent stays absent, `null` becomes the default.
fn or_default<T: ?Sized, U: Default>(
    given: Option<Option<&T>>,
    read: impl FnOnce(&T) -> Result<U, ApiError>,
) -> Result<Option<U>, ApiError> {
    match given {
        None => Ok(None),
        Some(None) => Ok(Some(U::default())),
        Some(Some(value)) => read(value).map(Some),
    }
}

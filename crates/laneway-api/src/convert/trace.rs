//! Reads the trace context of a caller: from headers, or from the fields of a job.
//!
//! A header that is not valid is ignored, as W3C Trace Context asks: a proxy may have added it. A field that is not valid is
//! an error, because the caller wrote it.

use axum::http::HeaderMap;
use laneway_core::TraceContext;
use laneway_core::trace::TraceError;
use laneway_wire::JobRequest;

use crate::error::ApiError;

/// The header with the caller's trace and span.
const TRACEPARENT: &str = "traceparent";
/// The header with data of tracing systems.
const TRACESTATE: &str = "tracestate";

/// The trace context of the fields `traceparent` and `tracestate`.
pub fn trace_of_request(request: &JobRequest<'_>) -> Result<Option<Box<TraceContext>>, ApiError> {
    let field = |name: &'static str| move |error: TraceError| ApiError::field(name, error);
    match (&request.traceparent, &request.tracestate) {
        // Without a parent, the standard ignores the state.
        (None, _) => Ok(None),
        (Some(parent), state) => {
            let mut context = TraceContext::parse(parent).map_err(field(TRACEPARENT))?;
            if let Some(state) = state {
                context = context.with_state(state).map_err(field(TRACESTATE))?;
            }
            Ok(Some(Box::new(context)))
        }
    }
}

/// The trace context of the headers. `None`: there is none, or it is not valid.
pub fn trace_of_headers(headers: &HeaderMap) -> Option<Box<TraceContext>> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    let context = TraceContext::parse(parent.trim()).ok()?;
    let states: Option<Vec<&str>> =
        headers.get_all(TRACESTATE).iter().map(|state| state.to_str().ok()).collect();
    Some(Box::new(match states {
        Some(states) => context.with_state_of_header(&states.join(",")),
        None => context,
    }))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::error::Code;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn headers_that_are_not_valid_are_ignored() {
        let good = trace_of_headers(&headers(&[
            ("traceparent", PARENT),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ]));
        let good = good.unwrap();
        assert_eq!((good.parent().as_str(), good.state.as_deref()), (PARENT, Some("a=1,b=2")));
        let without_state = trace_of_headers(&headers(&[("traceparent", PARENT), ("tracestate", "?")]));
        assert_eq!(without_state.unwrap().state, None);
        for bad in [
            vec![],
            vec![("tracestate", "a=1")],
            vec![("traceparent", "00-xyz")],
            vec![("traceparent", PARENT), ("traceparent", PARENT)],
        ] {
            assert_eq!(trace_of_headers(&headers(&bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn fields_that_are_not_valid_are_named() {
        let request = |parent: Option<&'static str>, state: Option<&'static str>| JobRequest {
            kind: "k".into(),
            traceparent: parent.map(Into::into),
            tracestate: state.map(Into::into),
            ..JobRequest::default()
        };
        let read = |parent, state| trace_of_request(&request(parent, state));
        assert_eq!((read(None, None).unwrap(), read(None, Some("a=1")).unwrap()), (None, None));
        assert_eq!(read(Some(PARENT), Some("a=1")).unwrap().unwrap().state.as_deref(), Some("a=1"));
        for (parent, state, field) in
            [(Some("00-1-2-3"), None, "traceparent"), (Some(PARENT), Some("no state"), "tracestate")]
        {
            let error = read(parent, state).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (Code::InvalidField, Some(field)));
        }
    }
}

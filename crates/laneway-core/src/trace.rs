//! The trace context of a job: who called (W3C Trace Context), and the ids of the spans of the job.
//!
//! The ids of a job's spans follow from the id of the job alone. So nothing has to be stored for them, and the trace of a job
//! that outlives a crash of the server stays one trace. The runtime exports the spans; this module only names them.

use std::fmt;

use crate::{JobId, JobRow, RunId};

/// Longest `tracestate` that is kept, in bytes: the length that the standard asks every system to pass on.
pub const TRACE_STATE_LEN_MAX: usize = 512;
/// Most members of a `tracestate`.
const TRACE_STATE_MEMBERS_MAX: usize = 32;
/// Longest key and longest value of a member, in bytes.
const TRACE_STATE_PART_MAX: usize = 256;
/// The length of a `traceparent` of version 00.
const TRACE_PARENT_LEN: usize = 55;
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 0x01;
/// The flags that have a meaning: sampled, and a random trace id.
const KNOWN_FLAGS: u8 = 0x03;
/// The part of a trace id that is random in every version of the standard.
const RANDOM_BITS: u32 = 56;

/// The place of a caller in its trace, as the headers `traceparent` and `tracestate` have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace. Never 0.
    pub trace_id: u128,
    /// The caller's span. Never 0.
    pub span_id: u64,
    /// The flags of the trace.
    pub flags: u8,
    /// Data of tracing systems, passed on as it is.
    pub state: Option<Box<str>>,
}

/// Why a text is no trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// It is no `traceparent`.
    Parent,
    /// It is no `tracestate`.
    State,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TraceError::Parent => {
                "must be a traceparent of W3C Trace Context, such as \
                 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            }
            TraceError::State => {
                "must be a tracestate of W3C Trace Context: at most 32 members such as vendor=value, 512 bytes in all"
            }
        })
    }
}

impl std::error::Error for TraceError {}

impl TraceContext {
    /// Reads a `traceparent`. A later version than 00 is read as far as 00 defines it.
    pub fn parse(parent: &str) -> Result<TraceContext, TraceError> {
        let bytes = parent.as_bytes();
        let version = hex_field(bytes, 0, 2).ok_or(TraceError::Parent)?;
        let whole = match version {
            0 => bytes.len() == TRACE_PARENT_LEN,
            0xff => false,
            _ => bytes.len() == TRACE_PARENT_LEN || bytes.get(TRACE_PARENT_LEN) == Some(&b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|&at| bytes.get(at) == Some(&b'-'));
        let fields = (hex_field(bytes, 3, 32), hex_field(bytes, 36, 16), hex_field(bytes, 53, 2));
        match fields {
            (Some(trace_id), Some(span_id), Some(flags))
                if whole && dashes && trace_id != 0 && span_id != 0 =>
            {
                let (span_id, flags) = (span_id as u64, flags as u8 & KNOWN_FLAGS);
                Ok(TraceContext { trace_id, span_id, flags, state: None })
            }
            _ => Err(TraceError::Parent),
        }
    }

    /// The same with a `tracestate`, which must be valid.
    pub fn with_state(self, state: &str) -> Result<TraceContext, TraceError> {
        let members: Vec<&str> =
            state.split(',').map(str::trim).filter(|member| !member.is_empty()).collect();
        if members.len() > TRACE_STATE_MEMBERS_MAX || !members.iter().all(|member| is_member(member)) {
            return Err(TraceError::State);
        }
        let state = members.join(",");
        match state.len() {
            0 => Ok(TraceContext { state: None, ..self }),
            1..=TRACE_STATE_LEN_MAX => Ok(TraceContext { state: Some(state.into()), ..self }),
            _ => Err(TraceError::State),
        }
    }

    /// The same with the `tracestate` of a header. One that is not valid is left out, as the standard asks; of one that is too
    /// long, members at its end are.
    pub fn with_state_of_header(self, state: &str) -> TraceContext {
        let mut state = state;
        loop {
            match self.clone().with_state(state) {
                Ok(context) => return context,
                Err(_) if state.len() > TRACE_STATE_LEN_MAX => match state.rsplit_once(',') {
                    Some((front, _)) => state = front,
                    None => return self,
                },
                Err(_) => return self,
            }
        }
    }

    /// The header `traceparent`.
    pub fn parent(&self) -> String {
        let TraceContext { trace_id, span_id, flags, state: _ } = self;
        format!("00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }

    /// True when the caller records the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

/// A field of lower-case hexadecimal digits.
fn hex_field(bytes: &[u8], at: usize, len: usize) -> Option<u128> {
    let digits = bytes.get(at..at + len)?;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let text = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(is_digit))?;
    u128::from_str_radix(text, 16).ok()
}

/// True for a member such as `vendor=value` or `tenant@vendor=value`.
fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_key_byte = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let is_value_byte = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=';
    (1..=TRACE_STATE_PART_MAX).contains(&key.len())
        && (1..=TRACE_STATE_PART_MAX).contains(&value.len())
        && key.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && key.bytes().all(is_key_byte)
        && value.bytes().all(is_value_byte)
}

/// Which part of the traces without a caller is recorded. Decided by the trace id, so every part of a trace agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Trace ids whose random bits are below this are recorded.
    below: u64,
}

impl Sampling {
    /// Records this part of the traces, from 0 to 1.
    pub fn ratio(ratio: f64) -> Sampling {
        Sampling { below: (ratio.clamp(0.0, 1.0) * (1u64 << RANDOM_BITS) as f64) as u64 }
    }

    fn takes(self, trace_id: u128) -> bool {
        (trace_id as u64 & ((1 << RANDOM_BITS) - 1)) < self.below
    }
}

/// A span of a job or of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanOf {
    /// The admission of a job, or the firing that created it: the parent of all others.
    Submit,
    /// The wait for the attempt of this number.
    Wait(u32),
    /// The attempt of this number.
    Attempt(u32),
    /// The try of this number to send the webhook.
    Webhook(u32),
}

impl SpanOf {
    /// The id of the span.
    pub fn id(self, job: JobId) -> u64 {
        let (role, number) = match self {
            SpanOf::Submit => (1, 0),
            SpanOf::Wait(number) => (2, number),
            SpanOf::Attempt(number) => (3, number),
            SpanOf::Webhook(number) => (4, number),
        };
        derived(job.0, role, number)
    }
}

/// The id of the span of a run: the admission of all its jobs.
pub fn run_span(run: RunId) -> u64 {
    derived(run.0, 5, 0)
}

/// A span id that is not 0, and differs for every (id, role, number).
fn derived(id: u128, role: u64, number: u32) -> u64 {
    let parts = [(id >> 64) as u64, id as u64, role << 32 | u64::from(number)];
    parts.into_iter().fold(0x6c61_6e65_7761_7921, |hash, part| mixed(hash ^ part)).max(1)
}

/// Spreads every bit over the whole number (the finalizer of SplitMix64).
fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The trace of a job while spans are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTrace<'a> {
    /// The job.
    pub job: JobId,
    /// The caller's trace; without one, a trace whose id is that of the job, or of its run.
    pub trace_id: u128,
    /// The span above [`SpanOf::Submit`]: the caller's, or that of the job's run.
    pub parent: Option<u64>,
    /// The flags of the trace.
    pub flags: u8,
    /// The caller's `tracestate`.
    pub state: Option<&'a str>,
}

impl JobTrace<'_> {
    /// The trace of a stored job.
    pub fn of(row: &JobRow, sampling: Sampling) -> JobTrace<'_> {
        let run = row.spec.member.as_ref().map(|member| member.run);
        let caller = row.spec.trace.as_deref();
        let trace_id = caller.map_or_else(|| run.map_or(row.id.0, |run| run.0), |caller| caller.trace_id);
        JobTrace {
            job: row.id,
            trace_id,
            parent: run.map(run_span).or(caller.map(|caller| caller.span_id)),
            flags: caller.map_or_else(|| u8::from(sampling.takes(trace_id)), |caller| caller.flags),
            state: caller.and_then(|caller| caller.state.as_deref()),
        }
    }

    /// True when its spans are recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The context that the work below one of its spans gets.
    pub fn below(&self, span: SpanOf) -> TraceContext {
        TraceContext {
            trace_id: self.trace_id,
            span_id: span.id(self.job),
            flags: self.flags,
            state: self.state.map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written_by_the_rules_of_the_standard() {
        let context = TraceContext::parse(PARENT).unwrap();
        assert_eq!(
            (context.trace_id, context.span_id),
            (0x0af7651916cd43dd8448eb211c80319c, 0xb7ad6b7169203331)
        );
        assert!(context.is_sampled());
        assert_eq!(context.parent(), PARENT);
        // A later version may have more fields; it is passed on as version 00 with the flags that are known.
        let later = TraceContext::parse(&format!("cc{}f-more", &PARENT[2..54])).unwrap();
        assert_eq!(later.parent(), format!("{}03", &PARENT[..53]));
        let trace = &PARENT[3..35];
        for bad in [
            String::new(),
            PARENT.to_uppercase(),
            format!("{PARENT}-"),
            format!("{PARENT} "),
            format!("ff{}", &PARENT[2..]),
            format!("cc{}x", &PARENT[2..]),
            PARENT.replace('-', "_"),
            PARENT.replace(trace, &"0".repeat(32)),
            PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            PARENT.replace("0af7", "+af7"),
            PARENT[..54].to_owned(),
            "é".repeat(28),
        ] {
            assert_eq!(TraceContext::parse(&bad), Err(TraceError::Parent), "{bad}");
        }
    }

    #[test]
    fn a_tracestate_is_checked_member_by_member() {
        let context = || TraceContext::parse(PARENT).unwrap();
        let state = |text: &str| {
            context().with_state(text).map(|context| context.state.unwrap_or_default().into_string())
        };
        assert_eq!(
            state("rojo=00f067aa0ba902b7, t@congo=t61 ,").as_deref(),
            Ok("rojo=00f067aa0ba902b7,t@congo=t61")
        );
        assert_eq!(state("").as_deref(), Ok(""));
        let many = vec!["a=b"; 33].join(",");
        let long = format!("{}=x", "k".repeat(257));
        for bad in ["rojo", "Rojo=1", "a=", "=1", "a=b=c", "a=\u{7f}", "a=ä", &many, &long] {
            assert_eq!(state(bad), Err(TraceError::State), "{bad}");
        }
    }

    #[test]
    fn a_header_that_is_too_long_loses_members_at_its_end() {
        let member = |n: usize| format!("vendor{n}={}", "x".repeat(150));
        let long = (0..6).map(member).collect::<Vec<_>>().join(",");
        let context = TraceContext::parse(PARENT).unwrap();
        let kept = context.clone().with_state_of_header(&long).state.unwrap();
        assert!(
            kept.starts_with("vendor0=") && kept.len() <= TRACE_STATE_LEN_MAX && kept.contains("vendor2=")
        );
        assert_eq!(context.clone().with_state_of_header("not a state"), context);
    }

    #[test]
    fn span_ids_differ_for_every_span_and_are_always_the_same() {
        let mut ids = BTreeSet::new();
        for job in 0..50 {
            let job = JobId((0x0190_a5b0 << 96) | job);
            ids.insert(SpanOf::Submit.id(job));
            for number in 1..=10 {
                ids.extend(
                    [SpanOf::Wait(number), SpanOf::Attempt(number), SpanOf::Webhook(number)]
                        .map(|of| of.id(job)),
                );
            }
            assert_eq!(SpanOf::Attempt(1).id(job), SpanOf::Attempt(1).id(job));
        }
        assert_eq!(ids.len(), 50 * 31);
        assert!(!ids.contains(&0));
    }

    #[test]
    fn sampling_takes_its_part_of_the_traces() {
        let part = |ratio: f64| {
            let sampling = Sampling::ratio(ratio);
            (0..10_000u64).filter(|&n| sampling.takes(mixed(n).into())).count()
        };
        assert_eq!((part(0.0), part(1.0)), (0, 10_000));
        assert!((900..1_100).contains(&part(0.1)), "{}", part(0.1));
    }
}

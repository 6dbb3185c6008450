//! Reads requests of OTLP strictly: an unknown field, a wrong wire type or a broken length is an error.
//!
//! It is written from the published `.proto` files and shares nothing with the code that it checks.

use std::collections::BTreeMap;

/// `SPAN_KIND_INTERNAL`, `SPAN_KIND_SERVER` and `SPAN_KIND_CONSUMER`.
pub const INTERNAL: u64 = 1;
pub const SERVER: u64 = 2;
pub const CONSUMER: u64 = 5;

pub type Attributes = BTreeMap<String, String>;

#[derive(Clone, Debug, Default)]
pub struct Span {
    pub trace_id: String,
    pub span_id: String,
    pub parent: String,
    pub trace_state: String,
    pub name: String,
    pub kind: u64,
    pub start: u64,
    pub end: u64,
    pub attributes: Attributes,
    pub error: Option<String>,
    pub resource: Attributes,
}

#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub resource: Attributes,
    pub names: Vec<String>,
    /// Numbers, as `name{label=value,…}`.
    pub values: BTreeMap<String, f64>,
    /// How many values each histogram has.
    pub counts: BTreeMap<String, u64>,
}

/// The value of a field.
enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

type Read<T> = Result<T, String>;

impl<'a> Value<'a> {
    fn bytes(&self) -> Read<&'a [u8]> {
        if let Value::Bytes(bytes) = self { Ok(bytes) } else { Err("not length-delimited".to_owned()) }
    }

    fn text(&self) -> Read<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|error| error.to_string())
    }

    fn varint(&self) -> Read<u64> {
        if let Value::Varint(number) = self { Ok(*number) } else { Err("not a varint".to_owned()) }
    }

    fn fixed64(&self) -> Read<u64> {
        if let Value::Fixed64(number) = self { Ok(*number) } else { Err("not a fixed64".to_owned()) }
    }

    fn id(&self, len: usize) -> Read<String> {
        let bytes = self.bytes()?;
        match bytes.len() == len && bytes.iter().any(|&byte| byte != 0) {
            true => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            false => Err(format!("an id of {} bytes, or zero", bytes.len())),
        }
    }
}

fn fields(mut rest: &[u8]) -> Read<Vec<(u64, Value<'_>)>> {
    fn take<'a>(rest: &mut &'a [u8], len: usize) -> Read<&'a [u8]> {
        let (taken, left) = rest.split_at_checked(len).ok_or("cut off")?;
        *rest = left;
        Ok(taken)
    }
    fn varint(rest: &mut &[u8]) -> Read<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = take(rest, 1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a varint without an end".to_owned())
    }
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut rest)?),
            1 => Value::Fixed64(u64::from_le_bytes(take(&mut rest, 8)?.try_into().unwrap())),
            2 => {
                let len = varint(&mut rest)? as usize;
                Value::Bytes(take(&mut rest, len)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(take(&mut rest, 4)?.try_into().unwrap())),
            other => return Err(format!("wire type {other}")),
        };
        fields.push((tag >> 3, value));
    }
    Ok(fields)
}

fn unknown<T>(message: &str, field: u64) -> Read<T> {
    Err(format!("{message} has no field {field}"))
}

/// An `ExportTraceServiceRequest`.
pub fn traces(body: &[u8]) -> Read<Vec<Span>> {
    let mut spans = Vec::new();
    for (resource, scope) in scopes(body)? {
        for (field, value) in fields(scope)? {
            match field {
                1 => read_scope(value.bytes()?)?,
                2 => spans.push(Span { resource: resource.clone(), ..span(value.bytes()?)? }),
                other => return unknown("ScopeSpans", other),
            }
        }
    }
    Ok(spans)
}

/// An `ExportMetricsServiceRequest`.
pub fn metrics(body: &[u8]) -> Read<Metrics> {
    let mut metrics = Metrics::default();
    for (resource, scope) in scopes(body)? {
        metrics.resource = resource;
        for (field, value) in fields(scope)? {
            match field {
                1 => read_scope(value.bytes()?)?,
                2 => metric(value.bytes()?, &mut metrics)?,
                other => return unknown("ScopeMetrics", other),
            }
        }
    }
    Ok(metrics)
}

/// The scopes of every resource.
fn scopes(body: &[u8]) -> Read<Vec<(Attributes, &[u8])>> {
    let mut found = Vec::new();
    for (field, of_resource) in fields(body)? {
        if field != 1 {
            return unknown("Export…ServiceRequest", field);
        }
        let (mut resource, mut scopes) = (Attributes::new(), Vec::new());
        for (field, value) in fields(of_resource.bytes()?)? {
            match field {
                1 => {
                    for (field, value) in fields(value.bytes()?)? {
                        match field {
                            1 => resource.extend([attribute(value.bytes()?)?]),
                            other => return unknown("Resource", other),
                        }
                    }
                }
                2 => scopes.push(value.bytes()?),
                other => return unknown("ResourceSpans", other),
            }
        }
        found.extend(scopes.into_iter().map(|scope| (resource.clone(), scope)));
    }
    Ok(found)
}

fn read_scope(bytes: &[u8]) -> Read<()> {
    for (field, value) in fields(bytes)? {
        match field {
            1 if value.text()? == "laneway" => {}
            2 if !value.text()?.is_empty() => {}
            other => return unknown("InstrumentationScope", other),
        }
    }
    Ok(())
}

fn span(bytes: &[u8]) -> Read<Span> {
    let mut span = Span::default();
    for (field, value) in fields(bytes)? {
        match (field, &value) {
            (1, _) => span.trace_id = value.id(16)?,
            (2, _) => span.span_id = value.id(8)?,
            (3, _) => span.trace_state = value.text()?,
            (4, _) => span.parent = value.id(8)?,
            (5, _) => span.name = value.text()?,
            (6, _) => span.kind = value.varint()?,
            (7, _) => span.start = value.fixed64()?,
            (8, _) => span.end = value.fixed64()?,
            (9, _) => {
                let (key, text) = attribute(value.bytes()?)?;
                if span.attributes.insert(key.clone(), text).is_some() {
                    return Err(format!("the attribute {key} twice"));
                }
            }
            (15, _) => span.error = Some(status(value.bytes()?)?),
            (16, Value::Fixed32(flags)) if *flags & 1 == 1 => {}
            (other, _) => return unknown("Span", other),
        }
    }
    if span.trace_id.is_empty() || span.span_id.is_empty() || span.name.is_empty() {
        return Err(format!("a span without an id or a name: {span:?}"));
    }
    Ok(span)
}

fn status(bytes: &[u8]) -> Read<String> {
    let (mut message, mut code) = (String::new(), 0);
    for (field, value) in fields(bytes)? {
        match field {
            2 => message = value.text()?,
            3 => code = value.varint()?,
            other => return unknown("Status", other),
        }
    }
    if code == 2 { Ok(message) } else { Err(format!("the status {code}")) }
}

/// A `KeyValue` whose value is a text or a whole number.
fn attribute(bytes: &[u8]) -> Read<(String, String)> {
    let (mut key, mut text) = (String::new(), None);
    for (field, value) in fields(bytes)? {
        match field {
            1 => key = value.text()?,
            2 => {
                for (field, value) in fields(value.bytes()?)? {
                    text = Some(match field {
                        1 => value.text()?,
                        3 => value.varint()?.cast_signed().to_string(),
                        other => return unknown("AnyValue", other),
                    });
                }
            }
            other => return unknown("KeyValue", other),
        }
    }
    match text {
        Some(text) if !key.is_empty() => Ok((key, text)),
        _ => Err("an attribute without a key or a value".to_owned()),
    }
}

fn metric(bytes: &[u8], into: &mut Metrics) -> Read<()> {
    let mut name = String::new();
    for (field, value) in fields(bytes)? {
        match field {
            1 => {
                name = value.text()?;
                into.names.push(name.clone());
            }
            2 => drop(value.text()?),
            5 | 7 | 9 => data(value.bytes()?, field, &name, into)?,
            other => return unknown("Metric", other),
        }
    }
    Ok(())
}

/// A `Gauge` (5), a `Sum` (7) or a `Histogram` (9).
fn data(bytes: &[u8], sort: u64, name: &str, into: &mut Metrics) -> Read<()> {
    for (field, value) in fields(bytes)? {
        match (sort, field) {
            (9, 1) => {
                *into.counts.entry(name.to_owned()).or_default() += histogram(value.bytes()?)?;
            }
            (_, 1) => {
                let (labels, number) = number(value.bytes()?, sort)?;
                into.values.insert(format!("{name}{labels}"), number);
            }
            // Cumulative, and monotonic.
            (7 | 9, 2) if value.varint()? == 2 => {}
            (7, 3) if value.varint()? == 1 => {}
            (_, other) => return unknown("the data of a metric", other),
        }
    }
    Ok(())
}

fn number(bytes: &[u8], sort: u64) -> Read<(String, f64)> {
    let (mut labels, mut number) = (Attributes::new(), None);
    for (field, value) in fields(bytes)? {
        match field {
            2 if sort == 7 && value.fixed64()? > 0 => {}
            3 if value.fixed64()? > 0 => {}
            4 => number = Some(f64::from_bits(value.fixed64()?)),
            7 => labels.extend([attribute(value.bytes()?)?]),
            other => return unknown("NumberDataPoint", other),
        }
    }
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    Ok((labels, number.ok_or("a point without a value")?))
}

/// How many values a `HistogramDataPoint` has.
fn histogram(bytes: &[u8]) -> Read<u64> {
    let (mut count, mut buckets, mut bounds) = (0, Vec::new(), 0);
    for (field, value) in fields(bytes)? {
        match field {
            2 | 3 if value.fixed64()? > 0 => {}
            4 => count = value.fixed64()?,
            5 if f64::from_bits(value.fixed64()?) >= 0.0 => {}
            6 => {
                let eights = value.bytes()?.chunks(8);
                buckets = eights.map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect();
            }
            7 => bounds = value.bytes()?.len() / 8,
            9 => drop(attribute(value.bytes()?)?),
            other => return unknown("HistogramDataPoint", other),
        }
    }
    match buckets.len() == bounds + 1 && buckets.iter().sum::<u64>() == count {
        true => Ok(count),
        false => Err(format!("{count} values in {buckets:?} with {bounds} bounds")),
    }
}

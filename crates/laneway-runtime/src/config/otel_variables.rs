//! The variables of OpenTelemetry for exporters, such as `OTEL_EXPORTER_OTLP_ENDPOINT`, as keys of `[otel]`.
//!
//! They are weaker than `LANEWAY_OTEL__…`. A value that cannot be used is ignored with a warning, as OpenTelemetry asks: the
//! variables are often set for a whole machine.

use toml::Value;

use super::Secret;
use super::layers::{Layer, Place, put_at};
use super::path::KeyPath;
use super::schema::Schema;

/// The section.
const SECTION: &str = "otel";
/// Switches the exporters of a process off.
const DISABLED: &str = "OTEL_SDK_DISABLED";
/// How requests are encoded; this program sends protobuf over HTTP.
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
/// Which traces are recorded; the part in [`TEXTS`] counts only with one of these.
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const RATIO_SAMPLERS: [&str; 2] = ["traceidratio", "parentbased_traceidratio"];
/// The ratio of the sampler.
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
/// Variables with texts, and the keys that they set.
const TEXTS: [(&str, &str); 3] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "endpoint"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "headers"),
    ("OTEL_SERVICE_NAME", "service_name"),
];

/// The keys that the variables set, and a sentence for each variable whose value cannot be used.
pub(super) fn read(environment: &[(String, String)], schema: &Schema) -> (Layer, Vec<String>) {
    let (mut layer, mut warnings) = (Layer::default(), Vec::new());
    let knows = schema.fixed_sections().iter().any(|section| section.name == SECTION);
    let get = |wanted: &str| {
        let found = environment.iter().find(|(name, _)| name == wanted);
        found.map(|(_, text)| text.as_str()).filter(|text| !text.is_empty())
    };
    if !knows || get(DISABLED).is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return (layer, warnings);
    }
    for (name, key) in TEXTS {
        if let Some(text) = get(name) {
            put(&mut layer, key, (name, text), Value::from(text));
        }
    }
    if let Some(text) = get(SAMPLER_ARG)
        && get(SAMPLER).is_some_and(|sampler| RATIO_SAMPLERS.contains(&sampler))
    {
        match text.trim().parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio)) {
            Some(ratio) => put(&mut layer, "sample", (SAMPLER_ARG, text), Value::from(ratio)),
            None => {
                warnings.push(format!("environment {SAMPLER_ARG} is ignored; write a number from 0 to 1"))
            }
        }
    }
    if get(PROTOCOL).is_some_and(|protocol| protocol != "http/protobuf") {
        warnings.push(format!("environment {PROTOCOL} is ignored; requests are sent as http/protobuf"));
    }
    (layer, warnings)
}

fn put(layer: &mut Layer, key: &str, (name, text): (&str, &str), value: Value) {
    let parts = [SECTION, key];
    put_at(&mut layer.tree, &parts, value).expect("only this module writes into the tree");
    for len in 1..=parts.len() {
        let place = Place::Environment { name: name.to_owned(), text: Secret::new(text) };
        layer.places.insert(KeyPath::of(&parts[..len]), place);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use toml::Table;

    use super::super::{Layers, Overrides};
    use super::*;
    use crate::otel::{OTEL, OtelSettings};

    fn resolved(variables: &[(&str, &str)]) -> (OtelSettings, Vec<String>) {
        let schema: Arc<Schema> = Schema::new(&[], &[], &[&OTEL]);
        let variables = variables.iter().map(|(name, text)| (name.to_string(), text.to_string()));
        let layers = Layers::read(&schema, None, variables, Table::new()).unwrap();
        let config = layers.resolve(&Overrides::none()).unwrap();
        (OtelSettings::of(&config).unwrap().clone(), layers.warnings().to_vec())
    }

    #[test]
    fn variables_of_opentelemetry_are_taken() {
        let (settings, warnings) = resolved(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x=1"),
            ("OTEL_SERVICE_NAME", "jobs"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("LANEWAY_OTEL__SERVICE_NAME", "laneway-eu"),
        ]);
        assert_eq!(settings.endpoint.as_ref().map(|url| url.as_str()), Some("http://collector:4318/"));
        assert_eq!((settings.sample, settings.service_name.as_str()), (0.25, "laneway-eu"));
        assert_eq!(settings.headers.len(), 1);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn a_process_can_be_left_out() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        assert!(resolved(&[endpoint, ("OTEL_SDK_DISABLED", "true")]).0.endpoint.is_none());
        let (settings, warnings) =
            resolved(&[endpoint, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")]);
        assert_eq!((settings.sample, warnings.len()), (1.0, 1));
    }
}

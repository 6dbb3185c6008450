//! Benchmark results: what was measured, beside which limit, and whether the goal is met.

use serde_json::json;

use crate::output::{Output, Paint};
use crate::table::{Cell, Table};

/// One benchmark result.
pub struct Measurement {
    name: String,
    unit: Unit,
    ours: Vec<f64>,
    /// The raw limit, measured alternately with Laneway, and its description.
    raw: Option<(Vec<f64>, &'static str)>,
    goal: Option<Goal>,
}

/// The unit of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A rate per second: more is better.
    PerSecond,
    /// Milliseconds: less is better.
    Millis,
    /// Bytes: less is better.
    Bytes,
}

/// The goal: for the ratio to the raw limit if there is one, else for the result itself.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Measurement {
    /// A result without a raw limit.
    pub fn absolute(name: impl Into<String>, unit: Unit, ours: Vec<f64>, goal: Goal) -> Measurement {
        Measurement { name: name.into(), unit, ours, raw: None, goal: Some(goal) }
    }

    /// A result beside its raw limit, measured alternately: `ours[n]` beside `raw[n]`.
    pub fn beside(
        name: impl Into<String>,
        unit: Unit,
        ours: Vec<f64>,
        raw: Vec<f64>,
        raw_is: &'static str,
        goal: Option<Goal>,
    ) -> Measurement {
        Measurement { name: name.into(), unit, ours, raw: Some((raw, raw_is)), goal }
    }

    /// The median of the ratios of each pair.
    fn ratio(&self) -> Option<f64> {
        let (raw, _) = self.raw.as_ref()?;
        Some(median(&self.ours.iter().zip(raw).map(|(ours, raw)| ours / raw).collect::<Vec<_>>()))
    }

    /// Whether the goal is met. `None`: there is no goal.
    fn met(&self) -> Option<bool> {
        let value = self.ratio().unwrap_or_else(|| median(&self.ours));
        Some(match self.goal? {
            Goal::AtLeast(goal) => value >= goal,
            Goal::AtMost(goal) => value <= goal,
        })
    }

    fn goal_text(&self) -> String {
        let text = |value: f64| match (self.raw.is_some(), self.unit) {
            (true, Unit::PerSecond) => format!("{:.0} %", value * 100.0),
            (true, _) => format!("{value} ×"),
            (false, unit) => unit.text(value),
        };
        match self.goal {
            None => String::new(),
            Some(Goal::AtLeast(goal)) => format!("≥ {}", text(goal)),
            Some(Goal::AtMost(goal)) => format!("≤ {}", text(goal)),
        }
    }

    fn ratio_text(&self) -> String {
        match (self.ratio(), self.unit) {
            (None, _) => String::new(),
            (Some(ratio), Unit::PerSecond) => format!("{:.0} %", ratio * 100.0),
            (Some(ratio), _) => format!("{ratio:.2} ×"),
        }
    }

    fn document(&self) -> serde_json::Value {
        let summary = |values: &[f64]| {
            let (low, high) = spread(values);
            json!({"median": median(values), "min": low, "max": high, "runs": values})
        };
        json!({
            "name": self.name,
            "unit": self.unit.as_str(),
            "ours": summary(&self.ours),
            "raw": self.raw.as_ref().map(|(raw, _)| summary(raw)),
            "raw_is": self.raw.as_ref().map(|(_, what)| what),
            "ratio": self.ratio(),
            "goal": self.goal.map(|_| self.goal_text()),
            "met": self.met(),
        })
    }
}

impl Unit {
    fn as_str(self) -> &'static str {
        match self {
            Unit::PerSecond => "per_second",
            Unit::Millis => "milliseconds",
            Unit::Bytes => "bytes",
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Unit::PerSecond => format!("{}/s", thousands(value)),
            Unit::Millis if value < 10.0 => format!("{value:.2} ms"),
            Unit::Millis => format!("{} ms", thousands(value)),
            Unit::Bytes if value < 1e6 => format!("{:.0} KB", value / 1e3),
            Unit::Bytes => format!("{:.0} MB", value / 1e6),
        }
    }

    fn spread_text(self, values: &[f64]) -> String {
        let (low, high) = spread(values);
        format!("{} … {}", self.text(low), self.text(high))
    }
}

/// Shows all results: a table for people, one document for programs.
pub fn show(output: &Output, measurements: &[Measurement], quick: bool) -> anyhow::Result<()> {
    if output.json {
        let document = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "quick": quick,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "figures": measurements.iter().map(Measurement::document).collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(());
    }
    let mut table = Table::new()
        .left("FIGURE")
        .right("OURS")
        .left("SPREAD")
        .right("RAW")
        .right("RATIO")
        .left("GOAL")
        .left("MET");
    for measurement in measurements {
        let raw =
            measurement.raw.as_ref().map_or(String::new(), |(raw, _)| measurement.unit.text(median(raw)));
        let met = match measurement.met() {
            None => Cell::plain(""),
            Some(true) => Cell::painted("yes", Paint::Green),
            Some(false) => Cell::painted("no", Paint::Red),
        };
        table.row(vec![
            Cell::plain(&measurement.name),
            Cell::plain(measurement.unit.text(median(&measurement.ours))),
            Cell::plain(measurement.unit.spread_text(&measurement.ours)),
            Cell::plain(raw),
            Cell::plain(measurement.ratio_text()),
            Cell::plain(measurement.goal_text()),
            met,
        ]);
    }
    table.print(output);
    for (measurement, raw_is) in
        measurements.iter().filter_map(|measurement| Some((measurement, measurement.raw.as_ref()?.1)))
    {
        println!("{}: beside {raw_is}", measurement.name);
    }
    if quick {
        println!("A quick run: rough results only.");
    }
    Ok(())
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

/// `1234567` as `1,234,567`.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

//! Benchmark results: the values, the raw limit beside them, and whether the goal is met.

use serde_json::json;

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
    /// The result itself is at most this, although there is a raw limit beside it.
    ValueAtMost(f64),
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

    /// The name of the benchmark.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The median of our values as text.
    pub fn ours_text(&self) -> String {
        self.unit.text(median(&self.ours))
    }

    /// The lowest and the highest of our values as text.
    pub fn spread_text(&self) -> String {
        let (low, high) = spread(&self.ours);
        format!("{} … {}", self.unit.text(low), self.unit.text(high))
    }

    /// The median of the raw limit as text, and its description.
    pub fn raw_text(&self) -> Option<(String, &'static str)> {
        self.raw.as_ref().map(|(raw, raw_is)| (self.unit.text(median(raw)), *raw_is))
    }

    /// The median of the ratios of each pair.
    fn ratio(&self) -> Option<f64> {
        let (raw, _) = self.raw.as_ref()?;
        Some(median(&self.ours.iter().zip(raw).map(|(ours, raw)| ours / raw).collect::<Vec<_>>()))
    }

    /// Whether the goal is met. `None`: there is no goal.
    pub fn met(&self) -> Option<bool> {
        let value = self.ratio().unwrap_or_else(|| median(&self.ours));
        Some(match self.goal? {
            Goal::AtLeast(goal) => value >= goal,
            Goal::AtMost(goal) => value <= goal,
            Goal::ValueAtMost(goal) => median(&self.ours) <= goal,
        })
    }

    /// The goal as text; empty if there is none.
    pub fn goal_text(&self) -> String {
        let text = |value: f64| match (self.raw.is_some(), self.unit) {
            (true, Unit::PerSecond) => format!("{:.0} %", value * 100.0),
            (true, _) => format!("{value} ×"),
            (false, unit) => unit.text(value),
        };
        match self.goal {
            None => String::new(),
            Some(Goal::AtLeast(goal)) => format!("≥ {}", text(goal)),
            Some(Goal::AtMost(goal)) => format!("≤ {}", text(goal)),
            Some(Goal::ValueAtMost(goal)) => format!("≤ {}", self.unit.text(goal)),
        }
    }

    /// The ratio to the raw limit as text; empty if there is none.
    pub fn ratio_text(&self) -> String {
        match (self.ratio(), self.unit) {
            (None, _) => String::new(),
            (Some(ratio), Unit::PerSecond) => format!("{:.0} %", ratio * 100.0),
            (Some(ratio), _) => format!("{ratio:.2} ×"),
        }
    }

    /// The result for programs.
    pub fn document(&self) -> serde_json::Value {
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

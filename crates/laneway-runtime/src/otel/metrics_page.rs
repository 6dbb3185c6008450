//! The metrics of `/metrics` as numbers: the page for Prometheus, read back.
//!
//! The registry writes only text. Reading that text back keeps one source for both ways to get metrics: names, labels and
//! values are those of the page, whatever is added to it.

use std::collections::BTreeMap;

/// A metric with all its points.
#[derive(Debug, PartialEq)]
pub(super) struct Metric {
    /// The name on the page; that of a counter ends in `_total`.
    pub(super) name: String,
    pub(super) help: String,
    pub(super) shape: Shape,
    pub(super) points: Vec<Point>,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Counter,
    Gauge,
    Histogram,
}

/// The value of a metric for one set of labels.
#[derive(Debug, PartialEq)]
pub(super) enum Point {
    Number {
        labels: Labels,
        value: f64,
    },
    Histogram {
        labels: Labels,
        count: u64,
        sum: f64,
        /// Upper bounds, the last one infinite, with how many values are in each bucket alone.
        buckets: Vec<(f64, u64)>,
    },
}

type Labels = Vec<(String, String)>;

/// Reads the page. Lines that it does not know are left out.
pub(super) fn read(page: &str) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    let mut help = BTreeMap::new();
    let mut open: Option<Open> = None;
    for line in page.lines() {
        if let Some((name, text)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help.insert(name, text.trim_end_matches('.'));
        } else if let Some((name, shape)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            metrics.extend(open.take().map(Open::finish));
            open = shape_of(shape).map(|shape| Open::new(name, help.get(name).copied(), shape));
        } else if !line.starts_with('#')
            && let Some(open) = &mut open
            && let Some(sample) = Sample::read(line)
        {
            open.take(sample);
        }
    }
    metrics.extend(open.map(Open::finish));
    metrics.retain(|metric| !metric.points.is_empty());
    metrics
}

fn shape_of(text: &str) -> Option<Shape> {
    match text {
        "counter" => Some(Shape::Counter),
        "gauge" => Some(Shape::Gauge),
        "histogram" => Some(Shape::Histogram),
        _ => None,
    }
}

/// A line with a value.
struct Sample<'a> {
    name: &'a str,
    labels: Labels,
    value: f64,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Sample<'a>> {
        let (name, rest) = line.split_at(line.find(['{', ' '])?);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => read_labels(rest)?,
            None => (Vec::new(), rest),
        };
        // A time or an exemplar may follow the value.
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Sample { name, labels, value })
    }
}

/// Reads labels up to the closing brace. Returns them, and what follows.
fn read_labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, value) = rest.split_once("=\"")?;
        let (mut text, mut escaped, mut end) = (String::new(), false, None);
        for (at, letter) in value.char_indices() {
            match (escaped, letter) {
                (true, 'n') => text.push('\n'),
                (true, other) => text.push(other),
                (false, '"') => {
                    end = Some(at + 1);
                    break;
                }
                (false, '\\') => {}
                (false, other) => text.push(other),
            }
            escaped = !escaped && letter == '\\';
        }
        labels.push((name.to_owned(), text));
        rest = &value[end?..];
    }
}

/// A metric whose lines are being read.
struct Open {
    name: String,
    metric: Metric,
    /// Histograms by their labels, in the order of the page.
    histograms: Vec<(Labels, Histogram)>,
}

#[derive(Default)]
struct Histogram {
    count: u64,
    sum: f64,
    /// Upper bounds, each with how many values are at most that.
    cumulative: Vec<(f64, u64)>,
}

impl Open {
    fn new(name: &str, help: Option<&str>, shape: Shape) -> Open {
        let suffix = if shape == Shape::Counter { "_total" } else { "" };
        let metric = Metric {
            name: format!("{name}{suffix}"),
            help: help.unwrap_or_default().to_owned(),
            shape,
            points: Vec::new(),
        };
        Open { name: name.to_owned(), metric, histograms: Vec::new() }
    }

    fn take(&mut self, sample: Sample<'_>) {
        let Sample { name, mut labels, value } = sample;
        if self.metric.shape != Shape::Histogram {
            if name == self.metric.name {
                self.metric.points.push(Point::Number { labels, value });
            }
            return;
        }
        let bound = labels.iter().position(|(name, _)| name == "le").map(|at| labels.remove(at).1);
        let suffix = name.strip_prefix(self.name.as_str());
        let histogram = match self.histograms.iter_mut().position(|(known, _)| *known == labels) {
            Some(at) => &mut self.histograms[at].1,
            None => {
                self.histograms.push((labels, Histogram::default()));
                &mut self.histograms.last_mut().expect("it was pushed").1
            }
        };
        match (suffix, bound) {
            (Some("_sum"), _) => histogram.sum = value,
            (Some("_count"), _) => histogram.count = value as u64,
            (Some("_bucket"), Some(bound)) => {
                histogram.cumulative.push((bound.parse().unwrap_or(f64::INFINITY), value as u64));
            }
            _ => {}
        }
    }

    fn finish(self) -> Metric {
        let Open { mut metric, histograms, .. } = self;
        metric.points.extend(histograms.into_iter().map(|(labels, histogram)| {
            let Histogram { count, sum, cumulative } = histogram;
            let mut below = 0;
            let alone = |(bound, up_to): (f64, u64)| {
                let alone = up_to.saturating_sub(below);
                below = up_to;
                (bound, alone)
            };
            Point::Histogram { labels, count, sum, buckets: cumulative.into_iter().map(alone).collect() }
        }));
        metric
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_metric_is_read_back() {
        let page = "# HELP laneway_jobs What happened to jobs, by lane.\n# TYPE laneway_jobs counter\n\
                    laneway_jobs_total{lane=\"ma\\\"i\\nn\",event=\"started\"} 3\n\
                    # HELP laneway_busy How busy.\n# TYPE laneway_busy gauge\nlaneway_busy -2\n\
                    # TYPE laneway_none counter\n\
                    # HELP laneway_wait Time.\n# TYPE laneway_wait histogram\n\
                    laneway_wait_sum{k=\"a\"} 2.5\nlaneway_wait_count{k=\"a\"} 4\n\
                    laneway_wait_bucket{le=\"0.1\",k=\"a\"} 1\nlaneway_wait_bucket{le=\"1.0\",k=\"a\"} 3\n\
                    laneway_wait_bucket{le=\"+Inf\",k=\"a\"} 4\n# EOF\n";
        let metrics = read(page);
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["laneway_jobs_total", "laneway_busy", "laneway_wait"]);
        assert_eq!(metrics[0].help, "What happened to jobs, by lane");
        let lane = labels(&[("lane", "ma\"i\nn"), ("event", "started")]);
        assert_eq!(metrics[0].points, [Point::Number { labels: lane, value: 3.0 }]);
        assert_eq!(metrics[1].points, [Point::Number { labels: Vec::new(), value: -2.0 }]);
        let buckets = vec![(0.1, 1), (1.0, 2), (f64::INFINITY, 1)];
        let expected = Point::Histogram { labels: labels(&[("k", "a")]), count: 4, sum: 2.5, buckets };
        assert_eq!(metrics[2].points, [expected]);
    }

    #[test]
    fn every_line_of_the_real_page_is_read() {
        let page = crate::metrics::Metrics::new().render();
        let metrics = read(&page);
        let lines = page.lines().filter(|line| !line.starts_with('#')).count();
        let points = metrics.iter().flat_map(|metric| &metric.points);
        let of_point = |point: &Point| match point {
            Point::Number { .. } => 1,
            Point::Histogram { buckets, .. } => 2 + buckets.len(),
        };
        assert_eq!(points.map(of_point).sum::<usize>(), lines, "{page}");
    }
}

//! Charts as SVG. Colors come from the style sheet, so that both themes fit.

use std::fmt::Write as _;

/// One line of a chart.
pub struct Series<'a> {
    /// The class of the line.
    pub class: &'a str,
    /// The values, oldest first. The line has a gap where a value is not a number.
    pub values: &'a [f64],
}

/// The frame of a chart.
pub struct Frame<'a> {
    /// Its width.
    pub width: u32,
    /// Its height.
    pub height: u32,
    /// The value at the top edge. `None`: the highest value.
    pub top: Option<f64>,
    /// What the chart shows, in words.
    pub label: &'a str,
}

/// Lines over time with an area below the first one. Empty text without values.
pub fn lines(series: &[Series<'_>], frame: &Frame<'_>) -> String {
    let points = series.iter().map(|line| line.values.len()).max().unwrap_or(0);
    if points < 2 {
        return String::new();
    }
    let highest = series.iter().flat_map(|line| line.values).copied().fold(0.0_f64, f64::max).max(1.0);
    let top = frame.top.unwrap_or(highest);
    let (w, h) = (f64::from(frame.width), f64::from(frame.height));
    let x = |at: usize| at as f64 * w / (points - 1) as f64;
    let y = |value: f64| (h - 2.0) - value.min(top) / top * (h - 6.0);
    let mut svg = open(frame);
    for (index, line) in series.iter().enumerate() {
        let (mut path, mut is_down) = (String::new(), false);
        for (at, value) in line.values.iter().enumerate() {
            if value.is_finite() {
                let _ = write!(path, "{}{:.1} {:.1}", if is_down { "L" } else { "M" }, x(at), y(*value));
                // A value between two gaps is a dot: a line without length, with round ends.
                let is_alone = !is_down && !line.values.get(at + 1).is_some_and(|next| next.is_finite());
                path.push_str(if is_alone { "h0" } else { "" });
            }
            is_down = value.is_finite();
        }
        if index == 0 && line.values.iter().all(|value| value.is_finite()) {
            let end = x(line.values.len().saturating_sub(1));
            let _ = write!(svg, "<path class=\"area {}\" d=\"{path}L{end:.1} {h}L0 {h}Z\"/>", line.class);
        }
        let _ = write!(svg, "<path class=\"line {}\" d=\"{path}\"/>", line.class);
    }
    svg.push_str("</svg>");
    svg
}

/// Dots for pairs of values. The larger a dot is, the more often its pair occurs. Empty text without pairs.
pub fn dots(pairs: &[(f64, f64)], frame: &Frame<'_>) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let right = pairs.iter().map(|(x, _)| *x).fold(1.0_f64, f64::max);
    let top = frame.top.unwrap_or_else(|| pairs.iter().map(|(_, y)| *y).fold(1.0_f64, f64::max));
    let (w, h) = (f64::from(frame.width), f64::from(frame.height));
    // Dots of the same place are one, so that a page has a bounded number of them.
    let mut places: std::collections::BTreeMap<(i64, i64), u32> = std::collections::BTreeMap::new();
    for (x, y) in pairs {
        let at = (8.0 + x / right * (w - 16.0), (h - 8.0) - y.min(top) / top * (h - 16.0));
        *places.entry((at.0.round() as i64, at.1.round() as i64)).or_default() += 1;
    }
    let mut svg = open(frame);
    for ((x, y), count) in places {
        let width = 6.0 + 2.0 * f64::from(count).sqrt().min(5.0);
        // The chart is stretched, its strokes are not.
        let _ = write!(svg, "<path class=\"dot\" d=\"M{x} {y}h0\" stroke-width=\"{width:.1}\"/>");
    }
    svg.push_str("</svg>");
    svg
}

fn open(frame: &Frame<'_>) -> String {
    let Frame { width, height, label, .. } = frame;
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        escape(label)
    );
    for part in 1..=3 {
        let at = f64::from(*height) * f64::from(part) / 4.0;
        let _ = write!(svg, "<path class=\"grid\" d=\"M0 {at:.1}H{width}\"/>");
    }
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(label: &str) -> Frame<'_> {
        Frame { width: 100, height: 40, top: None, label }
    }

    #[test]
    fn a_chart_stays_inside_of_its_frame_and_escapes_its_label() {
        let values = [0.0, 10.0, 5.0];
        let svg = lines(&[Series { class: "ok", values: &values }], &frame("<b>\"x\""));
        assert!(svg.contains("M0.0 38.0L50.0 4.0L100.0 21.0"), "{svg}");
        assert!(svg.contains("aria-label=\"&lt;b>&quot;x&quot;\""), "{svg}");
        assert_eq!(lines(&[Series { class: "ok", values: &[1.0] }], &frame("x")), "");
    }

    #[test]
    fn a_line_has_gaps_where_nothing_was_measured() {
        let values = [0.0, f64::NAN, 5.0, 10.0];
        let svg = lines(&[Series { class: "ok", values: &values }], &Frame { top: Some(10.0), ..frame("x") });
        assert!(svg.contains("d=\"M0.0 38.0h0M66.7 21.0L100.0 4.0\"") && !svg.contains("area"), "{svg}");
    }

    #[test]
    fn equal_pairs_are_one_dot() {
        let svg = dots(&[(0.0, 0.0), (4.0, 10.0), (4.0, 10.0)], &frame("x"));
        assert_eq!(svg.matches("class=\"dot\"").count(), 2, "{svg}");
        assert!(svg.contains("d=\"M92 8h0\""), "{svg}");
        assert_eq!(dots(&[], &frame("x")), "");
    }
}

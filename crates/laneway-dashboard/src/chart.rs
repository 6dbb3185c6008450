//! Charts as SVG. Colors come from the style sheet, so that both themes fit.

use std::fmt::Write as _;

/// One line of a chart.
pub struct Series<'a> {
    /// The class of the line.
    pub class: &'a str,
    /// The values, oldest first.
    pub values: &'a [f64],
}

/// Lines over time with an area below the first one. Empty text without values.
pub fn lines(series: &[Series<'_>], width: u32, height: u32, label: &str) -> String {
    let points = series.iter().map(|line| line.values.len()).max().unwrap_or(0);
    if points < 2 {
        return String::new();
    }
    let top = series.iter().flat_map(|line| line.values).copied().fold(0.0_f64, f64::max).max(1.0);
    let (w, h) = (f64::from(width), f64::from(height));
    let x = |at: usize| at as f64 * w / (points - 1) as f64;
    let y = |value: f64| (h - 2.0) - value / top * (h - 6.0);
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        escape(label)
    );
    for part in 1..=3 {
        let at = h * f64::from(part) / 4.0;
        let _ = write!(svg, "<path class=\"grid\" d=\"M0 {at:.1}H{width}\"/>");
    }
    for (index, line) in series.iter().enumerate() {
        let mut path = String::new();
        for (at, value) in line.values.iter().enumerate() {
            let _ = write!(path, "{}{:.1} {:.1}", if at == 0 { "M" } else { "L" }, x(at), y(*value));
        }
        if index == 0 {
            let end = x(line.values.len().saturating_sub(1));
            let _ = write!(svg, "<path class=\"area {}\" d=\"{path}L{end:.1} {h}L0 {h}Z\"/>", line.class);
        }
        let _ = write!(svg, "<path class=\"line {}\" d=\"{path}\"/>", line.class);
    }
    svg.push_str("</svg>");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_stays_inside_of_its_frame_and_escapes_its_label() {
        let values = [0.0, 10.0, 5.0];
        let svg = lines(&[Series { class: "ok", values: &values }], 100, 40, "<b>\"x\"");
        assert!(svg.contains("M0.0 38.0L50.0 4.0L100.0 21.0"), "{svg}");
        assert!(svg.contains("aria-label=\"&lt;b>&quot;x&quot;\""), "{svg}");
        assert_eq!(lines(&[Series { class: "ok", values: &[1.0] }], 100, 40, "x"), "");
    }
}

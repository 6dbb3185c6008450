//! Draws measurements over time as SVG: one panel for each value, with a common time axis.

use std::fmt::Write as _;

/// One value over time.
pub(super) struct Panel {
    pub title: &'static str,
    /// One for each second.
    pub values: Vec<f64>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 110.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 26.0;
const GAP: f64 = 38.0;

/// The picture. It has no colors of its own but one, so that it can be read on a dark page, too.
pub(super) fn draw(seconds: u64, panels: &[Panel]) -> String {
    let height = TOP + panels.len() as f64 * (HEIGHT + GAP);
    let width = LEFT + WIDTH + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        draw_panel(&mut svg, TOP + at as f64 * (HEIGHT + GAP), seconds, panel);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, top: f64, seconds: u64, Panel { title, values }: &Panel) {
    let most = round_up(values.iter().copied().fold(0.0, f64::max));
    let x = |at: usize| LEFT + WIDTH * (at + 1) as f64 / seconds.max(1) as f64;
    let y = |value: f64| top + HEIGHT * (1.0 - value / most);
    // Writing to a string does not fail.
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{title}</text>", top - 8.0);
    for part in [0.0, 0.5, 1.0] {
        let (line, value) = (y(most * part), most * part);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{line:.1}\" y2=\"{line:.1}\" stroke=\"#ccc\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            line + 4.0
        );
    }
    for part in 0..=4 {
        let second = seconds * part / 4;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{second} s</text>",
            LEFT + WIDTH * part as f64 / 4.0,
            top + HEIGHT + 15.0
        );
    }
    let points: Vec<String> =
        values.iter().enumerate().map(|(at, value)| format!("{:.1},{:.1}", x(at), y(*value))).collect();
    let _ = writeln!(svg, "<polyline fill=\"none\" stroke=\"#1769aa\" points=\"{}\"/>", points.join(" "));
}

/// The next number with one digit, of which half is a short number, too.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let step = 10f64.powf(value.log10().floor());
    let next =
        [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].into_iter().map(|digit| digit * step).find(|next| *next >= value);
    next.unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_has_its_title_and_its_line() {
        let panels = [
            Panel { title: "one", values: vec![1.0, 3.0, 2.0] },
            Panel { title: "two", values: vec![0.0, 0.0, 0.0] },
        ];
        let svg = draw(3, &panels);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">one</text>") && svg.contains(">two</text>") && svg.ends_with("</svg>\n"));
        // The highest value of the first panel, 3 of 4, at the second second.
        assert!(svg.contains(&format!("{:.1},{:.1}", LEFT + WIDTH * 2.0 / 3.0, TOP + HEIGHT / 4.0)), "{svg}");
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn scales_end_at_short_numbers() {
        for (value, most) in [(0.0, 1.0), (0.03, 0.04), (1.0, 1.0), (37_000.0, 40_000.0), (101.0, 200.0)] {
            assert!((round_up(value) - most).abs() < 1e-9, "{value}: {}", round_up(value));
        }
    }
}

//! Plots predicted against measured values as SVG, with one panel per class.
//!
//! Both axes are logarithmic, with the same range, in the unit of each row. The band is ±25 %.
//! Points are strokes without length, to keep files small.

use std::fmt::Write;

use super::{Class, Validation, ValidationRow};

/// Side and margin of a panel in pixels.
const SIDE: f64 = 200.0;
const MARGIN: f64 = 44.0;
const COLUMNS: usize = 3;
/// Logarithm of 1.25, the edge of the band.
const BAND: f64 = 0.096_910_013;

impl Validation {
    /// Draws all classes as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        let pitch = SIDE + MARGIN;
        let lines = Class::ALL.len().div_ceil(COLUMNS);
        let (width, height) = (COLUMNS as f64 * pitch + MARGIN, lines as f64 * pitch + MARGIN);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
        );
        for (index, class) in Class::ALL.into_iter().enumerate() {
            let (left, top) =
                (MARGIN + (index % COLUMNS) as f64 * pitch, MARGIN + (index / COLUMNS) as f64 * pitch);
            let points: Vec<(f64, f64)> =
                self.rows.iter().filter(|row| row.class == class).filter_map(logarithms).collect();
            let _ =
                writeln!(text, "<g transform=\"translate({left} {top})\">{}</g>", self.panel(class, &points));
        }
        text.push_str("</svg>\n");
        text
    }

    fn panel(&self, class: Class, points: &[(f64, f64)]) -> String {
        let ends = || points.iter().flat_map(|(measured, predicted)| [*measured, *predicted]);
        let low = ends().fold(f64::INFINITY, f64::min).floor();
        let high = ends().fold(f64::NEG_INFINITY, f64::max).ceil().max(low + 1.0);
        let Some(statistics) = self.statistics(class) else {
            return format!("<text y=\"-6\">{}: no row has a prediction</text>", class.name());
        };
        let at = |logarithm: f64| SIDE * (logarithm - low) / (high - low);
        let mut text = format!(
            "<text y=\"-6\">{}: {} rows, {:.0} % / {:.0} %</text>",
            class.name(),
            statistics.rows,
            100.0 * statistics.median,
            100.0 * statistics.ninetieth
        );
        let band = at(low + BAND);
        let (near, far) = (SIDE - band, SIDE);
        let _ = write!(
            text,
            "<path fill=\"#dde8f4\" d=\"M0 {far}V{near:.1}L{near:.1} 0H{far}V{band:.1}L{band:.1} {far}Z\"/>\
             <path fill=\"none\" stroke=\"#888\" d=\"M0 {far}L{far} 0M0 0V{far}H{far}\"/>"
        );
        for power in [low, high] {
            let across = at(power);
            let _ = write!(
                text,
                "<text x=\"{across}\" y=\"{}\" text-anchor=\"middle\">10^{power}</text>\
                 <text x=\"-4\" y=\"{}\" text-anchor=\"end\">10^{power}</text>",
                SIDE + 13.0,
                SIDE - across + 4.0
            );
        }
        text.push_str(
            "<path fill=\"none\" stroke=\"#14539a\" stroke-width=\"2.4\" stroke-linecap=\"round\" d=\"",
        );
        for (measured, predicted) in points {
            let _ = write!(text, "M{:.1} {:.1}h0", at(*measured), SIDE - at(*predicted));
        }
        text.push_str("\"/>");
        text
    }
}

fn logarithms(row: &ValidationRow) -> Option<(f64, f64)> {
    let measured: f64 = row.measured.trim().parse().ok()?;
    let predicted = *row.predicted.as_ref().ok()?;
    (measured > 0.0 && predicted > 0.0).then(|| (measured.log10(), predicted.log10()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measured: &str, predicted: Result<f64, String>) -> ValidationRow {
        let (source, model, setting, unit) = Default::default();
        ValidationRow {
            class: Class::Steps,
            part: None,
            others: None,
            source,
            model,
            setting,
            unit,
            measured: measured.to_owned(),
            gap: None,
            predicted,
        }
    }

    #[test]
    fn a_point_is_where_its_row_says() {
        let rows = vec![row("1", Ok(10.0)), row("10", Ok(10.0)), row("5", Err("why".to_owned()))];
        let svg = Validation { rows, ..Validation::default() }.svg();
        assert!(svg.contains("d=\"M0.0 0.0h0M200.0 0.0h0\""), "{svg}");
        assert_eq!(svg.matches("no row has a prediction").count(), Class::ALL.len() - 1);
    }
}

//! Plots of tables as SVG with logarithmic scales, one line for each series. Equal tables give
//! equal bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::{Cell, CellForm, MeasuredTable, PlotAxes};
use ascend_tp::base::Bytes;

const SIZE: (u32, u32) = (880, 500);

/// Colours for any colour vision (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(128, 128, 128),
];

const LEGEND: u32 = 230;

type PlotPoint = (f64, f64);

#[must_use]
pub(crate) fn svg(table: &MeasuredTable) -> Option<String> {
    let axes = table.axes?;
    let lines = lines(table, &axes);
    if lines.iter().all(|(_, points)| points.len() < 2) {
        return None;
    }
    let (xs, ys) = (range(&lines, |point| point.0)?, range(&lines, |point| point.1)?);
    let mut text = String::new();
    draw(table, &axes, &lines, xs, ys, &mut text).ok()?;
    Some(text)
}

fn draw(
    table: &MeasuredTable,
    axes: &PlotAxes,
    lines: &[(String, Vec<PlotPoint>)],
    xs: Range<f64>,
    ys: Range<f64>,
    text: &mut String,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (area, legend) = root.split_horizontally(SIZE.0 - LEGEND);
    let column = |key: &str| table.columns.iter().find(|column| column.key == key);
    let heading = |key: &'static str| column(key).map_or(key, |column| column.heading);
    let is_bytes = column(axes.x).is_some_and(|column| column.form == CellForm::Bytes);
    let mut chart = ChartBuilder::on(&area)
        .caption(&table.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(62)
        .build_cartesian_2d(xs.log_scale().base(if is_bytes { 4.0 } else { 10.0 }), ys.log_scale())
        .map_err(|_| DrawingAreaErrorKind::LayoutError)?;
    chart
        .configure_mesh()
        .light_line_style(RGBColor(238, 238, 238))
        .bold_line_style(RGBColor(215, 215, 215))
        .x_desc(heading(axes.x))
        .y_desc(heading(axes.y))
        .x_label_formatter(&|x| if is_bytes { short_bytes(*x) } else { number(*x) })
        .y_label_formatter(&|y| number(*y))
        .draw()
        .map_err(|_| DrawingAreaErrorKind::LayoutError)?;
    let name = TextStyle::from(("sans-serif", 13)).pos(Pos::new(HPos::Left, VPos::Center));
    for (line, (series, points)) in lines.iter().enumerate() {
        let colour = COLOURS[line % COLOURS.len()];
        let style = ShapeStyle::from(colour).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))
            .map_err(|_| DrawingAreaErrorKind::LayoutError)?;
        chart
            .draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))
            .map_err(|_| DrawingAreaErrorKind::LayoutError)?;
        let y = 52 + 20 * line as i32;
        legend.draw(&PathElement::new(vec![(4, y), (24, y)], style))?;
        legend.draw(&Text::new(series.clone(), (30, y), name.clone()))?;
    }
    root.present()
}

/// Returns the lines in the order of their first rows.
fn lines(table: &MeasuredTable, axes: &PlotAxes) -> Vec<(String, Vec<PlotPoint>)> {
    let column_of = |key: &str| table.columns.iter().position(|column| column.key == key);
    let (Some(x), Some(y)) = (column_of(axes.x), column_of(axes.y)) else { return Vec::new() };
    let mut order: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines: Vec<(String, Vec<PlotPoint>)> = Vec::new();
    for row in &table.rows {
        let (Some(x), Some(y)) = (row[x].number(), row[y].number()) else { continue };
        if x <= 0.0 || y <= 0.0 {
            continue;
        }
        let part = |key: &&str| {
            let index = column_of(key)?;
            Some(match &row[index] {
                Cell::Text(text) => text.clone(),
                Cell::Number(value) => format!("{} {}", number(*value), table.columns[index].heading),
                Cell::Nothing => return None,
            })
        };
        let name = axes.series.iter().filter_map(part).collect::<Vec<_>>().join(", ");
        let line = *order.entry(name.clone()).or_insert(lines.len());
        if line == lines.len() {
            lines.push((name, Vec::new()));
        }
        lines[line].1.push((x, y));
    }
    lines
}

/// Returns the range of the values with margins.
fn range(lines: &[(String, Vec<PlotPoint>)], of: impl Fn(&PlotPoint) -> f64) -> Option<Range<f64>> {
    let values = || lines.iter().flat_map(|(_, points)| points.iter().map(&of));
    let (least, most) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    Some(least / 1.25..most * 1.25)
}

fn short_bytes(bytes: f64) -> String {
    Bytes(bytes.round() as u64).to_string().replace(".0 ", " ")
}

/// Formats a number without insignificant digits.
fn number(value: f64) -> String {
    let digits =
        if value >= 10.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::report::column;
    use super::*;

    const COLUMNS: [super::super::report::Column; 3] = [
        column("op", "op", CellForm::Text),
        column("bytes", "bytes", CellForm::Bytes),
        column("gb_s", "GB/s", CellForm::Decimal),
    ];

    fn table() -> MeasuredTable {
        let axes = PlotAxes { x: "bytes", y: "gb_s", series: &["op"] };
        let mut table = MeasuredTable::new("one", "One < two", &COLUMNS).drawn(axes);
        for (op, bytes, rate) in [("a", 1024, 0.5), ("a", 4096, 1.0), ("b", 1024, 2.0), ("b", 4096, f64::NAN)]
        {
            table.row([op.into(), Cell::from(bytes as usize), rate.into()]);
        }
        table
    }

    #[test]
    fn each_series_is_a_line_with_its_name() {
        let table = table();
        let lines = lines(&table, &table.axes.unwrap());
        assert_eq!(
            lines,
            [("a".to_owned(), vec![(1024.0, 0.5), (4096.0, 1.0)]), ("b".to_owned(), vec![(1024.0, 2.0)]),]
        );
        let text = svg(&table).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        assert!(text.contains("One &lt; two") && text.contains("GB/s"), "{text}");
        assert_eq!(svg(&table), Some(text));
    }

    #[test]
    fn nothing_is_drawn_of_tables_without_axes_or_numbers() {
        let mut empty = table();
        empty.rows.clear();
        assert_eq!(svg(&empty), None);
        assert_eq!(svg(&MeasuredTable { axes: None, ..table() }), None);
    }

    #[test]
    fn numbers_of_axes_are_short() {
        assert_eq!([1000.0, 12.0, 2.5, 0.1, 0.02].map(number), ["1000", "12", "2.5", "0.1", "0.02"]);
        assert_eq!(short_bytes(16384.0), "16 KiB");
    }
}

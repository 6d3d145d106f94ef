//! Tables of results, and the machine of the run. The key of a column ends with the unit of the
//! numbers. A ratio is a fraction of 1.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use time::OffsetDateTime;

use super::limits::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellForm {
    Text,
    /// Integers in groups of three digits.
    Whole,
    Bytes,
    /// Three significant digits.
    Decimal,
    Percent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Key in JSON, such as `time_us`.
    pub(crate) key: &'static str,
    /// Printed heading, such as `time µs`.
    pub(crate) heading: &'static str,
    pub(crate) form: CellForm,
}

pub(super) const fn column(key: &'static str, heading: &'static str, form: CellForm) -> Column {
    Column { key, heading, form }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    Text(String),
    Number(f64),
    Nothing,
}

impl Cell {
    #[must_use]
    pub(crate) const fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) | Self::Nothing => None,
        }
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::Nothing }
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(number as f64)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

/// Axes of a plot, with a line for each combination of `series`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlotAxes {
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) series: &'static [&'static str],
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeasuredTable {
    /// Name in JSON and of the plot file.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) columns: &'static [Column],
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(crate) axes: Option<PlotAxes>,
}

impl MeasuredTable {
    pub(super) fn new(name: &str, title: impl Into<String>, columns: &'static [Column]) -> Self {
        Self { name: name.to_owned(), title: title.into(), columns, rows: Vec::new(), axes: None }
    }

    pub(super) fn read_rows(&mut self, json: &serde_json::Value) {
        let cell = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => Cell::Text(text.clone()),
            value => value.as_f64().map_or(Cell::Nothing, Cell::Number),
        };
        for row in json["rows"].as_array().into_iter().flatten() {
            self.rows.push(self.columns.iter().map(|column| cell(&row[column.key])).collect());
        }
    }

    pub(super) const fn drawn(mut self, axes: PlotAxes) -> Self {
        self.axes = Some(axes);
        self
    }

    pub(super) fn row<const CELLS: usize>(&mut self, cells: [Cell; CELLS]) {
        debug_assert_eq!(CELLS, self.columns.len(), "{}", self.name);
        self.rows.push(cells.into());
    }

    pub(crate) fn cells(&self, key: &str) -> impl Iterator<Item = &Cell> {
        let at = self.columns.iter().position(|column| column.key == key);
        self.rows.iter().filter_map(move |row| row.get(at?))
    }

    /// Returns a number of the first row with the `wanted` cells.
    #[must_use]
    pub(crate) fn number(&self, wanted: &[(&str, Cell)], key: &str) -> Option<f64> {
        let at = |key: &str| self.columns.iter().position(|column| column.key == key);
        let is_wanted = |row: &&Vec<Cell>| {
            wanted
                .iter()
                .all(|(key, cell)| at(key).and_then(|at| row.get(at)).is_some_and(|found| found == cell))
        };
        self.rows.iter().find(is_wanted)?.get(at(key)?)?.number()
    }
}

struct RowObject<'a>(&'a [Column], &'a [Cell]);

impl Serialize for RowObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (column, cell) in self.0.iter().zip(self.1) {
            map.serialize_entry(column.key, cell)?;
        }
        map.end()
    }
}

struct RowList<'a>(&'a MeasuredTable);

impl Serialize for RowList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.rows.len()))?;
        for row in &self.0.rows {
            list.serialize_element(&RowObject(self.0.columns, row))?;
        }
        list.end()
    }
}

impl Serialize for MeasuredTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("title", &self.title)?;
        map.serialize_entry("rows", &RowList(self))?;
        map.end()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct MeasuringMachine {
    /// UTC date, such as `2026-11-22`.
    pub(crate) date: String,
    pub(crate) processor: String,
    /// Cores available to this process.
    pub(crate) cores: usize,
    pub(crate) isa: String,
    /// Cards and how they are reached.
    pub(crate) cards: String,
    pub(crate) optimised: bool,
}

impl MeasuringMachine {
    #[must_use]
    pub(crate) fn here(cards: &str) -> Self {
        let processor = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        Self {
            date: OffsetDateTime::now_utc().date().to_string(),
            processor: processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            isa: ascend_tp::emulator::isa().to_string(),
            cards: cards.to_owned(),
            optimised: !matches!(env!("ASCEND_TP_OPT_LEVEL"), "0" | "1"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct BenchReport {
    pub(crate) machine: MeasuringMachine,
    pub(crate) limits: Limits,
    pub(crate) tables: Vec<MeasuredTable>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        column("op", "op", CellForm::Text),
        column("time_us", "time µs", CellForm::Decimal),
        column("of_limit", "of limit", CellForm::Percent),
    ];

    fn table() -> MeasuredTable {
        let mut table = MeasuredTable::new("one", "One", &COLUMNS);
        table.row(["a".into(), 1.5.into(), f64::NAN.into()]);
        table.row(["b".into(), 2.0.into(), 0.5.into()]);
        table
    }

    #[test]
    fn rows_are_objects_with_the_columns_keys() {
        let text = serde_json::to_string(&table()).unwrap();
        assert_eq!(
            text,
            r#"{"name":"one","title":"One","rows":[{"op":"a","time_us":1.5,"of_limit":null},{"op":"b","time_us":2.0,"of_limit":0.5}]}"#
        );
    }

    #[test]
    fn rows_come_back_from_json() {
        let written = serde_json::to_value(table()).unwrap();
        let mut read = MeasuredTable::new("one", "One", &COLUMNS);
        read.read_rows(&written);
        assert_eq!(read, table());
    }

    #[test]
    fn a_number_is_found_by_what_stands_beside_it() {
        let table = table();
        assert_eq!(table.number(&[("op", "b".into())], "time_us"), Some(2.0));
        assert_eq!(table.number(&[("op", "a".into())], "of_limit"), None);
        assert_eq!(table.number(&[("op", "c".into())], "time_us"), None);
        assert_eq!(table.cells("time_us").filter_map(Cell::number).sum::<f64>(), 3.5);
    }
}

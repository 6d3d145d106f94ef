//! Rows of measured points, with their models, chips and weights.

mod hardware;
mod model;
pub(crate) mod settings;

pub(crate) use hardware::{is_named, machine};
pub(crate) use model::PublishedModel;

use std::collections::BTreeMap;

/// The fields of a row, by column name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point(BTreeMap<String, String>);

pub(crate) fn columns(text: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.headers().map(|names| names.iter().map(str::to_owned).collect()).unwrap_or_default()
}

pub(crate) fn broken(text: &str) -> Option<String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.records().find_map(Result::err).map(|error| error.to_string())
}

impl Point {
    pub(crate) fn all(text: &str) -> Vec<Self> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        reader.deserialize().map_while(Result::ok).map(Self).collect()
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.text(name).trim().parse().ok()
    }

    /// Returns the number after `key` in a field: 4 after `dp ` in `1 (world 32, dp 4)`.
    pub(crate) fn inside(&self, name: &str, key: &str) -> Option<usize> {
        let text = self.text(name);
        let digits: String =
            text[text.find(key)? + key.len()..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    pub(crate) fn leading(&self, name: &str) -> Option<usize> {
        leading(self.text(name))
    }
}

fn leading(text: &str) -> Option<usize> {
    text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

pub(crate) fn sizes(shape: &str) -> BTreeMap<&str, usize> {
    let mut sizes = BTreeMap::new();
    for word in shape.split([' ', ';', ',', '(', ')']) {
        let Some((names, value)) = word.rsplit_once('=') else { continue };
        let Some(value) = leading(value) else { continue };
        sizes.extend(names.split('=').map(|name| (name, value)));
    }
    sizes
}

/// Parses `[2,64]`, `2x64` and `2 x 64`.
pub(crate) fn dims(shape: &str) -> Option<Vec<usize>> {
    let inside = shape.trim().trim_start_matches('[').trim_end_matches(']');
    inside.split([',', 'x']).map(|size| size.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_inside_fields() {
        let points = Point::all("a,b,c\n\"4 (world 16, dp 4, ep 16)\",7,\"x, query_len=30\"\n");
        let [point] = points.as_slice() else { panic!("{points:?}") };
        assert_eq!(
            (point.leading("a"), point.inside("a", "dp "), point.inside("a", "ep ")),
            (Some(4), Some(4), Some(16))
        );
        assert_eq!(
            (point.number("b"), point.number("a"), point.inside("c", "query_len=")),
            (Some(7.0), None, Some(30))
        );
        assert_eq!((point.inside("a", "tp "), point.text("d")), (None, ""));
    }

    #[test]
    fn sizes_are_read_by_name_or_in_order() {
        let found = sizes("M=N=64 heads=8 (MHA) note S=2");
        assert_eq!(found, BTreeMap::from([("M", 64), ("N", 64), ("heads", 8), ("S", 2)]));
        assert_eq!(dims("[2,64]"), Some(vec![2, 64]));
        assert_eq!(dims("1 x 512"), Some(vec![1, 512]));
        assert_eq!(dims("mean over a run"), None);
    }
}

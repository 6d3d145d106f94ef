//! Rows of a file of measured points, by the names of its columns.

use std::collections::BTreeMap;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Point(BTreeMap<String, String>);

impl Point {
    /// All rows of a text with commas and a heading; fields with commas stand in double quotes.
    pub(super) fn all(text: &str) -> Vec<Self> {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let names = lines.next().map(fields).unwrap_or_default();
        lines.map(|line| Self(names.iter().cloned().zip(fields(line)).collect())).collect()
    }

    /// A field; empty where the row has none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A field that is nothing but a number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.text(name).trim().parse().ok()
    }

    /// The number behind `key` in a field: 4 behind `dp ` in `1 (world 32, dp 4)`.
    pub(super) fn inside(&self, name: &str, key: &str) -> Option<usize> {
        let text = self.text(name);
        let digits: String = text[text.find(key)? + key.len()..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    /// The number a field begins with.
    pub(super) fn leading(&self, name: &str) -> Option<usize> {
        self.text(name).chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
    }
}

/// Fields of a line.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut is_quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            other => fields.last_mut().into_iter().for_each(|field| field.push(other)),
        }
    }
    fields
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
}

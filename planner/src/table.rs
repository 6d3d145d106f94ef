//! Tables as aligned text, in a given width or as Markdown.
//!
//! Invariant: no line is longer than the width, down to three characters for each column.

use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, presets};

/// Alignment of the text in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text; may be wrapped.
    Left,
    /// Numbers; wrapped only if nothing else helps.
    Right,
}

/// Longest word for which a text column stays wide enough.
const WORD: usize = 20;

/// Width that a text column keeps before other columns are left out.
const TEXT: usize = 16;

/// Width that no column goes below, in characters.
const LEAST: usize = 3;

const INDENT: u16 = 2;

/// Rows of text under headings.
#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Columns to leave out in a narrow table, first one first.
    optional: Vec<String>,
    /// Characters per line; None: unlimited.
    width: Option<usize>,
}

impl Table {
    /// Creates an empty table.
    #[must_use]
    pub fn new<T: Into<String>>(headings: impl IntoIterator<Item = (T, Align)>) -> Self {
        let headings = headings.into_iter().map(|(heading, align)| (heading.into(), align)).collect();
        Self { headings, rows: Vec::new(), optional: Vec::new(), width: None }
    }

    /// Limits lines to `width` characters.
    #[must_use]
    pub fn within(self, width: Option<usize>) -> Self {
        Self { width, ..self }
    }

    /// Names the columns that a narrow table leaves out, first one first.
    #[must_use]
    pub fn optional<T: Into<String>>(self, headings: impl IntoIterator<Item = T>) -> Self {
        Self { optional: headings.into_iter().map(Into::into).collect(), ..self }
    }

    /// Adds a row with a cell for each heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().collect();
        assert_eq!(row.len(), self.headings.len(), "{:?}", self.headings);
        self.rows.push(row);
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table as Markdown, with lines as long as the rows need.
    #[must_use]
    pub fn markdown(&self) -> String {
        let columns: Vec<usize> = (0..self.headings.len()).collect();
        let mut table = self.cells(&columns, None);
        table.load_style(presets::ASCII_MARKDOWN);
        // GitHub reads alignment from the second line.
        let lines = table.lines().enumerate().map(|(at, line)| if at == 1 { self.rule(&line) } else { line });
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn rule(&self, dashes: &str) -> String {
        let cells = dashes.trim_matches('|').split('|').zip(&self.headings);
        let cells = cells.map(|(cell, (_, align))| match (align, cell.strip_suffix('-')) {
            (Align::Right, Some(most)) => format!("{most}:"),
            _ => cell.to_owned(),
        });
        format!("|{}|", cells.collect::<Vec<_>>().join("|"))
    }

    /// Some columns, with cells broken into lines of the columns' widths.
    fn cells(&self, columns: &[usize], widths: Option<&[usize]>) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.set_content_arrangement(ContentArrangement::Disabled);
        let text =
            |text: &str, at: usize| widths.map_or_else(|| text.to_owned(), |widths| broken(text, widths[at]));
        table.set_header(columns.iter().enumerate().map(|(at, column)| text(&self.headings[*column].0, at)));
        for row in &self.rows {
            table.add_row(columns.iter().enumerate().map(|(at, column)| text(&row[*column], at)));
        }
        for (at, column) in columns.iter().enumerate() {
            let align = match self.headings[*column].1 {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            };
            table.column_mut(at).into_iter().for_each(|column| column.set_cell_alignment(align));
        }
        table
    }

    fn choose(&self, widths: &[ColumnWidth]) -> [Vec<usize>; 2] {
        let (mut shown, mut hidden): (Vec<usize>, _) = ((0..self.headings.len()).collect(), Vec::new());
        let mut optional = self.optional.iter();
        while self.width.is_some_and(|width| line(shown.iter().map(|column| widths[*column].least)) > width) {
            let Some(heading) = optional.next() else { break };
            shown.retain(|column| self.headings[*column].0 != *heading);
            hidden.extend(self.headings.iter().position(|(known, _)| known == heading));
        }
        [shown, hidden]
    }

    fn widths(&self) -> Vec<ColumnWidth> {
        let columns: Vec<usize> = (0..self.headings.len()).collect();
        let whole = self.cells(&columns, None).column_max_content_widths();
        let of = |(column, (heading, align)): (usize, &(String, Align))| {
            let longest_word =
                |text: &str| text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
            let cells = self.rows.iter().map(|row| row[column].as_str());
            let cells = cells.map(|cell| match align {
                Align::Left => longest_word(cell).clamp(TEXT.min(cell.chars().count()), WORD),
                Align::Right => cell.chars().count(),
            });
            let least = cells.chain([longest_word(heading)]).max().unwrap_or(0);
            let whole = usize::from(whole[column]);
            let cells = self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            ColumnWidth { least: least.min(whole), cells: cells.min(whole), whole }
        };
        self.headings.iter().enumerate().map(of).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct ColumnWidth {
    least: usize,
    cells: usize,
    whole: usize,
}

fn line(widths: impl Iterator<Item = usize>) -> usize {
    // The last column needs no space behind it.
    usize::from(INDENT) + widths.map(|width| width + 2).sum::<usize>().saturating_sub(2)
}

/// Breaks at spaces, else behind a mark within a word, else anywhere.
fn broken(text: &str, width: usize) -> String {
    let length = |text: &str| text.chars().count();
    let mut lines = vec![String::new()];
    let mut add = |piece: &str, gap: &str| {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && length(&lines[last]) + length(gap) + length(piece) <= width {
            lines[last] += gap;
            lines[last] += piece;
        } else if lines[last].is_empty() {
            lines[last] += piece;
        } else {
            lines.push(piece.to_owned());
        }
    };
    for word in text.split(' ') {
        let mut gap = " ";
        if length(word) <= width {
            add(word, gap);
            continue;
        }
        for piece in word.split_inclusive(['.', ',', ';', '/', '_', '-', '=', ']']) {
            let letters: Vec<char> = piece.chars().collect();
            for letters in letters.chunks(width.max(1)) {
                add(&letters.iter().collect::<String>(), std::mem::take(&mut gap));
            }
        }
    }
    lines.join("\n")
}

fn divide(width: usize, columns: &[ColumnWidth]) -> Vec<usize> {
    let mut widths: Vec<usize> = columns.iter().map(|column| column.least).collect();
    while line(widths.iter().copied()) > width {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > LEAST) else { break };
        *widest -= 1;
    }
    for wanted in [|column: &ColumnWidth| column.cells, |column: &ColumnWidth| column.whole] {
        while line(widths.iter().copied()) < width {
            let growing = widths.iter_mut().zip(columns).filter(|(width, column)| **width < wanted(column));
            let Some((narrowest, _)) = growing.min_by_key(|(width, _)| **width) else { break };
            *narrowest += 1;
        }
    }
    widths
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let [shown, hidden] = self.choose(&widths);
        let columns: Vec<ColumnWidth> = shown.iter().map(|column| widths[*column]).collect();
        let divided = self.width.map(|width| divide(width, &columns));
        let mut table = self.cells(&shown, divided.as_deref());
        table.load_style(presets::NOTHING);
        table.column_mut(0).into_iter().for_each(|column| {
            column.set_padding((INDENT, 1));
        });
        for line in table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        if !hidden.is_empty() {
            let names: Vec<&str> = hidden.iter().map(|column| self.headings[*column].0.as_str()).collect();
            writeln!(f, "  --wide also shows: {}", names.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([("n", Align::Right), ("name", Align::Left), ("why", Align::Left)]);
        table.row(["80".into(), "x".into(), "because".into()]);
        table.row(["1".into(), "longer".into(), String::new()]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        assert_eq!(table().to_string(), "   n  name    why\n  80  x       because\n   1  longer\n");
    }

    #[test]
    fn markdown_has_the_side_of_each_column() {
        let rows = [["a".to_owned(), "1".to_owned()], ["long".to_owned(), "12.5".to_owned()]];
        let mut table = Table::new([("x", Align::Left), ("y", Align::Right)]);
        rows.into_iter().for_each(|row| table.row(row));
        assert_eq!(table.markdown(), "| x    |    y |\n|------|-----:|\n| a    |    1 |\n| long | 12.5 |\n");
    }

    #[test]
    fn a_narrow_table_leaves_columns_out_and_names_them() {
        let mut table = table().optional(["why"]);
        table.row([
            "1000000".into(),
            "a.name.of.four.and.thirty.letters.".into(),
            "a reason of several words".into(),
        ]);
        let text = table.clone().within(Some(40)).to_string();
        assert!(text.ends_with("  --wide also shows: why\n"), "{text}");
        assert!(!text.contains("because") && text.contains("a.name.of.four.and."), "{text}");
        let text = table.within(Some(70)).to_string();
        assert!(text.contains("a reason of several words\n") && !text.contains("--wide"), "{text}");
    }

    #[test]
    fn no_line_is_longer_than_the_width() {
        let mut table = table();
        table.row(["12,345,678".into(), "several words of a name".into(), "x".repeat(70)]);
        for width in [20, 30, 40, 60, 80, 100, 120] {
            let text = table.clone().within(Some(width)).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            let letters = text.chars().filter(|letter| *letter == 'x').count();
            assert_eq!(letters, 71, "nothing is lost:\n{text}");
        }
    }

    #[test]
    fn a_long_name_is_broken_behind_its_marks() {
        assert_eq!(broken("all of model.layers.*.mlp", 14), "all of model.\nlayers.*.mlp");
        assert_eq!(broken("abcdefgh ij", 5), "abcde\nfgh\nij");
        assert_eq!(broken("", 5), "");
    }

    #[test]
    fn a_heading_of_several_words_is_wrapped_before_its_numbers() {
        let mut table = Table::new([("host before and after", Align::Right), ("name", Align::Left)]);
        table.row(["1.5 %".into(), "a name that needs all there is".into()]);
        let text = table.within(Some(44)).to_string();
        assert_eq!(text.lines().last(), Some("       1.5 %  a name that needs all there is"), "{text}");
    }
}

//! Aligned tables for people. A table fits its terminal: first ids are shortened, then long texts are cut, then
//! columns are left out.

use unicode_width::UnicodeWidthStr;

use crate::output::{Output, Paint, one_line};
use crate::short_id::short_id;

/// A table: a head and rows of the same length.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

struct Column {
    title: &'static str,
    fit: Fit,
    /// Left out on a narrow terminal; the lowest number goes first.
    spare: Option<u8>,
}

/// How a column is aligned, and how it shrinks on a narrow terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Text: cut only as a last resort.
    Left,
    /// Numbers: never cut.
    Right,
    /// Long text: cut.
    Flexible,
    /// Ids: shortened to a form that every command accepts.
    Id,
}

/// One cell with its colour.
pub struct Cell {
    text: String,
    paint: Paint,
}

/// Spaces between columns.
const GAP: usize = 2;
/// A flexible column is not cut below this width while other columns can be left out.
const FLEXIBLE_MIN: usize = 24;
/// No column of text is cut below this width.
const TEXT_MIN: usize = 8;

impl Table {
    /// A table without columns.
    pub fn new() -> Table {
        Table { columns: Vec::new(), rows: Vec::new() }
    }

    /// A column of text.
    pub fn left(self, title: &'static str) -> Table {
        self.column(title, Fit::Left)
    }

    /// A column of numbers.
    pub fn right(self, title: &'static str) -> Table {
        self.column(title, Fit::Right)
    }

    /// A column of long text that may be cut.
    pub fn flexible(self, title: &'static str) -> Table {
        self.column(title, Fit::Flexible)
    }

    /// A column of ids, which are shortened on a narrow terminal.
    pub fn id(self, title: &'static str) -> Table {
        self.column(title, Fit::Id)
    }

    /// Marks the last column as optional on a narrow terminal; columns with a lower `rank` are left out
    /// first.
    pub fn spare(mut self, rank: u8) -> Table {
        if let Some(column) = self.columns.last_mut() {
            column.spare = Some(rank);
        }
        self
    }

    fn column(mut self, title: &'static str, fit: Fit) -> Table {
        self.columns.push(Column { title, fit, spare: None });
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for every column");
        self.rows.push(cells);
    }

    /// The whole table as lines.
    pub fn lines(&self, output: &Output) -> Vec<String> {
        let widths = self.widths(output.width());
        let head: Vec<Cell> =
            self.columns.iter().map(|column| Cell::painted(column.title, Paint::Bold)).collect();
        std::iter::once(&head).chain(&self.rows).map(|cells| self.line(output, &widths, cells)).collect()
    }

    /// Writes the table.
    pub fn print(&self, output: &Output) {
        for line in self.lines(output) {
            output.line(line);
        }
    }

    /// The width of every column so that a line has at most `most` characters; `None` for one that is left
    /// out.
    fn widths(&self, most: usize) -> Vec<Option<usize>> {
        let natural = self.natural_widths(false);
        let mut widths: Vec<Option<usize>> = natural.into_iter().map(Some).collect();
        if total(&widths) <= most {
            return widths;
        }
        let shortened = self.natural_widths(true);
        widths = shortened.iter().copied().map(Some).collect();
        loop {
            self.cut_columns(&mut widths, most, Fit::Flexible, FLEXIBLE_MIN);
            if total(&widths) <= most {
                return widths;
            }
            let spared = (0..widths.len())
                .filter(|index| widths[*index].is_some())
                .filter_map(|index| Some((self.columns[index].spare?, index)))
                .min();
            let Some((_, spared)) = spared else { break };
            widths[spared] = None;
            // Columns that were cut for one that is left out now get their width back.
            for (width, shortened) in widths.iter_mut().zip(&shortened) {
                *width = width.map(|_| *shortened);
            }
        }
        self.cut_columns(&mut widths, most, Fit::Left, TEXT_MIN);
        self.cut_columns(&mut widths, most, Fit::Flexible, TEXT_MIN);
        widths
    }

    /// Widths that hold every cell, with ids in full or shortened.
    fn natural_widths(&self, shortened: bool) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| column.title.width()).collect();
        for row in &self.rows {
            for ((width, cell), column) in widths.iter_mut().zip(row).zip(&self.columns) {
                let text = match column.fit {
                    Fit::Id if shortened => short_id(&cell.text),
                    _ => &cell.text,
                };
                *width = (*width).max(text.width());
            }
        }
        widths
    }

    /// Narrows the widest column of this type, down to `least`, until a line fits.
    fn cut_columns(&self, widths: &mut [Option<usize>], most: usize, fit: Fit, least: usize) {
        for _ in 0..total(widths).saturating_sub(most) {
            let widest = widths
                .iter_mut()
                .zip(&self.columns)
                .filter(|(_, column)| column.fit == fit)
                .filter_map(|(width, _)| width.as_mut())
                .filter(|width| **width > least)
                .max_by_key(|width| **width);
            let Some(width) = widest else { return };
            *width -= 1;
        }
    }

    fn line(&self, output: &Output, widths: &[Option<usize>], cells: &[Cell]) -> String {
        let mut line = String::new();
        for ((cell, width), column) in cells.iter().zip(widths).zip(&self.columns) {
            let Some(width) = *width else { continue };
            let text = match column.fit {
                Fit::Id if cell.text.width() > width => short_id(&cell.text),
                _ => &cell.text,
            };
            let text = cut(text, width);
            let padding = " ".repeat(width.saturating_sub(text.width()));
            if !line.is_empty() {
                line.push_str(&" ".repeat(GAP));
            }
            // Colour codes enclose the text only, so that padding and trimming never split a code.
            let painted = output.paint(cell.paint, &text);
            match column.fit {
                Fit::Right => line.extend([padding, painted]),
                _ => line.extend([painted, padding]),
            }
        }
        line.trim_end().to_owned()
    }
}

/// The width of a line with these columns.
fn total(widths: &[Option<usize>]) -> usize {
    let shown = widths.iter().flatten();
    shown.clone().sum::<usize>() + GAP * shown.count().saturating_sub(1)
}

impl Cell {
    /// A cell in a colour. Characters that control the terminal or reorder others are escaped.
    pub fn painted(text: impl AsRef<str>, paint: Paint) -> Cell {
        Cell { text: one_line(text.as_ref()), paint }
    }

    /// A cell without colour.
    pub fn plain(text: impl ToString) -> Cell {
        Cell::painted(text.to_string(), Paint::Plain)
    }

    /// A cell with an optional value.
    pub fn maybe(text: Option<impl ToString>) -> Cell {
        text.map_or_else(|| Cell::painted("–", Paint::Dim), Cell::plain)
    }
}

/// `text` in at most `width` columns of a terminal; a cut text ends in an ellipsis.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = prefix(text, width.saturating_sub(1)).to_owned();
    short.push('…');
    short
}

/// The longest prefix of `text` that takes at most `width` columns of a terminal.
fn prefix(text: &str, width: usize) -> &str {
    // Measured as a whole, because characters may combine.
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let fitting = ends.take_while(|end| text[..*end].width() <= width).last();
    &text[..fitting.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Output = Output { json: false, color: false, tty: false, columns: None };

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new().left("NAME").right("N").flexible("TEXT");
        table.row(vec![Cell::plain("a"), Cell::plain(100), Cell::plain("x")]);
        table.row(vec![Cell::plain("longer"), Cell::plain(7), Cell::maybe(None::<&str>)]);
        assert_eq!(table.lines(&PLAIN), ["NAME      N  TEXT", "a       100  x", "longer    7  –"]);
    }

    fn jobs_table() -> Table {
        let mut table =
            Table::new().id("ID").left("KIND").right("TRY").left("AGENT").spare(1).flexible("WHY");
        table.row(vec![
            Cell::plain("01a1e107-0745-7000-8d3c-4aea73d31572"),
            Cell::plain("render"),
            Cell::plain(3),
            Cell::plain("nightly"),
            Cell::plain("a text that is much too long for its column"),
        ]);
        table
    }

    /// The table on a terminal of this width.
    fn on_width(table: &Table, width: usize) -> Vec<String> {
        table.lines(&Output { columns: Some(width), ..PLAIN })
    }

    #[test]
    fn ids_are_shortened_then_texts_are_cut_then_columns_are_left_out() {
        let table = jobs_table();
        assert_eq!(table.widths(200), [Some(36), Some(6), Some(3), Some(7), Some(43)]);
        assert_eq!(table.widths(80), [Some(8), Some(6), Some(3), Some(7), Some(43)]);
        assert_eq!(table.widths(60), [Some(8), Some(6), Some(3), Some(7), Some(28)]);
        assert_eq!(table.widths(50), [Some(8), Some(6), Some(3), None, Some(27)]);
        assert_eq!(on_width(&table, 50)[1], "73d31572  render    3  a text that is much too lo…");
    }

    #[test]
    fn defect_19_tables_fit_their_terminal() {
        for width in [40, 60, 80, 120, 200] {
            for line in on_width(&jobs_table(), width) {
                assert!(line.width() <= width, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn defect_19_wide_characters_align() {
        let mut table = Table::new().left("NAME").left("STATE");
        table.row(vec![Cell::plain("日本語"), Cell::plain("open")]);
        table.row(vec![Cell::plain("🚀 up"), Cell::plain("open")]);
        table.row(vec![Cell::plain("e\u{301}te\u{301}"), Cell::plain("open")]);
        let lines = table.lines(&PLAIN);
        for line in &lines[1..] {
            let before = line.strip_suffix("open").unwrap();
            assert_eq!(before.width(), 8, "{line:?}");
        }
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("日本語", 6), "日本語");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(Cell::plain("a\x1b[31mb\nc").text, "a [31mb c");
        assert_eq!(Cell::plain("a\u{202e}b").text, "a\\u{202e}b");
    }

    #[test]
    fn colours_do_not_change_the_width() {
        let output = Output { color: true, ..PLAIN };
        let mut table = Table::new().left("STATE").left("ID");
        table.row(vec![Cell::painted("ok", Paint::Green), Cell::plain("1")]);
        assert_eq!(table.lines(&output)[1], "\x1b[32mok\x1b[0m     1");
    }
}

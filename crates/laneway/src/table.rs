//! Aligned tables for people.

use crate::screen::{Paint, Screen};

/// A table: a head and rows of the same length.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

struct Column {
    title: &'static str,
    right: bool,
    /// May be cut when the terminal is narrow.
    flexible: bool,
}

/// One cell with its colour.
pub struct Cell {
    text: String,
    paint: Paint,
}

/// Spaces between columns.
const GAP: usize = 2;
/// A flexible column is not cut below this many characters.
const FLEXIBLE_MIN: usize = 12;

impl Table {
    /// A table without columns.
    pub fn new() -> Table {
        Table { columns: Vec::new(), rows: Vec::new() }
    }

    /// A column of words.
    pub fn left(mut self, title: &'static str) -> Table {
        self.columns.push(Column { title, right: false, flexible: false });
        self
    }

    /// A column of figures.
    pub fn right(mut self, title: &'static str) -> Table {
        self.columns.push(Column { title, right: true, flexible: false });
        self
    }

    /// A column of long texts that may be cut.
    pub fn flexible(mut self, title: &'static str) -> Table {
        self.columns.push(Column { title, right: false, flexible: true });
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for every column");
        self.rows.push(cells);
    }

    /// The whole table as lines.
    pub fn lines(&self, screen: &Screen) -> Vec<String> {
        let widths = self.widths(screen.width());
        let head: Vec<Cell> =
            self.columns.iter().map(|column| Cell::painted(column.title, Paint::Bold)).collect();
        std::iter::once(&head).chain(&self.rows).map(|cells| self.line(screen, &widths, cells)).collect()
    }

    /// Writes the table.
    pub fn print(&self, screen: &Screen) {
        for line in self.lines(screen) {
            screen.line(line);
        }
    }

    fn widths(&self, most: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| column.title.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let used = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let mut excess = used.saturating_sub(most);
        for (width, column) in widths.iter_mut().zip(&self.columns).rev() {
            if column.flexible {
                let cut = excess.min(width.saturating_sub(FLEXIBLE_MIN));
                *width -= cut;
                excess -= cut;
            }
        }
        widths
    }

    fn line(&self, screen: &Screen, widths: &[usize], cells: &[Cell]) -> String {
        let mut line = String::new();
        for (index, ((cell, width), column)) in cells.iter().zip(widths).zip(&self.columns).enumerate() {
            let text = cut(&cell.text, *width);
            let padding = " ".repeat(width - text.chars().count());
            if index > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            // Colours go around the text only, so that padding and trimming never split a code.
            let painted = screen.paint(cell.paint, &text);
            match column.right {
                true => line.extend([padding, painted]),
                false => line.extend([painted, padding]),
            }
        }
        line.trim_end().to_owned()
    }
}

impl Cell {
    /// A cell in a colour. Control characters never reach the terminal.
    pub fn painted(text: impl AsRef<str>, paint: Paint) -> Cell {
        let text = text.as_ref().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Cell { text, paint }
    }

    /// A cell without colour.
    pub fn plain(text: impl ToString) -> Cell {
        Cell::painted(text.to_string(), Paint::Plain)
    }

    /// A cell whose value may be absent.
    pub fn maybe(text: Option<impl ToString>) -> Cell {
        text.map_or_else(|| Cell::painted("–", Paint::Dim), Cell::plain)
    }
}

/// `text` in at most `width` characters; what is cut ends in an ellipsis.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Screen = Screen { json: false, color: false, tty: false };

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new().left("NAME").right("N").flexible("TEXT");
        table.row(vec![Cell::plain("a"), Cell::plain(100), Cell::plain("x")]);
        table.row(vec![Cell::plain("longer"), Cell::plain(7), Cell::maybe(None::<&str>)]);
        assert_eq!(table.lines(&PLAIN), ["NAME      N  TEXT", "a       100  x", "longer    7  –"]);
    }

    #[test]
    fn only_flexible_columns_are_cut() {
        let mut table = Table::new().left("ID").flexible("TEXT");
        table
            .row(vec![Cell::plain("0123456789"), Cell::plain("a text that is much too long for its column")]);
        assert_eq!(table.widths(30), [10, 18]);
        assert_eq!(table.widths(5), [10, FLEXIBLE_MIN]);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(Cell::plain("a\x1b[31mb\nc").text, "a [31mb c");
    }

    #[test]
    fn colours_do_not_change_the_width() {
        let screen = Screen { color: true, ..PLAIN };
        let mut table = Table::new().left("STATE").left("ID");
        table.row(vec![Cell::painted("ok", Paint::Green), Cell::plain("1")]);
        assert_eq!(table.lines(&screen)[1], "\x1b[32mok\x1b[0m     1");
    }
}

//! Plain text tables: columns two spaces apart, each as wide as its widest cell.
//!
//! Source: Ceph `src/common/TextTable.{h,cc}`.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    Left,
    Right,
}

pub struct Table {
    headings: Vec<(String, Align, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new() -> Table {
        Table { headings: Vec::new(), rows: Vec::new() }
    }

    /// A column: the alignments of its heading and of its cells.
    #[must_use]
    pub fn column(mut self, heading: &str, heading_align: Align, align: Align) -> Table {
        self.headings.push((heading.to_string(), heading_align, align));
        self
    }

    /// Left-aligned headings over cells so aligned.
    #[must_use]
    pub fn columns(self, align: Align, headings: &[&str]) -> Table {
        headings.iter().fold(self, |table, heading| table.column(heading, Align::Left, align))
    }

    /// Cells beyond the columns are dropped, missing ones are empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.headings.len(), String::new());
        self.rows.push(cells);
    }

    /// Every line ends in a newline, and is padded to the table's width.
    pub fn render(&self) -> String {
        let width = |i: usize| {
            let cells = self.rows.iter().map(|row| row[i].chars().count());
            cells.chain([self.headings[i].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let mut out = String::new();
        let headings = self.headings.iter().map(|(text, align, _)| (text.as_str(), *align));
        line(&mut out, &widths, headings);
        for row in &self.rows {
            let cells = row.iter().zip(&self.headings).map(|(text, (_, _, align))| (text.as_str(), *align));
            line(&mut out, &widths, cells);
        }
        out
    }
}

fn line<'a>(out: &mut String, widths: &[usize], cells: impl Iterator<Item = (&'a str, Align)>) {
    for (i, (text, align)) in cells.enumerate() {
        if i > 0 {
            out.push_str("  ");
        }
        let pad = widths[i].saturating_sub(text.chars().count());
        if align == Align::Right {
            out.extend(std::iter::repeat_n(' ', pad));
        }
        out.push_str(text);
        if align == Align::Left {
            out.extend(std::iter::repeat_n(' ', pad));
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_padded_to_the_widest() {
        let mut t =
            Table::new().columns(Align::Left, &["WHO", "OPTION"]).column("VALUE", Align::Right, Align::Right);
        t.row(["osd.10", "a", "1"]);
        assert_eq!(t.render(), "WHO     OPTION  VALUE\nosd.10  a           1\n");
    }
}

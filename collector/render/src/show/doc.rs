//! Document: a result in words, tables and pictures.

use super::figure::Figure;
use super::table::{Row, Table};

/// One part of a [`Doc`].
#[derive(Clone, Debug)]
pub enum Part {
    /// Title of the parts that follow.
    Heading(String),
    /// One or more sentences.
    Sentence(String),
    /// Reference to more data: on pages of a site a link to `path`, otherwise the command that
    /// shows the data.
    Link {
        text: String,
        path: String,
        command: String,
    },
    /// A table.
    Table(Table),
    /// A chart, a timeline or a graph.
    Figure(Figure),
    /// A text whose stretches are marked by their origins, on pages only.
    Passage(Passage),
}

/// Text in stretches that have different origins.
#[derive(Clone, Debug, Default)]
pub struct Passage {
    pub title: String,
    pub stretches: Vec<Stretch>,
    /// Origins, which pages number from 1.
    pub origins: Vec<Origin>,
}

/// Stretch of a [`Passage`].
#[derive(Clone, Debug)]
pub struct Stretch {
    /// Untrusted text.
    pub text: String,
    /// Index of its origin; `None` if it has none.
    pub origin: Option<usize>,
    /// Details of its origin.
    pub details: String,
}

/// Origin of stretches: one or more things, with paths of links on a site.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub things: Vec<(String, String)>,
}

/// Content of a result, in order.
#[derive(Clone, Debug, Default)]
pub struct Doc {
    parts: Vec<Part>,
}

impl Doc {
    /// Creates an empty document.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: impl Into<String>) -> &mut Self {
        self.parts.push(Part::Heading(text.into()));
        self
    }

    /// Adds a sentence; ignores an empty one.
    pub fn sentence(&mut self, text: impl Into<String>) -> &mut Self {
        let text = text.into();
        if !text.is_empty() {
            self.parts.push(Part::Sentence(text));
        }
        self
    }

    /// Adds sentences; ignores empty ones.
    pub fn sentences(&mut self, texts: impl IntoIterator<Item = impl Into<String>>) -> &mut Self {
        texts.into_iter().for_each(|text| {
            self.sentence(text);
        });
        self
    }

    /// Adds a reference to more data: a link on pages of a site, otherwise a command.
    pub fn link(
        &mut self,
        text: impl Into<String>,
        path: impl Into<String>,
        command: impl Into<String>,
    ) -> &mut Self {
        self.parts.push(Part::Link {
            text: text.into(),
            path: path.into(),
            command: command.into(),
        });
        self
    }

    /// Adds a table. People see at most `top` rows, unless a page of a site shows another number;
    /// with 0, the table is for machines only.
    pub fn table<'a, R: Row + 'a>(
        &mut self,
        title: impl Into<String>,
        rows: impl IntoIterator<Item = &'a R>,
        top: usize,
    ) -> &mut Self {
        let rows: Vec<_> = rows.into_iter().map(Row::cells).collect();
        let shown = rows.len().min(top);
        self.parts.push(Part::Table(Table {
            spec: R::TABLE,
            title: title.into(),
            rows,
            shown,
        }));
        self
    }

    /// Adds a table, such as one whose columns depend on the data.
    pub fn table_of(&mut self, table: Table) -> &mut Self {
        self.parts.push(Part::Table(table));
        self
    }

    /// Adds a picture.
    pub fn figure(&mut self, figure: Figure) -> &mut Self {
        self.parts.push(Part::Figure(figure));
        self
    }

    /// Adds pictures, which pages show side by side if there is room.
    pub fn figures(&mut self, figures: impl IntoIterator<Item = Figure>) -> &mut Self {
        self.parts.extend(figures.into_iter().map(Part::Figure));
        self
    }

    /// Adds a text whose stretches are marked by their origins.
    pub fn passage(&mut self, passage: Passage) -> &mut Self {
        self.parts.push(Part::Passage(passage));
        self
    }

    /// Returns the parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the tables, in order. Merges tables of one name, which pages and terminals show
    /// separately.
    pub fn tables(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = Vec::new();
        for part in &self.parts {
            let Part::Table(table) = part else { continue };
            match tables
                .iter_mut()
                .find(|known| known.spec.name == table.spec.name)
            {
                Some(known) => known.rows.extend(table.rows.iter().cloned()),
                None => tables.push(table.clone()),
            }
        }
        tables
    }
}

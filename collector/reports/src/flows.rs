//! The `flows` subcommand.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use stroboscope_analysis::flow::{CategoryId, FlowCategory};

use crate::Failure;
use crate::arguments::{ReadingArguments, ShowArguments, parse_duration, to_ns};
use crate::periods::FlowArguments;
use crate::results::flows::category::CategorySays;
use crate::results::flows::{By, FlowList, FlowsSay};
use crate::study::NamedStudy;
use crate::verb::{ReadingVerb, write_file};
use stroboscope_query::{Flows, flows, path_of};
use stroboscope_render::picture::draw;
use stroboscope_render::show::{Row, TableSpec};

/// Browse the requests of a period by their structure
///
/// Groups requests into categories of equal structure, see `compare`, and ranks the categories.
/// Shows latency as a density over its logarithm, with its modes. With --category, shows one of
/// them: its structure, an example request as a train schedule with a lane for each service, and
/// its graph.
#[derive(Debug, Args)]
pub struct FlowsVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Order of the categories
    #[arg(long, value_enum, default_value_t = By::Total)]
    by: By,
    /// Maximum number of categories to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    top: usize,
    /// Only requests with a latency in this range, such as 80ms..200ms, or 200ms..
    #[arg(long, value_name = "FROM..TO", value_parser = parse_latency)]
    latency: Option<RangeInclusive<u64>>,
    #[command(flatten)]
    flow: FlowArguments,
    /// Show one category, by its name or a unique prefix of it
    #[arg(long, value_name = "ID")]
    category: Option<String>,
    /// With --category, also write its graph for Graphviz to this file
    #[arg(long, value_name = "FILE", requires = "category")]
    dot: Option<PathBuf>,
    /// With --category, also write its graph as a picture to this file
    #[arg(long, value_name = "FILE", requires = "category")]
    svg: Option<PathBuf>,
}

fn parse_latency(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (from, to) = text
        .split_once("..")
        .ok_or("a range such as 80ms..200ms, 80ms.. or ..200ms")?;
    let side = |text: &str, none: u64| {
        if text.is_empty() {
            return Ok(none);
        }
        parse_duration(text).map(to_ns)
    };
    let (from_ns, to_ns) = (side(from, 0)?, side(to, u64::MAX)?);
    if from_ns > to_ns {
        return Err("the shorter time first, such as 80ms..200ms".to_owned());
    }
    Ok(from_ns..=to_ns)
}

impl FlowsVerb {
    fn one(&self, asked: &str, found: &Flows, study: &NamedStudy) -> Result<FlowsSay, Failure> {
        let (root, id, category) = find(asked, found)?;
        let example = CategorySays::example(category)
            .map(|id| {
                let inference = study.known()?.inference;
                let source = study.source();
                let answer = path_of(source, study.selection(), inference, id.0);
                answer.map_err(Failure::of).map(|(answer, _)| answer)
            })
            .transpose()?
            .flatten();
        let labels = study.known()?.inference.model.labels();
        let says = CategorySays::of(
            (root, id, category),
            &found.flows,
            example.as_ref().map(|answer| &answer.path),
            labels,
            found.notes.clone(),
        );
        if let Some(path) = &self.dot {
            write_file(path, says.dot().as_bytes())?;
        }
        if let Some(path) = &self.svg {
            let picture = draw(&says.picture()).map_err(Failure::of)?;
            write_file(path, picture.svg().as_bytes())?;
        }
        Ok(FlowsSay::Category(Box::new(says)))
    }
}

/// Finds the category whose name starts with `asked`. Returns an error if none or several do.
fn find<'a>(
    asked: &str,
    found: &'a Flows,
) -> Result<(&'a str, CategoryId, &'a FlowCategory), Failure> {
    let all = found.flows.roots.iter().flat_map(|(root, of_root)| {
        of_root
            .categories
            .iter()
            .map(move |(id, category)| (&**root, *id, category))
    });
    let mut fitting: Vec<_> = all
        .clone()
        .filter(|(_, id, _)| format!("{:032x}", id.0).starts_with(&asked.to_lowercase()))
        .collect();
    match (fitting.pop(), fitting.len()) {
        (Some(one), 0) => Ok(one),
        (Some(_), more) => Err(Failure::asked(format!(
            "--category {asked}: {} categories begin with that; give more of the name",
            more + 1
        ))),
        (None, _) => {
            let mut largest: Vec<_> = all.collect();
            largest.sort_by_key(|(_, _, category)| std::cmp::Reverse(category.requests));
            let names = largest.iter().map(|(_, id, _)| id.to_string());
            let names: Vec<String> = names.take(LISTED_MAX).collect();
            Err(Failure::unknown(format!(
                "there is no category {asked}; the largest are {}",
                names.join(", ")
            )))
        }
    }
}

/// Maximum number of categories that an error lists.
const LISTED_MAX: usize = 5;

impl ReadingVerb for FlowsVerb {
    type Report = FlowsSay;
    const TABLES: &'static [TableSpec] = &[crate::results::flows::CategoryRow::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<FlowsSay, Failure> {
        let latency_ns = self.latency.clone().unwrap_or(0..=u64::MAX);
        let found = flows(study.inner(), self.flow.settings(), latency_ns).map_err(Failure::of)?;
        if found.flows.requests() == 0 {
            return Err(Failure::new(format!(
                "none of the {} requests takes a time such as --latency asks for",
                found.others.recorded()
            )));
        }
        match &self.category {
            Some(asked) => self.one(asked, &found, study),
            None => Ok(FlowsSay::List(Box::new(FlowList::of(
                found, self.by, self.top,
            )))),
        }
    }
}

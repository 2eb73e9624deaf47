//! Finds all spans that the selectors of a formula certainly match, as TraceQL reports them. A
//! witness may lack some of them.

use super::formula::{Formula, Selector};
use super::unit::Unit;

impl Unit<'_> {
    /// Returns the indices of the spans, log events and kernel events that certainly match a
    /// selector of the formula, in order of time and without duplicates.
    #[must_use]
    pub fn spanset(&self, formula: &Formula) -> Vec<usize> {
        let mut selectors = Vec::new();
        add_selectors(formula, &mut selectors);
        let mut places: Vec<usize> = selectors
            .into_iter()
            .flat_map(|selector| self.select(selector).into_iter().enumerate())
            .filter(|(_, truth)| truth.is_sure())
            .map(|(place, _)| place)
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

fn add_selectors<'a>(formula: &'a Formula, selectors: &mut Vec<&'a Selector>) {
    match formula {
        Formula::Is(selector) => selectors.push(selector),
        Formula::Some(_, inner)
        | Formula::All(_, inner)
        | Formula::AtLeast(_, _, inner)
        | Formula::Not(inner) => add_selectors(inner, selectors),
        Formula::And(a, b)
        | Formula::Or(a, b)
        | Formula::Implies(a, b)
        | Formula::Pair(a, _, b)
        | Formula::Until(a, _, b) => {
            add_selectors(a, selectors);
            add_selectors(b, selectors);
        }
    }
}

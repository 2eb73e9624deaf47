//! Maps series to classes of the stylesheet, whose colours follow Okabe and Ito ("Color Universal
//! Design").

/// Number of distinguishable series; the classes repeat after that.
const SERIES: usize = 7;

/// Returns the class of the `number`th series' line: its colour and dashes.
pub(super) fn line_class(number: usize) -> String {
    format!("series s{}", number % SERIES)
}

/// Returns the class of the `number`th series' area.
pub(super) fn area_class(number: usize) -> String {
    format!("a{}", number % SERIES)
}

/// Returns the class of the `number`th series' box.
pub(super) fn box_class(number: usize) -> String {
    format!("box s{}", number % SERIES)
}

#[cfg(test)]
mod tests {
    use super::{SERIES, line_class};
    use std::collections::BTreeSet;

    #[test]
    fn each_line_has_dashes_of_its_own() {
        let palette = include_str!("../../assets/palette.css");
        let dashes = (0..SERIES).map(|number| {
            let rule = format!(".{}{{", line_class(number).replace(' ', "."));
            let style = palette.split_once(&*rule).map_or("", |(_, rest)| rest);
            style.split('}').next()
        });
        assert_eq!(dashes.collect::<BTreeSet<_>>().len(), SERIES);
    }
}

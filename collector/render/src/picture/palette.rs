//! Maps series to classes of the stylesheet, whose colours follow Okabe and Ito ("Color Universal
//! Design").

/// Number of distinguishable series; the classes repeat after that.
const SERIES: usize = 7;

/// Returns the class of the `number`th series' line: its colour and dashes.
pub(super) fn line_class(number: usize) -> &'static str {
    const CLASSES: [&str; SERIES] = [
        "series s0",
        "series s1",
        "series s2",
        "series s3",
        "series s4",
        "series s5",
        "series s6",
    ];
    CLASSES[number % SERIES]
}

/// Returns the class of the `number`th series' area.
pub(super) fn area_class(number: usize) -> &'static str {
    const CLASSES: [&str; SERIES] = ["a0", "a1", "a2", "a3", "a4", "a5", "a6"];
    CLASSES[number % SERIES]
}

/// Returns the class of the `number`th series' box.
pub(super) fn box_class(number: usize) -> &'static str {
    const CLASSES: [&str; SERIES] = [
        "box s0", "box s1", "box s2", "box s3", "box s4", "box s5", "box s6",
    ];
    CLASSES[number % SERIES]
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

//! Colours and line styles (Okabe and Ito, "Color Universal Design").

use plotters::style::RGBColor;

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(34, 34, 34);
/// What is only for orientation.
pub(super) const FAINT: RGBColor = RGBColor(204, 204, 204);
/// What is not meant.
pub(super) const GREY: RGBColor = RGBColor(119, 119, 119);
/// The critical path, and nothing else.
pub(super) const CRITICAL: RGBColor = RGBColor(213, 94, 0);

const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(230, 159, 0);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const PURPLE: RGBColor = RGBColor(204, 121, 167);
const SKY: RGBColor = RGBColor(86, 180, 233);
const YELLOW: RGBColor = RGBColor(240, 228, 66);

/// Series that are told apart; further ones look like these again.
const SERIES: [RGBColor; 7] = [GREEN, ORANGE, BLUE, PURPLE, SKY, GREY, YELLOW];

/// The colour of the `number`th series.
pub(super) fn series_color(number: usize) -> RGBColor {
    SERIES[number % SERIES.len()]
}

/// The dashes of the `number`th series, px: drawn and left out. None: a solid line.
pub(super) fn series_dashes(number: usize) -> Option<(u32, u32)> {
    [
        Some((9, 4)),
        Some((3, 4)),
        None,
        Some((14, 5)),
        Some((5, 9)),
    ][number % 5]
}

//! Positions and labels of the marks on an axis.

use crate::humanise::duration_tick;
use crate::show::{Axis, Kind, axis_text};

/// Returns the position of the end of an axis: 1 for shares, or if `highest` is not positive and
/// finite. Otherwise, it is the position of `highest`, multiplied by `headroom` on a linear axis
/// and rounded up to a whole number on a logarithmic axis.
pub(super) fn end(axis: &Axis, highest: f64, headroom: f64) -> f64 {
    let end = match axis.kind {
        Kind::Share => 1.0,
        _ if axis.is_logarithmic => axis.place(highest).ceil(),
        _ => highest * headroom,
    };
    // An axis of zero length cannot be drawn.
    if end > 0.0 && end.is_finite() {
        end
    } else {
        1.0
    }
}

/// Returns the positions and labels of the marks on an axis. On a linear axis, the marks are
/// multiples of a round number, from 0, in at most about `wanted` steps; on a logarithmic axis,
/// they are 0, 1, 10, 100 …
pub(super) fn ticks(axis: &Axis, end: f64, wanted: usize) -> Vec<(f64, String)> {
    if axis.is_logarithmic {
        let powers = (0..=end.floor() as i32).map(|power| 10f64.powi(power));
        let numbers = std::iter::once(0.0).chain(powers);
        let placed = numbers.map(|number| (axis.place(number), text(number, axis.kind)));
        return placed.filter(|(place, _)| *place <= end).collect();
    }
    let step = nice_step(end / wanted.max(1) as f64);
    let count = (end / step + 1e-9).floor() as usize;
    (0..=count)
        .map(|at| at as f64 * step)
        .map(|number| (number, text(number, axis.kind)))
        .collect()
}

/// Returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least `least`,
/// except for rounding; 1 if `least` is not positive or not finite.
pub(super) fn nice_step(least: f64) -> f64 {
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let fits = steps.into_iter().find(|step| *step >= least * 0.999_999);
    fits.unwrap_or(10.0 * power)
}

pub(super) fn text(number: f64, kind: Kind) -> String {
    match kind {
        Kind::DurationNs => duration_tick(number),
        kind => axis_text(number, kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_read_well() {
        let said = |axis: &Axis, highest: f64| -> Vec<String> {
            let ticks = ticks(axis, end(axis, highest, 1.0), 6);
            ticks
                .into_iter()
                .map(|(_, text)| text.replace('\u{a0}', " "))
                .collect()
        };
        let linear = Axis::new("latency", Kind::DurationNs);
        assert_eq!(
            said(&linear, 9.3e6),
            ["0 ns", "2 ms", "4 ms", "6 ms", "8 ms"]
        );
        let logarithmic = Axis {
            is_logarithmic: true,
            ..Axis::new("changes", Kind::Count)
        };
        assert_eq!(said(&logarithmic, 999.0), ["0", "1", "10", "100"]);
        assert_eq!(
            said(&Axis::new("of", Kind::Share), 0.3),
            ["0%", "20%", "40%", "60%", "80%", "100%"]
        );
        assert_eq!(said(&Axis::new("none", Kind::Count), 0.0)[0], "0");
    }
}

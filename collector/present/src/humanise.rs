//! Humanised numbers: durations and shares as people read them.

/// A duration for people: three significant digits and a unit.
pub fn duration(ns: f64) -> String {
    let (scaled, unit) = match ns.abs() {
        ns_abs if ns_abs < 1e3 => return format!("{ns:.0}ns"),
        ns_abs if ns_abs < 1e6 => (ns / 1e3, "us"),
        ns_abs if ns_abs < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let decimals = if scaled.abs() < 10.0 {
        2
    } else {
        usize::from(scaled.abs() < 100.0)
    };
    format!("{scaled:.decimals$}{unit}")
}

/// A share for people.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// So many of what is called so.
pub fn counted(count: u64, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {one}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_for_people() {
        let check = |ns: f64, text: &str| assert_eq!(duration(ns), text);
        check(0.0, "0ns");
        check(999.0, "999ns");
        check(1_234.0, "1.23us");
        check(12_345_678.0, "12.3ms");
        check(123_456_789.0, "123ms");
        check(1.5e9, "1.50s");
    }
}

//! Percentiles and medians of samples of values. For histograms, see
//! [`Distribution`](crate::distribution).

/// Returns a percentile by the nearest rank: the smallest value that at least the fraction `part`
/// (0 to 1) of the values does not exceed. The values must be ascending. Returns `None` without
/// values.
pub fn percentile<T: Copy>(sorted: &[T], part: f64) -> Option<T> {
    // In floating point, 0.07 × 100 is a little more than 7.
    let rank = (part * sorted.len() as f64 - 1e-9).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// Returns the median; for an even number of values, the midpoint of the two middle values. Returns
/// `None` without values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let hundred: Vec<u64> = (1..=100).collect();
        for percent in 1..=100 {
            let found = percentile(&hundred, percent as f64 / 100.0);
            assert_eq!(found, Some(percent), "{percent}");
        }
        assert_eq!(percentile(&hundred, 0.0), Some(1));
        assert_eq!(percentile(&hundred, 2.0), Some(100));
        assert_eq!(percentile(&[7], 0.5), Some(7));
        assert_eq!(percentile::<u64>(&[], 0.5), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}

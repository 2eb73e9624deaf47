//! Linear regression by least squares with a ridge penalty.

/// Result of a linear regression.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearFit {
    /// Weight of each column.
    pub weights: Vec<f64>,
    /// Standard errors of the weights. They ignore the bias that the ridge causes.
    pub errors: Vec<f64>,
    /// Sum of squared residuals.
    pub residual: f64,
}

/// Finds the weights w that minimise |y − Xw|² + `ridge` Σ sᵢ wᵢ², where sᵢ is the sum of squares
/// of column i, but at least 1. Solves the normal equations by Cholesky's decomposition. Returns
/// `None` if there are no rows or columns, if lengths differ, or if the matrix of the equations
/// contains NaN or is (nearly) singular. A sufficient ridge makes a finite matrix regular.
#[must_use]
pub fn fit(rows: &[Vec<f64>], y: &[f64], ridge: f64) -> Option<LinearFit> {
    let width = rows.first()?.len();
    if width == 0 || rows.len() != y.len() || rows.iter().any(|row| row.len() != width) {
        return None;
    }
    let mut normal = vec![vec![0.0; width]; width];
    let mut right = vec![0.0; width];
    for (row, value) in rows.iter().zip(y) {
        for (i, x) in row.iter().enumerate() {
            if *x == 0.0 {
                // One-hot rows are nearly all zeros.
                continue;
            }
            right[i] += x * value;
            for (cell, other) in normal[i].iter_mut().zip(row) {
                *cell += x * other;
            }
        }
    }
    // Scale the ridge to the sum of squares of each column.
    for (i, row) in normal.iter_mut().enumerate() {
        row[i] += ridge * row[i].max(1.0);
    }
    let lower = cholesky(&normal)?;
    let weights = solve(&lower, &right);
    let residual: f64 = rows
        .iter()
        .zip(y)
        .map(|(row, value)| {
            let fitted: f64 = row.iter().zip(&weights).map(|(x, weight)| x * weight).sum();
            (value - fitted).powi(2)
        })
        .sum();
    let freedom = rows.len().saturating_sub(width).max(1) as f64;
    let errors = (0..width).map(|i| {
        let unit: Vec<f64> = (0..width).map(|j| if i == j { 1.0 } else { 0.0 }).collect();
        let inverse = solve(&lower, &unit);
        (residual / freedom * inverse[i].max(0.0)).sqrt()
    });
    Some(LinearFit {
        errors: errors.collect(),
        weights,
        residual,
    })
}

fn cholesky(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let width = matrix.len();
    let mut lower = vec![vec![0.0; width]; width];
    for i in 0..width {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
            let rest = matrix[i][j] - dot;
            lower[i][j] = if i == j {
                if rest.is_nan() || rest <= matrix[i][i].abs() * 1e-12 {
                    return None;
                }
                rest.sqrt()
            } else {
                rest / lower[j][j]
            };
        }
    }
    Some(lower)
}

/// Solves L Lᵀ x = b.
fn solve(lower: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let width = lower.len();
    let mut x = right.to_vec();
    for i in 0..width {
        let dot: f64 = (0..i).map(|k| lower[i][k] * x[k]).sum();
        x[i] = (x[i] - dot) / lower[i][i];
    }
    for i in (0..width).rev() {
        let dot: f64 = (i + 1..width).map(|k| lower[k][i] * x[k]).sum();
        x[i] = (x[i] - dot) / lower[i][i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_plane_is_found() {
        let rows: Vec<Vec<f64>> = (0..50)
            .map(|i| vec![1.0, f64::from(i), f64::from(i * i % 7)])
            .collect();
        let y: Vec<f64> = rows
            .iter()
            .map(|row| 3.0 - 2.0 * row[1] + 0.5 * row[2])
            .collect();
        let fit = fit(&rows, &y, 0.0).expect("fitted");
        for (weight, expected) in fit.weights.iter().zip([3.0, -2.0, 0.5]) {
            assert!((weight - expected).abs() < 1e-9, "{fit:?}");
        }
        assert!(fit.residual < 1e-12 && fit.errors.iter().all(|error| *error < 1e-6));
    }

    #[test]
    fn what_has_no_solution_has_one_with_a_ridge() {
        let rows = vec![vec![1.0, 1.0], vec![2.0, 2.0]];
        assert_eq!(fit(&rows, &[1.0, 2.0], 0.0), None);
        let ridged = fit(&rows, &[1.0, 2.0], 1e-6).expect("fitted");
        assert!((ridged.weights[0] - 0.5).abs() < 1e-3);
        assert_eq!(fit(&[], &[], 1.0), None);
        assert_eq!(fit(&[vec![1.0]], &[], 1.0), None);
        assert_eq!(fit(&[vec![f64::NAN]], &[1.0], 1.0), None);
    }

    proptest! {
        /// Checks the optimum directly: no small step along any axis reduces the residual.
        #[test]
        fn nothing_nearby_is_better(
            rows in prop::collection::vec(prop::collection::vec(-5.0..5.0_f64, 3), 5..30),
            seed in 0_u32..1000,
        ) {
            let y: Vec<f64> = rows.iter().enumerate().map(|(i, row)| row[0] + f64::from((i as u32 * 7 + seed) % 11)).collect();
            if let Some(fit) = fit(&rows, &y, 0.0) {
                let residual = |weights: &[f64]| -> f64 {
                    rows.iter().zip(&y).map(|(row, y)| {
                        let fitted: f64 = row.iter().zip(weights).map(|(x, w)| x * w).sum();
                        (y - fitted).powi(2)
                    }).sum()
                };
                for i in 0..3 {
                    for step in [-1e-3, 1e-3] {
                        let mut weights = fit.weights.clone();
                        weights[i] += step;
                        prop_assert!(residual(&weights) >= fit.residual - 1e-9);
                    }
                }
            }
        }
    }
}

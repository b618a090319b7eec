//! Medians and other quantiles.

use std::time::Duration;

/// The value below which this share of the samples lies; `NaN` if there are none.
pub(crate) fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
}

/// The value in the middle.
pub(crate) fn median(samples: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&samples.into_iter().collect::<Vec<_>>(), 0.5)
}

/// The rate per second of `count` in that time.
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_do_not_depend_on_the_order() {
        let samples = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(median(samples), 3.0);
        assert_eq!(quantile(&samples, 0.99), 5.0);
        assert_eq!(quantile(&samples, 0.0), 1.0);
        assert!(median([]).is_nan());
    }
}

//! Fit of coefficients to measured points.
//!
//! The fit is deterministic, and every value is within its bounds. The search is Nelder-Mead on the
//! logarithms, restarted until the result no longer improves.

/// A parameter to fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitParameter {
    /// Name in the coefficient table.
    pub name: &'static str,
    /// Start value of the search.
    pub start: f64,
    /// Smallest plausible value; positive.
    pub low: f64,
    /// Largest plausible value of the parameter.
    pub high: f64,
}

/// Result of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// One value per parameter.
    pub values: Vec<f64>,
    /// Mean loss of the points.
    pub loss: f64,
}

/// Error, as a logarithm, from which a point loses influence.
const OUTLIER: f64 = 0.25;

/// Returns a value with four significant digits, as profiles store it.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

const STEPS: usize = 400;

const ROUNDS: usize = 8;

/// Typical errors, as logarithms, of a measured row and of an unfitted coefficient: they weight a
/// start value relative to a row.
const ROW: f64 = 0.1;
const START: f64 = 0.5;

/// Returns the mean loss of weighted ratios of predicted to measured values: the squared logarithm,
/// which levels off for outliers.
#[must_use]
pub fn loss(ratios: &[(f64, f64)]) -> f64 {
    let one = |(ratio, weight): &(f64, f64)| {
        let square = ratio.ln().powi(2);
        weight * square / (1.0 + square / OUTLIER.powi(2))
    };
    ratios.iter().map(one).sum::<f64>() / weight(ratios)
}

/// Returns the [`loss`] of the ratios that `values` give, plus that of values far from their
/// starts.
fn loss_with_starts(parameters: &[FitParameter], values: &[f64], ratios: &[(f64, f64)]) -> f64 {
    let moved: f64 = values.iter().zip(parameters).map(|(value, p)| (value / p.start).ln().powi(2)).sum();
    loss(ratios) + (ROW / START).powi(2) * moved / weight(ratios)
}

fn weight(ratios: &[(f64, f64)]) -> f64 {
    let weight: f64 = ratios.iter().map(|(_, weight)| weight).sum();
    if weight > 0.0 { weight } else { 1.0 }
}

/// Returns the values with the smallest [`loss`]. A ratio is predicted over measured, with a
/// weight. A parameter that the points barely determine stays near its start value.
#[must_use]
pub fn fit(parameters: &[FitParameter], ratios: impl Fn(&[f64]) -> Vec<(f64, f64)>) -> Fit {
    let starts: Vec<f64> = parameters.iter().map(|p| p.start).collect();
    fit_from(parameters, &[&starts], ratios)
}

/// Fits like [`fit`], and begins at the best of several points.
#[must_use]
pub fn fit_from(
    parameters: &[FitParameter],
    begins: &[&[f64]],
    ratios: impl Fn(&[f64]) -> Vec<(f64, f64)>,
) -> Fit {
    let values = |point: &[f64]| -> Vec<f64> {
        point.iter().zip(parameters).map(|(at, p)| at.exp().clamp(p.low, p.high)).collect()
    };
    // Outside the bounds, the loss pushes the simplex back.
    let height = |point: &[f64]| {
        let outside: f64 = point
            .iter()
            .zip(parameters)
            .map(|(at, p)| (at - p.high.ln()).max(0.0).powi(2) + (p.low.ln() - at).max(0.0).powi(2))
            .sum();
        let values = values(point);
        loss_with_starts(parameters, &values, &ratios(&values)) + outside
    };
    let inside = |begin: &[f64]| -> Vec<f64> {
        begin.iter().zip(parameters).map(|(value, p)| value.clamp(p.low, p.high).ln()).collect()
    };
    let all = begins.iter().map(|begin| inside(begin)).map(|point| (height(&point), point));
    let Some((mut least, mut best)) = all.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Fit { values: Vec::new(), loss: f64::NAN };
    };
    for round in 0..ROUNDS {
        let width = 0.4 / (1.0 + round as f64);
        let (point, found) = simplex(&best, width, &height);
        let gain = least - found;
        if gain > 0.0 {
            (best, least) = (point, found);
        }
        if round > 1 && gain < 1e-9 {
            break;
        }
    }
    let values = values(&best);
    Fit { loss: loss(&ratios(&values)), values }
}

/// Fits like [`fit`] from `begin`, for slow and smooth predictions. Each iteration linearizes the
/// ratios and values in their logarithms.
#[must_use]
pub fn fit_smooth(
    parameters: &[FitParameter],
    begin: &[f64],
    ratios: impl Fn(&[f64]) -> Vec<(f64, f64)>,
) -> Fit {
    const STEP: f64 = 1e-3;
    const TIMES: usize = 12;
    const MOVED: f64 = 1e-4;
    let mut current: Vec<f64> =
        begin.iter().zip(parameters).map(|(value, p)| value.clamp(p.low, p.high)).collect();
    for _ in 0..TIMES {
        let here = ratios(&current);
        let slopes: Vec<Vec<f64>> = (0..current.len())
            .map(|dim| {
                let mut moved = current.clone();
                moved[dim] *= f64::exp(STEP);
                ratios(&moved).iter().zip(&here).map(|(moved, here)| (moved.0 / here.0).ln() / STEP).collect()
            })
            .collect();
        let linear_fit = fit(parameters, |values| {
            let away: Vec<f64> =
                values.iter().zip(&current).map(|(value, current)| (value / current).ln()).collect();
            let linear = |(row, (ratio, weight)): (usize, &(f64, f64))| {
                let change: f64 = away.iter().zip(&slopes).map(|(away, slopes)| away * slopes[row]).sum();
                (ratio * change.exp(), *weight)
            };
            here.iter().enumerate().map(linear).collect()
        });
        let moved = linear_fit
            .values
            .iter()
            .zip(&current)
            .map(|(new, old)| (new / old).ln().abs())
            .fold(0.0, f64::max);
        current = linear_fit.values;
        if moved < MOVED {
            break;
        }
    }
    Fit { loss: loss(&ratios(&current)), values: current }
}

/// Returns the lowest point and its height (Nelder-Mead).
fn simplex(start: &[f64], width: f64, height: &impl Fn(&[f64]) -> f64) -> (Vec<f64>, f64) {
    let at = |point: Vec<f64>| -> (Vec<f64>, f64) {
        let height = height(&point);
        (point, height)
    };
    let mut corners = vec![at(start.to_vec())];
    for dim in 0..start.len() {
        let mut corner = start.to_vec();
        corner[dim] += width;
        corners.push(at(corner));
    }
    for _ in 0..STEPS {
        corners.sort_by(|a, b| a.1.total_cmp(&b.1));
        let Some((worst, others)) = corners.split_last_mut() else { break };
        let Some(lowest) = others.first().map(|corner| corner.1) else { break };
        let second = others.last().map_or(lowest, |corner| corner.1);
        if worst.1 - lowest < 1e-14 {
            break;
        }
        let middle: Vec<f64> = (0..start.len())
            .map(|dim| others.iter().map(|corner| corner.0[dim]).sum::<f64>() / others.len() as f64)
            .collect();
        let towards =
            |factor: f64| at(middle.iter().zip(&worst.0).map(|(m, w)| m + factor * (m - w)).collect());
        let mirrored = towards(1.0);
        if mirrored.1 < lowest {
            let farther = towards(2.0);
            *worst = if farther.1 < mirrored.1 { farther } else { mirrored };
        } else if mirrored.1 < second {
            *worst = mirrored;
        } else {
            let nearer = towards(if mirrored.1 < worst.1 { 0.5 } else { -0.5 });
            if nearer.1 < worst.1 {
                *worst = nearer;
            } else {
                let target = others[0].0.clone();
                for corner in corners.iter_mut().skip(1) {
                    *corner = at(corner.0.iter().zip(&target).map(|(c, t)| (c + t) / 2.0).collect());
                }
            }
        }
    }
    corners.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_else(|| (start.to_vec(), f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: [FitParameter; 2] = [
        FitParameter { name: "rate", start: 1.0, low: 0.1, high: 10.0 },
        FitParameter { name: "fixed", start: 1.0, low: 0.1, high: 10.0 },
    ];

    fn ratios(values: &[f64]) -> Vec<(f64, f64)> {
        let time = |rate: f64, fixed: f64, work: f64| fixed + work / rate;
        let ratio = |w: &f64| (time(values[0], values[1], *w) / time(3.0, 2.0, *w), 1000.0);
        [0.5, 1.0, 4.0, 30.0, 200.0].iter().map(ratio).collect()
    }

    #[test]
    fn the_values_that_made_the_points_are_found() {
        let found = fit(&PARAMETERS, ratios);
        assert!(
            (found.values[0] / 3.0 - 1.0).abs() < 1e-3 && (found.values[1] / 2.0 - 1.0).abs() < 1e-3,
            "{found:?}"
        );
        assert_eq!(found, fit(&PARAMETERS, ratios));
    }

    #[test]
    fn smooth_predictions_give_the_same_values() {
        let wide = |values: &[f64]| -> Vec<(f64, f64)> {
            ratios(values).into_iter().map(|(r, _)| (r, 1.0)).collect()
        };
        let (slow, fast) = (fit(&PARAMETERS, wide), fit_smooth(&PARAMETERS, &[8.0, 0.3], wide));
        for (slow, fast) in slow.values.iter().zip(&fast.values) {
            assert!((slow / fast - 1.0).abs() < 1e-3, "{slow} {fast}");
        }
    }

    #[test]
    fn a_value_that_nothing_says_stays_where_it_starts() {
        let found = fit(&PARAMETERS, |_| vec![(1.5, 1.0)]);
        assert!((found.values[0] - 1.0).abs() < 1e-3 && (found.values[1] - 1.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn values_stay_within_their_bounds() {
        let mut narrow = PARAMETERS;
        narrow[0].high = 2.0;
        let found = fit(&narrow, ratios);
        assert!((found.values[0] - 2.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn one_wrong_point_does_not_bend_the_others() {
        let found = fit(&PARAMETERS, |values| {
            let mut ratios = ratios(values);
            ratios[4].0 *= 5.0;
            ratios
        });
        assert!(found.values[1] > 1.8 && found.values[1] < 2.2, "{found:?}");
    }
}

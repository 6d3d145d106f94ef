//! Amplification of roundings by attention.
//!
//! Assume a relative error `ρ` with random signs in queries, keys and scores `s_i`. The score of
//! key `i` then has the error `ρ c_i`, with `c_i² = 2 scale² Σ (q k_i)² + s_i²`. To first order the
//! result `o = Σ w_i v_i` has the error `ρ √(Σ w_i² c_i² (v_i - o)²)`. It can be several times `ρ`,
//! because a rounding decides between two keys with nearly the same score.

use crate::program::HostTensor;

/// Returns the square of the largest error, relative to the largest result, divided by `ρ²`.
/// Queries are `[b,s,k,g,d]`, keys and values `[b,t,k,d]`. Attention is causal.
pub(super) fn amplification(scale: f64, [q, keys, values]: [&HostTensor; 3]) -> f64 {
    let (&[b, s, k, g, d], &[_, t, ..]) = (q.shape.sizes(), keys.shape.sizes()) else { return 0.0 };
    let (q, keys, values) = (q.floats(), keys.floats(), values.floats());
    let (mut error, mut largest): (f64, f64) = (0.0, 0.0);
    for query in 0..b * s * k * g {
        let (head, token) = (query / g % k, query / (g * k) % s);
        let row = |of: usize| ((query / (g * k * s) * t + of) * k + head) * d;
        let seen = (token + 1).min(t);
        let of_query = &q[query * d..(query + 1) * d];
        let scores: Vec<[f64; 2]> =
            (0..seen).map(|of| score(scale, of_query, &keys[row(of)..row(of) + d])).collect();
        let highest = scores.iter().fold(f64::NEG_INFINITY, |most, [score, _]| most.max(*score));
        let total: f64 = scores.iter().map(|[score, _]| (score - highest).exp()).sum();
        let weights: Vec<f64> = scores.iter().map(|[score, _]| (score - highest).exp() / total).collect();
        for dim in 0..d {
            let value = |of: usize| f64::from(values[row(of) + dim]);
            let out: f64 = weights.iter().enumerate().map(|(of, weight)| weight * value(of)).sum();
            let squares = weights.iter().zip(&scores).enumerate();
            let square: f64 = squares
                .map(|(of, (weight, [_, square]))| (weight * (value(of) - out)).powi(2) * square)
                .sum();
            (error, largest) = (error.max(square), largest.max(out.abs()));
        }
    }
    if largest > 0.0 && error.is_finite() { error / (largest * largest) } else { 0.0 }
}

/// Returns a score, and its squared error over `ρ²`.
fn score(scale: f64, query: &[f32], key: &[f32]) -> [f64; 2] {
    let terms = query.iter().zip(key).map(|(q, k)| scale * f64::from(*q) * f64::from(*k));
    let [score, square] =
        terms.fold([0.0, 0.0], |[score, square], term| [score + term, square + 2.0 * term * term]);
    [score, square + score * score]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;

    fn tensor(shape: &[usize], data: &[f32]) -> HostTensor {
        HostTensor::float(shape.to_vec(), DType::F32, data.to_vec())
    }

    #[test]
    fn two_keys_of_one_score_enlarge_roundings() {
        // The second token weighs both keys equally.
        let q = tensor(&[1, 2, 1, 1, 1], &[0.0, 8.0]);
        let keys = tensor(&[1, 2, 1, 1], &[1.0, 1.0]);
        let values = tensor(&[1, 2, 1, 1], &[1.0, -1.0]);
        // c² = 3 · 8², w = 1/2, v - o = 1 and -1: 2 · 1/4 · 192.
        assert!((amplification(1.0, [&q, &keys, &values]) - 96.0).abs() < 1e-9);
        // A single key with all the weight enlarges nothing.
        let keys = tensor(&[1, 2, 1, 1], &[9.0, 1.0]);
        assert!(amplification(1.0, [&q, &keys, &values]) < 1e-9);
    }
}

//! Amplification of roundings by attention.
//!
//! Assume a relative error `ρ` with random signs in queries, keys and scores `s_i`. The score of
//! key `i` then has the error `ρ c_i`, with `c_i² = 2 scale² Σ (q k_i)² + s_i²`. To first order the
//! result `o = Σ w_i v_i` has the error `ρ √(Σ w_i² c_i² (v_i - o)²)`. It can be several times `ρ`,
//! because a rounding decides between two keys with nearly the same score.
//!
//! Assume that each number of 8-bit keys and values is off by one step, `a_i` of a key and `b_i` of
//! a value, with random signs. The score of key `i` then has the error `scale |q| a_i`, and the
//! result `√(Σ w_i² (scale² |q|² a_i² (v_i - o)² + b_i²))`.

use crate::program::HostTensor;

/// Squares of the largest error of attention, relative to its largest result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Amplification {
    /// The square from a relative error `ρ`, divided by `ρ²`.
    pub(super) factor: f64,
    /// The square from one step of each number of 8-bit keys and values.
    pub(super) steps: f64,
}

/// Returns the errors of attention. Queries are `[b,s,k,g,d]`, keys and values `[b,t,k,d]`.
/// Attention is causal. `steps` are the scales `[b,t,k,1]` of 8-bit keys and values.
pub(super) fn amplification(
    scale: f64,
    [q, keys, values]: [&HostTensor; 3],
    steps: Option<[&HostTensor; 2]>,
) -> Amplification {
    let (&[b, s, k, g, d], &[_, t, ..]) = (q.shape.sizes(), keys.shape.sizes()) else {
        return Amplification::default();
    };
    let (q, keys, values) = (q.floats(), keys.floats(), values.floats());
    let (mut error, mut of_steps, mut largest): (f64, f64, f64) = (0.0, 0.0, 0.0);
    for query in 0..b * s * k * g {
        let (head, token) = (query / g % k, query / (g * k) % s);
        let place = |of: usize| (query / (g * k * s) * t + of) * k + head;
        let row = |of: usize| place(of) * d;
        let seen = (token + 1).min(t);
        let of_query = &q[query * d..(query + 1) * d];
        let length: f64 = of_query.iter().map(|q| (scale * f64::from(*q)).powi(2)).sum();
        let step = |of: usize| {
            steps.map_or([0.0; 2], |steps| steps.map(|steps| f64::from(steps.floats()[place(of)]).powi(2)))
        };
        let steps: Vec<[f64; 2]> = (0..seen).map(step).collect();
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
            let squares = weights.iter().zip(&steps).enumerate();
            let of_step: f64 = squares
                .map(|(of, (weight, [key, own]))| {
                    weight * weight * (length * key * (value(of) - out).powi(2) + own)
                })
                .sum();
            (error, of_steps, largest) = (error.max(square), of_steps.max(of_step), largest.max(out.abs()));
        }
    }
    let relative = |square: f64| match largest > 0.0 && square.is_finite() {
        true => square / (largest * largest),
        false => 0.0,
    };
    Amplification { factor: relative(error), steps: relative(of_steps) }
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
        assert!((amplification(1.0, [&q, &keys, &values], None).factor - 96.0).abs() < 1e-9);
        // A single key with all the weight enlarges nothing.
        let keys = tensor(&[1, 2, 1, 1], &[9.0, 1.0]);
        assert!(amplification(1.0, [&q, &keys, &values], None).factor < 1e-9);
    }

    #[test]
    fn a_step_of_keys_and_values_is_an_error_of_their_scale() {
        let q = tensor(&[1, 2, 1, 1, 1], &[0.0, 8.0]);
        let keys = tensor(&[1, 2, 1, 1], &[1.0, 1.0]);
        let values = tensor(&[1, 2, 1, 1], &[1.0, -1.0]);
        let [key_steps, value_steps] =
            [[0.25, 0.5], [0.125, 0.125]].map(|steps| tensor(&[1, 2, 1, 1], &steps));
        let found = amplification(1.0, [&q, &keys, &values], Some([&key_steps, &value_steps]));
        // The second token: w² = 1/4, scale² |q|² = 64, v - o = ±1.
        let expected = (64.0 * (0.0625 + 0.25) + 2.0 * 0.015_625) / 4.0;
        assert!((found.steps - expected).abs() < 1e-9, "{found:?}");
        assert!((found.factor - 96.0).abs() < 1e-9, "{found:?}");
    }
}

//! Linear solvers and determinants in double precision, rounded once.

use crate::dtype::AclType;
use crate::elementwise::kernels as elementwise;
use crate::lane::Lane;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{SINGLE, WIDE};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::kernels::rows;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnTriangularSolve",
        parameters: &[
            input(SELF, WIDE, 2, 8),
            input(A_TENSOR, WIDE, 2, 8),
            output(X_OUT, WIDE, 2, 8),
            output(M_OUT, WIDE, 2, 8),
        ],
        limits: "self [.., n, k], A [.., n, n]; the leading dims broadcast; xOut has the broadcast shape of self, mOut \
                 (a copy of A) of A; one element type",
        source: "CANN 8.1 aclnn API reference, aclnnTriangularSolve",
        plan: triangular_solve,
    },
    Operator {
        name: "aclnnSlogdet",
        parameters: &[input(SELF, WIDE, 2, 8), output(SIGN_OUT, WIDE, 0, 6), output(LOG_OUT, WIDE, 0, 6)],
        limits: "self [.., n, n]; signOut and logOut have the leading dims and the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnSlogdet",
        plan: slogdet,
    },
    Operator {
        name: "aclnnInverse",
        parameters: &[input(SELF, WIDE, 2, 8), output(OUT, WIDE, 2, 8)],
        limits: "self [.., n, n]; out has the shape and type of self; a singular matrix fails the stream",
        source: "CANN 8.1 aclnn API reference, aclnnInverse",
        plan: inverse,
    },
    Operator {
        name: "aclnnLinalgQr",
        parameters: &[
            input(SELF, FACTORED, 2, 8),
            output(Q_TENSOR, FACTORED, 1, 8),
            output(R_TENSOR, FACTORED, 2, 8),
        ],
        limits: "self [.., m, n], k the smaller of both; mode 0: Q [.., m, k] and R [.., k, n]; 1: Q [.., m, m] and R [.., m, \
                 n]; 2: Q without elements and R [.., k, n]; signs of the \
                 reflections of LAPACK; one element type",
        source: "CANN 8.1 aclnn API reference, aclnnLinalgQr",
        plan: |call| orthogonal(call, call.int_in(MODE, 0..=2)?),
    },
    Operator {
        name: "aclnnQr",
        parameters: &[
            input(SELF, FACTORED, 2, 8),
            output(Q_TENSOR, FACTORED, 1, 8),
            output(R_TENSOR, FACTORED, 2, 8),
        ],
        limits: "as aclnnLinalgQr, some as mode 0, else 1",
        source: "CANN 8.1 aclnn API reference, aclnnQr",
        plan: |call| orthogonal(call, i64::from(!call.flag(SOME)?)),
    },
    Operator {
        name: "aclnnLogdet",
        parameters: &[input(SELF, WIDE, 2, 8), output(OUT, WIDE, 0, 6)],
        limits: "self [.., n, n]; out has the leading dims and the type of self; NaN for a negative determinant",
        source: "CANN 8.1 aclnn API reference, aclnnLogdet",
        plan: logdet,
    },
    Operator {
        name: "aclnnLinalgCholesky",
        parameters: &[input(SELF, SINGLE, 2, 8), output(OUT, SINGLE, 2, 8)],
        limits: "self [.., n, n], whose lower triangle (upper: upper triangle) is read; out L with L L', or U with U' U; the other \
                 triangle is 0; a matrix that is not positive definite fails the stream",
        source: "ops-math math/cholesky, aclnnLinalgCholesky (host code)",
        plan: cholesky,
    },
];

fn cholesky(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_type_of(SELF, &[OUT])?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    let (n, is_upper) = (x.dims[x.rank() - 1], call.flag(UPPER)?);
    call.expect_that(x.dims[x.rank() - 2] == n, SELF, "square matrices", &x.dims)?;
    let [x, out] = call.slots_of([SELF, OUT])?;
    CallPlan::new(move |views, _| {
        let mut factors = Vec::new();
        for (index, matrix) in views.read::<f64>(x).chunks_exact((n * n).max(1)).enumerate() {
            // The lower triangle of a symmetric matrix, or the upper one of its factor's transpose.
            let element = |i: usize, j: usize| if is_upper { matrix[j * n + i] } else { matrix[i * n + j] };
            let mut lower = vec![0f64; n * n];
            for (i, j) in (0..n).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let rest = element(i, j) - (0..j).map(|k| lower[i * n + k] * lower[j * n + k]).sum::<f64>();
                if i == j && (rest.is_nan() || rest <= 0.0) {
                    return Err(format!("self: matrix {index} is not positive definite"));
                }
                lower[i * n + j] = if i == j { rest.sqrt() } else { rest / lower[j * n + j] };
            }
            factors.extend((0..n * n).map(|at| lower[if is_upper { at % n * n + at / n } else { at }]));
        }
        views.write(out, &factors);
        Ok(())
    })
}

const FACTORED: &[AclType] = &[AclType::F32, AclType::F16, AclType::F64];

fn orthogonal(call: &OperatorCall, mode: i64) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_type_of(SELF, &[Q_TENSOR, R_TENSOR])?;
    let (outer, [m, n]) = (&x.dims[..x.rank() - 2], [x.dims[x.rank() - 2], x.dims[x.rank() - 1]]);
    let kept = if mode == 1 { m } else { m.min(n) };
    call.expect_shape(R_TENSOR, &[outer, &[kept, n]].concat(), "by mode")?;
    if mode == 2 {
        let found = &call.tensor(Q_TENSOR)?.dims;
        call.expect_that(found.contains(&0), Q_TENSOR, "no elements for mode 2", found)?;
    } else {
        call.expect_shape(Q_TENSOR, &[outer, &[m, kept]].concat(), "by mode")?;
    }
    let [x, q, r] = call.slots_of([SELF, Q_TENSOR, R_TENSOR])?;
    CallPlan::new(move |views, _| {
        let values = views.read::<f64>(x);
        let (mut all_q, mut all_r) = (Vec::new(), Vec::new());
        for matrix in values.chunks_exact((m * n).max(1)) {
            let (mut upper, mut full) = (matrix.to_vec(), vec![0f64; m * m]);
            (0..m).for_each(|i| full[i * m + i] = 1.0);
            for step in 0..m.saturating_sub(1).min(n) {
                reflect(step, m, n, &mut upper, &mut full);
            }
            (0..m).for_each(|row| all_q.extend_from_slice(&full[row * m..row * m + kept]));
            all_r.extend((0..kept * n).map(|at| if at / n > at % n { 0.0 } else { upper[at] }));
        }
        if mode != 2 {
            views.write(q, &all_q);
        }
        views.write(r, &all_r);
        Ok(())
    })
}

/// Makes the column below the diagonal zero: `upper` becomes `H upper`, `full` becomes `full H`.
fn reflect(step: usize, m: usize, n: usize, upper: &mut [f64], full: &mut [f64]) {
    let mut axis: Vec<f64> = (step..m).map(|row| upper[row * n + step]).collect();
    let norm = axis.iter().map(|value| value * value).sum::<f64>().sqrt();
    if axis[1..].iter().all(|value| *value == 0.0) {
        return;
    }
    axis[0] += norm.copysign(axis[0]);
    let square = axis.iter().map(|value| value * value).sum::<f64>();
    let mirror = |values: &mut [f64], first: usize, stride: usize| {
        let share = 2.0
            * axis.iter().enumerate().map(|(i, part)| part * values[first + i * stride]).sum::<f64>()
            / square;
        axis.iter().enumerate().for_each(|(i, part)| values[first + i * stride] -= share * part);
    };
    (0..n).for_each(|column| mirror(upper, step * n + column, n));
    (0..m).for_each(|row| mirror(full, row * m + step, 1));
}

#[derive(Clone, Copy)]
struct Triangle {
    upper: bool,
    transpose: bool,
    unit: bool,
}

/// `b` becomes `x` of `a x = b`.
///
/// # Shapes
///
/// `a: [n, n]`, `b: [n, k]`, row-major.
fn substitute(of: Triangle, n: usize, k: usize, a: &[f64], b: &mut [f64]) {
    // A transposed upper triangle is a lower one.
    let from_the_end = of.upper != of.transpose;
    let element = |i: usize, j: usize| if of.transpose { a[j * n + i] } else { a[i * n + j] };
    for step in 0..n {
        let i = if from_the_end { n - 1 - step } else { step };
        let known = if from_the_end { i + 1..n } else { 0..i };
        for column in 0..k {
            let sum: f64 = known.clone().map(|j| element(i, j) * b[j * k + column]).sum();
            let rest = b[i * k + column] - sum;
            b[i * k + column] = if of.unit { rest } else { rest / element(i, i) };
        }
    }
}

fn triangular_solve(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (b, a) = (call.tensor(SELF)?, call.tensor(A_TENSOR)?);
    let [.., n, k] = b.dims[..] else { return Err(call.refuse(SELF, "expected a matrix")) };
    let square = &a.dims[a.rank() - 2..];
    if square != [n, n] {
        return Err(call
            .refuse(A_TENSOR, format!("expected [.., {n}, {n}] for self {:?}, found {:?}", b.dims, a.dims)));
    }
    let batch = crate::operator::call::broadcast(&b.dims[..b.rank() - 2], &a.dims[..a.rank() - 2]);
    let batch = batch.ok_or_else(|| {
        call.refuse(
            A_TENSOR,
            format!("{:?} does not broadcast with self {:?} before the last dims", a.dims, b.dims),
        )
    })?;
    let (b_dims, a_dims) = ([&batch[..], &[n, k]].concat(), [&batch[..], &[n, n]].concat());
    call.expect_shape(X_OUT, &b_dims, "of self, broadcast")?;
    call.expect_shape(M_OUT, &a_dims, "of A, broadcast")?;
    for name in [A_TENSOR, X_OUT, M_OUT] {
        call.expect_dtype(name, b.dtype, "the type of self")?;
    }
    let of = Triangle {
        upper: call.flag(UPPER)?,
        transpose: call.flag(TRANSPOSE)?,
        unit: call.flag(UNITRIANGULAR)?,
    };
    let count: usize = batch.iter().product();
    let (b, a, x, m) = (b.slot, a.slot, call.tensor(X_OUT)?.slot, call.tensor(M_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let (a, b) = (views.of(a).broadcast_to(&a_dims), views.of(b).broadcast_to(&b_dims));
        elementwise::copy(tiles, &a, views.of(m));
        if views.of(x).is_empty() {
            return Ok(());
        }
        let (a, b, x) = (a.collapsed(), b.collapsed(), views.of(x).collapsed());
        rows(tiles, count, n * n + n * k, &|i| {
            let (mut matrix, mut right) = (vec![0f64; n * n], vec![0f64; n * k]);
            f64::load(&a, i * n * n, &mut matrix);
            f64::load(&b, i * n * k, &mut right);
            substitute(of, n, k, &matrix, &mut right);
            f64::store(&x, i * n * k, &right);
        });
        Ok(())
    })
}

/// Returns the sign and log magnitude, by elimination with partial pivoting.
fn log_determinant(n: usize, a: &mut [f64]) -> (f64, f64) {
    let (mut sign, mut log) = (1.0, 0.0);
    for column in 0..n {
        let pivot = (column..n).max_by(|&i, &j| a[i * n + column].abs().total_cmp(&a[j * n + column].abs()));
        let pivot = pivot.unwrap_or(column);
        let value = a[pivot * n + column];
        if value == 0.0 {
            return (0.0, f64::NEG_INFINITY);
        }
        if pivot != column {
            (0..n).for_each(|j| a.swap(pivot * n + j, column * n + j));
            sign = -sign;
        }
        sign *= value.signum();
        log += value.abs().ln();
        for i in column + 1..n {
            let factor = a[i * n + column] / value;
            for j in column..n {
                a[i * n + j] -= factor * a[column * n + j];
            }
        }
    }
    (sign, log)
}

fn logdet(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(SELF, &[OUT])?;
    call.sizes(&[SELF.of("*nn"), OUT.of("*")])?;
    let (n, [x, out]) = (call.tensor(SELF)?.dims.last().copied().unwrap_or(0), call.slots_of([SELF, OUT])?);
    CallPlan::new(move |views, _| {
        let mut all = views.read::<f64>(x);
        let of = |matrix: &mut [f64]| {
            let (sign, log) = log_determinant(n, matrix);
            if sign < 0.0 { f64::NAN } else { log }
        };
        let logs: Vec<f64> = if n == 0 {
            vec![0.0; views.of(out).len()]
        } else {
            all.chunks_exact_mut(n * n).map(of).collect()
        };
        views.write(out, &logs);
        Ok(())
    })
}

fn slogdet(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let (batch, square) = x.dims.split_at(x.rank() - 2);
    let n = square[0];
    if square[1] != n {
        return Err(call.refuse(SELF, format!("expected square matrices, found {:?}", x.dims)));
    }
    for name in [SIGN_OUT, LOG_OUT] {
        call.expect_shape(name, batch, "of self without the last two dims")?;
        call.expect_dtype(name, x.dtype, "the type of self")?;
    }
    let count: usize = batch.iter().product();
    let (x, sign, log) = (x.slot, call.tensor(SIGN_OUT)?.slot, call.tensor(LOG_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let (x, sign, log) = (views.of(x).collapsed(), views.of(sign).collapsed(), views.of(log).collapsed());
        rows(tiles, count, n * n, &|i| {
            let mut matrix = vec![0f64; n * n];
            f64::load(&x, i * n * n, &mut matrix);
            let found = log_determinant(n, &mut matrix);
            f64::store(&sign, i, &[found.0]);
            f64::store(&log, i, &[found.1]);
        });
        Ok(())
    })
}

/// Works on `[a, identity]`, with partial pivoting. Returns false if `a` is singular.
///
/// # Shapes
///
/// `a: [n, 2 n]`, row-major.
fn invert(n: usize, a: &mut [f64]) -> bool {
    let width = 2 * n;
    for column in 0..n {
        let pivot =
            (column..n).max_by(|&i, &j| a[i * width + column].abs().total_cmp(&a[j * width + column].abs()));
        let pivot = pivot.unwrap_or(column);
        let value = a[pivot * width + column];
        if value == 0.0 {
            return false;
        }
        (0..width).for_each(|j| a.swap(pivot * width + j, column * width + j));
        (0..width).for_each(|j| a[column * width + j] /= value);
        for i in (0..n).filter(|&i| i != column) {
            let factor = a[i * width + column];
            (0..width).for_each(|j| a[i * width + j] -= factor * a[column * width + j]);
        }
    }
    true
}

fn inverse(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let (batch, square) = x.dims.split_at(x.rank() - 2);
    let n = square[0];
    if square[1] != n {
        return Err(call.refuse(SELF, format!("expected square matrices, found {:?}", x.dims)));
    }
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    let count: usize = if n == 0 { 0 } else { batch.iter().product() };
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, _| {
        let (x, out) = (views.of(x).collapsed(), views.of(out).collapsed());
        for i in 0..count {
            let mut matrix = vec![0f64; n * n];
            f64::load(&x, i * n * n, &mut matrix);
            let unit = |row: usize| (0..n).map(move |column| f64::from(u8::from(row == column)));
            let mut both: Vec<f64> = matrix
                .chunks(n)
                .enumerate()
                .flat_map(|(row, line)| line.iter().copied().chain(unit(row)))
                .collect();
            if !invert(n, &mut both) {
                return Err(format!("self: matrix {i} is singular"));
            }
            let right: Vec<f64> = both.chunks(2 * n).flat_map(|line| &line[n..]).copied().collect();
            f64::store(&out, i * n * n, &right);
        }
        Ok(())
    })
}

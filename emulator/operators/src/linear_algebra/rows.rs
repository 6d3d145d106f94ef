//! Linear solvers and determinants in double precision, rounded once.

use crate::elementwise::kernels as elementwise;
use crate::lane::Lane;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::WIDE;
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
];

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

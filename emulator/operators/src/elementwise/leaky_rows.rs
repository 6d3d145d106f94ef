//! Randomized leaky rectifier.

use crate::lane::Lane;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::FLOATING;
use crate::operator::{CallPlan, Refusal};
use crate::random::kernels::RandomStream;

pub(crate) const OPERATORS: &[Operator] = &[Operator {
    name: "aclnnRReluWithNoise",
    parameters: &[input(SELF, FLOATING, 0, 8), in_place(NOISE, FLOATING, 0, 8), output(OUT, FLOATING, 0, 8)],
    limits: "noise and out have the type and shape of self; lower is at most upper; training: an element of at most 0 is \
             multiplied with a number in lower..upper, which noise stores, and noise is 1 elsewhere; otherwise the factor is \
             the mean of lower and upper, and noise does not change",
    source: "CANN 8.1 aclnn API reference, aclnnRReluWithNoise (random numbers from the emulator's own counters)",
    plan: leaky,
}];

fn leaky(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_type_of(SELF, &[NOISE, OUT])?;
    for name in [NOISE, OUT] {
        call.expect_shape(name, &x.dims, "of self")?;
    }
    let (low, high) = (call.scalar(LOWER)?.as_f64(), call.scalar(UPPER_SCALAR)?.as_f64());
    call.expect_that(low <= high, LOWER, &format!("at most upper {high}"), low)?;
    let stream =
        RandomStream { seed: call.int(SEED)?.cast_unsigned(), offset: call.int(OFFSET_INT)?.cast_unsigned() };
    let is_training = call.flag(TRAINING)?;
    let [x, noise, out] = call.slots_of([SELF, NOISE, OUT])?;
    let plan = CallPlan::new(move |views, _| {
        let dtype = views.of(x).dtype();
        let (mut values, mut factors) = (views.read::<f64>(x), Vec::new());
        for (i, value) in values.iter_mut().enumerate() {
            let drawn = if is_training {
                low + (high - low) * f64::from(stream.uniform(i))
            } else {
                f64::midpoint(low, high)
            };
            let factor = if *value <= 0.0 { drawn.rounded(dtype) } else { 1.0 };
            factors.push(factor);
            *value *= factor;
        }
        if is_training {
            views.write(noise, &factors);
        }
        views.write(out, &values);
        Ok(())
    })?;
    Ok(if is_training { plan } else { plan.leaving(vec![noise]) })
}

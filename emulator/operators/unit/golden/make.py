"""Writes the golden files beside it: calls of aclnn operators with what PyTorch on the CPU makes of the same operands.

    python3 make.py        (PyTorch from PyPI; the files change only if this script or PyTorch's results do)

A line of a file is a call: the operator's name and its arguments in the order of the C function. Floating point results are
computed in float64 from operands as their type holds them, and rounded to the type of the output. What the fields of an
argument mean is in `emulator/operators/src/operator/tests/golden.rs`.
"""

import torch

from cases import FLOATS, REALS, SHAPES, TYPES, WHOLE, Cases, described, drawn, exact, flat, given, made, scalar, special


def pointwise():
    cases, nn = Cases(), torch.nn.functional
    for name in ["Sin", "Cos", "Tan", "Sinh", "Cosh", "Asinh", "Atan", "Erf", "Erfc", "Exp2", "Expm1", "Sinc"]:
        cases.unary("aclnn" + name, lambda x, name=name: getattr(torch, name.lower())(x.double()), [*REALS, "INT32"])
    for name, low, high in [("Asin", -1, 1), ("Acos", -1, 1), ("Atanh", -0.9, 0.9), ("Acosh", 1, 4), ("Log2", 0.1, 9), ("Log10", 0.1, 9), ("Log1p", -0.9, 9)]:
        cases.unary("aclnn" + name, lambda x, name=name: getattr(torch, name.lower())(x.double()), REALS, low, high)
    for name in ["Abs", "Sign"]:
        cases.unary("aclnn" + name, getattr(torch, name.lower()), [*REALS, *WHOLE])
    for name in ["Floor", "Ceil", "Trunc", "Round", "Frac"]:
        cases.unary("aclnn" + name, getattr(torch, name.lower()), REALS, with_special=name != "Frac")
    cases.unary("aclnnRelu", nn.relu, [*REALS, "INT32"])
    cases.unary("aclnnBitwiseNot", torch.bitwise_not, WHOLE)
    for dims in SHAPES:
        truth = drawn(1, dims, "BOOL")
        cases.add("aclnnBitwiseNot", given(truth, "BOOL"), made(torch.bitwise_not(truth), "BOOL"))
    for name, function in [("IsInf", torch.isinf), ("IsPosInf", torch.isposinf), ("IsNegInf", torch.isneginf), ("Signbit", torch.signbit)]:
        cases.unary("aclnn" + name, function, [*REALS, "INT32"], out="BOOL")
    for name, function in [("LogSigmoid", nn.logsigmoid), ("Mish", nn.mish), ("Selu", nn.selu), ("Hardsigmoid", nn.hardsigmoid), ("Hardswish", nn.hardswish)]:
        cases.unary("aclnn" + name, function, with_special=False)
    cases.unary("aclnnLeakyRelu", nn.leaky_relu, scalars=[scalar(0.25)])
    cases.unary("aclnnElu", lambda x, a, s, i: torch.where(x > 0, s * x, s * a * torch.expm1(x * i)), scalars=[scalar(1.5), scalar(1.25), scalar(0.5)])
    cases.unary("aclnnHardtanh", nn.hardtanh, [*REALS, "INT32"], scalars=[scalar(-1.0), scalar(2.0)])
    cases.unary("aclnnClampMax", torch.clamp_max, [*REALS, "INT32"], scalars=[scalar(1, "INT64")])
    cases.unary("aclnnSoftplus", nn.softplus, scalars=[scalar(2.0), scalar(4.0)])
    cases.unary("aclnnThreshold", nn.threshold, [*REALS, "INT32"], scalars=[scalar(1, "INT64"), scalar(7, "INT64")])
    cases.unary("aclnnHardshrink", nn.hardshrink, scalars=[scalar(0.5)])
    cases.unary("aclnnSoftshrink", nn.softshrink, scalars=[scalar(0.5)])
    for dtype in REALS:
        x = drawn(4, [3, 5], dtype)
        for code, form in enumerate(["none", "tanh"]):
            cases.add("aclnnGeluV2", given(x, dtype), {"int": code}, made(nn.gelu(exact(x), approximate=form), dtype))
            g = drawn(5, [3, 5], dtype)
            grad = torch.ops.aten.gelu_backward(exact(g), exact(x), approximate=form)
            cases.add("aclnnGeluBackwardV2", given(g, dtype), given(x, dtype), {"text": form}, made(grad, dtype))
        cases.add("aclnnGeluBackward", given(g, dtype), given(x, dtype), made(grad, dtype))
    cases.binary("aclnnAtan2", torch.atan2)
    cases.binary("aclnnAdd", lambda x, y, a: x + a * y, ["BOOL"], scalars=[scalar(1, "INT64")])
    cases.binary("aclnnFloorDivide", torch.floor_divide, [*REALS, *WHOLE], nonzero=True)
    cases.binary("aclnnRemainderTensorTensor", torch.remainder, [*REALS, *WHOLE], nonzero=True)
    cases.binary("aclnnFmodTensor", torch.fmod, [*REALS, *WHOLE], nonzero=True)
    cases.binary("aclnnPowTensorTensor", torch.pow, [*REALS], low=0.1)
    cases.binary("aclnnPowTensorTensor", torch.pow, ["INT32", "INT64"], low=0.0)
    for name in ["And", "Or", "Xor"]:
        operation = getattr(torch, "bitwise_" + name.lower())
        cases.binary(f"aclnnBitwise{name}Tensor", operation, [*WHOLE, "BOOL"])
        cases.unary(f"aclnnBitwise{name}Scalar", operation, WHOLE, scalars=[scalar(5, "INT64")])
    cases.binary("aclnnLogicalXor", torch.logical_xor, [*REALS, "INT32", "BOOL"], out="BOOL")
    cases.binary("aclnnLogicalXor", torch.logical_xor, ["FLOAT", "INT32"], low=-0.6, high=0.6)
    cases.binary("aclnnLogAddExp", torch.logaddexp)
    cases.binary("aclnnXLogYTensor", torch.xlogy, low=0.0)
    cases.binary("aclnnClampMinTensor", torch.maximum, [*REALS, "INT32"])
    cases.binary("aclnnClampMaxTensor", torch.minimum, [*REALS, "INT32"])
    cases.binary("aclnnRsub", lambda x, y, a: y - a * x, [*REALS, "INT32"], scalars=[scalar(2, "INT64")])
    cases.unary("aclnnRsubs", lambda x, o, a: o - a * x, [*REALS, "INT32"], scalars=[scalar(5, "INT64"), scalar(2, "INT64")])
    for name, function in [("FloorDivides", torch.floor_divide), ("RemainderTensorScalar", torch.remainder), ("FmodScalar", torch.fmod)]:
        cases.unary("aclnn" + name, function, [*REALS, *WHOLE], scalars=[scalar(2, "INT64")], with_special=False)
    cases.unary("aclnnPowTensorScalar", torch.pow, [*REALS, "INT32"], scalars=[scalar(3, "INT64")])
    cases.unary("aclnnPowTensorScalar", torch.pow, REALS, low=0.1, scalars=[scalar(1.75)])
    cases.unary("aclnnXLogYScalarOther", torch.xlogy, scalars=[scalar(2.5)])
    for dtype in [*REALS, "INT32"]:
        x = drawn(6, [2, 3], dtype, 1, 4)
        cases.add("aclnnPowScalarTensor", scalar(2, "INT64"), given(x, dtype), made(torch.pow(2, exact(x)), dtype))
        cases.add("aclnnRemainderScalarTensor", scalar(7, "INT64"), given(x, dtype), made(torch.remainder(7, exact(x)), dtype))
        low, high = drawn(7, [3], dtype, -2, 0), drawn(8, [2, 1], dtype, 1, 2)
        y = drawn(9, [2, 3], dtype)
        cases.add("aclnnClampTensor", given(y, dtype), given(low, dtype), given(high, dtype), made(torch.clamp(exact(y), exact(low), exact(high)), dtype))
    aten = torch.ops.aten
    cases.binary("aclnnTanhBackward", aten.tanh_backward)
    cases.binary("aclnnSigmoidBackward", aten.sigmoid_backward)
    cases.binary("aclnnThresholdBackward", lambda g, x, t: torch.where(x <= t, 0, g), [*REALS, "INT32"], scalars=[scalar(1, "INT64")])
    for name, function, scalars in [
        # PyTorch multiplies by 1/6 as a float, of doubles too.
        ("Hardsigmoid", lambda g, x: torch.where(x.abs() < 3, g / 6, 0), []),
        ("Hardswish", aten.hardswish_backward, []),
        ("Hardtanh", aten.hardtanh_backward, [scalar(-1.0), scalar(2.0)]),
        ("Softplus", aten.softplus_backward, [scalar(2.0), scalar(4.0)]),
        ("Softshrink", aten.softshrink_backward, [scalar(0.5)]),
    ]:
        for dtype in REALS:
            g, x = drawn(10, [4, 6], dtype), drawn(11, [4, 6], dtype, -5, 5)
            numbers = [each["scalar"] for each in scalars]
            cases.add(f"aclnn{name}Backward", given(g, dtype), given(x, dtype), *scalars, made(function(exact(g), exact(x), *numbers), dtype))
    for name, relation in [("Le", torch.le), ("Gt", torch.gt), ("Ge", torch.ge)]:
        cases.binary(f"aclnn{name}Tensor", relation, [*REALS, *WHOLE], out="BOOL")
        cases.binary(f"aclnn{name}Tensor", relation, ["FLOAT16", "INT32"])
    return cases



def selection():
    cases = Cases()
    for dtype in [*FLOATS, "INT64", "BOOL"]:
        x = drawn(20, [4, 3, 5], dtype)
        for dims, picks in [
            ([0], [[2, -1, 0]]),
            ([1], [[[0, 2], [-3, 1]]]),
            ([0, 1], [[3, 0], [[1], [-1]]]),
            ([0, 2], [[1, 1, -2], [0, 4, 2]]),
            ([2], [[]]),
        ]:
            indices, described_indices = [slice(None)] * 3, []
            for dim in range(max(dims) + 1):
                if dim in dims and picks[dims.index(dim)]:
                    indices[dim] = torch.tensor(picks[dims.index(dim)])
                    described_indices.append(described(indices[dim], "INT64"))
                else:
                    described_indices.append(described(torch.zeros(0, dtype=torch.int64), "INT64"))
            if not any(isinstance(index, torch.Tensor) for index in indices):
                continue
            picked = x[tuple(indices)]
            cases.add("aclnnIndex", given(x, dtype), {"ins": described_indices}, made(picked, dtype))
            values = drawn(21, picked.shape[-1:], dtype)
            for accumulate in [False, True] if dtype != "BOOL" else [False]:
                after = exact(x).clone()
                if accumulate:
                    places = torch.arange(x.numel()).reshape(x.shape)[tuple(indices)]
                    added = exact(values).expand(picked.shape)
                    after.reshape(-1).index_add_(0, places.reshape(-1), added.reshape(-1).to(after.dtype))
                else:
                    after[tuple(indices)] = exact(values).to(after.dtype)
                field = {**described(after.to(TYPES[dtype]), dtype), "before": flat(x, dtype)}
                cases.add("aclnnIndexPutImpl", {"ref": field}, {"ins": described_indices}, given(values, dtype), {"flag": accumulate}, {"flag": False})
        parts = [drawn(22 + i, [2, 3], dtype) for i in range(3)]
        for dim in [0, 1, 2, -1]:
            cases.add("aclnnStack", {"ins": [described(part, dtype) for part in parts]}, {"int": dim}, made(torch.stack(parts, dim), dtype))
    return cases


def reductions():
    cases = Cases()
    reduced = [([2, 3], [0], True), ([2, 3], [1], False), ([3, 2, 4], [0, 2], False), ([3, 2, 4], [], False), ([], [], False)]
    for dims, over, keep in reduced:
        for dtype in [*REALS, "INT32", "BOOL"]:
            x = drawn(30, dims, dtype, -0.8, 0.8)
            every = over or list(range(len(dims)))
            for name, function in [("Any", torch.any), ("All", torch.all)]:
                result = function(x != 0) if not every else function(x != 0, dim=tuple(every), keepdim=keep)
                cases.add("aclnn" + name, given(x, dtype), {"ints": over}, {"flag": keep}, made(result, "BOOL"))
        for dtype in [*REALS, "INT32"]:
            x = drawn(31, dims, dtype)
            least = torch.amin(exact(x), dim=over, keepdim=keep)
            cases.add("aclnnAmin", given(x, dtype), {"ints": over}, {"flag": keep}, made(least, dtype))
            if not over:
                cases.add("aclnnMin", given(x, dtype), made(exact(x).min(), dtype))
                cases.add("aclnnProd", given(x, dtype), {"dtype": dtype}, made(exact(x).prod(), dtype))
            if len(over) == 1:
                result = exact(x).prod(dim=over[0], keepdim=keep)
                cases.add("aclnnProdDim", given(x, dtype), {"int": over[0]}, {"flag": keep}, {"dtype": dtype}, made(result, dtype))
        for dtype in FLOATS:
            x = drawn(32, dims, dtype)
            wide, every = exact(x), tuple(over) or None
            if dims:
                for correction in [0, 1]:
                    variance = torch.var(wide, dim=every, correction=correction, keepdim=keep)
                    cases.add("aclnnVar", given(x, dtype), {"ints": over}, {"flag": bool(correction)}, {"flag": keep}, made(variance, dtype))
                    cases.add("aclnnVarCorrection", given(x, dtype), {"ints": over}, {"int": correction}, {"flag": keep}, made(variance, dtype))
                    cases.add("aclnnStd", given(x, dtype), {"ints": over}, {"int": correction}, {"flag": keep}, made(variance.sqrt(), dtype))
            for order in [0.0, 1.0, 2.0, 3.0, float("inf"), float("-inf")]:
                norm = torch.linalg.vector_norm(wide, order, dim=every, keepdim=keep)
                written = scalar(order) if abs(order) < 9 else {"scalar": str(order), "type": "FLOAT"}
                cases.add("aclnnLinalgVectorNorm", given(x, dtype), written, {"ints": over}, {"flag": keep}, {"dtype": dtype}, made(norm, dtype))
                cases.add("aclnnNorm", given(x, dtype), written, {"ints": over}, {"flag": keep}, made(norm, dtype))
            sums = torch.logsumexp(wide, dim=over or list(range(len(dims))), keepdim=keep) if dims else wide
            cases.add("aclnnLogSumExp", given(x, dtype), {"ints": over}, {"flag": keep}, made(sums, dtype))
    return cases


def gradients():
    cases, aten = Cases(), torch.ops.aten
    for dtype in FLOATS:
        for dims, dim in [([3, 5], 1), ([3, 5], 0), ([2, 3, 4], -2)]:
            g, y = drawn(40, dims, dtype), torch.log_softmax(drawn(41, dims, dtype).double(), dim).to(TYPES[dtype])
            grad = aten._log_softmax_backward_data(exact(g), exact(y), dim, torch.float64)
            cases.add("aclnnLogSoftmaxBackward", given(g, dtype), given(y, dtype), {"int": dim}, made(grad, dtype))
        for rows in [[3], [2, 2], [0]]:
            for mask in [[True, True, True], [True, False, False], [False, True, True]]:
                g, x = drawn(42, [*rows, 6], dtype), drawn(43, [*rows, 6], dtype)
                weight, bias = drawn(44, [6], dtype), drawn(45, [6], dtype)
                mean = exact(x).mean(-1, keepdim=True).float()
                rstd = torch.rsqrt(exact(x).var(-1, correction=0, keepdim=True) + 1e-5).float()
                grads = aten.native_layer_norm_backward(exact(g), exact(x), [6], mean.double(), rstd.double(), exact(weight), exact(bias), [True] * 3)
                # A sum of as many products as there are rows loses that many roundings.
                outputs = [{**made(grad, dtype), "units": 4} if needed else {"null": "tensor"} for grad, needed in zip(grads, mask)]
                cases.add(
                    "aclnnLayerNormBackward", given(g, dtype), given(x, dtype), {"ints": [6]}, given(mean, "FLOAT"), given(rstd, "FLOAT"),
                    given(weight, dtype), given(bias, dtype), {"flags": mask}, *outputs,
                )
        for reduction in range(3):
            log, target = torch.log_softmax(drawn(46, [4, 5], dtype).double(), 1).to(TYPES[dtype]), torch.tensor([0, 4, -100, 2])
            weight = drawn(47, [5], dtype, 0.25, 2.0)
            loss, total = aten.nll_loss_forward(exact(log), target, exact(weight), reduction, -100)
            shared = [given(target, "INT64"), given(weight, dtype), {"int": reduction}, {"int": -100}]
            cases.add("aclnnNLLLoss", given(log, dtype), *shared, made(loss, dtype), made(total if reduction else exact(weight)[target[target >= 0]].sum(), dtype))
            g = drawn(48, [4] if reduction == 0 else [], dtype)
            kept = total.to(TYPES[dtype]) if reduction else torch.zeros([], dtype=TYPES[dtype])
            grad = aten.nll_loss_backward(exact(g), exact(log), target, exact(weight), reduction, -100, exact(kept))
            cases.add("aclnnNLLLossBackward", given(g, dtype), given(log, dtype), *shared, given(kept, dtype), made(grad, dtype))
    return cases


def foreach():
    cases = Cases()
    places = [[2, 3], [], [0], [4]]

    def lists(seed, dtype, low, high):
        return [drawn(seed + i, dims, dtype, low, high) for i, dims in enumerate(places)]

    def add(name, operands, dtype, results, *factors, before=()):
        given_lists = [{"ins": [described(each, dtype) for each in operand]} for operand in operands]
        outputs = {"outs": [described(each.to(TYPES[dtype]), dtype) for each in results]}
        cases.add("aclnnForeach" + name, *before, *given_lists, *factors, outputs)

    for dtype in [*FLOATS, "INT32"]:
        x, y, z = (lists(seed, dtype, 0.5, 3.0) for seed in (50, 60, 70))
        wide = list(zip(*(map(exact, each) for each in (x, y, z))))
        add("Neg", [x], dtype, [-a for a, _, _ in wide])
        add("Sign", [x], dtype, [a.sign() for a, _, _ in wide])
        add("Copy", [x], dtype, [a for a, _, _ in wide])
        two, each = (scalar(2, "INT64"), "INT64") if dtype == "INT32" else (scalar(2.0, "DOUBLE"), "DOUBLE")
        beside = "FLOAT" if dtype == "BFLOAT16" else dtype
        two_on_device = given(torch.tensor([2], dtype=TYPES[beside]), beside)
        one_to_four = {"scalars": [scalar(i + 1, each) for i in range(len(x))]}
        for name, function in [("Add", torch.add), ("Sub", torch.sub), ("Mul", torch.mul), ("Maximum", None), ("Minimum", None), ("Pow", torch.pow)]:
            if name == "Maximum":
                function = lambda a, b: torch.maximum(a, torch.as_tensor(b, dtype=a.dtype))
            if name == "Minimum":
                function = lambda a, b: torch.minimum(a, torch.as_tensor(b, dtype=a.dtype))
            add(f"{name}ScalarV2", [x], dtype, [function(a, 2) for a, _, _ in wide], two)
            add(f"{name}ScalarList", [x], dtype, [function(a, i + 1) for i, (a, _, _) in enumerate(wide)], one_to_four)
            add(f"{name}Scalar", [x], dtype, [function(a, 2) for a, _, _ in wide], two_on_device)
            if name not in ("Add", "Sub"):
                add(f"{name}List", [x, y], dtype, [function(a, b) for a, b, _ in wide])
        add("AddListV2", [x, y], dtype, [a + 2 * b for a, b, _ in wide], two)
        for name, sign in [("Add", 1), ("Sub", -1)]:
            add(f"{name}List", [x, y], dtype, [a + sign * 2 * b for a, b, _ in wide], two_on_device)
        add("SubListV2", [x, y], dtype, [a - 2 * b for a, b, _ in wide], two)
        add("PowScalarAndTensor", [x], dtype, [torch.pow(2, a) for a, _, _ in wide], before=[two])
        factors = torch.tensor([1, 2, 3, 4], dtype=TYPES[dtype])
        add("AddcmulScalarV2", [x, y, z], dtype, [a + 2 * b * c for a, b, c in wide], two)
        add("AddcmulScalar", [x, y, z], dtype, [a + 2 * b * c for a, b, c in wide], two_on_device)
        add("AddcmulScalarList", [x, y, z], dtype, [a + (i + 1) * b * c for i, (a, b, c) in enumerate(wide)], given(factors, dtype))
        add("AddcmulList", [x, y, z], dtype, [a + (i + 1) * b * c for i, (a, b, c) in enumerate(wide)], given(factors, dtype))
        if dtype == "INT32":
            continue
        add("Abs", [x], dtype, [a.abs() for a, _, _ in wide])
        for name in ["Sqrt", "Reciprocal", "Exp", "Expm1", "Log", "Log2", "Log10", "Log1p", "Sigmoid", "Erf", "Erfc", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Tanh"]:
            add(name, [x], dtype, [getattr(torch, name.lower())(a) for a, _, _ in wide])
        small = lists(80, dtype, -0.9, 0.9)
        for name in ["Asin", "Acos"]:
            add(name, [small], dtype, [getattr(torch, name.lower())(exact(a)) for a in small])
        add("DivList", [x, y], dtype, [a / b for a, b, _ in wide])
        add("DivScalarV2", [x], dtype, [a / 2 for a, _, _ in wide], two)
        add("DivScalar", [x], dtype, [a / 2 for a, _, _ in wide], two_on_device)
        add("AddcdivScalar", [x, y, z], dtype, [a + 2 * b / c for a, b, c in wide], two_on_device)
        add("DivScalarList", [x], dtype, [a / (i + 1) for i, (a, _, _) in enumerate(wide)], one_to_four)
        add("AddcdivScalarV2", [x, y, z], dtype, [a + 2 * b / c for a, b, c in wide], two)
        add("AddcdivScalarList", [x, y, z], dtype, [a + (i + 1) * b / c for i, (a, b, c) in enumerate(wide)], given(factors, dtype))
        add("AddcdivList", [x, y, z], dtype, [a + (i + 1) * b / c for i, (a, b, c) in enumerate(wide)], given(factors, dtype))
        add("LerpScalar", [x, y], dtype, [torch.lerp(a, b, 0.25) for a, b, _ in wide], scalar(0.25))
        add("LerpList", [x, y, z], dtype, [a + c * (b - a) for a, b, c in wide])
        for order in [1.0, 2.0]:
            add("Norm", [x], dtype, [torch.linalg.vector_norm(a, order) for a, _, _ in wide], scalar(order))
    zeros = lists(90, "FLOAT", 1.0, 2.0)
    fields = [{**described(torch.zeros_like(each), "FLOAT"), "before": flat(each, "FLOAT")} for each in zeros]
    cases.add("aclnnForeachZeroInplace", {"refs": fields})
    return cases


def activations():
    cases, nn, aten = Cases(), torch.nn.functional, torch.ops.aten
    cases.unary("aclnnErfinv", torch.erfinv, low=-0.999, high=0.999)
    cases.unary("aclnnCelu", nn.celu, scalars=[scalar(1.5)])
    cases.unary("aclnnShrink", lambda x, l, b: torch.where(x > l, x - b, torch.where(x < -l, x + b, 0 * x)), scalars=[scalar(0.5), scalar(0.25)])
    cases.binary("aclnnLogAddExp2", torch.logaddexp2)
    cases.binary("aclnnAddRelu", lambda x, y, a: nn.relu(x + a * y), [*REALS, "INT32"], scalars=[scalar(2, "INT64")])
    cases.binary("aclnnGcd", torch.gcd, ["INT16", "INT32", "INT64"], low=-90, high=90)
    cases.binary("aclnnHardshrinkBackward", lambda g, x, l: torch.where(x.abs() <= l, 0, g), FLOATS, scalars=[scalar(0.5)])
    for dtype in REALS:
        g, x = drawn(10, [4, 6], dtype), drawn(11, [4, 6], dtype, -5, 5)
        wide_g, wide_x = exact(g), exact(x)
        result = nn.selu(wide_x).to(TYPES[dtype])
        if dtype in FLOATS:
            cases.add("aclnnMishBackward", given(g, dtype), given(x, dtype), made(aten.mish_backward(wide_g, wide_x), dtype))
            cases.add("aclnnSeluBackward", given(g, dtype), given(result, dtype), made(aten.elu_backward(wide_g, 1.6732632423543772, 1.0507009873554805, 1.0, True, exact(result)), dtype))
        for is_result in [False, True]:
            y = nn.elu(wide_x, 1.5).to(TYPES[dtype]) if is_result else x
            grad = aten.elu_backward(wide_g, 1.5, 1.25, 0.5, is_result, exact(y))
            if dtype in FLOATS:
                cases.add("aclnnEluBackward", given(g, dtype), scalar(1.5), scalar(1.25), scalar(0.5), {"flag": is_result}, given(y, dtype), made(grad, dtype))
            grad = aten.leaky_relu_backward(wide_g, wide_x, 0.25, is_result)
            cases.add("aclnnLeakyReluBackward", given(g, dtype), given(x, dtype), scalar(0.25), {"flag": is_result}, made(grad, dtype))
        for beta in [1.0, 1.75]:
            leaf = wide_x.clone().requires_grad_()
            swish = leaf * torch.sigmoid(beta * leaf)
            swish.backward(wide_g)
            factor = scalar(beta) if beta != 1.0 else {"null": "scalar"}
            cases.add("aclnnSwish", given(x, dtype), factor, made(swish.detach(), dtype))
            if dtype in FLOATS:
                cases.add("aclnnSwishBackward", given(g, dtype), given(x, dtype), factor, made(leaf.grad, dtype))
        buffer = given(torch.zeros(0, dtype=TYPES[dtype]), dtype)
        cases.add("aclnnLogSigmoidForward", given(x, dtype), made(nn.logsigmoid(wide_x), dtype), {"out": buffer["in"]})
        if dtype in FLOATS:
            cases.add("aclnnLogSigmoidBackward", given(g, dtype), given(x, dtype), buffer, made(wide_g * torch.sigmoid(-wide_x), dtype))
        share = drawn(12, [4, 6], dtype, 0.05, 0.95)
        for eps in [-1.0, 0.25]:
            limit = None if eps < 0 else eps
            cases.add("aclnnLogit", given(share, dtype), {"float": eps}, {**made(torch.logit(exact(share), limit), dtype), "units": 4})
            cases.add("aclnnLogitGrad", given(share, dtype), given(g, dtype), {"float": eps}, made(aten.logit_backward(wide_g, exact(share), limit), dtype))
        odd = torch.cat([special(dtype), drawn(13, [5], dtype)])
        replaced = torch.nan_to_num(exact(odd), 0.5, 3.0, -2.0)
        cases.add("aclnnNanToNum", given(odd, dtype), {"float": 0.5}, {"float": 3.0}, {"float": -2.0}, made(replaced, dtype))
        for decimals in [2, 0, -1]:
            tens = drawn(14, [4, 6], dtype, -90, 90)
            cases.add("aclnnRoundDecimals", given(tens, dtype), {"int": decimals}, made(torch.round(exact(tens), decimals=decimals), dtype))
        for count in [6, 1]:
            weight = drawn(15, [count], dtype, -1, 1)
            leaves = [drawn(16, [3, 6, 2], dtype).double().requires_grad_(), exact(weight).requires_grad_()]
            out = nn.prelu(*leaves)
            g3 = drawn(17, [3, 6, 2], dtype)
            out.backward(exact(g3))
            x3 = leaves[0].detach().to(TYPES[dtype])
            cases.add("aclnnPrelu", given(x3, dtype), given(weight, dtype), made(out.detach(), dtype))
            cases.add("aclnnPreluBackward", given(g3, dtype), given(x3, dtype), given(weight, dtype), made(leaves[0].grad, dtype), made(leaves[1].grad, dtype))
        for dim in [0, -1]:
            leaf = wide_x.clone().requires_grad_()
            out = nn.glu(leaf, dim)
            half = drawn(18, list(out.shape), dtype)
            out.backward(exact(half))
            cases.add("aclnnGlu", given(x, dtype), {"int": dim}, made(out.detach(), dtype))
            cases.add("aclnnGluBackward", given(half, dtype), given(x, dtype), {"int": dim}, made(leaf.grad, dtype))
            for code, form in enumerate(["none", "tanh"]):
                for left in [False, True]:
                    gate, other = wide_x.chunk(2, dim) if left else reversed(wide_x.chunk(2, dim))
                    gelu = nn.gelu(gate, approximate=form)
                    if dtype not in FLOATS:
                        continue
                    cases.add("aclnnGeGluV3", given(x, dtype), {"int": dim}, {"int": code}, {"flag": left}, made(gelu * other, dtype), made(gelu, dtype))
    for dtype in [*REALS, *WHOLE]:
        x, y = drawn(19, [3, 4], dtype, -9, 9), drawn(20, [4], dtype, 1, 4)
        for mode, form in enumerate([None, "trunc", "floor"]):
            result = torch.div(exact(x), exact(y), rounding_mode=form)
            out = dtype if dtype in REALS or mode else "FLOAT"
            cases.add("aclnnDivMod", given(x, dtype), given(y, dtype), {"int": mode}, made(result, out))
            cases.add("aclnnDivMods", given(x, dtype), scalar(3, "INT64"), {"int": mode}, made(torch.div(exact(x), 3, rounding_mode=form), out))
    for dtype in REALS:
        x = drawn(21, [3, 4], dtype, 0.1, 3)
        cases.add("aclnnXLogYScalarSelf", scalar(2.5), given(x, dtype), made(torch.xlogy(2.5, exact(x)), dtype))
    # What the first rows of these got wrong, or refused: bounds that are no numbers, fractions as bounds of whole numbers,
    # powers beyond 32 bits and truth values.
    nan = float("nan")
    x, low = torch.tensor([1.0, nan, 3.0]), torch.tensor([nan, 2.0, 2.0])
    for name, function in [("Min", torch.maximum), ("Max", torch.minimum)]:
        cases.add(f"aclnnClamp{name}Tensor", given(x, "FLOAT"), given(low, "FLOAT"), made(function(x, low), "FLOAT"))
    whole, exponent = torch.tensor([3, -3, 2, 7]), torch.tensor([2**33 + 1, 2**40, 2**35, 2**52 + 5])
    cases.add("aclnnPowTensorTensor", given(whole, "INT64"), given(exponent, "INT64"), made(torch.tensor([wrapped(pow(a, b, 2**64)) for a, b in zip(whole.tolist(), exponent.tolist())]), "INT64"))
    for dims in [[5], [2, 3]]:
        numbers = drawn(22, dims, "INT32")
        cases.add("aclnnClampMax", given(numbers, "INT32"), scalar(1.5), made(torch.clamp_max(numbers, 1.5), "FLOAT"))
        truth, other = drawn(23, dims, "BOOL"), drawn(24, dims, "BOOL")
        cases.add("aclnnMaximum", given(truth, "BOOL"), given(other, "BOOL"), made(torch.maximum(truth, other), "BOOL"))
        cases.add("aclnnMinimum", given(truth, "BOOL"), given(other, "BOOL"), made(torch.minimum(truth, other), "BOOL"))
        cases.add("aclnnPowTensorScalar", given(truth, "BOOL"), scalar(2, "INT64"), made(torch.pow(truth, 2), "INT64"))
        cases.add("aclnnRemainderTensorScalar", given(truth, "BOOL"), scalar(2, "INT64"), made(torch.remainder(truth, 2), "INT64"))
    return cases


def wrapped(value):
    """An unsigned number of 64 bits as the signed one of the same bits."""
    return value - 2**64 if value >= 2**63 else value


def losses():
    cases, nn = Cases(), torch.nn.functional
    reductions = ["none", "mean", "sum"]
    for dtype in FLOATS:
        shapes = [([3, 4], [3, 4]), ([2, 600], [2, 600])] if dtype == "FLOAT" else [([3, 4], [3, 4])]
        for dims, target_dims in shapes:
            x, t = drawn(60, dims, dtype), drawn(61, target_dims, dtype)
            share, truth = drawn(62, dims, dtype, 0.05, 0.95), drawn(63, dims, dtype, 0.0, 1.0)
            sign = torch.where(t > 0, torch.ones_like(t), -torch.ones_like(t))
            weight, positive = drawn(64, dims, dtype, 0.5, 2.0), drawn(65, dims[-1:], dtype, 0.5, 2.0)
            wide_w, wide_p = exact(weight), exact(positive)
            kinds = [
                ("MseLoss", x, t, nn.mse_loss, [], []),
                ("L1Loss", x, t, nn.l1_loss, [], []),
                ("SmoothL1Loss", x, t, lambda a, b, reduction: nn.smooth_l1_loss(a, b, reduction=reduction, beta=0.75), [], [{"float": 0.75}]),
                ("SoftMarginLoss", x, sign, nn.soft_margin_loss, [], []),
                ("KlDiv", x, truth, lambda a, b, reduction: nn.kl_div(a, b, reduction=reduction), [], [{"flag": False}]),
                ("KlDiv", x, t, lambda a, b, reduction: nn.kl_div(a, b, reduction=reduction, log_target=True), [], [{"flag": True}]),
                ("BinaryCrossEntropy", share, truth, nn.binary_cross_entropy, [{"null": "tensor"}], []),
                ("BinaryCrossEntropy", share, truth, lambda a, b, reduction: nn.binary_cross_entropy(a, b, wide_w, reduction=reduction), [given(weight, dtype)], []),
                ("BinaryCrossEntropyWithLogits", x, truth, nn.binary_cross_entropy_with_logits, [{"null": "tensor"}] * 2, []),
                (
                    "BinaryCrossEntropyWithLogits", x, truth,
                    lambda a, b, reduction: nn.binary_cross_entropy_with_logits(a, b, wide_w, reduction=reduction, pos_weight=wide_p),
                    [given(weight, dtype), given(positive, dtype)], [],
                ),
            ]
            for name, value, target, function, weights, attributes in kinds:
                for code, reduction in enumerate(reductions):
                    if dims[-1] > 4 and (code == 0 or name != "MseLoss"):
                        continue
                    leaf = exact(value).requires_grad_()
                    loss = function(leaf, exact(target), reduction=reduction)
                    g = drawn(66, list(loss.shape), dtype)
                    loss.backward(exact(g))
                    call = [given(value, dtype), given(target, dtype), *weights, {"int": code}, *attributes]
                    units = {"units": 4}
                    cases.add(f"aclnn{name}", *call, {**made(loss.detach(), dtype), **units})
                    cases.add(f"aclnn{name}Backward", given(g, dtype), *call, {**made(leaf.grad, dtype), **units})
    return cases


def order():
    cases = Cases()
    for dtype in [*REALS, "INT32", "INT64", "UINT8"]:
        for dims, dim in [([3, 5], 1), ([4, 3], 0), ([2, 3, 4], -2)]:
            x = drawn(70, dims, dtype, -40, 40) if dtype != "UINT8" else drawn(70, dims, dtype, 0, 90)
            wide = exact(x)
            for keep in [False, True]:
                least, place = stable_least(wide, dim, keep)
                cases.add("aclnnMinDim", given(x, dtype), {"int": dim}, {"flag": keep}, made(least, dtype), made(place, "INT64"))
                cases.add("aclnnArgMin", given(x, dtype), {"int": dim}, {"flag": keep}, made(place, "INT64"))
                ranks = torch.argsort(wide, dim=dim, stable=True)
                for name, rank in [("MedianDim", (wide.shape[dim] - 1) // 2), ("Kthvalue", 1)]:
                    at = ranks.select(dim, rank).unsqueeze(dim)
                    value = wide.gather(dim, at)
                    if not keep:
                        at, value = at.squeeze(dim), value.squeeze(dim)
                    before = [{"int": rank + 1}] if name == "Kthvalue" else []
                    cases.add("aclnn" + name, given(x, dtype), *before, {"int": dim}, {"flag": keep}, made(value, dtype), made(at, "INT64"))
                low, high = wide.amin(dim, keepdim=keep), wide.amax(dim, keepdim=keep)
                cases.add("aclnnAminmaxDim", given(x, dtype), {"int": dim}, {"flag": keep}, made(low, dtype), made(high, dtype))
                cases.add("aclnnAminmax", given(x, dtype), {"ints": [dim]}, {"flag": keep}, made(low, dtype), made(high, dtype))
            cases.add("aclnnAminmaxAll", given(x, dtype), made(wide.min(), dtype), made(wide.max(), dtype))
            cases.add("aclnnMedian", given(x, dtype), made(wide.median(), dtype))
            for descending in [False, True]:
                places = torch.argsort(wide, dim=dim, descending=descending, stable=True)
                cases.add("aclnnArgsort", given(x, dtype), {"int": dim}, {"flag": descending}, made(places, "INT64"))
            for name, function in [("Cummax", torch.cummax), ("Cummin", torch.cummin)]:
                values, places = function(wide, dim)
                cases.add("aclnn" + name, given(x, dtype), {"int": dim}, made(values, dtype), made(places, "INT64"))
            small = drawn(71, dims, dtype, 0.5, 1.5)
            cases.add("aclnnCumprod", given(small, dtype), scalar(dim, "INT64"), {"dtype": dtype}, made(exact(small).cumprod(dim), dtype))
        x = drawn(72, [30], dtype, 0, 9)
        counts = torch.histc(exact(x).double(), 4, 1, 8)
        cases.add("aclnnHistc", given(x, dtype), {"int": 4}, scalar(1), scalar(8), made(counts, dtype))
    nan = torch.tensor([[1.0, float("nan"), -2.0, 5.0], [4.0, 1.0, 1.0, 9.0]])
    for name, function in [("Cummax", torch.cummax), ("Cummin", torch.cummin)]:
        cases.add("aclnn" + name, given(nan, "FLOAT"), {"int": 1}, *[made(part, kind) for part, kind in zip(function(nan, 1), ["FLOAT", "INT64"])])
    values, places = nan.min(1)
    cases.add("aclnnMinDim", given(nan, "FLOAT"), {"int": 1}, {"flag": False}, made(values, "FLOAT"), made(places, "INT64"))
    values, places = nan.median(1)
    cases.add("aclnnMedianDim", given(nan, "FLOAT"), {"int": 1}, {"flag": False}, made(values, "FLOAT"), made(places, "INT64"))
    for dtype in FLOATS:
        for dims, over, keep in [([2, 3], [0], True), ([3, 2, 4], [0, 2], False), ([3, 2, 4], [], False)]:
            x, every = drawn(73, dims, dtype), tuple(over) or None
            for correction in [0, 1]:
                variance, mean = torch.var_mean(exact(x), every, correction=correction, keepdim=keep)
                call = [given(x, dtype), {"ints": over}, {"int": correction}, {"flag": keep}]
                cases.add("aclnnVarMean", *call, made(variance, dtype), made(mean, dtype))
                cases.add("aclnnStdMeanCorrection", *call, made(variance.sqrt(), dtype), made(mean, dtype))
    return cases


def stable_least(x, dim, keep):
    """The first least value along a dim and its place."""
    place = torch.argsort(x, dim=dim, stable=True).select(dim, 0).unsqueeze(dim)
    value = x.gather(dim, place)
    return (value, place) if keep else (value.squeeze(dim), place.squeeze(dim))


def places():
    cases, nn, aten = Cases(), torch.nn.functional, torch.ops.aten
    for dtype in [*FLOATS, "INT64", "BOOL"]:
        x = drawn(80, [3, 2, 4], dtype)
        for dims in [[0], [1, -1], []]:
            cases.add("aclnnFlip", given(x, dtype), {"ints": dims}, made(x.flip(dims), dtype))
        for shifts, dims in [([1], [0]), ([-3, 2], [2, 0]), ([5], []), ([1, 1], [0, 0])]:
            cases.add("aclnnRoll", given(x, dtype), {"ints": shifts}, {"ints": dims}, made(x.roll(shifts, dims), dtype))
        for repeats, dim in [(2, 1), (3, -1), (0, 0)]:
            result = x.repeat_interleave(repeats, dim)
            cases.add("aclnnRepeatInterleaveIntWithDim", given(x, dtype), {"int": repeats}, {"int": dim}, {"int": result.shape[dim]}, made(result, dtype))
        cases.add("aclnnSplitWithSize", given(x, dtype), {"ints": [1, 0, 3]}, {"int": 2}, {"outs": [described(part, dtype) for part in x.split([1, 0, 3], 2)]})
        cases.add("aclnnSplitTensor", given(x, dtype), {"int": 2}, {"int": 0}, {"outs": [described(part, dtype) for part in x.split(2)]})
    for dtype in FLOATS:
        for count, padding in [(1, [2, 1]), (2, [1, 2, 0, 1]), (3, [1, 0, 2, 1, 1, 1])]:
            x = drawn(81, [2, 2, 3, 3, 4][3 - count :], dtype)
            for name, mode in [("Reflection", "reflect"), ("Replication", "replicate")]:
                leaf = exact(x).requires_grad_()
                out = nn.pad(leaf, padding, mode=mode)
                g = drawn(82, list(out.shape), dtype)
                out.backward(exact(g))
                cases.add(f"aclnn{name}Pad{count}d", given(x, dtype), {"ints": padding}, made(out.detach(), dtype))
                cases.add(f"aclnn{name}Pad{count}dBackward", given(g, dtype), given(x, dtype), {"ints": padding}, made(leaf.grad, dtype))
        x = drawn(83, [2, 3, 3, 4], dtype)
        for size in [[6, 8], [5, 2]]:
            out = aten.upsample_nearest2d(x.float(), size)
            cases.add("aclnnUpsampleNearest2d", given(x, dtype), {"ints": size}, made(out, dtype))
            cases.add("aclnnUpsampleNearest2dV2", given(x, dtype), {"ints": size}, {"float": 0.0}, {"float": 0.0}, made(out, dtype))
            g = drawn(84, [2, 3, *size], dtype)
            grad = aten.upsample_nearest2d_backward(exact(g), size, [2, 3, 3, 4])
            cases.add("aclnnUpsampleNearest2dBackward", given(g, dtype), {"ints": size}, {"ints": [2, 3, 3, 4]}, {"float": 0.0}, {"float": 0.0}, made(grad, dtype))
    for dtype in [*REALS, "INT32"]:
        line = torch.linspace(-1, 6, 8, dtype=torch.float64)
        cases.add("aclnnLinspace", scalar(-1.0), scalar(6.0), {"int": 8}, made(line, dtype))
        cases.add("aclnnRange", scalar(1, "INT64"), scalar(9, "INT64"), scalar(2, "INT64"), made(torch.tensor([1, 3, 5, 7, 9]), dtype))
        cases.add("aclnnEye", {"int": 3}, {"int": 4}, made(torch.eye(3, 4), dtype))
        x = drawn(85, [3, 4], dtype)
        cases.add("aclnnTrace", given(x, dtype), made(exact(x).trace(), dtype if dtype in REALS else "INT64"))
        batch = [drawn(86, [3, 2, 4], dtype), drawn(87, [3, 4, 5], dtype)]
        if dtype not in FLOATS:
            continue
        self, wide, keep = drawn(88, [2, 5], dtype), [exact(part) for part in batch], {"int": 0}
        scales = [scalar(0.5), scalar(2.0)]
        units = {"units": 8}
        result = torch.addbmm(exact(self), *wide, beta=0.5, alpha=2.0)
        cases.add("aclnnAddbmm", given(self, dtype), *[given(part, dtype) for part in batch], *scales, {**made(result, dtype), **units}, keep)
        cases.add("aclnnInplaceAddbmm", {"ref": {**described(result.to(TYPES[dtype]), dtype), "before": flat(self, dtype)}, **units}, *[given(part, dtype) for part in batch], *scales, keep)
        result = torch.baddbmm(exact(self), *wide, beta=0.5, alpha=2.0)
        cases.add("aclnnBaddbmm", given(self, dtype), *[given(part, dtype) for part in batch], *scales, {**made(result, dtype), **units}, keep)
        result = torch.addmm(exact(self), wide[0][0], wide[1][0], beta=0.5, alpha=2.0)
        cases.add("aclnnInplaceAddmm", {"ref": {**described(result.to(TYPES[dtype]), dtype), "before": flat(self, dtype)}, **units}, given(batch[0][0], dtype), given(batch[1][0], dtype), *scales, keep)
        cases.add("aclnnMv", given(x, dtype), given(drawn(89, [4], dtype), dtype), {**made(exact(x) @ exact(drawn(89, [4], dtype)), dtype), **units}, keep)
    return cases


def scatters():
    cases = Cases()
    index = torch.tensor([[2, 0, 1], [0, 2, 2]])
    for dtype in [*REALS, "INT32", "INT64"]:
        x, source = drawn(110, [3, 3], dtype), drawn(111, [2, 4], dtype)
        for dim in [0, -1]:
            corner = exact(source)[:2, :3]
            for reduce, form in enumerate([None, "sum", "prod"]):
                # Of several to one place the last stays here; PyTorch leaves open which.
                used = torch.tensor([[2, 0, 1], [0, 1, 2]]) if reduce == 0 else index
                place = {"in": described(used, "INT64")}
                result = exact(x).scatter(dim, used, corner) if form is None else exact(x).scatter_reduce(dim, used, corner, form)
                cases.add("aclnnScatter", given(x, dtype), {"int": dim}, place, given(source, dtype), {"int": reduce}, {**made(result, dtype), "units": 4})
            result = exact(x).scatter(dim, index, 2)
            cases.add("aclnnScatterValue", given(x, dtype), {"int": dim}, given(index, "INT64"), scalar(2, "INT64"), {"int": 0}, made(result, dtype))
        flat_index = torch.tensor([[0, -1], [5, 3]])
        cases.add("aclnnTake", given(x, dtype), given(flat_index, "INT64"), made(x.take(flat_index % 9), dtype))
        values = drawn(112, [2, 2], dtype)
        for accumulate in [False, True] if dtype != "BFLOAT16" else [False]:
            after = exact(x).put(flat_index % 9, exact(values), accumulate).to(TYPES[dtype])
            cases.add("aclnnInplacePut", {"ref": {**described(after, dtype), "before": flat(x, dtype)}}, given(flat_index, "INT64"), given(values, dtype), {"flag": accumulate})
        mask, many = drawn(113, [3], "BOOL"), drawn(114, [9], dtype)
        after = x.masked_scatter(mask, many)
        cases.add("aclnnInplaceMaskedScatter", {"ref": {**described(after, dtype), "before": flat(x, dtype)}}, given(mask, "BOOL"), given(many, dtype))
        value = drawn(115, [], dtype)
        after = x.masked_fill(mask, value)
        cases.add("aclnnInplaceMaskedFillTensor", {"ref": {**described(after, dtype), "before": flat(x, dtype)}}, given(mask, "BOOL"), given(value, dtype))
        after = x.index_fill(1, torch.tensor([0, 2]), 2)
        cases.add("aclnnIndexFillTensor", given(x, dtype), {"int": 1}, {"ints": [0, -1]}, scalar(2, "INT64"), made(after, dtype))
        other = drawn(116, [1, 3], dtype)
        cases.add("aclnnLinalgCross", given(x, dtype), given(other, dtype), {"int": -1}, made(torch.linalg.cross(exact(x), exact(other), dim=-1), dtype))
    for dtype, out in [("INT32", "INT64"), ("UINT8", "INT64"), ("INT64", "DOUBLE")]:
        x = drawn(117, [20], dtype, 0, 6)
        weights = drawn(118, [20], "DOUBLE") if out == "DOUBLE" else None
        counts = torch.bincount(x, weights, 9)
        cases.add("aclnnBincount", given(x, dtype), given(weights, out) if out == "DOUBLE" else {"null": "tensor"}, {"int": 9}, made(counts, out))
    return cases


def images():
    cases, nn = Cases(), torch.nn.functional
    convolutions = [
        # Input, weight, stride, padding, dilation, groups, transposed, output padding.
        ([2, 3, 5, 6], [4, 3, 3, 2], [1, 1], [0, 0], [1, 1], 1, False, [0, 0]),
        ([1, 4, 6, 5], [6, 2, 3, 3], [2, 1], [1, 2], [1, 2], 2, False, [0, 0]),
        ([2, 4, 7], [4, 1, 3], [2], [1], [1], 4, False, [0]),
        ([1, 2, 3, 4, 4], [3, 2, 2, 2, 3], [1, 2, 1], [1, 0, 1], [1, 1, 1], 1, False, [0, 0, 0]),
        ([2, 4, 3, 4], [4, 2, 3, 2], [2, 1], [1, 0], [1, 1], 1, True, [1, 0]),
        ([1, 4, 3, 3], [4, 3, 2, 2], [2, 2], [0, 0], [1, 1], 2, True, [0, 0]),
    ]
    for dtype in FLOATS:
        for dims, weight_dims, stride, padding, dilation, groups, transposed, more in convolutions:
            leaves = [drawn(90, dims, dtype), drawn(91, weight_dims, dtype, -1, 1)]
            outputs = weight_dims[1] * groups if transposed else weight_dims[0]
            bias = drawn(92, [outputs], dtype)
            wide = [exact(leaf).requires_grad_() for leaf in [*leaves, bias]]
            out = torch.ops.aten.convolution(*wide, stride, padding, dilation, transposed, more, groups)
            g = drawn(93, list(out.shape), dtype)
            out.backward(exact(g))
            # As many roundings of sums as a window has numbers.
            units = {"units": 16}
            arrays = [{"ints": stride}, {"ints": padding}, {"ints": dilation}, {"flag": transposed}, {"ints": more}, {"int": groups}]
            operands = [given(leaf, dtype) for leaf in leaves]
            cases.add("aclnnConvolution", *operands, given(bias, dtype), *arrays, {**made(out.detach(), dtype), **units}, {"int": 0})
            for mask in [[True, True, True], [True, False, False]]:
                grads = [{**made(leaf.grad, dtype), **units} if needed else {"null": "tensor"} for leaf, needed in zip(wide, mask)]
                cases.add("aclnnConvolutionBackward", given(g, dtype), *operands, {"ints": [outputs]}, *arrays, {"flags": mask}, {"int": 0}, *grads)
        for dims, arrays in [([2, 3, 5, 6], [[3, 2], [1, 2], [1, 0], [2, 1]]), ([3, 4, 4], [[2, 2], [1, 1], [0, 0], [2, 2]])]:
            leaf = exact(drawn(108, dims, dtype)).requires_grad_()
            columns = nn.unfold(leaf, *arrays)
            g = drawn(109, list(columns.shape), dtype)
            columns.backward(exact(g))
            lists = [{"ints": array} for array in arrays]
            cases.add("aclnnIm2col", given(leaf.detach().to(TYPES[dtype]), dtype), *lists, made(columns.detach(), dtype))
            cases.add("aclnnIm2colBackward", given(g, dtype), {"ints": dims[-2:]}, *lists, {**made(leaf.grad, dtype), "units": 4})
        batch_norms(cases, dtype)
        pools(cases, dtype)
    return cases


def batch_norms(cases, dtype):
    nn = torch.nn.functional
    for dims in [[4, 3], [2, 3, 4, 2]]:
        x, g = drawn(94, dims, dtype), drawn(95, dims, dtype)
        weight, bias = drawn(96, [3], dtype, 0.5, 2.0), drawn(97, [3], dtype)
        mean, variance = drawn(98, [3], "FLOAT"), drawn(99, [3], "FLOAT", 0.5, 2.0)
        over = [dim for dim in range(len(dims)) if dim != 1]
        for training in [True, False]:
            wide = [exact(leaf).requires_grad_() for leaf in [x, weight, bias]]
            running = [exact(mean).clone(), exact(variance).clone()]
            out = nn.batch_norm(wide[0], *running, wide[1], wide[2], training, 0.25, 1e-3)
            out.backward(exact(g))
            saved = [exact(x).mean(over), exact(x).var(over, correction=0)]
            refs = [{"ref": {**described(now.float(), "FLOAT"), "before": flat(before, "FLOAT")}} for now, before in zip(running, [mean, variance])]
            statistics = [made(each, "FLOAT") if training else {"out": described(torch.zeros(0), "FLOAT")} for each in saved]
            attributes = [{"flag": training}, {"float": 0.25}, {"float": 1e-3}]
            units = {"units": 8}
            cases.add("aclnnBatchNorm", given(x, dtype), given(weight, dtype), given(bias, dtype), *refs, *attributes, {**made(out.detach(), dtype), **units}, *statistics)
            kept = [given(each.float(), "FLOAT") if training else {"null": "tensor"} for each in saved]
            grads = [{**made(leaf.grad, dtype), **units} for leaf in wide]
            cases.add("aclnnBatchNormBackward", given(g, dtype), given(x, dtype), given(weight, dtype), given(mean, "FLOAT"), given(variance, "FLOAT"), *kept, {"flag": training}, {"float": 1e-3}, {"flags": [True] * 3}, *grads)
    x, g = drawn(100, [2, 4, 3, 2], dtype), drawn(101, [2, 4, 3, 2], dtype)
    weight, bias = drawn(102, [4], dtype, 0.5, 2.0), drawn(103, [4], dtype)
    wide = [exact(leaf).requires_grad_() for leaf in [x, weight, bias]]
    out = nn.group_norm(wide[0], 2, wide[1], wide[2], 1e-3)
    out.backward(exact(g))
    rows = exact(x).reshape(2, 2, -1)
    statistics = [rows.mean(-1), torch.rsqrt(rows.var(-1, correction=0) + 1e-3)]
    extents, units = [{"int": 2}, {"int": 4}, {"int": 6}, {"int": 2}], {"units": 8}
    cases.add("aclnnGroupNorm", given(x, dtype), given(weight, dtype), given(bias, dtype), *extents, {"float": 1e-3}, {**made(out.detach(), dtype), **units}, *[made(each, dtype) for each in statistics])
    if dtype == "FLOAT":
        grads = [{**made(leaf.grad, dtype), **units} for leaf in wide]
        cases.add("aclnnGroupNormBackward", given(g, dtype), given(x, dtype), *[given(each.float(), dtype) for each in statistics], given(weight, dtype), *extents, {"flags": [True] * 3}, *grads)


def pools(cases, dtype):
    nn = torch.nn.functional
    x = drawn(104, [2, 2, 6, 7], dtype)
    for kernel, stride, padding, up in [([2, 2], [2, 2], [0, 0], False), ([3, 2], [2, 1], [1, 1], False), ([3, 3], [2, 2], [1, 1], True)]:
        arrays = [{"ints": kernel}, {"ints": stride}, {"ints": padding}]
        leaf = exact(x).requires_grad_()
        out, places = nn.max_pool2d(leaf, kernel, stride, padding, ceil_mode=up, return_indices=True)
        g = drawn(105, list(out.shape), dtype)
        out.backward(exact(g))
        call = [*arrays, {"ints": [1, 1]}, {"flag": up}]
        cases.add("aclnnMaxPool2dWithIndices", given(x, dtype), *call, made(out.detach(), dtype), made(places, "INT32"))
        cases.add("aclnnMaxPool2dWithIndicesBackward", given(g, dtype), given(x, dtype), given(places.int(), "INT32"), *call, made(leaf.grad, dtype))
        for counted in [True, False]:
            for divisor in [None, 3]:
                leaf = exact(x).requires_grad_()
                out = nn.avg_pool2d(leaf, kernel, stride, padding, up, counted, divisor)
                g = drawn(106, list(out.shape), dtype)
                out.backward(exact(g))
                call = [*arrays, {"flag": up}, {"flag": counted}, {"int": divisor or 0}, {"int": 0}]
                cases.add("aclnnAvgPool2d", given(x, dtype), *call, {**made(out.detach(), dtype), "units": 4})
                cases.add("aclnnAvgPool2dBackward", given(g, dtype), given(x, dtype), *call, {**made(leaf.grad, dtype), "units": 4})
    for size in [[1, 1], [4, 3]]:
        leaf = exact(x).requires_grad_()
        out = nn.adaptive_avg_pool2d(leaf, size)
        g = drawn(107, [2, 2, *size], dtype)
        out.backward(exact(g))
        cases.add("aclnnAdaptiveAvgPool2d", given(x, dtype), {"ints": size}, {**made(out.detach(), dtype), "units": 4})
        cases.add("aclnnAdaptiveAvgPool2dBackward", given(g, dtype), given(x, dtype), {**made(leaf.grad, dtype), "units": 4})


if __name__ == "__main__":
    activations().write("activations.jsonl")
    losses().write("losses.jsonl")
    order().write("order.jsonl")
    places().write("places.jsonl")
    images().write("images.jsonl")
    scatters().write("scatters.jsonl")
    foreach().write("foreach.jsonl")
    selection().write("selection.jsonl")
    reductions().write("reductions.jsonl")
    gradients().write("gradients.jsonl")
    pointwise().write("pointwise.jsonl")

"""Writes the golden files beside it: calls of aclnn operators with what PyTorch on the CPU makes of the same operands.

    python3 make.py        (PyTorch from PyPI; the files change only if this script or PyTorch's results do)

A line of a file is a call: the operator's name and its arguments in the order of the C function. Floating point results are
computed in float64 from operands as their type holds them, and rounded to the type of the output. What the fields of an
argument mean is in `emulator/src/nn/operator/tests/golden.rs`.
"""

import json
import pathlib

import torch

HERE = pathlib.Path(__file__).parent
FLOATS = ["FLOAT", "FLOAT16", "BFLOAT16"]
REALS = [*FLOATS, "DOUBLE"]
WHOLE = ["INT8", "INT32", "INT64", "UINT8"]
TYPES = {
    "FLOAT": torch.float32,
    "FLOAT16": torch.float16,
    "BFLOAT16": torch.bfloat16,
    "DOUBLE": torch.float64,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "UINT8": torch.uint8,
    "BOOL": torch.bool,
}
SHAPES = [[2, 3], [], [0, 3], [2, 1, 4]]
PAIRS = [([2, 3], [2, 3]), ([3, 1, 2], [2, 2]), ([], [4]), ([0, 2], [1, 2])]


# Decimal digits that tell any two numbers of a type apart.
DIGITS = {"FLOAT": 9, "FLOAT16": 5, "BFLOAT16": 4}


def number(value, dtype):
    """A value as JSON holds it."""
    if not isinstance(value, float):
        return int(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    return float(f"{value:.{DIGITS[dtype]}g}") if dtype in DIGITS else value


def flat(tensor, dtype):
    return [number(value, dtype) for value in tensor.reshape(-1).tolist()]


def described(tensor, dtype):
    return {"type": dtype, "dims": list(tensor.shape), "values": flat(tensor, dtype)}


def given(tensor, dtype):
    return {"in": described(tensor, dtype)}


def made(tensor, dtype):
    """An output, rounded to its type."""
    return {"out": described(tensor.to(TYPES[dtype]), dtype)}


def exact(tensor):
    """What the operands are computed in."""
    return tensor.double() if tensor.is_floating_point() else tensor.long()


def drawn(seed, dims, dtype, low=-3.0, high=3.0):
    """Operands between two bounds as their type holds them, the same for the same seed."""
    random = torch.Generator().manual_seed(seed)
    values = low + (high - low) * torch.rand(dims, generator=random, dtype=torch.float64)
    if dtype == "BOOL":
        return values > (low + high) / 2
    if not TYPES[dtype].is_floating_point:
        values = values.round().abs() if dtype == "UINT8" else values.round()
    return values.to(TYPES[dtype])


def special(dtype):
    """Zeros of both signs, infinities, not a number, and ties."""
    values = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 0.5, -0.5, 1.5, 2.5, 1.0, -1.0]
    return torch.tensor(values, dtype=torch.float64).to(TYPES[dtype])


class Cases(list):
    """The calls of one file."""

    def add(self, name, *arguments):
        self.append({"call": name, "arguments": list(arguments)})

    def unary(self, name, function, types=REALS, low=-3.0, high=3.0, out=None, scalars=(), with_special=True):
        """A function of one tensor, and in place where the type allows."""
        numbers = [scalar["scalar"] for scalar in scalars]
        for dtype in types:
            is_real = function(exact(drawn(0, [1], dtype)), *numbers).is_floating_point()
            target = out or ("FLOAT" if is_real and dtype not in REALS else dtype)
            shapes = SHAPES if dtype == types[0] else SHAPES[:1]
            operands = [drawn(1, dims, dtype, low, high) for dims in shapes]
            if dtype in ["FLOAT", "FLOAT16"] and with_special:
                operands.append(special(dtype))
            for x in operands:
                self.add(name, given(x, dtype), *scalars, made(function(exact(x), *numbers), target))

    def binary(self, name, function, types=REALS, low=-3.0, high=3.0, out=None, scalars=(), nonzero=False):
        numbers = [scalar["scalar"] for scalar in scalars]
        for dtype in types:
            for a, b in PAIRS if dtype == types[0] else PAIRS[1:2]:
                x, y = drawn(2, a, dtype, low, high), drawn(3, b, dtype, low, high)
                if nonzero:
                    y = torch.where(y == 0, torch.ones_like(y), y)
                self.add(name, given(x, dtype), given(y, dtype), *scalars, made(function(exact(x), exact(y), *numbers), out or dtype))

    def write(self, file):
        lines = [json.dumps(case, separators=(",", ":")) for case in self]
        (HERE / file).write_text("\n".join(lines) + "\n")


def scalar(value, dtype="FLOAT"):
    return {"scalar": value, "type": dtype}


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
        ("Hardsigmoid", aten.hardsigmoid_backward, []),
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

    for dtype in [*FLOATS, "DOUBLE", "INT32"]:
        x, y, z = (lists(seed, dtype, 0.5, 3.0) for seed in (50, 60, 70))
        wide = list(zip(*(map(exact, each) for each in (x, y, z))))
        add("Neg", [x], dtype, [-a for a, _, _ in wide])
        add("Abs", [x], dtype, [a.abs() for a, _, _ in wide])
        add("Sign", [x], dtype, [a.sign() for a, _, _ in wide])
        add("Copy", [x], dtype, [a for a, _, _ in wide])
        two = scalar(2, "INT64")
        for name, function in [("Add", torch.add), ("Sub", torch.sub), ("Mul", torch.mul), ("Maximum", None), ("Minimum", None), ("Pow", torch.pow)]:
            if name == "Maximum":
                function = lambda a, b: torch.maximum(a, torch.as_tensor(b, dtype=a.dtype))
            if name == "Minimum":
                function = lambda a, b: torch.minimum(a, torch.as_tensor(b, dtype=a.dtype))
            add(f"{name}ScalarV2", [x], dtype, [function(a, 2) for a, _, _ in wide], two)
            add(f"{name}ScalarList", [x], dtype, [function(a, i + 1) for i, (a, _, _) in enumerate(wide)], {"scalars": [scalar(i + 1, "INT64") for i in range(len(x))]})
            if name not in ("Add", "Sub"):
                add(f"{name}List", [x, y], dtype, [function(a, b) for a, b, _ in wide])
        add("AddListV2", [x, y], dtype, [a + 2 * b for a, b, _ in wide], two)
        add("SubListV2", [x, y], dtype, [a - 2 * b for a, b, _ in wide], two)
        add("PowScalarAndTensor", [x], dtype, [torch.pow(2, a) for a, _, _ in wide], before=[two])
        factors = torch.tensor([1, 2, 3, 4], dtype=TYPES[dtype])
        add("AddcmulScalarV2", [x, y, z], dtype, [a + 2 * b * c for a, b, c in wide], two)
        add("AddcmulScalarList", [x, y, z], dtype, [a + (i + 1) * b * c for i, (a, b, c) in enumerate(wide)], given(factors, dtype))
        add("AddcmulList", [x, y, z], dtype, [a + (i + 1) * b * c for i, (a, b, c) in enumerate(wide)], given(factors, dtype))
        if dtype == "INT32":
            continue
        for name in ["Sqrt", "Reciprocal", "Exp", "Expm1", "Log", "Log2", "Log10", "Log1p", "Sigmoid", "Erf", "Erfc", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Tanh"]:
            add(name, [x], dtype, [getattr(torch, name.lower())(a) for a, _, _ in wide])
        small = lists(80, dtype, -0.9, 0.9)
        for name in ["Asin", "Acos"]:
            add(name, [small], dtype, [getattr(torch, name.lower())(exact(a)) for a in small])
        add("DivList", [x, y], dtype, [a / b for a, b, _ in wide])
        add("DivScalarV2", [x], dtype, [a / 2 for a, _, _ in wide], two)
        add("DivScalarList", [x], dtype, [a / (i + 1) for i, (a, _, _) in enumerate(wide)], {"scalars": [scalar(i + 1, "INT64") for i in range(len(x))]})
        add("AddcdivScalarV2", [x, y, z], dtype, [a + 2 * b / c for a, b, c in wide], two)
        add("AddcdivScalarList", [x, y, z], dtype, [a + (i + 1) * b / c for i, (a, b, c) in enumerate(wide)], given(factors, dtype))
        add("AddcdivList", [x, y, z], dtype, [a + (i + 1) * b / c for i, (a, b, c) in enumerate(wide)], given(factors, dtype))
        if dtype == "DOUBLE":
            continue
        add("LerpScalar", [x, y], dtype, [torch.lerp(a, b, 0.25) for a, b, _ in wide], scalar(0.25))
        add("LerpList", [x, y, z], dtype, [a + c * (b - a) for a, b, c in wide])
        for order in [1.0, 2.0]:
            add("Norm", [x], dtype, [torch.linalg.vector_norm(a, order) for a, _, _ in wide], scalar(order))
    zeros = lists(90, "FLOAT", 1.0, 2.0)
    fields = [{**described(torch.zeros_like(each), "FLOAT"), "before": flat(each, "FLOAT")} for each in zeros]
    cases.add("aclnnForeachZeroInplace", {"refs": fields})
    return cases


if __name__ == "__main__":
    foreach().write("foreach.jsonl")
    selection().write("selection.jsonl")
    reductions().write("reductions.jsonl")
    gradients().write("gradients.jsonl")
    pointwise().write("pointwise.jsonl")

"""Calls of the operators of mixtures of experts, of products in groups and of few-bit integers, and of solvers."""

import torch

from cases import FLOATS, Cases, described, drawn, exact, given, made, scalar

NONE, NONES = {"null": "tensor"}, {"null": "tensors"}
INT8 = 2


def whole(seed, dims, low=-4, high=4):
    """Small whole numbers, exact in every type, whose sums of products are exact in f32."""
    return drawn(seed, dims, "FLOAT", low, high).round()


def outs(values, dtype):
    return {"outs": [made(value, dtype)["out"] for value in values]}


def ins(values, dtype):
    return {"ins": [described(value, dtype) for value in values]}


def mixtures():
    cases = Cases()
    for dtype in FLOATS:
        x = drawn(300, [5, 6], dtype)
        values, experts = torch.softmax(x.double(), -1).sort(dim=-1, descending=True, stable=True)
        for k in [1, 3, 6]:
            rows = torch.arange(5 * k).reshape(k, 5).T
            done = torch.tensor([False, True, False, False, True])
            named = torch.where(done[:, None], 6, experts[:, :k])
            results = [made(values[:, :k], dtype), made(rows, "INT32")]
            cases.add("aclnnMoeGatingTopKSoftmax", given(x, dtype), NONE, {"int": k}, results[0], made(experts[:, :k], "INT32"), results[1])
            cases.add("aclnnMoeGatingTopKSoftmax", given(x, dtype), given(done, "BOOL"), {"int": k}, results[0], made(named, "INT32"), results[1])
        routing(cases, dtype)
    return cases


def routing(cases, dtype):
    tokens, choices, width, experts = 5, 2, 3, 4
    x = drawn(301, [tokens, width], dtype)
    chosen = torch.tensor([[3, 0], [1, 3], [0, 1], [3, 1], [0, 3]])
    flat = chosen.reshape(-1)
    order = flat.argsort(stable=True)
    places = order.argsort()
    counts = torch.bincount(flat, minlength=experts)
    for flag, numbers in [(0, None), (1, counts.cumsum(0)), (2, counts)]:
        for active in [0, 7]:
            rows = order[: active or None] // choices
            call = [{"int": active}, {"int": 0}, {"int": experts}, {"int": 0}, {"int": flag}, {"flag": False}]
            results = [made(x[rows], dtype), made(places, "INT32"), NONE if numbers is None else made(numbers, "INT32"), NONE]
            cases.add("aclnnMoeInitRoutingV2", given(x, dtype), given(chosen, "INT32"), *call, *results)
    capacity = 2
    padded, kept, used = torch.zeros(experts, capacity, width, dtype=x.dtype), torch.full([tokens * choices], -1), [0] * experts
    for place in order.tolist():
        expert = flat[place].item()
        if used[expert] < capacity:
            padded[expert, used[expert]] = x[place // choices]
            kept[place] = expert * capacity + used[expert]
        used[expert] += 1
    call = [{"int": 0}, {"int": capacity}, {"int": experts}, {"int": 1}, {"int": 0}, {"flag": True}]
    cases.add("aclnnMoeInitRoutingV2", given(x, dtype), given(chosen, "INT32"), *call, made(padded, dtype), made(kept, "INT32"), NONE, made(counts, "INT32"))

    # By choice and then by token, as the gate numbers its rows.
    numbered = torch.arange(tokens * choices).reshape(choices, tokens).T
    by_choice = numbered.reshape(-1)[order]
    results = [made(x[by_choice % tokens], dtype), made(by_choice.argsort(), "INT32"), made(flat[order], "INT32")]
    cases.add("aclnnMoeInitRouting", given(x, dtype), given(numbered, "INT32"), given(chosen, "INT32"), {"int": tokens}, *results)

    y, first, second = drawn(302, [tokens * choices, width], dtype), drawn(303, [tokens, width], dtype), drawn(304, [tokens, width], dtype)
    bias, scales = drawn(305, [experts, width], dtype), drawn(306, [tokens, choices], dtype, 0, 1)
    back = by_choice.argsort().reshape(choices, tokens).T
    copies = exact(y)[back] + exact(bias)[chosen]
    sums = exact(first) + (exact(scales)[..., None] * copies).sum(1)
    units = {"units": 8}
    fixed = [given(bias, dtype), given(scales, dtype)]
    rows = given(by_choice.argsort(), "INT32")
    cases.add("aclnnMoeFinalizeRouting", given(y, dtype), given(first, dtype), NONE, *fixed, rows, given(chosen, "INT32"), {**made(sums, dtype), **units})
    cases.add("aclnnMoeFinalizeRouting", given(y, dtype), given(first, dtype), given(second, dtype), *fixed, rows, given(chosen, "INT32"), {**made(sums + exact(second), dtype), **units})
    cases.add("aclnnMoeFinalizeRoutingV2", given(y, dtype), rows, given(first, dtype), NONE, *fixed, given(chosen, "INT32"), {"int": 0}, {**made(sums, dtype), **units})
    by_token = (exact(scales)[..., None] * exact(y)[places.reshape(tokens, choices)]).sum(1)
    cases.add("aclnnMoeFinalizeRoutingV2", given(y, dtype), given(places, "INT32"), NONE, NONE, NONE, given(scales, dtype), NONE, {"int": 2}, {**made(by_token, dtype), **units})
    held = torch.cat([exact(padded).reshape(-1, width), torch.zeros(1, width)])[kept.reshape(tokens, choices)]
    cases.add("aclnnMoeFinalizeRoutingV2", given(padded, dtype), given(kept, "INT32"), NONE, NONE, NONE, given(scales, dtype), NONE, {"int": 3}, {**made((exact(scales)[..., None] * held).sum(1), dtype), **units})

    for kind in ["INT32", "INT64"]:
        for asked in [0, 6, -3]:
            copies = x[order // choices][: asked if asked > 0 else tokens * choices + asked]
            cases.add("aclnnMoeTokenPermute", given(x, dtype), given(chosen, kind), {"int": asked}, {"flag": False}, made(copies, dtype), made(places, "INT32"))
            index = places.reshape(tokens, choices)
            shares = torch.cat([exact(copies), torch.zeros(tokens * choices, width)])[index]
            wanted = (exact(scales)[..., None] * shares).sum(1)
            cases.add("aclnnMoeTokenUnpermute", given(copies, dtype), given(places, "INT32"), given(scales, dtype), {"flag": False}, {"null": "ints"}, {**made(wanted, dtype), **units})
    once = torch.tensor([3, 0, 4, 1, 2])
    cases.add("aclnnMoeTokenPermute", given(x, dtype), given(once, "INT64"), {"int": 0}, {"flag": False}, made(x[once.argsort()], dtype), made(once.argsort().argsort(), "INT32"))
    cases.add("aclnnMoeTokenUnpermute", given(x, dtype), given(once, "INT32"), NONE, {"flag": False}, {"null": "ints"}, made(x[once], dtype))


def grouped():
    """Products in groups of whole numbers, which are exact."""
    cases = Cases()
    before, after = [NONES] * 5, [NONES] * 2
    for dtype in FLOATS:
        of_bias = "FLOAT" if dtype == "BFLOAT16" else dtype
        x, weights, biases = whole(310, [7, 4]), whole(311, [3, 4, 5]), whole(312, [3, 5])
        for lengths in [[2, 0, 5], [3, 4, 0]]:
            ends = torch.tensor(lengths).cumsum(0)
            parts = [x[end - length : end] @ weight for end, length, weight in zip(ends, lengths, weights)]
            result = torch.cat(parts)
            shifted = torch.cat([part + bias for part, bias in zip(parts, biases)])
            for kind, listed in [(0, ends), (1, torch.tensor(lengths))]:
                one, each = ins([weights], dtype), ins(list(weights), dtype)
                for matrices, addend, wanted in [(one, NONES, result), (each, NONES, result), (one, ins([biases], of_bias), shifted), (each, ins(list(biases), of_bias), shifted)]:
                    call = [ins([x], dtype), matrices, addend, *before, given(listed, "INT64"), NONES, NONES, NONES, {"int": 2}, {"int": 0}, {"int": kind}, {"int": 0}]
                    cases.add("aclnnGroupedMatmulV4", *call, outs([wanted], dtype), *after)
                    cases.add("aclnnGroupedMatmulV5", *call, {"null": "ints"}, outs([wanted], dtype), *after)
        left, right = whole(313, [4, 7]), whole(314, [7, 5])
        lengths = [2, 0, 5]
        parts = [left[:, start : start + length] @ right[start : start + length] for start, length in zip([0, 2, 2], lengths)]
        call = [ins([left], dtype), ins([right], dtype), NONES, *before, given(torch.tensor(lengths), "INT64"), NONES, NONES, NONES, {"int": 2}, {"int": 2}, {"int": 1}, {"int": 0}]
        cases.add("aclnnGroupedMatmulV4", *call, outs([torch.stack(parts)], dtype), *after)
        xs, ws = [whole(315, [2, 3]), whole(316, [2, 3, 4])], [whole(317, [3, 5]), whole(318, [4, 2])]
        call = [ins(xs, dtype), ins(ws, dtype), NONES, *before, NONE, NONES, NONES, NONES, {"int": 0}, {"int": -1}, {"int": 0}, {"int": 0}]
        cases.add("aclnnGroupedMatmulV4", *call, outs([x @ w for x, w in zip(xs, ws)], dtype), *after)
    return cases


def packed(scale, offset=None):
    """The hardware's form of scales, bit by bit."""
    words = []
    for i in range(max(len(scale), len(offset) if offset is not None else 0)):
        bits = scale[i if len(scale) > 1 else 0].view(torch.int32).item() & 0xFFFFE000 | 1 << 46
        if offset is not None:
            bits |= (max(-256, min(255, round(offset[i if len(offset) > 1 else 0].item()))) & 0x1FF) << 37
        words.append(bits)
    return torch.tensor(words)


def few_bits():
    cases = Cases()
    scale, offset = drawn(320, [6], "FLOAT", 0.01, 3), drawn(321, [6], "FLOAT", -400, 400)
    for one, other in [(scale, None), (scale, offset), (scale, offset[:1]), (scale[:1], offset)]:
        for kind in ["INT64", "UINT64"]:
            words = packed(one, other)
            out = {"out": {"type": kind, "dims": [len(words)], "values": words.tolist()}}
            cases.add("aclnnTransQuantParamV2", given(one, "FLOAT"), NONE if other is None else given(other, "FLOAT"), out)
    products(cases)
    for case in cases:
        # These take matrices that are contiguous or transposed.
        if case["call"].startswith("aclnnQuantMatmul"):
            case["contiguous"] = True
    weights(cases)
    conversions(cases)
    return cases


def products(cases):
    a, b = whole(322, [3, 5], -100, 100), whole(323, [5, 6], -100, 100)
    # Of 10 bits, which packing keeps.
    scale, rows, bias = 2.0 ** -torch.arange(4, 10).float(), torch.tensor([1.0, 0.5, 0.25]), whole(324, [6], -900, 900)
    sums, no = a.double() @ b.double(), {"flag": False}
    x1, x2, out = given(a, "INT8"), given(b, "INT8"), {"units": 1}
    for dtype, wanted in [("FLOAT16", sums * scale), ("FLOAT16", (sums + bias) * scale), ("INT8", (sums * scale + 3).round().clamp(-128, 127))]:
        words = packed(scale, torch.tensor([3.0]) if dtype == "INT8" else None)
        addend = given(bias, "INT32") if wanted is not None and torch.equal(wanted, (sums + bias) * scale) else NONE
        described_scale = {"in": {"type": "UINT64", "dims": [6], "values": words.tolist()}}
        cases.add("aclnnQuantMatmulV3", x1, x2, described_scale, NONE, addend, no, no, {**made(wanted, dtype), **out})
        cases.add("aclnnQuantMatmulV5", x1, x2, NONE, described_scale, NONE, NONE, NONE, NONE, addend, no, no, {"int": 0}, {**made(wanted, dtype), **out})
    for kind in ["FLOAT", "BFLOAT16"]:
        wanted = sums * scale
        for addend, result in [(NONE, wanted), (given(bias, "FLOAT"), wanted + bias), (given(bias, "INT32"), (sums + bias) * scale)]:
            cases.add("aclnnQuantMatmulV3", x1, x2, given(scale, kind), NONE, addend, no, no, {**made(result, "BFLOAT16"), **out})
    for addend, result in [(NONE, sums * scale * rows[:, None]), (given(bias, "FLOAT16"), sums * scale * rows[:, None] + bias)]:
        cases.add("aclnnQuantMatmulV4", x1, x2, given(scale, "FLOAT"), NONE, given(rows, "FLOAT"), addend, no, no, {**made(result, "FLOAT16"), **out})
        cases.add("aclnnQuantMatmulV5", x1, x2, given(rows, "FLOAT"), given(scale, "FLOAT"), NONE, NONE, NONE, NONE, addend, no, no, {"int": 0}, {**made(result, "FLOAT16"), **out})
    many, right = whole(325, [2, 1, 3, 5], -100, 100), whole(326, [4, 6, 5], -100, 100)
    wanted = many.double() @ right.double().mT * 0.125
    cases.add("aclnnQuantMatmulV3", given(many, "INT8"), given(right, "INT8"), given(torch.tensor([0.125]), "FLOAT"), NONE, NONE, no, {"flag": True}, {**made(wanted, "BFLOAT16"), **out})


def words_of(values):
    """Eight numbers of 4 bits, neighbours of the last dim, in one of 32."""
    eight = values.long().reshape(*values.shape[:-1], -1, 8) & 0xF
    return sum(eight[..., i] << 4 * i for i in range(8)).int()


def weights(cases):
    for dtype in ["FLOAT16", "BFLOAT16"]:
        x, bias = whole(330, [3, 64], -2, 2), whole(331, [16])
        scale, offset = 2.0 ** drawn(332, [2, 16], "FLOAT", -2, 1).round(), whole(333, [2, 16], -2, 2)
        for low, high in [(-8, 7), (-100, 100)]:
            weight = whole(334, [64, 16], low, high)
            forms = [given(weight, "INT8")]
            if high == 7:
                turned = words_of(weight.T.contiguous()).T
                forms += [given(words_of(weight), "INT32"), given(turned, "INT32")]
            for form in forms:
                for groups, given_offset, given_bias in [(1, None, None), (1, offset[:1], bias), (2, offset, None), (2, None, bias)]:
                    factor = scale[:groups].repeat_interleave(64 // groups, 0)
                    shift = 0 if given_offset is None else given_offset.repeat_interleave(64 // groups, 0)
                    wanted = x.double() @ ((weight + shift) * factor).double() + (0 if given_bias is None else bias)
                    head = [given(x, dtype), form, given(scale[:groups], dtype), NONE if given_offset is None else given(given_offset, dtype), NONE, NONE]
                    tail = [NONE if given_bias is None else given(bias, dtype), {"int": 0 if groups == 1 else 32}]
                    cases.add("aclnnWeightQuantBatchMatmulV2", *head, *tail, made(wanted, dtype))
                    cases.add("aclnnWeightQuantBatchMatmulV3", *head, *tail, {"int": 0}, made(wanted, dtype))
    for dims in [[3, 16], [2, 3, 8]]:
        weight = whole(335, dims, -8, 7)
        cases.add("aclnnConvertWeightToINT4Pack", given(weight, "INT32"), made(words_of(weight), "INT32"))


def conversions(cases):
    for dtype in FLOATS:
        x = drawn(340, [3, 4, 5], dtype, -40, 40)
        wide = exact(x).float()
        for axis, extent in [(2, 5), (0, 3), (1, 4)]:
            scale, zero = 2.0 ** drawn(341, [extent], "FLOAT", -3, 2).round(), whole(342, [extent], 0, 9)
            shape = [extent if dim == axis else 1 for dim in range(3)]
            steps, shift = scale.reshape(shape), zero.reshape(shape)
            for kind, low, high in [("INT8", -128, 127), ("UINT8", 0, 255), ("INT32", -(2**31), 2**31 - 1)]:
                for given_zero, added in [(NONE, 0), (given(zero, kind), shift)]:
                    wanted = ((wide / steps).round() + added).clamp(low, high)
                    cases.add("aclnnQuantize", given(x, dtype), given(scale, "FLOAT"), given_zero, {"dtype": kind}, {"int": axis}, made(wanted, kind))
            if axis == 0:
                continue
            for mode, rounded in [("round", torch.round), ("floor", torch.floor), ("ceil", torch.ceil), ("trunc", torch.trunc)]:
                wanted = rounded(wide * steps + shift).clamp(-128, 127)
                call = [given(x, dtype), given(scale, dtype), given(zero, dtype), {"flag": False}, {"text": mode}, {"int": INT8}]
                cases.add("aclnnAscendQuantV3", *call, {"int": axis - 3}, made(wanted, "INT8"))
                if axis == 2:
                    cases.add("aclnnAscendQuant", *call, made(wanted, "INT8"))
        squared = (wide * 0.25).round().clamp(-128, 127)
        cases.add("aclnnAscendQuant", given(x, dtype), given(torch.tensor([0.5]), dtype), NONE, {"flag": True}, {"text": "round"}, {"int": INT8}, made(squared, "INT8"))
    stored = whole(343, [2, 6], -128, 127)
    scale, offset = 2.0 ** drawn(344, [6], "FLOAT", -3, 2).round(), whole(345, [6])
    for dtype, code in [("FLOAT16", 1), ("BFLOAT16", 27)]:
        for kind in ["FLOAT", "BFLOAT16"]:
            for given_offset, added in [(NONE, 0), (given(offset, kind), offset)]:
                for flag in [False, True]:
                    wanted = (stored + added) * scale * (scale if flag else 1)
                    cases.add("aclnnAscendAntiQuant", given(stored, "INT8"), given(scale, kind), given_offset, {"int": code}, {"flag": flag}, made(wanted, dtype))


def rest():
    cases = Cases()
    for dtype in ["FLOAT", "DOUBLE"]:
        for batch, other in [([], []), ([2], [2]), ([2, 1], [3]), ([0], [1])]:
            a, b = drawn(350, [*other, 4, 4], dtype) + 4 * torch.eye(4), drawn(351, [*batch, 4, 3], dtype)
            a = a.to(b.dtype)
            whole_batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            for upper in [False, True]:
                for turned in [False, True]:
                    for unit in [False, True]:
                        x, _ = torch.triangular_solve(b.double(), a.double(), upper, turned, unit)
                        call = [given(b, dtype), given(a, dtype), {"flag": upper}, {"flag": turned}, {"flag": unit}]
                        cases.add("aclnnTriangularSolve", *call, {**made(x, dtype), "units": 4}, made(a.expand(*whole_batch, 4, 4), dtype))
        for x in [drawn(352, [4, 4], dtype), drawn(353, [2, 3, 5, 5], dtype), torch.ones(3, 3), torch.eye(3)[[1, 0, 2]], drawn(354, [0, 2, 2], dtype)]:
            sign, log = torch.linalg.slogdet(exact(x.to(torch.float64)))
            cases.add("aclnnSlogdet", given(x, dtype), made(sign, dtype), made(log, dtype))
    for dtype in ["INT8", "INT32", "INT64", "UINT8"]:
        x, y = drawn(355, [3, 4], dtype, -100, 100), drawn(356, [4], dtype, 0, 6)
        cases.add("aclnnRightShift", given(x, dtype), given(y, dtype), made(x >> y, dtype))
        far = torch.full([1], 70).to(x.dtype)
        cases.add("aclnnRightShift", given(x, dtype), given(far, dtype), made(x >> far, dtype))
    for dtype in [*FLOATS, "DOUBLE", "INT32", "BOOL"]:
        x = drawn(357, [3, 4], dtype)
        y = x.clone()
        if dtype == "INT32":
            y[1] += 1
        elif dtype == "BOOL":
            y[1] = ~y[1]
        else:
            y[1], y[2, 0], x[0, 0], y[0, 0] = y[1] * 1.25, float("inf"), float("nan"), float("nan")
            x[0, 1] = y[0, 1] = float("-inf")
        for relative, absolute in [(0.0, 0.0), (0.125, 0.0625)]:
            for equal in [False, True]:
                wanted = torch.isclose(x, y, relative, absolute, equal) if dtype != "BOOL" else torch.isclose(x.int(), y.int(), relative, absolute, equal)
                cases.add("aclnnIsClose", given(x, dtype), given(y, dtype), {"float": relative}, {"float": absolute}, {"flag": equal}, made(wanted, "BOOL"))
    for dtype in [*FLOATS, "INT64", "BOOL"]:
        x, index = drawn(358, [3, 4], dtype), torch.tensor([2, 0, -1])
        for dim in [0, 1, -1]:
            for kind in ["INT32", "INT64"]:
                wanted = x.clone().index_fill(dim, index % x.shape[dim], 1)
                cases.add("aclnnIndexFill", given(x, dtype), {"int": dim}, given(index, kind), scalar(1, "INT64"), made(wanted, dtype))
    for dtype in FLOATS:
        grads = [drawn(359, [2, 3], dtype), drawn(360, [], dtype), drawn(361, [0, 2], dtype), drawn(362, [5], dtype)]
        for bad in [None, float("inf"), float("nan")]:
            if bad is not None:
                grads[3][2] = bad
            refs = [{**made(exact(grad) * 0.25, dtype)["out"], "before": described(grad, dtype)["values"]} for grad in grads]
            found = {"type": "FLOAT", "dims": [1], "values": [0.0 if bad is None else 1.0], "before": [0.0]}
            cases.add("aclnnForeachNonFiniteCheckAndUnscale", {"refs": refs}, {"ref": found}, given(torch.tensor([0.25]), "FLOAT"))
    return cases


if __name__ == "__main__":
    mixtures().write("mixtures.jsonl")
    grouped().write("grouped.jsonl")
    few_bits().write("few_bits.jsonl")
    rest().write("rest.jsonl")

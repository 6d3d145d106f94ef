"""Writes grids.jsonl beside it: pools over planes and volumes, grids between the elements of others, and what else models ask for.

    python3 grids.py        (as make.py)
"""

import itertools
import math

import torch

from cases import FLOATS, TYPES, Cases, described, drawn, exact, flat, given, made, number, scalar

nn, aten = torch.nn.functional, torch.ops.aten
NONE = {"null": "tensor"}
UNITS = {"units": 8}


def near(tensor, dtype):
    return {**made(tensor, dtype), **UNITS}


def windows(extent, window, stride, before, after, dilation, round_up):
    """What each window covers of a dim, by the definition."""
    room = extent + before + after - dilation * (window - 1) - 1
    count = (math.ceil if round_up else math.floor)(room / stride) + 1
    if round_up and (count - 1) * stride >= extent + before:
        count -= 1
    places = [[at * stride - before + each * dilation for each in range(window)] for at in range(count)]
    return [[place for place in each if 0 <= place < extent] for each in places]


def greatest(x, covered):
    """The greatest element of each window over the last dims."""
    first = x.dim() - len(covered)
    out = torch.empty([*x.shape[:first], *[len(each) for each in covered]], dtype=x.dtype)
    for at in itertools.product(*[range(len(each)) for each in covered]):
        part = x
        for dim, (each, index) in enumerate(zip(covered, at)):
            part = part.index_select(first + dim, torch.tensor(each[index]))
        out[(..., *at)] = part.flatten(first).amax(-1)
    return out


def max_pools(cases, dtype):
    if dtype != "BFLOAT16":
        for dims in [[2, 3, 5, 7], [3, 4, 4], [0, 1, 3, 3]]:
            for kernel, strides, pads, round_up in [([2], [], [], 0), ([3, 2], [2], [1], 1), ([2, 3], [1, 2], [0, 1], 0), ([3, 3], [2, 3], [0, 1, 2, 2], 1)]:
                wide, steps = (kernel * 2)[:2], (strides * 2)[:2] or [1, 1]
                ends = {0: [0] * 4, 1: pads * 4, 2: pads * 2, 4: pads}[len(pads)]
                x = drawn(400, dims, dtype)
                covered = [windows(dims[-2 + at], wide[at], steps[at], ends[at], ends[at + 2], 1, round_up) for at in range(2)]
                arrays = [{"ints": kernel}, {"ints": strides}, {"int": 0}, {"ints": pads}, {"ints": [1] * (len(pads) or 1)}, {"int": round_up}]
                cases.add("aclnnMaxPool", given(x, dtype), *arrays, made(greatest(exact(x), covered), dtype))
    for order in ["NDHWC", "NCDHW", None]:
        for padding, kernel, strides, dilation, round_up in [("VALID", [2, 3, 2], [1, 2, 3], None, 0), ("SAME", [3], [2], [1], 0), ("SAME", [2, 2, 3], [1, 1, 2], [2, 1, 2], 1), ("CALCULATED", [2, 3, 2], [2, 2, 3], [1, 2, 1], 0), ("CALCULATED", [2, 2, 2], [2, 1, 1], None, 1)]:
            x, pads = drawn(401, [2, 3, 4, 5, 2], dtype), [1, 0, 1, 1, 0, 1]
            volume = x if order == "NCDHW" else x.permute(0, 4, 1, 2, 3)
            covered = []
            for at, extent in enumerate(volume.shape[2:]):
                size, step, gap = (kernel * 3)[at], (strides * 3)[at], ((dilation or [1]) * 3)[at]
                whole = max((math.ceil(extent / step) - 1) * step + gap * (size - 1) + 1 - extent, 0)
                ends = {"VALID": [0, 0], "SAME": [whole // 2, whole - whole // 2], "CALCULATED": pads[2 * at:2 * at + 2]}[padding]
                covered.append(windows(extent, size, step, *ends, gap, round_up and padding == "CALCULATED"))
            out = greatest(exact(volume), covered)
            out = out if order == "NCDHW" else out.permute(0, 2, 3, 4, 1)
            told = [{"ints": kernel}, {"ints": strides}, {"text": padding}, {"ints": pads}, {"ints": dilation} if dilation else {"null": "ints"}, {"int": round_up}, {"text": order} if order else {"null": "text"}]
            cases.add("aclnnMaxPool3D", given(x, dtype), *told, made(out.contiguous(), dtype))


def pools(cases, dtype):
    for dims, kernel, stride, padding, round_up in [([1, 2, 4, 5, 4], [2, 3, 2], [1, 2, 3], [1, 1, 0], False), ([2, 5, 4, 4], [3], [2], [1], True), ([2, 2, 3, 3, 3], [2], [], [0], True)]:
        x = drawn(410, dims, dtype)
        leaf = exact(x).requires_grad_()
        out, indices = nn.max_pool3d(leaf, kernel * (3 // len(kernel)), (stride or kernel) * (3 // len(stride or kernel)), padding * (3 // len(padding)), ceil_mode=round_up, return_indices=True)
        told = [{"ints": kernel}, {"ints": stride}, {"ints": padding}, {"ints": [1]}, {"flag": round_up}]
        cases.add("aclnnMaxPool3dWithArgmax", given(x, dtype), *told, made(out.detach(), dtype), made(indices, "INT32"))
        g = drawn(411, list(out.shape), dtype)
        out.backward(exact(g))
        cases.add("aclnnMaxPool3dWithArgmaxBackward", given(g, dtype), given(x, dtype), given(indices.int(), "INT32"), *told, near(leaf.grad, dtype))
        for counted, divisor in [(True, 0), (False, 0), (True, 5)]:
            leaf = exact(x).requires_grad_()
            out = nn.avg_pool3d(leaf, kernel * (3 // len(kernel)), (stride or kernel) * (3 // len(stride or kernel)), padding * (3 // len(padding)), round_up, counted, divisor or None)
            told = [{"ints": kernel}, {"ints": stride}, {"ints": padding}, {"flag": round_up}, {"flag": counted}, {"int": divisor}]
            cases.add("aclnnAvgPool3d", given(x, dtype), *told, near(out.detach(), dtype))
            g = drawn(412, list(out.shape), dtype)
            out.backward(exact(g))
            cases.add("aclnnAvgPool3dBackward", given(g, dtype), given(x, dtype), *told, near(leaf.grad, dtype))
    for dims, size in [([2, 3, 5, 7], [2, 3]), ([3, 4, 4], [4, 1]), ([2, 2, 3, 5, 6], [2, 3, 4]), ([2, 3, 4, 5], [1, 4, 7])]:
        volume = len(size) == 3
        x = drawn(413, dims, dtype)
        leaf = exact(x).requires_grad_()
        out, indices = (nn.adaptive_max_pool3d if volume else nn.adaptive_max_pool2d)(leaf, size, return_indices=True)
        name, kind = ("aclnnAdaptiveMaxPool3d", "INT32") if volume else ("aclnnAdaptiveMaxPool2d", "INT64")
        cases.add(name, given(x, dtype), {"ints": size}, made(out.detach(), dtype), made(indices, kind))
        g = drawn(414, list(out.shape), dtype)
        out.backward(exact(g))
        cases.add(name + "Backward", given(g, dtype), given(x, dtype), given(indices.to(TYPES[kind]), kind), near(leaf.grad, dtype))
        if volume:
            leaf = exact(x).requires_grad_()
            out = nn.adaptive_avg_pool3d(leaf, size)
            cases.add("aclnnAdaptiveAvgPool3d", given(x, dtype), {"ints": size}, near(out.detach(), dtype))
            out.backward(exact(g))
            cases.add("aclnnAdaptiveAvgPool3dBackward", given(g, dtype), given(x, dtype), near(leaf.grad, dtype))


# By operator and its gradient: PyTorch's function, whether corners may be aligned, and whether scales have to lead to the extents.
GRIDS = [
    (1, "Nearest1dV2", "Nearest1dBackward", aten.upsample_nearest1d, False, False),
    (2, "Nearest2dV2", "Nearest2dBackward", aten.upsample_nearest2d, False, False),
    (3, "Nearest3d", "Nearest3dBackward", aten.upsample_nearest3d, False, False),
    (1, "NearestExact1d", "NearestExact1dBackward", aten._upsample_nearest_exact1d, False, False),
    (2, "NearestExact2d", "NearestExact2dBackward", aten._upsample_nearest_exact2d, False, False),
    (3, "NearestExact3d", "NearestExact3dBackward", aten._upsample_nearest_exact3d, False, False),
    (1, "Linear1d", "Linear1dBackward", aten.upsample_linear1d, True, False),
    (2, "Bilinear2d", "Bilinear2dBackward", aten.upsample_bilinear2d, True, False),
    (2, "Bilinear2d", "Bilinear2dBackwardV2", aten.upsample_bilinear2d, True, False),
    (3, "Trilinear3d", "Trilinear3dBackward", aten.upsample_trilinear3d, True, False),
    (2, "Bicubic2d", "Bicubic2dBackward", aten.upsample_bicubic2d, True, False),
    (2, "Bilinear2dAA", "Bilinear2dAABackward", aten._upsample_bilinear2d_aa, True, True),
    (2, "Bicubic2dAA", "Bicubic2dAAGrad", aten._upsample_bicubic2d_aa, True, True),
]
EXTENTS = [([4, 5, 3], [7, 3, 3]), ([3, 1, 4], [2, 4, 9]), ([5, 6, 2], [1, 6, 3])]
# Each leads to other extents: PyTorch's gradients of the nearest take no scale where a dim stays as long as it is.
SCALES = [2.5, 0.5, 1.75]


def grids(cases, dtype):
    for count, name, grad_name, function, corners, is_area in GRIDS:
        for (inner, outer), scaled, aligned in itertools.product(EXTENTS if dtype == "FLOAT" else EXTENTS[:1], [False, True], [False, True]):
            if aligned and (not corners or is_area):
                continue
            own, size = inner[:count], outer[:count]
            if scaled:
                size = [int(extent * factor) for extent, factor in zip(own, SCALES)]
            if 0 in size:
                continue
            x = drawn(420, [1, 2, *own], dtype)
            leaf = exact(x).requires_grad_()
            given_scales = SCALES[:count] if scaled else [None] * count
            out = function(leaf, size, *([aligned] if corners else []), *given_scales)
            told = [{"flag": aligned}] if corners else []
            told += [{"float": factor or 0.0} for factor in given_scales]
            cases.add("aclnnUpsample" + name, given(x, dtype), {"ints": size}, *told, near(out.detach(), dtype))
            g = drawn(421, list(out.shape), dtype)
            out.backward(exact(g))
            cases.add("aclnnUpsample" + grad_name, given(g, dtype), {"ints": size}, {"ints": [1, 2, *own]}, *told, near(leaf.grad, dtype))
    x = drawn(422, [2, 3, 5], dtype)
    cases.add("aclnnUpsampleNearest1d", given(x, dtype), {"ints": [8]}, made(aten.upsample_nearest1d(exact(x), [8], None), dtype))
    # Channels last.
    x = drawn(423, [2, 3, 4, 5], dtype)
    out = aten.upsample_bilinear2d(exact(x), [6, 7], False, None, None)
    last = [{"in": {**described(x.permute(0, 2, 3, 1).contiguous(), dtype), "format": 1}}, {"out": {**described(out.permute(0, 2, 3, 1).contiguous().to(TYPES[dtype]), dtype), "format": 1}, **UNITS}]
    cases.add("aclnnUpsampleBilinear2d", last[0], {"ints": [6, 7]}, {"flag": False}, {"float": 0.0}, {"float": 0.0}, last[1])


def gates(cases, dtype):
    for dims in [[2, 3], [], [0, 3], [2, 1, 4]]:
        x = drawn(430, dims, dtype)
        cases.add("aclnnSoftsign", given(x, dtype), made(nn.softsign(exact(x)), dtype))
        leaf = exact(x).requires_grad_()
        out = leaf * torch.sigmoid(1.702 * leaf)
        cases.add("aclnnFastGelu", given(x, dtype), made(out.detach(), dtype))
        g = drawn(431, dims, dtype)
        out.backward(exact(g))
        cases.add("aclnnFastGeluBackward", given(g, dtype), given(x, dtype), near(leaf.grad, dtype))
    for dims in [[2, 6], [3, 2, 4], [0, 2]]:
        x = drawn(432, dims, dtype, -9.0, 9.0)
        gate, other = exact(x).chunk(2, -1)
        for way in [None, "none", "tanh"]:
            out = nn.gelu(gate, approximate=way or "none") * other
            cases.add("aclnnGeluMul", given(x, dtype), {"text": way} if way else {"null": "text"}, near(out, dtype))
        for limit in [7.0, 0.5]:
            out = nn.silu(gate).clamp(max=limit) * other.clamp(-limit, limit)
            cases.add("aclnnSwigluClamp", given(x, dtype), {"float": limit}, near(out, dtype))
    for dims, normed in [([3, 8], 1), ([2, 3, 4], 2), ([0, 5], 1)]:
        x, gamma = drawn(433, dims, dtype), drawn(434, dims[-normed:], dtype)
        over = list(range(len(dims) - normed, len(dims)))
        rstd = torch.rsqrt(exact(x).square().mean(over, keepdim=True) + 1e-5)
        out = exact(x) * rstd * (1 + exact(gamma))
        cases.add("aclnnGemmaRmsNorm", given(x, dtype), given(gamma, dtype), {"float": 1e-5}, near(out, dtype), made(rstd, "FLOAT"))


def steps(cases, dtype):
    for maximize in [False, True]:
        lr, decay, beta1, beta2, eps = [drawn(440 + at, [1], dtype, low, high) for at, (low, high) in enumerate([(0.01, 0.1), (0.0, 0.2), (0.8, 0.9), (0.5, 0.9), (0.01, 0.1)])]
        power1, power2 = exact(beta1).square().to(TYPES[dtype]), exact(beta2).square().to(TYPES[dtype])
        p, m, g = [drawn(446 + at, [3, 5], dtype) for at in range(3)]
        v = drawn(449, [3, 5], dtype, 0.5, 2.0)
        slope = -exact(g) if maximize else exact(g)
        first = exact(beta1) * exact(m) + (1 - exact(beta1)) * slope
        second = exact(beta2) * exact(v) + (1 - exact(beta2)) * slope.square()
        share = first / (1 - exact(power1) * exact(beta1))
        root = (second / (1 - exact(power2) * exact(beta2))).sqrt()
        after = exact(p) - exact(lr) * share / (root + exact(eps)) - exact(lr) * exact(decay) * exact(p)
        refs = [{"ref": {**described(now.to(TYPES[dtype]), dtype), "before": flat(before, dtype)}, **UNITS} for now, before in zip([after, first, second], [p, m, v])]
        scalars = [given(each, dtype) for each in [power1, power2, lr, decay, beta1, beta2, eps]]
        cases.add("aclnnApplyAdamW", *refs, *scalars, given(g, dtype), NONE, {"flag": False}, {"flag": maximize})


def mixtures(cases, dtype):
    for count, choices, width, dropped in [(4, 2, 5, 0), (3, 1, 4, 0), (5, 3, 2, 4)]:
        copies = count * choices - dropped
        order = torch.randperm(count * choices, generator=torch.Generator().manual_seed(450))
        places, stays = order.tolist(), [at for at in range(count * choices) if order[at] < copies]
        g = drawn(451, [copies, width], dtype)
        out = torch.zeros([count, width], dtype=torch.float64)
        for at in stays:
            out[at // choices] += exact(g)[places[at]]
        told = [given(order.int(), "INT32"), {"int": choices}, {"flag": False}]
        cases.add("aclnnMoeTokenPermuteGrad", given(g, dtype), *told, near(out, dtype))
        tokens, g = drawn(452, [copies, width], dtype), drawn(453, [count, width], dtype)
        for probs in [drawn(454, [count, choices], dtype), drawn(454, [count, choices], "FLOAT")] + ([None] if choices == 1 else []):
            kind = "FLOAT" if probs is not None and probs.dtype == torch.float32 else dtype
            grad, slopes = torch.zeros([copies, width], dtype=torch.float64), torch.zeros([count * choices], dtype=torch.float64)
            for at in stays:
                factor = 1.0 if probs is None else exact(probs).flatten()[at]
                grad[places[at]] = factor * exact(g)[at // choices]
                slopes[at] = exact(tokens)[places[at]] @ exact(g)[at // choices]
            call = [given(tokens, dtype), given(g, dtype), given(order.int(), "INT32"), NONE if probs is None else given(probs, kind)]
            results = [near(grad, dtype), NONE if probs is None else near(slopes.reshape(count, choices), kind)]
            cases.add("aclnnMoeTokenUnpermuteGrad", *call, {"flag": False}, {"null": "ints"}, *results)


def places(cases):
    for dtype in [*FLOATS, "DOUBLE", "INT8", "INT64", "BOOL"]:
        x = drawn(460, [2, 3, 2], dtype)
        for dim in [0, 1, -1]:
            repeats = torch.tensor([2, 0, 3][: x.shape[dim]])
            for each in [repeats, torch.tensor([2])]:
                out = x.repeat_interleave(each, dim)
                cases.add("aclnnRepeatInterleaveWithDim", given(x, dtype), given(each, "INT64"), {"int": dim}, {"int": out.shape[dim]}, made(out, dtype))
        for each in [torch.arange(12) % 4, torch.tensor([3])]:
            out = x.repeat_interleave(each)
            cases.add("aclnnRepeatInterleave", given(x, dtype), given(each, "INT64"), {"int": len(out)}, made(out, dtype))
        cases.add("aclnnRepeatInterleaveInt", given(x, dtype), {"int": 2}, {"int": 24}, made(x.repeat_interleave(2), dtype))
    for repeats in [[2, 0, 1, 3], [], [0]]:
        each = torch.tensor(repeats, dtype=torch.int64)
        out = torch.repeat_interleave(each)
        cases.add("aclnnRepeatInterleaveTensor", given(each, "INT64"), {"int": len(out)}, made(out, "INT64"))
    for dtype in [*FLOATS, "INT32", "INT64"]:
        x = drawn(461, [2, 5], dtype).round()
        for value, inverted in itertools.product([1, 7], [False, True]):
            told = [{"flag": False}, {"flag": inverted}]
            cases.add("aclnnIsInTensorScalar", given(x, dtype), scalar(value, "INT64"), *told, made(torch.isin(x, value, invert=inverted), "BOOL"))
            cases.add("aclnnIsInScalarTensor", scalar(value, "INT64"), given(x, dtype), *told, made(torch.isin(torch.tensor(value), x.double(), invert=inverted), "BOOL"))
    for dtype in FLOATS:
        a, b = drawn(462, [3], dtype), drawn(463, [4], dtype)
        cases.add("aclnnGer", given(a, dtype), given(b, dtype), made(torch.outer(exact(a), exact(b)), dtype))
    for dtype in ["FLOAT", "DOUBLE"]:
        for dims in [[4, 4], [2, 3, 5, 5], [0, 2, 2], [3, 1, 1]]:
            x = drawn(464, dims, dtype) + 4 * torch.eye(dims[-1], dtype=TYPES[dtype])
            cases.add("aclnnInverse", given(x, dtype), {**made(torch.linalg.inv(exact(x)), dtype), "units": 64})
    for dtype in ["FLOAT", "INT32"]:
        for dims in [[2, 3], [], [0, 2]]:
            a, b = drawn(465, dims, dtype, -9, 9), drawn(466, dims, dtype, -9, 9)
            cases.add("aclnnAddExample", given(a, dtype), given(b, dtype), made(exact(a) + exact(b), dtype))
    for dtype in [*FLOATS, "INT32", "INT8", "UINT8"]:
        a, b = drawn(467, [4, 5], dtype, -20, 20), drawn(468, [4, 5], dtype, 1, 6)
        b = b if dtype == "UINT8" else b * torch.tensor([1, -1, 1, 1, -1], dtype=b.dtype)
        quotient = torch.floor(exact(a) / exact(b)) if dtype in FLOATS else torch.div(exact(a), exact(b), rounding_mode="floor")
        cases.add("aclnnFloorDiv", given(a, dtype), given(b, dtype), made(quotient, dtype))


if __name__ == "__main__":
    cases = Cases()
    for dtype in FLOATS:
        for make in [max_pools, pools, grids, gates, steps, mixtures]:
            make(cases, dtype)
    places(cases)
    cases.write("grids.jsonl")

"""Writes further.jsonl beside it: products that attributes turn, sums of lists, distances, scattered parts, losses between distributions,
convolutions that are deformed or of 8-bit integers.

    python3 further.py        (as make.py)
"""

import torch

from cases import FLOATS, TYPES, WHOLE, Cases, described, drawn, exact, flat, given, made, number

NONE = {"null": "tensor"}
UNITS = {"units": 8}


def products(cases, dtype):
    for turns_a, turns_b in [(0, 0), (1, 0), (0, 5), (-1, 1)]:
        a = drawn(300, [4, 3] if turns_a else [3, 4], dtype)
        b = drawn(301, [5, 4] if turns_b else [4, 5], dtype)
        for dims in [[3, 5], [1, 5], [3, 1]]:
            c = drawn(302, dims, dtype)
            left, right = (exact(each).T if turns else exact(each) for each, turns in [(a, turns_a), (b, turns_b)])
            out = 0.5 * left @ right - 2.0 * exact(c)
            numbers = [{"float": 0.5}, {"float": -2.0}, {"int": turns_a}, {"int": turns_b}]
            cases.add("aclnnGemm", *[given(each, dtype) for each in [a, b, c]], *numbers, {**made(out, dtype), **UNITS}, {"int": 0})
    for perm_x1 in [[0, 1, 2], [1, 0, 2]]:
        for perm_x2 in [[0, 1, 2], [0, 2, 1]]:
            for factor in [1, 2, 4]:
                if perm_x2 == [0, 2, 1] and (factor > 1 or perm_x1 == [0, 1, 2]):
                    continue
                x = drawn(303, [4, 3, 6] if perm_x1 == [0, 1, 2] else [3, 4, 6], dtype)
                y = drawn(304, [4, 6, 5] if perm_x2 == [0, 1, 2] else [4, 5, 6], dtype)
                out = (exact(x).permute(perm_x1) @ exact(y).permute(perm_x2)).permute(1, 0, 2)
                if factor > 1:
                    out = out.reshape(3, factor, 4 // factor * 5).permute(1, 0, 2)
                perms = [{"ints": perm_x1}, {"ints": perm_x2}, {"ints": [1, 0, 2]}]
                call = [given(x, dtype), given(y, dtype), NONE, NONE, *perms, {"int": 0}, {"int": factor}]
                cases.add("aclnnTransposeBatchMatMul", *call, {**made(out, dtype), **UNITS})


def sums(cases):
    for dtype in ["FLOAT", "FLOAT16", *[each for each in WHOLE if each != "INT64"]]:
        for shapes in [[[2, 3]], [[2, 3], [3], [2, 1]], [[], [0, 2], [1]], [[1100], [1100], [1100], [1]]]:
            terms = [drawn(310 + at, dims, dtype, -9, 9) for at, dims in enumerate(shapes)]
            out = exact(terms[0])
            for term in terms[1:]:
                out = out + exact(term)
            cases.add("aclnnSum", {"ins": [described(term, dtype) for term in terms]}, made(out, dtype))
    for dtype in FLOATS:
        x = drawn(315, [2, 3, 4, 5], dtype)
        for axis, count, from_blob, dims in [(1, 2, True, [3, 4]), (-2, -1, True, [4, 5]), (1, 0, True, [1]), (0, 7, False, [2]), (2, 0, False, [4, 5]), (1, 1, False, [3, 4, 5])]:
            first = axis % 4
            scale, bias = drawn(316, dims, dtype), drawn(317, dims, dtype)
            behind = [1] * (4 - first - len(dims)) if dims != [1] or count else []
            wide = [exact(each).reshape(dims + behind) for each in [scale, bias]]
            numbers = [{"int": axis}, {"int": count}, {"flag": from_blob}]
            cases.add("aclnnScale", given(x, dtype), given(scale, dtype), given(bias, dtype), *numbers, {**made(exact(x) * wide[0] + wide[1], dtype), **UNITS})
            cases.add("aclnnScale", given(x, dtype), given(scale, dtype), NONE, *numbers, made(exact(x) * wide[0], dtype))


def parts(cases):
    for dtype in [*FLOATS, "BOOL"]:
        data = drawn(320, [4, 3, 2], dtype)
        for kind, places in [("INT64", [[2], [0], [2]]), ("INT32", [[1, 2], [3, 0], [1, 2]]), ("INT64", [[[3, 2, 1], [0, 0, 0]]])]:
            indices = torch.tensor(places)
            depth = indices.shape[-1]
            updates = drawn(321, [*indices.shape[:-1], *data.shape[depth:]], dtype)
            out = data.clone()
            rows = indices.reshape(-1, depth).tolist()
            for row, update in zip(rows, updates.reshape(len(rows), *data.shape[depth:])):
                out[tuple(row)] = update
            cases.add("aclnnScatterNd", given(data, dtype), given(indices.to(TYPES[kind]), kind), given(updates, dtype), made(out, dtype))
        empty = torch.zeros([0, 2], dtype=torch.int64)
        cases.add("aclnnScatterNd", given(data, dtype), given(empty, "INT64"), given(data[:0, 0], dtype), made(data, dtype))


def distributions(cases, dtype):
    for dims in [[3, 5], [2, 1], [0, 4]]:
        leaf, labels = exact(drawn(330, dims, dtype)).requires_grad_(), torch.softmax(exact(drawn(331, dims, dtype)), -1).to(TYPES[dtype])
        loss = -(exact(labels) * torch.log_softmax(leaf, -1)).sum(-1)
        grad = torch.softmax(leaf.detach(), -1) - exact(labels)
        results = [{**made(each, dtype), **UNITS} for each in [loss.detach(), grad]]
        cases.add("aclnnSoftmaxCrossEntropyWithLogits", given(leaf.detach().to(TYPES[dtype]), dtype), given(labels, dtype), *results)


def distances(cases, dtype):
    for left, right in [([3, 4], [2, 4]), ([2, 1, 3, 4], [5, 2, 4]), ([2, 2, 3, 4], [2, 1, 5, 4]), ([2, 3, 0], [2, 2, 0]), ([0, 4], [2, 4])]:
        x, y = drawn(340, left, dtype), drawn(341, right, dtype)
        if len(left) == 2 and left[0] == 3:
            y[1] = x[2]
            y[0, 1] = x[0, 1]
        for degree in [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")]:
            leaf = exact(x).requires_grad_()
            out = torch.cdist(leaf, exact(y), p=degree, compute_mode="donot_use_mm_for_euclid_dist")
            tell = {"float": number(degree, dtype)}
            cases.add("aclnnCdist", given(x, dtype), given(y, dtype), tell, {"int": 2}, {**made(out.detach(), dtype), "units": 16})
            batch = list(out.shape[:-2])
            if dtype == "BFLOAT16" or batch != left[:-2] or 0 in left + right:
                continue
            kept, g = out.detach().to(TYPES[dtype]), drawn(342, list(out.shape), dtype)
            wide = exact(y).expand(*batch, *right[-2:]).contiguous()
            # The greatest difference is told from others by being equal to the distance, which a rounded one is not.
            told = out.detach() if degree == float("inf") else exact(kept)
            grad = torch.ops.aten._cdist_backward(exact(g), exact(x), wide, degree, told)
            cases.add("aclnnCdistBackward", *[given(each, dtype) for each in [g, x, y, kept]], tell, {**made(grad, dtype), "units": 16})


def cards(cases, dtype):
    """A batch on three cards by its sums: what they join is what one card makes of the whole."""
    epsilon, momentum = 1e-3, 0.25
    counts = [2, 5, 1]
    whole = drawn(350, [8, 4], dtype, -2.0, 2.0)
    pieces = exact(whole).split(counts)
    totals = [torch.stack([part.sum(0) for part in pieces]), torch.stack([part.square().sum(0) for part in pieces])]
    totals = [each.to(TYPES[dtype]) for each in totals]
    running = [drawn(351, [4], dtype), drawn(352, [4], dtype, 0.5, 2.0)]
    mean = exact(totals[0]).sum(0) / 8
    variance = exact(totals[1]).sum(0) / 8 - mean.square()
    after = [exact(running[0]) * (1 - momentum) + momentum * mean, exact(running[1]) * (1 - momentum) + momentum * variance * 8 / 7]
    for kind in ["FLOAT", "INT32"]:
        refs = [{"ref": {**described(now.to(TYPES[dtype]), dtype), "before": flat(before, dtype)}, **UNITS} for now, before in zip(after, running)]
        joined = [{**made(each, dtype), **UNITS} for each in [mean, torch.rsqrt(variance + epsilon)]]
        sums = [given(each, dtype) for each in totals]
        told = given(torch.tensor(counts).to(TYPES[kind]), kind)
        cases.add("aclnnSyncBatchNormGatherStats", *sums, told, *refs, {"float": momentum}, {"float": epsilon}, *joined)


def read_between(x, offset, by):
    """What the windows of a deformable convolution read, element by element."""
    count, channels, height, width = x.shape
    (rows, columns), (stride, padding, dilation), parts = by["kernel"], (by["stride"], by["padding"], by["dilation"]), by["parts"]
    out_height, out_width = offset.shape[2:]
    shifts = offset.reshape(count, 3, parts, rows * columns, out_height, out_width)
    out = torch.zeros(count, channels, out_height * rows, out_width * columns, dtype=torch.float64)
    for n in range(count):
        for c in range(channels):
            own = shifts[n, :, c * parts // channels]
            for i in range(out_height):
                for j in range(out_width):
                    for k in range(rows * columns):
                        right, down, factor = own[:, k, i, j].tolist()
                        y = i * stride[0] - padding[0] + k // columns * dilation[0] + down
                        z = j * stride[1] - padding[2] + k % columns * dilation[1] + right
                        value = 0.0
                        for a in range(height):
                            for b in range(width):
                                value += max(0.0, 1 - abs(y - a)) * max(0.0, 1 - abs(z - b)) * x[n, c, a, b].item()
                        out[n, c, i * rows + k // columns, j * columns + k % columns] = value * factor
    return out


def convolutions(cases, dtype):
    nn = torch.nn.functional
    for kernel, stride, padding, dilation, groups, parts in [
        ([2, 2], [1, 1], [0, 0, 0, 0], [1, 1], 1, 1),
        ([3, 2], [2, 1], [1, 2, 0, 1], [1, 2], 2, 4),
    ]:
        x, weight, bias = drawn(360, [2, 4, 5, 4], dtype), drawn(361, [6, 4 // groups, *kernel], dtype), drawn(362, [6], dtype)
        height = (5 + padding[0] + padding[1] - (kernel[0] - 1) * dilation[0] - 1) // stride[0] + 1
        width = (4 + padding[2] + padding[3] - (kernel[1] - 1) * dilation[1] - 1) // stride[1] + 1
        offset = drawn(363, [2, 3 * parts * kernel[0] * kernel[1], height, width], dtype, -2.0, 2.0)
        by = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "parts": parts}
        read = read_between(exact(x), exact(offset), by).to(TYPES[dtype])
        out = nn.conv2d(exact(read), exact(weight), exact(bias), stride=kernel, groups=groups)
        arrays = [{"ints": kernel}, {"ints": [1, 1, *stride]}, {"ints": padding}, {"ints": [1, 1, *dilation]}]
        numbers = [{"int": groups}, {"int": parts}, {"flag": True}]
        call = [given(x, dtype), given(weight, dtype), given(offset, dtype)]
        units = {"units": 32}
        cases.add("aclnnDeformableConv2d", *call, given(bias, dtype), *arrays, *numbers, {**made(out, dtype), **units}, {**made(read, dtype), "units": 4})
        plain = nn.conv2d(exact(read), exact(weight), stride=kernel, groups=groups)
        cases.add("aclnnDeformableConv2d", *call, NONE, *arrays, *numbers, {**made(plain, dtype), **units}, NONE)


def quantised(cases):
    nn = torch.nn.functional
    for dims, kernel, stride, padding, dilation in [([2, 3, 3, 5, 4], [2, 2, 2], [1, 1, 1], [0, 0, 0], [1, 1, 1]), ([1, 130, 1, 5, 4], [1, 3, 3], [2, 1, 2], [0, 2, 1], [1, 2, 1])]:
        x, weight = drawn(370, dims, "INT8", -128, 127), drawn(371, [3, dims[1], *kernel], "INT8", -128, 127)
        scale = drawn(372, [3], "FLOAT", 0.001, 0.01)
        product = nn.conv3d(exact(x).double(), exact(weight).double(), stride=stride, padding=padding, dilation=dilation)
        scaled = product * exact(scale).reshape(3, 1, 1, 1)
        for dtype, kind in [("FLOAT16", "FLOAT"), ("BFLOAT16", "BFLOAT16"), ("FLOAT16", None)]:
            bias = drawn(373, [3], kind or "FLOAT")
            out = scaled + exact(bias).reshape(3, 1, 1, 1) if kind else scaled
            arrays = [{"ints": stride}, {"ints": padding}, {"ints": dilation}]
            call = [given(x, "INT8"), given(weight, "INT8"), given(bias, kind) if kind else NONE, given(scale, "FLOAT"), NONE]
            rest = [{"flag": False}, {"null": "ints"}, {"int": 1}, {"int": 0}, {"null": "text"}]
            cases.add("aclnnQuantConvolution", *call, *arrays, *rest, {**made(out, dtype), "units": 2})


if __name__ == "__main__":
    cases = Cases()
    for dtype in FLOATS:
        products(cases, dtype)
        distributions(cases, dtype)
        distances(cases, dtype)
        convolutions(cases, dtype)
    quantised(cases)
    sums(cases)
    parts(cases)
    for dtype in ["FLOAT", "FLOAT16"]:
        cards(cases, dtype)
    cases.write("further.jsonl")

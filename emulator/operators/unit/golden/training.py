"""Writes training.jsonl beside it: losses of sequences and of planes, batch norms over several cards, products of vectors.

    python3 training.py        (as make.py)
"""

import torch

from cases import FLOATS, REALS, TYPES, Cases, described, drawn, exact, flat, given, made

NONE = {"null": "tensor"}


def ctc(cases, dtype):
    """PyTorch leaves what no step or state has as it was; the operator writes minus infinity there."""
    batches = [
        # Steps and classes, lengths of inputs and of labels, labels with repetitions, the blank; the last cannot be given.
        (6, 5, [6, 4], [3, 2], [[1, 2, 2], [4, 1, 0]], 0),
        (5, 4, [5, 5, 3], [1, 2, 1], [[0, 1], [2, 2], [1, 0]], 3),
        (4, 3, [4, 2], [1, 2], [[1, 1], [2, 2]], 0),
    ]
    for steps, classes, lengths, counts, labels, blank in batches:
        count = len(lengths)
        logs = torch.log_softmax(exact(drawn(200, [steps, count, classes], dtype)), -1).to(TYPES[dtype])
        padded = torch.tensor(labels)
        joined = torch.cat([padded[at, : counts[at]] for at in range(count)])
        for targets, is_zero in [(padded, False), (joined, True)]:
            wide = torch.ops.aten._ctc_loss(exact(logs), targets, lengths, counts, blank, is_zero)
            width = (2 * max(counts) + 8) // 8 * 8
            alpha = torch.full([count, steps, width], float("-inf"), dtype=torch.float64)
            for at in range(count):
                alpha[at, : lengths[at], : 2 * counts[at] + 1] = wide[1][at, : lengths[at], : 2 * counts[at] + 1]
            loss = torch.where(wide[0].isinf(), 0, wide[0]) if is_zero else wide[0]
            arrays = [{"ints": lengths}, {"ints": counts}]
            call = [given(logs, dtype), given(targets, "INT64" if is_zero else "INT32"), *arrays]
            flags, units = [{"int": blank}, {"flag": is_zero}], {"units": 4}
            cases.add("aclnnCtcLoss", *call, *flags, {**made(loss, dtype), **units}, {**made(alpha, dtype), **units})
            g = drawn(201, [count], dtype)
            # From what the operator has written, as its type holds it.
            kept = [loss.to(TYPES[dtype]), alpha.to(TYPES[dtype])]
            states = exact(kept[1])[..., : 2 * max(counts) + 1].contiguous()
            whole = torch.where(wide[0].isinf(), wide[0], exact(kept[0]))
            grad = torch.ops.aten._ctc_loss_backward(exact(g), exact(logs), targets, lengths, counts, whole, states, blank, is_zero)
            for at in range(count):
                grad[lengths[at] :, at] = 0
            results = [given(each, dtype) for each in kept]
            cases.add("aclnnCtcLossBackward", given(g, dtype), *call, *results, *flags, {**made(grad, dtype), "units": 16})


def planes(cases, dtype):
    nn = torch.nn.functional
    logs = drawn(210, [2, 3, 2, 4], dtype)
    target = drawn(211, [2, 2, 4], "INT64", 0, 2)
    weight = drawn(212, [3], dtype, 0.5, 2.0)
    for code, reduction in enumerate(["none", "mean", "sum"]):
        for ignored in [-100, 1]:
            leaf = exact(logs).requires_grad_()
            loss = nn.nll_loss(leaf, target, exact(weight), ignore_index=ignored, reduction=reduction)
            g = drawn(213, list(loss.shape), dtype)
            loss.backward(exact(g))
            total = exact(weight)[target[target != ignored]].sum().reshape(1)
            units, attributes = {"units": 8}, [{"int": code}, {"int": ignored}]
            call = [given(logs, dtype), given(target, "INT64"), given(weight, dtype), *attributes]
            cases.add("aclnnNLLLoss2d", *call, {**made(loss.detach(), dtype), **units}, {**made(total, dtype), **units})
            kept = total.to(TYPES[dtype])
            scale = float(total) / float(kept) if code == 1 else 1.0
            cases.add("aclnnNLLLoss2dBackward", given(g, dtype), *call, given(kept, dtype), {**made(leaf.grad * scale, dtype), **units})


def cards(cases, dtype):
    """A batch on two cards: what they join is what one card makes of the whole."""
    epsilon, momentum = 1e-3, 0.25
    for dims in [[5, 3], [5, 3, 4, 2]]:
        x, g = drawn(220, dims, dtype), drawn(221, dims, dtype)
        weight, bias = drawn(222, [3], dtype, 0.5, 2.0), drawn(223, [3], dtype)
        running = [drawn(224, [3], "FLOAT"), drawn(225, [3], "FLOAT", 0.5, 2.0)]
        over = [dim for dim in range(len(dims)) if dim != 1]
        parts = [exact(x)[:2], exact(x)[2:]]
        means = torch.stack([part.mean(over) for part in parts])
        spreads = torch.stack([torch.rsqrt(part.var(over, correction=0) + epsilon) for part in parts])
        counts = torch.tensor([float(part.numel() // 3) for part in parts])
        units = {"units": 8}
        for part, mean, spread in zip(parts, means, spreads):
            results = [{**made(each, "FLOAT"), **units} for each in [mean, spread]]
            cases.add("aclnnBatchNormStats", given(part.to(TYPES[dtype]), dtype), {"float": epsilon}, *results)
        wide = [exact(leaf).requires_grad_() for leaf in [x, weight, bias]]
        after = [exact(each).clone() for each in running]
        out = torch.nn.functional.batch_norm(wide[0], *after, wide[1], wide[2], True, momentum, epsilon)
        out.backward(exact(g))
        refs = [{"ref": {**described(now.float(), "FLOAT"), "before": flat(before, "FLOAT")}, **units} for now, before in zip(after, running)]
        mean, spread = exact(x).mean(over), torch.rsqrt(exact(x).var(over, correction=0) + epsilon)
        joined = [{**made(each, "FLOAT"), **units} for each in [mean, spread]]
        floats = [given(each.float(), "FLOAT") for each in [means, spreads]]
        cases.add("aclnnBatchNormGatherStatsWithCounts", given(x, dtype), *floats, *refs, {"float": momentum}, {"float": epsilon}, given(counts, "FLOAT"), *joined)
        statistics = [given(each.float(), "FLOAT") for each in [mean, spread]]
        cases.add("aclnnBatchNormElemt", given(x, dtype), given(weight, dtype), given(bias, dtype), *statistics, {"float": epsilon}, {**made(out.detach(), dtype), **units})
        shape = [1, 3] + [1] * (len(dims) - 2)
        sums = [exact(g).sum(over), (exact(g) * (exact(x) - mean.reshape(shape))).sum(over)]
        grads = [{**made(each, "FLOAT"), **units} for each in [*sums, wide[1].grad, wide[2].grad]]
        call = [given(g, dtype), given(x, dtype), *statistics, given(weight, dtype)]
        cases.add("aclnnBatchNormReduceBackward", *call, *[{"flag": True}] * 3, *grads)
        cases.add("aclnnBatchNormReduceBackward", *call, {"flag": False}, {"flag": False}, {"flag": True}, NONE, NONE, NONE, grads[3])
        kept = [given(each.float(), "FLOAT") for each in sums]
        for counter in ["INT32", "FLOAT"]:
            cases.add("aclnnBatchNormElemtBackward", *call, *kept, given(counts.to(TYPES[counter]), counter), {**made(wide[0].grad, dtype), **units})
        if len(dims) == 4:
            squares = [{**made(each, "FLOAT"), **units} for each in [exact(x).sum(over), exact(x).square().sum(over)]]
            cases.add("aclnnBatchNormReduce", given(x, dtype), *squares)


def vectors(cases, dtype):
    x, y, matrix = drawn(230, [5], dtype), drawn(231, [5], dtype), drawn(232, [3, 5], dtype)
    units = {"units": 8}
    cases.add("aclnnDot", given(x, dtype), given(y, dtype), {**made(exact(x) @ exact(y), dtype), **units})
    cases.add("aclnnDot", given(x[:0], dtype), given(y[:0], dtype), made(torch.tensor(0.0), dtype))
    for addend in [drawn(233, [3], dtype), drawn(234, [1], dtype), drawn(235, [], dtype)]:
        for alpha, beta in [(0.5, 2.0), (1.0, 0.0)]:
            out = torch.addmv(exact(addend), exact(matrix), exact(x), alpha=alpha, beta=beta)
            scales = [{"scalar": alpha, "type": "FLOAT"}, {"scalar": beta, "type": "FLOAT"}]
            cases.add("aclnnAddmv", given(addend, dtype), given(matrix, dtype), given(x, dtype), *scales, {**made(out, dtype), **units}, {"int": 0})
    for addend in [drawn(236, [3, 5], dtype), drawn(237, [5], dtype)]:
        v = drawn(238, [3], dtype)
        for scales in [[{"scalar": 2.0, "type": "FLOAT"}, {"scalar": -0.5, "type": "FLOAT"}], [{"null": "scalar"}] * 2]:
            beta, alpha = [scale.get("scalar", 1.0) for scale in scales]
            out = torch.addr(exact(addend).expand(3, 5), exact(v), exact(x), beta=beta, alpha=alpha)
            cases.add("aclnnAddr", given(addend, dtype), given(v, dtype), given(x, dtype), *scales, {**made(out, dtype), **units})


def equal(cases, dtype):
    # More elements than are compared at a time, once.
    x = drawn(240, [2, 700 if dtype == "FLOAT" else 20], dtype)
    other = x.clone()
    other[1, -1] = 1 - other[1, -1] if dtype != "BOOL" else ~other[1, -1]
    pairs = [(x, x), (x, other), (x, x[:, 1:]), (x[:0], x[:0])]
    if dtype in REALS:
        pairs.append((x[:, :3] / 0 * 0, x[:, :3] / 0 * 0))
    for a, b in pairs:
        truth = torch.tensor([torch.equal(a, b)])
        cases.add("aclnnEqual", given(a, dtype), given(b, dtype), made(truth, "BOOL"))


if __name__ == "__main__":
    cases = Cases()
    for dtype in FLOATS:
        ctc(cases, dtype)
        planes(cases, dtype)
        cards(cases, dtype)
        vectors(cases, dtype)
    for dtype in ["FLOAT", "BFLOAT16", "INT64", "BOOL"]:
        equal(cases, dtype)
    cases.write("training.jsonl")

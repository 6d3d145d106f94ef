"""Calls whose results have a shape that their values decide."""

import torch

from cases import REALS, WHOLE, Cases, drawn, flat, given, made

EVERY = [*REALS, *WHOLE, "BOOL"]


def room(result, dtype, dims):
    """An output of the largest dims, its values, and the dims these have."""
    return {"out": {"type": dtype, "dims": list(dims), "becomes": list(result.shape), "values": flat(result, dtype)}}


def decided():
    cases = Cases()
    for dtype in EVERY:
        for dims in [[3, 4], [7], [2, 0], [2, 1, 5]] if dtype == "FLOAT" else [[3, 4]]:
            x = drawn(200, dims, dtype) if dtype == "BOOL" else drawn(200, dims, dtype, -1, 1).round()
            places = x.nonzero()
            cases.add("aclnnNonzero", given(x, dtype), room(places, "INT64", [x.numel(), len(dims)]))
            cases.add("aclnnNonzeroV2", given(x, dtype), room(places.T.contiguous(), "INT64", [len(dims), x.numel()]))
            unique(cases, x, dtype)
            mask = drawn(201, dims, "BOOL")
            cases.add("aclnnMaskedSelect", given(x, dtype), given(mask, "BOOL"), room(x[mask], dtype, [x.numel()]))
    special = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -1.0])
    cases.add("aclnnNonzero", given(special, "FLOAT"), room(special.nonzero(), "INT64", [5, 1]))
    for value in [0.0, 2.0]:
        x = torch.tensor(value)
        cases.add("aclnnNonzero", given(x, "FLOAT"), room(x.nonzero(), "INT64", [1, 0]))
        cases.add("aclnnNonzeroV2", given(x, "FLOAT"), room(x.reshape(1).nonzero().T, "INT64", [1, 1]))
    x, mask = drawn(202, [3, 1, 4], "FLOAT16"), drawn(203, [2, 1], "BOOL")
    for kind in ["BOOL", "UINT8"]:
        cases.add("aclnnMaskedSelect", given(x, "FLOAT16"), given(mask.int() if kind == "UINT8" else mask, kind), room(torch.masked_select(x, mask), "FLOAT16", [24]))
    return cases


def unique(cases, x, dtype):
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    one = [room(values, dtype, [x.numel()]), made(inverse, "INT64")]
    cases.add("aclnnUnique", given(x, dtype), {"flag": True}, {"flag": True}, *one)
    cases.add("aclnnUnique2", given(x, dtype), {"flag": False}, {"flag": True}, {"flag": True}, *one, room(counts, "INT64", [x.numel()]))
    # What is not asked for is not written, whatever room it has.
    nothing = {"out": {"type": "INT64", "dims": [0], "values": []}}
    cases.add("aclnnUnique2", given(x, dtype), {"flag": True}, {"flag": False}, {"flag": False}, one[0], nothing, nothing)
    values, inverse, counts = torch.unique_consecutive(x, return_inverse=True, return_counts=True)
    flags = [{"flag": True}, {"flag": True}]
    cases.add("aclnnUniqueConsecutive", given(x, dtype), *flags, {"int": 1000}, room(values, dtype, [x.numel()]), made(inverse, "INT64"), room(counts, "INT64", [x.numel()]))
    for dim in range(x.dim()):
        if x.numel() == 0:
            continue
        # One row twice, so that something is left out.
        twice = torch.cat([x, x.narrow(dim, 0, 1)], dim)
        rows = twice.shape[dim]
        values, inverse, counts = torch.unique(twice, dim=dim, return_inverse=True, return_counts=True)
        results = [room(values, dtype, twice.shape), made(inverse, "INT64"), room(counts, "INT64", [rows])]
        cases.add("aclnnUniqueDim", given(twice, dtype), *flags, {"int": dim - x.dim()}, *results)
        values, inverse, counts = torch.unique_consecutive(twice, dim=dim, return_inverse=True, return_counts=True)
        results = [room(values, dtype, twice.shape), made(inverse, "INT64"), room(counts, "INT64", [rows])]
        cases.add("aclnnUniqueConsecutive", given(twice, dtype), *flags, {"int": dim}, *results)


if __name__ == "__main__":
    decided().write("decided.jsonl")

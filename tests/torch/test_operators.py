"""Operators on integers and Booleans, for each pair of types. Every result has the type and bits of the CPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_npu")

TYPES = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float32, torch.float16, torch.bfloat16]

# Small whole numbers are exact in every type, and so are their sums, differences and products.
UNARY = {
    "not": lambda x: ~x,
    "negative": lambda x: -x,
    "logical_not": torch.logical_not,
    "sum": lambda x: x.sum(1),
    "any": lambda x: x.any(1),
    "all": lambda x: x.all(0),
    "largest": lambda x: x.max(),
    "cumsum": lambda x: x.cumsum(1),
    "is_one": lambda x: x == 1,
    "plus_one": lambda x: x + 1,
    "and_one": lambda x: x & 1,
    "lower": torch.tril,
    "masked": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "long": lambda x: x.long(),
    "float": lambda x: x.float(),
}
BINARY = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "less": lambda x, y: x < y,
    "equal": lambda x, y: x == y,
    "logical_and": torch.logical_and,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "concatenate": lambda x, y: torch.cat([x, y]),
}
# aclnnNeg does not support UINT8.
REFUSED = [("negative", torch.uint8)]


def _drawn(dtype, seed):
    values = torch.randint(-3, 4, (3, 4), generator=torch.Generator().manual_seed(seed))
    return values > 0 if dtype == torch.bool else values.abs().to(dtype) if dtype == torch.uint8 else values.to(dtype)


def _computes(function, *operands):
    """Returns whether PyTorch on the CPU has the operator for these types."""
    try:
        function(*operands)
    except (RuntimeError, NotImplementedError, TypeError):
        return False
    return True


def _agree(function, *operands):
    expected = function(*operands)
    found = function(*(operand.npu() for operand in operands)).cpu()
    assert found.dtype == expected.dtype and torch.equal(found, expected)


ONE = [(name, dtype) for name, function in UNARY.items() for dtype in TYPES if _computes(function, _drawn(dtype, 1))]
TWO = [
    (name, dtype, other)
    for name, function in BINARY.items()
    for dtype in TYPES
    for other in TYPES
    if _computes(function, _drawn(dtype, 1), _drawn(other, 2))
]


@pytest.mark.parametrize(("name", "dtype"), [pair for pair in ONE if pair not in REFUSED], ids=str)
def test_operators_of_one_tensor_agree(name, dtype):
    _agree(UNARY[name], _drawn(dtype, 1))


@pytest.mark.parametrize(("name", "dtype"), REFUSED, ids=str)
def test_a_type_that_an_operator_does_not_take_is_refused(name, dtype):
    with pytest.raises(RuntimeError, match="expected an element type"):
        UNARY[name](_drawn(dtype, 1).npu())
        torch.npu.synchronize()


@pytest.mark.parametrize(("name", "dtype", "other"), TWO, ids=str)
def test_operators_of_two_tensors_agree(name, dtype, other):
    _agree(BINARY[name], _drawn(dtype, 1), _drawn(other, 2))


# Results with data-dependent shapes.
DECIDED = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero of each dim": lambda x: torch.stack(x.nonzero(as_tuple=True)),
    "where": lambda x: torch.stack(torch.where(x > 0)),
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "index of truth values": lambda x: x[x > 0],
    "rows of truth values": lambda x: x[(x > 0).any(1)],
    "put at truth values": lambda x: torch.index_put(x, (x > 0,), x.new_ones(())),
    "unique": torch.unique,
    "inverse of unique": lambda x: torch.unique(x, return_inverse=True)[1],
    "counts of unique": lambda x: torch.unique(x, return_counts=True)[1],
    "unique rows": lambda x: torch.unique(torch.cat([x, x]), dim=0),
    # Cards cannot sort Booleans.
    "unique_consecutive": lambda x: torch.unique_consecutive(x.flatten().int().sort()[0].to(x.dtype)),
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", DECIDED)
def test_results_of_a_shape_that_values_decide_agree(name, dtype):
    _agree(DECIDED[name], _drawn(dtype, 1))


def test_no_element_is_left_where_none_counts():
    _agree(lambda x: x.nonzero(), torch.zeros(3, 4))
    _agree(lambda x: x[x > 0], torch.zeros(3, 4))
    _agree(torch.unique, torch.zeros(0))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest", "nearest-exact"])
def test_a_given_size_is_no_scale(mode):
    pictures = torch.arange(12.0).reshape(1, 1, 3, 4)
    expected = torch.nn.functional.interpolate(pictures, size=(5, 7), mode=mode)
    found = torch.nn.functional.interpolate(pictures.npu(), size=(5, 7), mode=mode)
    torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("non_blocking", [False, True])
def test_a_list_of_tensors_is_copied_to_the_card(non_blocking):
    sources = [torch.arange(3.0), torch.arange(8.0).reshape(2, 4)]
    targets = [torch.zeros_like(source, device="npu") for source in sources]
    torch._foreach_copy_(targets, sources, non_blocking=non_blocking)
    torch.npu.synchronize()
    assert [target.cpu().tolist() for target in targets] == [source.tolist() for source in sources]

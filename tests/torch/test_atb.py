"""ATB functions that torch_npu calls, compared with PyTorch on the CPU. Whole numbers make sums exact, so all bits are compared.

`torch_npu` 2.9.0 keeps the cosines of the first rotary embedding of a process, so only one is tested here.
"""

import pytest

torch = pytest.importorskip("torch")
torch_npu = pytest.importorskip("torch_npu")


@pytest.fixture(scope="module", autouse=True)
def atb():
    from torch_npu.op_plugin.atb._atb_ops import _register_atb_extensions

    _register_atb_extensions()


def whole(*shape, seed, dtype=torch.float16, reach=8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-reach, reach + 1, shape, generator=generator).to(dtype)


def test_halves_of_heads_are_turned():
    tokens, heads, key_heads, size = 7, 4, 2, 32
    query, key = whole(tokens, heads * size, seed=1), whole(tokens, key_heads * size, seed=2)
    table, positions = whole(20, size, seed=3, reach=1), torch.tensor([3, 0, 19, 3, 7, 8, 1])
    cosines, sines = (part.float()[:, None] for part in table[positions].chunk(2, dim=-1))

    def turned(x):
        first, second = x.float().view(tokens, -1, size).chunk(2, dim=-1)
        both = (first * cosines - second * sines, second * cosines + first * sines)
        return torch.cat(both, dim=-1).view(tokens, -1).half()

    on_query, on_key = query.npu(), key.npu()
    torch_npu._npu_rotary_embedding(positions.npu(), on_query, on_key, size, table.npu(), True)
    assert torch.equal(on_query.cpu(), turned(query)) and torch.equal(on_key.cpu(), turned(key))
    with pytest.raises(RuntimeError, match="CreateOperation failed"):
        torch_npu._npu_rotary_embedding(positions.npu(), on_query, on_key, size, table.npu(), False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8])
def test_tokens_go_to_their_slots(dtype):
    blocks, places, heads, size, tokens = 3, 4, 2, 16, 6
    lines = [whole(tokens, heads, size, seed=seed, dtype=dtype) for seed in (1, 2)]
    caches = [whole(blocks, places, heads, size, seed=seed, dtype=dtype) for seed in (3, 4)]
    slots = torch.tensor([7, 0, 11, 4, 2, 9], dtype=torch.int32)
    on_card = [cache.npu() for cache in caches]
    torch_npu._npu_reshape_and_cache(lines[0].npu(), lines[1].npu(), *on_card, slots.npu())
    for line, cache, found in zip(lines, caches, on_card):
        cache.view(-1, heads, size)[slots.long()] = line
        assert torch.equal(found.cpu(), cache)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_is_added_in_single_precision(dtype):
    x, weight = whole(5, 3, seed=1, dtype=dtype), whole(5, 4, seed=2, dtype=dtype)
    total = whole(3, 4, seed=3, dtype=torch.float32) + 0.5
    on_card = total.npu()
    torch_npu._npu_matmul_add_fp32(x.npu(), weight.npu(), on_card)
    assert torch.equal(on_card.cpu(), total + x.float().T @ weight.float())


def test_torchair_is_imported():
    import torchair

    assert callable(torchair.get_npu_backend)

"""torch_npu on the emulator: copies, products, gradients, errors, and the ranks of torchrun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_npu")

from forked import Ranks  # noqa: E402

HERE = Path(__file__).parent


def whole(*shape, seed=1, least=-4, greatest=5):
    """Returns small whole numbers. Their sums of products are exact in f32, so every summation order gives the same bits."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(least, greatest, shape, generator=generator).float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool])
def test_copies_keep_every_bit(dtype):
    value = whole(3, 4, 5).to(dtype)
    there = value.npu()
    assert there.device.type == "npu" and there.dtype == dtype
    assert torch.equal(there.cpu(), value)
    assert torch.equal(there.transpose(0, 2).cpu(), value.transpose(0, 2))
    assert torch.equal(there[1:, ::2].contiguous().cpu(), value[1:, ::2])
    assert torch.equal(there.clone().cpu(), value)


def test_products_are_exact_where_they_can_be():
    a, b = whole(5, 64), whole(64, 7, seed=2)
    assert torch.equal((a.npu() @ b.npu()).cpu(), a @ b)
    a, b = whole(3, 4, 16), whole(3, 16, 6, seed=2)
    assert torch.equal(torch.bmm(a.npu(), b.npu()).cpu(), torch.bmm(a, b))


def test_products_are_within_the_bound_of_their_sums():
    length = 96
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(8, length, generator=generator), torch.randn(length, 8, generator=generator)
    found = (a.npu() @ b.npu()).cpu().double()
    exact = a.double() @ b.double()
    # Each product and sum rounds once, by at most half a unit in the last place.
    bound = length * 2.0**-24 / (1 - length * 2.0**-24) * (a.double().abs() @ b.double().abs())
    assert ((found - exact).abs() <= bound).all()


def test_gradients_of_a_perceptron_are_those_of_the_cpu():
    def gradients(device):
        x = whole(6, 8).to(device)
        first = whole(8, 16, seed=2, least=-2, greatest=3).to(device).requires_grad_()
        second = whole(16, 4, seed=3, least=-2, greatest=3).to(device).requires_grad_()
        hidden = torch.relu(x @ first)
        loss = (hidden @ second * whole(6, 4, seed=4).to(device)).sum()
        loss.backward()
        return [value.detach().cpu() for value in (loss, first.grad, second.grad)]

    for found, expected in zip(gradients("npu"), gradients("cpu")):
        assert torch.equal(found, expected)


def test_an_error_has_the_emulators_own_sentence():
    with pytest.raises(RuntimeError, match=r"feature not supported|is not modelled by this emulator"):
        torch.linalg.svd(whole(4, 4).npu())
        torch.npu.synchronize()


def test_memory_is_the_cards():
    torch.npu.set_device(0)
    torch.npu.empty_cache()
    (free, total), reserved = torch.npu.mem_get_info(), torch.npu.memory_reserved()
    value = torch.empty(1 << 28, device="npu")
    asked = torch.npu.memory_reserved() - reserved
    assert asked >= 1 << 30
    # Like CANN's aclrtMalloc, an allocation is rounded up to 32 bytes, plus 32 bytes.
    assert torch.npu.mem_get_info() == (free - (asked + 32), total)
    del value
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info() == (free, total)
    with pytest.raises(RuntimeError, match="out of memory"):
        torch.empty(total, dtype=torch.uint8, device="npu")


@pytest.fixture(scope="module")
def ranks():
    with Ranks() as ranks:
        yield ranks


def agreed(size, said, codes):
    """Asserts that all ranks succeeded and reported agreement."""
    assert not any(codes), (codes, said)
    for rank in range(size):
        assert said.count(f"rank {rank} of {size} agrees") == 1, said


def test_processes_of_torchrun_agree():
    size = 2
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={size}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*torchrun, HERE / "collectives.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    agreed(size, done.stdout + done.stderr, [done.returncode])


def test_collectives_of_four_processes_agree(ranks):
    codes, said = ranks.run(4, [HERE / "collectives.py"])
    agreed(4, said, codes)


@pytest.mark.parametrize(("way", "size"), [("fsdp", 2), ("tensor", 2), ("fsdp", 4), ("tensor", 4), ("both", 4)])
def test_sharded_training_is_that_of_one_process(ranks, way, size):
    codes, said = ranks.run(size, [HERE / "sharded.py", way])
    agreed(size, said, codes)


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("words", [["collectives.py"], ["sharded.py", "fsdp"], ["sharded.py", "tensor"]], ids=" ".join)
def test_strict_mode_has_no_report(ranks, words, seed):
    codes, said = ranks.run(2, [HERE / words[0], *words[1:]], ASCEND_EMULATOR=f"strict,seed={seed},ignore=leak")
    agreed(2, said, codes)


def test_what_a_page_forbids_and_cann_takes_is_a_note(ranks):
    codes, said = ranks.run(1, [HERE / "lists.py"], ASCEND_EMULATOR="strict,ignore=leak")
    agreed(1, said, codes)
    assert "note: misuse: aclnnForeachMulScalarList: scalars: is DOUBLE, which the documentation forbids" in said, said

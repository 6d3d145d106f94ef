"""Models of transformers on the emulator, held against float64 and against PyTorch on the CPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_npu")
pytest.importorskip("transformers")

import models  # noqa: E402

# PyTorch on the CPU in f32 rounds the same operators and adds in another order, so its distance from float64 is how far rounding takes
# this model, and the emulator's may be a few times that. The worst case of all roundings, forty operators in a row with sums of 256,
# is a thousand times as far: within it a wrong formula would not be seen.
TIMES = 8
# The rounding of a result alone, which may happen to be none on the CPU.
UNIT = 2.0**-24


def _is_as_near_as_the_cpu(run, name):
    exact = run(name, "cpu", torch.float64)
    here, there = (((run(name, device) - exact).abs().max() / exact.abs().max()).item() for device in ("cpu", "npu"))
    assert there <= TIMES * max(here, UNIT), (there, here)


@pytest.mark.parametrize("name", models.MODELS)
def test_logits_are_as_near_to_float64_as_those_of_the_cpu(name):
    _is_as_near_as_the_cpu(models.forward, name)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama", "gpt2"])
def test_greedy_tokens_are_those_of_the_cpu(name):
    found = models.greedy(name, "npu")
    assert found.shape == (1, models.LENGTH + models.NEW_TOKENS)
    assert torch.equal(found, models.greedy(name, "cpu"))


@pytest.mark.parametrize("name", models.MODELS)
def test_losses_of_training_are_as_near_to_float64_as_those_of_the_cpu(name):
    _is_as_near_as_the_cpu(models.train, name)

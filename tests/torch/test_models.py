"""Models of transformers on the emulator, compared with float64 and with PyTorch on the CPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_npu")
pytest.importorskip("transformers")

import models  # noqa: E402

# PyTorch on the CPU in f32 rounds the same operators and adds in another order. Its error against float64 shows the effect of
# rounding on this model. The emulator's error may be a few times as large. The worst case of all roundings (forty operators with
# sums of 256) is a thousand times as large, and would hide a wrong formula.
TIMES = 8
# The rounding of one result, because the error of the CPU may be zero.
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

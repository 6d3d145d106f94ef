"""Models of transformers on the emulator, held against the CPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_npu")
pytest.importorskip("transformers")

import models  # noqa: E402

# A sum of 256 products in f32, through two layers: each of the about forty operators in a row errs by the rounding of its longest
# sum at most, relative to its largest value.
BOUND = 40 * 256 * 2.0**-24


@pytest.mark.parametrize("name", models.MODELS)
def test_logits_are_those_of_the_cpu(name):
    found, expected = models.forward(name, "npu"), models.forward(name, "cpu")
    assert (found - expected).abs().max() <= BOUND * expected.abs().max()


@pytest.mark.parametrize("name", ["qwen2", "llama", "gpt2"])
def test_greedy_tokens_are_those_of_the_cpu(name):
    assert torch.equal(models.greedy(name, "npu"), models.greedy(name, "cpu"))


@pytest.mark.parametrize("name", models.MODELS)
def test_losses_of_training_are_those_of_the_cpu(name):
    found, expected = models.train(name, "npu"), models.train(name, "cpu")
    for one, other in zip(found, expected):
        assert abs(one - other) <= BOUND * abs(other)

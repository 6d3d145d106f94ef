"""Layers and functions of PyTorch on the emulator, forward and backward, in three types, compared with float64."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_npu")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

# The CPU rounds in another order and keeps other intermediate results in f32. The emulator's error may therefore be a few times the
# error of the CPU, or a few roundings of a result.
TIMES = 8
UNITS = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


class Of(nn.Module):
    """A function as a module, with the submodules `parts`."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x):
        return self.function(x, *self.parts)


def index(x, *values):
    return torch.tensor(values, device=x.device)


IMAGE, VOLUME, LINE, TOKENS, HEADS = (2, 4, 13, 14), (2, 4, 6, 6, 6), (2, 4, 15), (3, 5, 8), (2, 4, 6, 16)
LAYERS = {
    "MaxPool2d": (lambda: nn.MaxPool2d(2), IMAGE),
    "MaxPool2d padded": (lambda: nn.MaxPool2d(3, 2, 1), IMAGE),
    "MaxPool2d up": (lambda: nn.MaxPool2d((2, 3), (1, 2), (1, 0), ceil_mode=True), IMAGE),
    "MaxPool2d alone": (lambda: nn.MaxPool2d(3, 2, 1), IMAGE[1:]),
    "MaxPool1d": (lambda: nn.MaxPool1d(3, 2, 1), LINE),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, 2, 1), IMAGE),
    "AvgPool2d of what is there": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), IMAGE),
    "AvgPool2d over five": (lambda: nn.AvgPool2d(3, 2, 1, divisor_override=5), IMAGE),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 2, 1), LINE),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((2, 3)), IMAGE),
    "AdaptiveAvgPool2d to one": (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(4), LINE),
    "Conv2d": (lambda: nn.Conv2d(4, 8, 3, 1, 1), IMAGE),
    "Conv2d strided": (lambda: nn.Conv2d(4, 8, 7, 2, 3, bias=False), IMAGE),
    "Conv2d of each channel": (lambda: nn.Conv2d(4, 8, 3, 1, 1, groups=4), IMAGE),
    "Conv2d dilated, in groups": (lambda: nn.Conv2d(4, 6, 3, 2, 2, 2, 2), IMAGE),
    "Conv2d of one dim": (lambda: nn.Conv2d(4, 8, (1, 3), (1, 2), (0, 1)), IMAGE),
    "Conv2d same": (lambda: nn.Conv2d(4, 8, 4, padding="same"), IMAGE),
    "Conv2d reflected": (lambda: nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"), IMAGE),
    "Conv2d alone": (lambda: nn.Conv2d(4, 8, 3), IMAGE[1:]),
    "Conv1d": (lambda: nn.Conv1d(4, 8, 3, 2, 1, 1, 2), LINE),
    "Conv3d": (lambda: nn.Conv3d(4, 4, 3, 1, 1), VOLUME),
    "Conv3d of patches": (lambda: nn.Conv3d(4, 8, (2, 3, 3), (2, 3, 3), bias=False), VOLUME),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), IMAGE),
    "ConvTranspose2d in groups": (lambda: nn.ConvTranspose2d(4, 8, 3, 1, 1, 0, 2), IMAGE),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 4, 2, 1), LINE),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 4, 2, 2), VOLUME),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), IMAGE),
    "BatchNorm2d plain": (lambda: nn.BatchNorm2d(4, affine=False, track_running_stats=False), IMAGE),
    "BatchNorm2d in use": (lambda: nn.BatchNorm2d(4).eval(), IMAGE),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), LINE),
    "BatchNorm1d of rows": (lambda: nn.BatchNorm1d(5), (8, 5)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(4), VOLUME),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "GroupNorm plain, of rows": (lambda: nn.GroupNorm(3, 6, affine=False), (3, 6)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "LayerNorm": (lambda: nn.LayerNorm(8), TOKENS),
    "LayerNorm of two dims": (lambda: nn.LayerNorm((5, 8), bias=False), TOKENS),
    "RMSNorm": (lambda: nn.RMSNorm(8), TOKENS),
    "GELU by tanh": (lambda: nn.GELU("tanh"), TOKENS),
    "PReLU": (nn.PReLU, TOKENS),
    "PReLU of each channel": (lambda: nn.PReLU(5), TOKENS),
    "GLU": (nn.GLU, TOKENS),
    "Softmax": (lambda: nn.Softmax(-1), TOKENS),
    "Softmax of an inner dim": (lambda: nn.Softmax(1), TOKENS),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), TOKENS),
    "Linear": (lambda: nn.Linear(8, 7), TOKENS),
    "Linear of a vector": (lambda: nn.Linear(8, 7, bias=False), (8,)),
    "MultiheadAttention": (
        lambda: Of(lambda x, layer: layer(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True)),
        TOKENS,
    ),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True), TOKENS),
    "TransformerDecoderLayer": (
        lambda: Of(lambda x, layer: layer(x, x * 0.5), nn.TransformerDecoderLayer(8, 2, 16, dropout=0, batch_first=True)),
        TOKENS,
    ),
    "attention": (lambda: Of(lambda x: F.scaled_dot_product_attention(x, x * 0.5, x + 1)), HEADS),
    "causal attention": (lambda: Of(lambda x: F.scaled_dot_product_attention(x, x * 0.5, x + 1, is_causal=True)), HEADS),
    "masked attention": (
        lambda: Of(
            lambda x: F.scaled_dot_product_attention(
                x, x * 0.5, x + 1, attn_mask=torch.ones(6, 6, device=x.device).tril().bool()
            )
        ),
        HEADS,
    ),
    "nearest": (lambda: Of(lambda x: F.interpolate(x, size=(5, 9))), IMAGE),
    "reflected edges": (lambda: Of(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect")), IMAGE),
    "repeated edges": (lambda: Of(lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate")), IMAGE),
    "Unfold": (lambda: nn.Unfold(3, padding=1, stride=2), IMAGE),
    "Fold": (lambda: nn.Fold((6, 6), 2, stride=2), (2, 12, 9)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), IMAGE),
    "inner index": (lambda: Of(lambda x: x[:, index(x, 0, 2, 2)]), TOKENS),
    "index of truth values": (lambda: Of(lambda x: x.masked_fill(x > 0, 2.0)[x < 9]), TOKENS),
    "sum at indices": (lambda: Of(lambda x: torch.zeros_like(x[:3]).index_add(0, index(x, 0, 2, 2), x)), TOKENS),
    "embedding": (lambda: Of(lambda x: F.embedding(index(x, 0, 2, 2), x, padding_idx=1)), (4, 6)),
    "sort": (lambda: Of(lambda x: x.sort(1)[0]), (4, 6)),
    "cross entropy": (lambda: Of(lambda x: F.cross_entropy(x, index(x, 0, 1, 2, -100))), (4, 6)),
    "cross entropy, smooth": (lambda: Of(lambda x: F.cross_entropy(x, index(x, 0, 1, 2, 3), label_smoothing=0.1)), (4, 6)),
    "binary cross entropy": (
        lambda: Of(lambda x: F.binary_cross_entropy_with_logits(x, x.detach().flip(0).sigmoid())),
        (4, 6),
    ),
    "huber": (lambda: Of(lambda x: F.huber_loss(x, x.detach().flip(0))), (4, 6)),
    "kl": (
        lambda: Of(lambda x: F.kl_div(x.log_softmax(1), x.detach().flip(0).softmax(1), reduction="batchmean")),
        (4, 6),
    ),
}
PLAIN = "ReLU ReLU6 SiLU Mish ELU CELU SELU LeakyReLU Hardtanh Hardswish Hardsigmoid Softplus Softsign Sigmoid Tanh LogSigmoid"
LAYERS.update((name, (getattr(nn, name), TOKENS)) for name in PLAIN.split())


def _numbers(name, dtype, device, computed):
    """Returns result, gradients and buffers in float64. Values are drawn in `dtype` and computed in `computed`."""
    if device == "npu":
        # See models.py.
        torch.npu.conv.allow_hf32 = False
        torch.npu.config.allow_internal_format = False
    make, shape = LAYERS[name]
    torch.manual_seed(3)
    layer = make().to(dtype).to(computed).to(device)
    x = torch.randn(shape).to(dtype).to(computed).to(device).requires_grad_()
    out = layer(x)
    out.backward(torch.randn(out.shape).to(dtype).to(computed).to(device))
    found = [out.detach(), x.grad, *(value.grad for value in layer.parameters()), *layer.buffers()]
    return [value.cpu().double() for value in found]


@pytest.mark.parametrize("dtype", UNITS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_as_near_to_float64_as_those_of_the_cpu(name, dtype):
    exact = _numbers(name, dtype, "cpu", torch.float64)
    here, there = (_numbers(name, dtype, device, dtype) for device in ("cpu", "npu"))
    assert len(there) == len(exact)
    for i, (wanted, near, found) in enumerate(zip(exact, here, there)):
        assert found.shape == wanted.shape, i
        most = max(wanted.abs().max().item(), 2.0**-24)
        far = (found - wanted).abs().max().item() / most
        assert far <= TIMES * max((near - wanted).abs().max().item() / most, UNITS[dtype]), (i, far)

"""Tiny models of transformers, and tasks that run them.

Input: the name of a model, a device. Output: logits of a forward pass, greedy tokens, training losses. The weights are drawn on the
CPU from a seed, so a model is the same on every device.
"""

import torch

SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=256, max_position_embeddings=64)
BATCH, LENGTH, NEW_TOKENS, STEPS = 2, 12, 5, 3
IMAGE, LABELS = 32, 10


def _qwen2():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM, Qwen2Config(**SIZES, intermediate_size=128, num_key_value_heads=2)


def _llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM, LlamaConfig(**SIZES, intermediate_size=128, num_key_value_heads=2)


def _gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel, GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=256, n_positions=64, bos_token_id=0, eos_token_id=0)


def _bert():
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM, BertConfig(**SIZES, intermediate_size=128)


def _qwen3():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = dict(intermediate_size=128, num_key_value_heads=2, head_dim=16)
    return Qwen3ForCausalLM, Qwen3Config(**SIZES, **sizes)


def _vit():
    from transformers import ViTConfig, ViTForImageClassification

    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    return ViTForImageClassification, ViTConfig(**sizes, image_size=IMAGE, patch_size=8, num_labels=LABELS)


def _resnet():
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes = dict(embedding_size=16, hidden_sizes=[16, 32], depths=[2, 1], layer_type="bottleneck")
    return ResNetForImageClassification, ResNetConfig(**sizes, num_labels=LABELS)


# Models of tokens, and models of images.
LANGUAGE = {"qwen2": _qwen2, "qwen3": _qwen3, "llama": _llama, "gpt2": _gpt2, "bert": _bert}
VISION = {"vit": _vit, "resnet": _resnet}
MODELS = {**LANGUAGE, **VISION}


def build(name, device, dtype=torch.float32):
    """Returns a model on a device, and its inputs by name: tokens or images."""
    if device == "npu":
        # By default, convolutions round operands to 19 bits, and tensors in internal formats do not use aclnn
        # operators.
        torch.npu.conv.allow_hf32 = False
        torch.npu.config.allow_internal_format = False
    torch.manual_seed(7)
    kind, config = MODELS[name]()
    if device == "cpu" and getattr(config, "hidden_act", None) == "gelu":
        # The variant of aclnnGelu, which torch_npu calls.
        config.hidden_act = "gelu_pytorch_tanh"
    model = kind._from_config(config, **({} if name == "resnet" else {"attn_implementation": "eager"})).eval()
    if name in VISION:
        inputs = {"pixel_values": torch.rand(BATCH, 3, IMAGE, IMAGE).to(dtype)}
    else:
        inputs = {"input_ids": torch.randint(1, SIZES["vocab_size"], (BATCH, LENGTH))}
    return model.to(dtype).to(device), {key: value.to(device) for key, value in inputs.items()}


def forward(name, device, dtype=torch.float32):
    """Returns the logits of a forward pass, on the CPU."""
    model, inputs = build(name, device, dtype)
    with torch.no_grad():
        return model(**inputs).logits.cpu()


def greedy(name, device):
    """Returns the prompt and greedy tokens, on the CPU."""
    model, inputs = build(name, device)
    tokens = inputs["input_ids"][:1]
    found = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0, eos_token_id=None
    )
    return found.cpu()


def train(name, device, dtype=torch.float32):
    """Returns the losses of AdamW steps, without dropout. Batch norms use the statistics of the step."""
    model, inputs = build(name, device, dtype)
    if name in VISION:
        model.train()
    labels = torch.arange(BATCH).to(device) if name in VISION else inputs["input_ids"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(**inputs, labels=labels).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


TASKS = {"forward": forward, "greedy": greedy, "train": train}

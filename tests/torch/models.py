"""Tiny models of transformers, by its own code, and what is done with them.

Input: the name of a model, a device. Output: numbers of a forward pass, greedy tokens, losses of training. The weights are drawn on
the CPU from a seed, so a model is the same on every device.
"""

import torch

SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=256)
BATCH, LENGTH, NEW_TOKENS, STEPS = 2, 12, 5, 3


def _qwen2():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM, Qwen2Config(**SIZES, intermediate_size=128, num_key_value_heads=2, max_position_embeddings=64)


def _llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM, LlamaConfig(**SIZES, intermediate_size=128, num_key_value_heads=2, max_position_embeddings=64)


def _gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel, GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=256, n_positions=64, bos_token_id=0, eos_token_id=0)


def _bert():
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM, BertConfig(**SIZES, intermediate_size=128, max_position_embeddings=64)


MODELS = {"qwen2": _qwen2, "llama": _llama, "gpt2": _gpt2, "bert": _bert}


def build(name, device, dtype=torch.float32):
    """A model of this name on a device, and tokens for it."""
    torch.manual_seed(7)
    kind, config = MODELS[name]()
    if device == "cpu" and getattr(config, "hidden_act", None) == "gelu":
        # What aclnnGelu computes, which torch_npu calls.
        config.hidden_act = "gelu_pytorch_tanh"
    model = kind._from_config(config, attn_implementation="eager").eval()
    tokens = torch.randint(1, SIZES["vocab_size"], (BATCH, LENGTH))
    return model.to(dtype).to(device), tokens.to(device)


def forward(name, device, dtype=torch.float32):
    """The logits of a forward pass, on the CPU."""
    model, tokens = build(name, device, dtype)
    with torch.no_grad():
        return model(input_ids=tokens).logits.cpu()


def greedy(name, device):
    """The tokens of a greedy generation, the prompt before them, on the CPU."""
    model, tokens = build(name, device)
    tokens = tokens[:1]
    found = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0, eos_token_id=None
    )
    return found.cpu()


def train(name, device, dtype=torch.float32):
    """The losses of steps of AdamW, without dropout."""
    model, tokens = build(name, device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


TASKS = {"forward": forward, "greedy": greedy, "train": train}

"""Seconds of a step of training with PyTorch, as a peer of `ascend-tp bench train`.

    pip install torch
    python train_torch.py '{"config": {"vocab_size": ...}, "batch": 8, "seq": 256, "threads": 2, "dtypes": ["f32"]}'

A Qwen2 of the shape given from PyTorch's own modules, random weights in f32, one batch of random tokens: loss, gradients, clipping
by the global norm, AdamW in one kernel. `bf16` is torch.autocast. The last line it prints is read by `ascend-tp bench train`,
which starts it with its own shape.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

asked = json.loads(sys.argv[1])
config = asked["config"]
hidden, heads, kv_heads = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
dim = hidden // heads
torch.set_num_threads(asked["threads"])
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(hidden, heads * dim)
        self.k = nn.Linear(hidden, kv_heads * dim)
        self.v = nn.Linear(hidden, kv_heads * dim)
        self.o = nn.Linear(heads * dim, hidden, bias=False)

    def forward(self, x, cos, sin):
        def split(y, count):
            return y.view(*x.shape[:2], count, dim).transpose(1, 2)

        def rotate(y):
            first, second = y.chunk(2, dim=-1)
            return y * cos + torch.cat((-second, first), dim=-1) * sin

        q, k, v = rotate(split(self.q(x), heads)), rotate(split(self.k(x), kv_heads)), split(self.v(x), kv_heads)
        y = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(*x.shape[:2], heads * dim))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        wide = config["intermediate_size"]
        self.attention = Attention()
        self.gate, self.up = nn.Linear(hidden, wide, bias=False), nn.Linear(hidden, wide, bias=False)
        self.down = nn.Linear(wide, hidden, bias=False)
        self.before, self.between = (nn.RMSNorm(hidden, eps=config["rms_norm_eps"]) for _ in range(2))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.before(x), cos, sin)
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(config["vocab_size"], hidden)
        self.layers = nn.ModuleList(Layer() for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(hidden, eps=config["rms_norm_eps"])
        self.head = nn.Linear(hidden, config["vocab_size"], bias=False)
        angles = torch.outer(torch.arange(asked["seq"]), config["rope_theta"] ** (-torch.arange(0, dim, 2) / dim))
        self.cos, self.sin = (f(torch.cat((angles, angles), dim=-1)) for f in (torch.cos, torch.sin))

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def measure(dtype):
    model = Model()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(std=0.02)
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    tokens = torch.randint(0, config["vocab_size"], (asked["batch"], asked["seq"] + 1))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    seconds = []
    for _ in range(asked["steps"] + 2):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    # The first steps find memory that is not there yet.
    return seconds[2:]


seconds = {f"train {dtype}": measure(dtype) for dtype in asked["dtypes"]}
print(json.dumps({"version": f"torch {torch.__version__}", "seconds": seconds}))

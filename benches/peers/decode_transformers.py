"""Decode and prefill rates of transformers, as a peer of `ascend-tp bench decode` and `prefill`.

    pip install torch transformers
    python decode_transformers.py

Qwen2.5-0.5B's shape with random weights in bf16, one sequence, greedy; threads: one a core.
"""

import os
import statistics
import time

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.set_num_threads(os.cpu_count())
config = Qwen2Config(
    vocab_size=151936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    tie_word_embeddings=True,
    max_position_embeddings=32768,
)
torch.manual_seed(0)
with torch.device("meta"):
    model = Qwen2ForCausalLM(config)
model = model.to(torch.bfloat16).to_empty(device="cpu")
for parameter in model.parameters():
    parameter.data.uniform_(-0.02, 0.02)
model.tie_weights()
model.model.rotary_emb.__init__(config)
model.eval()

with torch.inference_mode():
    prompt = torch.randint(0, 151936, (1, 512))
    times = []
    for _ in range(4):
        start = time.perf_counter()
        cache = model(prompt, use_cache=True, logits_to_keep=1)
        times.append(time.perf_counter() - start)
    print(f"prefill of 512: {512 / min(times):7.1f} tokens/s best, {512 / statistics.median(times):7.1f} median")
    past, token, times = cache.past_key_values, prompt[:, :1], []
    for _ in range(34):
        start = time.perf_counter()
        out = model(token, past_key_values=past, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
        times.append(time.perf_counter() - start)
    times = times[2:]
    print(f"decode: {1 / min(times):6.2f} tokens/s best, {1 / statistics.median(times):6.2f} median")

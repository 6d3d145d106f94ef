"""Seconds of a prompt and of a token with transformers, as a peer of `ascend-tp bench prefill` and `decode`.

    pip install torch transformers
    python generate_transformers.py '{"config": {"vocab_size": ...}, "prompt": 512, "tokens": 32, "threads": 2}'

Qwen2 of the shape given, random weights in bf16, one sequence, greedy. The last line it prints is read by
`ascend-tp bench peers`, which starts it with its own shape.
"""

import json
import sys
import time

import torch
import transformers
from transformers import Qwen2Config, Qwen2ForCausalLM

asked = json.loads(sys.argv[1])
torch.set_num_threads(asked["threads"])
config = Qwen2Config(**asked["config"])
torch.manual_seed(0)
with torch.device("meta"):
    model = Qwen2ForCausalLM(config)
model = model.to(torch.bfloat16).to_empty(device="cpu")
for parameter in model.parameters():
    parameter.data.uniform_(-0.02, 0.02)
model.tie_weights()
# Its frequencies were made without memory, and are f32.
model.model.rotary_emb.__init__(config)
model.eval()


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


with torch.inference_mode():
    prompt = torch.randint(0, config.vocab_size, (1, asked["prompt"]))
    prefill = [timed(lambda: model(prompt, use_cache=True, logits_to_keep=1)) for _ in range(asked.get("repeats", 5))]
    past = prefill[-1][1].past_key_values
    token, decode = prompt[:, :1], []
    for _ in range(asked["tokens"] + 2):
        taken, token = timed(lambda: model(token, past_key_values=past, use_cache=True).logits[:, -1:].argmax(-1))
        decode.append(taken)

# The first prompt and the first tokens find cold caches and memory that is not there yet.
seconds = {"prefill": [taken for taken, _ in prefill[1:]], "decode": decode[2:]}
version = f"transformers {transformers.__version__} (torch {torch.__version__})"
print(json.dumps({"version": version, "seconds": seconds}))

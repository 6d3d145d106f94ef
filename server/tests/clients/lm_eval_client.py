"""Checks log-likelihoods of lm-eval's local-completions: lm_eval_client.py URL MODEL_DIR

With torch and transformers, the log-likelihoods are compared with those of transformers in float32. The server needs
--dtype f32.
"""

import json
import sys
import urllib.request

from skip import module

module("lm_eval")
module("transformers")
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

url, folder = sys.argv[1:]
with urllib.request.urlopen(f"{url}/v1/models") as answer:
    name = json.load(answer)["data"][0]["id"]
client = LocalCompletionsAPI(
    model=name, base_url=f"{url}/v1/completions", tokenizer=folder, tokenizer_backend="huggingface",
    num_concurrent=1, batch_size=4, max_length=512,
)
pairs = [
    ("In the beginning", " God created the heaven and the earth."),
    ("And the king said", " unto them, Go ye"),
    ("The words of the", " LORD"),
    ("Thou shalt not", " kill the fatted calf of Bethlehem"),
    ("Blessed are the", " poor in spirit"),
]
requests = [
    Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=index) for index, pair in enumerate(pairs)
]
found = client.loglikelihood(requests)
for pair, (number, is_greedy) in zip(pairs, found):
    print(f"{number:10.4f} {is_greedy!s:5} {pair[0]}|{pair[1]}")

try:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as error:
    print(f"lm-eval: log-likelihoods arrived; not compared: {error}")
    sys.exit(0)
tokenizer = AutoTokenizer.from_pretrained(folder)
reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
for (context, continuation), (number, is_greedy) in zip(pairs, found):
    before = len(tokenizer(context).input_ids)
    ids = torch.tensor([tokenizer(context + continuation).input_ids])
    with torch.no_grad():
        logs = reference(ids).logits[0].log_softmax(-1)
    chosen = logs[before - 1 : -1].gather(1, ids[0, before:, None])
    greedy = bool((logs[before - 1 : -1].argmax(-1) == ids[0, before:]).all())
    expected = chosen.sum().item()
    assert abs(number - expected) <= 1e-4 * max(1, abs(expected)), (context, number, expected)
    assert is_greedy == greedy, (context, is_greedy, greedy)
print("lm-eval: log-likelihoods are those of transformers (start the server with --dtype f32)")

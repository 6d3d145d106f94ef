"""Compares greedy tokens of a small Qwen2 in vLLM on `--cards` emulated cards with transformers on the CPU.

`test_vllm.py` runs this script in a separate process, because vLLM keeps its engine until the process ends. The script writes a model
with random seeded weights to the folder, generates for prompts of unequal length, and checks the tokens. With `--cards 0` it only
prints the prompts and the tokens of the CPU.
"""

import argparse
import json
import os

PROMPTS = [[5, 9, 77, 130, 14, 3, 200, 41], [17], [8, 250, 6, 99, 31] * 30, [300, 2, 301]]


def write_model(folder, dtype):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(19)
    config = Qwen2Config(
        vocab_size=384,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = Qwen2ForCausalLM(config).to(dtype).eval()
    model.save_pretrained(folder)
    return model


def on_cpu(model, count):
    """Returns the tokens, which must be equal in the weights' type and in float64, so that rounding decides none."""
    import torch

    def tokens(model):
        options = {"do_sample": False, "max_new_tokens": count, "pad_token_id": 0}
        with torch.no_grad():
            return [model.generate(torch.tensor([ids]), **options)[0, len(ids) :].tolist() for ids in PROMPTS]

    found, exact = tokens(model), tokens(model.double())
    assert found == exact, "rounding decides a token: choose another seed"
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", required=True)
    arguments.add_argument("--cards", type=int, default=1)
    arguments.add_argument("--dtype", default="float16")
    arguments.add_argument("--tokens", type=int, default=16)
    arguments = arguments.parse_args()
    os.environ.setdefault("VLLM_ASCEND_ENABLE_NZ", "0")

    import torch

    model = write_model(arguments.folder, getattr(torch, arguments.dtype))
    expected = on_cpu(model, arguments.tokens)
    if arguments.cards == 0:
        print(json.dumps(list(zip(PROMPTS, expected))))
        return
    from vllm import LLM, SamplingParams

    engine = LLM(
        arguments.folder,
        skip_tokenizer_init=True,
        dtype=arguments.dtype,
        tensor_parallel_size=arguments.cards,
        enforce_eager=True,
        max_model_len=512,
        block_size=128,
        num_gpu_blocks_override=32,
        gpu_memory_utilization=0.1,
    )
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    sampling = SamplingParams(temperature=0.0, max_tokens=arguments.tokens, ignore_eos=True, detokenize=False)
    found = [list(output.outputs[0].token_ids) for output in engine.generate(prompts, sampling)]
    assert found == expected, found
    print("the CPU's tokens:", found)


if __name__ == "__main__":
    main()

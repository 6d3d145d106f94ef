"""A Qwen2 of a given shape with random bf16 weights as a GGUF file, for llama-bench and llama-server.

    pip install gguf numpy
    python shape_gguf.py '{"config": {"vocab_size": ...}}' model.gguf

Without `has_tokens` it has no vocabulary: llama-bench makes its tokens up. Otherwise it has a token for each byte, a
merge, and a text of its own for each further id. Started by `ascend-tp bench` with its own shape.
"""

import json
import sys

import gguf
import numpy as np

argument = json.loads(sys.argv[1])
config = argument["config"]
hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
kv = hidden // heads * kv_heads

writer = gguf.GGUFWriter(sys.argv[2], "qwen2")
writer.add_block_count(layers)
writer.add_context_length(config["max_position_embeddings"])
writer.add_embedding_length(hidden)
writer.add_feed_forward_length(inner)
writer.add_head_count(heads)
writer.add_head_count_kv(kv_heads)
writer.add_rope_freq_base(config["rope_theta"])
writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
writer.add_vocab_size(config["vocab_size"])
if argument.get("has_tokens"):
    # Byte-level tokenizers write bytes that are not visible as characters from U+0100 on.
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden_bytes = [byte for byte in range(256) if byte not in visible]
    tokens = [chr(byte if byte in visible else 256 + hidden_bytes.index(byte)) for byte in range(256)]
    tokens += ["ab", *(f"t{number}" for number in range(257, config["vocab_size"]))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(tokens) - 1)
else:
    writer.add_tokenizer_model("none")

random = np.random.default_rng(0)


def matrix(name: str, rows: int, columns: int) -> None:
    # The upper half of a float32 is a bfloat16.
    values = random.uniform(-0.02, 0.02, (rows, columns)).astype(np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    writer.add_tensor(name, halves.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)


def vector(name: str, length: int, value: float) -> None:
    writer.add_tensor(name, np.full(length, value, np.float32))


matrix("token_embd.weight", config["vocab_size"], hidden)
vector("output_norm.weight", hidden, 1.0)
if not config["tie_word_embeddings"]:
    matrix("output.weight", config["vocab_size"], hidden)
for layer in range(layers):
    block = f"blk.{layer}."
    vector(block + "attn_norm.weight", hidden, 1.0)
    vector(block + "ffn_norm.weight", hidden, 1.0)
    for part, width in [("q", hidden), ("k", kv), ("v", kv)]:
        matrix(f"{block}attn_{part}.weight", width, hidden)
        vector(f"{block}attn_{part}.bias", width, 0.0)
    matrix(block + "attn_output.weight", hidden, hidden)
    matrix(block + "ffn_gate.weight", inner, hidden)
    matrix(block + "ffn_up.weight", inner, hidden)
    matrix(block + "ffn_down.weight", hidden, inner)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

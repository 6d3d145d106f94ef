"""Runs vLLM's benchmark client: vllm_bench.py URL MODEL_DIR"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from skip import module

module("vllm")
url, folder = sys.argv[1:]
with tempfile.TemporaryDirectory() as results:
    command = ["vllm", "bench", "serve", "--backend", "openai", "--base-url", url, "--endpoint", "/v1/completions"]
    command += ["--tokenizer", folder, "--dataset-name", "random", "--random-input-len", "32"]
    command += ["--random-output-len", "16", "--num-prompts", "32", "--ignore-eos"]
    command += ["--save-result", "--result-dir", results]
    subprocess.run(command, check=True)
    (report,) = Path(results).glob("*.json")
    numbers = json.loads(report.read_text())
assert numbers["completed"] == 32, numbers
print("vllm bench serve: all requests completed")

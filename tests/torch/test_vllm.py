"""vLLM on the emulator: greedy tokens of a small model on one and two cards equal the CPU's, also through `vllm serve`.

Skipped without `vllm` and `vllm_ascend`. docs/TORCH.md lists supported versions and their installation.
"""

import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

SCRIPT = pathlib.Path(__file__).with_name("vllm_tokens.py")

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(package) for package in ("vllm", "vllm_ascend")),
    reason="the packages vllm and vllm_ascend are not installed (docs/TORCH.md)",
)


def environment():
    folder = next(
        folder for folder in os.environ["LD_LIBRARY_PATH"].split(":") if (pathlib.Path(folder) / "python/acl").is_dir()
    )
    paths = [str(pathlib.Path(folder) / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": ":".join(paths),
        "OMP_NUM_THREADS": "1",
        "VLLM_ASCEND_ENABLE_NZ": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def run(command, seconds):
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("cards", [1, 2])
def test_greedy_tokens_are_the_cpus(tmp_path, cards):
    assert "the CPU's tokens" in run([sys.executable, SCRIPT, "--folder", tmp_path, "--cards", str(cards)], 1800)


def answered(url, body=None):
    """Returns the answer of the server, or None before it runs."""
    request = urllib.request.Request(url, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.read()
    except urllib.error.URLError as error:
        if isinstance(error, urllib.error.HTTPError):
            raise
        return None


def test_a_server_says_the_cpus_tokens(tmp_path):
    expected = json.loads(run([sys.executable, SCRIPT, "--folder", tmp_path, "--cards", "0"], 600).splitlines()[-1])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = "--tokens-only --skip-tokenizer-init --dtype float16 --enforce-eager --max-model-len 512 --block-size 128"
    words += f" --num-gpu-blocks-override 32 --gpu-memory-utilization 0.1 --host 127.0.0.1 --port {port}"
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", tmp_path, *words.split()]
    with subprocess.Popen(command, env=environment()) as server:
        try:
            while answered(f"http://127.0.0.1:{port}/health") is None:
                assert server.poll() is None, "the server has ended"
                time.sleep(1)
            sampling = {"temperature": 0.0, "max_tokens": len(expected[0][1]), "ignore_eos": True}
            for prompt, tokens in expected:
                body = {"token_ids": prompt, "sampling_params": sampling}
                answer = answered(f"http://127.0.0.1:{port}/inference/v1/generate", body)
                assert json.loads(answer)["choices"][0]["token_ids"] == tokens
        finally:
            server.terminate()

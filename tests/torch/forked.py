"""Runs jobs whose ranks are forked from this process, which has PyTorch's compiler loaded.

Most of the time of `import torch_npu` is spent on modules of PyTorch. This process loads them once; each rank loads the emulator's
libraries itself. The program reads one job per line, `{"size": 2, "command": ["script.py", "word"], "environment":
{"ASCEND_EMULATOR": "strict"}}`, and runs the jobs one after another. The answer to each is a line `{"codes": [0, 0], "said": "…"}`
with the exit codes and the output of the ranks. `Ranks` is a client of this program.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time

# These modules import all others that torch_npu needs.
MODULES = ["torch", "torch.distributed.tensor", "torch.distributed.fsdp", "torch._dynamo", "torch._inductor.compile_fx"]
# Seconds until the remaining ranks of a job are killed: in general, and after a rank failed.
LONGEST, AFTER_A_FAILURE = 600, 60


class Ranks:
    """The process that forks the ranks. It runs from the first job to the end of the `with` block."""

    def __init__(self):
        self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.communicate()

    def run(self, size, command, **environment):
        """Runs a script with `size` ranks. Returns the exit codes and the output."""
        if self.process is None:
            # Each rank imports torch_npu itself. Ranks share the cores, and the emulator runs their kernels, so one thread per
            # rank suffices for the CPU part.
            own = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
            arguments = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": own}
            self.process = subprocess.Popen([sys.executable, __file__], **arguments)
        job = {"size": size, "command": [str(word) for word in command], "environment": environment}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the process that ranks are forked from has ended with {self.process.wait()}"
        answer = json.loads(answer)
        return answer["codes"], answer["said"]


def forked(job, said):
    """Forks the ranks of a job. Returns their process ids, or None in a rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    size, ranks = job["size"], []
    for rank in range(size):
        process = os.fork()
        if process == 0:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in names.items()})
            os.environ.update({"MASTER_ADDR": "127.0.0.1", **job["environment"]})
            # Standard input and output carry jobs and answers.
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            return None
        ranks.append(process)
    return ranks


def ended(ranks):
    """Returns the exit code of each rank."""
    latest, codes = time.monotonic() + LONGEST, {}
    while len(codes) < len(ranks):
        for rank in set(ranks) - set(codes):
            process, status = os.waitpid(rank, os.WNOHANG)
            if process != 0:
                codes[rank] = os.waitstatus_to_exitcode(status)
                # Other ranks may wait for this rank.
                latest = min(latest, time.monotonic() + AFTER_A_FAILURE) if codes[rank] else latest
            elif time.monotonic() > latest:
                os.kill(rank, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[rank] for rank in ranks]


def main():
    for module in MODULES:
        importlib.import_module(module)
    for line in sys.stdin:
        job = json.loads(line)
        with tempfile.TemporaryFile("w+") as said:
            ranks = forked(job, said)
            if ranks is None:
                sys.argv = job["command"]
                runpy.run_path(sys.argv[0], run_name="__main__")
                return
            codes = ended(ranks)
            said.seek(0)
            print(json.dumps({"codes": codes, "said": said.read()}), flush=True)


if __name__ == "__main__":
    main()

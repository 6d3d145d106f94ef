"""Runs a script as ranks that are forked from a process which has PyTorch's compiler loaded: `forked.py SIZE SCRIPT WORDS.. -- MODE..`.

The ranks of each mode of the emulator come after those of the mode before. What `import torch_npu` takes is nearly all the modules of
PyTorch that it imports in turn; here they are loaded once, while the emulator's libraries are each rank's own.
"""

import importlib
import os
import runpy
import socket
import sys

# Of these torch_npu asks for the rest.
MODULES = ["torch", "torch.distributed.tensor", "torch.distributed.fsdp", "torch._dynamo", "torch._inductor.compile_fx"]


def forked(size, mode):
    """The ranks of a mode; in a rank, None."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sys.stdout.flush()
    ranks = []
    for rank in range(size):
        process = os.fork()
        if process == 0:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in names.items()})
            os.environ.update(MASTER_ADDR="127.0.0.1", ASCEND_EMULATOR=mode)
            return None
        ranks.append(process)
    return ranks


def main():
    size, script, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    border = words.index("--")
    words, modes = words[:border], words[border + 1 :]
    for module in MODULES:
        importlib.import_module(module)
    for mode in modes:
        ranks = forked(size, mode)
        if ranks is None:
            sys.argv = [script, *words]
            runpy.run_path(script, run_name="__main__")
            return
        codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
        assert not any(codes), f"{mode}: the ranks ended with {codes}"


if __name__ == "__main__":
    main()

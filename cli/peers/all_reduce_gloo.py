"""Seconds of gloo's all_reduce, as a peer of `ascend-tp bench collectives --processes`.

    pip install torch numpy
    for RANK in 0 1; do RANK=$RANK WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 \\
        python all_reduce_gloo.py f32:67108864:7 f16:16384:100 & done; wait

Each argument is an element type, the bytes of the tensor, and how often it is summed. One thread a process. The last line
that rank 0 prints is read by `ascend-tp bench peers`, which starts the ranks.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

DTYPES = {"f32": torch.float32, "f16": torch.float16}

torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="env://")
rank, ranks = dist.get_rank(), dist.get_world_size()
seconds = {}
for argument in sys.argv[1:]:
    name, size, calls = argument.split(":")
    dtype = DTYPES[name]
    base = torch.arange(int(size) // dtype.itemsize) % 7
    times = []
    for _ in range(int(calls) + 2):
        data = (base + rank).to(dtype)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(data)
        times.append(time.perf_counter() - start)
        assert torch.equal(data, (base * ranks + ranks * (ranks - 1) // 2).to(dtype)), f"{argument}: wrong sum"
    seconds[f"all_reduce {name} {size}"] = times[2:]
if rank == 0:
    print(json.dumps({"version": f"gloo (torch {torch.__version__})", "seconds": seconds}))
dist.destroy_process_group()

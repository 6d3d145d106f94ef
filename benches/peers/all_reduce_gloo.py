"""Time of gloo's all_reduce, as a peer of `ascend-tp bench collectives --processes`.

    pip install torch
    python all_reduce_gloo.py [ranks]

Prints one line a size: bytes, median and average time in microseconds over all calls of rank 0. One thread a process.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def measure(rank: int, ranks: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for size, dtype, calls in [
        (8 << 10, torch.float16, 60),
        (16 << 10, torch.float16, 60),
        (1 << 20, torch.float32, 20),
        (64 << 20, torch.float32, 5),
    ]:
        count = size // dtype.itemsize
        base = torch.arange(count) % 7
        times = []
        for call in range(-2, calls):
            data = (base + rank).to(dtype)
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(data)
            if call >= 0:
                times.append((time.perf_counter() - start) * 1e6)
        assert torch.equal(data, (base * ranks + ranks * (ranks - 1) // 2).to(dtype)), "wrong sum"
        if rank == 0:
            print(f"{size:9d} B  median {statistics.median(times):10.1f} us  average {statistics.mean(times):10.1f} us")
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    mp.spawn(measure, (ranks,), ranks)

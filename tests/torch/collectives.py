"""A rank of a job of torchrun: collectives of torch.distributed over HCCL and DistributedDataParallel, on whole numbers, whose
sums are exact."""

import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")

    def expect(found, wanted, what):
        found = found.cpu()
        assert torch.equal(found, wanted), f"{what} on rank {rank}: found {found}, expected {wanted}"

    def of(other):
        return torch.arange(8, dtype=torch.float32) + 100 * other

    mine = of(rank).npu()
    total = sum(of(other) for other in range(size))

    value = mine.clone()
    dist.all_reduce(value)
    expect(value, total, "all_reduce")

    value = mine.clone()
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    expect(value, of(size - 1), "all_reduce max")

    gathered = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(gathered, mine)
    for other in range(size):
        expect(gathered[other], of(other), "all_gather")

    whole = torch.empty(8 * size, device="npu")
    dist.all_gather_into_tensor(whole, mine)
    expect(whole, torch.cat([of(other) for other in range(size)]), "all_gather_into_tensor")

    part = torch.empty(8 // size, device="npu")
    dist.reduce_scatter_tensor(part, mine)
    expect(part, total.chunk(size)[rank], "reduce_scatter_tensor")

    value = mine.clone()
    dist.broadcast(value, src=1)
    expect(value, of(1), "broadcast")

    received = torch.empty_like(mine)
    dist.all_to_all_single(received, mine)
    expect(received, torch.cat([of(other).chunk(size)[rank] for other in range(size)]), "all_to_all_single")

    if rank == 0:
        dist.send(mine, dst=1)
    elif rank == 1:
        dist.recv(received, src=0)
        expect(received, of(0), "recv")

    # The gradient of a sum of products is the sum of a rank's rows; that of all ranks is their mean, here a whole number.
    model = torch.nn.Linear(4, 4, bias=False).npu()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.npu.current_device()])
    rows = torch.full((2, 4), 2.0 * rank)
    model(rows.npu()).sum().backward()
    mean = sum(torch.full((4, 4), 4.0 * other) for other in range(size)) / size
    expect(model.module.weight.grad, mean, "the gradient of DistributedDataParallel")

    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} of {size} agrees", flush=True)


if __name__ == "__main__":
    main()

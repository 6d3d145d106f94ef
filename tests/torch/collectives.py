"""A rank of a torchrun job: collectives of torch.distributed over HCCL, and DistributedDataParallel. All values are whole
numbers with exact sums."""

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

    # Rank r sends r + 1 elements to each rank, so the received sizes differ.
    sizes = [other + 1 for other in range(size)]
    received = torch.empty(sum(sizes), device="npu")
    dist.all_to_all_single(received, torch.full([size * (rank + 1)], float(rank)).npu(), sizes, [rank + 1] * size)
    expect(received, torch.cat([torch.full([other + 1], float(other)) for other in range(size)]), "all_to_all_single of unequal parts")

    parts = [torch.empty(8 // size, device="npu") for _ in range(size)]
    dist.all_to_all(parts, list(mine.chunk(size)))
    for other in range(size):
        expect(parts[other], of(other).chunk(size)[rank], "all_to_all")

    part = torch.empty(8 // size, device="npu")
    dist.reduce_scatter(part, list(mine.chunk(size)))
    expect(part, total.chunk(size)[rank], "reduce_scatter")

    value = mine.clone()
    dist.reduce(value, dst=1)
    if rank == 1:
        expect(value, total, "reduce")

    dist.scatter(part, list(of(7).npu().chunk(size)) if rank == 0 else None, src=0)
    expect(part, of(7).chunk(size)[rank], "scatter")

    for dtype in [torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8]:
        value = torch.full([5], rank + 1).to(dtype).npu()
        dist.all_reduce(value)
        expect(value, torch.full([5], size * (size + 1) // 2).to(dtype), f"all_reduce of {dtype}")

    objects = [{"from": 0, "is": [1, "two"]} if rank == 0 else None]
    dist.broadcast_object_list(objects, src=0)
    assert objects == [{"from": 0, "is": [1, "two"]}], objects

    # All ranks send to the next rank at once. A send before a receive would deadlock.
    incoming = torch.empty_like(mine)
    ring = [dist.P2POp(dist.isend, mine, (rank + 1) % size), dist.P2POp(dist.irecv, incoming, (rank - 1) % size)]
    for request in dist.batch_isend_irecv(ring):
        request.wait()
    expect(incoming, of((rank - 1) % size), "batch_isend_irecv")

    pairs = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
    value = mine.clone()
    dist.all_reduce(value, group=pairs[rank // 2])
    expect(value, of(rank // 2 * 2) + of(rank // 2 * 2 + 1), "all_reduce of a pair")

    if rank == 0:
        dist.send(mine, dst=1)
    elif rank == 1:
        received = torch.empty_like(mine)
        dist.recv(received, src=0)
        expect(received, of(0), "recv")

    # The gradient is the sum of a rank's rows. The gradient of all ranks is the mean, here a whole number.
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

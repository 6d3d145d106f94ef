"""A rank of a torchrun job: a small Transformer sharded by FSDP2, by DTensor's tensor parallel, or by both, compared with training
on the CPU in one process.

`sharded.py WAY` runs one of `fsdp`, `tensor`, `both`. Every rank has the same weights and batch; with FSDP each rank has some
rows of the batch. After steps of SGD with momentum, losses and whole weights are compared with the CPU in float64.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH, HEADS, INNER, WORDS, LENGTH, BATCH, LAYERS, STEPS = 32, 4, 64, 64, 8, 8, 2, 3
# The CPU in f32 rounds the same sums in another order. The error of a rank may be a few times the error of the CPU.
TIMES, UNIT = 8, 2.0**-24


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x):
        y = self.norm(x)
        # The number of heads of this rank, which may be a shard.
        parts = [layer(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        query, key, value = parts
        scores = (query @ key.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5).softmax(-1)
        x = x + self.out((scores @ value).transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(self.after(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def fresh(dtype=torch.float32):
    torch.manual_seed(11)
    return Model().to(dtype), torch.randint(0, WORDS, (BATCH, LENGTH + 1))


def train(model, tokens):
    """Returns the losses of the steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu().double())
    return torch.stack(losses)


def whole(model):
    """Returns the whole weights by name, on the CPU in float64."""
    full = ((name, value.detach()) for name, value in model.named_parameters())
    return {name: (value.full_tensor() if isinstance(value, DTensor) else value).cpu().double() for name, value in full}


def tensor_parallel(model, mesh):
    columns, rows = ColwiseParallel, RowwiseParallel
    plan = {"query": columns(), "key": columns(), "value": columns(), "out": rows(), "up": columns(), "down": rows()}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)


def sharded(way, size):
    """Returns the sharded model, and the mesh over which its batch is sharded."""
    model = fresh()[0].npu()
    if way == "fsdp":
        mesh, cut = init_device_mesh("npu", (size,), mesh_dim_names=("dp",)), None
    elif way == "tensor":
        mesh, cut = None, init_device_mesh("npu", (size,), mesh_dim_names=("tp",))
    else:
        both = init_device_mesh("npu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
        mesh, cut = both["dp"], both["tp"]
    if cut is not None:
        tensor_parallel(model, cut)
    if mesh is not None:
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, mesh


def main(way):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")
    tokens = fresh()[1]
    runs = {}
    for name, dtype in [("exact", torch.float64), ("here", torch.float32)]:
        model = fresh(dtype)[0]
        runs[name] = train(model, tokens), whole(model)

    model, mesh = sharded(way, size)
    own = tokens.chunk(mesh.size())[mesh.get_local_rank()] if mesh is not None else tokens
    losses = train(model, own.npu())
    if mesh is not None:
        shared = losses.float().npu()
        dist.all_reduce(shared, group=mesh.get_group())
        losses = shared.cpu().double() / mesh.size()
    runs["there"] = losses, whole(model)

    def distance(name):
        losses, weights = runs[name]
        exact_losses, exact = runs["exact"]
        far = max(((weights[key] - exact[key]).abs().max() / exact[key].abs().max()).item() for key in exact)
        return max(((losses - exact_losses) / exact_losses).abs().max().item(), far)

    here, there = distance("here"), distance("there")
    assert there <= TIMES * max(here, UNIT), f"{way} on rank {rank}: {there} from float64, the CPU in f32 {here}"
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} of {size} agrees: {there:.1e} from float64, the CPU in f32 {here:.1e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

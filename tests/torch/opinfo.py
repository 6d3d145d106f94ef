"""PyTorch's own samples of its operators (OpInfo) on the card, compared with the CPU.

Each job is an operator, an element type and a pass. A job is right if each of its first samples agrees: integers exactly, floats
within the tolerance of their type plus four times the error that the CPU itself has against float64.

`python opinfo.py` runs all jobs and prints the totals, and the jobs that differ from opinfo.tsv; `--write` writes that file.
`--only NAME …`, `--types TYPE …` and `--backward` or `--forward` select jobs and print the reason of each that is not right.
"""

import argparse
import collections
import math
import multiprocessing
import os
import pathlib
import re
import sys
import time
import warnings

RECORD = pathlib.Path(__file__).with_name("opinfo.tsv")
TYPES = ["float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
FLOATS = TYPES[:3]
SAMPLES = 6
# Elements of the operands of a sample. Larger samples test speed.
MOST_ELEMENTS = 1 << 16
SECONDS_PER_JOB = 60
GROUPS = {"float32": "f32", "float16": "16-bit", "bfloat16": "16-bit"}
# Results that a definition leaves open.
EXCLUDED = {
    "empty": "memory that is not set",
    "empty_like": "memory that is not set",
    "empty_permuted": "memory that is not set",
    "empty_strided": "memory that is not set",
    "new_empty": "memory that is not set",
    "new_empty_strided": "memory that is not set",
    "argsort": "order of equal elements",
    "native_batch_norm": "CANN returns the variance for its inverse root",
    "_native_batch_norm_legit": "CANN returns the variance for its inverse root",
    "native_dropout_backward": "a card's mask has one bit per element",
    "nn.functional.binary_cross_entropy_with_logits backward": "torch_npu has no gradient of the target",
    "nn.functional.gelu": "CANN computes the form with tanh",
    "randint": "random numbers",
    "randint_like": "random numbers",
    "multinomial": "random numbers",
    "linalg.eig": "phase of the vectors",
    "linalg.eigh": "sign of the vectors",
    "linalg.svd": "sign of the vectors",
    "pca_lowrank": "sign of the vectors",
    "svd": "sign of the vectors",
    "svd_lowrank": "sign of the vectors",
}
# Of these, only the values are compared: the indices and gradients of equal elements are open.
WITH_TIES = {"sort", "msort", "topk", "kthvalue", "mode", "median", "nanmedian", "nn.functional.fractional_max_pool3d"}


def _operators():
    from torch.testing._internal.common_methods_invocations import op_db

    return {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}


def _jobs(names, types, passes):
    import torch

    jobs = []
    for name, op in _operators().items():
        if names and op.name not in names and name not in names:
            continue
        for kind in types:
            dtype = getattr(torch, kind)
            if "forward" in passes and dtype in op.supported_dtypes("cpu"):
                jobs.append((name, kind, "forward"))
            if "backward" in passes and kind in FLOATS and op.supports_autograd:
                if dtype in op.supported_backward_dtypes("cpu"):
                    jobs.append((name, kind, "backward"))
    return jobs


class _Wrong(Exception):
    """A result that differs."""


class _Excluded(Exception):
    """A job without a definite result."""


def _map(function, value):
    from torch.utils._pytree import tree_map

    return tree_map(function, value)


def _tensors(value):
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _placed(value, device, dtype=None):
    """Returns the operands on a device, as leaves of a new graph."""
    import torch

    def place(leaf):
        if isinstance(leaf, torch.Tensor):
            wide = dtype if dtype is not None and leaf.is_floating_point() else leaf.dtype
            # `detach` keeps strides, and the copy keeps those without overlap.
            return leaf.detach().to(device=device, dtype=wide, copy=True).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.dtype) and dtype is not None and leaf.is_floating_point:
            return dtype
        return torch.device(device) if isinstance(leaf, torch.device) else device if leaf == "cpu" else leaf

    return _map(place, value)


def _computed(op, sample, device, backward, dtype=None):
    """Returns the tensors of a result, or the gradients of the operands."""
    import torch

    operands = _placed((sample.input, sample.args, sample.kwargs), device, dtype)
    first, args, kwargs = operands
    torch.manual_seed(7)
    result = op.op(first, *args, **kwargs)
    if sample.output_process_fn_grad is not None and backward:
        result = sample.output_process_fn_grad(result)
    outputs = _tensors(result)
    if not backward:
        return [output.detach() for output in outputs] if outputs else [torch.as_tensor(_plain(result))]
    inputs = [leaf for leaf in _tensors(operands) if leaf.requires_grad]
    outputs = [output for output in outputs if output.requires_grad and output.is_floating_point()]
    if not inputs or not outputs:
        return []
    # Factors that are exact in every type.
    factors = [(torch.arange(output.numel()) % 5 - 2.0).reshape(output.shape) for output in outputs]
    factors = [factor.to(device=device, dtype=output.dtype) for factor, output in zip(factors, outputs)]
    grads = torch.autograd.grad(outputs, inputs, factors, allow_unused=True)
    return [torch.zeros(()) if grad is None else grad for grad in grads]


def _plain(value):
    return value if isinstance(value, (bool, int, float)) else 0


def _compare(found, expected, exact):
    """`exact` has the results of float64, if there are any."""
    import torch
    from torch.testing._comparison import default_tolerances

    if len(found) != len(expected):
        raise _Excluded("torch_npu returns another number of tensors")
    for at, (mine, cpu) in enumerate(zip(found, expected)):
        mine = mine.cpu()
        if mine.layout != torch.strided or cpu.layout != torch.strided:
            mine, cpu = mine.to_dense(), cpu.to_dense()
        if mine.dtype != cpu.dtype or mine.shape != cpu.shape:
            # torch_npu creates the results, so the emulator has no part in their types.
            raise _Excluded(f"torch_npu returns another type or shape: {mine.dtype} for {cpu.dtype}")
        true = exact[at] if exact is not None and exact[at].shape == cpu.shape else cpu
        if cpu.is_complex():
            mine, cpu, true = (torch.view_as_real(value.resolve_conj()) for value in (mine, cpu, true))
        if not cpu.is_floating_point():
            if not torch.equal(mine, cpu):
                raise _Wrong(f"result {at}: {int((mine != cpu).sum())} of {cpu.numel()} numbers differ")
            continue
        relative, absolute = default_tolerances(cpu.dtype)
        mine, cpu, true = mine.double(), cpu.double(), true.double()
        own = 4 * (cpu - true).abs().nan_to_num(0.0, 0.0, 0.0)
        largest = own.max() if own.numel() else 0.0
        bound = absolute + relative * true.abs().nan_to_num(0.0, 0.0, 0.0) + own + largest
        wrong = ~((mine == cpu) | (mine.isnan() & cpu.isnan()) | ((mine - true).abs() <= bound))
        if wrong.any():
            worst = (mine - true).abs()[wrong].max().item()
            raise _Wrong(f"result {at}: {int(wrong.sum())} of {cpu.numel()} numbers differ, by up to {worst:.3g}")


def _is_random(op, sample):
    """Returns whether the result depends on the seed, which some samples set themselves."""
    import torch

    results, set_seed = [], torch.manual_seed
    for seed in range(4):
        first, args, kwargs = _placed((sample.input, sample.args, sample.kwargs), "cpu")
        torch.manual_seed = lambda asked, seed=seed: set_seed(asked + seed)
        try:
            torch.manual_seed(0)
            results.append([tensor.detach() for tensor in _tensors(op.op(first, *args, **kwargs))])
        finally:
            torch.manual_seed = set_seed
    first, *others = results
    return any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for other in others for a, b in zip(first, other))


def _samples(op, dtype, backward):
    import torch

    torch.manual_seed(3)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=backward):
        tensors = _tensors((sample.input, sample.args, sample.kwargs))
        # torch_npu truncates a correction such as 1.3.
        is_whole = float(sample.kwargs.get("correction") or 0).is_integer()
        if is_whole and sum(tensor.numel() for tensor in tensors) <= MOST_ELEMENTS:
            yield sample


def _checked(op, kind, backward):
    """Compares the first samples, and returns their number."""
    import itertools

    import torch

    reason = EXCLUDED.get(op.name) or EXCLUDED.get(f"{op.name} backward" if backward else "")
    if reason:
        raise _Excluded(reason)
    if backward and op.name in WITH_TIES:
        raise _Excluded("order of equal elements")
    count, random = 0, 0
    for sample in itertools.islice(_samples(op, getattr(torch, kind), backward), SAMPLES):
        try:
            expected = _computed(op, sample, "cpu", backward)
            if _is_random(op, sample):
                random += 1
                continue
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
            # The CPU refuses this sample.
            continue
        # Functions of integers give the default type.
        torch.set_default_dtype(torch.float64)
        try:
            exact = _computed(op, sample, "cpu", backward, torch.float64)
        except Exception:  # noqa: BLE001 - without float64, the CPU's result counts as exact
            exact = None
        finally:
            torch.set_default_dtype(torch.float32)
        if exact is not None and len(exact) != len(expected):
            exact = None
        found = _computed(op, sample, "npu", backward)
        torch.npu.synchronize()
        compared = 1 if op.name in WITH_TIES else len(expected)
        _compare(found[:compared], expected[:compared], exact)
        count += 1
    if count == 0:
        raise _Excluded("random numbers" if random else "no sample that the CPU computes")
    return count


def _reason(text):
    """Returns the emulator's message in a traceback of torch_npu, or its first line."""
    lines = [line for line in text.splitlines() if re.search(r"(aclnn\w+|aclop\w+|aclrt\w+): ", line)]
    line = lines[-1] if lines else next(iter(text.splitlines()), "")
    return re.sub(r"\s+", " ", re.sub(r"0x[0-9a-f]+", "ADDRESS", line)).strip()[:240]


def _outcome(op, kind, backward):
    try:
        _checked(op, kind, backward)
    except _Excluded as error:
        return "excluded", str(error)
    except _Wrong as error:
        return "wrong", str(error)
    except Exception as error:  # noqa: BLE001 - the reason is a row of the table
        reason = _reason(str(error))
        if "not modelled" in reason or "not supported" in reason.lower() or isinstance(error, NotImplementedError):
            return "not modelled", reason
        return "refused", f"{type(error).__name__}: {reason}" if ": " not in reason else reason
    return "right", ""


def _work(connection):
    """Runs the jobs that arrive."""
    os.environ["TASK_QUEUE_ENABLE"] = "0"
    warnings.filterwarnings("ignore")
    # The emulator reports refused calls there, and the table has them.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    import torch
    import torch_npu  # noqa: F401

    torch.set_num_threads(1)
    torch.npu.matmul.allow_hf32 = torch.npu.conv.allow_hf32 = False
    # Otherwise convolutions are operators by name.
    torch.npu.config.allow_internal_format = False
    operators = _operators()
    while (job := connection.recv()) is not None:
        name, kind, part = job
        connection.send(_outcome(operators[name], kind, part == "backward"))


class _Worker:
    """A process that can die or hang without ending the run."""

    def __init__(self):
        self.process = None
        self.job = None

    def start(self, job):
        if self.process is None or not self.process.is_alive():
            self.connection, other = multiprocessing.Pipe()
            self.process = multiprocessing.get_context("spawn").Process(target=_work, args=(other,), daemon=True)
            self.process.start()
            other.close()
        self.job, self.since = job, time.monotonic()
        self.connection.send(job)

    def result(self):
        """Returns the outcome of the job if it has ended."""
        try:
            if self.connection.poll():
                return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            self.process = None
            return "crashed", f"the process ended with {code}"
        if time.monotonic() - self.since > SECONDS_PER_JOB:
            self.process.kill()
            self.process.join()
            self.process = None
            return "crashed", f"no answer within {SECONDS_PER_JOB} s"
        return None


def _run(jobs, processes):
    outcomes, waiting = {}, collections.deque(jobs)
    workers = [_Worker() for _ in range(processes)]
    while waiting or any(worker.job for worker in workers):
        for worker in workers:
            if worker.job and (outcome := worker.result()):
                outcomes[worker.job], worker.job = outcome, None
            if worker.job is None and waiting:
                worker.start(waiting.popleft())
        time.sleep(0.001)
    return outcomes


def _totals(outcomes):
    rows = collections.defaultdict(collections.Counter)
    for (_, kind, part), (outcome, _) in outcomes.items():
        rows[GROUPS.get(kind, "integers"), part][outcome] += 1
    lines = ["| types | pass | right | of | wrong | refused | not modelled | crashed | excluded |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for (group, part), counts in sorted(rows.items()):
        counted = sum(counts.values()) - counts["excluded"]
        cells = [counts[key] for key in ("wrong", "refused", "not modelled", "crashed", "excluded")]
        lines.append(f"| {group} | {part} | {counts['right']} | {counted} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _record(outcomes):
    """One line per operator, pass, outcome and reason, with the types."""
    rows = collections.defaultdict(list)
    for (name, kind, part), (outcome, reason) in outcomes.items():
        if outcome != "right":
            rows[name, part, outcome, reason].append(kind)
    lines = ["operator\tpass\toutcome\ttypes\treason"]
    for (name, part, outcome, reason), kinds in sorted(rows.items()):
        lines.append(f"{name}\t{part}\t{outcome}\t{','.join(sorted(kinds))}\t{reason}")
    return "\n".join(lines) + "\n"


def _recorded():
    known = {}
    for line in RECORD.read_text().splitlines()[1:]:
        name, part, outcome, kinds, _ = line.split("\t")
        known.update({(name, kind, part): outcome for kind in kinds.split(",")})
    return known


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--types", nargs="*", default=TYPES, choices=TYPES)
    parser.add_argument("--forward", action="store_true")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write opinfo.tsv")
    options = parser.parse_args()
    passes = [part for part in ("forward", "backward") if getattr(options, part)] or ["forward", "backward"]
    warnings.filterwarnings("ignore")
    jobs = _jobs(options.only, options.types, passes)
    started = time.monotonic()
    outcomes = _run(jobs, options.processes)
    print(_totals(outcomes))
    print(f"\n{len(jobs)} jobs in {math.ceil(time.monotonic() - started)} s", flush=True)
    if options.write:
        RECORD.write_text(_record(outcomes))
        return 0
    if options.only:
        sys.stdout.write(_record(outcomes))
        return 0
    known = _recorded() if RECORD.exists() else {}
    changed = 0
    for job, (outcome, reason) in sorted(outcomes.items()):
        before = known.get(job, "right")
        if outcome != before:
            changed += 1
            print("\t".join([*job, f"{before} before, {outcome} now", reason]))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())

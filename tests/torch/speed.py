"""Time of a training step on the emulator relative to PyTorch on the CPU: `python speed.py [model …]`.

Steps of both alternate, so that other load affects both. Each line has the ratios of the medians, in wall time and in processor time,
and the times themselves. `OMP_NUM_THREADS` sets the number of threads.
"""

import os
import statistics
import sys
import time

import torch
import torch_npu  # noqa: F401

import models

# Batch, width, tokens, vocabulary.
SHAPES = [(2, 64, 12, 256), (8, 64, 12, 256), (2, 256, 128, 8192)]
WARM, TIMES = 3, 15


def shaped(batch, width, tokens, words):
    models.BATCH, models.LENGTH = batch, tokens
    models.SIZES.update(hidden_size=width, vocab_size=words, max_position_embeddings=max(64, tokens))


def stepping(name, device):
    """Returns a function that runs and awaits one AdamW step."""
    model, inputs = models.build(name, device)
    labels = torch.arange(models.BATCH).to(device) if name in models.VISION else inputs["input_ids"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss = model(**inputs, labels=labels).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def seconds(step):
    """Returns the wall time and the processor time."""
    begun, used = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - begun, time.process_time() - used


def main(names):
    print(f"threads: {os.environ.get('OMP_NUM_THREADS', 'by default')}, processors: {len(os.sched_getaffinity(0))}")
    for name in names or ["qwen2", "bert"]:
        for shape in SHAPES:
            shaped(*shape)
            steps = [stepping(name, device) for device in ("npu", "cpu")]
            taken = [[seconds(step) for step in steps] for _ in range(WARM + TIMES)][WARM:]
            medians = [[statistics.median(times[at][kind] for times in taken) for at in (0, 1)] for kind in (0, 1)]
            (clock, clock_cpu), (used, used_cpu) = medians
            print(
                f"{name}, batch {shape[0]}, width {shape[1]}, {shape[2]} tokens, {shape[3]} words: {clock / clock_cpu:.2f} by the clock "
                f"({1e3 * clock:.1f} ms over {1e3 * clock_cpu:.1f}), {used / used_cpu:.2f} of processors "
                f"({1e3 * used:.1f} ms over {1e3 * used_cpu:.1f})",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])

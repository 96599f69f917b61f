"""Time of a training step with a KerBS head relative to a softmax head: `python benchmarks/kerbs.py`.

Loss and gradients of hidden vectors and weights for 2048 targets, 10,000 words and width 256. The reference is
(senses per word) × a softmax step. KerBS is timed at the start of training (all θ = 0), later (θ of all sizes), after
reallocation (a third of the words have four senses, the others one), and with label smoothing. Times are the minimum of
interleaved rounds, in processor time of one thread.
"""

from __future__ import annotations

import argparse
import time

import torch

from unspool.heads import KerbsHeadConfig, SoftmaxHeadConfig
from unspool.heads.kerbs import Kerbs

WIDTH = 256


def stepper(head, hidden, targets, smoothing):
    weights = torch.ones(len(targets))

    def step():
        hidden.grad = None
        head.zero_grad()
        head.loss(hidden, targets, weights, smoothing)[0].backward()

    return step


def fastest(steps, rounds):
    """The shortest time of each step, in seconds."""
    times = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.process_time()
            step()
            times[name].append(time.process_time() - start)
    return {name: min(found) for name, found in times.items()}


def evenly(senses, words):
    return KerbsHeadConfig(senses).build(WIDTH, words)


def reallocated(words):
    """Two senses per word on average, as the hook leaves them: four or one, in no order."""
    many = torch.randperm(words)[: words // 3]
    owners = torch.cat([torch.arange(words), many.repeat(3)])
    return Kerbs(WIDTH, owners[torch.randperm(len(owners))], words)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--targets", type=int, default=2048)
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--smoothing", type=float, nargs="+", default=[0.0, 0.1])
    said = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = torch.randn(said.targets, WIDTH).requires_grad_()
    targets = torch.randint(said.words, (said.targets,))
    softmax = SoftmaxHeadConfig().build(WIDTH, said.words)
    cases = {
        "1 sense, all θ = 0": (evenly(1.0, said.words), 0.0),
        "1 sense, θ spread": (evenly(1.0, said.words), 1.0),
        "2 senses, all θ = 0": (evenly(2.0, said.words), 0.0),
        "2 senses, θ spread": (evenly(2.0, said.words), 1.0),
        "4 or 1, θ spread": (reallocated(said.words), 1.0),
    }
    for smoothing in said.smoothing:
        for name, (kerbs, spread) in cases.items():
            torch.nn.init.normal_(kerbs.theta_S, std=spread)
            steps = {
                "softmax": stepper(softmax, hidden, targets, smoothing),
                "kerbs": stepper(kerbs, hidden, targets, smoothing),
            }
            found = fastest(steps, said.rounds)
            ratio, senses = found["kerbs"] / found["softmax"], len(kerbs.words_S) / said.words
            print(
                f"{name:20} smoothing {smoothing:g}: softmax {found['softmax']:.3f} s, "
                f"KerBS {found['kerbs']:.3f} s, ratio {ratio:.2f} ({ratio / senses:.2f} per sense)",
                flush=True,
            )


if __name__ == "__main__":
    main()

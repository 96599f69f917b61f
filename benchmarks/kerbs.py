"""How long a training step of KerBS's head takes, beside that of the plain softmax: `python benchmarks/kerbs.py`.

Loss and gradients of hidden vectors and weights, for 2048 targets, 8192 words and width 256. A step of KerBS
should take no longer than 1.3 × (senses per word) × a step of softmax. One thread; processor time; rounds are
interleaved and the fastest of each is taken, so that the load of other programs falls on both.
"""

from __future__ import annotations

import argparse
import time

import torch

from unspool.heads import KerbsHead, SoftmaxHead

TARGETS, WORDS, WIDTH = 2048, 8192, 256


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoothing", type=float, default=0.0)
    parser.add_argument("--senses", type=float, nargs="+", default=[1.0, 2.0])
    said = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = torch.randn(TARGETS, WIDTH).requires_grad_()
    targets = torch.randint(WORDS, (TARGETS,))
    softmax = SoftmaxHead().build(WIDTH, WORDS)
    for senses in said.senses:
        for spread in (0.0, 1.0):  # all θ = 0, as training begins; then some small, some large
            kerbs = KerbsHead(senses).build(WIDTH, WORDS)
            torch.nn.init.normal_(kerbs.theta_S, std=spread)
            steps = {"softmax": stepper(softmax, hidden, targets, said.smoothing)}
            steps["kerbs"] = stepper(kerbs, hidden, targets, said.smoothing)
            found = fastest(steps, said.rounds)
            ratio = found["kerbs"] / found["softmax"]
            print(
                f"{senses:g} senses per word, θ ~ {spread:g}: softmax {found['softmax']:.3f} s, "
                f"KerBS {found['kerbs']:.3f} s, ratio {ratio:.2f} ({ratio / senses:.2f} per sense)"
            )


if __name__ == "__main__":
    main()

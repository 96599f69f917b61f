"""A model with a narrow softmax of a language whose truth is known, and the best it could say.

    log p̂(· | two words) = log_softmax(W tanh(A [e₁ ; e₂])),   W of `width` columns
    h* = argmin_h −Σ p* log softmax(W h),   where Wᵀp̂ = Wᵀp*

Bengio et al. 2003 (papers.bib: bengio2003neural) for the model; Finlayson et al. 2024, §4, Theorem 2
(papers.bib: finlayson2024closing) for the optimum. The body is the same for all widths: what a narrower
model lacks is the softmax's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor, nn

from unspool.data.languages import ZipfMarkov
from unspool.lab.claim import silent


@dataclass(frozen=True)
class Lesson:
    """How much a model learns."""

    sentences: int
    updates: int
    batch: int = 1024
    seed: int = 1


class NarrowTrigram(nn.Module):
    """log p(· | two words), through `width` numbers."""

    def __init__(self, vocabulary: int, width: int, body: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, body)
        self.layers = nn.Sequential(nn.Linear(2 * body, 4 * body), nn.Tanh(), nn.Linear(4 * body, width))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, contexts_N2: Tensor) -> Tensor:
        """(N, 2) → (N, V)."""
        logits: Tensor = self.head(self.layers(self.embed(contexts_N2).flatten(1)))
        return logits.log_softmax(-1)


def places(language: ZipfMarkov, sentences: int, seed: int) -> tuple[Tensor, Tensor]:
    """Every place of some sentences: the two words before it, and what comes."""
    dice, contexts, nexts = Random(seed), [], []
    for _ in range(sentences):
        row = [*language.start(), *language.sample(dice), language.eos]
        contexts += [row[t - 2 : t] for t in range(2, len(row))]
        nexts += row[2:]
    return torch.tensor(contexts), torch.tensor(nexts)


def some_contexts(language: ZipfMarkov, count: int, seed: int) -> Tensor:
    """So many contexts, as often as the language has them, of sentences that nothing was learnt from."""
    context_N2, _ = places(language, count, seed + 1)
    order_N = torch.randperm(len(context_N2), generator=torch.Generator().manual_seed(seed))
    return context_N2[order_N[:count]]


def narrow(
    language: ZipfMarkov, width: int, lesson: Lesson, tick: Callable[[], None] = silent
) -> NarrowTrigram:
    """The model, trained; `tick` is called after every update."""
    torch.manual_seed(lesson.seed)
    model = NarrowTrigram(language.vocab_size, width)
    context_N2, next_N = places(language, lesson.sentences, lesson.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, lesson.updates)
    for _ in range(lesson.updates):
        rows_B = torch.randint(len(next_N), (lesson.batch,))
        loss = nn.functional.nll_loss(model(context_N2[rows_B]), next_N[rows_B])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        tick()
    return model.eval()


def at_optimum(matrix_VD: Tensor, true_CV: Tensor, pull: float = 1e-6, steps: int = 200) -> Tensor:
    """log p̂ of the hidden vectors with the least cross-entropy: Newton, damped by the logits.

    Where no finite vector is best, `pull` towards 0 keeps it finite; without it, Wᵀp̂ comes as near as the
    steps allow.
    """
    w_VD = matrix_VD.double() - matrix_VD.double().mean(dim=0)
    h_CD, goal_CD = w_VD.new_zeros(len(true_CV), w_VD.shape[1]), true_CV.double() @ w_VD
    for _ in range(steps):
        p_CV = (h_CD @ w_VD.T).softmax(-1)
        mean_CD = p_CV @ w_VD
        curvature_CDD = torch.einsum("cv,vd,ve->cde", p_CV, w_VD, w_VD)
        curvature_CDD -= mean_CD[:, :, None] * mean_CD[:, None, :]
        curvature_CDD += max(pull, 1e-9) * torch.eye(w_VD.shape[1], dtype=w_VD.dtype)
        step_CD = torch.linalg.solve(curvature_CDD, mean_CD - goal_CD + pull * h_CD)
        longest_C1 = (step_CD @ w_VD.T).abs().amax(-1, keepdim=True)
        h_CD -= step_CD / longest_C1.clamp(min=1.0)
    return (h_CD @ w_VD.T).log_softmax(-1)

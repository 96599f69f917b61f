"""A model of a few hundred weights, rows of a made-up language, and runs of them."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from unspool.data.batch import Batch
from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Abilities
from unspool.objectives import CrossEntropy
from unspool.training import run_folder
from unspool.training.run_state import Run
from unspool.training.settings import TrainSettings

VOCAB = 11


class TinyHead(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCAB, width) * 0.1)

    def forward(self, hidden):
        return torch.log_softmax(hidden @ self.weight.T, -1)

    def loss(self, hidden_MD, targets_M, weights_M, smoothing=0.0):
        logp_MV = self(hidden_MD)
        nll_M = -logp_MV.gather(1, targets_M[:, None])[:, 0]
        total_M = (1 - smoothing) * nll_M - smoothing * logp_MV.mean(-1)
        return (weights_M * total_M).sum(), (weights_M * nll_M.detach()).sum()


class TinyModel(nn.Module, Abilities):
    """Reads the last token only, through layers with dropout."""

    context = labels = None

    def __init__(self, width=8, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.head = TinyHead(width)

    @property
    def sense_head(self):
        return self.head if isinstance(self.head, Kerbs) else None

    def hidden_for(self, batch):
        x = self.embed(batch.inputs_NT)
        for layer in self.layers:
            x = x + self.dropout(torch.tanh(layer(x)))
        return self.norm(x)


class CountingFeed:
    """Rows of unequal lengths; the next token is the last one plus one, or sometimes two."""

    def __init__(self, seed=0, per_epoch=7, rows=3, longest=6):
        self.seed, self.per_epoch, self.rows, self.longest = seed, per_epoch, rows, longest

    def batch(self, number):
        dice = torch.Generator().manual_seed(1000 * self.seed + number % self.per_epoch)
        lengths = torch.randint(2, self.longest + 1, (self.rows,), generator=dice)
        T = int(lengths.max())
        step = 1 + (torch.rand(self.rows, T + 1, generator=dice) < 0.2).long()
        tokens = step.cumsum(1) % VOCAB
        weights = (torch.arange(T)[None] < lengths[:, None]).float()
        inputs, targets = tokens[:, :-1].clone(), tokens[:, 1:].clone()
        inputs[weights == 0] = 0
        targets[weights == 0] = 0
        return Batch(inputs, lengths, targets, weights)


def write_tiny(run, weights, folder):
    save_file(dict(weights), folder / "model.safetensors")


def tiny_run(dropout=0.1, seed=0, feed=None, valid=True, objective=None, model=None, **settings):
    torch.manual_seed(seed)
    options = {
        "updates": 12,
        "lr": 0.02,
        "log_every": 1,
        "validate_every": 4,
        "checkpoint_every": 3,
        **settings,
    }
    return Run(
        model or TinyModel(dropout=dropout),
        objective or CrossEntropy(0.1),
        feed or CountingFeed(),
        TrainSettings(**options),
        valid=[CountingFeed(seed=9).batch(i) for i in range(3)] if valid else (),
        seed=seed,
    )


@pytest.fixture
def tiny():
    """Makes a run of the tiny model."""
    return tiny_run


@pytest.fixture
def write(monkeypatch):
    """Writes the tiny model's weights."""
    monkeypatch.setattr(run_folder, "write_model", write_tiny)
    return write_tiny

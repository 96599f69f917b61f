"""One small model of every kind and option, and what all of them must agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.models import (
    RNNConfig,
    RNNSeq2SeqConfig,
    TransformerConfig,
    TransformerSeq2SeqConfig,
    TrigramConfig,
)

V, BOS, EOS = 7, 1, 2

LM = TransformerConfig(
    vocab_size=V, width=16, layers=2, heads=4, kv_heads=2, head_width=4, inner_width=24, context=32
)
GPT2 = replace(LM, norm="layer", positions="learned", activation="gelu_tanh", bias=True, kv_heads=4)
RNN = RNNConfig(vocab_size=V, width=12, layers=2)
TRIGRAM = TrigramConfig(vocab_size=V, width=10, inner_width=12, beta=2.0)
PAIRS = TransformerSeq2SeqConfig(
    vocab_size=V,
    width=16,
    heads=4,
    kv_heads=2,
    inner_width=24,
    encoder_layers=2,
    decoder_layers=2,
    bos=BOS,
    eos=EOS,
)
RNN_PAIRS = RNNSeq2SeqConfig(vocab_size=V, width=12, bos=BOS, eos=EOS)

LANGUAGE_MODELS: dict[str, Any] = {
    "transformer": LM,
    "transformer-gpt2": GPT2,
    "lstm": RNN,
    "gru": replace(RNN, cell="gru", layers=1, tied=False),
    "trigram": TRIGRAM,
}
TRANSLATORS: dict[str, Any] = {
    "transformer": PAIRS,
    "transformer-vaswani": replace(
        PAIRS,
        kv_heads=None,
        norm="layer",
        norm_place="post",
        positions="sinusoidal",
        activation="relu",
        bias=True,
        tied=False,
    ),
    "transformer-both": replace(
        PAIRS, norm_place="both", positions="learned", context=24, activation="gelu", qkv_bias=True
    ),
    "transformer-bag": replace(PAIRS, positions="none", head_width=6, decoder_layers=1),
    "gru-additive": RNN_PAIRS,
    "lstm-bilinear": replace(RNN_PAIRS, cell="lstm", context_kind="bilinear", decoder_layers=2),
    "gru-dot": replace(RNN_PAIRS, context_kind="dot", bidirectional=False, encoder_layers=2),
    "lstm-last": replace(RNN_PAIRS, cell="lstm", context_kind="last", decoder_layers=2),
    "gru-mean": replace(RNN_PAIRS, context_kind="mean", tied=False),
    "transformer-sources-apart": replace(PAIRS, source_vocab_size=V + 4),
    "gru-sources-apart": replace(RNN_PAIRS, source_vocab_size=V + 4),
}


@dataclass(frozen=True)
class Speaker:
    """A language model or a translator, asked in the same way."""

    model: Any
    translates: bool

    @torch.no_grad()
    def forced(self, prompt: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """log p after the prompt and each of the tokens, (1 + len(tokens), V), in one parallel pass."""
        if not self.translates:
            logp = self.model(torch.tensor([[*prompt, *tokens]]))[0]
            return logp[len(prompt) - 1 :]
        source = torch.tensor([[*prompt, EOS]])
        return self.model(source, torch.tensor([source.shape[1]]), torch.tensor([[BOS, *tokens]]))[0]

    def batch(self, prompts: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
        """Rows of any lengths to learn from: each target after its prompt, ended by EOS."""
        if self.translates:
            inputs = [[BOS, *target] for target in targets]
            outputs = [[*target, EOS] for target in targets]
            source, source_lengths = pad([[*prompt, EOS] for prompt in prompts])
        else:
            inputs = [[*prompt, *target] for prompt, target in zip(prompts, targets, strict=True)]
            outputs = [[*row[1:], EOS] for row in inputs]
            source = source_lengths = None
        inputs_NT, lengths_N = pad(inputs)
        weights_NT = (torch.arange(inputs_NT.shape[1]) < lengths_N[:, None]).float()
        return Batch(inputs_NT, lengths_N, pad(outputs)[0], weights_NT, source, source_lengths)


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    padded = [[*row, *[0] * (longest - len(row))] for row in rows]
    return torch.tensor(padded), torch.tensor([len(row) for row in rows])


def speaker(config: Any, translates: bool) -> Speaker:
    torch.manual_seed(0)
    model = config.build().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Far enough from 0 that every part of the model can be told from its absence.
            parameter.add_(0.3 * torch.randn_like(parameter))
    return Speaker(model, translates)


@pytest.fixture(params=[f"lm {name}" for name in LANGUAGE_MODELS] + [f"mt {name}" for name in TRANSLATORS])
def any_speaker(request: pytest.FixtureRequest) -> Speaker:
    kind, name = request.param.split(" ")
    return speaker((TRANSLATORS if kind == "mt" else LANGUAGE_MODELS)[name], kind == "mt")


@pytest.fixture(params=TRANSLATORS)
def translator(request: pytest.FixtureRequest) -> Speaker:
    return speaker(TRANSLATORS[request.param], True)

"""Exact support on languages whose next-token distribution is known, at equal shares of rejected true tokens.

The language is a Markov chain of order 2 (`ZipfMarkov`), with few or many possible words in a context: low and high
entropy. A trigram network with a narrow softmax learns it from sentences. Every sampler is matched on tokens drawn from
the language, like on human tokens, and compared with the true distributions of held-out contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from threadpoolctl import threadpool_limits

import unspool as us
from bat.strictness import kept_tokens
from unspool.basis import BasisTest
from unspool.data.known_languages import ZipfMarkov
from unspool.diagnose.matched_thresholds import (
    BasisCriticals,
    StrictestSettings,
    criteria,
    critical_settings,
)
from unspool.evaluate.exact_support import support
from unspool.lab.small_models import sample_contexts, train_narrow, trigram_contexts

BRANCHING = {"low entropy": 4, "high entropy": 64}
"""The most words that can follow a context."""
WORDS, WIDTH, SENTENCES, BATCH, TOKENS, CONTEXTS = 300, 16, 20_000, 512, 2000, 200


@torch.no_grad()
def language_support(
    kind: str,
    seed: int,
    shares: Sequence[float],
    samplers: Sequence[str],
    updates: int,
    tick: Callable[[], None],
    tokens: int = TOKENS,
    contexts: int = CONTEXTS,
) -> dict[str, Any]:
    """Return the exact precision and recall of every sampler at every share."""
    language = ZipfMarkov(word_count=WORDS, branching=BRANCHING[kind], seed=seed)
    model = train_narrow(language, WIDTH, SENTENCES, updates, BATCH, seed, tick)
    context_N2, token_N = (it[:tokens] for it in trigram_contexts(language, tokens, seed + 2))
    context_C2, true_CV = sample_contexts(language, contexts, seed)
    logp_NV, logp_CV = model(context_N2), model(context_C2)
    test = BasisTest(model.head.weight.detach(), WIDTH)
    settings, found = critical_settings(logp_NV, token_N), {}
    with threadpool_limits(1):
        basis = BasisCriticals(test, WIDTH, shares, len(token_N))
        basis.extend(logp_NV, token_N)
        matches = [it for share in shares for it in basis.matches(share)]
        for name, criterion in criteria(None).items():
            collector = StrictestSettings(criterion, shares, len(token_N))
            collector.extend(settings[name].tolist())
            matches += [collector.match(share) for share in shares]
        for it in matches:
            if it.sampler in samplers:
                kept_CV = kept_tokens(us.parse(it.decoder), logp_CV, test)
                found[f"{it.share:g} {it.sampler}"] = asdict(support(kept_CV, logp_CV.exp(), true_CV))
        everything_CV = torch.ones_like(logp_CV, dtype=torch.bool)
        found["0 sample"] = asdict(support(everything_CV, logp_CV.exp(), true_CV))
    entropy = -float(torch.special.xlogy(true_CV, true_CV).sum(-1).mean())
    cross_entropy = -float((true_CV * logp_CV).sum(-1).mean())
    return {"entropy": entropy, "cross_entropy": cross_entropy, "support": found}

"""The most probable next tokens after a prompt, and which of them each sampler keeps.

    kept(f₁, …, fₖ) = { x : fₖ(… f₁(log p(· | prompt)) …)(x) > −∞ }

Every threshold cuts the ranking at one rank. Basis-aware sampling does not: it may reject a token and keep a
less probable one.

After Finlayson et al. 2024, figure 4. papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unspool.arguments import as_int, shown
from unspool.decode.lockstep import check_model
from unspool.decode.run import Run
from unspool.decode.search import Sample
from unspool.evaluate.exact_support import next_tokens
from unspool.interfaces import Decoder, StepModel

DEFAULT_RULES = (
    "Sample(TopK(40))",
    "Sample(TopP(0.7))",
    "Sample(Eta(0.02))",
    "Sample(BasisAware(EtaTau(0.3)))",
)


@dataclass(frozen=True)
class RankedTokens:
    """The most probable tokens after a prompt, best first, and which of them each rule keeps."""

    prompt: str
    tokens: tuple[str, ...]
    p: tuple[float, ...]
    kept: dict[str, tuple[bool, ...]]

    def exceptions(self, rule: str) -> list[int]:
        """Return the ranks (from 0) of tokens that the rule keeps although it rejects a more probable one."""
        kept = self.kept[rule]
        first_rejected = kept.index(False) if False in kept else len(kept)
        return [rank for rank in range(first_rejected, len(kept)) if kept[rank]]


def rank_tokens(
    model: StepModel,
    prompt: str,
    rules: Mapping[str, Decoder],
    *,
    top: int = 60,
    on_error: Callable[[str, ValueError], None] | None = None,
) -> RankedTokens:
    """Rank the `top` most probable tokens after a prompt.

    A rule is a Sample with a name: its transforms are applied in order, as for sampling, and BasisAware tests
    each of these tokens exactly. If a rule does not work with the model, its name and error go to `on_error`;
    without `on_error` the error is raised.
    """
    check_model(model)
    if model.tokenizer is None:
        raise ValueError("the model needs a tokenizer to read the prompt and show tokens")
    if not model.tokenizer.encode(prompt):
        raise ValueError("the prompt is empty")
    top = as_int("top", top, at_least=1, advice="It is how many tokens are shown.")
    if not isinstance(rules, Mapping) or not all(isinstance(rule, Sample) for rule in rules.values()):
        raise TypeError(f"rules is {shown(rules)}, but must be a dict from names to Samples")
    job = Run(model, [prompt], max_new_tokens=1, seed=0).job
    step, _ = model.start(job.prompts)
    p_K, token_K = step.logp_NV[0].exp().topk(min(top, model.vocab_size))
    order = token_K.tolist()
    kept = {}
    for name, rule in rules.items():
        try:
            kept_1V, _ = next_tokens(rule, model, job)(step, job.hypotheses(), order)
            kept[name] = tuple(kept_1V[0, order].tolist())
        except ValueError as error:
            if on_error is None:
                raise
            on_error(name, error)
    return RankedTokens(prompt, tuple(model.tokenizer.decode([t]) for t in order), tuple(p_K.tolist()), kept)

"""Expected-reward objectives, REINFORCE with a self-critical baseline and minimum risk training; and rewards.

Rewards score a generated text against a reference, from 0 to 1 or by a user's function:

    bleu          sentence BLEU of up to 4-grams, smoothed if a count is 0, /100
    chrf          character n-gram F-score, /100
    exact_match   1 if both are the same, else 0
    module:name   any Python function of two texts, (text, reference) → number; higher is better

Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu), for single sentences after Chen & Cherry 2014, §3
(papers.bib: chen2014systematic), computed by sacrebleu; Popović 2015, eq. 1 (papers.bib: popovic2015chrf).

A function must be trusted by the user or belong to an installed plugin (`unspool.plugins`). It is imported
when a run starts, not when a recipe is parsed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from unspool.arguments import integer, number
from unspool.config import unknown
from unspool.data.batch import Batch
from unspool.decode.search import Greedy, Sample
from unspool.interfaces import Clock, Loss, PreparedLoss, Trainable
from unspool.lazy import sacrebleu_metrics
from unspool.objectives.cross_entropy import target_logp
from unspool.objectives.rollouts import RolloutObjective, empty_loss, make_prompts, rollout_batch, tensor_like
from unspool.plugins import import_object, is_plugin, one_line

Reward = Callable[[str, str], float]


def exact_match(text: str, reference: str) -> float:
    return float(text == reference)


def bleu(text: str, reference: str) -> float:
    return float(_metric("BLEU").sentence_score(text, [reference]).score) / 100


def chrf(text: str, reference: str) -> float:
    return float(_metric("CHRF").sentence_score(text, [reference]).score) / 100


REWARDS: dict[str, Reward] = {"bleu": bleu, "chrf": chrf, "exact_match": exact_match}


@cache
def _metric(name: str) -> Any:
    metrics = sacrebleu_metrics()
    # Without effective_order, a sentence of three words would always score 0.
    return metrics.BLEU(effective_order=True) if name == "BLEU" else metrics.CHRF()


def check_reward_name(name: str) -> None:
    """Raise ValueError unless it is a known reward or the name of a Python function."""
    if name not in REWARDS and not is_plugin(name):
        raise ValueError(
            f"{unknown(name, list(REWARDS), 'reward')}; or name a Python function: module:function"
        )


def load_reward(name: str) -> Reward:
    """Return the reward of that name. This imports a Python function: check that the user trusts it first."""
    check_reward_name(name)
    if name in REWARDS:
        return REWARDS[name]
    function = import_object(name, "reward")
    if not callable(function):
        raise ValueError(f"reward {name!r} is {function!r:.60}, but must be a function of two texts")
    return _wrap_plugin(name, function)


def _wrap_plugin(name: str, function: Any) -> Reward:
    """Wrap a user's function so that its errors are reported in one line."""

    def reward(text: str, reference: str) -> float:
        context = f"for {text!r:.60} with the reference {reference!r:.60}"
        try:
            value = function(text, reference)
            value = value.item() if hasattr(value, "item") else value  # of NumPy, or of torch
        except (Exception, SystemExit) as error:
            raise ValueError(f"the reward {name!r} failed with {one_line(error)} ({context})") from error
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"the reward {name!r} is {value!r:.60}, but must be a finite number ({context})")
        return float(value)

    return reward


@dataclass(frozen=True)
class RewardObjective(RolloutObjective):
    """Base class of objectives that score sampled rollouts with a reward."""

    reward: str = "chrf"
    """bleu, chrf, exact_match, or module:function of (text, reference), which needs --trust-code."""
    samples: int = integer(1, at_least=1)
    """Samples per prompt."""

    uses_reward = True
    needs_row_seeds = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reward_name(self.reward)

    def check(self, model: Trainable) -> None:
        super().check(model)
        if model.tokenizer is None:
            raise ValueError(
                "a reward compares texts, but this model does not have a tokenizer: build it with one"
            )
        load_reward(self.reward)


def compute_reward(model: Any, reward: Any, rollout: Sequence[int], reference: Sequence[int]) -> float:
    return reward(model.tokenizer.decode(rollout), model.tokenizer.decode(reference))


@dataclass(frozen=True)
class Reinforce(RewardObjective):
    """REINFORCE with a self-critical baseline: raise the probability of samples that beat the greedy output.

        L = −E_{ŷ∼p} [ r(ŷ) ],   ∇L ≈ −( r(ŷ) − r(y_greedy) ) ∇ log p(ŷ | x),   ŷ drawn from the model

    Williams 1992, §4 (papers.bib: williams1992simple); for sequences, Ranzato et al. 2016, §3.2
    (papers.bib: ranzato2016sequence); the greedy output's reward as the baseline, Rennie et al. 2017, eq. 7–8
    (papers.bib: rennie2017self). A baseline that does not depend on ŷ does not change the expected gradient.
    """

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        """The sum over the samples; stats has the rewards of samples ("reward") and greedy outputs."""
        prompts, reward = make_prompts(model, batch, self.prompt), load_reward(self.reward)
        if not prompts:
            return empty_loss("reward", "greedy_reward")
        samples_by_prompt = self.generate(model, prompts, Sample(), self.samples)
        greedy = self.generate(model, prompts, Greedy())
        pairs = [
            (prompt, out.tokens)
            for prompt, group in zip(prompts, samples_by_prompt, strict=True)
            for out in group
        ]
        baseline = {
            prompt.row: compute_reward(model, reward, out[0].tokens, prompt.reference)
            for prompt, out in zip(prompts, greedy, strict=True)
        }
        rewards = [compute_reward(model, reward, tokens, prompt.reference) for prompt, tokens in pairs]
        rollout_rows = rollout_batch(model, batch, *zip(*pairs, strict=True))
        stats = {"reward": sum(rewards), "greedy_reward": sum(baseline.values()) * self.samples}

        def compute(reader: Any) -> Loss:
            logp_NU = target_logp(reader, rollout_rows)
            advantage_N = tensor_like(rewards, logp_NU) - tensor_like(
                [baseline[prompt.row] for prompt, _ in pairs], logp_NU
            )
            return Loss(surrogate(logp_NU.sum(dim=1), advantage_N), float(len(pairs)), stats)

        return PreparedLoss(float(len(pairs)), compute)


def surrogate(logp_N: Tensor, advantage_N: Tensor) -> Tensor:
    """−Σ (r − b) log p; only its gradient is meaningful."""
    return -(advantage_N.detach() * logp_N).sum()


@dataclass(frozen=True)
class MinimumRisk(RewardObjective):
    """Minimum risk training: lower the expected cost over the reference and sampled outputs.

        L = Σ_{y ∈ S(x)} Q(y) Δ(y),   Q(y) = p(y | x)^α / Σ_{y′ ∈ S(x)} p(y′ | x)^α,   Δ = 1 − reward

    Shen et al. 2016, eq. 11–13 and algorithm 1 (papers.bib: shen2016minimum): S(x) contains the reference
    and the distinct samples; α = 5·10⁻³ keeps Q from concentrating on one of them.
    """

    samples: int = integer(8, at_least=2, advice="The outputs of a prompt are compared.")
    """Samples per prompt."""
    alpha: float = number(5e-3, above=0)
    """The sharpness of Q; 1 gives the renormalised model probabilities."""

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        prompts, reward = make_prompts(model, batch, self.prompt), load_reward(self.reward)
        if not prompts:
            return empty_loss("risk")
        samples_by_prompt = self.generate(model, prompts, Sample(), self.samples)
        sets = [
            list(dict.fromkeys((prompt.reference, *(out.tokens for out in group))))
            for prompt, group in zip(prompts, samples_by_prompt, strict=True)
        ]
        pairs = [(prompt, tokens) for prompt, group in zip(prompts, sets, strict=True) for tokens in group]
        rollout_rows = rollout_batch(model, batch, *zip(*pairs, strict=True))
        costs = [1 - compute_reward(model, reward, tokens, prompt.reference) for prompt, tokens in pairs]
        sizes = [len(group) for group in sets]

        def compute(reader: Any) -> Loss:
            logp_N = target_logp(reader, rollout_rows).sum(dim=1)
            cost_N = tensor_like(costs, logp_N)
            pairs_by_prompt = zip(logp_N.split_with_sizes(sizes), cost_N.split_with_sizes(sizes), strict=True)
            risks = [risk(logp_S, cost_S, self.alpha) for logp_S, cost_S in pairs_by_prompt]
            total = sum(risks, start=logp_N.new_zeros(()))
            return Loss(total, float(len(prompts)), {"risk": float(total.detach())})

        return PreparedLoss(float(len(prompts)), compute)


def risk(logp_S: Tensor, cost_S: Tensor, alpha: float) -> Tensor:
    """Σ Q Δ over the outputs for one prompt."""
    return (alpha * logp_S).softmax(dim=0) @ cost_S

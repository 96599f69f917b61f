"""The seams of the house: what its rooms promise each other, and nothing else.

    train:     text → data.Batch → model.hidden → head → objective → training.loop → run folder
    generate:  prompt → text → StepModel.step → transforms → pick → search → text

Shapes: N rows (hypotheses decoded side by side), V vocabulary, D width, T time.
`logp` is always a normalised log-probability; a higher score is always better; −∞ means "cut".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from random import Random

    from torch import Tensor

Finish = Literal["eos", "length", "stop", "loop"]


# ── models ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Step:
    """What a model says about the next token of every row."""

    logp_NV: Tensor
    hidden_ND: Tensor | None = None
    """What the head read: for searches and picks that look behind the probabilities."""
    attention: Tensor | None = None
    score_NV: Tensor | None = None
    """What a ranking search adds up in place of log p (contrastive decoding's difference)."""
    exits_NEV: Tensor | None = None
    """log p as the chosen early layers would have it, where the model was asked for them."""
    log_norm_N: Tensor | None = None
    """What turns log p into the model's logits again: logit = log p + log_norm; None where it has none."""

    def select(self, rows_M: Tensor) -> Step:
        """The same rows in another order, repeated or dropped."""

        def chosen(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.index_select(0, rows_M)

        return Step(
            self.logp_NV.index_select(0, rows_M),
            chosen(self.hidden_ND),
            chosen(self.attention),
            chosen(self.score_NV),
            chosen(self.exits_NEV),
            chosen(self.log_norm_N),
        )


class State(Protocol):
    """What a model remembers of every row (a key–value cache, an RNN's hidden vectors)."""

    def select(self, rows_M: Tensor) -> Self:
        """Rows reordered, repeated or dropped. The old state may not be used afterwards."""
        ...


class StepModel(Protocol):
    """A model that is decoded token by token. A contrast or an ensemble of models is one, too."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def context(self) -> int | None:
        """The most tokens a row may hold, prompt included; None where there is no limit.

        Where the prompt is a source (Answering), each side has this limit to itself: the source with the EOS
        behind it, and the answer with the BOS in front of it.
        """
        ...

    @property
    def text(self) -> Text | None:
        """The model's tokenizer; None for a model that only speaks token ids."""
        ...

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, Any]:
        """Read the prompts; the Step is about the first new token of each."""
        ...

    def step(self, state: Any, tokens_N: Tensor) -> tuple[Step, Any]:
        """Append one token to every row. The old state may not be used afterwards."""
        ...


class Model(StepModel, Protocol):
    """What `us.load` and `us.train` give: a StepModel that is a torch module.

    Classifiers and taggers, which `us.predict` takes, are no StepModels; a type checker is not told of them.
    """

    config: Any
    head: Any
    training: bool

    def to(self, *args: Any, **kwargs: Any) -> Self: ...

    def eval(self) -> Self: ...

    def train(self, mode: bool = True) -> Self: ...

    def parameters(self, recurse: bool = True) -> Iterator[Any]: ...

    def state_dict(self) -> Mapping[str, Any]: ...


@runtime_checkable
class Rewindable(Protocol):
    """A StepModel that also reads several tokens at once and forgets them again (speculative decoding)."""

    def extend(self, state: Any, tokens_NT: Tensor) -> tuple[Step, Any]:
        """Append T tokens to every row; row n·T + t of the Step is about what follows the t-th of row n."""
        ...

    def rewind(self, state: Any, tokens: int) -> Any:
        """Forget the last `tokens` tokens of every row."""
        ...


@runtime_checkable
class Projecting(Protocol):
    """A StepModel whose probabilities are softmax(W h): it has one output matrix (basis-aware sampling).

    Whether a model is one may depend on its head, so that it is asked for the matrix, not for its class:
    `getattr(model, "output_matrix", None)`.
    """

    @property
    def output_matrix(self) -> Tensor:
        """W, (V, D)."""
        ...


@runtime_checkable
class Answering(Protocol):
    """A StepModel whose prompts may be sources: what it says is then a text of its own, not their sequel."""

    @property
    def answers(self) -> bool: ...


@runtime_checkable
class Layered(Protocol):
    """A StepModel that can tell what its early layers would have said."""

    @property
    def layers(self) -> int: ...

    def exits(self, layers: Sequence[int]) -> StepModel:
        """The same model, whose Steps carry `exits_NEV` for these layers (1 = after the first block)."""
        ...


class Head(Protocol):
    """Hidden vectors to normalised log-probabilities: (…, D) → (…, V)."""

    logits: Callable[[Tensor], Tensor] | None
    """What the log-probabilities are a log_softmax of; None where they are none (a mixture)."""

    def __call__(self, hidden: Tensor) -> Tensor: ...


# ── text ──────────────────────────────────────────────────────────────────────────────────────────


class Watch(Protocol):
    """Reads one hypothesis as it grows, and says when its text asks to stop. Immutable: beams fork."""

    @property
    def text(self) -> str:
        """Text that is certain: whole characters, no possible beginning of a stop string."""
        ...

    @property
    def finish(self) -> Finish | None: ...

    def push(self, token: int) -> Watch: ...

    def close(self) -> str:
        """The whole text, with what was held back."""
        ...


class Text(Protocol):
    """str ↔ token ids."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> frozenset[int]: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def show(self, token: int) -> str:
        """One token for people to read: what it adds to a text that has begun, a special one by its name."""
        ...

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Messages as the one string that the model was taught to answer."""
        ...

    def watch(self, stop: Sequence[str] = (), after: int | None = None) -> Watch:
        """A reader of what follows the token `after`: whether a first space is shown may depend on it."""
        ...


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ranked:
    """The most probable tokens at one step, best first: by the model itself, and in what was drawn from."""

    model: tuple[tuple[int, float], ...]
    drawn: tuple[tuple[int, float], ...]
    texts: Mapping[int, str] = field(default_factory=dict, compare=False)
    """Each of these tokens as people read it, where the model has a tokenizer."""


@dataclass(frozen=True, slots=True)
class Path:
    """One hypothesis: its prompt, what was chosen after it, and how probable each choice was."""

    request: int
    """Which of the prompts it answers."""
    sample: int
    """Which of the n answers to that prompt (for a ranked search, its rank)."""
    prompt: tuple[int, ...]
    """The tokens that it continues; none where the model's prompt is a source, which an answer does not."""
    tokens: tuple[int, ...] = ()
    logps: tuple[float, ...] = ()
    """log p of each token by the model itself."""
    scores: tuple[float, ...] = ()
    """log p of each token in the distribution that it was drawn from; what it added to the sum of a search
    that adds up another score (Step.score_NV)."""
    finish: Finish | None = None
    watch: Watch | None = None
    total: float | None = None
    """The whole hypothesis's score, where the search ranks hypotheses."""
    ranked: tuple[Ranked, ...] = ()
    """What else each token might have been, where the job asks for it."""
    notes: Mapping[str, Any] = field(default_factory=dict)

    def extend(self, token: int, logp: float, score: float, job: Job, ranked: Ranked | None = None) -> Path:
        """The path with one more token, ended if that token, its text, the job's limit or judge says so."""
        if math.isnan(logp) or math.isnan(score):
            raise ValueError(
                f"the model gave token {token} after {len(self.tokens)} new ones a log-probability or score "
                "that is no number (NaN). Look for an overflow in the model (half precision?) or in its "
                "weights."
            )
        tokens = (*self.tokens, token)
        watch = self.watch
        finish: Finish | None = None
        if token in job.eos:
            finish = "eos"
        elif token in job.stop_ids:
            finish = "stop"
        else:
            if watch is not None:
                watch = watch.push(token)
                finish = watch.finish
            if finish is None and len(tokens) >= job.limits[self.request]:
                finish = "length"
        path = replace(
            self,
            tokens=tokens,
            logps=(*self.logps, logp),
            scores=(*self.scores, score),
            finish=finish,
            watch=watch,
            ranked=self.ranked if ranked is None else (*self.ranked, ranked),
        )
        return path if finish is not None or job.judge is None else job.judge(path)


class Judge(Protocol):
    """Looks at a path after each token and may end it: returns the path as it is, or with a finish."""

    def __call__(self, path: Path) -> Path: ...


@dataclass(frozen=True, slots=True)
class Job:
    """What a search is asked to do."""

    prompts: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    """The most new tokens, for each prompt."""
    seeds: tuple[int, ...]
    """One per prompt: a row's randomness depends on its own seed and sample number only."""
    n: int = 1
    eos: frozenset[int] = frozenset()
    watches: tuple[Watch, ...] = ()
    """One per prompt, where the model has a tokenizer."""
    judge: Judge | None = None
    """Sees every path that has grown and not ended."""
    alternatives: int = 0
    """How many of the most probable tokens are kept at every step."""
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end a text with finish "stop"."""
    answers: bool = False
    """Whether the prompts are sources (Answering), which no text continues."""
    rows: int = 256
    """The most rows that are decoded side by side; no text depends on it."""

    @property
    def ends(self) -> int:
        """How many tokens end a text."""
        return len(self.eos | self.stop_ids)

    def content(self, path: Path) -> str | tuple[int, ...]:
        """What a path says: its text, or its tokens without their end where the model has no text."""
        if path.watch is not None:
            return path.watch.close()
        ended = path.tokens and path.tokens[-1] in self.eos | self.stop_ids
        return path.tokens[:-1] if ended else path.tokens

    def path(self, request: int, sample: int) -> Path:
        """A path with nothing after its prompt yet."""
        watch = self.watches[request] if self.watches else None
        return Path(request, sample, () if self.answers else self.prompts[request], watch=watch)

    def paths(self) -> list[Path]:
        """The n empty paths of every prompt, in order."""
        requests = range(len(self.prompts))
        return [self.path(request, sample) for request in requests for sample in range(self.n)]

    def batches(self, rows_each: int = 1) -> Iterator[list[Path]]:
        """The same in batches that may be decoded side by side, where a path takes `rows_each` rows."""
        paths, size = self.paths(), max(1, self.rows // rows_each)
        for first in range(0, len(paths), size):
            yield paths[first : first + size]


@dataclass(frozen=True, slots=True)
class Frontier:
    """One step of a search: the paths still growing and those that ended just now."""

    live: tuple[Path, ...]
    ended: tuple[Path, ...] = ()


class Transform(Protocol):
    """Reshapes what will be drawn from: normalised scores in, scores up to a constant out.

    Pure: the input is never written to, and at least one token of every row stays above −∞. `step.logp_NV` is
    the model's own; `step.log_norm_N` turns the scores that come with it into logits.
    """

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor: ...


@runtime_checkable
class Preparing(Protocol):
    """A transform that must look at the model and the job before it can act (words that need a tokenizer)."""

    def prepare(self, model: StepModel, job: Job) -> Transform: ...


@runtime_checkable
class Pick(Protocol):
    """Draws one token for every row; row i uses nothing random but dice[i]."""

    def draw(self, scores_NV: Tensor, step: Step, dice: Sequence[Random]) -> Tensor: ...


@runtime_checkable
class Bindable(Protocol):
    """A pick that must look at the model, and at the transforms before it, before it can draw."""

    def bind(self, model: StepModel, transforms: Sequence[Transform]) -> Pick: ...


@runtime_checkable
class Counting(Protocol):
    """A pick that counts what it does: a finished path carries the counts of its own die in its notes."""

    def counted(self, die: Random) -> Mapping[str, Any]: ...


class Search(Protocol):
    """Walks a model from prompts to finished paths."""

    @property
    def streams(self) -> bool:
        """Whether a token, once on a frontier, stays: what a stream may show at once."""
        ...

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]: ...


# ── training ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to learn from. Rows are padded on the right; padding has weight 0."""

    inputs_NT: Tensor
    """What the model reads (a language model: BOS and every token but the last)."""
    lengths_N: Tensor
    """How many of a row's inputs are real."""
    targets_NU: Tensor
    """What it should say: U = T for a language model or a tagger, U = 1 for a classifier."""
    weights_NU: Tensor
    """How much each target counts: 0 for padding."""
    source_NS: Tensor | None = None
    """What the encoder of an encoder–decoder reads."""
    source_lengths_N: Tensor | None = None
    follows: int | None = None
    """The number of the batch whose rows these rows go on with, where a model carries what it remembers."""
    begin_NLS: Tensor | None = None
    """What it remembered at the end of that batch."""

    @property
    def weight(self) -> float:
        """How many targets count, all in all."""
        return float(self.weights_NU.sum())

    def to(self, device: Any) -> Batch:
        found = {it.name: getattr(self, it.name) for it in fields(self)}
        return Batch(**{name: it.to(device) if hasattr(it, "to") else it for name, it in found.items()})


class Feed(Protocol):
    """An endless sequence of batches, each a pure function of its number: to resume is to go on counting."""

    @property
    def per_epoch(self) -> int:
        """Batches in one pass over the data; the same for every epoch."""
        ...

    def batch(self, number: int) -> Batch: ...


@runtime_checkable
class Trainable(Protocol):
    """A model that learns: an nn.Module whose head reads one hidden vector for every target."""

    @property
    def head(self) -> LossHead: ...

    def hidden_for(self, batch: Batch) -> Tensor:
        """(N, U, D), in one parallel pass with teacher forcing."""
        ...


@runtime_checkable
class Carrying(Protocol):
    """A Trainable whose rows may go on where those of an earlier batch ended: it reads `Batch.begin_NLS`."""

    def take_end(self) -> Tensor:
        """(N, L, S): what it remembered at the end of the last batch's rows, without gradient."""
        ...


@runtime_checkable
class Labelling(Protocol):
    """A model that chooses labels and says no text (a classifier, a tagger): `us.predict` asks it."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What it chooses from: target i is labels[i]."""
        ...


class LossHead(Head, Protocol):
    """A head that also knows its own loss, without holding all (M, V) log-probabilities in memory."""

    def loss(
        self, hidden_MD: Tensor, targets_M: Tensor, weights_M: Tensor, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Two sums over the targets, each weighted: what is minimised, and −log p alone (no gradient).

        Σ_m weight_m · [(1 − s)·(−log p(target_m)) + s·mean_v(−log p(v))]
        """
        ...


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a training run has come."""

    update: int
    """Updates of the weights so far."""
    updates: int
    """Updates of the whole run."""
    batches: int = 0
    """Batches read so far, by all processes together."""
    epoch: float = 0.0


@dataclass(frozen=True, slots=True)
class Loss:
    """A sum of losses, and the weight to divide it by once the batches of one update are added up."""

    total: Tensor
    weight: float
    stats: Mapping[str, float] = field(default_factory=dict)
    """Other sums over the same batch ("nll" for the perplexity), divided by the same weight."""


class Objective(Protocol):
    """What is minimised."""

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss: ...


class Hook(Protocol):
    """Looks at the model after each update, and may change it (KerBS's reallocation of senses)."""

    def __call__(self, model: Any, optimizer: Any, batch: Batch, clock: Clock) -> None: ...

    def state(self) -> Mapping[str, Tensor]:
        """What a checkpoint must keep, so that a resumed run is bit-equal."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None: ...

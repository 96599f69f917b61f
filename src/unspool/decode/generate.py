"""The one loop that users call: prompts in, finished texts out; `stream` shows them as they grow.

`stream` and `generate` consume the same iterator of frontiers, so that what is streamed is what is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

from unspool import config
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.loops import OnLoop
from unspool.decode.output import Output, Piece, output_of, pieces_of
from unspool.decode.prompts import Message, as_batch
from unspool.decode.request import make_job
from unspool.decode.spec import as_decoder
from unspool.errors import is_out_of_memory
from unspool.interfaces import Decoder, StepModel


class Options(TypedDict, total=False):
    """What `generate` may be told besides the number of answers."""

    max_new_tokens: int
    seed: int | Sequence[int] | None
    stop: str | Sequence[str] | None
    stop_ids: int | Sequence[int]
    on_loop: OnLoop
    alternatives: int
    batch_size: int


One = str | Sequence[int] | Sequence[Message]
Many = Sequence[str] | Sequence[Sequence[int]] | Sequence[Sequence[Message]]


@overload
def generate(  # type: ignore[overload-overlap]  # a string is a sequence of strings to a type checker
    model: StepModel,
    prompts: One,
    decoder: Decoder | str | None = None,
    *,
    n: Literal[1] = 1,
    **options: Unpack[Options],
) -> Output: ...
@overload
def generate(  # type: ignore[overload-overlap]
    model: StepModel,
    prompts: Many,
    decoder: Decoder | str | None = None,
    *,
    n: Literal[1] = 1,
    **options: Unpack[Options],
) -> list[Output]: ...
@overload
def generate(  # type: ignore[overload-overlap]
    model: StepModel,
    prompts: One,
    decoder: Decoder | str | None = None,
    *,
    n: int,
    **options: Unpack[Options],
) -> list[Output]: ...
@overload
def generate(
    model: StepModel,
    prompts: Many,
    decoder: Decoder | str | None = None,
    *,
    n: int,
    **options: Unpack[Options],
) -> list[list[Output]]: ...
def generate(
    model: StepModel,
    prompts: One | Many,
    decoder: Decoder | str | None = None,
    *,
    max_new_tokens: int = config.MAX_NEW_TOKENS,
    n: int = 1,
    seed: int | Sequence[int] | None = None,
    stop: str | Sequence[str] | None = (),
    stop_ids: int | Sequence[int] = (),
    on_loop: OnLoop = "ignore",
    alternatives: int = 0,
    batch_size: int = config.MAX_BATCH_ROWS,
) -> Any:
    """Generate text after each prompt.

    One prompt gives one Output, a list of prompts a list; with n > 1 each becomes a list of n Outputs, a
    million at most.
    A prompt is a string, a row of token ids (an array or a tensor, too), or the messages of a chat. `search`
    is how text is decoded, Sample(Temperature(0.8), TopP(0.95)) where none is given. `seed` is one number for
    every prompt, or one for each; None draws a new one. Every text has a random stream of its own, made of
    seed, prompt and sample number (`decode.rng`): different prompts are independent, a prompt that comes
    again is its next sample (["Hi"] * 10 gives the texts of n=10), and a prompt alone gives the text of its
    first occurrence in any batch (to the bit with compiled steps, up to rounding with torch). `stop` strings
    end a text and are cut from it; `stop_ids` are tokens that end it and are not shown. `on_loop` says what
    happens when a text goes round in circles: "ignore", "stop" (exact loops), "stop_approximate"
    (approximate ones, too), or a function of the path and its Loop that
    returns True to stop. `alternatives` is how many of the most probable tokens to keep at every step.
    `batch_size` is how many rows are decoded side by side at most; it changes no text.

    A string is a raw prompt: special tokens that it spells ("<|im_end|>") are read as such. In messages they
    are plain text, whoever wrote them. For a raw prompt from strangers, give
    `model.text.encode(prompt, special_tokens=False)`.

    A ranking search may find fewer than n texts (there may not be as many), never one text twice.
    """
    decoder = as_decoder(decoder)
    batch, alone = as_batch(prompts)
    job = make_job(
        model,
        batch,
        max_new_tokens=max_new_tokens,
        n=n,
        seed=seed,
        stop=stop,
        stop_ids=stop_ids,
        on_loop=on_loop,
        alternatives=alternatives,
        batch_size=batch_size,
    )
    outputs: list[list[Output]] = [[] for _ in batch]
    for path in finished(model, job, decoder):
        outputs[path.request].append(output_of(path, job, model.tokenizer))
    found = [group if job.n > 1 else group[0] for group in outputs]
    return found[0] if alone else found


def stream(
    model: StepModel,
    prompts: One | Many,
    decoder: Decoder | str | None = None,
    *,
    max_new_tokens: int = config.MAX_NEW_TOKENS,
    n: int = 1,
    seed: int | Sequence[int] | None = None,
    stop: str | Sequence[str] | None = (),
    stop_ids: int | Sequence[int] = (),
    on_loop: OnLoop = "ignore",
    alternatives: int = 0,
    batch_size: int = config.MAX_BATCH_ROWS,
) -> Iterator[Piece]:
    """Yield pieces of text as they become certain; the arguments are those of `generate`.

    Pieces of different prompts come interleaved, told apart by `request` and `sample`. A search that may
    still change its mind (beam) shows everything at its end.
    """
    decoder = as_decoder(decoder)
    job = make_job(
        model,
        as_batch(prompts)[0],
        max_new_tokens=max_new_tokens,
        n=n,
        seed=seed,
        stop=stop,
        stop_ids=stop_ids,
        on_loop=on_loop,
        alternatives=alternatives,
        batch_size=batch_size,
    )
    return pieces_of(_frontiers(model, job, decoder), decoder.streams, model.tokenizer)


def _frontiers(model: StepModel, job: Job, decoder: Decoder) -> Iterator[SearchStep]:
    """What a search finds. Where memory ends, the error says what takes less."""
    try:
        yield from decoder(model, job)
    except (MemoryError, OSError, RuntimeError) as error:
        told = type(error) is MemoryError and error.args  # by one of ours; numpy's has a class of its own
        if told or not is_out_of_memory(error):
            raise
        raise MemoryError(
            "there is not enough memory to decode so many rows side by side: a smaller batch_size, fewer "
            "beams or shorter texts take less"
        ) from error


def finished(model: StepModel, job: Job, decoder: Decoder) -> Iterator[Hypothesis]:
    """Every finished path, by prompt and by sample, each as soon as all those before it are there."""
    waiting: list[dict[int, Hypothesis]] = [{} for _ in job.prompts]
    request = sample = 0
    for frontier in _frontiers(model, job, decoder):
        for path in frontier.ended:
            waiting[path.request][path.sample] = path
        while request < len(waiting) and sample in waiting[request]:
            yield waiting[request].pop(sample)
            sample += 1
            # A search that ranks texts gives those of a prompt together, and may have fewer than n.
            if sample == job.n or not (decoder.streams or waiting[request]):
                request, sample = request + 1, 0
    for group in waiting[request:]:
        yield from (group[sample] for sample in sorted(group))

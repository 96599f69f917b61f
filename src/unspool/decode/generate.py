"""Generate text: `generate` returns finished texts, `stream` yields them as they grow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal, Unpack, overload

from unspool.decode.output import Output, Piece
from unspool.decode.prompts import Prompt, Prompts
from unspool.decode.run import GenerationOptions, Run
from unspool.interfaces import Decoder, StepModel


@overload
def generate(  # type: ignore[overload-overlap]  # a string is a sequence of strings to a type checker
    model: StepModel,
    prompts: Prompt,
    decoder: Decoder | str | None = None,
    *,
    n: Literal[1] = 1,
    **options: Unpack[GenerationOptions],
) -> Output: ...
@overload
def generate(  # type: ignore[overload-overlap]
    model: StepModel,
    prompts: Prompts,
    decoder: Decoder | str | None = None,
    *,
    n: Literal[1] = 1,
    **options: Unpack[GenerationOptions],
) -> list[Output]: ...
@overload
def generate(  # type: ignore[overload-overlap]
    model: StepModel,
    prompts: Prompt,
    decoder: Decoder | str | None = None,
    *,
    n: int,
    **options: Unpack[GenerationOptions],
) -> list[Output]: ...
@overload
def generate(
    model: StepModel,
    prompts: Prompts,
    decoder: Decoder | str | None = None,
    *,
    n: int,
    **options: Unpack[GenerationOptions],
) -> list[list[Output]]: ...
def generate(
    model: StepModel,
    prompts: Prompt | Prompts,
    decoder: Decoder | str | None = None,
    *,
    n: int = 1,
    **options: Unpack[GenerationOptions],
) -> Any:
    """Generate text after each prompt.

    One prompt gives one Output, and a list of prompts a list of Outputs. If n > 1 (at most a million), each
    prompt gives a list of n Outputs. A decoder that ranks texts, such as Beam, returns different texts, and
    fewer than n if it finds fewer.

    prompts: a string, token ids (a list, an array or a tensor), the messages of a chat, or a list of these.
    decoder: a decoder such as Beam(5), or its string; the default is Sample(Temperature(0.8), TopP(0.95)).
    temperature, top_k, top_p, min_p, repetition_penalty: instead of a decoder; they build a Sample and apply
        in the order of Hugging Face transformers. temperature=0 builds Greedy.
    max_new_tokens: generate at most this many tokens, 128 by default.
    seed: one number for all prompts, or a list with one per prompt; None chooses a random one.
    stop: strings that end a text and are removed from it.
    stop_ids: tokens that end a text and are removed from it.
    on_loop: "ignore", "stop" (exact loops), "stop_approximate" (approximate loops, too), or a function of the
        hypothesis and its Loop that returns True to stop.
    alternatives: how many of the most probable tokens to record at every step.
    batch_size: the most sequences decoded at once; it does not change the texts.

    Each text has its own random stream, derived from seed, prompt and sample number (`decode.rng`). So
    ["Hi"] * 10 gives the same texts as n=10, and a prompt alone gives the same text as its first occurrence
    in any batch: bit for bit with the compiled engine, up to rounding with torch.

    Special tokens in a string ("<|im_end|>") are control tokens; in chat messages they are plain text. If a
    raw prompt is from an untrusted user, pass `model.tokenizer.encode(prompt, special_tokens=False)`.
    """
    run = Run(model, prompts, decoder, n=n, **options)
    outputs = [group if run.job.n > 1 else group[0] for group in run.outputs()]
    return outputs[0] if run.is_single else outputs


def stream(
    model: StepModel,
    prompts: Prompt | Prompts,
    decoder: Decoder | str | None = None,
    *,
    n: int = 1,
    **options: Unpack[GenerationOptions],
) -> Iterator[Piece]:
    """Yield pieces of text as they become final; the arguments are those of `generate`.

    Pieces of different prompts are interleaved; `request` and `sample` say which text they belong to. A
    decoder that may still change its texts (beam search) yields everything at its end.
    """
    return Run(model, prompts, decoder, n=n, **options).pieces()


async def agenerate(
    model: StepModel,
    prompts: Prompt | Prompts,
    decoder: Decoder | str | None = None,
    *,
    n: int = 1,
    **options: Unpack[GenerationOptions],
) -> Any:
    """Run `generate` in a worker thread: `out = await us.agenerate(model, "Hi", top_p=0.9)`."""
    return await asyncio.to_thread(lambda: generate(model, prompts, decoder, n=n, **options))

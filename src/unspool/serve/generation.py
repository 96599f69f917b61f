"""What a request generates: its prompts, decoder and options, and the loop that emits the pieces of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from unspool.decode import ThinkingBudget
from unspool.decode.hypothesis import Ranked
from unspool.decode.output import Piece
from unspool.decode.run import Run
from unspool.decode.score import Score, score
from unspool.interfaces import Decoder, StepModel, TokenizerLike, Transform
from unspool.serve.api_error import ApiError
from unspool.serve.messages import NamedTool, chat_prompt
from unspool.serve.request_decoder import UNLIMITED, check_decoder, decoder_of
from unspool.serve.request_grammar import Reply, answer_grammar, reply_grammar
from unspool.serve.requests import ChatRequest, CompletionRequest, DecodingFields, Limits
from unspool.serve.response_builders import StartedGeneration
from unspool.tokenization.tool_calls import END_THINK, THINK, tool_format

Emit = Callable[[Any], None]
Work = Callable[[Any, Emit], None]
"""Calls a model, and emits events."""


def completion_work(body: CompletionRequest, model: StepModel, limits: Limits) -> Work:
    """The work of a completion. Called in a worker thread, because a grammar takes time to compile."""
    grammar = answer_grammar(body)
    scores = body.prompt_logprobs
    if scores is None and body.echo:
        scores = body.logprobs
    options = _options(body, limits, body.max_tokens, body.best_of or body.n, body.logprobs or 0)
    decoder = decoder_of(body, [] if grammar is None else [grammar])
    _check_bias(body, model)
    return partial(
        generate, prompts=body.prompt, decoder=decoder, options=options, limits=limits, score_prompts=scores
    )


def chat_work(body: ChatRequest, model: StepModel, limits: Limits) -> Work:
    """The work of a chat: its rendered prompt, and the grammar of its reply."""
    tokenizer = model.source_tokenizer or model.tokenizer
    tools = () if body.tool_choice == "none" else body.tools
    text = chat_prompt(tokenizer, body.messages, tools, body.template_variables())
    assert tokenizer is not None
    reply = _reply(body, tokenizer, text)
    last: list[Transform] = []
    if body.thinking_budget is not None:
        if not reply.thinks:
            raise ApiError(400, f"thinking_budget needs a model that writes {THINK}", "thinking_budget")
        last.append(ThinkingBudget(body.thinking_budget, END_THINK, THINK))
    grammar = reply_grammar(answer_grammar(body), reply, tokenizer)
    decoder = decoder_of(body, last if grammar is None else [*last, grammar])
    _check_bias(body, model)
    return partial(
        generate,
        prompts=[tokenizer.encode(text)],
        decoder=decoder,
        options=_options(body, limits, body.max_tokens, body.n, body.top_logprobs),
        limits=limits,
        reply=reply,
    )


def _reply(body: ChatRequest, tokenizer: TokenizerLike, prompt: str) -> Reply:
    template = getattr(tokenizer, "chat_template", None) or ""
    choice = body.tool_choice or "auto"
    names = [it.function.name for it in body.tools]
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        message = f"tool_choice names {choice.function.name!r:.60}, which is not in tools"
        raise ApiError(400, message, "tool_choice")
    if choice == "required" and not names:
        raise ApiError(400, 'tool_choice "required" needs tools', "tool_choice")
    # Reasoning can be told apart only if its marks are text, not special tokens that a decoder leaves out.
    token = tokenizer.token_to_id(END_THINK) if hasattr(tokenizer, "token_to_id") else None
    return Reply(
        body.tools,
        choice,
        body.parallel_tool_calls,
        tool_format(template) if names and choice != "none" else None,
        thinks=END_THINK in template and (token is None or tokenizer.piece(token) is not None),
        is_thinking=prompt.rstrip().endswith(THINK),
    )


def _check_bias(body: DecodingFields, model: StepModel) -> None:
    outside = [token for token in body.logit_bias or () if token >= model.vocab_size]
    if outside:
        message = f"logit_bias contains token {outside[0]}, outside the vocabulary 0…{model.vocab_size - 1}"
        raise ApiError(400, message, "logit_bias")


def _options(
    body: DecodingFields, limits: Limits, max_tokens: int, n: int, alternatives: int
) -> dict[str, Any]:
    on_loop = "stop" if body.stop_loops else "ignore"
    return {
        "max_new_tokens": UNLIMITED if max_tokens < 0 else max_tokens,
        "n": n,
        "seed": body.seed,
        "stop": body.stop,
        "stop_ids": body.stop_token_ids,
        "on_loop": "stop_approximate" if body.stop_approximate_loops else on_loop,
        "alternatives": alternatives,
        "batch_size": limits.width,
    }


def generate(
    model: StepModel,
    emit: Emit,
    *,
    prompts: Any,
    decoder: Decoder,
    options: Mapping[str, Any],
    limits: Limits,
    score_prompts: int | None = None,
    reply: Reply | None = None,
) -> None:
    """Emit a StartedGeneration, and then every piece of text.

    `options` are those of `us.generate`. If `score_prompts` is not None, the prompts are scored, with this
    number of alternatives per token. `reply` is the form of the messages of a chat.
    """
    check_decoder(decoder, limits)
    new = options["max_new_tokens"]
    run = Run(model, prompts, decoder, **{**options, "max_new_tokens": max(1, min(new, limits.new_tokens))})
    for prompt in run.job.prompts:
        if len(prompt) > limits.prompt_tokens:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens, but this server allows {limits.prompt_tokens}"
            )
    pieces = run.pieces()
    scored: list[Piece] = []
    if score_prompts is not None:
        scored = [score_prompt(model, ids, score_prompts) for ids in run.job.prompts]
    emit(StartedGeneration(run.job, scored, reply or Reply()))
    if new > 0:
        for piece in pieces:
            emit(piece)


def score_prompt(model: StepModel, ids: Sequence[int], count: int) -> Piece:
    """A prompt as a piece: log p of each token after the first, with the most probable alternatives."""
    if model.is_encoder_decoder:
        raise ValueError(
            "echo with logprobs needs a language model: an encoder–decoder does not score its source"
        )
    scored = score(model, ids[:1], ids[1:], alternatives=count) if len(ids) > 1 else Score((), ())
    logps = (float("nan"), *scored.logps)
    ranked = (Ranked((), ()), *(Ranked(best, best) for best in scored.ranked))
    text = "" if model.tokenizer is None else model.tokenizer.decode(ids)
    return Piece(text, tuple(ids), 0, 0, None, logps, logps, ranked)

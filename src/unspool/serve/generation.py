"""Decoder, grammar, prompts and options of a request, and the loop that emits the pieces of text.

    start: reasoning? (answer | TEXT | calls)

is the grammar of a reply: response_format or structured_outputs (answer), tools (calls), and the reasoning
before them. The rules are llguidance's Lark, and `us.Grammar` enforces them. Each schema is a separate rule,
so that references inside it ("#/$defs/…") stay valid.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import unspool as us
from unspool.decode.hypothesis import Job, Ranked
from unspool.decode.output import Piece
from unspool.decode.run import Run
from unspool.decode.score import Score, score
from unspool.decode.search import SEARCHES
from unspool.interfaces import Decoder, StepModel, TokenizerLike, Transform
from unspool.serve.api_error import ApiError
from unspool.serve.requests import (
    ChatRequest,
    CompletionRequest,
    DecodingFields,
    Limits,
    NamedTool,
    ResponseFormat,
    StructuredOutputs,
    Tool,
    ToolChoice,
    chat_prompt,
)
from unspool.tokenization.tool_calls import END_THINK, THINK, ToolFormat, tool_format

UNLIMITED = 1 << 30


def _dry(fields: DecodingFields) -> Transform | None:
    if fields.dry_penalty_last_n == 0:
        return None
    last = None if fields.dry_penalty_last_n < 0 else fields.dry_penalty_last_n
    return us.DRY(fields.dry_multiplier, fields.dry_base, fields.dry_allowed_length, last=last)


def _dynamic_temperature(fields: DecodingFields) -> Transform:
    low, high = fields.temperature - fields.dynatemp_range, fields.temperature + fields.dynatemp_range
    return us.decode.DynamicTemperature(max(0.01, low), high, fields.dynatemp_exponent)


def _xtc(fields: DecodingFields) -> Transform | None:
    return None if fields.xtc_threshold > 0.5 else us.XTC(fields.xtc_threshold, fields.xtc_probability)


TRANSFORMS: dict[str, tuple[Sequence[Any], Callable[[Any], Transform | None]]] = {
    "logit_bias": ((None, {}), lambda fields: us.LogitBias(fields.logit_bias)),
    "bad_words": (([],), lambda fields: us.BadWords(fields.bad_words)),
    "min_tokens": ((0,), lambda fields: us.MinLength(fields.min_tokens)),
    "ignore_eos": ((False,), lambda _: us.MinLength(UNLIMITED)),
    "repetition_penalty": ((1,), lambda fields: us.RepetitionPenalty(fields.repetition_penalty)),
    "frequency_penalty": ((0,), lambda fields: us.FrequencyPenalty(fields.frequency_penalty)),
    "presence_penalty": ((0,), lambda fields: us.PresencePenalty(fields.presence_penalty)),
    "dry_multiplier": ((0,), _dry),
    "temperature": (
        (0, 1),
        lambda fields: None if fields.dynatemp_range else us.Temperature(fields.temperature),
    ),
    "dynatemp_range": ((0,), _dynamic_temperature),
    "top_n_sigma": ((-1, 0), lambda fields: us.TopNSigma(fields.top_n_sigma)),
    "top_k": ((-1, 0), lambda fields: us.TopK(fields.top_k)),
    "typical_p": ((1,), lambda fields: us.Typical(fields.typical_p)),
    "top_p": ((1,), lambda fields: us.TopP(fields.top_p)),
    "min_p": ((0,), lambda fields: us.MinP(fields.min_p)),
    "xtc_probability": ((0,), _xtc),
    "mirostat": ((0,), lambda fields: us.Mirostat(fields.mirostat_tau, fields.mirostat_eta)),
}
"""Field → its values without an effect, and its transform; transforms are applied in this order."""


def decoder_of(fields: DecodingFields, last: Sequence[Transform] = ()) -> Decoder:
    """The decoder that the fields describe: biases and penalties, temperature, truncation, then `last`."""
    if fields.decoder is not None:
        others = [name for name in (*TRANSFORMS, "num_beams") if name in fields.model_fields_set]
        if others:
            raise ValueError(f"decoder replaces {others[0]}: give one of them")
        return _with_transforms(us.parse(fields.decoder), last)
    made = (
        make(fields) for name, (neutral, make) in TRANSFORMS.items() if getattr(fields, name) not in neutral
    )
    rules = [*(rule for rule in made if rule is not None), *last]
    if fields.num_beams > 1:
        return us.Beam(fields.num_beams, *rules)
    return us.Greedy(*rules) if fields.temperature == 0 else us.Sample(*rules)


def _with_transforms(decoder: Any, last: Sequence[Transform]) -> Decoder:
    """The decoder with further transforms after its own."""
    result: Decoder = copy.copy(decoder)
    if last and hasattr(decoder, "transforms"):
        object.__setattr__(result, "transforms", (*decoder.transforms, *last))
    elif last and hasattr(decoder, "options"):
        options = replace(decoder.options, transforms=(*decoder.options.transforms, *last))
        object.__setattr__(result, "options", options)
    elif last:
        raise ValueError(
            f"response_format, tools and thinking_budget need Greedy, Sample or a beam, not {decoder!r:.80}"
        )
    return result


def check_decoder(decoder: Any, limits: Limits) -> None:
    """Raise ValueError if a decoder, or one inside it, uses more rows than allowed."""
    for value in _integers(decoder):
        if value > limits.width:
            raise ValueError(
                f"{decoder!r:.80} uses {value} rows per text, but this server allows {limits.width}"
            )


def _integers(decoder: Any) -> list[int]:
    """The integer settings of a decoder, which multiply its rows."""
    found: list[int] = []
    for field in fields(decoder):
        value = getattr(decoder, field.name)
        if isinstance(value, int) and not isinstance(value, bool):
            found.append(value)
        elif type(value) in SEARCHES.values() or field.name == "options":
            found += _integers(value)
    return found


NO_ARGUMENTS = {"type": "object", "properties": {}}


def answer_grammar(fields: DecodingFields) -> us.Grammar | None:
    """The grammar of the answer, if the request restricts it."""
    given = [
        grammar
        for grammar in (_format(fields.response_format), _structured(fields.structured_outputs))
        if grammar
    ]
    if len(given) > 1:
        raise ValueError("give one of response_format and structured_outputs")
    return us.Grammar(**given[0]) if given else None


def _format(format_: ResponseFormat | None) -> dict[str, Any]:
    if format_ is None or format_.type == "text":
        return {}
    if format_.type == "json_object":
        return {"json_schema": {"type": "object"}}
    if format_.json_schema is None:
        raise ValueError('response_format of type "json_schema" needs json_schema')
    return {"json_schema": format_.json_schema.schema_}


def _structured(outputs: StructuredOutputs | None) -> dict[str, Any]:
    """The argument of Grammar for the field of vLLM."""
    if outputs is None:
        return {}
    grammars: dict[str, Any] = {
        "json_schema": {"type": "object"} if outputs.json_object else outputs.json_schema,
        "regex": outputs.regex,
        "choices": outputs.choice,
        "lark": None if outputs.grammar is None else _as_lark(outputs.grammar),
    }
    given = {name: value for name, value in grammars.items() if value is not None}
    if len(given) != 1:
        raise ValueError("structured_outputs needs one of json, json_object, regex, choice and grammar")
    return given


def _as_lark(grammar: str) -> str:
    """A grammar in GBNF (llama.cpp) or Lark as Lark."""
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        lark: str = any_to_lark(grammar)
    except Exception as error:  # its parser raises many types
        raise ValueError(f"the grammar is neither GBNF nor Lark ({type(error).__name__})") from None
    return lark


@dataclass(frozen=True)
class Reply:
    """The parts of a chat reply besides its answer: tool calls and reasoning."""

    tools: Sequence[Tool] = ()
    choice: ToolChoice = "auto"
    is_parallel: bool = True
    format: ToolFormat | None = None
    """None if no tool can be called."""
    thinks: bool = False
    """Whether the model may write its reasoning first."""
    is_thinking: bool = False
    """Whether the prompt has opened the reasoning."""


def reply_grammar(answer: us.Grammar | None, reply: Reply, tokenizer: TokenizerLike) -> us.Grammar | None:
    """The grammar of a whole reply; None if any text is allowed."""
    if reply.format is None and (answer is None or not reply.thinks or answer.lark is not None):
        return answer
    parts, rules = [], {"ANY": "/(.|\\n)*/"}
    if answer is not None:
        rules["answer"] = answer.to_lark().removeprefix("start: ")
        parts.append("answer")
    elif reply.choice == "auto":
        # Without a mark, a reply that begins with a brace is a call.
        rules["TEXT"] = "/(.|\\n)*/" if reply.format and reply.format.mark else "/([^{](.|\\n)*)?/"
        parts.append("TEXT")
    if reply.format is not None:
        has_text = answer is None and reply.choice == "auto"
        rules |= _call_rules(reply, reply.format, has_text, tokenizer)
        parts.append("calls")
    rules["start"] = " | ".join(parts)
    if reply.thinks:
        rules["thought[lazy]"] = f"ANY {json.dumps(END_THINK)}"
        closed = "thought /\\n{0,2}/"
        rules["reasoning"] = closed if reply.is_thinking else f"({json.dumps(THINK)} {closed})?"
        rules["start"] = f"reasoning ({rules['start']})"
    return us.Grammar(lark="\n".join(f"{name}: {rule}" for name, rule in rules.items()))


def _call_rules(
    reply: Reply, format_: ToolFormat, has_text: bool, tokenizer: TokenizerLike
) -> dict[str, str]:
    """The rules of one or several tool calls, after any text if `has_text`."""
    rules, mark = {}, json.dumps(format_.mark)
    if format_.mark and has_text:
        rules["mark[lazy]"] = f"ANY {mark}"
        mark = "mark"
    token = tokenizer.token_to_id(format_.mark) if hasattr(tokenizer, "token_to_id") else None
    if token is not None and tokenizer.piece(token) is None:  # a special token, which text does not spell
        mark = f"ANY <[{token}]>" if has_text else f"<[{token}]>"
        rules.pop("mark[lazy]", None)
    tools = [tool.function for tool in reply.tools]
    if isinstance(reply.choice, NamedTool):
        tools = [tool for tool in tools if tool.name == reply.choice.function.name]
    for index, tool in enumerate(tools):
        head = f'{{"name": {json.dumps(tool.name)}, "{format_.arguments}": '
        rules[f"call_{index}"] = f"{json.dumps(head)} arguments_{index} {json.dumps('}')}"
        rules[f"arguments_{index}"] = f"%json {_schema(tool.parameters, tool.strict)}"
    rules["call"] = " | ".join(f"call_{index}" for index in range(len(tools)))
    is_single = format_.between is None or not reply.is_parallel or isinstance(reply.choice, NamedTool)
    more = "" if is_single else f"({json.dumps(format_.between)} call)*"
    begin, end = (json.dumps(text) if text else "" for text in (format_.begin, format_.end))
    rules["calls"] = f"{mark if format_.mark else ''} {begin} call {more} {end}"
    return rules


def _schema(parameters: dict[str, Any], is_strict: bool) -> str:
    """The schema of a tool's arguments: an object without undeclared keys, unless it says otherwise."""
    schema = {"additionalProperties": False, **(parameters or NO_ARGUMENTS), "type": "object"}
    options = {**schema.get("x-guidance", {}), "whitespace_pattern": " ", "lenient": not is_strict}
    return json.dumps({**schema, "x-guidance": options})


Emit = Callable[[Any], None]
Work = Callable[[Any, Emit], None]
"""Calls a model, and emits events."""


@dataclass(frozen=True)
class StartedGeneration:
    """A generation whose arguments were checked, before its first token."""

    job: Job
    scored: Sequence[Piece] = ()
    """The scored prompts, if requested; log p of the first token is NaN."""
    reply: Reply = Reply()


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
        last.append(us.ThinkingBudget(body.thinking_budget, END_THINK, THINK))
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
    names = [tool.function.name for tool in body.tools]
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

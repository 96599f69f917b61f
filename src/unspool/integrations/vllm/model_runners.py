"""Which text stands in which row of vLLM's batch, under its V1 model runner.

Before each step it tells what has changed: requests that left, that came (each with a list that goes on
growing as its tokens are known), and that changed places.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unspool.integrations.vllm.sequences import KEY, PLACEHOLDER_TOKEN, RunningSequence, SequenceSampler


class V1BatchRows:
    """The rows of a batch that are ours to write."""

    def __init__(self, texts: SequenceSampler) -> None:
        self._texts = texts
        self._rows: dict[int, tuple[RunningSequence, Any]] = {}
        """Row → its text, and the request: its parameters, prompt and the list of its tokens."""

    def update_state(self, update: Any) -> None:
        """Follow vLLM's BatchUpdate; None where the batch is as it was."""
        if update is None:
            return
        for row in update.removed:
            self._leave(row)
        for row, params, prompt, tokens in update.added:
            self._leave(row)  # one that came may stand where another stood
            text = self._texts.begin(params, prompt, tokens)
            if text is not None:
                self._rows[row] = text, (params, prompt, tokens)
        for source, target, direction in update.moved:
            self._move(source, target, swapped=direction.name == "SWAP")

    def apply(self, logits_NV: Tensor) -> Tensor:
        """(N, V) → (N, V), written over."""
        self._texts.draw(logits_NV, [(row, self._followed(row)) for row in sorted(self._rows)])
        return logits_NV

    def _followed(self, row: int) -> RunningSequence:
        text, request = self._rows[row]
        params, prompt, tokens = request
        if text.fault is None and not text.follow(len(tokens), tokens[-1] if tokens else PLACEHOLDER_TOKEN):
            text = self._texts.begin(params, prompt, tokens) or text
            self._rows[row] = text, request
        return text

    def _leave(self, row: int) -> None:
        found = self._rows.pop(row, None)
        if found is not None:
            self._texts.leave(found[0])

    def _move(self, source: int, target: int, *, swapped: bool) -> None:
        moved, there = self._rows.pop(source, None), self._rows.pop(target, None)
        if moved is not None:
            self._rows[target] = moved
        if there is None:
            return
        if swapped:
            self._rows[source] = there
        else:
            self._texts.leave(there[0])


SPECULATIVE_REFUSAL = (
    "speculative decoding was asked of vLLM, which then has no single row for a token: start it without, or "
    "leave extra_args['unspool'] out"
)


class V2RequestSlots:
    """The slots that are ours to write.

    Which text stands in which row of vLLM's batch, under its V2 model runner.

    A request has a slot from when it comes until it goes, of which nobody is told: another gets the slot.
    Rows of the logits are in another order at every step, and say which slot they are of. Tokens are in
    tables of the runner's, by slot.
    """

    def __init__(self, texts: SequenceSampler, requests: Any, *, drafts: bool) -> None:
        self._texts, self._requests, self._drafts = texts, requests, drafts
        self._params: dict[int, Any] = {}
        """Slot → the parameters of its request."""
        self._slots: dict[int, RunningSequence] = {}

    def add_request(self, slot: int, params: Any) -> bool:
        """Note a request that comes; whether its logits are ours to change."""
        self._params.pop(slot, None)
        gone = self._slots.pop(slot, None)
        if gone is not None:
            self._texts.leave(gone)
        if (params.extra_args or {}).get(KEY) is None:
            return False
        self._params[slot] = params  # its tokens are not in the tables yet
        if self._drafts:
            self._slots[slot] = self._texts.refused(params, SPECULATIVE_REFUSAL)
        return True

    def apply(self, logits_NV: Tensor, context: Any) -> Tensor:
        """(N, V) → (N, V), written over."""
        if not self._params:
            return logits_NV
        # Where it drafts, a slot has several rows; what is known on the host is then not by row.
        slots = context.expanded_idx_mapping if self._drafts else context.idx_mapping_np
        found = [(row, self._text(slot, row, context)) for row, slot in enumerate(slots.tolist())]
        self._texts.draw(logits_NV, [(row, text) for row, text in found if text is not None])
        return logits_NV

    def _text(self, slot: int, row: int, context: Any) -> RunningSequence | None:
        """The text of a row; None where it is not ours, or nothing is drawn yet."""
        known = self._slots.get(slot)
        if slot not in self._params or (known is not None and known.fault is not None):
            return known
        length = int(context.seq_lens_upper_bound_np[row])
        if length < int(self._requests.prefill_len.np[slot]):
            return None  # its prompt is read in parts
        prompt = int(self._requests.prompt_len.np[slot])
        if known is not None and known.follow(length - prompt, int(context.input_ids[row])):
            return known
        tokens = self._requests.all_token_ids.gpu[slot, :length].tolist()
        # One that was set aside may be in the slot that it had, as long as nobody else got that.
        aside = [text for other, text in self._slots.items() if other != slot]
        text = self._texts.begin(self._params[slot], tokens[:prompt], tokens[prompt:], aside)
        if text is not None:
            self._slots = {other: it for other, it in self._slots.items() if it is not text}
            self._slots[slot] = text
        return text

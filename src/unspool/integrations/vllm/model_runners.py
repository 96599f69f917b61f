"""Map rows of vLLM's logits to running sequences, for the V1 and V2 model runners."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unspool.integrations.vllm.sequences import KEY, PLACEHOLDER_TOKEN, RunningSequence, SequenceSampler


class V1BatchRows:
    """V1 runner: rows of the batch.

    Before each step vLLM reports the requests that were removed, added (with a list that grows as tokens
    become known) or moved to another row.
    """

    def __init__(self, sampler: SequenceSampler) -> None:
        self._sampler = sampler
        self._rows: dict[int, tuple[RunningSequence, Any]] = {}
        """Row → its sequence, and the request: (params, prompt, output tokens)."""

    def update_state(self, update: Any) -> None:
        """Apply vLLM's BatchUpdate; None if nothing changed."""
        if update is None:
            return
        for row in update.removed:
            self._remove(row)
        for row, params, prompt, tokens in update.added:
            self._remove(row)  # an added request may replace another
            sequence = self._sampler.begin(params, prompt, tokens)
            if sequence is not None:
                self._rows[row] = sequence, (params, prompt, tokens)
        for source, target, direction in update.moved:
            self._move(source, target, swapped=direction.name == "SWAP")

    def apply(self, logits_NV: Tensor) -> Tensor:
        """Draw the tokens of our rows; (N, V) → (N, V) in place."""
        self._sampler.draw(logits_NV, [(row, self._synchronised(row)) for row in sorted(self._rows)])
        return logits_NV

    def _synchronised(self, row: int) -> RunningSequence:
        sequence, request = self._rows[row]
        params, prompt, tokens = request
        last = tokens[-1] if tokens else PLACEHOLDER_TOKEN
        if sequence.error is None and not sequence.synchronise(len(tokens), last):
            sequence = self._sampler.begin(params, prompt, tokens) or sequence
            self._rows[row] = sequence, request
        return sequence

    def _remove(self, row: int) -> None:
        removed = self._rows.pop(row, None)
        if removed is not None:
            self._sampler.remove(removed[0])

    def _move(self, source: int, target: int, *, swapped: bool) -> None:
        moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
        if moved is not None:
            self._rows[target] = moved
        if replaced is None:
            return
        if swapped:
            self._rows[source] = replaced
        else:
            self._sampler.remove(replaced[0])


SPECULATIVE_REFUSAL = (
    "vLLM's speculative decoding is not supported: start vLLM without it, or leave extra_args['unspool'] out"
)


class V2RequestSlots:
    """V2 runner: request slots.

    A request keeps its slot until it leaves, which is not reported; the slot is then reused. The order of the
    logits rows changes at every step, with a map from row to slot. Tokens are in the runner's tables by slot.
    """

    def __init__(self, sampler: SequenceSampler, requests: Any, *, speculative: bool) -> None:
        self._sampler, self._requests, self._speculative = sampler, requests, speculative
        self._params: dict[int, Any] = {}
        """Slot → SamplingParams of its request."""
        self._slots: dict[int, RunningSequence] = {}

    def add_request(self, slot: int, params: Any) -> bool:
        """Register a request; returns True if its logits are ours to change."""
        self._params.pop(slot, None)
        replaced = self._slots.pop(slot, None)
        if replaced is not None:
            self._sampler.remove(replaced)
        if (params.extra_args or {}).get(KEY) is None:
            return False
        self._params[slot] = params  # its tokens are not in the tables yet
        if self._speculative:
            self._slots[slot] = self._sampler.rejected(params, SPECULATIVE_REFUSAL)
        return True

    def apply(self, logits_NV: Tensor, context: Any) -> Tensor:
        """Draw the tokens of our rows; (N, V) → (N, V) in place."""
        if not self._params:
            return logits_NV
        # With speculative decoding a slot has several rows.
        slots = context.expanded_idx_mapping if self._speculative else context.idx_mapping_np
        rows = [(row, self._sequence(slot, row, context)) for row, slot in enumerate(slots.tolist())]
        self._sampler.draw(logits_NV, [(row, sequence) for row, sequence in rows if sequence is not None])
        return logits_NV

    def _sequence(self, slot: int, row: int, context: Any) -> RunningSequence | None:
        """The sequence of a row; None if it is not ours or its prompt is incomplete."""
        known = self._slots.get(slot)
        if slot not in self._params or (known is not None and known.error is not None):
            return known
        length = int(context.seq_lens_upper_bound_np[row])
        if length < int(self._requests.prefill_len.np[slot]):
            return None  # chunked prefill
        prompt = int(self._requests.prompt_len.np[slot])
        if known is not None and known.synchronise(length - prompt, int(context.input_ids[row])):
            return known
        tokens = self._requests.all_token_ids.gpu[slot, :length].tolist()
        # A preempted sequence may still be in its old slot.
        candidates = [sequence for other, sequence in self._slots.items() if other != slot]
        sequence = self._sampler.begin(self._params[slot], tokens[:prompt], tokens[prompt:], candidates)
        if sequence is not None:
            self._slots = {other: it for other, it in self._slots.items() if it is not sequence}
            self._slots[slot] = sequence
        return sequence

"""Fine-tuning: a run that starts from a pretrained model, `[model] from = "smollm2"`.

    [model]
    from = "smollm2"                            any name that us.load accepts
    lora = {rank = 8, alpha = 16.0}             train only adapters; without it, all weights
    frozen = ["embed", "blocks.0"]              or all weights except these

The model keeps its vocabulary and its chat template. Every checkpoint holds a complete model with merged
adapters, and the adapters separately: a resumed run continues from these, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unspool.data.examples import bos_and_eos
from unspool.models.loading.lora_file import fingerprint
from unspool.models.loading.model_names import load
from unspool.models.loading.run_folder import load_folder
from unspool.models.lora import LoRA, add_adapters
from unspool.tokenization import Tokenizer
from unspool.training.checkpoint import Checkpoint


@dataclass(frozen=True)
class Pretrained:
    """The pretrained model of a run, and which of its weights are trained."""

    from_: str
    """Its name or path, as for `us.load`; its vocabulary replaces [tokenizer]."""
    lora: LoRA | None = None
    """Adapters (rank, alpha, targets, dropout); if given, only they are trained."""
    frozen: tuple[str, ...] = ()
    """Parts that are not trained, by prefixes of their names: "embed", "blocks.0"."""

    def load_model(self, checkpoint: Checkpoint | None) -> Any:
        """Load the model before the first update, or one that can hold the weights of a checkpoint."""
        # The base weights of adapters are not in the checkpoint.
        from_base = checkpoint is None or self.lora is not None
        model: Any = load(self.from_, weights="float32") if from_base else load_folder(checkpoint.path)  # type: ignore[union-attr]
        if not isinstance(model.tokenizer, Tokenizer):
            raise ValueError(f"model.from = {self.from_!r} has no tokenizer: choose a model with one")
        if model.is_encoder_decoder:
            start, bos = model.ends.bos, bos_and_eos(model.tokenizer)[0]
            if start != bos or model.source_ends.source_bos:
                raise ValueError(
                    f"model.from = {self.from_!r} starts its outputs with token {start}"
                    + (" and its sources with a BOS" if model.source_ends.source_bos else "")
                    + f", but training data starts targets with BOS {bos}: such models (BART, "
                    "Marian, T5) cannot be trained"
                )
        return model

    def freeze(self, model: Any) -> str | None:
        """Add adapters or freeze parts; return the fingerprint of the adapters' base weights."""
        if self.lora is not None:
            base = fingerprint(model)
            add_adapters(model, self.lora)
            return base
        for name in self.frozen:
            parts = [it for key, it in model.named_parameters() if f"{key}.".startswith(f"{name}.")]
            if not parts:
                known = sorted({key.partition(".")[0] for key, _ in model.named_parameters()})
                raise ValueError(f"model.frozen names {name!r}, but the model's parts are {', '.join(known)}")
            for it in parts:
                it.requires_grad_(False)
        return None

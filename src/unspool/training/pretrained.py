"""A run that begins with a model that exists: `[model] from = "smollm2"`.

    [model]
    from = "smollm2"                            any name that us.load takes
    lora = {rank = 8, alpha = 16.0}             adapters learn, and nothing else; without it, all weights
    frozen = ["embed", "blocks.0"]              or all but these

The model brings its vocabulary and its chat template along. Every checkpoint is a whole model, adapters
merged into it, and beside that has the adapters as they are: a run goes on from these, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool.data.examples import bos_and_eos
from unspool.models.loading.lora_file import fingerprint
from unspool.models.loading.model_names import load
from unspool.models.loading.run_folder import load_folder
from unspool.models.lora import LoRA, add_adapters
from unspool.tokenization import Tokenizer
from unspool.training.checkpoint import Checkpoint
from unspool.training.settings import TrainSettings


@dataclass(frozen=True)
class Pretrained:
    """The model that a run begins with, and what of it learns."""

    from_: str
    """Its name or path, as `us.load` takes it; it brings its vocabulary, and there is no [text]."""
    lora: LoRA | None = None
    """Adapters (rank, alpha, targets, dropout), which then alone learn."""
    frozen: tuple[str, ...] = ()
    """Parts that do not learn, by the beginnings of their names: "embed", "blocks.0"."""

    def __post_init__(self) -> None:
        if self.lora is not None and self.frozen:
            raise ValueError(
                "model.lora and model.frozen are both given, but with adapters nothing else learns: leave "
                "one of them out"
            )

    def check(self, train: TrainSettings) -> None:
        """Refuse what adapters cannot be trained with."""
        if self.lora is None:
            return
        if train.final == "average":
            raise ValueError(
                'train.final = "average" would be the mean of products, which is no product of thin ones: '
                'with model.lora choose "best" or "last"'
            )
        if train.shard:
            raise ValueError(
                "train.shard shares out what learns, and with model.lora that is little: leave it out, and "
                "the processes have copies"
            )

    def located(self) -> Mapping[str, str]:
        """Its whole path, where it is on the disk: it leads there from any folder."""
        path = Path(self.from_).expanduser()
        return {"from": str(path.absolute())} if path.exists() else {}

    def beginning(self, found: Checkpoint | None) -> Any:
        """The model before the first update; with a checkpoint, one that its weights can be put into."""
        # All weights are in the checkpoint, but those that adapters stand beside.
        model: Any = load(self.from_) if found is None or self.lora is not None else load_folder(found.path)
        if not isinstance(model.tokenizer, Tokenizer):
            raise ValueError(f"model.from = {self.from_!r} has no tokenizer, so that it cannot read the data")
        if model.is_encoder_decoder:
            self._check_frame(model, bos_and_eos(model.tokenizer)[0])
        return model

    def _check_frame(self, model: Any, bos: int) -> None:
        """Refuse an encoder–decoder that is asked in another way than data would teach it."""
        if model.ends.bos != bos or model.source_ends.source_bos:
            raise ValueError(
                f"model.from = {self.from_!r} begins its answers with token {model.ends.bos}"
                + (" and its sources with a BOS" if model.source_ends.source_bos else "")
                + f", and data is framed as BOS … EOS with BOS {bos}, of targets only: what it would learn "
                "is not what it would be asked. Such models (BART, Marian, T5) are decoded, not trained"
            )

    def prepare(self, model: Any) -> str | None:
        """Let only that learn which shall; returns the fingerprint of what adapters stand beside."""
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


def check_base(path: Path, before: str | None, now: str | None, name: str) -> None:
    """Refuse to go on with adapters beside another model than they were learnt for."""
    if before is not None and before != now:
        raise ValueError(
            f"{path}: its adapters were learnt for another model than model.from = {name!r} is now: bring "
            "that model back, or begin a new run with another --output"
        )

"""Interfaces between the packages: models, decoders, transforms, objectives (protocols only).

    train:     text → data.Batch → model.hidden → head → objective → training.loop → run folder
    generate:  prompt → tokenizer → StepModel.step → transforms → pick → decoder → text

Shapes: N rows (hypotheses in a batch), V vocabulary, D width, T time. `logp` is a normalised log-probability;
a higher score is better; −∞ means "cut".
"""

from unspool.interfaces.decoding import (
    BindablePick,
    BindableTransform,
    CountingPick,
    Decoder,
    Pick,
    StopCondition,
    Transform,
)
from unspool.interfaces.model import (
    Abilities,
    AttentionReading,
    AttentionStack,
    Carrying,
    Detokenizer,
    FinishReason,
    Forking,
    Head,
    Infilling,
    Joining,
    Layered,
    Model,
    PromptReading,
    Rewindable,
    SenseHead,
    SourceAttentionReading,
    State,
    Step,
    StepModel,
    TokenizerLike,
)
from unspool.interfaces.training import Clock, Feed, Hook, Loss, LossHead, Objective, PreparedLoss, Trainable

__all__ = [
    "Abilities",
    "AttentionReading",
    "AttentionStack",
    "BindablePick",
    "BindableTransform",
    "Carrying",
    "Clock",
    "CountingPick",
    "Decoder",
    "Detokenizer",
    "Feed",
    "FinishReason",
    "Forking",
    "Head",
    "Hook",
    "Infilling",
    "Joining",
    "Layered",
    "Loss",
    "LossHead",
    "Model",
    "Objective",
    "Pick",
    "PreparedLoss",
    "PromptReading",
    "Rewindable",
    "SenseHead",
    "SourceAttentionReading",
    "State",
    "Step",
    "StepModel",
    "StopCondition",
    "TokenizerLike",
    "Trainable",
    "Transform",
]

"""The seams of the house: what its rooms promise each other, and nothing else.

    train:     text → data.Batch → model.hidden → head → objective → training.loop → run folder
    generate:  prompt → text → StepModel.step → transforms → pick → search → text

Shapes: N rows (hypotheses decoded side by side), V vocabulary, D width, T time.
`logp` is always a normalised log-probability; a higher score is always better; −∞ means "cut".
"""

from unspool.protocols.abilities import (
    Abilities,
    AttentionReading,
    Carrying,
    Forking,
    Infilling,
    Joining,
    Layered,
    PromptReading,
    Rewindable,
    SenseHead,
    SourceAttentionReading,
)
from unspool.protocols.decoding import Bindable, Counting, Judge, Pick, Preparing, Search, Transform
from unspool.protocols.model import AttentionStack, Head, Model, State, Step, StepModel
from unspool.protocols.text import Finish, Text, TextWatch
from unspool.protocols.training import (
    Clock,
    Feed,
    Hook,
    Loss,
    LossHead,
    Objective,
    PreparedLoss,
    Trainable,
)

__all__ = [
    "Abilities",
    "AttentionReading",
    "AttentionStack",
    "Bindable",
    "Carrying",
    "Clock",
    "Counting",
    "Feed",
    "Finish",
    "Forking",
    "Head",
    "Hook",
    "Infilling",
    "Joining",
    "Judge",
    "Layered",
    "Loss",
    "LossHead",
    "Model",
    "Objective",
    "Pick",
    "PreparedLoss",
    "Preparing",
    "PromptReading",
    "Rewindable",
    "Search",
    "SenseHead",
    "SourceAttentionReading",
    "State",
    "Step",
    "StepModel",
    "Text",
    "TextWatch",
    "Trainable",
    "Transform",
]

"""Interfaces between the packages: models, decoders, transforms, objectives (protocols only).

    train:     text → data.Batch → model.hidden → head → objective → training.loop → run folder
    generate:  prompt → tokenizer → StepModel.step → transforms → pick → decoder → text

Shapes: N rows (hypotheses in a batch), V vocabulary, D width, T time. `logp` is a normalised log-probability;
a higher score is better; −∞ means "cut".
"""

from unspool.interfaces.decoding import (
    BindablePick as BindablePick,
    BindableTransform as BindableTransform,
    CountingPick as CountingPick,
    Decoder as Decoder,
    Pick as Pick,
    StopCondition as StopCondition,
    Transform as Transform,
)
from unspool.interfaces.model import (
    Abilities as Abilities,
    AttentionReading as AttentionReading,
    AttentionStack as AttentionStack,
    Detokenizer as Detokenizer,
    FinishReason as FinishReason,
    Forking as Forking,
    Head as Head,
    Infilling as Infilling,
    Joining as Joining,
    Layered as Layered,
    Model as Model,
    PromptReading as PromptReading,
    Rewindable as Rewindable,
    SourceAttentionReading as SourceAttentionReading,
    State as State,
    Step as Step,
    StepModel as StepModel,
    TokenizerLike as TokenizerLike,
)
from unspool.interfaces.training import (
    Clock as Clock,
    Feed as Feed,
    Hook as Hook,
    Loss as Loss,
    LossHead as LossHead,
    Objective as Objective,
    PreparedLoss as PreparedLoss,
    Trainable as Trainable,
)

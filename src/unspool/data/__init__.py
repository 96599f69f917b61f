"""Files → batches: read, encode once, hold out, bucket by length or pack into blocks.

Names are imported on first use: reading prompts does not need torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.data.batches import (
        BATCHES as BATCHES,
        Batches as Batches,
        Bucketed as Bucketed,
        Packed as Packed,
    )
    from unspool.data.bucketing import BucketFeed as BucketFeed, bucketed_batches as bucketed_batches
    from unspool.data.datasets import DATA as DATA
    from unspool.data.examples import Examples as Examples, Sequences as Sequences
    from unspool.data.known_languages.made_data import LanguageData as LanguageData, TaskData as TaskData
    from unspool.data.line_formats import (
        JSONL as JSONL,
        TSV as TSV,
        Dialogues as Dialogues,
        LabelledLines as LabelledLines,
        Lines as Lines,
        Parallel as Parallel,
        TaggedLines as TaggedLines,
    )
    from unspool.data.packing import PackFeed as PackFeed, stream_batches as stream_batches
    from unspool.data.preparation import PreparedData as PreparedData, prepare as prepare
    from unspool.data.rows import Data as Data, OwnTokenizer as OwnTokenizer

__all__, __getattr__, __dir__ = lazy_exports(__name__)

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
        BucketFeed as BucketFeed,
        Packed as Packed,
        PackFeed as PackFeed,
        bucketed_batches as bucketed_batches,
        stream_batches as stream_batches,
    )
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
    from unspool.data.preparation import DATA as DATA, PreparedData as PreparedData, prepare as prepare
    from unspool.data.rows import Data as Data, OwnTokenizer as OwnTokenizer

__all__, __getattr__, __dir__ = lazy_exports(__name__)

"""Files → batches: read, encode once, hold out, bucket by length or pack into blocks."""

from unspool.data.batches import BATCHES, Batches, Bucketed, Packed
from unspool.data.bucketing import BucketFeed, whole
from unspool.data.datasets import DATA, Data, OwnText
from unspool.data.examples import Examples, Sequences
from unspool.data.known_languages.made_data import Language, Task
from unspool.data.line_formats import JSONL, TSV, Dialogues, LabelledLines, Lines, Parallel, TaggedLines
from unspool.data.packaged import Packaged
from unspool.data.packing import LaneFeed, PackFeed, whole_lanes, whole_stream
from unspool.data.preparation import Prepared, prepare

__all__ = [
    "BATCHES",
    "DATA",
    "JSONL",
    "TSV",
    "Batches",
    "BucketFeed",
    "Bucketed",
    "Data",
    "Dialogues",
    "Examples",
    "LabelledLines",
    "LaneFeed",
    "Language",
    "Lines",
    "OwnText",
    "PackFeed",
    "Packaged",
    "Packed",
    "Parallel",
    "Prepared",
    "Sequences",
    "TaggedLines",
    "Task",
    "prepare",
    "whole",
    "whole_lanes",
    "whole_stream",
]

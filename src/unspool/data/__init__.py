"""Files → batches: read, encode once, hold out, bucket by length or pack into blocks."""

from unspool.data.batches import BATCHES, Batches, Bucketed, Packed
from unspool.data.bucketing import BucketFeed, bucketed_batches
from unspool.data.datasets import DATA, Data, OwnText
from unspool.data.examples import Examples, Sequences
from unspool.data.known_languages.made_data import LanguageData, TaskData
from unspool.data.line_formats import JSONL, TSV, Dialogues, LabelledLines, Lines, Parallel, TaggedLines
from unspool.data.packaged import Packaged
from unspool.data.packing import CarriedFeed, PackFeed, carried_batches, stream_batches
from unspool.data.preparation import PreparedData, prepare

__all__ = [
    "BATCHES",
    "DATA",
    "JSONL",
    "TSV",
    "Batches",
    "BucketFeed",
    "Bucketed",
    "CarriedFeed",
    "Data",
    "Dialogues",
    "Examples",
    "LabelledLines",
    "LanguageData",
    "Lines",
    "OwnText",
    "PackFeed",
    "Packaged",
    "Packed",
    "Parallel",
    "PreparedData",
    "Sequences",
    "TaggedLines",
    "TaskData",
    "bucketed_batches",
    "carried_batches",
    "prepare",
    "stream_batches",
]

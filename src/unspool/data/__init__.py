"""Files → batches: read, encode once, hold out, bucket by length or pack into blocks."""

from unspool.data.batches import BATCHES, Batches, Bucketed, Packed
from unspool.data.bucket import BucketFeed, whole
from unspool.data.datasets import DATA, Data, OwnText
from unspool.data.dialogues import Dialogues
from unspool.data.examples import Examples, Sequences
from unspool.data.jsonl import JSONL
from unspool.data.labelled_lines import LabelledLines
from unspool.data.lane_feed import LaneFeed, whole_lanes
from unspool.data.languages.made_data import Language, Task
from unspool.data.lines import Lines
from unspool.data.pack import PackFeed, whole_stream
from unspool.data.packaged import Packaged
from unspool.data.parallel import Parallel
from unspool.data.preparation import Prepared, prepare
from unspool.data.tagged_lines import TaggedLines
from unspool.data.tsv import TSV

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

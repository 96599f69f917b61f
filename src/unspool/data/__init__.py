"""Files → batches: read, encode once, hold out, bucket by length or pack into blocks."""

from unspool.data.batches import BATCHES, Batches, Bucketed, Packed
from unspool.data.bucket import BucketFeed, whole
from unspool.data.examples import Examples, Sequences
from unspool.data.kinds import DATA, Data
from unspool.data.lines import Lines
from unspool.data.pack import PackFeed, whole_stream
from unspool.data.parallel import Parallel
from unspool.data.prepare import Prepared, prepare

__all__ = [
    "BATCHES",
    "DATA",
    "Batches",
    "BucketFeed",
    "Bucketed",
    "Data",
    "Examples",
    "Lines",
    "PackFeed",
    "Packed",
    "Parallel",
    "Prepared",
    "Sequences",
    "prepare",
    "whole",
    "whole_stream",
]

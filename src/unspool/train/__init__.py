"""Training that survives anything: the loop, its optimizer and schedules, checkpoints, many processes."""

from unspool.train.finite import Diverged
from unspool.train.loop import Stopped, training
from unspool.train.recipe import Recipe, read_recipe
from unspool.train.run import train
from unspool.train.settings import TrainSettings
from unspool.train.state import Run
from unspool.train.update import Update

__all__ = [
    "Diverged",
    "Recipe",
    "Run",
    "Stopped",
    "TrainSettings",
    "Update",
    "read_recipe",
    "train",
    "training",
]

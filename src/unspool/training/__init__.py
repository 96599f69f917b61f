"""Training that survives anything: the loop, its optimizer and schedules, checkpoints, many processes."""

from unspool.training.loop import Stopped, training_loop
from unspool.training.recipe import Recipe, read_recipe
from unspool.training.run import train
from unspool.training.run_state import Run
from unspool.training.settings import TrainSettings
from unspool.training.update import Diverged, Update

__all__ = [
    "Diverged",
    "Recipe",
    "Run",
    "Stopped",
    "TrainSettings",
    "Update",
    "read_recipe",
    "train",
    "training_loop",
]

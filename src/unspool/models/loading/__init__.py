"""Load and save models: run folders, Hugging Face folders, GGUF files, and models by name."""

from unspool.models.loading.model_names import load
from unspool.models.loading.run_folder import load_folder, save

__all__ = ["load", "load_folder", "save"]

"""Weights of the GPT-2 and Llama families: run folders, Hugging Face folders, GGUF files, names."""

from unspool.models.loading.model_names import load
from unspool.models.loading.run_folder import load_folder, save, save_folder

__all__ = ["load", "load_folder", "save", "save_folder"]

"""Weights of the GPT-2 and Llama families: run folders, Hugging Face folders, GGUF files, names."""

from unspool.models.load.folder import load_folder, save_folder
from unspool.models.load.names import load
from unspool.models.load.saving import save

__all__ = ["load", "load_folder", "save", "save_folder"]

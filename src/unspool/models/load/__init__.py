"""Weights of the GPT-2 and Llama families: run folders, Hugging Face folders, GGUF files, names."""

from unspool.models.load.folder import load_folder, save_folder
from unspool.models.load.names import load

__all__ = ["load", "load_folder", "save_folder"]

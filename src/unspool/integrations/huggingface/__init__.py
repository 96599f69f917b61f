"""Hugging Face transformers: run its models here, export ours, and use our decoders in its `generate`."""

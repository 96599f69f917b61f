"""Hugging Face's transformers: their models as ours, ours as theirs, and our decoders in their `generate`."""

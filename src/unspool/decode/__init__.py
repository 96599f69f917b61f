"""Decoding: from a model's next-token distributions to text. It knows models only by their protocol."""

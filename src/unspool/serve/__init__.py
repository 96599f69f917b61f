"""Serve models over HTTP: OpenAI's API, continuous batching, and a page that shows how decoders work."""

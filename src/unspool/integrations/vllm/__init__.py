"""vLLM: decoders of this package as a logits processor, chosen per request, on both model runners."""

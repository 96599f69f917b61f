"""vLLM: our decoders in its sampler, asked for by each request, on either of its model runners."""

"""llama.cpp, through llama-cpp-python: GGUF files of any family that it knows, as models of ours."""

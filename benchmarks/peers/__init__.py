"""Engines that generate.py and load.py set side by side, each in a process of its own.

work.py             what is asked of an engine: a mode, a number of rows
conversation.py     an engine's end of the pipe; JSON lines
process.py          our end of it
lineup.py           who takes part, with which weights
weight_files.py     the same weights in everybody's format, written once
gguf_writing.py     GGUF files: requantised, or of random numbers
starting.py         what it costs an engine to be there
rounds.py           seconds in turn, ratios within rounds
comparison.py       all of that for some modes
tables.py           what is shown of them

hugging_face.py  ctranslate2_engine.py  llama_cpp_engine.py  openvino_engine.py  onnxruntime_engine.py
vllm_engine.py  unspool_engine.py  read_bandwidth.py
"""

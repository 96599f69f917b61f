"""llama.cpp's own server, which the package xllamacpp carries, until it is stopped: a peer of `unspool serve`.

python -m venv peer && peer/bin/pip install xllamacpp
peer/bin/python benchmarks/peers/llama_server.py model.gguf --at-once 32 --threads 2
python benchmarks/serve.py --url http://127.0.0.1:8011 --model NAME --name llama.cpp
"""

import argparse
import signal


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gguf")
    parser.add_argument("--at-once", type=int, default=32, help="rows of its batch")
    parser.add_argument("--context", type=int, default=256, help="tokens of each row")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--port", type=int, default=8011)
    args = parser.parse_args()
    import xllamacpp

    told = xllamacpp.CommonParams()
    told.model.path, told.port = args.gguf, args.port
    told.n_parallel, told.n_ctx = args.at_once, args.at_once * args.context
    told.cpuparams.n_threads = told.cpuparams_batch.n_threads = args.threads
    server = xllamacpp.Server(told)
    print(f"running on {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()

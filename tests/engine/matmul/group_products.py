"""The products of interleaved weights that this processor supports."""

from unspool.engine.interleaved_matmul import Float32Product, VnniProduct
from unspool.engine.simd_bytes import HAS_VNNI

PRODUCTS = [Float32Product(), *([VnniProduct()] if HAS_VNNI else [])]

"""The INT8 products that this processor supports."""

from unspool.engine.int8_matmul import Float32Product, VnniProduct
from unspool.engine.simd_bytes import HAS_VNNI

PRODUCTS = [Float32Product(), *([VnniProduct()] if HAS_VNNI else [])]

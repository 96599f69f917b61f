"""The ways of multiplying whole numbers that this processor can be asked for."""

from unspool.engine.int8_matmul import ByDigits, ByFloats
from unspool.engine.simd_bytes import BYTE_PRODUCTS

WAYS = [ByFloats(), *([ByDigits()] if BYTE_PRODUCTS else [])]

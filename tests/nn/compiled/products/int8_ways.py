"""The ways of multiplying whole numbers that this processor can be asked for."""

from unspool.kernels.byte_products import BYTE_PRODUCTS
from unspool.nn.compiled.products.int8_digits import ByDigits
from unspool.nn.compiled.products.int8_floats import ByFloats

WAYS = [ByFloats(), *([ByDigits()] if BYTE_PRODUCTS else [])]

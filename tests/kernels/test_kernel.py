from unspool.kernels.kernel import entry, kernel, small_kernel


@kernel
def twice(x):
    return 2 * x


@small_kernel
def thrice(x):
    return 3 * x


@entry
def five_times(x):
    return twice(x) + thrice(x)


def test_a_kernel_is_compiled_into_the_entry_that_calls_it():
    assert five_times(4) == 20
    assert five_times.nopython_signatures

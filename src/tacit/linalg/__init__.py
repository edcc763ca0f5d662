"""Small dense linear algebra as compiled kernels: the lowest layer of the package."""

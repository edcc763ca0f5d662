"""Small dense linear algebra: the lowest layer of the package."""

"""How kernels run: interpreted at once, compiled when that pays.  See `tacit._compile.kernels`."""

from tacit._compile.entries import Entry, allocating_entry, as_entry, entry, generic_entry
from tacit._compile.kernels import (
    allocating_kernel,
    generic_kernel,
    inlined_kernel,
    kernel,
    resolved_by_type,
    when_compiler_loads,
)
from tacit._compile.modes import compile_now, compiling_here, compiling_now

__all__ = [
    "Entry",
    "allocating_entry",
    "allocating_kernel",
    "as_entry",
    "compile_now",
    "compiling_here",
    "compiling_now",
    "entry",
    "generic_entry",
    "generic_kernel",
    "inlined_kernel",
    "kernel",
    "resolved_by_type",
    "when_compiler_loads",
]

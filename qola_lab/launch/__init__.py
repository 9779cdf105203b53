"""Access to libraries without a GPU: the fake HIP runtime, and callers of C++ entry points."""

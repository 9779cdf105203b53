"""qola's version; MODULE.bazel has the same."""

__version__ = "0.1.0"

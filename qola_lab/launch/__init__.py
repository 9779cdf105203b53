"""C++ that calls the entry points of libraries by name, for launches without a GPU."""

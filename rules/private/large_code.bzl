"""LARGE_CODE: where a library's functions lie, so that exceptions find their handlers."""

# A linker script for -Wl,-T; the file says why.
LARGE_CODE = Label("//rules/private:large_code.ld")

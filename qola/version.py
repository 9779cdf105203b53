"""qola's version, which MODULE.bazel repeats, and the address of its documentation."""

__version__ = "0.1.0"

REPOSITORY = "https://github.com/OWNER/qola"
"""The published repository. OWNER is a placeholder until the first release."""


def docs_url(page: str) -> str:
    """Return the URL of a page of the documentation, such as guide/cmake.md."""
    return f"{REPOSITORY}/blob/main/docs/{page}"

"""docs_url: places of pages of the documentation in messages."""

_DOCS = "docs/"  # The same as DOCS in qola/common/version.py.

def docs_url(page):
    """Returns the place of a page of the documentation, such as guide/cmake.md."""
    return _DOCS + page

"""docs_url: addresses of documentation in messages; qola/version.py has the same."""

def docs_url(page):
    """Returns the URL of a page of the documentation, such as guide/cmake.md."""
    return "https://github.com/OWNER/qola/blob/main/docs/" + page

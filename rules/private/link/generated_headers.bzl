"""generated_headers: files that generators of a module wrote, for its sources to include."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def generated_headers(name, files):
    """Declares <name>.generated where there are any.

    Args:
      name: target name, the module's.
      files: files in <name>/generated, by which sources include them.

    Returns:
      the labels to depend on.
    """
    if not files:
        return []
    cc_library(
        name = name + ".generated",
        includes = [name + "/generated"],
        textual_hdrs = files,
    )
    return [name + ".generated"]

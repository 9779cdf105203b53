"""Patches that an AITER source's tag names, as part of fetching it."""

load(":host_python.bzl", "run_qola")

PATCH_ATTRS = {
    "patches_dir": attr.string(doc = "Directory of patches: absolute, or relative to the root module; none when empty."),
    "python_packages": attr.label(default = "@qola_pip_runtime//:requirements.txt", doc = "What qola imports."),
}

def watch_patches(rctx, directory):
    """Makes a repository depend on the patches of a directory.

    Args:
      rctx: the repository context.
      directory: path of the directory, which need not be there.
    """
    rctx.watch(directory)
    if directory.is_dir:
        for entry in directory.readdir(watch = "yes"):
            if entry.basename.endswith(".patch") or entry.basename.endswith(".diff"):
                rctx.watch(entry)

def prepare_patches(rctx):
    """Watches the patches of a repository rule with PATCH_ATTRS; to be called before it fetches.

    Args:
      rctx: the repository context.

    Returns:
      struct for apply_patches; None where there are no patches to apply.
    """
    if not rctx.attr.patches_dir:
        return None
    directory = rctx.workspace_root.get_child(rctx.attr.patches_dir)
    if rctx.attr.patches_dir.startswith("/"):
        directory = rctx.path(rctx.attr.patches_dir)
    watch_patches(rctx, directory)
    return struct(
        directory = directory,
        python_path = [rctx.path(rctx.attr.python_packages).dirname.get_child("site")],
    )

def apply_patches(rctx, prepared):
    """Applies patches to the tree in the repository's directory; a reject fails the fetch.

    Args:
      rctx: the repository context.
      prepared: what prepare_patches returned.

    Returns:
      struct(pins, touched): the patches as AITER.json has them, in the order
      applied, and the files they changed, relative to the tree.
    """
    if not prepared:
        return struct(pins = [], touched = [])
    run_qola(rctx, "qola.patches", [
        "--patches-dir",
        str(prepared.directory),
        "--display",
        rctx.attr.patches_dir,
        "--place",
        rctx.attr.place,
        "--root",
        ".",
        "--output",
        "patched.json",
    ], python_path = prepared.python_path)
    result = json.decode(rctx.read("patched.json"))
    rctx.delete("patched.json")
    return struct(pins = result["patches"], touched = result["touched"])

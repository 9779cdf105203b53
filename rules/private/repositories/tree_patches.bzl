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

    Returns:
      Whether there are any.
    """
    rctx.watch(directory)
    entries = directory.readdir(watch = "yes") if directory.is_dir else []
    patches = [e for e in entries if e.basename.endswith(".patch") or e.basename.endswith(".diff")]
    for patch in patches:
        rctx.watch(patch)
    return bool(patches)

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
    if not watch_patches(rctx, directory):
        # Before minutes of fetching.
        fail("""
qola: AiterError: no patches
  place:    {place}
  found:    patches_dir = "{name}": {found}
  expected: a directory with *.patch or *.diff files: absolute, or relative to the root module
  fix:      git format-patch -o {directory} BASE in an AITER checkout, or remove patches_dir""".format(
            directory = directory,
            found = "which holds no patch" if directory.exists else "no such directory",
            name = rctx.attr.patches_dir,
            place = rctx.attr.place,
        ))
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
    run_qola(rctx, "qola.fetch.patches", [
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

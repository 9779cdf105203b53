"""Patches that an AITER source's tag names, as part of fetching it."""

load("//rules/private:finding.bzl", "finding")
load(":host_python.bzl", "PACKAGES_ATTRS", "run_qola")

PATCH_ATTRS = PACKAGES_ATTRS | {
    "patches_dir": attr.string(doc = "Directory of patches: absolute, or relative to the root module; none when empty."),
    "place": attr.string(doc = "Where the tag or the pin stands, for error messages.", mandatory = True),
}

def watch_patches(rctx, directory):
    """Makes a repository depend on the patches of a directory, if it is there.

    Args:
      rctx: the repository context.
      directory: path of the directory.

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
      The directory, for apply_patches; None where there are no patches to apply.
    """
    if not rctx.attr.patches_dir:
        return None
    directory = rctx.workspace_root.get_child(rctx.attr.patches_dir)
    if rctx.attr.patches_dir.startswith("/"):
        directory = rctx.path(rctx.attr.patches_dir)
    if not watch_patches(rctx, directory):
        # Before minutes of fetching.
        fail(finding(
            "AiterError: no patches",
            place = rctx.attr.place,
            found = "patches_dir = \"{}\": {}".format(
                rctx.attr.patches_dir,
                "which holds no patch" if directory.exists else "no such directory",
            ),
            expected = "a directory with *.patch or *.diff files: absolute, or relative to the root module",
            fix = "git format-patch -o {} BASE in an AITER checkout, or remove patches_dir".format(directory),
        ))

    # Fetched before the tree, too.
    rctx.path(rctx.attr.python_packages)
    return directory

def apply_patches(rctx, directory):
    """Applies patches to the tree in the repository's directory; a reject fails the fetch.

    Args:
      rctx: the repository context.
      directory: what prepare_patches returned.

    Returns:
      struct(pins, touched): the patches as AITER.json has them, in the order
      applied, and the files they changed, relative to the tree.
    """
    if not directory:
        return struct(pins = [], touched = [])
    run_qola(rctx, "qola.fetch.patches", {
        "display": rctx.attr.patches_dir,
        "output": "patched.json",
        "patches-dir": directory,
        "place": rctx.attr.place,
        "root": ".",
    }, packages = rctx.attr.python_packages)
    result = json.decode(rctx.read("patched.json"))
    rctx.delete("patched.json")
    return struct(pins = result["patches"], touched = result["touched"])

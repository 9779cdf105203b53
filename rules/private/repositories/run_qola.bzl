"""Runs qola's Python in a repository rule."""

load("@rules_hip//repositories:host_python.bzl", "PIP_ENVIRONMENT", "host_python")
load("@rules_hip//repositories:progress.bzl", "say")

# What the runtime packages of Python are in, for rules that run what imports them.
PACKAGES_ATTRS = {
    "python_packages": attr.label(default = "@qola_pip_runtime//:requirements.txt", doc = "What qola imports."),
}

def _environment(rctx, root, packages):
    site = [str(rctx.path(requirements).dirname.get_child("site")) for requirements in packages]
    return PIP_ENVIRONMENT | {
        # Generators iterate over sets in places; a plan must not depend on it.
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": ":".join([str(root)] + site),
        "PYTHONSAFEPATH": "1",
    }

def _words(options):
    words = []
    for name, value in options.items():
        if value == True:
            words.append("--" + name)
        elif type(value) == "list":
            words += ["--{}={}".format(name, item) for item in value]
        elif value != None and value != False:
            words.append("--{}={}".format(name, value))
    return words

def run_qola(rctx, module, options, fatal = True, packages = []):
    """Runs a module of qola's Python package.

    Args:
      rctx: the repository context.
      module: name of the module, such as qola.repository.
      options: dict from an option's name to its value: a text or path, a list
        for one that may be repeated, True for one without a value, None or
        False to leave it out.
      fatal: whether to fail, with the module's message, where it fails.
      packages: labels of the requirements whose packages the module imports.

    Returns:
      The module's message where it failed, "" where it did not.
    """
    root = rctx.path(Label("//:MODULE.bazel")).dirname
    python = host_python(rctx)
    environment = _environment(rctx, root, packages)

    # Watch only the packages that the module imports (qola/common/packages.py): other edits rerun nothing.
    sources = rctx.execute([python, "-B", "-s", "-m", "qola.common.packages", module], environment = environment)
    if sources.return_code != 0:
        fail("\n" + sources.stderr.strip())
    for source in sources.stdout.splitlines():
        rctx.watch(root.get_child(source))
    result = rctx.execute(
        [python, "-B", "-s", "-m", module] + _words(options),
        environment = environment,
        timeout = 3600,
    )
    if result.return_code != 0:
        error = (result.stderr or result.stdout).strip()
        if fatal:
            fail("\n" + error)
        return error
    if result.stderr.strip():
        say(rctx, result.stderr.strip())
    return ""

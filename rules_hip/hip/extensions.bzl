"""hip: the module extension that declares the ROCm."""

load("//lib:finding.bzl", "finding")
load("//repositories:pip_repository.bzl", "pip_repository")
load("//rocm:repositories.bzl", "rocm_headers_repository", "rocm_repository", "rocm_sdk_repository")

def _hip_impl(mctx):
    tags = [tag for module in mctx.modules if module.is_root for tag in module.tags.toolkit]
    if len(tags) > 1:
        fail(finding(
            "two ROCm installations",
            place = "MODULE.bazel of the root module: hip.toolkit",
            found = ", ".join([tag.path or "mirrors = {}".format(tag.mirrors) for tag in tags]),
            expected = "one",
            fix = "remove the others",
        ))
    mirrors = tags[0].mirrors if tags else []
    rocm_repository(name = "rocm", path = tags[0].path if tags else "")
    rocm_sdk_repository(name = "rocm_sdk", mirrors = mirrors)
    rocm_headers_repository(name = "rocm_headers", mirrors = mirrors)

    # The reader of code objects, for hip_code_object; and the emulator.
    pip_repository(name = "hip_pip_code_object", requirements = Label("//third_party/python:report.txt"))
    pip_repository(name = "hip_pip_emulator", requirements = Label("//third_party/python:verify.txt"))

    # Every fetch is pinned by digest. The repository of a local ROCm watches its files.
    return mctx.extension_metadata(reproducible = True)

_toolkit = tag_class(
    attrs = {
        "mirrors": attr.string_list(doc = "Debian mirrors, such as http://HOST/debian, to try first for the pinned ROCm's packages."),
        "path": attr.string(doc = "Prefix of an installed ROCm to use in place of the pinned one."),
    },
    doc = "The ROCm to use, by default the pinned one from Debian's archive. Only the root module's tag has an effect. QOLA_ROCM in the environment takes precedence.",
)

hip = module_extension(
    implementation = _hip_impl,
    doc = """Declares the ROCm.

| Repository | Content |
| --- | --- |
| `@rocm` | the chosen ROCm: its toolchain and libraries, which //hip and //rocm offer |
| `@rocm_sdk` | the pinned compiler and HIP |
| `@rocm_headers` | headers of ROCm's libraries |
| `@hip_pip_code_object`, `@hip_pip_emulator` | Python packages of the reader of code objects, and of the emulator |
""",
    tag_classes = {"toolkit": _toolkit},
)

"""The module extension: AITER sources, manifests and ROCm, as tags in MODULE.bazel.

Example:
    qola = use_extension("@qola//rules:extensions.bzl", "qola")
    qola.manifest(name = "mine", file = "//:mine.toml")
    use_repo(qola, "qola_mine")
"""

load("//rules/private:finding.bzl", "finding")
load("//rules/private/repositories:aiter.bzl", "aiter_git", "aiter_local", "aiter_wheel")
load("//rules/private/repositories:manifest_repository.bzl", "manifest_repository")
load("//rules/private/repositories:module_python.bzl", "python_headers")
load("//rules/private/repositories:pip_repository.bzl", "pip_repository")
load("//rules/private/repositories:prebuilt_repository.bzl", "prebuilt_repository")
load("//rules/rocm:repositories.bzl", "rocm_headers_repository", "rocm_repository")
load("//rules/torch:torch_repository.bzl", "torch_repository")

_DEFAULT_AITER = "aiter"

def _place(module, tag_class, tag):
    """Where a tag stands, as an error names it."""
    return "MODULE.bazel of {}: qola.{}(name = \"{}\")".format(module.name or "the root module", tag_class, tag.name)

def _collect(mctx, tag_class, deciding = []):
    """Tags of one class by name, as struct(tag, module, place), each once.

    Two modules that use one name mean the same where the `deciding` attributes
    of their tags are the same; without any they never do.
    """
    found = {}
    for module in mctx.modules:
        for tag in getattr(module.tags, tag_class):
            place = _place(module, tag_class, tag)
            if tag.name in found:
                other = found[tag.name].tag
                if not deciding or [a for a in deciding if getattr(tag, a) != getattr(other, a)]:
                    _fail_twice(tag.name, found[tag.name].place, place)
                continue
            found[tag.name] = struct(module = module, place = place, tag = tag)
    return found

def _fail_twice(name, first, second):
    fail(finding(
        "one name for two things",
        place = second,
        found = "name = \"{}\", which {} has too".format(name, first),
        expected = "a name of its own: it becomes the name of a repository",
        fix = "rename one of them",
    ))

def _display(label):
    """A label as the path its user knows."""
    if label.workspace_name:
        return str(label)
    return label.package + "/" + label.name if label.package else label.name

# Of each kind of source: its rule, the attributes that the tag hands on, those that say which AITER
# it is (as qola.prebuilt.identity has it), and those by which two tags mean the same.
_SOURCES = {
    "git": struct(
        attributes = ["commit", "remote"],
        deciding = ["commit", "patches_dir", "remote"],
        identity = ["commit"],
        rule = aiter_git,
    ),
    "local": struct(attributes = ["path"], deciding = [], identity = [], rule = aiter_local),
    "wheel": struct(
        attributes = ["package", "sha256", "version"],
        deciding = ["package", "patches_dir", "sha256"],
        identity = ["package", "sha256", "version"],
        rule = aiter_wheel,
    ),
}

def _attributes(tag, names):
    return {name: getattr(tag, name) for name in names}

def _check_patches_dir(entry):
    """Refuses a path that would be looked for in another module than the one it is written in."""
    path = entry.tag.patches_dir
    if path and not path.startswith("/") and not entry.module.is_root:
        fail(finding(
            "patches of a dependency",
            place = entry.place,
            found = "patches_dir = \"{}\"".format(path),
            expected = "patches_dir in the root module alone, to which the path is relative",
            fix = "use a commit that has the changes: qola.aiter_git(name = \"{}\", ...)".format(entry.tag.name),
        ))

def _declare_trees(mctx):
    """Declares a repository per AITER source.

    Returns:
      struct(places, tags): where each is declared, and struct(kind, tag), by name.
    """
    declared = {}
    tags = {}
    for kind in ["wheel", "git", "local"]:
        source = _SOURCES[kind]
        for name, entry in _collect(mctx, "aiter_" + kind, source.deciding).items():
            if name in declared:
                _fail_twice(name, declared[name], entry.place)
            if name == _DEFAULT_AITER and not entry.module.is_root:
                # It would change what every other module's manifests mean.
                fail(finding(
                    "a dependency declares the default AITER source",
                    place = entry.place,
                    found = "name = \"{}\"".format(name),
                    expected = "a name of its own: only the root module may say what \"{}\" is".format(name),
                    fix = "qola.aiter_{}(name = \"{}_of_{}\", ...), and aiter = the same in its manifests".format(
                        kind,
                        name,
                        entry.module.name,
                    ),
                ))
            declared[name] = entry.place
            tags[name] = struct(kind = kind, tag = entry.tag)
            _check_patches_dir(entry)
            source.rule(
                name = name,
                patches_dir = entry.tag.patches_dir,
                place = entry.place,
                **_attributes(entry.tag, source.attributes)
            )
    if _DEFAULT_AITER not in declared:
        pin = json.decode(mctx.read(Label("//third_party/aiter:wheel.json")))

        # For where the wheel is gone (qola/fetch/wheel.py); it does not say which wheel it is.
        pin.pop("commit")
        aiter_wheel(name = _DEFAULT_AITER, place = "third_party/aiter/wheel.json", **pin)
        declared[_DEFAULT_AITER] = "third_party/aiter/wheel.json"
        tags[_DEFAULT_AITER] = struct(kind = "wheel", tag = struct(patches_dir = "", **({"package": "amd-aiter"} | pin)))
    return struct(places = declared, tags = tags)

def _declare_prebuilt(mctx, trees, manifests):
    """Declares a repository per prebuilt() tag."""
    for name, entry in _collect(mctx, "prebuilt").items():
        _check_manifest_name(name, entry.place)
        if entry.tag.manifest not in manifests:
            fail(finding(
                "prebuilt libraries of an unknown manifest",
                place = entry.place,
                found = "manifest = \"{}\"".format(entry.tag.manifest),
                expected = "one of " + (", ".join(sorted(manifests)) or "none, since there is no qola.manifest"),
                fix = "declare qola.manifest(name = \"{}\", file = ...)".format(entry.tag.manifest),
            ))
        manifest = manifests[entry.tag.manifest].tag
        source = trees.tags[manifest.aiter]
        identity = {"kind": source.kind} | _attributes(source.tag, _SOURCES[source.kind].identity)
        prebuilt_repository(
            name = "qola_prebuilt_" + name,
            aiter = json.encode(identity),
            architectures = manifest.architectures,
            display = _display(manifest.file),
            manifest = manifest.file,
            mode = manifest.mode,
            offline = entry.tag.offline,
            patches_dir = source.tag.patches_dir,
            place = entry.place,
            public_key = entry.tag.public_key,
            repository = "qola_" + entry.tag.manifest,
            urls = entry.tag.urls,
        )

def _declare_rocm(mctx):
    """Declares @qola_rocm and @qola_rocm_headers; the root module decides where they come from."""
    tags = [tag for module in mctx.modules if module.is_root for tag in module.tags.rocm]
    if len(tags) > 1:
        fail(finding(
            "two ROCm installations",
            place = "MODULE.bazel of the root module: qola.rocm",
            found = ", ".join([tag.path or "mirrors = {}".format(tag.mirrors) for tag in tags]),
            expected = "one",
            fix = "remove the others",
        ))
    mirrors = tags[0].mirrors if tags else []
    rocm_repository(name = "qola_rocm", mirrors = mirrors, path = tags[0].path if tags else "")
    rocm_headers_repository(name = "qola_rocm_headers", mirrors = mirrors)

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"

def _check_manifest_name(name, place):
    taken = name in ["rocm", "rocm_headers", "rocm_sdk", "python", "torch"] or [p for p in ["pip_", "prebuilt_"] if name.startswith(p)]
    if taken or not name or name[0] not in _LETTERS[:26] or [c for c in name.elems() if c not in _LETTERS]:
        fail(finding(
            "a manifest's name becomes the repository @qola_<name>",
            place = place,
            found = "name = \"{}\"".format(name),
            expected = "small letters, digits and _, a letter first; not rocm, rocm_headers, rocm_sdk, python, torch, pip_... or prebuilt_...",
            fix = "rename it",
        ))

def _check_spec(entry):
    tag = entry.tag
    both = [n for n in ["architectures", "mode", "override_aiter_commit", "require"] if tag.spec and getattr(tag, n)]
    if both:
        fail(finding(
            "two answers to one question",
            place = entry.place,
            found = "spec = \"{}\" and {}".format(tag.spec, ", ".join(both)),
            expected = "one of the two: a spec replaces all of these attributes",
            fix = "remove " + ", ".join(both),
        ))

def _qola_impl(mctx):
    trees = _declare_trees(mctx)
    _declare_rocm(mctx)
    for name in ["bundle", "report", "runtime", "verify"]:
        pip_repository(name = "qola_pip_" + name, requirements = Label("//third_party/python:{}.txt".format(name)))

    # For modules that Python imports; fetched when one is built.
    pip_repository(
        name = "qola_pip_pybind11",
        headers = "pybind11/include",
        requirements = Label("//third_party/python:pybind11.txt"),
    )

    # What writes type stubs of torch modules, for wheels of them.
    pip_repository(
        name = "qola_pip_stubs",
        requirements = Label("//third_party/python:stubs.txt"),
    )

    # For kernels in Triton; fetched when one is compiled. What it has for other vendors' GPUs, 40 % of it, is left out.
    pip_repository(
        name = "qola_pip_triton",
        requirements = Label("//third_party/python:triton.txt"),
        without = ["triton/backends/nvidia"],
    )
    python_headers(name = "qola_python")
    torch_repository(name = "qola_torch")

    manifests = _collect(mctx, "manifest")
    for name, entry in manifests.items():
        aiter = entry.tag.aiter
        _check_manifest_name(name, entry.place)
        _check_spec(entry)
        if aiter not in trees.places:
            fail(finding(
                "unknown AITER source",
                place = entry.place,
                found = "aiter = \"{}\"".format(aiter),
                expected = "one of " + ", ".join(sorted(trees.places)),
                fix = "declare qola.aiter_wheel, qola.aiter_git or qola.aiter_local with that name",
            ))
        manifest_repository(
            name = "qola_" + name,
            aiter = "@{}//:AITER.json".format(aiter),
            aiter_name = aiter,
            aiter_path = getattr(trees.tags[aiter].tag, "path", ""),
            architectures = entry.tag.architectures,
            display = _display(entry.tag.file),
            manifest = entry.tag.file,
            manifest_name = name,
            mode = entry.tag.mode,
            override_aiter_commit = entry.tag.override_aiter_commit,
            require = entry.tag.require,
            spec = entry.tag.spec,
        )
    _declare_prebuilt(mctx, trees, manifests)

    # Every fetch is pinned by digest or commit, and what is detected on the
    # machine (ROCm) is a repository of its own that watches it.
    return mctx.extension_metadata(reproducible = True)

_PATCHES_DIR = attr.string(doc = "Directory with *.patch and *.diff files to apply in the order of their names: absolute, or relative to the root module.")

_aiter_wheel = tag_class(
    attrs = {
        "name": attr.string(default = _DEFAULT_AITER, doc = "Name of the source, and of its repository."),
        "package": attr.string(default = "amd-aiter", doc = "Name on the package index."),
        "patches_dir": _PATCHES_DIR,
        "sha256": attr.string(doc = "Digest of the wheel, 64 hexadecimal digits.", mandatory = True),
        "version": attr.string(doc = "Exact version, for example 0.1.7.post2.dev18.", mandatory = True),
    },
    doc = "An AITER source: a wheel, fetched by the machine's pip and verified.",
)

_aiter_git = tag_class(
    attrs = {
        "commit": attr.string(doc = "Full commit id, 40 hexadecimal digits.", mandatory = True),
        "name": attr.string(default = _DEFAULT_AITER, doc = "Name of the source, and of its repository."),
        "patches_dir": _PATCHES_DIR,
        "remote": attr.string(doc = "What git fetches from.", mandatory = True),
    },
    doc = "An AITER source: a commit with its submodules.",
)

_aiter_local = tag_class(
    attrs = {
        "name": attr.string(default = _DEFAULT_AITER, doc = "Name of the source, and of its repository."),
        "patches_dir": _PATCHES_DIR,
        "path": attr.string(doc = "Directory, absolute or relative to the root module.", mandatory = True),
    },
    doc = "An AITER source: a directory on this machine.",
)

_manifest = tag_class(
    attrs = {
        "aiter": attr.string(default = _DEFAULT_AITER, doc = "Name of the AITER source to plan against; by default the wheel that qola pins."),
        "architectures": attr.string_list(doc = "Archs instead of the manifest's."),
        "file": attr.label(doc = "The TOML manifest.", mandatory = True),
        "mode": attr.string(doc = "Build mode of modules that have none of their own, instead of the manifest's: cpp_itfs for C++ libraries, pybind for modules that Python imports.", values = ["", "cpp_itfs", "pybind"]),
        "name": attr.string(doc = "Name of the manifest; its repository is @qola_<name>.", mandatory = True),
        "override_aiter_commit": attr.bool(doc = "Plan against the AITER source although the manifest's aiter_commit names another, which a warning says, or its patches_dir other patches."),
        "require": attr.string(doc = "Fail unless each direction of Composable Kernel is followed this far: filtered (variants select kernels) or linked (each call of the dispatch is known to have its kernel).", values = ["", "linked", "filtered"]),
        "spec": attr.label(doc = "JSON file with the choices that replace the manifest's, as `qola build` writes it; in place of architectures, mode, override_aiter_commit and require."),
    },
    doc = "A manifest: becomes @qola_<name> with one target per module.",
)

_prebuilt = tag_class(
    attrs = {
        "manifest": attr.string(doc = "Name of the qola.manifest whose libraries are meant.", mandatory = True),
        "name": attr.string(doc = "Its repository is @qola_prebuilt_<name>.", mandatory = True),
        "offline": attr.bool(doc = "Look in directories and among earlier downloads only."),
        "public_key": attr.string(doc = "minisign's public key of the signer; by default the manifest's [prebuilt].public_key."),
        "urls": attr.string_list(doc = "URLs, or directories relative to the root module, asked in this order; by default the manifest's [prebuilt].urls."),
    },
    doc = "Libraries of a manifest that are fetched where a source has them, and built where none has: @qola_prebuilt_<name> with a target per module, and one for the bundle.",
)

_rocm = tag_class(
    attrs = {
        "mirrors": attr.string_list(doc = "Debian mirrors, such as http://HOST/debian, to ask first for the pinned ROCm's packages."),
        "path": attr.string(doc = "Prefix of an installed ROCm to build with in place of the pinned one."),
    },
    doc = "Where ROCm comes from. Only the root module's tag counts; without one it is the ROCm that qola pins, fetched from Debian's archive. QOLA_ROCM in the environment goes before it.",
)

qola = module_extension(
    implementation = _qola_impl,
    doc = """Declares qola's repositories.

Per AITER source NAME: @NAME (the tree); per manifest NAME: @qola_NAME (plan,
kernel instances, dispatch, libraries), planned when a target of it is asked
for; per prebuilt NAME: @qola_prebuilt_NAME (libraries and bundle, fetched or
built); and @qola_rocm (toolchain) with @qola_rocm_headers (headers of ROCm's
libraries, for modules of Python's). The pinned compiler, @qola_rocm_sdk, is
declared by the module qola_compile.
""",
    tag_classes = {
        "aiter_git": _aiter_git,
        "aiter_local": _aiter_local,
        "aiter_wheel": _aiter_wheel,
        "manifest": _manifest,
        "prebuilt": _prebuilt,
        "rocm": _rocm,
    },
)

"""The module extension: AITER sources, manifests and ROCm, as tags in MODULE.bazel.

Example:
    qola = use_extension("@qola//rules:extensions.bzl", "qola")
    qola.manifest(name = "mine", file = "//:mine.toml")
    use_repo(qola, "qola_mine")
"""

load("@rules_hip//lib:finding.bzl", "finding")
load("@rules_hip//repositories:pip_repository.bzl", "pip_repository")
load("//rules/private/repositories:aiter.bzl", "OWN_PATCHES", "aiter_git", "aiter_local", "aiter_wheel")
load("//rules/private/repositories:manifest_repository.bzl", "manifest_repository")
load("//rules/private/repositories:module_python.bzl", "python_headers")
load("//rules/private/repositories:prebuilt_repository.bzl", "prebuilt_repository")
load("//rules/private/repositories:unusable_repository.bzl", "unusable_repository")
load("//rules/torch:torch_repository.bzl", "torch_repository")

_DEFAULT_AITER = "aiter"

def _place(module, tag_class, tag):
    """Returns the place of a tag, for errors."""
    return "MODULE.bazel of {}: qola.{}(name = \"{}\")".format(module.name or "the root module", tag_class, tag.name)

def _declared_twice(first, second, expected, fix):
    return finding(
        "a name is declared twice",
        place = second.place,
        found = "name = \"{}\", also declared by {}".format(first.tag.name, first.place),
        expected = expected,
        fix = fix,
    )

def _entries(mctx, tag_class):
    """Returns the tags of one class, as struct(key, module, place, tag). The key is unique in the workspace."""
    return [
        struct(key = (module.name, module.version, tag.name), module = module, place = _place(module, tag_class, tag), tag = tag)
        for module in mctx.modules
        for tag in getattr(module.tags, tag_class)
    ]

def repositories_of(entries):
    """Returns which tags each repository could be of.

    Everybody finds the tag `left` of the module `dep` as `dep.left`. As `left`, too, unless the root module has a tag of
    that name, or another dependency.

    Args:
      entries: list of struct(module, tag, ...), tags of one class.

    Returns:
      dict from names of repositories, without a prefix, to lists of entries. A repository with several is of none.
    """
    found = {}
    for entry in entries:
        found.setdefault(entry.tag.name, []).append(entry)
        if entry.module.name:
            found.setdefault("{}.{}".format(entry.module.name, entry.tag.name), []).append(entry)
    return {name: [entry for entry in claims if entry.module.is_root] or claims for name, claims in found.items()}

def _declare(entries, prefix, problem_of, declare):
    """Declares the repositories of tags; those that cannot be have an error, which only their users see.

    Args:
      entries: result of _entries.
      prefix: beginning of the repositories' names.
      problem_of: function from an entry to an error, or None.
      declare: function that declares the repository with a name for an entry.
    """
    for name, claims in repositories_of(entries).items():
        entry = claims[0]
        repository = prefix + name
        problem = problem_of(entry)
        if len(claims) > 1:
            problem = _declared_twice(
                entry,
                claims[1],
                "a name that one module declares once",
                "rename one of them" if entry.module.name == claims[1].module.name else "use_repo(qola, {0}{1} = \"{0}{2}.{1}\")".format(
                    prefix,
                    entry.tag.name,
                    entry.module.name,
                ),
            )
        if problem:
            unusable_repository(name = repository, message = problem)
        else:
            declare(repository, entry)
        if entry.module.is_root:
            for other in entries:
                if other.tag.name == name and not other.module.is_root:
                    # buildifier: disable=print
                    print("\nqola: {}: @{} is the root module's. This one is @{}{}.{}".format(
                        other.place,
                        repository,
                        prefix,
                        other.module.name,
                        name,
                    ))

def _display(label):
    """Returns a label as a path for messages."""
    if label.workspace_name:
        return str(label)
    return label.package + "/" + label.name if label.package else label.name

# For each kind of source: its rule, the attributes that the tag passes on, the attributes that
# identify the AITER (see qola.prebuilt.key), and those in which tags of the same name must agree.
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

def _source_problem(claims):
    """Returns the error of an AITER source, or None.

    Args:
      claims: list of struct(entry, kind), the tags of this name.
    """
    first = claims[0]
    deciding = _SOURCES[first.kind].deciding
    for other in claims[1:]:
        same = other.kind == first.kind and deciding and _attributes(other.entry.tag, deciding) == _attributes(first.entry.tag, deciding)
        if not same:
            return _declared_twice(
                first.entry,
                other.entry,
                "unique names, or equal tags: they become names of repositories",
                "rename one of them",
            )
    path = first.entry.tag.patches_dir
    if path and path != OWN_PATCHES and not path.startswith("/") and not first.entry.module.is_root:
        # It would be resolved in the root module.
        return finding(
            "patches of a dependency",
            place = first.entry.place,
            found = "patches_dir = \"{}\"".format(path),
            expected = "patches_dir only in the root module, to which the path is relative",
            fix = "use a commit that has the changes: qola.aiter_git(name = \"{}\", ...)".format(first.entry.tag.name),
        )
    return None

def _declare_trees(mctx):
    """Declares a repository per AITER source.

    Returns:
      struct(defaults, problems, tags). tags: dict from the name of a source to struct(kind, tag). problems: dict from the
      name of a source that cannot be used to its error. defaults: dict from a dependency that declares the default
      source, which it must not, to the error of manifests that use it.
    """
    claims = {}
    defaults = {}
    for kind in ["wheel", "git", "local"]:
        for entry in _entries(mctx, "aiter_" + kind):
            name = entry.tag.name
            if name == _DEFAULT_AITER and not entry.module.is_root:
                # It would change the source of other modules' manifests.
                defaults[entry.module.name] = finding(
                    "a dependency declares the default AITER source",
                    place = entry.place,
                    found = "name = \"{}\"".format(name),
                    expected = "another name: only the root module may declare \"{}\"".format(name),
                    fix = "qola.aiter_{}(name = \"{}_of_{}\", ...), and aiter = the same in its manifests".format(
                        kind,
                        name,
                        entry.module.name,
                    ),
                )
                continue
            claims.setdefault(name, []).append(struct(entry = entry, kind = kind))
    problems = {name: _source_problem(found) for name, found in claims.items()}
    for name, found in claims.items():
        if problems[name]:
            unusable_repository(name = name, message = problems[name])
            continue
        entry = found[0].entry
        source = _SOURCES[found[0].kind]
        source.rule(
            name = name,
            patches_dir = entry.tag.patches_dir,
            place = entry.place,
            **_attributes(entry.tag, source.attributes)
        )
    tags = {name: struct(kind = found[0].kind, tag = found[0].entry.tag) for name, found in claims.items()}
    if _DEFAULT_AITER not in tags:
        pin = json.decode(mctx.read(Label("//third_party/aiter:wheel.json")))

        # Used if the wheel is gone (qola/fetch/wheel.py); not part of the wheel's identity.
        pin.pop("commit")
        aiter_wheel(name = _DEFAULT_AITER, place = "third_party/aiter/wheel.json", **pin)
        tags[_DEFAULT_AITER] = struct(kind = "wheel", tag = struct(patches_dir = "", **({"package": "amd-aiter"} | pin)))
    return struct(defaults = defaults, problems = problems, tags = tags)

def _declare_prebuilt(mctx, trees, manifests):
    """Declares a repository per prebuilt() tag."""
    repositories = repositories_of(manifests)
    entries = _entries(mctx, "prebuilt")
    for entry in entries:
        _check_manifest_name(entry.tag.name, entry.place)

    def manifest_of(entry):
        own = [manifest for manifest in manifests if manifest.key == entry.key[:2] + (entry.tag.manifest,)]
        return (own or repositories.get(entry.tag.manifest, []) + [None])[0]

    def problem_of(entry):
        manifest = manifest_of(entry)
        if manifest:
            return _manifest_problem(manifest, trees)
        return finding(
            "prebuilt libraries of an unknown manifest",
            place = entry.place,
            found = "manifest = \"{}\"".format(entry.tag.manifest),
            expected = "a declared manifest: " + (", ".join(sorted([name for name in repositories if "." not in name])) or "there is none"),
            fix = "declare qola.manifest(name = \"{}\", file = ...)".format(entry.tag.manifest),
        )

    def declare(name, entry):
        manifest = manifest_of(entry)
        source = trees.tags[manifest.tag.aiter]
        identity = {"kind": source.kind} | _attributes(source.tag, _SOURCES[source.kind].identity)
        built = [repository for repository, claims in repositories.items() if [claim.key for claim in claims] == [manifest.key]]
        prebuilt_repository(
            name = name,
            aiter = json.encode(identity),
            archs = manifest.tag.architectures,
            display = _display(manifest.tag.file),
            manifest = manifest.tag.file,
            mode = manifest.tag.mode,
            offline = entry.tag.offline,
            patches_dir = source.tag.patches_dir,
            place = entry.place,
            public_key = entry.tag.public_key,
            # Without one it is declared twice, as this repository's message says.
            repository = "qola_" + (built + [manifest.tag.name])[0],
            urls = entry.tag.urls,
        )

    _declare(entries, "qola_prebuilt_", problem_of, declare)

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"

def _check_manifest_name(name, place):
    taken = name in ["python", "torch"] or [p for p in ["pip_", "prebuilt_"] if name.startswith(p)]
    if taken or not name or name[0] not in _LETTERS[:26] or [c for c in name.elems() if c not in _LETTERS]:
        fail(finding(
            "a manifest's name becomes the repository @qola_<name>",
            place = place,
            found = "name = \"{}\"".format(name),
            expected = "lower-case letters, digits and _, starting with a letter; not python, torch, pip_... or prebuilt_...",
            fix = "rename it",
        ))

def _manifest_problem(entry, trees):
    """Returns the error of a manifest() tag, or None."""
    tag = entry.tag
    both = [n for n in ["architectures", "mode", "override_aiter_commit", "require"] if tag.spec and getattr(tag, n)]
    if both:
        return finding(
            "a spec together with attributes that it replaces",
            place = entry.place,
            found = "spec = \"{}\" and {}".format(tag.spec, ", ".join(both)),
            expected = "either spec or these attributes",
            fix = "remove " + ", ".join(both),
        )
    if tag.aiter not in trees.tags:
        return finding(
            "unknown AITER source",
            place = entry.place,
            found = "aiter = \"{}\"".format(tag.aiter),
            expected = "one of " + ", ".join(sorted(trees.tags)),
            fix = "declare qola.aiter_wheel, qola.aiter_git or qola.aiter_local with that name",
        )
    if tag.aiter == _DEFAULT_AITER and entry.module.name in trees.defaults:
        return trees.defaults[entry.module.name]
    return trees.problems.get(tag.aiter)

def _declare_manifests(mctx, trees):
    """Declares a repository per manifest() tag; returns the tags."""
    entries = _entries(mctx, "manifest")
    for entry in entries:
        _check_manifest_name(entry.tag.name, entry.place)

    def declare(name, entry):
        tag = entry.tag
        manifest_repository(
            name = name,
            aiter = "@{}//:AITER.json".format(tag.aiter),
            aiter_name = tag.aiter,
            aiter_path = getattr(trees.tags[tag.aiter].tag, "path", ""),
            archs = tag.architectures,
            display = _display(tag.file),
            manifest = tag.file,
            manifest_name = tag.name,
            mode = tag.mode,
            override_aiter_commit = tag.override_aiter_commit,
            require = tag.require,
            spec = tag.spec,
        )

    _declare(entries, "qola_", lambda entry: _manifest_problem(entry, trees), declare)
    return entries

def _qola_impl(mctx):
    trees = _declare_trees(mctx)
    for name in ["bundle", "runtime"]:
        pip_repository(name = "qola_pip_" + name, requirements = Label("//third_party/python:{}.txt".format(name)))

    # For modules that Python imports; fetched when such a module is built.
    pip_repository(
        name = "qola_pip_pybind11",
        headers = "pybind11/include",
        requirements = Label("//third_party/python:pybind11.txt"),
    )

    # XLA's headers for handlers; fetched when a wheel with JAX functions is built. Leaves out XLA itself, most of the size.
    pip_repository(
        name = "qola_pip_jaxlib",
        headers = "jaxlib/include",
        platform = "manylinux_2_27_x86_64",
        python_version = "3.11",
        requirements = Label("//third_party/python:jaxlib.txt"),
        without = ["jaxlib/libjax_common.so"],
    )

    # Writes type stubs for wheels of torch modules.
    pip_repository(
        name = "qola_pip_stubs",
        requirements = Label("//third_party/python:stubs.txt"),
    )

    # For generators that read tuning tables; fetched when a plan runs one. With bytecode: a plan starts one per module.
    pip_repository(
        name = "qola_pip_generators",
        directory = True,
        requirements = Label("//third_party/python:generators.txt"),
    )

    # For kernels in Triton; fetched when such a kernel is compiled. Leaves out other vendors' backends, 40 % of the size.
    pip_repository(
        name = "qola_pip_triton",
        requirements = Label("//third_party/python:triton.txt"),
        without = ["triton/backends/nvidia"],
    )
    python_headers(name = "qola_python")
    torch_repository(name = "qola_torch")

    _declare_prebuilt(mctx, trees, _declare_manifests(mctx, trees))

    # Every fetch is pinned by digest or commit.
    return mctx.extension_metadata(reproducible = True)

_PATCHES_DIR = attr.string(doc = "Directory with *.patch and *.diff files to apply in the order of their names: absolute, or relative to the root module; `qola:patches` for [qola's own](../guide/health.md#proven-faults).")

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
        "remote": attr.string(doc = "URL or path to fetch from.", mandatory = True),
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
        "aiter": attr.string(default = _DEFAULT_AITER, doc = "Name of the AITER source; by default the wheel that qola pins."),
        "architectures": attr.string_list(doc = "Archs to use in place of the manifest's."),
        "file": attr.label(doc = "The TOML manifest.", mandatory = True),
        "mode": attr.string(doc = "Build mode to use in place of the manifest's, for modules without a mode: cpp_itfs for C++ libraries, pybind for modules that Python imports.", values = ["", "cpp_itfs", "pybind"]),
        "name": attr.string(doc = "Name of the manifest, unique in the module; its repository is @qola_<name>, and @qola_<module>.<name>.", mandatory = True),
        "override_aiter_commit": attr.bool(doc = "Accept an AITER source with another commit than the manifest's aiter_commit, or with other patches than its patches_dir, with a warning."),
        "require": attr.string(doc = "Fail unless qola follows each direction of Composable Kernel to this level: filtered (variants select kernels) or linked (each call of the dispatch has its kernel).", values = ["", "linked", "filtered"]),
        "spec": attr.label(doc = "JSON file of `qola build` with choices that replace the manifest's; excludes architectures, mode, override_aiter_commit and require."),
    },
    doc = "A manifest. Declares @qola_<name> with one target per module.",
)

_prebuilt = tag_class(
    attrs = {
        "manifest": attr.string(doc = "Name of the qola.manifest: the module's own, or that of another module.", mandatory = True),
        "name": attr.string(doc = "Its repository is @qola_prebuilt_<name>, and @qola_prebuilt_<module>.<name>.", mandatory = True),
        "offline": attr.bool(doc = "Use only directories and earlier downloads."),
        "public_key": attr.string(doc = "minisign's public key of the signer; by default the manifest's [prebuilt].public_key."),
        "urls": attr.string_list(doc = "Sources in order: URLs, or directories relative to the root module; by default the manifest's [prebuilt].urls."),
    },
    doc = "Prebuilt libraries of a manifest, built if no source has them. Declares @qola_prebuilt_<name> with a target per module, and one for the bundle.",
)

qola = module_extension(
    implementation = _qola_impl,
    doc = """Declares qola's repositories.

| Repository | Content |
| --- | --- |
| `@<aiter>` | the tree of an AITER source |
| `@qola_<manifest>` | plan, kernel instances, dispatch and libraries of a manifest; planned when a target of it is requested. The root module's, if several modules have a manifest of this name |
| `@qola_<module>.<manifest>` | the same for a manifest of this module, root or not |
| `@qola_prebuilt_<name>` | libraries and bundle, fetched or built |
""",
    tag_classes = {
        "aiter_git": _aiter_git,
        "aiter_local": _aiter_local,
        "aiter_wheel": _aiter_wheel,
        "manifest": _manifest,
        "prebuilt": _prebuilt,
    },
)

"""The bundle's software bill of materials, in SPDX 2.3, written and validated by spdx-tools."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from license_expression import get_spdx_licensing
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    ExtractedLicensingInfo,
    File,
    FileType,
    Package,
    PackagePurpose,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.spdx_element_utils import calculate_package_verification_code
from spdx_tools.spdx.writer.json.json_writer import write_document_to_stream

from qola.bundle.licenses import License
from qola.files import sha256_of_json
from qola.layout import RECORD, SBOM

_DOCUMENT = "SPDXRef-DOCUMENT"
_BUNDLE = "SPDXRef-bundle"
_ROCM = "SPDXRef-rocm"


@dataclass(frozen=True)
class BundleFile:
    """A file of the bundle.

    Attributes:
        sha1, sha256: digests; SPDX asks for the first of every file.
        components: keys of licenses.COMPONENTS that it is made from; none for a user's own.
    """

    path: str
    sha1: str
    sha256: str
    components: tuple[str, ...]


def document(
    record: Mapping[str, Any],
    files: Sequence[BundleFile],
    licenses: Mapping[str, License],
    *,
    name: str,
    created: datetime,
) -> Document:
    """Return the bill of materials of a bundle.

    Args:
        files: every file of the bundle but this one and manifest.json, the record of a run.
        created: what the document says about when it was made.
    """
    lines = [sha256_of_json(record), *(f"{f.sha256} {f.path}" for f in files)]
    digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    spdx_files = [_file(file, licenses) for file in files]
    packages = [
        _bundle(record, spdx_files, licenses, name),
        *_components(record, licenses),
        *_tools(record),
    ]
    relationships = [Relationship(_DOCUMENT, RelationshipType.DESCRIBES, _BUNDLE)]
    relationships += [
        Relationship(_BUNDLE, RelationshipType.CONTAINS, file.spdx_id) for file in spdx_files
    ]
    relationships += [
        Relationship(_file_id(file.path), RelationshipType.GENERATED_FROM, _component_id(component))
        for file in files
        for component in file.components
    ]
    relationships += [
        Relationship(tool.spdx_id, RelationshipType.BUILD_TOOL_OF, _BUNDLE)
        for tool in _tools(record)
    ]
    relationships += [
        Relationship(_file_id(file.path), RelationshipType.DYNAMIC_LINK, _ROCM)
        for file in files
        if file.path.endswith(".so")
    ]
    return Document(
        CreationInfo(
            spdx_version="SPDX-2.3",
            spdx_id=_DOCUMENT,
            name=name,
            # Has to be unique, and the same for the same bundle: it names the content.
            document_namespace=f"https://spdx.org/spdxdocs/{name}-{digest}",
            creators=[Actor(ActorType.TOOL, f"qola-{record['qola']}")],
            created=created,
        ),
        packages=packages,
        files=spdx_files,
        relationships=relationships,
        extracted_licensing_info=[
            ExtractedLicensingInfo(license_id=license.spdx, extracted_text=license.text)
            for license in licenses.values()
            if license.spdx.startswith("LicenseRef-")
        ],
    )


def to_json(document: Document) -> str:
    """Return the text of sbom.spdx.json.

    Raises:
        ValueError: the library finds the document invalid.
    """
    stream = io.StringIO()
    write_document_to_stream(document, stream, validate=True)
    return stream.getvalue() + "\n"


def _expression(licenses: Mapping[str, License], components: Sequence[str]) -> Any:
    spdx = sorted({licenses[component].spdx for component in components})
    return _licensing().parse(" AND ".join(spdx))


@cache
def _licensing() -> Any:
    # Reads its index of licenses each time.
    return get_spdx_licensing()


def _component_id(component: str) -> str:
    return f"SPDXRef-{component.replace('_', '-')}"


def _file_id(path: str) -> str:
    # Paths that differ in other characters than an identifier may have stay apart by the digest.
    suffix = hashlib.sha256(path.encode()).hexdigest()[:8]
    return f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', path)}-{suffix}"


def _file(file: BundleFile, licenses: Mapping[str, License]) -> File:
    return File(
        name=f"./{file.path}",
        spdx_id=_file_id(file.path),
        checksums=[
            Checksum(ChecksumAlgorithm.SHA1, file.sha1),
            Checksum(ChecksumAlgorithm.SHA256, file.sha256),
        ],
        file_types=[_file_type(file.path)],
        license_concluded=_expression(licenses, file.components)
        if file.components
        else SpdxNoAssertion(),
        copyright_text=SpdxNoAssertion(),
    )


def _file_type(path: str) -> FileType:
    if path.startswith("bin/") or path.endswith((".a", ".qpack", ".so")):
        return FileType.BINARY
    if path.startswith("include/"):
        return FileType.SOURCE
    return FileType.DOCUMENTATION if path.startswith("licenses/") else FileType.TEXT


def _bundle(
    record: Mapping[str, Any], files: Sequence[File], licenses: Mapping[str, License], name: str
) -> Package:
    code = calculate_package_verification_code(list(files))
    code.excluded_files = [f"./{RECORD}", f"./{SBOM}"]
    return Package(
        spdx_id=_BUNDLE,
        name=name,
        download_location=SpdxNoAssertion(),
        files_analyzed=True,
        verification_code=code,
        license_concluded=_expression(licenses, list(licenses)),
        license_declared=SpdxNoAssertion(),
        copyright_text=SpdxNoAssertion(),
        primary_package_purpose=PackagePurpose.LIBRARY,
        summary=f"AMD GPU attention libraries for {', '.join(record['archs'])}",
    )


def _components(record: Mapping[str, Any], licenses: Mapping[str, License]) -> list[Package]:
    aiter = record["inputs"]["aiter"]
    source = aiter["source"]
    location, references = _origin(source)
    patched = "".join(
        f"; patched with {patch['name']} (sha256 {patch['sha256']})" for patch in aiter["patches"]
    )

    def package(component: str, name: str, purpose: PackagePurpose, **more: Any) -> Package:
        expression = _expression(licenses, [component])
        return Package(
            spdx_id=_component_id(component),
            name=name,
            files_analyzed=False,
            license_concluded=expression,
            license_declared=expression,
            copyright_text=SpdxNoAssertion(),
            primary_package_purpose=purpose,
            **{"download_location": SpdxNoAssertion(), **more},
        )

    about: dict[str, tuple[str, PackagePurpose, dict[str, Any]]] = {
        "aiter": (
            "AITER",
            PackagePurpose.SOURCE,
            {
                "version": aiter["id"] or aiter["version"] or None,
                "download_location": location,
                "checksums": [Checksum(ChecksumAlgorithm.SHA256, source["sha256"])]
                if "sha256" in source
                else [],
                "external_references": references,
                "source_info": f"from a {source.get('kind', 'local')} source{patched}",
            },
        ),
        "composable_kernel": (
            "Composable Kernel",
            PackagePurpose.SOURCE,
            {"source_info": "the copy within the AITER source of this document"},
        ),
        "qola": ("qola", PackagePurpose.APPLICATION, {"version": record["qola"]}),
    }
    # A bundle of kernels in Triton alone has nothing of the others.
    return [
        package(component, name, purpose, **more)
        for component, (name, purpose, more) in about.items()
        if component in licenses
    ]


def _origin(
    source: Mapping[str, str],
) -> tuple[str | SpdxNoAssertion, list[ExternalPackageRef]]:
    """Return where an AITER source can be had: a download location, and references."""
    if source.get("kind") == "wheel":
        # Which index it came from is the building machine's own choice, and not stated.
        purl = f"pkg:pypi/{source['package']}@{source['version']}"
        category = ExternalPackageRefCategory.PACKAGE_MANAGER
        return SpdxNoAssertion(), [ExternalPackageRef(category, "purl", purl)]
    if "remote" in source and "commit" in source:
        return f"git+{source['remote']}@{source['commit']}", []
    return SpdxNoAssertion(), []


def _tools(record: Mapping[str, Any]) -> list[Package]:
    """Return what compiled the bundle's files."""
    compilers = {module["compiler"] for module in record["modules"] if "compiler" in module}
    return [_rocm(record), *map(_triton, sorted(compilers))]


def _triton(compiler: str) -> Package:
    return Package(
        spdx_id="SPDXRef-triton",
        name="Triton",
        version=compiler.removeprefix("triton "),
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        license_concluded=SpdxNoAssertion(),
        license_declared=SpdxNoAssertion(),
        copyright_text=SpdxNoAssertion(),
        primary_package_purpose=PackagePurpose.APPLICATION,
    )


def _rocm(record: Mapping[str, Any]) -> Package:
    toolchain = record["inputs"]["toolchain"]
    return Package(
        spdx_id=_ROCM,
        name="ROCm HIP",
        version=toolchain["hip_version"],
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        license_concluded=SpdxNoAssertion(),
        license_declared=SpdxNoAssertion(),
        copyright_text=SpdxNoAssertion(),
        source_info=f"with clang {toolchain['clang_version']}",
        primary_package_purpose=PackagePurpose.FRAMEWORK,
    )

"""Writes the bundle's software bill of materials in SPDX 2.3, validated by spdx-tools."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
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
from qola.bundle.record import BundleRecord
from qola.common.layout import RECORD, SBOM
from qola_base.files import sha256_of, sha256_of_json

_CONTENT = {False: "AMD GPU attention libraries", True: "Modules of AITER for its own Python"}
_DOCUMENT = "SPDXRef-DOCUMENT"
_BUNDLE = "SPDXRef-bundle"
_ROCM = "SPDXRef-rocm"


def document(
    record: BundleRecord,
    directory: Path,
    files: Mapping[str, Sequence[str]],
    licenses: Mapping[str, License],
    *,
    name: str,
    created: datetime,
) -> Document:
    """Return the bill of materials of a bundle.

    Args:
        directory: contains the files of the bundle.
        files: components of each file except this one and manifest.json, by path; keys of
            licenses.COMPONENTS, none for a user's own file.
    """
    files = dict(sorted(files.items()))
    spdx_files = [_file(directory, path, own, licenses) for path, own in files.items()]
    digests = [f"{f.checksums[1].value} {path}" for f, path in zip(spdx_files, files, strict=True)]
    lines = [sha256_of_json(record), *digests]
    digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    tools = _tools(record)
    packages = [_bundle(record, spdx_files, licenses, name), *_components(record, licenses), *tools]
    relationships = [Relationship(_DOCUMENT, RelationshipType.DESCRIBES, _BUNDLE)]
    relationships += [
        Relationship(_BUNDLE, RelationshipType.CONTAINS, file.spdx_id) for file in spdx_files
    ]
    relationships += [
        Relationship(_file_id(path), RelationshipType.GENERATED_FROM, _component_id(component))
        for path, components in files.items()
        for component in components
    ]
    relationships += [
        Relationship(tool.spdx_id, RelationshipType.BUILD_TOOL_OF, _BUNDLE) for tool in tools
    ]
    relationships += [
        Relationship(_file_id(path), RelationshipType.DYNAMIC_LINK, _ROCM)
        for path in files
        if path.endswith(".so")
    ]
    return Document(
        CreationInfo(
            spdx_version="SPDX-2.3",
            spdx_id=_DOCUMENT,
            name=name,
            # Unique, and equal for equal bundles: a digest of the content.
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
    """Return the text of sbom.spdx.json; raise ValueError if the document is invalid."""
    stream = io.StringIO()
    write_document_to_stream(document, stream, validate=True)
    return stream.getvalue() + "\n"


def _expression(licenses: Mapping[str, License], components: Sequence[str]) -> Any:
    spdx = sorted({licenses[component].spdx for component in components})
    return _licensing().parse(" AND ".join(spdx))


@cache
def _licensing() -> Any:
    # Cached: it reads its index of licenses at every call.
    return get_spdx_licensing()


def _component_id(component: str) -> str:
    return f"SPDXRef-{component.replace('_', '-')}"


def _file_id(path: str) -> str:
    # The digest distinguishes paths that differ only in characters forbidden in identifiers.
    suffix = hashlib.sha256(path.encode()).hexdigest()[:8]
    return f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', path)}-{suffix}"


def _file(
    directory: Path, path: str, components: Sequence[str], licenses: Mapping[str, License]
) -> File:
    # SPDX requires SHA-1 for every file.
    sha1 = hashlib.sha1((directory / path).read_bytes(), usedforsecurity=False).hexdigest()
    return File(
        name=f"./{path}",
        spdx_id=_file_id(path),
        checksums=[
            Checksum(ChecksumAlgorithm.SHA1, sha1),
            Checksum(ChecksumAlgorithm.SHA256, sha256_of(directory / path)),
        ],
        file_types=[_file_type(path)],
        license_concluded=_expression(licenses, components) if components else SpdxNoAssertion(),
        copyright_text=SpdxNoAssertion(),
    )


def _file_type(path: str) -> FileType:
    if path.startswith("bin/") or path.endswith((".a", ".qpack", ".so")):
        return FileType.BINARY
    if path.startswith("include/"):
        return FileType.SOURCE
    return FileType.DOCUMENTATION if path.startswith("licenses/") else FileType.TEXT


def _package(spdx_id: str, name: str, purpose: PackagePurpose, **more: Any) -> Package:
    """Return a package about which nothing is asserted except `more`."""
    unknown = ("download_location", "license_concluded", "license_declared", "copyright_text")
    values: dict[str, Any] = {key: SpdxNoAssertion() for key in unknown}
    values |= {"files_analyzed": False, "primary_package_purpose": purpose, **more}
    return Package(spdx_id=spdx_id, name=name, **values)


def _bundle(
    record: BundleRecord, files: Sequence[File], licenses: Mapping[str, License], name: str
) -> Package:
    code = calculate_package_verification_code(list(files))
    code.excluded_files = [f"./{RECORD}", f"./{SBOM}"]
    return _package(
        _BUNDLE,
        name,
        PackagePurpose.LIBRARY,
        files_analyzed=True,
        verification_code=code,
        license_concluded=_expression(licenses, list(licenses)),
        summary=f"{_CONTENT['aiter_jit' in record]} for {', '.join(record['archs'])}",
    )


def _components(record: BundleRecord, licenses: Mapping[str, License]) -> list[Package]:
    aiter = record["inputs"]["aiter"]
    source = aiter["source"]
    location, references = _origin(source)
    patched = "".join(
        f"; patched with {patch['name']} (sha256 {patch['sha256']})" for patch in aiter["patches"]
    )
    digests = [source["sha256"]] if "sha256" in source else []
    packages = []
    # A bundle with only kernels in Triton contains no other component than qola.
    for component in licenses:
        license = _expression(licenses, [component])
        more = {"license_concluded": license, "license_declared": license}
        name, purpose = component, PackagePurpose.SOURCE
        if component == "aiter":
            name = "AITER"
            more |= {
                "version": aiter["id"] or aiter["version"] or None,
                "download_location": location,
                "checksums": [Checksum(ChecksumAlgorithm.SHA256, value) for value in digests],
                "external_references": references,
                "source_info": f"from a {source.get('kind', 'local')} source{patched}",
            }
        elif component == "composable_kernel":
            name = "Composable Kernel"
            more |= {"source_info": "the copy within the AITER source of this document"}
        else:
            purpose = PackagePurpose.APPLICATION
            more |= {"version": record["qola"]}
        packages.append(_package(_component_id(component), name, purpose, **more))
    return packages


def _origin(source: Mapping[str, str]) -> tuple[str | SpdxNoAssertion, list[ExternalPackageRef]]:
    """Return download location and references of an AITER source."""
    if source.get("kind") == "wheel":
        # The index is a setting of the building machine, and not stated.
        purl = f"pkg:pypi/{source['package']}@{source['version']}"
        category = ExternalPackageRefCategory.PACKAGE_MANAGER
        return SpdxNoAssertion(), [ExternalPackageRef(category, "purl", purl)]
    if "remote" in source and "commit" in source:
        return f"git+{source['remote']}@{source['commit']}", []
    return SpdxNoAssertion(), []


def _tools(record: BundleRecord) -> list[Package]:
    """Return the compilers of the bundle's files."""
    toolchain = record["inputs"]["toolchain"]
    rocm = _package(
        _ROCM,
        "ROCm HIP",
        PackagePurpose.FRAMEWORK,
        version=toolchain["hip_version"],
        source_info=f"with clang {toolchain['clang_version']}",
    )
    compilers = {module["compiler"] for module in record["modules"] if "compiler" in module}
    triton = [
        _package(
            "SPDXRef-triton",
            "Triton",
            PackagePurpose.APPLICATION,
            version=compiler.removeprefix("triton "),
        )
        for compiler in sorted(compilers)
    ]
    return [rocm, *triton]

"""Checks the requirements of a bundle's files against the platform tag of a wheel.

The tags are defined by PEP 600. auditwheel, of the Python packaging project, has the libraries and
versions that each tag guarantees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import Policy, WheelPolicies

from qola.bundle.elf_versions import ElfNeeds, demangle, highest
from qola_base.errors import BundleError, Finding

#: The tag without guarantees about the system's libraries.
NO_POLICY = "linux_x86_64"

_LOADER = re.compile(r"ld-linux")


def check_platform(
    needs: Sequence[ElfNeeds], platform: str, external_libraries: Iterable[str]
) -> None:
    """Check files against the policy of a platform tag, such as manylinux_2_28_x86_64.

    Args:
        external_libraries: libraries outside of the policy that users of the wheel install, such
            as libamdhip64.so.7; libamdhip64.so stands for every version.

    Raises:
        BundleError: the policy is unknown, a file needs a library or version that the policy does
            not guarantee, or no file needs a declared external library.
    """
    external = set(external_libraries)
    needed = {name for file in needs for name in file.libraries}
    needed |= {_without_version(name) for name in needed}
    policies = sorted(WheelPolicies(libc=Libc.GLIBC, arch=Architecture.x86_64))
    policy = next((p for p in policies if platform in (p.name, *p.aliases)), None)
    if policy is None:
        raise BundleError(
            Finding(
                "platform",
                f'"{platform}"',
                f"one of {', '.join(p.name for p in reversed(policies))}",
            )
        )
    findings = [
        Finding(
            "external_libraries",
            f'"{name}"',
            "libraries that files of the bundle need",
            f'remove "{name}" from external_libraries',
        )
        for name in sorted(external - needed)
    ]
    if policy.name != NO_POLICY:
        findings += _violations(needs, policy, external, _fitting(needs, policies))
    if findings:
        raise BundleError(findings)


def _fitting(needs: Sequence[ElfNeeds], policies: Iterable[Policy]) -> str:
    """Return the tag of the lowest policy whose versions and symbols suffice."""
    # Sorted from linux_x86_64 (any system) and recent systems to the oldest.
    fitting: list[str] = [
        policy.name
        for policy in policies
        if not any(_missing(file, policy) or _forbidden(file, policy) for file in needs)
    ]
    return fitting[-1]


def _violations(
    needs: Iterable[ElfNeeds], policy: Policy, external: set[str], fitting: str
) -> list[Finding]:
    needs = tuple(needs)
    own = {file.path.rsplit("/", 1)[-1] for file in needs}
    fix = f'platform = "{fitting}", the oldest systems that can load these files'
    findings = []
    for file in needs:
        for version in highest(_missing(file, policy)):
            kind = version.partition("_")[0]
            symbols = file.symbols.get(version, ())
            found = f"{version} of {file.versions[version]}"
            if symbols:
                more = f" and {len(symbols) - 1} more" if len(symbols) > 1 else ""
                found += f", for {demangle(symbols[0])}{more}"
            allowed = highest(f"{kind}_{number}" for number in policy.symbol_versions[kind])
            promise = f"at most {', '.join(allowed)}" if allowed else f"no {kind}"
            findings.append(Finding(file.path, found, f"{promise}: {policy.name}", fix))
        for library, names in sorted(_forbidden(file, policy).items()):
            found = f"{', '.join(sorted(names))} of {library}"
            findings.append(Finding(file.path, found, f"none of these: {policy.name}", fix))
        for library in file.libraries:
            if library in policy.whitelist | external | own or _LOADER.match(library):
                continue
            if _without_version(library) in external:
                continue
            findings.append(
                Finding(
                    file.path,
                    f"needs {library}, which {policy.name} does not guarantee",
                    "libraries of the policy, of the bundle, or declared as external",
                    f'external_libraries = ["{library}"], if users of the wheel install it',
                )
            )
    return findings


def _without_version(library: str) -> str:
    """Return libamdhip64.so of libamdhip64.so.7."""
    return re.sub(r"(\.\d+)+$", "", library)


def _missing(file: ElfNeeds, policy: Policy) -> set[str]:
    """Return the versions that the policy does not guarantee."""
    missing = set()
    for version in file.versions:
        kind, _, number = version.partition("_")
        # Kinds unknown to a policy, such as hip, belong to external libraries.
        if kind in policy.symbol_versions and number not in policy.symbol_versions[kind]:
            missing.add(version)
    return missing


def _forbidden(file: ElfNeeds, policy: Policy) -> dict[str, frozenset[str]]:
    """Return symbols that some systems of the policy lack, by library."""
    return {
        library: found
        for library, symbols in policy.blacklist.items()
        if library in file.libraries and (found := symbols & file.undefined)
    }

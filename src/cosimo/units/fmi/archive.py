"""FMU archives: reading the description without extracting, and extracting safely into a folder that goes away again.

One folder per archive content and process: instances of the same FMU share it, the last one to close removes it, and
so do garbage collection and the end of the process; what a killed process leaves, the next one removes. Every archive
is checked when it is opened, before anything of it is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, CosimoError, require_regular
from cosimo.core.guarding import not_temporary, temporary, unwatched
from cosimo.core.storage import default_folder, file_digest, hold_folder, replacing
from cosimo.units.archives import ArchiveLimits, check_archive, parse_xml, require_text, show, validating
from cosimo.units.fmi.isolation import available, box, closed

DESCRIPTION = "modelDescription.xml"
LISTED = 1024  # archives whose members are remembered: more than a package holds, and a few megabytes
DAMAGE = (EOFError, zlib.error, NotImplementedError, RuntimeError, ValueError, struct.error, OverflowError)
"""What Python's reader raises on archives that are wrong inside, beside `BadZipFile`."""


@contextmanager
def open_archive(path: Path, limits: ArchiveLimits | None = None) -> Iterator[zipfile.ZipFile]:
    """The archive, checked and open for reading; whatever is wrong with it becomes one sentence that names the file."""
    limits = limits or ArchiveLimits.from_environment()
    _require_file(path)
    with naming_damage(path, f"FMU '{path}'", "export"), open_zip(path) as archive:
        check_archive(archive, str(path), limits)
        unpacked = sum(member.file_size for member in archive.infolist())
        if len(_listings) >= LISTED:
            _listings.clear()
        _listings[_version(path, limits)] = Listing(tuple(archive.namelist()), unpacked)
        yield archive


@contextmanager
def naming_damage(path: Path, label: str, make: str) -> Iterator[None]:
    """Whatever is wrong with an archive, called `label`, becomes one sentence; `make`: what to do with it again."""
    try:
        yield
    except zipfile.BadZipFile as error:
        begins = False
        with suppress(OSError), path.open("rb") as file:
            begins = file.read(2) == b"PK"
        damage = f"damaged or incomplete ({error})" if begins else "not a zip archive"
        raise ConfigurationError(f"{label} is {damage}; copy or {make} it again.") from None
    except DAMAGE as error:
        raise ConfigurationError(f"{label} cannot be unpacked ({error}); {make} it again.") from None
    except OSError as error:
        raise ConfigurationError(f"{label} cannot be read: {error.strerror or error}.") from None


def open_zip(path: Path) -> zipfile.ZipFile:
    """The archive; a directory in it that makes no sense is `BadZipFile`, whatever Python's reader stumbles over."""
    try:
        return zipfile.ZipFile(path)
    except (ValueError, struct.error, OverflowError, IndexError) as error:
        raise zipfile.BadZipFile(f"its directory makes no sense: {error}") from None


def read_description(
    path: Path, *, validate: bool | None = None, limits: ArchiveLimits | None = None
) -> tuple[Any, Any, tuple[str, ...]]:
    """FMPy's model description, the XML root, and what was overlooked; only the description is read from the archive.

    FMPy is handed an archive that holds nothing else, so that its reading of further files cannot fail. Without
    `validate` the environment decides whether the description is validated.
    """
    from fmpy.model_description import ValidationError, read_model_description

    limits = limits or ArchiveLimits.from_environment()
    with open_archive(path, limits) as archive:
        if DESCRIPTION not in archive.namelist():
            raise ConfigurationError(f"'{path}' holds no {DESCRIPTION}; it is not an FMU.")
        require_text(archive.getinfo(DESCRIPTION).file_size, f"{path}/{DESCRIPTION}", limits)
        xml = archive.read(DESCRIPTION)
    alone = io.BytesIO()
    with zipfile.ZipFile(alone, "w") as copy:
        copy.writestr(DESCRIPTION, xml)
    try:
        root = parse_xml(xml, f"{path}/{DESCRIPTION}", limits)
        version = root.get("fmiVersion") or "none"
        if version not in ("1.0", "2.0") and not version.startswith("3."):
            raise ConfigurationError(f"FMU '{path}' has FMI version {version}; FMI 1.0, 2.0 and 3.0 are supported.")
        try:
            return _completed(path, read_model_description(alone, validate=True), root), root, ()
        except ValidationError as error:
            problems = tuple(str(problem).rstrip(".") for problem in error.problems)
        except CosimoError:
            raise
        except Exception:
            if validating(validate):
                raise
            problems = ("it cannot be validated",)
        if not validating(validate):
            return _completed(path, read_model_description(alone, validate=False), root), root, problems
        found = "; ".join(problems[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ConfigurationError(
            f"FMU '{path}': {DESCRIPTION} is not valid: {found}{more}. Export a valid FMU, or skip validation at your "
            "own risk: 'cosimo --no-validate …', load(…, validate=False), or 'validate = false' in a scenario."
        )
    except CosimoError:
        raise
    except Exception as error:  # FMPy raises plain exceptions on descriptions it cannot make sense of
        detail = str(error) if type(error) is Exception else f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"FMU '{path}': {DESCRIPTION} cannot be understood: {detail.rstrip('.')}.") from None


def _completed(path: Path, description: Any, root: Any) -> Any:
    """What FMPy does not read of FMI 1.0, in the words of FMI 2.0: capabilities, dependencies, what can be set."""
    if description.fmiVersion != "1.0":
        return description
    if description.coSimulation is None:
        raise ConfigurationError(
            f"FMU '{path}' is for model exchange of FMI 1.0; export it for co-simulation, or as FMI 2.0 or 3.0."
        )
    for element in root.iterfind("Implementation/*/Capabilities"):
        for name in (
            "canHandleVariableCommunicationStepSize",
            "canInterpolateInputs",
            "canBeInstantiatedOnlyOncePerProcess",
        ):
            setattr(description.coSimulation, name, element.get(name) in ("true", "1"))
    elements = {element.get("name"): element for element in root.iterfind("ModelVariables/ScalarVariable")}
    known = {variable.name: variable for variable in description.modelVariables}
    kept = []
    for name, variable in known.items():
        if elements[name].get("alias") == "negatedAlias":
            if variable.causality in ("input", "output"):
                raise ConfigurationError(
                    f"FMU '{path}': '{name}' is the negated alias of another variable; export it as a variable of its "
                    "own."
                )
            continue
        kept.append(variable)
        if variable.start is not None and variable.variability != "constant":
            variable.initial = "exact"
        through = elements[name].find("DirectDependency")
        if variable.causality == "output" and through is not None:
            dependencies = [known[one.text] for one in through.iterfind("Name") if one.text in known]
            description.outputs.append(SimpleNamespace(variable=variable, dependencies=dependencies))
    description.modelVariables = kept
    return description


@dataclass(frozen=True)
class Listing:
    """The names of all members of an archive, and how many bytes they take once they are extracted."""

    names: tuple[str, ...]
    unpacked: int


_listings: dict[tuple[object, ...], Listing] = {}


def listing(path: Path, limits: ArchiveLimits | None = None) -> Listing:
    """What is in the archive; one that was opened before, and has not changed since, is not opened again."""
    limits = limits or ArchiveLimits.from_environment()
    if (key := _version(path, limits)) not in _listings:
        with open_archive(path, limits):
            key = _version(path, limits)
    return _listings[key]


def _version(path: Path, limits: ArchiveLimits) -> tuple[object, ...]:
    """Other for every change of a file, and for other limits."""
    try:
        status = path.stat()
    except OSError:
        return (path, limits)
    return (path, status.st_size, status.st_mtime_ns, status.st_ino, limits)


class Folder:
    """The extracted content of one archive, shared by `users` live instances."""

    def __init__(self, place: TemporaryFolder, digest: str) -> None:
        self.path, self.remove, self.digest, self.users = place.path, place.remove, digest, 0
        self.process = os.getpid()


_folders: dict[str, Folder] = {}
_lock = threading.RLock()


class Lease:
    """A share in an extracted folder, given back by `release`, by garbage collection or at the end of the process."""

    def __init__(self, folder: Folder) -> None:
        self.path = folder.path
        self.release = weakref.finalize(self, _release, folder)


def lease(path: Path, *, limits: ArchiveLimits | None = None, single: bool = False) -> Lease:
    """Extract the archive, unless it is there already; `single` refuses a second lease at the same time."""
    with unwatched(), _lock:
        _require_file(path)
        digest = file_digest(path)
        folder = _folders.get(digest)
        if folder is None or folder.process != os.getpid():
            folder = _folders[digest] = Folder(_extract(path, limits), digest)
        elif single:
            raise ConfigurationError(
                f"FMU '{path}' can be instantiated only once per process (canBeInstantiatedOnlyOncePerProcess) and is "
                "already in use; close the other instance or isolate the FMU (--isolate)."
            )
        folder.users += 1
        return Lease(folder)


def _release(folder: Folder) -> None:
    with _lock:
        folder.users -= 1
        if folder.users == 0:
            _folders.pop(folder.digest, None)
            folder.remove()


def _extract(path: Path, limits: ArchiveLimits | None) -> TemporaryFolder:
    with open_archive(path, limits) as archive:
        place = TemporaryFolder()
        folder = place.path
        try:
            for member in archive.infolist():
                written = Path(archive.extract(member, folder))
                if member.external_attr >> 16 & stat.S_IXUSR and written.is_file():
                    written.chmod(0o700)  # tools that an FMU starts from its resources
            (folder / "resources").mkdir(exist_ok=True)
        except BaseException as error:
            place.remove()
            if isinstance(error, OSError):
                raise ConfigurationError(
                    f"FMU '{path}' cannot be unpacked into '{folder.parent}': {error.strerror or error}; free some "
                    "space there or set TMPDIR."
                ) from None
            raise
    return place


def _require_file(path: Path) -> None:
    if not os.path.exists(path):
        raise ConfigurationError(f"FMU '{path}' does not exist; check the path.")
    require_regular(path)


# ---- which of an FMU's libraries fits this process -------------------------------------------------------------------


def platforms(path: Path, limits: ArchiveLimits | None = None) -> tuple[str, ...]:
    """The platforms the archive has libraries for, as its folder names."""
    return tuple(sorted({name.split("/")[1] for name in _libraries(path, limits)}))


def libraries_by_platform(path: Path, identifier: str, limits: ArchiveLimits | None = None) -> dict[str, str]:
    """The archive members that 64-bit platforms load, by the names of FMI 3.0: from their headers, as folders of
    FMI 2.0 do not name the processor. A member is named after the model identifier, or the only one of its folder.
    """
    found: dict[str, str] = {}
    names = [name for name in _libraries(path, limits) if name.count("/") == 2]
    with open_archive(path, limits or ArchiveLimits.from_environment()) as archive:
        for name in names:
            beside = [other for other in names if other.rpartition("/")[0] == name.rpartition("/")[0]]
            if PurePosixPath(name).stem == identifier or len(beside) == 1:
                found |= dict.fromkeys(library_platforms(archive.read(name)), name)
    return found


def find_library(path: Path, version: int, identifier: str, limits: ArchiveLimits | None = None) -> str:
    """The archive member to load: named after the model identifier, or the only one there is for this platform."""
    names, folders = _libraries(path, limits), platform_folders(version)
    for folder in folders:
        here = [name for name in names if name.startswith(f"binaries/{folder}/") and name.count("/") == 2]
        named = [name for name in here if PurePosixPath(name).stem == identifier]
        if named or len(here) == 1:
            return (named or here)[0]
        if here:
            others = ", ".join(PurePosixPath(name).name for name in here)
            raise ConfigurationError(
                f"FMU '{path}' holds no library '{identifier}' for {folder} but several others ({others}); keep only "
                "one."
            )
    raise ConfigurationError(
        f"FMU '{path}' holds no library for this platform ({folders[0]}); it has: "
        f"{', '.join(platforms(path)) or 'none'}. Export it for this platform"
        f"{', or compile its sources (--compile)' if has_sources(path, limits) else ''}."
    )


def platform_folders(version: int) -> tuple[str, ...]:
    """The folders of libraries that fit this process, the standard's own name first."""
    machine = platform.machine().lower()
    wide = sys.maxsize > 2**32
    architecture = "aarch64" if machine in ("arm64", "aarch64") else "x86_64" if wide else "x86"
    system = {"linux": "linux", "darwin": "darwin", "win32": "windows"}.get(sys.platform, sys.platform)
    named = f"{architecture}-{system}"
    if version == 3:
        return (named,)
    return {"windows": "win"}.get(system, system) + ("64" if wide else "32"), named


_ARCHITECTURES = {62: "x86_64", 183: "aarch64", 0x8664: "x86_64", 0xAA64: "aarch64"}  # of ELF, then of Windows
_ARCHITECTURES |= {0x01000007: "x86_64", 0x0100000C: "aarch64"}  # of macOS


def library_platforms(content: bytes) -> tuple[str, ...]:
    """The platforms that a 64-bit library is compiled for, as FMI 3 names them, from its header.

    The processor is the 16-bit number at 18 in ELF, the one after the signature at the offset in 60 in PE; in Mach-O it
    is the 32-bit number at 4, and a library for several has a table of them, 20 bytes each, in big-endian order.
    """
    if content[:5] == b"\x7fELF\x02":
        system, kinds = "linux", [struct.unpack_from("<H", content, 18)[0]]
    elif content[:2] == b"MZ":
        system, kinds = "windows", [struct.unpack_from("<H", content, struct.unpack_from("<I", content, 60)[0] + 4)[0]]
    elif content[:4] == b"\xcf\xfa\xed\xfe":
        system, kinds = "darwin", [struct.unpack_from("<I", content, 4)[0]]
    elif content[:4] == b"\xca\xfe\xba\xbe":
        count = struct.unpack_from(">I", content, 4)[0]
        system, kinds = "darwin", [struct.unpack_from(">I", content, 8 + 20 * i)[0] for i in range(count)]
    else:
        return ()
    return tuple(f"{_ARCHITECTURES[kind]}-{system}" for kind in kinds if kind in _ARCHITECTURES)


def require_whole(library: Path, label: str) -> None:
    """Refuse a Linux library that is cut off: the system would load it, and end this process at the first missing page.

    Every segment in the table of an ELF file (64 bits: 56 bytes each, offset at 8 and size at 32) must lie in the file.
    """
    size = library.stat().st_size
    with library.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return  # what else is no library of this platform is told by the system
        if len(head) == 64:
            start, count = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<H", head, 56)[0]
            file.seek(min(start, size))
            table = file.read(56 * count)
            segments = (struct.unpack_from("<Q16xQ", table, at + 8) for at in range(0, 56 * count, 56))
            if len(table) == 56 * count and all(offset + length <= size for offset, length in segments):
                return
    raise ConfigurationError(
        f"FMU '{label}' cannot be loaded: its library '{library.name}' is truncated; export it again."
    )


def _libraries(path: Path, limits: ArchiveLimits | None = None) -> list[str]:
    ends = (".so", ".dll", ".dylib")
    return [name for name in listing(path, limits).names if name.startswith("binaries/") and name.endswith(ends)]


# ---- FMUs that bring sources instead of a library: compiled inside the sandbox, once for their content ---------------


SANDBOX, TRUSTED = "sandbox", "trusted"
COMPILE = (SANDBOX, TRUSTED)
"""Where sources are compiled: in the sandbox or not at all; without one where there is none."""
BUILD = "sources/buildDescription.xml"
C_SOURCES, CPP_SOURCES = (".c",), (".cc", ".cpp", ".cxx")
PATIENCE = 300.0
"""Seconds that one call of the compiler may take."""
SPACE = 4
"""GiB of memory that the compiler may take, and of each file that it writes."""
KEPT_LIBRARIES = 200
"""Compiled libraries that are kept, the newest."""


@dataclass(frozen=True)
class SourceSet:
    """Source files that are compiled alike: paths below `sources/`, and the words that the compiler is given."""

    files: tuple[str, ...]
    language: str = ""
    words: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()


def has_sources(path: Path, limits: ArchiveLimits | None = None) -> bool:
    """Whether there is anything to compile."""
    names = listing(path, limits).names
    return any(name.startswith("sources/") and name.lower().endswith(C_SOURCES + CPP_SOURCES) for name in names)


def source_sets(
    path: Path, interface: str, identifier: str, limits: ArchiveLimits | None = None
) -> tuple[tuple[SourceSet, ...], tuple[str, ...]]:
    """What is to be compiled, and the libraries it is linked with; `interface` is the element of the description.

    FMI 3.0 (section 2.5.1.4) says so in buildDescription.xml. FMI 2.0 (section 2.2.4) lists source files; where it
    does not, `all.c` or all of them are taken.
    """
    limits = limits or ArchiveLimits.from_environment()
    with open_archive(path, limits) as archive:
        names = frozenset(archive.namelist())
        document = BUILD if BUILD in names else DESCRIPTION
        require_text(archive.getinfo(document).file_size, f"{path}/{document}", limits)
        root = parse_xml(archive.read(document), f"{path}/{document}", limits)
    if document == BUILD:
        sets, libraries = _build_configuration(path, root, identifier)
    else:
        listed = [file.get("name") or "" for file in root.iterfind(f"{interface}/SourceFiles/File")]
        found = sorted(name.removeprefix("sources/") for name in names if name.startswith("sources/"))
        every = [name for name in found if name.lower().endswith(C_SOURCES + CPP_SOURCES)]
        sets = (SourceSet(tuple(listed or (["all.c"] if "all.c" in every else every))),)
        libraries = ()
    for file in (file for one in sets for file in one.files):
        if f"sources/{file}" not in names:
            raise ConfigurationError(
                f"FMU '{path}': {document} names the source file '{show(file)}', which the archive does not hold; "
                "export it again."
            )
    if not any(one.files for one in sets):
        raise ConfigurationError(f"FMU '{path}': {document} names no source files; export it with its sources.")
    return sets, libraries


def _build_configuration(path: Path, root: Any, identifier: str) -> tuple[tuple[SourceSet, ...], tuple[str, ...]]:
    here = (None, "", *platform_folders(3))
    fitting = [one for one in root.iterfind("BuildConfiguration") if one.get("platform") in here]
    named = [one for one in fitting if one.get("modelIdentifier") == identifier]
    if not named and len(fitting) != 1:  # some name their only configuration after another model
        raise ConfigurationError(
            f"FMU '{path}': {BUILD} has no configuration for '{identifier}' on this platform; export it again."
        )
    found = (named or fitting)[0]
    sets = []
    for one in found.iterfind("SourceFileSet"):
        words = []
        try:
            if "msvc" not in (one.get("compiler") or "").lower():
                words = shlex.split(one.get("compilerOptions") or "")
        except ValueError as error:
            raise ConfigurationError(
                f"FMU '{path}': the compiler options in {BUILD} cannot be understood: {error}."
            ) from None
        for definition in one.iterfind("PreprocessorDefinition"):
            value = definition.get("value")
            if definition.get("optional") not in ("true", "1"):
                words.append(f"-D{definition.get('name')}" + ("" if value is None else f"={value}"))
        files = tuple(file.get("name") or "" for file in one.iterfind("SourceFile"))
        includes = tuple(name.get("name") or "" for name in one.iterfind("IncludeDirectory"))
        sets.append(SourceSet(files, one.get("language") or "", tuple(words), includes))
    return tuple(sets), tuple(f"-l{library.get('name')}" for library in found.iterfind("Library"))


def compile_library(
    path: Path, folder: Path, member: str, *, how: str, interface: str, limits: ArchiveLimits | None = None
) -> None:
    """Compile the library `member` of an FMU into its extracted `folder`, or fetch it where it was compiled before."""
    target = folder / member
    with unwatched(), _lock:
        if target.exists():
            return
        c, cpp = (_compiler(path, names) for names in (("cc", "gcc", "clang"), ("c++", "g++", "clang++")))
        about = [file_digest(path), member, interface, *(str((name, os.stat(name).st_mtime_ns)) for name in (c, cpp))]
        store = default_folder()
        kept = None if store is None else store / (hashlib.sha256("\0".join(about).encode()).hexdigest() + ".so")
        target.parent.mkdir(parents=True, exist_ok=True)
        if kept is not None and _own_file(kept):
            shutil.copyfile(kept, target)
            return
        build = _Build(path, folder, how, c, cpp)
        try:
            shutil.copyfile(build.library(interface, PurePosixPath(member).stem, limits), target)
        finally:
            build.place.remove()
        if kept is not None:
            with suppress(OSError):
                kept.parent.mkdir(parents=True, exist_ok=True)
                with replacing(kept, unique=True, durable=False) as new:
                    shutil.copyfile(target, new)
                libraries = sorted(kept.parent.glob("*.so"), key=lambda file: file.stat().st_mtime)
                for old in libraries[:-KEPT_LIBRARIES]:
                    old.unlink()


def _compiler(path: Path, names: Sequence[str]) -> str:
    for name in names:
        if found := shutil.which(name):  # often a link into /etc, which a sandbox does not have
            return os.path.realpath(found)
    raise ConfigurationError(
        f"FMU '{path}' brings sources only, and there is no compiler '{names[0]}' to compile them; install one, or "
        "export the FMU for this platform."
    )


def _own_file(path: Path) -> bool:
    """Whether there is a file that nobody else has put there: it is loaded as code."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


class _Build:
    """Calls of the compiler for one FMU, each of which sees its folder only and writes to a folder of its own."""

    def __init__(self, path: Path, folder: Path, how: str, c: str, cpp: str) -> None:
        self.path, self.folder, self.c, self.cpp = path, folder, c, cpp
        boxed = available() and shutil.which("bwrap") is not None
        if not boxed and how != TRUSTED:
            raise self._refusal("there is no program 'bwrap'; install the package bubblewrap")
        self.boxed, self.how = boxed, how
        spec = importlib.util.find_spec("fmpy")
        assert spec is not None
        assert spec.origin is not None
        self.headers = Path(spec.origin).parent / "c-code"
        self.place = TemporaryFolder()

    def library(self, interface: str, identifier: str, limits: ArchiveLimits | None) -> Path:
        """The compiled library."""
        sets, libraries = source_sets(self.path, interface, identifier, limits)
        objects: list[str] = []
        result = self.place.path / "library.so"
        compiler, names = self.c, _plain_names(identifier)
        for one in sets:
            for file in one.files:
                cpp = one.language.startswith("C++") or file.lower().endswith(CPP_SOURCES)
                compiler = self.cpp if cpp else compiler
                objects.append(str(self.place.path / f"{len(objects)}.o"))
                includes = [str(self.folder / "sources" / name) for name in ("", *one.includes)]
                flags = [*self._standard(one.language), *one.words, *names]
                flags += [f"-I{folder}" for folder in (*includes, str(self.headers))]
                source = str(self.folder / "sources" / file)
                self.call([self.cpp if cpp else self.c, "-c", "-O2", "-fPIC", "-ffp-contract=off", "-w", *flags,
                           source, "-o", objects[-1]])  # fmt: skip
        folder = self.folder / "binaries"
        self.call([compiler, "-shared", *objects, f"-L{folder}", *libraries, "-lm", "-o", str(result)])
        return result

    def _standard(self, language: str) -> list[str]:
        if not language:
            return []
        found = re.fullmatch(r"C(\+\+)?(\d\d)", language)
        if found is None:
            raise ConfigurationError(
                f"FMU '{self.path}' has sources in '{show(language)}'; only C and C++ are compiled. Export it for this "
                "platform."
            )
        return [f"-std=gnu{found[1] or ''}{found[2]}"]

    def call(self, words: list[str]) -> None:
        """Run the compiler, with limits; what it complains about becomes one sentence."""
        limited = ["/bin/sh", "-c", f'ulimit -v {SPACE << 20} -f {SPACE << 21}; exec "$@"', "sh", *words]
        if self.boxed:
            # A compiler that is not among the programs of the system brings a folder of its own.
            own = {str(Path(name).resolve().parents[1]) for name in (self.c, self.cpp)} - {"/usr", "/"}
            command = [*box((str(self.folder), str(self.headers), *sorted(own))), "--die-with-parent"]
            place = str(self.place.path)
            limited = [*closed([*command, "--bind", place, place]), "--", *limited]
        process = subprocess.Popen(
            limited, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            said, _ = process.communicate(timeout=PATIENCE)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise self._failure(f"the compiler took longer than {PATIENCE:g} s") from None
        if process.returncode:
            self._explain(said.decode("utf-8", "replace"))

    def _explain(self, said: str) -> None:
        places = (f"{self.folder / 'sources'}{os.sep}", f"{self.folder}{os.sep}", f"{self.place.path}{os.sep}")
        for place in places:
            said = said.replace(place, "")
        lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
        if self.boxed and lines and lines[0].startswith("bwrap:"):
            raise self._refusal(f"it could not be set up ({lines[0]}); allow user namespaces on this machine")
        marks = ("error:", "undefined reference", "cannot find")
        wrong = [show(line) for line in lines if any(mark in line for mark in marks)] or [show(lines[-1])] * bool(lines)
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise self._failure("; ".join(wrong[:3]) + more if wrong else "the compiler says nothing of the reason")

    def _failure(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"FMU '{self.path}' cannot be compiled: {reason.rstrip('.')}. Correct its sources, or export it for this "
            "platform."
        )

    def _refusal(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"the sources of FMU '{self.path}' are compiled in a sandbox only, and {reason}, or, if you trust them, "
            "use --compile trusted."
        )


def _plain_names(identifier: str) -> list[str]:
    """Definitions that take the prefix from the functions of sources made for static linking (FMI 2.0, section 2.1.1).

    `Tank_fmi2DoStep` becomes `fmi2DoStep`, as a library calls it.
    """
    from fmpy.fmi2 import FMU2Model, FMU2Slave
    from fmpy.fmi3 import FMU3Model, FMU3Slave

    if not re.fullmatch(r"[A-Za-z_]\w*", identifier, re.ASCII):
        return []
    kinds = (FMU2Slave, FMU2Model, FMU3Slave, FMU3Model)
    names = sorted({name for kind in kinds for name in dir(kind) if re.match(r"fmi[23][A-Z]", name)})
    return [f"-D{identifier}_{name}={name}" for name in names]


# ---- temporary folders of extracted FMUs and packages, also those that a killed process could not remove -------------
# A folder is locked from before it has its name until its process ends, however that ends. Folders of such a name that
# nobody has locked were left behind; the next process that makes one removes them. On Windows also those whose library
# was still loaded when they should have been removed.


KINDS = ("fmu", "ssp")  # what is extracted: `cosimo-fmu-locked-…`


class TemporaryFolder:
    """A new empty folder at `path` for something of a kind in `KINDS`, this process's own until `remove`."""

    def __init__(self, kind: str = "fmu") -> None:
        self._process, self._lock = os.getpid(), -1
        self.path = Path(tempfile.mkdtemp(prefix=f"cosimo-{kind}-"))
        _once(self.path.parent, self._process)
        named = self.path.with_name(self.path.name.replace(kind, f"{kind}-locked", 1))
        with suppress(OSError):  # a file system without locks
            self._lock = hold_folder(named if sys.platform == "win32" else self.path)
            # Only now it has a name that others look for: a folder that is not locked yet is not one left behind.
            self.path = self.path.rename(named)
        temporary(self.path)

    def remove(self) -> None:
        """Delete the folder; a forked child leaves it to its parent."""
        if os.getpid() == self._process:
            shutil.rmtree(self.path, ignore_errors=True)
            not_temporary(self.path)
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1


@cache
def _once(parent: Path, process: int) -> None:
    """Looking is for the first folder of a process."""
    remove_left_behind(parent)


def remove_left_behind(parent: Path) -> None:
    """Delete the folders in `parent` whose process is no more."""
    for folder in (found for kind in KINDS for found in parent.glob(f"cosimo-{kind}-locked-*")):
        with suppress(OSError):
            lock = hold_folder(folder)
            try:
                # On Windows the folder for temporary files is the user's own.
                if sys.platform == "win32" or os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)

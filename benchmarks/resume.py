"""Does a resumed training end with the same bytes as one that was never stopped, on this machine?

    python benchmarks/resume.py --methods iql uniq sac_n dt

Every method is trained three times in processes of their own: to the end, to about half, and on from there. Policies,
records and episodes of the two must be equal to the byte. The processes share the compilation cache, as those of the
command line do: on a GPU two compilations of one program may choose different kernels, which round differently.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DATA, SIZE = "suite/hopper-medium-replay", 50_000


def train(name: str, steps: int, out: Path, part: str) -> None:
    import uniq_rl as ur
    from throughput import method
    from uniq_rl.cli import start_jax

    class Half(ur.Monitor):
        step = 0

        def advanced(self, step: int) -> None:
            self.step = step

        def stop_requested(self) -> bool:
            return part == "half" and self.step > steps // 2

    start_jax()
    if part == "rest":
        result = ur.resume(out)
    else:
        options: dict[str, Any] = {"size": SIZE, "seeds": (0, 1), "steps": steps, "eval_every": steps // 4}
        result = ur.train(method(name), DATA, out=out, monitor=Half(), **options)
    assert result.finished == (part != "half")


def compare(straight: Path, resumed: Path) -> list[str]:
    """Names of the files that differ."""
    names = [*sorted(path.name for path in straight.glob("policy-*.safetensors")), "records.jsonl", "episodes.jsonl"]
    return [name for name in names if (straight / name).read_bytes() != (resumed / name).read_bytes()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["iql", "uniq"])
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--child", nargs=2, metavar=("OUT", "PART"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        train(options.methods[0], options.steps, Path(options.child[0]), options.child[1])
        return
    failed = 0
    for name in options.methods:
        with tempfile.TemporaryDirectory() as folder:
            straight, resumed = Path(folder) / "straight", Path(folder) / "resumed"
            for out, part in ((straight, "all"), (resumed, "half"), (resumed, "rest")):
                command = [sys.executable, __file__, "--methods", name, "--steps", str(options.steps)]
                subprocess.run([*command, "--child", str(out), part], check=True)
            different = compare(straight, resumed)
            failed += bool(different)
            print(f"{name}: {'differs in ' + ', '.join(different) if different else 'the same bytes'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

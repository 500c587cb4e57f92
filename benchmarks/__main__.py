"""The command line: ``python -m benchmarks COMMAND``."""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

COMMANDS = {
    "suite": "the development suite of 30 tables: ours, named schemes, expressions and peers",
    "uci": "regression sets of the literature and simulated functions: the table of the README",
    "classes": "sixteen sets with classes",
    "forward": "rows of later times: twelve series, and models beside ours",
    "grouped": "rows of new groups: twelve panels, and models beside ours",
    "papers": "the published protocols: what papers report, and what ours reaches",
    "optimize": "which run next: Bayesian optimization and active learning, beside BoTorch",
    "speed": "training: steps, their growth, rows; a graphics processor",
    "predict": "times of predictions, and their error by the number of draws",
    "posterior": "small problems: how far approximations are from the sampled posterior",
}


def main(arguments=None):
    """Parse the command line, and run one benchmark."""
    arguments = sys.argv[1:] if arguments is None else arguments
    before = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    before.add_argument(
        "--checkout", type=Path, metavar="PATH", help="of skdgp, to be measured (before COMMAND)"
    )
    known, rest = before.parse_known_args(arguments)
    chosen = next((argument for argument in rest if argument in COMMANDS), None)
    if (path := known.checkout) is not None:  # before anything imports skdgp
        if not (path / "skdgp").is_dir():
            raise SystemExit(f"There is no package skdgp in {path}.")
        sys.path.insert(0, str(path.resolve()))
        paths = [str(path.resolve()), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", parents=[before])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        if name == chosen:  # others need not be imported
            module = import_module(f".{name}", __package__)
            command = commands.add_parser(
                name, help=text, description=module.__doc__, allow_abbrev=False,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )  # fmt: skip
            module.add_arguments(command)
            command.set_defaults(run=module.run)
        else:
            commands.add_parser(name, help=text)
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()

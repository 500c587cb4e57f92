"""The command line: ``python -m benchmarks COMMAND``."""

import argparse

from . import (
    aep,
    classes,
    classify,
    doctor,
    extrapolation,
    functions,
    marginalization,
    pathologies,
    predict,
    race,
    rows,
    sgpr,
    step,
    table,
    uci,
)

COMMANDS = {
    "uci": uci,
    "functions": functions,
    "classify": classify,
    "classes": classes,
    "race": race,
    "pathologies": pathologies,
    "doctor": doctor,
    "step": step,
    "predict": predict,
    "sgpr": sgpr,
    "aep": aep,
    "rows": rows,
    "table": table,
    "extrapolation": extrapolation,
    "marginalization": marginalization,
}


def main(arguments=None):
    """Parse the command line, and run one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        text = module.__doc__.partition("\n\n")[0].replace("\n", " ")
        command = commands.add_parser(name, help=text, description=text)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()

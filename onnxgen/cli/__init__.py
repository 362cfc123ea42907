"""The command ``onnxgen``.

Answers go to stdout, all else to stderr. Exit codes: 0 success, 1 an error of the model or the
machine, 2 a wrong command line, 130 interrupted, 141 the reader of stdout went away.

Only the standard library is imported before a command is known and its options are read.
"""

from collections.abc import Sequence

from onnxgen.cli import output
from onnxgen.cli.parser import parse
from onnxgen.errors import OnnxgenError, OptionError

FAILED, USAGE, INTERRUPTED, CLOSED = 1, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line ``argv`` (without the program's name) and returns the exit code."""
    output.tolerate_encoding()
    with output.plain_warnings():
        try:
            code = _run(argv)
            output.flush()
        except BrokenPipeError:
            output.discard()
            return CLOSED
        except KeyboardInterrupt:
            return INTERRUPTED
        except OptionError as error:
            output.report(error)
            return USAGE
        except OnnxgenError as error:
            output.report(error)
            return FAILED
        except Exception as error:
            output.report_unexpected(error)
            return FAILED
    return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = parse(argv)
    except SystemExit as done:  # argparse has printed help or a usage error
        return int(done.code or 0)
    code: int = args.run(args)
    return code

"""How the suite's maintenance commands end when a request is impossible: one sentence and exit code 2."""

import sys
from collections.abc import Callable

from uniq_rl.errors import UniqError


def run(main: Callable[[], None]) -> None:
    try:
        main()
    except UniqError as error:
        print(error, file=sys.stderr)
        sys.exit(2)

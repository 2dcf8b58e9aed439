"""The one exception a user is meant to see: a sentence that says what is wrong, where, and what to do."""


class UniqError(Exception):
    """Bad input or an impossible request. The command line prints it and exits with code 2, without a traceback."""

"""Errors of specs and ledgers, in a module of their own so that reading a study imports little."""

from trainables.fields import UserError


class SpecError(UserError):
    """A study that cannot be run: file, field, what was found and the fix, on one line; then indented `differences`."""

    def __init__(
        self, file_name: str, path: str, problem: str, differences: tuple[str, ...] = ()
    ) -> None:
        self.file_name, self.path, self.problem, self.differences = (
            file_name,
            path,
            problem,
            differences,
        )
        super().__init__(file_name, path, problem, differences)

    def __str__(self) -> str:
        first = ": ".join(part for part in (self.file_name, self.path, self.problem) if part)
        return "\n  ".join([" ".join(first.split()), *self.differences])


class LedgerError(UserError):
    """The ledger cannot be used as requested; the message gives the reason and the fix."""


class TryAgain(UserError):
    """The machine, the cluster or a server is not ready: the same command may succeed later. Exit code 75."""


class LedgerUnavailable(LedgerError, TryAgain):
    """A database that answered and then did not for too long, or until a stop was requested."""

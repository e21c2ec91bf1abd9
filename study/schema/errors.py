"""The error of a study that cannot be run or read, by itself: reading a study imports no more than it needs."""

from trainables.fields import UserError


class SpecError(UserError):
    """A study that cannot be run: the file, the field's path, what was found and the mend, on one line.

    `differences` follow indented, one a line.
    """

    def __init__(self, file_name: str, path: str, problem: str, differences: tuple[str, ...] = ()) -> None:
        self.file_name, self.path, self.problem, self.differences = file_name, path, problem, differences
        super().__init__(file_name, path, problem, differences)

    def __str__(self) -> str:
        first = ": ".join(part for part in (self.file_name, self.path, self.problem) if part)
        return "\n  ".join([" ".join(first.split()), *self.differences])

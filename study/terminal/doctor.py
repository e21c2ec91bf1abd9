"""What `doctor` found, as a table of machines by checks."""

from __future__ import annotations

from rich.console import Console

from study.machines.doctor import DoctorReport, Finding
from study.terminal.layout import Table


def show(report: DoctorReport, console: Console) -> None:
    """Print a table of nodes by checks, then a line for each warning or failure."""
    machines: dict[str, dict[str, Finding]] = {}
    for finding in report.findings:
        machines.setdefault(finding.machine, {})[finding.check] = finding
    nodes = {name: found for name, found in machines.items() if "code" in found}
    if nodes:
        checks = list(next(iter(nodes.values())))
        made = Table("machine", *checks)
        for name, found in nodes.items():
            made.add_row(name, *(_cell(found[check]) for check in checks))
        console.print(made)
    for finding in report.findings:
        if finding.check in ("tracking", "artifacts", "ledger") and finding.state == "ok":
            console.print(f"{finding.check}: {finding.text}", soft_wrap=True)
        elif finding.state != "ok":
            console.print(f"{finding.state}: {finding.machine}: {finding.text}", soft_wrap=True)
    if report.ok:
        warned = sum(finding.state == "warning" for finding in report.findings)
        of_it = f"nothing failed; {warned} warning{'s' * (warned > 1)}, above. A study can run."
        console.print(of_it if warned else "no problems found.")


def _cell(finding: Finding) -> str:
    """At most five characters, so that the table fits a terminal."""
    return {"ok": finding.text, "warning": "warn", "failed": "FAIL"}[finding.state]

"""A command followed in a real kernel: interrupted as Jupyter does, progress in place."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from tests.patience import patient
from tests.study.notebook.test_process import HEEDS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
FOLLOW = """
import sys
from study.notebook.places import Place
from study.notebook.process import run_command
def follow(code, *words):
    run_command(["run"], Place(), "run()", True, [sys.executable, "-c", code, *words])
"""
PASSES = "print('begins', flush=True); print('» 1 of 2'); print('» 2 of <2>'); print('ends')"


@pytest.fixture(scope="module")
def kernel() -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        manager, client = start_new_kernel()
    client.execute_interactive(FOLLOW, timeout=patient(120), output_hook=lambda message: None)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(
    client: BlockingKernelClient, code: str, heard: Callable[[dict[str, Any]], None]
) -> list[tuple[str, dict[str, Any]]]:
    """The messages of a cell: what they are and what they say."""
    found: list[tuple[str, dict[str, Any]]] = []

    def hook(message: dict[str, Any]) -> None:
        found.append((message["msg_type"], message["content"]))
        heard(message["content"])

    client.execute_interactive(code, timeout=patient(120), output_hook=hook)
    return found


def test_interrupting_the_cell_stops_it_in_order(
    kernel: tuple[KernelManager, BlockingKernelClient], tmp_path: Path
) -> None:
    manager, client = kernel

    def heard(content: dict[str, Any]) -> None:
        if content.get("name") == "stdout" and content["text"].strip().isdigit():
            manager.interrupt_kernel()

    code = f"follow({HEEDS!r}, {str(tmp_path / 'heard')!r})"
    messages = run(client, code, heard)
    (error,) = (content for kind, content in messages if kind == "error")
    assert error["ename"] == "KeyboardInterrupt"
    assert error["evalue"] == "calstudy run was stopped. Run it again: run()"
    assert (tmp_path / "heard").read_text() == "1 heard"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            "from study import Study; Study.create(nam='x')",
            "nam: there is no key 'nam'. Did you mean 'name'?",
        ),
        ("follow('import sys; print(\"no. Mend.\", file=sys.stderr); sys.exit(2)')", "no. Mend."),
        (
            "follow('import sys; print(\"away.\", file=sys.stderr); sys.exit(75)')",
            "away. Run it again: run()",
        ),
    ],
    ids=["a wrong key", "refused", "again"],
)
def test_what_the_user_can_mend_is_a_line_without_a_traceback(
    kernel: tuple[KernelManager, BlockingKernelClient], code: str, line: str
) -> None:
    messages = run(kernel[1], code, lambda content: None)
    (error,) = (content for kind, content in messages if kind == "error")
    assert error["traceback"] == [line]


@pytest.mark.parametrize("thread", [False, True], ids=["cell", "thread"])
def test_progress_is_shown_in_place(
    kernel: tuple[KernelManager, BlockingKernelClient], thread: bool
) -> None:
    """One output, updated, and empty at the end; what stays is printed."""
    code = f"follow({PASSES!r})"
    if thread:
        code = f"from threading import Thread; of = Thread(target=lambda: {code})"
        code += "; of.start(); of.join()"
    messages = run(kernel[1], code, lambda content: None)
    shown = [content for kind, content in messages if kind == "display_data"]
    updates = [content for kind, content in messages if kind == "update_display_data"]
    assert [each["data"]["text/plain"] for each in (*shown, *updates)] == ["1 of 2", "2 of <2>", ""]
    assert updates[0]["data"]["text/html"] == "<pre>2 of &lt;2&gt;</pre>"
    assert len({each["transient"]["display_id"] for each in (*shown, *updates)}) == 1
    printed = [content["text"] for kind, content in messages if kind == "stream"]
    assert "".join(printed) == "begins\nends\n"

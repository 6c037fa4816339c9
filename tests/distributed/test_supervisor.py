"""The parent process turns its child's end into an exit code or an error; children without JAX."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from ncfbench.distributed.supervisor import Cluster, supervise
from ncfbench.errors import NcfbenchError, PeerLostError

CLUSTER = Cluster("host:1", 2, 0, 5.0)
CHILD = """
import os, signal, sys, time
from ncfbench.distributed.supervisor import JOINED, connect_to_parent
def log(text):
    os.write(2, text.encode())
declare = connect_to_parent()
{deed}
"""
FATAL = (
    "F1122 11:48:29.184013   23364 client.h:80] Terminating process because the JAX distributed \
service detected fatal errors. absl::Status: "
)
"""The log of JAX 0.10.2 before it aborts a process; below, the statuses that follow it."""
SILENT = f"""E1122 11:48:29.183388 23353 coordination_service.cc:1549] Use error polling
{FATAL}UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):
1
The tasks have crashed. Check the task logs for an earlier error.
*** Check failure stack trace: ***
    @     0x7fd479c40634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
"""
GONE = f"{FATAL}UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task\n"
LATE = f"{FATAL}DEADLINE_EXCEEDED: Deadline Exceeded\n\nRPC: /xla.Service/RegisterTask\n"
TWICE = f"{FATAL}ALREADY_EXISTS: there is a newer incarnation\n"


def run_child(deed: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", CHILD.format(deed=deed)])
    return supervise(CLUSTER)


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("declare(0); os.abort()", 0),
        (f"declare(JOINED); declare(5); log({GONE!r}); os.abort()", 5),
        ("declare(0); declare(130); sys.exit(1)", 130),
    ],
)
def test_exit_code_is_declared_or_the_childs(
    deed: str, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_child(deed, monkeypatch) == code
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("is_joined", "log", "message"),
    [
        (True, SILENT, "Lost another process of this run: process 1 stopped sending"),
        (True, GONE, "Lost another process of this run: process 0 has ended or can"),
        (True, LATE, "Lost another process of this run: process 0 has ended or can"),
        (True, TWICE, "Lost another process of this run: ALREADY_EXISTS: there is"),
        (False, LATE, "Not all of the 2 processes at host:1 came within 5 s"),
        (False, TWICE, "JAX cannot join the 2 processes at host:1: ALREADY_EXISTS: there is"),
    ],
)
def test_abort_by_jax_names_the_lost_process(
    is_joined: bool,
    log: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Our sentence replaces the trace of C++."""
    with pytest.raises(PeerLostError) as caught:
        deed = f"if {is_joined}: declare(JOINED)\nlog('before\\n'); log({log!r}); os.abort()"
        run_child(deed, monkeypatch)
    assert str(caught.value).startswith(message)
    assert ("--resume" in str(caught.value)) == is_joined
    assert capfd.readouterr().err == "before\n"


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("log('terminate called\\n'); os.abort()", "ended by SIGABRT."),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL, most often for want of memory"),
    ],
)
def test_death_by_another_signal_is_named(
    deed: str, message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NcfbenchError) as caught:
        run_child(deed, monkeypatch)
    assert type(caught.value) is NcfbenchError
    assert message in str(caught.value)
    assert capfd.readouterr().err == ("terminate called\n" if "terminate" in deed else "")


def test_output_of_c_code_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also an error of the runtime, once the child has ended in its own way."""
    deed = f"os.write(1, b'noise\\n'); print('result'); log({GONE!r}); sys.exit(4)"
    assert run_child(deed, monkeypatch) == 4
    assert capfd.readouterr() == ("result\n", f"noise\n{GONE}")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("is_heard", [True, False])
def test_signals_are_forwarded(
    number: str, is_heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that does not react is killed at last, as one in which Python hears nothing."""
    handler = "DFL" if is_heard else "IGN"
    deed = f"""
signal.signal(signal.{number}, signal.SIG_{handler})
while True:
    os.kill(os.getppid(), signal.{number})
    time.sleep(0.05)
"""
    # The child may send one more before it ends, after the handlers are as before.
    found = signal.signal(getattr(signal, number), lambda *_: None)
    try:
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            run_child(deed, monkeypatch)
        assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    finally:
        signal.signal(getattr(signal, number), found)


def test_child_ends_with_its_parent() -> None:
    script = f"""
from ncfbench.distributed.supervisor import VARIABLE, Cluster, supervise
import os
if VARIABLE not in os.environ:
    supervise(Cluster("host:1", 2, 0, 5.0))
{CHILD.format(deed="declare(JOINED); print('at work', flush=True); time.sleep(600)")}
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "at work\n"
    parent.kill()
    out, _ = parent.communicate(timeout=60)  # ends when the child ends, which holds the pipe too
    assert out == ""

"""Ctrl-C as a flag, whatever is being written when it comes."""

import signal

import pytest

from ncfbench.runs.signals import deferred_signals


@pytest.mark.parametrize("is_writing", [False, True])
def test_the_first_ctrl_c_sets_a_flag_and_is_told_once(is_writing):
    """A stream that is being written refuses another writer: it is told at the next question."""
    said = []

    def say(text):
        if is_writing:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")
        said.append(text)

    with deferred_signals(say, "Stopping.") as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert said == ([] if is_writing else ["Stopping."])
        is_writing = False
        assert interrupted()
        assert interrupted()
        assert said == ["Stopping."]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

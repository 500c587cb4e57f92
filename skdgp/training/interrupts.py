"""Ctrl-C that waits for the end of a step, and that ends more than one fit."""

import math
import signal
import threading
import time

SOON = 10.0  #: seconds after a Ctrl-C in which another one, in another fit, is to end the program
_last = -math.inf  #: when it was pressed last


def note_interrupt():
    """Note a Ctrl-C that is to end one fit, or raise it if it follows one that ended another.

    So a search can be left by pressing it twice.
    """
    global _last
    before, _last = _last, time.monotonic()
    if _last - before < SOON:
        raise KeyboardInterrupt from None


class InterruptGuard:
    """A context in which Ctrl-C is only noted; a second one raises KeyboardInterrupt as usual.

    Nothing changes unless it is `wanted`, outside of the main thread, or if the program handles
    Ctrl-C itself. `pressed` is whether there was one.
    """

    def __init__(self, wanted):
        main = threading.current_thread() is threading.main_thread()
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self._notes = wanted and main and usual
        self.pressed = False

    def __enter__(self):
        if self._notes:
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number, frame):
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def __exit__(self, kind, error, traceback):
        if self._notes:
            signal.signal(signal.SIGINT, signal.default_int_handler)

"""Processes of a group of torch.distributed, for tests."""

import multiprocessing
import socket
from datetime import timedelta

import torch.distributed as dist

#: start methods, the best one first: a server imports the package once, 2 s of CPU time less for each rank
_METHODS = "forkserver", "spawn"
_SECONDS = 60  #: until a rank that does not answer is an error


def _context():
    """The first of the start methods that there is here; such a server has run nothing but imports."""
    (method, *_) = [m for m in _METHODS if m in multiprocessing.get_all_start_methods()]
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload(["skdgp.distributed"])
    return context


def _begin(rank, size, port, seconds):
    address, timeout = f"tcp://127.0.0.1:{port}", timedelta(seconds=seconds)
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(
        "gloo", init_method=address, rank=rank, world_size=size, timeout=timeout
    )


def _serve(rank, tasks, results):
    for function, args in iter(tasks.get, None):
        try:
            results.put((rank, function(rank, *args)))
        except Exception as error:
            results.put((rank, error))
    if dist.is_initialized():
        dist.destroy_process_group()


class Ranks:
    """Processes of a gloo group; a call of a function of rank and arguments gives the results of all."""

    def __init__(self, size=2):
        context = _context()
        self.tasks, self._results = [context.Queue() for _ in range(size)], context.Queue()
        self.processes = [
            context.Process(target=_serve, args=(rank, tasks, self._results), daemon=True)
            for rank, tasks in enumerate(self.tasks)
        ]
        for process in self.processes:
            process.start()
        self.begin()

    def begin(self, seconds=_SECONDS):
        """Make a new group."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self(_begin, len(self.tasks), port, seconds)

    def __call__(self, function, *args, n_results=None):
        for tasks in self.tasks:
            tasks.put((function, args))
        n_results = len(self.tasks) if n_results is None else n_results
        found = dict(self._results.get(timeout=3 * _SECONDS) for _ in range(n_results))
        return [found.get(rank) for rank in range(len(self.tasks))]

    def end(self):
        for tasks in self.tasks:
            tasks.put(None)
        for process in self.processes:
            process.join(5)
            process.kill()

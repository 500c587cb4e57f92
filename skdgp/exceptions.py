"""Exceptions of skdgp, and contexts that raise them where numerical libraries fail."""

import contextlib
import re

import numpy as np
import torch

__all__ = ["TrainingFailed"]

#: parts of the messages of torch, CUDA and their libraries where memory is missing
_NO_MEMORY = "allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED"
_SIZE = re.compile(r"allocate (\d[\d.]* ?[KMGTPE]?i?(?:bytes|B)\b)", re.IGNORECASE)


class TrainingFailed(ValueError):
    """Error of a model whose training has failed numerically.

    A matrix was not positive definite, or no step had a finite loss. In a mixture such a model is left out with
    a warning; every other error, as that of a kernel of the user's, is raised as it is.

    Examples
    --------
    >>> from skdgp.exceptions import TrainingFailed
    >>> issubclass(TrainingFailed, ValueError)
    True
    """


@contextlib.contextmanager
def memory_errors():
    """A context in which missing memory is a MemoryError of one sentence, whoever notices it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        kinds = MemoryError, torch.OutOfMemoryError
        if not (isinstance(error, kinds) or any(text in str(error) for text in _NO_MEMORY)):
            raise
        if type(error) is MemoryError and str(error):  # numpy's is a subclass
            raise
        found = _SIZE.search(str(error))
        size = f" ({found[1]} were to be allocated)" if found else ""
        raise MemoryError(
            f"There is not enough memory{size}; take fewer rows or inducing points, a smaller batch_size, or a "
            "scheme for many rows, as inference='dsvi'."
        ) from error


@contextlib.contextmanager
def numerical_failures(name):
    """A context of the numerics of the scheme `name`: a failure is a TrainingFailed, or a MemoryError."""
    try:
        with memory_errors():
            yield
    except (torch.linalg.LinAlgError, np.linalg.LinAlgError) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        raise TrainingFailed(
            f"{name} could not be trained ({why}); look for extreme values in X, y and sample_weight, or "
            "choose another kernel or a smaller learning_rate."
        ) from error

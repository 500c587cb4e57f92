"""The device on which models are trained."""

import torch

#: compute capabilities of GPUs with half of the speed in double precision; others have a 32nd or less
_FAST_IN_DOUBLE = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}


def training_device(device, dtype):
    """Return the device for training; raises ValueError if torch cannot use it."""
    if device == "auto":
        fits = torch.cuda.is_available() and (
            dtype == "float32"
            or torch.version.hip is not None
            or torch.cuda.get_device_capability() in _FAST_IN_DOUBLE
        )
        return "cuda" if fits else "cpu"
    try:
        if device.partition(":")[0] not in ("cpu", "cuda"):
            raise RuntimeError("unknown to skdgp")
        torch.empty(0, device=device, dtype=torch.float64)
    except (RuntimeError, TypeError, AssertionError) as error:
        why = str(error).partition("\n")[0].partition(". ")[0]
        raise ValueError(
            f"device={device!r} cannot be used here ({why}); use 'cpu', 'cuda' or 'auto'."
        ) from error
    return device

"""Kernel and noise of nearest neighbors from an exact Gaussian process on some rows."""

from functools import partial

import numpy as np
import torch

from ..exact import ExactGP

_ROWS = 1000  #: whose marginal likelihood is maximized: 2 to 4 seconds
_STEPS = 30  #: as of an exact member of the default
_SHARE = 0.5  #: of the time, if that is limited


class SubsetStart:
    """Takes kernel and noise of a model from an exact Gaussian process on at most 1,000 random rows."""

    def __init__(self, architecture, likelihood, scheme):
        self._build = partial(ExactGP, architecture, likelihood, scheme)
        self.limits = None  #: time that there is, as in :meth:`Model.limit`

    def __call__(self, model, batch):
        """Maximize the marginal likelihood, and set what the model has learned from it."""
        chosen = np.random.default_rng(0).permutation(len(batch.X))[:_ROWS]
        chosen = torch.as_tensor(np.sort(chosen), device=batch.X.device)
        X, y, weight = (part[chosen] for part in (batch.X, batch.y, batch.weight))
        part = batch._replace(X=X, y=y, weight=weight, scale=1.0, total=float(weight.sum()))
        gp = self._build().to(model.rows.Z.device)
        if self.limits is not None:
            gp.limit(*(_SHARE * limit for limit in self.limits))
        gp.hold(part)
        gp.choose_start(part)
        for _ in range(_STEPS):
            gp.step(part, None)
            if gp.finished:
                break
        model.rows.kernel.load_state_dict(gp.rows.kernel.state_dict())
        model.likelihood.load_state_dict(gp.likelihood.state_dict())

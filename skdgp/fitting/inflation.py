"""Extrapolation variance inflation: factors learned from splits of the training rows."""

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from .._warnings import warn
from ..inference import DSVI
from ..inference.structured.inflation import LOG_FACTORS, deviation_factor, learned
from ..training import init as initialization
from .member import Plan
from .projection import ProjectionSplit
from .scaling import learn_scaling

_ROWS = 20_000  #: that are split
_SCORED = 1000  #: rows of a split that are predicted
_FEWEST_ROWS = 40  #: below which splits tell nothing


def learn_inflation(fit, model, plan, data, rng, pretraining):
    """Train shallow models on splits of the rows, and set the inflation by their errors elsewhere.

    Splits are by hyperplanes in random directions. Shallow models err beyond them as deep ones do, and are
    trained sooner.
    """
    seed = int(rng.randint(2**31 - 1))
    if pretraining.skipped:
        return
    model.variance_inflation.moments.zero_()  # those of the model that it may have started from
    if len(data) < _FEWEST_ROWS:
        return
    rng = np.random.RandomState(seed)
    data, scores = data.part(_sample(len(data), _ROWS, rng)), []
    kernel = plan.kernel[0] if isinstance(plan.kernel, (list, tuple)) else plan.kernel
    shallow = Plan(DSVI(), plan.likelihood, kernel=kernel, n_inducing=plan.n_inducing)
    splitter = ProjectionSplit(plan.scheme.n_inflation_splits, random_state=seed)
    try:
        splits = list(splitter.split(data.X))
    except ValueError:  # all columns are constant
        return
    with pretraining:
        for near, far in splits:
            far = far[_sample(len(far), _SCORED, rng)]
            score = _score_split(fit, shallow, data.part(near), data.part(far), rng, pretraining)
            if score is None:
                warn(
                    f"max_time was enough for {len(scores)} of {len(splits)} splits of the rows; "
                    "error bars away from the data are only as wide as these ask for.",
                    ConvergenceWarning,
                )
                break
            scores.append(score)
    scores = [score for score in scores if np.isfinite(score).all()]
    if scores:
        model.variance_inflation.moments.copy_(torch.as_tensor(learned(np.stack(scores))))


def _score_split(fit, plan, near, far, rng, pretraining):
    """Mean log density of the far rows given the near ones, factor by factor; None if it takes too long."""
    learn_scaling(near, plan.likelihood, fit.settings, None, rng)
    far.scale_as(near.x_scaler, near.y_scaler)
    model = fit.member(plan, near, rng).build()
    X, _, weights = near.take(slice(None))
    initialization.start(model, X, weights, "kmeans", rng)
    trainer = fit.trainer(model, plan, near, int(rng.randint(2**31 - 1)))
    trainer.max_iter = min(trainer.max_iter, plan.scheme.max_iter(len(near)))
    pretraining.train(trainer)
    if trainer.max_time is not None and trainer.elapsed >= trainer.max_time:
        return None
    X, y, weights = (torch.tensor(part, device=fit.device) for part in far.take(slice(None)))
    with torch.no_grad():
        _, mean, var = model.posterior(X.new_empty(1, 0)).latent(X)
        likelihood = model.likelihood.fitted().for_prediction(1)
        n_means = likelihood.n_means(mean.shape[-1])
        k_ff = model.layers[0].kernel().diag(X)[:, None]
        scores = []
        for factor in np.exp(LOG_FACTORS):
            a = deviation_factor(factor, var, k_ff, n_means)
            log_density = likelihood.log_partition(y, mean, a.square() * var)[0]
            scores.append(float(weights @ log_density / weights.sum()))
    return np.array(scores)


def _sample(n, most, rng):
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))

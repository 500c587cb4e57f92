"""How much each column matters for what a fitted estimator predicts."""

import numpy as np

N_ROWS = 200  #: training rows that are kept for it: shares of a sum of three parts have a standard error of .03
_AT_ONCE = 200_000  #: numbers in changed rows, for the sake of memory


def sample_rows(X, n=N_ROWS) -> np.ndarray:
    """Some rows, `n` at most, in the user's units."""
    rows = np.arange(len(X)) if len(X) <= n else np.random.RandomState(0).choice(len(X), n, False)
    return np.asarray(X[np.sort(rows)], dtype=np.float64)


def total_effects(predict, X) -> np.ndarray:
    """Half the mean squared change of a prediction if one column takes values of other rows.

    Total-effect indices of Sobol, before they are divided by the variance, as of Jansen (1999), eq. 6.

    Parameters
    ----------
    predict : callable
        Maps (n, n_features) to (n, k), or to (n, k, n_draws) for many functions.
    X : ndarray of shape (n, n_features)

    Returns
    -------
    effects : ndarray of shape (n_features,) or (n_features, n_draws)

    References
    ----------
    M. J. W. Jansen (1999). Analysis of variance designs for model output. Computer Physics
    Communications 117.
    """
    rng, before = np.random.RandomState(0), predict(X)
    effects = np.zeros((X.shape[1], *before.shape[2:]))
    varying, size = np.flatnonzero(np.ptp(X, axis=0) > 0.0), max(1, _AT_ONCE // X.size)
    for columns in (varying[i : i + size] for i in range(0, len(varying), size)):
        others = np.repeat(X[None], len(columns), 0)
        for other, j in zip(others, columns):
            other[:, j] = X[rng.permutation(len(X)), j]
        after = predict(others.reshape(-1, X.shape[1])).reshape(len(columns), *before.shape)
        effects[columns] = 0.5 * np.square(after - before).sum(2).mean(1)
    return effects


def shares(effects) -> np.ndarray:
    """Effects (n_features, ...) that add up to one over the columns, or zeros where there are none."""
    total = effects.sum(0)
    return effects / np.where(total > 0.0, total, 1.0)


def draw_means(estimator, X, n_draws, seed) -> np.ndarray:
    """Draws of the function whose mean is predicted, (n, k, n_draws): of means of y, or of probabilities.

    Means are in units of the standardized target.
    """
    return np.moveaxis(estimator._draw(X, n_draws, seed, "mean_function"), 0, -1)

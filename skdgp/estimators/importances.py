"""How much each column matters for what a fitted estimator predicts."""

import numpy as np

N_ROWS = 200  #: training rows that are kept for it: shares of a sum of three parts have a standard error of .03


def sample_rows(X) -> np.ndarray:
    """Some training rows, in the user's units."""
    n = len(X)
    rows = np.arange(n) if n <= N_ROWS else np.random.RandomState(0).choice(n, N_ROWS, False)
    return np.asarray(X[np.sort(rows)], dtype=np.float64)


def total_effects(predict, X) -> np.ndarray:
    """Half the mean squared change of a prediction if one column takes values of other rows.

    Total-effect indices of Sobol, before they are divided by the variance, as of Jansen (1999), eq. 6.

    Parameters
    ----------
    predict : callable
        Maps (n, n_features) to (n, k).
    X : ndarray of shape (n, n_features)

    Returns
    -------
    effects : ndarray of shape (n_features,)

    References
    ----------
    M. J. W. Jansen (1999). Analysis of variance designs for model output. Computer Physics
    Communications 117.
    """
    rng, before = np.random.RandomState(0), predict(X)
    effects = np.zeros(X.shape[1])
    for j in np.flatnonzero(np.ptp(X, axis=0) > 0.0):
        other = X.copy()
        other[:, j] = X[rng.permutation(len(X)), j]
        effects[j] = 0.5 * np.square(predict(other) - before).sum(1).mean()
    return effects

"""Regression of simulators of several fidelities."""

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from .._checks import check_coverage
from ..gp.kernels import Linear, SquaredExponential
from ..gp.likelihoods import Gaussian
from ..gp.priors import LogNormal
from ..predictive.base import GaussianMixture
from ..random import sobol_normal
from ._sklearn import HasMethods, Interval
from .regressor import DeepGPRegressor
from .warm_start import all_or_nothing

_NOISE = 1e-4  #: of the target's variance: prior median of what a level does not explain
#: medians and spreads of priors, which few dear runs need: lengthscales of the product, for one column
_SLOW, _OF_CHEAPER = (8.0, 0.5), (4.0, 0.5)
#: likewise, lengthscale and variance of what the cheaper output does not tell
_REST = (1.0, 0.5), (0.01, 1.0)
_CHEAPER = "cheaper output"  #: name of the last column of levels above the lowest
_MISSING = "The column of the fidelity has missing values; leave these rows out."


class MultiFidelityRegressor(RegressorMixin, BaseEstimator):
    r"""Nonlinear autoregression from cheap to dear simulators (Perdikaris et al., 2017).

    A column of X says by which simulator each row was computed. The cheapest one has a model of its own. The
    next one is a function of the inputs and of the output of the cheaper one, and so on: a deep Gaussian
    process whose layers are observed. The output of the cheaper simulator is not known at new rows: predictions
    are mixtures over draws of it, so that error bars carry its uncertainty.

    By default the model of the cheapest simulator is ``DeepGPRegressor(noise="none")``. Those of the others
    are exact Gaussian processes with the kernel

    .. math:: k(x, x')\, k_f(f, f') + k_\delta(x, x') + \text{linear}

    of inputs `x` and cheaper outputs `f`, and with little Gaussian noise. Priors expect that what the dearer
    simulator makes of `f` changes slowly with `x`, and that little is left for the second term.

    Parameters
    ----------
    estimator : estimator or None, default=None
        Regressor of each level, with ``predict(X, return_std=True, latent=True)``, for instance
        ``DeepGPRegressor()`` for noisy runs. Levels above the lowest have the cheaper output as one more
        column, the last. None stands for the models above.
    fidelity : str or int, default=-1
        Name or position of the column of X that holds the fidelity of each row.
    levels : sequence or None, default=None
        Values of this column, from the cheapest simulator to the dearest. None sorts the numbers in it.
    n_draws : int, default=64
        Draws of cheaper outputs in predictions, best a power of two.
    random_state : int, RandomState instance or None, default=None
        Of the default models.

    Attributes
    ----------
    levels_ : list
        Values of the column, from the cheapest simulator to the dearest.
    estimators_ : list of estimators
        A fitted model for each level.
    n_features_in_ : int
        Number of columns of X, that of the fidelity included.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if they are all strings.

    References
    ----------
    P. Perdikaris, M. Raissi, A. Damianou, N. Lawrence and G. Karniadakis (2017). Nonlinear information fusion
    algorithms for data-efficient multi-fidelity modelling. Proceedings of the Royal Society A 473.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import MultiFidelityRegressor
    >>> cheap, dear = np.linspace(0, 1, 21), np.linspace(0, 1, 7)
    >>> x = np.r_[cheap, dear]
    >>> level = np.repeat([0, 1], [21, 7])
    >>> y = np.where(level == 0, np.sin(9 * x), np.sin(9 * x) ** 2 + x)
    >>> model = MultiFidelityRegressor(random_state=0).fit(np.column_stack([x, level]), y)
    >>> mean, std = model.predict([[0.4, 1]], return_std=True)
    >>> bool(abs(mean[0] - (np.sin(3.6) ** 2 + 0.4)) < 0.1)
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "fidelity": [str, Integral],
        "levels": ["array-like", None],
        "n_draws": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        fidelity: str | int = -1,
        levels: Sequence | None = None,
        n_draws: int = 64,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.estimator = estimator
        self.fidelity = fidelity
        self.levels = levels
        self.n_draws = n_draws
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit a model for each level, from the cheapest to the dearest.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs and, in one column, the fidelity. A data frame may hold what other estimators take, too.
        y : array-like of shape (n_samples,)

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If a simulator but the dearest has run at a single input.
        """
        self._validate_params()
        with all_or_nothing(self) as new:
            new._fit_levels(X, _targets(y))
        return self

    def _fit_levels(self, X, y):
        inputs, fidelity = self._split(X, reset=True)
        check_consistent_length(fidelity, y)
        self.levels_ = self._sorted(fidelity)
        self.estimators_ = []
        n_features = inputs.shape[1]
        for level in self.levels_[:-1]:
            own = inputs[np.flatnonzero(fidelity == level)]
            if len(set(own.rows() if isinstance(own, nw.DataFrame) else map(tuple, own))) < 2:
                raise ValueError(
                    f"The simulator of level {level!r} has run at a single input, and how its output changes "
                    "is not known; add runs of it, or leave its rows out."
                )
        for level in self.levels_:
            rows = np.flatnonzero(fidelity == level)
            own, target = inputs[rows], y[rows]
            if self.estimators_:
                own = _with_column(own, self._outputs(own, len(self.estimators_) - 1)[0].mean(0))
            model = self._model(target, n_features)
            with warnings.catch_warnings():  # linear beyond all runs is not asked for
                warnings.filterwarnings("ignore", "Some values of X are far from all others")
                self.estimators_.append(model.fit(_native(own), target))

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Predict the mean of y, each row at its fidelity.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False

        Returns
        -------
        mean : ndarray of shape (n_samples,)
        std : ndarray of shape (n_samples,)
            Standard deviation of y, the uncertainty of cheaper outputs included. If `return_std`.
        """
        means, variances = self._components(X)
        mean = means.mean(0)
        if not return_std:
            return mean
        return mean, np.sqrt(variances.mean(0) + means.var(0))

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> np.ndarray:
        """Predict central intervals.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float, default=0.9

        Returns
        -------
        interval : ndarray of shape (n_samples, 2)
        """
        check_coverage(coverage)
        parts = [torch.as_tensor(part)[..., None] for part in self._components(X)]
        weights = torch.full((len(parts[0]), 1, 1), 1.0 / len(parts[0]), dtype=torch.float64)
        ends = torch.tensor([0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)], dtype=torch.float64)
        return GaussianMixture(weights, *parts).quantiles(ends.numpy())[:, 0].numpy(force=True)

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Log density of each target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
        """
        means, variances = self._components(X)
        y = _targets(y)
        check_consistent_length(means.T, y)
        logs = -0.5 * (np.log(2.0 * np.pi * variances) + np.square(y - means) / variances)
        return np.logaddexp.reduce(logs, 0) - np.log(len(logs))

    def _components(self, X):
        """Means and variances (n_draws, n_samples) of y given draws of cheaper outputs."""
        check_is_fitted(self)
        inputs, fidelity = self._split(X, reset=False)
        unknown = sorted({str(level) for level in fidelity if level not in self.levels_})
        if unknown:
            raise ValueError(
                f"fit has seen the levels {self.levels_}, and not {', '.join(unknown)}."
            )
        found = np.empty((2, self.n_draws, len(fidelity)))
        for i, level in enumerate(self.levels_):
            rows = np.flatnonzero(fidelity == level)
            if len(rows):
                _, found[0, :, rows], found[1, :, rows] = (
                    np.swapaxes(part, 0, 1) for part in self._outputs(inputs[rows], i, latent=False)
                )
        return found

    def _outputs(self, inputs, i, latent=True):
        """Draws of the output of level `i` at inputs, and means and variances given cheaper ones.

        All have the shape (n_draws, n). Draws of a level have the same quantiles at all rows, which is all that
        distributions of single rows need.
        """
        z = sobol_normal(self.n_draws, len(self.levels_), 0)
        values, n = None, len(inputs)
        for j, model in enumerate(self.estimators_[: i + 1]):
            rows = inputs
            if values is not None:
                rows = _with_column(inputs[np.tile(np.arange(n), self.n_draws)], values.ravel())
            of_function = {"latent": True} if latent or j < i else {}
            mean, std = model.predict(_native(rows), return_std=True, **of_function)
            mean, std = (np.broadcast_to(p.reshape(-1, n), (self.n_draws, n)) for p in (mean, std))
            values = mean + std * z[:, j, None]
        return values, mean, np.square(std)

    def _model(self, y, n_features):
        if self.estimator is not None:
            return clone(self.estimator)
        if not self.estimators_:
            return DeepGPRegressor(noise="none", random_state=self.random_state)
        x, f = list(range(n_features)), [n_features]
        (slow, spread), (own, of_own), root = _SLOW, _REST[0], n_features**0.5
        kernel = SquaredExponential(LogNormal(slow * root, spread), on=x)
        kernel = kernel * SquaredExponential(LogNormal(*_OF_CHEAPER), on=f)
        rest = LogNormal(own * root, of_own), LogNormal(*_REST[1])
        kernel = kernel + SquaredExponential(*rest, on=x)
        noise = Gaussian(_NOISE * y.var()) if y.var() > 0.0 else "gaussian"
        return DeepGPRegressor(
            1,
            inference="exact",
            kernel=kernel + Linear(bias=0.0),
            likelihood=noise,
            target_transform=None,
            random_state=self.random_state,
        )

    def _split(self, X, reset):
        """Inputs, an array or a data frame, and the fidelity of each row."""
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        is_frame = isinstance(frame, nw.DataFrame)
        if not is_frame:
            X = check_array(X, dtype=None, ensure_all_finite=False, ensure_min_samples=0)
        validate_data(self, X, skip_check_array=True, reset=reset)
        names = list(vars(self).get("feature_names_in_", range(self.n_features_in_)))
        given = self.fidelity
        known = given in names if isinstance(given, str) else -len(names) <= given < len(names)
        if not known or len(names) < 2:
            raise ValueError(
                f"fidelity={given!r} is no column of X beside others; its columns are {names}."
            )
        j = names.index(given) if isinstance(given, str) else given % len(names)
        if not is_frame:
            return np.delete(X, j, axis=1), X[:, j]
        frame = frame.rename({name: str(name) for name in frame.columns})
        fidelity = frame.get_column(frame.columns[j])
        if fidelity.is_null().any():
            raise ValueError(_MISSING)
        return frame.drop(frame.columns[j]), fidelity.to_numpy()

    def _sorted(self, fidelity):
        """The levels in their order; ValueError if it is not known."""
        found = set(fidelity.tolist())
        if any(level is None or level != level for level in found):
            raise ValueError(_MISSING)
        levels = list(self.levels) if self.levels is not None else None
        if levels is None:
            if fidelity.dtype.kind not in "biuf":
                raise ValueError(
                    "The column of the fidelity holds no numbers; give its values in levels, from the cheapest "
                    "simulator to the dearest."
                )
            levels = sorted(found)
        if set(levels) != found or len(levels) != len(found):
            raise ValueError(f"levels are {levels}, but the column of the fidelity holds {found}.")
        return levels


def _native(rows):
    return rows.to_native() if isinstance(rows, nw.DataFrame) else rows


def _with_column(rows, values):
    """Inputs with one more column, the last."""
    if not isinstance(rows, nw.DataFrame):
        return np.column_stack([rows, values])
    name = _CHEAPER
    while name in rows.columns:
        name += "_"
    return rows.with_columns(nw.new_series(name, values, backend=rows.implementation))


def _targets(y):
    return column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))

"""Labels and their probabilities, for all classifiers."""

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state, check_scalar, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from .._arrays import as_numpy
from ..gp.likelihoods import Bernoulli
from ..predictive.gradients import check_numeric, gradients

_CURE = "pass all of them as classes= in the first call of partial_fit"


def order_of_labels(y):
    """Labels of an ordered categorical of pandas in their order, or None."""
    dtype = getattr(y, "dtype", None)
    return list(dtype.categories) if getattr(dtype, "ordered", False) is True else None


class ClassificationMixin(ClassifierMixin):
    """Predictions of classes."""

    _y_checks: ClassVar[dict[str, bool]] = {}
    _label_order = None  #: of the labels of an ordered categorical target

    _takes_missing = False  #: targets

    def _n_classes(self):
        return len(self.classes_)

    def _auto_likelihood(self, scheme, data):
        return scheme.auto_likelihood(len(self.classes_), self.n_layers)

    def _rows(self, X, y, sample_weight, exposure, reset, **more):
        if reset:
            self._label_order = order_of_labels(y)
        return super()._rows(X, y, sample_weight, exposure, reset, **more)

    def _plan(self, scheme, data):
        plan = super()._plan(scheme, data)
        plan.likelihood = plan.likelihood.for_labels(self.classes_, self._label_order)
        return plan

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        binary = isinstance(self.likelihood, Bernoulli) or self.likelihood in ("probit", "logit")
        tags.classifier_tags.multi_class = not binary
        return tags

    def _encode(self, y, reset, classes=None, rows=slice(None)):
        """Numbers of the classes of some rows; on reset, the classes are `classes` or those of all rows."""
        y = column_or_1d(y, warn=reset)
        if reset:
            check_classification_targets(y)
            self.classes_ = np.unique(y if classes is None else classes)
            present = np.unique(y[rows]) if classes is None else self.classes_
            if len(present) < 2:
                others = ", apart from rows of weight zero" if len(self.classes_) > 1 else ""
                if "partial_fit" in dir(self):
                    others += f"; if others come in later chunks, {_CURE}"
                raise ValueError(
                    f"{type(self).__name__} needs samples of at least 2 classes in the data, but the data "
                    f"contains only one class: {present.tolist()[0]!r}{others}."
                )
        y = y[rows]
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            cure = "" if classes is None else f"; {_CURE}"
            raise ValueError(
                f"y contains classes that were not there at first: {unknown.tolist()}{cure}."
            )
        return np.searchsorted(self.classes_, y).astype(np.float64)[:, None]

    def _check_likelihood(self, likelihood, y):
        likelihood.check_n_classes(len(self.classes_))

    def _centers(self, X):
        """Probabilities (n, n_classes) of the classes at checked rows."""
        return self._predictor().over(X, lambda d: d.probabilities())

    def _output_scales(self):
        return 1.0

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy of the predicted classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            How much each row counts.

        Returns
        -------
        score : float
        """
        return super().score(X, as_numpy(y), as_numpy(sample_weight))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(1)]

    def predict_proba(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Predict the probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether to return the standard deviations of probabilities over the functions that the data leave
            possible. They are large where rows are few, and small where classes overlap but rows are many.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        std : ndarray of shape (n_samples, n_classes)
            Only if `return_std` is True.
        """
        if not return_std:
            return np.exp(self.predict_log_proba(X))
        X = self._check_X(X)
        return self._predictor().over(X, lambda d: (d.probabilities(), d.std()))

    def predict_gradient(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Predict how the probabilities of the classes change with each column of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of numbers without gaps.
        return_std : bool, default=False
            Whether to return the gradients of the standard deviations of probabilities, too.

        Returns
        -------
        gradient : ndarray of shape (n_samples, n_classes, n_features)
            Derivatives of ``predict_proba(X)``.
        gradient_of_std : ndarray of the shape of `gradient`
            Only if `return_std` is True.

        Raises
        ------
        ValueError
            If the model was fitted to categories, dates or gaps, or X has gaps.
        """
        X = self._check_X(X)
        predictor = self._predictor()
        check_numeric(predictor, X)
        if return_std:
            return tuple(gradients(predictor, X, lambda d: (d.probabilities(), d.std())))
        return gradients(predictor, X, lambda d: (d.probabilities(),))[0]

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Predict the logarithms of the probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
        """
        X = self._check_X(X)
        return self._predictor().over(X, lambda d: d.log_probabilities())

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Log-probability of the given class at each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        log_probability : ndarray of shape (n_samples,)
        """
        X, y = self._check_X(X), self._check_y(X, y)
        return self._predictor().over(X, lambda d, y: d.log_prob(y), y)

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        latent: bool = False,
    ) -> np.ndarray:
        """Draw from the predictive distribution.

        Each draw is one set of latent functions, evaluated at all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
            An integer, as by default, gives the same draws in each call; None gives others.
        latent : bool, default=False
            Return the latent functions: the same ones for the same `random_state`, whatever the
            rows. Otherwise labels are drawn afresh for every row.

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples), or (n_samples_X, n_latents, n_samples) if
        `latent` is True
        """
        X = self._check_X(X)
        n = int(check_scalar(n_samples, "n_samples", Integral, min_val=1))
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        y = self._predictor().draw(X, n, seed, "function" if latent else "y")
        return np.moveaxis(y, 0, -1) if latent else self.classes_[y[..., 0].T.astype(int)]

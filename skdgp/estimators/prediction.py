"""Prediction with the members of a fitted estimator."""

import contextlib
from numbers import Integral

import numpy as np
import torch
from sklearn.utils import check_array, check_consistent_length, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from .._threads import at_most
from .._warnings import warn
from ..mixture.dispersion import dispersed
from ..mixture.predictive import Predictive, rows_at_once
from ..preprocessing.constant_columns import ConstantColumns, changed_constant_columns
from ..random import RowNoise
from .fork import mark_work

_FUNCTIONS_AT_ONCE = 64
_ELEMENTS_AT_ONCE = 8_000_000


def as_numpy(array):
    """Torch tensors as numpy; everything else as it is."""
    return array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array


class ScoreMixin:
    """Scores of scikit-learn, which knows no tensors on other devices."""

    def score(self, X, y, sample_weight=None):
        """Coefficient of determination of a regressor, accuracy of a classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets or labels.
        sample_weight : array-like of shape (n_samples,), optional
            How much each row counts.

        Returns
        -------
        score : float
        """
        return super().score(X, as_numpy(y), as_numpy(sample_weight))


class PredictionMixin:
    """What predictions of all kinds share; everything is defined on the mixture of the members."""

    @contextlib.contextmanager
    def _threads(self):
        """All that torch computes happens in here, whatever the caller has done to gradients."""
        limited = at_most(self.n_threads) if self.n_threads else contextlib.nullcontext()
        with torch.inference_mode(False), torch.enable_grad(), limited:
            mark_work()
            yield

    def _check_X(self, X):
        check_is_fitted(self)
        X = validate_data(self, as_numpy(X), reset=False, dtype=[np.float64, np.float32])
        changed = changed_constant_columns(X, self._x_scaler)
        if changed:
            columns = ", ".join(map(str, changed[:5])) + ", ..." * (len(changed) > 5)
            warn(
                f"Columns {columns} of X were constant in fit, and have other values now. Means do not depend "
                "on them, and error bars are wider; leave out columns that do not matter.",
                UserWarning,
            )
        return X

    def _check_X_y(self, X, y):
        X = self._check_X(X)
        y = check_array(as_numpy(y), ensure_2d=False, dtype=None, input_name="y")
        check_consistent_length(X, y)
        y = self._encode(y, reset=False)
        self._check_likelihood(self.members_[0].likelihood, y)
        return X, y

    def _predict_rows(self, X, method, *others, **settings):
        """Apply a method of the predictive distribution, piece by piece."""
        device, scale = self._prediction_device(), self._x_scaler.transform
        with self._threads():
            results, size = None, rows_at_once(self.members_)
            for first in range(0, len(X), size):
                x, *rest = (array[first : first + size] for array in (X, *others))
                constant_columns = ConstantColumns(x, self._x_scaler)
                predictive = Predictive(self.members_, scale(x), device, constant_columns)
                parts = getattr(predictive, method)(*rest, **settings)
                several = isinstance(parts, tuple)
                parts = parts if several else (parts,)
                # arrays made beforehand: small ones amid large ones that come and go waste memory
                results = results or [np.empty((len(X), *part.shape[1:])) for part in parts]
                for result, part in zip(results, parts):
                    result[first : first + len(x)] = part
        return tuple(results) if several else results[0]

    def _device(self):
        """Where to train."""
        if self.device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        try:
            if self.device.partition(":")[0] not in ("cpu", "cuda"):
                raise RuntimeError("unknown to skdgp")
            torch.empty(0, device=self.device, dtype=torch.float64)
        except (RuntimeError, TypeError, AssertionError) as error:
            why = str(error).partition("\n")[0].partition(". ")[0]
            raise ValueError(
                f"device={self.device!r} cannot be used here ({why}); use 'cpu', 'cuda' or 'auto'."
            ) from error
        return self.device

    def _prediction_device(self):
        """Where to predict: where the fit was, unless this machine has no such GPU."""
        device = torch.device(self.device_)
        there = device.type == "cpu" or (device.index or 0) < torch.cuda.device_count()
        return self.device_ if there else "cpu"

    def _log_density_of(self, members, held_out):
        """Weighted mean of the log-density over held-out rows."""
        weights = held_out.weights
        return float(weights @ self._log_densities(members, held_out) / weights.sum())

    def _log_densities(self, members, data):
        """Log-density of each row, in units of the standardized target."""
        X, y, _ = data.take(slice(None))
        size = rows_at_once(members)
        logs = [
            Predictive(members, X[i : i + size], self._device()).log_density(y[i : i + size])
            for i in range(0, len(X), size)
        ]
        return np.concatenate(logs)

    def _closed_covariance(self, X, k):
        """Covariances of rows of the first `k` latents of the mixture, standardized, (n, n, k).

        None if a member has no closed form.
        """
        device, mixture_weights, means, within = self._prediction_device(), [], [], 0.0
        weights = np.array([member.mixture_weight for member in self.members_])
        constant_columns = ConstantColumns(X, self._x_scaler)
        with self._threads(), torch.no_grad():
            X = torch.as_tensor(self._x_scaler.transform(X), device=device)
            for member, mixture_weight in zip(self.members_, weights / weights.sum()):
                model = member.model(device)
                cov = model.covariance(X)
                if cov is None:
                    return None
                draws = torch.tensor(member.draws[:1], device=device)  # means are equal for all
                mixture_weights.append(mixture_weight * model.mixture_weights(draws))
                if constant_columns:
                    inflation = model.mixture_weights(draws) @ model.inflation(draws)
                    cov = cov[:k] + inflation * torch.as_tensor(constant_columns.covariance()).to(
                        cov
                    )
                within = within + mixture_weight * member.dispersion**2 * cov[:k]
                means.append(model.predictive(X, draws)[0][..., :k])
            mixture_weights, means = (
                torch.cat(mixture_weights),
                torch.cat(means),
            )  # of all components
            off = means - torch.einsum("s,sik->ik", mixture_weights, means)
            between = torch.einsum("sik,sjk->kij", mixture_weights[:, None, None] * off, off)
            return (within + between).permute(1, 2, 0).cpu().numpy()

    def _draw(self, X, n, seed, what, n_features=1024, k=None):
        """Draws of functions, and what follows from them; every draw picks its member first.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            In the user's units.
        n : int
        seed : int
        what : {"function", "latent", "mean", "y"}
            Latent functions without the noise of hidden layers, or with it, the mean of the target given
            these, or targets; hidden noise is that of the row, except for targets, where all noise is fresh.
        n_features : int
            Random features of a function.
        k : int, optional
            How many latents to return.

        Returns
        -------
        draws : ndarray of shape (n, n_rows, k)
            In the units of the standardized target.
        """
        n = int(check_scalar(n, "n_samples", Integral, min_val=1))
        constant_columns, X = ConstantColumns(X, self._x_scaler), self._x_scaler.transform(X)
        functions, noise = (torch.Generator().manual_seed(s) for s in (seed, seed + 1))
        weights = np.array([member.mixture_weight for member in self.members_])
        chosen = np.sort(
            np.random.default_rng(seed).choice(len(weights), n, p=weights / weights.sum())
        )
        draws = []
        with self._threads(), torch.no_grad():
            X = torch.as_tensor(X, device=self._prediction_device())
            for first in range(0, n, _FUNCTIONS_AT_ONCE):
                group = chosen[first : first + _FUNCTIONS_AT_ONCE]
                for i in np.unique(group):
                    model = self.members_[i].model(self._prediction_device())
                    dispersion = self.members_[i].dispersion
                    own = {} if dispersion == 1.0 else {"dispersion": dispersion}
                    f = model.functions(int((group == i).sum()), functions, n_features, **own)
                    size = max(1, _ELEMENTS_AT_ONCE // (len(group) * n_features))
                    likelihood, parts = model.likelihood(), []
                    add = _adding(
                        constant_columns, likelihood, group == i, seed + first, dispersion
                    )
                    likelihood = dispersed(likelihood, dispersion)
                    for start, x in zip(range(0, len(X), size), X.split(size)):
                        if what == "function":
                            parts.append(add(f, f(x), start)[..., :k])
                        elif what in {"latent", "mean"}:  # the same for a row, whatever the others
                            values = add(f, f(x, RowNoise(x.cpu().numpy(), seed + first)), start)
                            if what == "mean":
                                values = likelihood.moments(values, torch.zeros_like(values))[0]
                            parts.append(values[..., :k])
                        else:
                            parts.append(likelihood.sample(add(f, f(x, noise), start), noise))
                    draws.append(torch.cat(parts, 1))
        return torch.cat(draws).cpu().numpy()


def _adding(constant_columns, likelihood, chosen, seed, dispersion):
    """A function that adds to those of a member what no training row tells of."""
    if not constant_columns:
        return lambda f, values, start: values

    def add(f, values, start):
        k, rows = likelihood.n_means(values.shape[-1]), slice(start, start + values.shape[1])
        effects = constant_columns.draws(len(chosen), k, seed, rows)[chosen]
        effects = dispersion * torch.as_tensor(effects).to(values)
        if hasattr(f, "inflation"):
            effects = effects * f.inflation.to(values).sqrt()[:, None, None]
        return torch.cat([values[..., :k] + effects, values[..., k:]], -1)

    return add

"""Fit an estimator to the rows of all ranks."""

import joblib
import numpy as np
import torch.distributed as dist
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier

from ..estimators.base import BaseDeepGP
from ..estimators.warm_start import all_or_nothing
from ..parallel import agreed, from_first, gather, joint
from ..preprocessing.frame_columns import Column, Table

#: Rows, at least and at most, and numbers of the sample from which scaling and starts come: means of 100,000
#: rows are off by .003 deviations, and each rank holds 16 MB of them
_SHARED_ROWS, _SHARED_NUMBERS = (10_000, 100_000), 2_000_000


def fit(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    exposure: ArrayLike | None = None,
    shard: bool | str = "auto",
    staleness: int | None = None,
) -> BaseEstimator:
    """Fit an estimator to the rows of all ranks; call it on every rank of an initialized group.

    Every rank ends with the same fitted estimator. Schemes that learn from minibatches divide their steps:
    each rank computes the gradients of its part of the minibatch, and they are summed. All ranks compute the
    whole of minibatches with less than two rows for each rank. Members of a mixture, as ``inference="auto"``
    has them, are trained by one rank each. If a rank dies, the others end with an error. Rank 0 writes the
    `checkpoint`, and runs the callbacks.

    Parameters
    ----------
    estimator : DeepGPRegressor or DeepGPClassifier
        With an integer `random_state`, and the same parameters on all ranks.
    X : array-like of shape (n_samples, n_features)
        Rows of this rank; there may be none. Data frames need the same columns in the same order on all ranks.
        Their rows together are read as ``fit`` of the estimator reads a frame.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
    sample_weight, exposure : array-like of shape (n_samples,), optional
        Given on all ranks or on none.
    shard : {"auto", "given"}, default="auto"
        With ``"auto"`` every rank receives all rows, in the order of the ranks. With ``"given"`` rows stay
        where they are, and may be memory maps: each rank adds rows of its own to every minibatch, in
        proportion to their number. Scaling, inducing inputs and other starts come from up to 100,000 rows of
        all ranks, and so do `lower_bound_` and the diagnosis.
    staleness : int, optional
        With a number, steps are asynchronous [1]_: rank 0 holds the parameters and makes the steps, the other
        ranks compute gradients of minibatches of their own, and nobody waits for the slowest. Between the
        parameters at which a gradient was computed and its own step, at most this many others are made; no
        rank waits with one less than the number of workers. The result depends on the order in which
        gradients arrive, but with a single worker. For ``"dsvi"`` and ``"rff"`` with the gloo backend
        and ``shard="auto"``: with rows of their own, slow workers would teach less of these.

    Returns
    -------
    estimator : estimator
        The fitted `estimator`. After asynchronous steps its `staleness_` is an array with that of each.

    Raises
    ------
    RuntimeError
        If no process group is initialized, or another rank ended.
    ValueError
        On all ranks, if the settings or the rows of one make no sense, or their columns differ.

    References
    ----------
    .. [1] K. Cutajar, E. V. Bonilla, P. Michiardi and M. Filippone (2017). Random feature expansions for
       deep Gaussian processes. ICML. Section 3.3.

    Examples
    --------
    >>> import torch.distributed
    >>> torch.distributed.is_initialized()  # torchrun and init_process_group("gloo") come first
    False
    """
    rows, n_all = _agreed_rows(estimator, X, y, sample_weight, exposure, shard, staleness)
    is_given = shard == "given"
    some = _of_all(_some_rows(rows, n_all, is_classifier(estimator)) if is_given else rows)
    own = rows if is_given else None
    with joint(own, staleness) as made, all_or_nothing(estimator) as new:
        given = {} if exposure is None else {"exposure": some[3]}
        new.fit(*some[:3], **given)
        # machines differ in the last digits
        new.members_ = from_first(lambda: new.members_)
        if staleness is not None:
            new.staleness_ = np.array(from_first(lambda: made))
    return estimator


def partial_fit(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    classes: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
) -> BaseEstimator:
    """Make one pass over a chunk of rows that ranks have in parts; call it on every rank.

    As the estimator's `partial_fit` with the chunk of all ranks, in their order, whose minibatches they divide.

    Parameters
    ----------
    estimator : DeepGPRegressor or DeepGPClassifier
        As for :func:`fit`, with the same calls before on all ranks.
    X : array-like of shape (n_samples, n_features)
        Rows of this rank; there may be none.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
    sample_weight, exposure : array-like of shape (n_samples,), optional
        Given on all ranks or on none.
    classes : array-like, optional
        All that will ever come; needed in the first call if they are not all in `y`. Of a classifier alone.

    Returns
    -------
    estimator : estimator

    Raises
    ------
    RuntimeError, ValueError
        As :func:`fit`.

    Examples
    --------
    >>> import torch.distributed
    >>> torch.distributed.is_initialized()  # torchrun and init_process_group("gloo") come first
    False
    """
    rows, _ = _agreed_rows(estimator, X, y, sample_weight, exposure)
    X, y, weights, exposure = _of_all(rows)
    given = {"classes": classes} if is_classifier(estimator) else {"exposure": exposure}
    with joint(None, None), all_or_nothing(estimator) as new:
        new.partial_fit(X, y, sample_weight=weights, **given)
        new.members_, new._stream = from_first(lambda: (new.members_, new._stream))
    return estimator


def _agreed_rows(estimator, *args):
    """Rows of this rank as arrays, and the number of all; settings are the same on all ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "No process group is initialized; call torch.distributed.init_process_group first."
        )
    settings, rows = agreed(lambda: _checked(estimator, *args))
    names = rows[0].names if isinstance(rows[0], Table) else None
    own = settings, names, rows[0].shape[1:], len(rows[0]), _held(rows[1])
    settings, names, widths, n_rows, targets = zip(*gather(own))
    if len(set(settings)) > 1:
        raise ValueError("The ranks' estimators or kinds of arguments differ; make them the same.")
    first, *others = [rank for rank, n in enumerate(n_rows) if n] or [0]
    for rank in others:
        if (names[rank], widths[rank]) != (names[first], widths[first]):
            a, b = (names[i] or f"an array of shape (n, {widths[i][0]})" for i in (first, rank))
            raise ValueError(
                f"The columns of X differ: rank {first} has {a}, rank {rank} has {b}; give all ranks the same "
                "columns in the same order."
            )
        if targets[rank] != targets[first]:
            raise ValueError(
                f"The targets differ: rank {first} has {targets[first]}, rank {rank} has {targets[rank]}; give "
                "all ranks the same."
            )
    return rows, sum(n_rows)


def _held(y):
    """The shape and the kind of targets in words."""
    is_text = any(isinstance(one, str) for one in y.ravel()[:1].tolist())
    return f"{'text' if is_text else 'numbers'} of shape {('n', *y.shape[1:])}".replace("'", "")


def _of_all(tables):
    """Tables with the rows of all ranks."""
    return [None if parts[0] is None else _joined(parts) for parts in zip(*gather(tables))]


def _joined(parts):
    filled = [part for part in parts if len(part)] or parts[:1]
    return Table.joined(filled) if isinstance(filled[0], Table) else np.concatenate(filled)


def _checked(estimator, X, y, sample_weight=None, exposure=None, shard="auto", staleness=None):
    """Settings and rows of this rank."""
    if not isinstance(estimator, BaseDeepGP):
        raise ValueError(
            f"An estimator of skdgp is needed; got {type(estimator).__name__}. Of a pipeline, transform "
            "the rows first."
        )
    params = estimator.get_params()
    if not isinstance(params["random_state"], (int, np.integer)):
        raise ValueError("random_state must be an integer, the same on all ranks.")
    if params.get("max_time") is not None and params.get("inference") == "auto":
        raise ValueError(
            "max_time on several ranks is for one model: set inference, for instance to 'dsvi'."
        )
    if params.get("warm_start"):
        raise ValueError("warm_start=True is not supported on several ranks; set it to False.")
    if shard not in ("auto", "given"):
        raise ValueError(f"shard must be 'auto' or 'given'; got {shard!r}.")
    if shard == "given" and params.get("inference") == "auto":
        raise ValueError("shard='given' trains one model: set inference, for instance to 'dsvi'.")
    if shard == "given" and params.get("early_stopping"):
        raise ValueError(
            "early_stopping=True needs shard='auto', for all ranks hold the same rows out."
        )
    if staleness is not None:
        if not isinstance(staleness, (int, np.integer)) or staleness < 0:
            raise ValueError(f"staleness must be None or an integer from 0; got {staleness!r}.")
        if dist.get_world_size() < 2 or dist.get_backend() != "gloo" or shard == "given":
            raise ValueError(
                "staleness needs two ranks or more, the gloo backend and shard='auto'."
            )
    X = Table.of(X)
    tables = [X, *(None if a is None else np.asarray(a) for a in (y, sample_weight, exposure))]
    lengths = {len(table) for table in tables if table is not None}
    if len(lengths) > 1:
        raise ValueError("X, y and the weights of rows must have the same number of rows.")
    kinds = type(estimator).__name__, sample_weight is None, exposure is None, shard, staleness
    return (*kinds, joblib.hash(estimator.get_params(deep=False))), tables


def _some_rows(tables, n_all, by_class):
    """This rank's rows of a sample of all, with weights that make up for those that are missing.

    The smallest and the largest value of each column, or a row of each level and class, are among them.
    """
    X, y, weights, exposure = tables
    most = int(np.clip(_SHARED_NUMBERS // X.shape[1], *_SHARED_ROWS))
    if n_all <= most:
        return tables
    weights, n = np.ones(len(X)) if weights is None else weights, len(X)
    if n == 0:
        return X, y, weights, exposure
    columns = X.columns if isinstance(X, Table) else [Column.of_array(None, x) for x in X.T]
    columns = [*columns, *(Column.of_array(None, one) for one in y.reshape(n, -1).T)]
    ends = np.unique(np.concatenate([column.ends() for column in columns]))
    if by_class:
        ends = np.union1d(ends, np.unique(y, return_index=True)[1])
    others = np.random.default_rng(dist.get_rank()).choice(n, most * n // n_all, replace=False)
    others = np.setdiff1d(others, ends)
    of_ends, of_others = weights[ends], weights[others]
    if len(others) and of_others.sum() > 0.0:
        of_others = of_others * ((weights.sum() - of_ends.sum()) / of_others.sum())
    rows = np.concatenate([ends, others])
    exposure = None if exposure is None else exposure[rows]
    return X[rows], y[rows], np.concatenate([of_ends, of_others]), exposure

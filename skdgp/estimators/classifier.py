"""Deep Gaussian process classification."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from ..fitting import plan as recipe
from ..gp.likelihoods import CLASSIFICATION
from .base import BaseDeepGP
from .chunks import learn_rows, takes_chunks
from .classification import ClassificationMixin


class DeepGPClassifier(ClassificationMixin, BaseDeepGP):
    """Deep Gaussian process classification.

    A composition of sparse Gaussian processes, trained on raw data, with calibrated probabilities. By default
    the predictions are those of a mixture: a model of all rows, nearest neighbors and a deep model, weighted by
    how well they predict rows that they have not seen. A scheme given as `inference` trains a single model.

    Parameters
    ----------
    n_layers : int, default=2
        Number of GP layers of the deep models; 2 has one hidden layer. With 1, ``inference="dsvi"`` is a
        sparse variational GP, and ``"auto"`` a mixture of shallow models.
    width : int, list of int or None, default=None
        Outputs of each hidden layer. None stands for the number of inputs, at most 30. Kernel processes,
        ``"diwp"`` and ``"nngp"``, have none.
    n_inducing : int or None, default=None
        Inducing points of each layer; None leaves the choice to the recipe or the scheme.
    kernel : str, Kernel or list of these, default="auto"
        One for every layer, or one for each: ``"squared_exponential"``, ``"matern32"``,
        ``"matern52"``, ``"rational_quadratic"``, ``"arc_cosine"``, ``"linear"``, ``"anova"``, or objects of
        :mod:`skdgp.gp.kernels`, also their sums and products. Lengthscales are in units of the
        standardized inputs. ``"auto"`` is the squared exponential; for neighbors the rational quadratic, and
        ANOVA with warped columns for the model of all rows.
    mean : {"linear", "zero"}, default="linear"
        Mean function of the hidden layers. The linear one is the identity, padded with zeros for
        wider layers, or the projection to principal directions for narrower ones.
    input_connected : bool, default=False
        Whether later layers see the inputs beside the outputs of the layer before.
    likelihood : str or Likelihood, default="auto"
        ``"probit"``, ``"logit"``, ``"softmax"``, ``"robustmax"``, ``"ordinal"`` for classes in an order, or an
        object of :mod:`skdgp.gp.likelihoods`. ``"auto"`` lets the scheme choose.
    inference : str or Scheme, default="auto"
        The inference scheme, an object of :mod:`skdgp.inference` or its name. ``"auto"`` is a mixture of a deep
        model by ``"dsvi"``, shallow ones by ``"vecchia"`` and, up to some ten thousand rows, ``"exact"``; see
        the user guide. Alone, these two need ``n_layers=1``.
    init : {"kmeans", "random", "greedy"} or estimator, default="kmeans"
        Where training starts: with inducing inputs at centers of the training rows or at random
        rows; with hidden units that copy a sparse Gaussian process; or with the state of a fitted
        estimator, see the user guide.
    budget : {"small", "default", "large"} or float, default="default"
        Predicted seconds for the members of the mixture, see :class:`DeepGPRegressor`.
    max_iter : int or None, default=None
        Number of optimizer steps; None leaves the choice to the scheme.
    max_time : float or None, default=None
        Seconds on the clock after which training stops, with a warning; the step size is lowered in time. What
        was trained by then depends on the machine; `budget` plans a shorter fit that can be repeated.
    batch_size : int or None, default=None
        Rows of a minibatch; None leaves the choice to the scheme.
    learning_rate : float or None, default=None
        Step size of the optimizer; None leaves the choice to the scheme.
    n_predict_draws : int, default=64
        Draws through the hidden layers in prediction, best a power of two. They are made once, in
        ``fit``, and shared by all rows. A member with a small mixture weight has fewer, but eight at
        least: none counts for more than half of what it would in a model alone.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their log-density no longer improves, and keep the best
        state. The held-out rows are lost to training.
    validation_fraction : float, default=0.1
        Share of rows that early stopping holds out.
    n_iter_no_change : int, default=10
        Number of blocks of 50 steps without progress after which training stops, if there is
        validation or `tol` is positive.
    tol : float, default=0.0
        Smallest progress that counts: of the validation score or, without validation, of the loss
        averaged over a block. With 0 and without validation, training makes `max_iter` steps.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit, with its scaling and shape. Settings of the scheme may
        change where they leave the shape as it was.
    standardize : bool, "auto", "warp" or Scaling, default="auto"
        Whether inputs, and the target where the likelihood allows, are centered and scaled inside. The
        scaling of inputs is safe against outliers. Everything that comes out is in the units that went in.
        With ``"warp"``, columns that matter by something like their logarithm are warped as well (input
        warping; Snoek et al., 2014): those for which the marginal likelihood of an exact Gaussian process of
        400 rows and indicators of the classes is in favor, few or none. ``"auto"`` is True.
        A Scaling is that of another fit, from :func:`~skdgp.model_selection.freeze_hyperparameters`.
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns hold categories: those of a frame whose dtype says so, or a list of names, positions or
        booleans, as in :class:`~sklearn.ensemble.HistGradientBoostingRegressor`. Text is categories, too, but
        where nearly all of a column are numbers, dates or times, as a warning says; an empty list keeps text.
        None takes categories of numbers for numbers.
    groups : str, int or None, default=None
        Name or position of the column of X that holds the group of each row, such as a patient or a shop, if
        predictions are for new groups: as ``fit(X, y, groups=...)``, in pipelines and searches without routing.
        The column is no input of the models, and what it holds in predictions does not matter.
    time : str, int or None, default=None
        Name or position of the column of X that holds the time of each row, numbers or dates, if predictions
        are for later times. What is left out to weigh members, to size error bars and to stop early are then
        blocks of the future: each is predicted from the rows before it alone. The column is an input of the
        models, too.
    horizon : float, timedelta or None, default=None
        How far ahead predictions will be, in units of the time; of dates, a timedelta. Blocks of the future are
        so long. None is a tenth of the time that the training rows span.
    checkpoint : str, path-like, Checkpoint or None, default=None
        File in which the state of training is kept, or an existing directory in which every fit keeps a
        file of its own. If the file exists, ``fit`` with the same parameters and data goes on from there.
    device : str, default="auto"
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on; ``"auto"`` takes a GPU
        if there is one that is fast in double precision, any with ``dtype="float32"``.
    dtype : {"auto", "float64", "float32"}, default="auto"
        Precision of the large matrix products in training; ``"auto"`` is float64. Small matrices and
        predictions are in float64 always.
    n_jobs : int or None, default=None
        Members of the mixture that train at the same time, in processes of their own; None is 1, -1 all
        processors. Results do not depend on it.
    n_threads : int or None, default=None
        Threads of each training and of predictions. None is 1: matrices are small, and idle threads take
        time from others.
    random_state : int, RandomState instance or None, default=None
        Determines starting values, minibatches and draws.
    verbose : int, default=0
        If 1, prints a line for each member of a mixture, or every 50 steps of a single model; if 2, both.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, also those of rows of weight zero.
    kernels_ : list of Kernel
        Of a single model: the kernel of each layer with fitted hyperparameters, in units of the standardized
        inputs.
    likelihood_ : Likelihood
        Of a single model: with fitted hyperparameters, in units of the target.
    inducing_inputs_ : list of ndarray
        Inducing inputs of each layer; those of the first in units of the inputs.
    members_ : list of Member
        The models whose mixture predicts, with their `mixture_weight`.
    n_iter_ : int
        Number of steps made.
    loss_curve_ : list of float
        Of a single model: its loss in each step, per row: an estimate of the negative lower bound. For
        ``"aep"`` it is the negative energy, for ``"vecchia"`` the negative mean log-probability of rows
        under leave-one-out.
    validation_scores_ : list of float
        Mean log-density of the held-out rows after each block of 50 steps, and after the last step.
    lower_bound_ : float
        Of a single model: lower bound on the log marginal likelihood of the training rows; beyond 10,000
        rows an estimate from so many of them, unless ``inference`` is that of a sparse Gaussian process. Not
        set for ``"aep"`` and ``"vecchia"``, which have none.
    delta_ : ndarray of shape (`n_layers`,)
        With ``"diwp"``: how near to a fixed function of the one below each Gram matrix is; the first belongs to
        the metric of the inputs.
    device_ : str
        Where the model was trained.
    warp_ : ndarray of shape (`n_features_in_`,)
        How much each column is warped: the logarithm of the ratio of the slopes at its smallest and at its
        largest value of training, 0 where it is straight.
    n_features_in_ : int
        Number of features seen during ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during ``fit``, if they are all strings.

    See Also
    --------
    DeepGPRegressor : Deep Gaussian process regression.
    SparseGPClassifier : Shallow sparse Gaussian processes.

    References
    ----------
    H. Salimbeni and M. Deisenroth (2017). Doubly stochastic variational inference for deep Gaussian
    processes. Advances in Neural Information Processing Systems 30.

    J. Snoek, K. Swersky, R. Zemel and R. Adams (2014). Input warping for Bayesian optimization of
    non-stationary functions. ICML 31.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdgp import DeepGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DeepGPClassifier(max_iter=20, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _likelihoods = CLASSIFICATION

    def _recipe(self, plan, data, seconds):
        """The plans that ``inference="auto"`` stands for."""
        return recipe.classification(plan, *data.X.shape, len(self.classes_), seconds)

    @available_if(takes_chunks)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Make one pass over a chunk of rows.

        What a pass does is told at :meth:`DeepGPRegressor.partial_fit`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), optional
            All classes that will ever come; needed in the first call if they are not all in `y`.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self : estimator
        """
        if self._is_fitted():
            classes = self.classes_ if classes is None else np.unique(classes)
            if not np.array_equal(classes, self.classes_):
                raise ValueError(
                    f"`classes={classes!r}` is not the same as on last call to partial_fit, was: "
                    f"{self.classes_!r}"
                )
        return learn_rows(self, X, y, sample_weight, classes)

"""Deep Gaussian process regression."""

from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..fitting import plan as recipe
from ..fitting.forward import of_the_future, trend_plans
from ..fitting.scaling import extrapolates
from ..fitting.stacking import with_twins
from ..gp.kernels import Anova, RationalQuadratic
from ..gp.likelihoods import REGRESSION, HeteroscedasticGaussian
from ..gp.likelihoods.gaussian import noiseless
from ..inference import DSVI, Exact, StructuredVI, Vecchia, as_scheme
from ._sklearn import Interval, StrOptions
from .base import BaseDeepGP
from .chunks import learn_rows, takes_chunks
from .regression import TARGET_TRANSFORM, RegressionMixin


@dataclass(eq=False, repr=False)
class DeepGPRegressor(RegressionMixin, BaseDeepGP):
    """Deep Gaussian process regression.

    A composition of sparse Gaussian processes, trained on raw data and predicting distributions. By default
    the predictions are those of a mixture of models that err differently: exact and nearest-neighbor Gaussian
    processes, a sparse and a deep one with heavy-tailed noise that depends on the inputs. Those whose predicted
    cost fits the budget take part, weighted by how well they predict rows that they have not seen. A scheme
    given as `inference` trains a single model.

    Parameters
    ----------
    n_layers : int, default=2
        Number of GP layers of the deep models; 2 has one hidden layer. With 1, ``inference="dsvi"`` is a
        sparse variational GP, and ``"auto"`` a mixture of shallow models.
    width : int, list of int or None, default=None
        Outputs of each hidden layer. None stands for the number of inputs, at most 30. Kernel processes,
        ``"diwp"`` and ``"nngp"``, have none.
    n_inducing : int or None, default=None
        Inducing points of each layer; None leaves the choice to the scheme.
    kernel : str, Kernel or list of these, default="auto"
        One for every layer, or one for each: ``"squared_exponential"``, ``"matern32"``,
        ``"matern52"``, ``"rational_quadratic"``, ``"arc_cosine"``, ``"linear"``, ``"anova"``, or objects of
        :mod:`skdgp.gp.kernels`, also their sums and products. Lengthscales are in units of the
        standardized inputs. ``"auto"`` is the squared exponential; for ``"vecchia"`` the rational
        quadratic, for ``"exact"`` the ANOVA kernel, and for members of the mixture that see all rows these
        two and their sum, most with a linear kernel added.
    mean : {"linear", "zero"}, default="linear"
        Mean function of the hidden layers. The linear one is the identity, padded with zeros for
        wider layers, or the projection to principal directions for narrower ones.
    input_connected : bool, default=False
        Whether later layers see the inputs beside the outputs of the layer before.
    likelihood : str or Likelihood, default="auto"
        ``"gaussian"``, ``"heteroscedastic"``, ``"student_t"``, ``"heteroscedastic_student_t"``,
        ``"poisson"``, ``"negative_binomial"``, or an object of :mod:`skdgp.gp.likelihoods`. ``"auto"`` lets the
        scheme choose: heteroscedastic Student-t noise for ``"dsvi"`` and ``"structured"`` with two layers or
        more, ``"rff"`` and the deep models of the mixture, noise of a local size for ``"vecchia"`` and
        ``"exact"``, Gaussian noise for the others. With ``inference="auto"``, too, the smallest or largest
        target has a probability of its own, if a tenth of the targets equal it, twice as many as any other:
        zero of amounts, for instance, or the cap of a measurement. A nearest-neighbor classifier predicts it,
        and the mixture has the other rows (a hurdle model; Cragg, 1971). Samples and quantiles have exactly
        this value. Log densities spread it over a tenth of the distance to the nearest other target, so that
        how large they are is a matter of definition; the CRPS needs none.
    noise : {"auto", "none"}, default="auto"
        ``"none"`` is for deterministic simulators: the model interpolates the runs, and their error bars
        vanish. It is for ``inference="exact"`` and ``"vecchia"``, which keep their local scale; ``"auto"``
        stands for three exact models then, with a smooth, a rough and a rational quadratic kernel, weighted by
        how well they predict runs that they have not seen. ``"auto"`` leaves the noise to `likelihood`.
    target_transform : {"auto", "log", "exponential-normal", "yeo-johnson", "logit"} or None, default="auto"
        Monotone map of the target, before it is standardized. ``"log"`` is for positive targets, whose
        predictions are positive, too. So is ``"exponential-normal"``, which suits gamma, Weibull and
        exponential amounts; ``"yeo-johnson"`` straightens skewed targets. Both have a number that the marginal
        likelihood of an exact Gaussian process of 250 rows finds. ``"logit"`` is for targets between 0 and 1,
        neither included, whose predictions are, too. ``"auto"`` chooses between the first three and None by
        the same marginal likelihoods with their Jacobians (warped Gaussian processes; Snelson et al., 2004),
        and by the sum of leave-one-out means; a map must win by 5 nats. It is None for counts, for targets
        that pile up at a value, with numbers in a likelihood, without `standardize` and with ``partial_fit``.
        Predictions are in the target's units all the same. Means, variances, draws and CRPS are of
        distributions that end with the range of the training targets, or two standard deviations from their
        own centers: heavy tails have no mean under an exponential. Quantiles and densities have no end, and
        nothing ends under the logit.
    multi_output : {"coregionalized"} or None, default=None
        How several outputs belong together. With None they share kernels and hidden layers.
        ``"coregionalized"`` is for ``inference="exact"``, which ``"auto"`` stands for then: outputs have
        covariances, of the functions and of the noise of a row, and one is predicted from the others. Draws are
        joint over rows and outputs. Targets that were not observed are NaN; each row has one at least.
    exposure : str, int or None, default=None
        Name or position of the column of X that holds the exposure of counts: the time, area or number of
        people in which each row was counted. Rates are per unit of it. The column is no input of the models,
        and ``fit``, predictions and scores all read it, in pipelines and searches, too.
    inference : str or Scheme, default="auto"
        ``"auto"`` for the mixture; ``"dsvi"``, ``"structured"``, ``"aep"``, ``"rff"``, ``"diwp"``,
        ``"nngp"``, ``"global"``, ``"collapsed"``, ``"sghmc"``, ``"ess"``, ``"vecchia"``, ``"exact"``,
        ``"vfe"``, ``"pep"`` or an object of :mod:`skdgp.inference` for a single model. The last four of these
        names are shallow, and need ``n_layers=1``. Settings of a scheme, ``set_params(inference__...)``, need
        one: name it first.
    init : {"kmeans", "random", "greedy"} or estimator, default="kmeans"
        Where training starts: with inducing inputs at centers of the training rows or at random
        rows; with hidden units that copy a sparse Gaussian process; or with the state of a fitted
        estimator, see the user guide.
    budget : {"small", "default", "large"} or float, default="default"
        Seconds of one thread for the mixture, as predicted by counting operations: they decide which members it
        has, and how many steps. The same budget gives the same model on any machine. "default" is 5 seconds
        up to 500 rows, 11 for 2,500, 22 for 10,000 and at most 60; "small" is a quarter of it, and "large" four
        times as many.
    max_iter : int or None, default=None
        Number of optimizer steps; None leaves the choice to the scheme.
    max_time : float or None, default=None
        Seconds on the clock after which training stops, with a warning; the step size is lowered in time. What
        was trained by then depends on the machine, so results cannot be repeated; `budget` plans a shorter
        fit that can. Where one step or what follows the last one takes longer than there is time, a single
        model has fewer inducing points or rows, and a warning says how many.
    batch_size : int or None, default=None
        Rows of a minibatch; None leaves the choice to the scheme.
    learning_rate : float or None, default=None
        Step size of the optimizer; None leaves the choice to the scheme.
    n_predict_draws : int, default=64
        Draws through the hidden layers in prediction, best a power of two. They are made once, in
        ``fit``, and shared by all rows; samplers have one for each state. A member with a small mixture
        weight has fewer, but eight at least: none counts for more than half of what it would in a model alone.
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
        400 rows is in favor, few or none. ``"auto"`` is ``"warp"`` with ``inference="auto"``, ``"dsvi"`` or
        ``"structured"``, a kernel that is a name and at most 300 columns, and True otherwise.
        A Scaling is that of another fit, from :func:`~skdgp.model_selection.freeze_hyperparameters`.
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns hold categories: those of a frame whose dtype says so, or a list of names, positions or
        booleans, as in :class:`~sklearn.ensemble.HistGradientBoostingRegressor`. Text is categories, too, but
        where nearly all of a column are numbers, dates or times, as a warning says; an empty list keeps text.
        None takes categories of numbers for numbers.
    groups : str, int or None, default=None
        Name or position of the column of X that holds the group of each row, such as a patient or a shop, if
        predictions are for new groups, too: as ``fit(X, y, groups=...)``, in pipelines and searches without
        routing. Models on all rows and on neighbors have an effect of each group. Rows of known groups are
        predicted with it; error bars of new ones, and of rows without a group, are as wide as groups differ.
    time : str, int or None, default="auto"
        Name or position of the column of X that holds the time of each row, numbers or dates, if predictions
        are for later times. What is left out to weigh members, to size error bars and to stop early are then
        blocks of the future: each is predicted from the rows before it alone. The column is an input of the
        models, too. ``"auto"`` is the only column of dates if rows are in their order without gaps, targets are
        like those before them, and all of `inference`, `kernel` and `likelihood` are ``"auto"``.
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
        processors. Results do not depend on it. Callbacks have one task for each of them then.
    n_threads : int or None, default=None
        Threads of each training and of predictions. None is 1: matrices are small, and idle threads take
        time from others.
    random_state : int, RandomState instance or None, default=None
        Determines starting values, minibatches and draws.
    verbose : int, default=0
        If 1, prints a line for each member of a mixture, or every 50 steps of a single model; if 2, both.

    Attributes
    ----------
    kernels_ : list of Kernel
        Of a single model: the kernel of each layer with fitted hyperparameters, in units of the standardized
        inputs. Members of a mixture have their own, as ``members_[0].kernels_``.
    likelihood_ : Likelihood
        Of a single model: with fitted hyperparameters, in units of the target, or of what a map makes of it.
    inducing_inputs_ : list of ndarray
        Of a single model: inducing inputs of each layer; those of the first in units of the inputs. Of a
        last layer that sees all rows, their standardized inputs.
    members_ : list of Member
        The models whose mixture predicts, with their `mixture_weight`, and the `dispersion` that the mixture
        gives to them.
    n_iter_ : int
        Number of steps made, by all members together.
    loss_curve_ : list of float
        Of a single model: its loss in each step, per row, in units of the standardized target: an estimate of
        the negative lower bound. For ``"aep"`` and ``"pep"`` it is the negative energy, for ``"vecchia"`` the
        negative mean leave-one-out log-density. For ``"exact"`` it is the negative log marginal likelihood
        with the priors of its hyperparameters; of a part of the rows in the first steps if they are many. For
        ``"collapsed"`` it is such a marginal likelihood in the first steps, too, and then the negative lower
        bound; both lack constants.
    validation_scores_ : list of float
        Of a single model: mean log-density of the held-out rows after each block of 50 steps, and after the
        last step, in units of the standardized target.
    lower_bound_ : float
        Of a single model: lower bound on the log marginal likelihood of the training rows, in units of the
        target; beyond 10,000 rows an estimate from so many of them, unless ``inference`` is that of a
        sparse Gaussian process. Where `max_time` leaves none, it is one from fewer rows, or from the last
        losses. For ``"nngp"`` up to 2,000 rows, the log marginal likelihood itself. Not set for ``"aep"``,
        ``"collapsed"``, ``"vecchia"`` and ``"exact"``.
    delta_ : ndarray of shape (`n_layers`,)
        With ``"diwp"``: how near to a fixed function of the one below each Gram matrix is; the first belongs to
        the metric of the inputs.
    device_ : str
        Where the model was trained.
    warp_ : ndarray of shape (`n_features_in_`,)
        How much each column is warped: the logarithm of the ratio of the slopes at its smallest and at its
        largest value of training, 0 where it is straight.
    atoms_ : ndarray of shape (`n_atoms`,)
        Values that many targets equal, and that have a probability of their own; see `likelihood`.
    target_transform_ : str, None or list
        What was done to the target: a name as in `target_transform`, or None; a list for several outputs.
    n_features_in_ : int
        Number of features seen during ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during ``fit``, if they are all strings.

    See Also
    --------
    DeepGPClassifier : Deep Gaussian process classification.
    SparseGPRegressor : Shallow sparse Gaussian processes.

    References
    ----------
    J. Cragg (1971). Some statistical models for limited dependent variables with application to the demand
    for durable goods. Econometrica 39.

    A. Damianou and N. Lawrence (2013). Deep Gaussian processes. AISTATS 16.

    H. Salimbeni and M. Deisenroth (2017). Doubly stochastic variational inference for deep Gaussian
    processes. Advances in Neural Information Processing Systems 30.

    J. Snoek, K. Swersky, R. Zemel and R. Adams (2014). Input warping for Bayesian optimization of
    non-stationary functions. ICML 31.

    E. Snelson, C. Rasmussen and Z. Ghahramani (2004). Warped Gaussian processes. Advances in Neural
    Information Processing Systems 16.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> y = (X[:, 0] > 0.5).astype(float)
    >>> model = DeepGPRegressor(max_iter=100, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.2], [0.8]], return_std=True)
    >>> mean.round(1) + 0.0
    array([0., 1.])
    >>> model.predict_interval([[0.2]], coverage=0.9).shape
    (1, 2)
    """

    _: KW_ONLY
    noise: str = "auto"
    target_transform: str | None = "auto"
    multi_output: str | None = None
    exposure: str | int | None = None
    time: str | int | None = "auto"

    _likelihoods = REGRESSION
    _row_columns = ("exposure", *BaseDeepGP._row_columns)
    _parameter_constraints = {
        **BaseDeepGP._parameter_constraints,
        **TARGET_TRANSFORM,
        "noise": [StrOptions({"auto", "none"})],
        "multi_output": [StrOptions({"coregionalized"}), None],
        "exposure": [str, Interval(Integral, 0, None, closed="left"), None],
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        likelihood = self.likelihood
        counts = {name: kind for name, kind in REGRESSION.items() if kind.discrete}
        tags.target_tags.positive_only = likelihood in list(counts) or isinstance(
            likelihood, tuple(counts.values())
        )
        return tags

    def _auto_likelihood(self, scheme, data):
        if self.noise == "auto":
            return super()._auto_likelihood(scheme, data)
        return noiseless()

    def _plan(self, scheme, data):
        if self.noise == "none":
            if self.inference == "auto":
                scheme = Exact()
            if not (isinstance(scheme, Exact | Vecchia) and self.likelihood == "auto"):
                raise ValueError(
                    "noise='none' needs inference='exact' or 'vecchia', and likelihood='auto'; elsewhere set "
                    "the likelihood."
                )
            if isinstance(scheme, Vecchia):  # densities of single rows lead to singular matrices
                scheme.start = "subset"
        if self._takes_missing:
            if self.inference == "auto":
                scheme = Exact()
            if not isinstance(scheme, Exact) or self.noise == "none":
                raise ValueError(
                    "multi_output='coregionalized' needs inference='exact' and noise='auto'; elsewhere leave "
                    "it at None."
                )
            if self.early_stopping and np.isnan(data.y).any():
                raise ValueError(
                    "early_stopping=True scores rows with all their targets, and some are missing; leave it at "
                    "False."
                )
            scheme.coregionalized = True
        return super()._plan(scheme, data)

    @property
    def _takes_missing(self):
        return self.multi_output == "coregionalized"

    def _warps(self):
        if self.noise == "none" or self._takes_missing:
            return False
        deep = self.inference == "auto" or isinstance(
            as_scheme(self.inference), (DSVI, StructuredVI)
        )
        return deep and isinstance(self.kernel, str) and not extrapolates(self.kernel)

    @property
    def atoms_(self) -> np.ndarray:
        check_is_fitted(self)
        return np.empty(0) if self._atoms is None else self._atoms.values

    def _finds_masses(self):
        given = self.likelihood, self.inference
        automatic = all(isinstance(part, str) and part == "auto" for part in given)
        noisy = self.noise == "auto" and self._known_noise is None
        return automatic and isinstance(self.init, str) and noisy and not self._takes_missing

    def _recipe(self, plan, data, seconds):
        """The plans that ``inference="auto"`` stands for."""
        if self.noise == "none" or self._takes_missing:
            plan.n_layers = 1
            # smooth, rough, and not of sums
            kernels = [Anova(nu=2.5), Anova(), RationalQuadratic()]
            kernels = kernels if plan.kernel == "auto" else [plan.kernel]
            return [replace(plan, kernel=kernel) for kernel in kernels]
        free = isinstance(self.likelihood, str) and self.likelihood == "auto"
        free = free and self._known_noise is None
        shape = *data.X.shape, data.y.shape[1]
        if not data.forward:
            return with_twins(recipe.regression(plan, *shape, free, seconds), data)
        if free and plan.kernel == "auto" and data.time is not None:
            plan = replace(plan, likelihood=HeteroscedasticGaussian())
            return trend_plans(plan, len(data), shape[2], data.time, seconds)
        return of_the_future(recipe.regression(plan, *shape, free, seconds))

    @available_if(takes_chunks)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Make one pass over a chunk of rows.

        Scaling and starting values come from the first call; the lower bound counts all rows seen so far. With
        ``batch_size=None`` a small chunk gets as many steps as give it its share of all rows, and the first
        one up to 100. Where rows lie far from those before, inducing inputs move there with their posterior;
        if the variance stays that of the prior, there is a warning. Each step uses the present chunk alone, so
        that the influence of earlier ones fades. Of a mixture, the first model that trains in minibatches
        learns, and the others are dropped with a warning.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), optional
        exposure : array-like of shape (n_samples,), optional
            Of counts, as in :meth:`fit`.

        Returns
        -------
        self : estimator
        """
        return learn_rows(self, X, y, sample_weight, exposure=exposure)

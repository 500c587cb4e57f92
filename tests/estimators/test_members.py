"""The mixture that predicts by default."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import cumulative_trapezoid
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPRegressor
from skdgp.estimators.data import Data
from skdgp.gp.kernels import (
    Anova,
    Linear,
    Matern,
    RationalQuadratic,
    SquaredExponential,
    Sum,
    as_kernel,
)
from skdgp.gp.layer import SparseLayer
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian, HeteroscedasticStudentT
from skdgp.inference import DSVI, CollapsedVI, Exact, Vecchia
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.inference.vecchia.vecchia import NeighborGP
from skdgp.mixture.member import at_rest
from skdgp.mixture.weights import stack
from skdgp.training import Checkpoint

FEW = {"max_iter": 30, "n_inducing": 10, "n_predict_draws": 8, "random_state": 0}

pytestmark = pytest.mark.usefixtures("no_global_randomness")


@pytest.fixture(scope="module")
def model(data):
    return DeepGPRegressor(**FEW).fit(*data)


def alone(model, *which):
    """The same estimator with some of its members."""
    other = copy.deepcopy(model)
    other.members_ = [model.members_[i] for i in which]
    return other


def parts(kernel):
    """Classes of what a kernel is the sum of."""
    if isinstance(kernel, Sum):
        return parts(kernel.left) + parts(kernel.right)
    return [type(kernel)]


def test_members(model):
    schemes = [type(member.scheme) for member in model.members_]
    assert schemes == [DSVI, DSVI, Vecchia, Vecchia, CollapsedVI, Exact, Exact]
    assert model.members_[0].scheme.inner_scale < model.members_[1].scheme.inner_scale
    assert [len(member.architecture.widths) for member in model.members_] == [1, 1, 0, 0, 1, 0, 0]
    kinds = [type(member.likelihood) for member in model.members_]
    assert kinds == [HeteroscedasticStudentT] * 2 + [HeteroscedasticGaussian] * 5
    kernels = [member.kernels[-1] for member in model.members_]
    assert [parts(kernel) for kernel in kernels] == [
        *[[SquaredExponential]] * 2,
        *[[RationalQuadratic, Linear], [Anova, Linear]],
        *[[RationalQuadratic], [Anova, Linear], [RationalQuadratic, Anova, Linear]],
    ]
    assert [kernels[i].right.bias for i in (2, 3, 5, 6)] == [0.0] * 4
    assert [len(inputs) for member in model.members_ for inputs in member.inducing_inputs] == [
        *[10] * 4,
        *[80, 80, 30, 80, 80, 80],  # the user's number is for layers with minibatches
    ]


def test_shares(model):
    """The shallow models share what the deep ones leave by rows that were left out."""
    shares = np.array([member.mixture_weight for member in model.members_])
    assert (shares[:2] < 0.05).all()  # thirty steps: they still fit badly
    assert_allclose(shares.sum(), 1.0)
    assert np.ptp(shares[2:]) > 0.01


@pytest.mark.parametrize(("share", "n"), [(1.0, 64), (0.4, 64), (0.2, 32), (0.07, 16), (1e-3, 8)])
def test_members_have_draws_by_their_shares(share, n):
    """No draw counts for more than half of what one of a model alone does, or there are eight."""
    draws = np.random.default_rng(0).standard_normal((64, 3))
    assert_array_equal(DeepSparseGP.needed(None, draws, share), draws[:n])
    assert_array_equal(DeepSparseGP.needed(None, draws[:4], share), draws[:4])
    assert_array_equal(NeighborGP.needed(None, draws, share), draws)  # a rule, not a sample


def test_models_at_rest_keep_what_rows_do_not_change(data, monkeypatch):
    """Eigenvectors are found once, however many pieces rows come in; training goes on after an error, too."""
    solved, solve = [], SparseLayer._solve
    monkeypatch.setattr(SparseLayer, "_solve", lambda self: solved.append(self) or solve(self))
    monkeypatch.setattr("skdgp.estimators.prediction.rows_at_once", lambda members: 5)
    X, y = data
    settings = {**FEW, "inference": "dsvi", "max_iter": 5, "batch_size": 20}
    fitted = DeepGPRegressor(**settings).fit(X, y, X_val=X[:20], y_val=y[:20])
    assert len(fitted.validation_scores_) == 1
    assert solved and all(solved.count(layer) == 1 for layer in solved)
    model = fitted.members_[0].build()
    with pytest.raises(KeyError), at_rest([model]):
        raise KeyError(model.layers[0].training)
    assert model.training and model.layers[0].training


def test_predictions_with_fewer_draws(data):
    """They are those with all, up to the error by which draws differ, and the bound is from all."""
    X, y = data
    model = DeepGPRegressor(**{**FEW, "n_predict_draws": 64}).fit(X, y)
    few = [len(member.draws) for member in model.members_[:2]]
    assert max(few) <= 16
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    whole = copy.deepcopy(model)
    for member in whole.members_[:2]:
        draws = member.model("cpu").draws(64, seed)
        assert_array_equal(draws[: len(member.draws)], member.draws)
        member.draws = draws
    difference = model.log_predictive_density(X, y) - whole.log_predictive_density(X, y)
    assert 0.0 < np.abs(difference).max() < 0.02
    rows = Data(X, y[:, None], np.ones(len(X))).scale_as(model._x_scaler, model._y_scaler)
    whole._set_lower_bound(rows, whole.members_[0].draws, None)
    assert_allclose(model.lower_bound_, whole.lower_bound_, rtol=1e-12)


def test_deep_models_have_at_most_one_and_two_fifths(monkeypatch):
    """Though they know a slanted step better than shallow ones."""
    monkeypatch.setattr("skdgp.estimators.regressor._WARP_ROWS", 100)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (120, 2))
    y = np.sign(X.sum(1)) + 0.05 * rng.standard_normal(120)
    model = DeepGPRegressor(**{**FEW, "max_iter": 150, "n_inducing": 20}).fit(X, y)
    assert_allclose([member.mixture_weight for member in model.members_[:2]], [0.2, 0.4])


def test_a_deep_model_that_overfits_has_no_weight(monkeypatch):
    monkeypatch.setattr("skdgp.estimators.regressor._WARP_ROWS", 0)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 6)), rng.standard_normal(40)
    model = DeepGPRegressor(max_iter=200, n_predict_draws=8, random_state=0).fit(X, y)
    overfitted, nearer_prior = model.members_[:2]
    assert overfitted.mixture_weight < 0.01 < nearer_prior.mixture_weight


def test_shares_are_by_rows_without_their_own_part(data, monkeypatch):
    """And trust is by what deep models say of rows that they have seen; rows come in pieces."""
    said, sizes = [], []

    def with_and_without(self, X, y, weight, draws):
        sizes.append(len(X))
        return np.stack([np.full(len(X), 3.0), np.full(len(X), -30.0)])

    def trust(log_density, weights, knows, n_outputs):
        said.append(log_density[:2])
        return 1.0

    monkeypatch.setattr(DeepSparseGP, "with_and_without", with_and_without)
    monkeypatch.setattr("skdgp.mixture.weights.rows_at_once", lambda members: 50)
    monkeypatch.setattr("skdgp.mixture.weights.trust", trust)
    model = DeepGPRegressor(**{**FEW, "max_iter": 1}).fit(*data)
    assert (said[-1] == 3.0).all() and said[-1].shape == (2, 80)
    assert sizes[-2:] == [50, 30]
    assert all(member.mixture_weight < 0.02 for member in model.members_[:2])


def test_what_is_said_of_several_outputs_counts_for_each(monkeypatch):
    counts = []

    def trust(log_density, weights, knows, n_outputs):
        counts.append((knows.tolist(), n_outputs))
        return 1.0

    monkeypatch.setattr("skdgp.mixture.weights.trust", trust)
    X = np.random.default_rng(0).standard_normal((30, 2))
    DeepGPRegressor(**{**FEW, "max_iter": 1}).fit(X, np.column_stack([X, X[:, 0] * X[:, 1]]))
    assert counts == [([True, True, False, False], 3)]


def test_shares_count_rows_by_their_merged_weights(monkeypatch):
    """Those of the rows whose densities are compared, in their order."""
    looked_at, counted = [], []

    class Looked(Data):
        def __init__(self, X, y, weights):
            super().__init__(X, y, weights)
            looked_at.append(X[:, 0])

    def counting(log_density, weights, most):
        counted.append(weights)
        return stack(log_density, weights, most)

    monkeypatch.setattr("skdgp.mixture.weights.Data", Looked)
    monkeypatch.setattr("skdgp.mixture.weights.trust", lambda *args: 1.0)
    monkeypatch.setattr("skdgp.mixture.weights.stack", counting)
    X, weights = np.arange(30.0)[:, None], np.arange(60.0) + 1.0
    model = DeepGPRegressor(**{**FEW, "max_iter": 1})
    model.fit(np.tile(X, (2, 1)), np.tile(np.sin(X[:, 0]), 2), sample_weight=weights)
    assert_array_equal(counted[-1], weights.reshape(2, 30).sum(0)[looked_at[-1].astype(int)])


def test_densities_add(model, data):
    X, y = data
    parts = [alone(model, i).log_predictive_density(X, y) for i in range(7)]
    shares = np.array([member.mixture_weight for member in model.members_])
    assert_allclose(model.log_predictive_density(X, y), logsumexp(np.transpose(parts), 1, shares))
    assert np.ptp(parts, axis=0).max() > 0.1


@pytest.mark.parametrize("latent", [False, True])
def test_moments_by_the_law_of_total_variance(model, data, latent):
    X = data[0]
    means, stds = zip(
        *(alone(model, i).predict(X, return_std=True, latent=latent) for i in range(7))
    )
    mean, std = model.predict(X, return_std=True, latent=latent)
    shares = np.array([member.mixture_weight for member in model.members_])
    assert_allclose(mean, shares @ means)
    second = shares @ (np.square(stds) + np.square(means))
    assert_allclose(std, np.sqrt(second - mean**2), rtol=1e-6)


def test_quantiles_invert_the_mixed_cdf(model, data):
    """The density up to a quantile has its share; draws agree within four and a half standard errors."""
    X, expected = data[0][:5], np.array([0.1, 0.5, 0.9])
    quantiles = model.predict_quantiles(X, expected)
    for x, mean, std, row in zip(X, *model.predict(X, return_std=True), quantiles):
        grid = mean + std * np.sinh(np.linspace(-6.0, 6.0, 3001))
        density = np.exp(model.log_predictive_density(np.tile(x, (len(grid), 1)), grid))
        cdf = cumulative_trapezoid(density, grid, initial=0.0)
        assert_allclose(np.interp(row, grid, cdf), expected, atol=5e-3)
    draws = model.sample_y(X, 400, random_state=1)
    share = (draws[:, None] < quantiles[..., None]).mean(-1)
    assert np.abs((share - expected) / np.sqrt(expected * (1 - expected) / 400)).max() < 4.5


def test_weights_count(model, data):
    X, y = data
    other = alone(model, 0, 1, 4)
    for member, weight in zip(other.members_, (2.0, 1e-300, 6.0)):
        member.mixture_weight = weight
    parts = [alone(model, i).log_predictive_density(X, y) for i in (0, 4)]
    expected = np.logaddexp(parts[0] + np.log(0.25), parts[1] + np.log(0.75))
    assert_allclose(other.log_predictive_density(X, y), expected)


def test_function_draws_pick_a_member(model, data):
    X = np.vstack([data[0][:3], data[0][:3]])
    draws = model.sample_y(X, 600, random_state=0, latent=True)
    assert draws.shape == (6, 600)
    assert_allclose(draws[:3], draws[3:], atol=1e-8)
    mean, std = model.predict(X, return_std=True, latent=True)
    assert (np.abs(draws.mean(1) - mean) < 5.0 * std / np.sqrt(600) + 0.05).all()
    _, cov = model.predict(X, return_cov=True)
    assert_allclose(np.sqrt(np.diag(cov)), model.predict(X, return_std=True)[1])


def test_covariance_in_closed_form_is_that_of_the_mixture(model, data):
    """By the law of total covariance; members with hidden layers or neighbors have none."""
    X = data[0][:5] + 0.1
    closed = [alone(model, i)._closed_covariance(X, 1) is not None for i in range(7)]
    assert closed == [False] * 4 + [True] * 3
    assert alone(model, 0, 4)._closed_covariance(X, 1) is None
    both = copy.deepcopy(alone(model, 4, 5))
    for member, weight in zip(both.members_, (1.0, 3.0)):
        member.mixture_weight = weight
    (a, cov_a), (b, cov_b) = (
        alone(model, i).predict(X, return_cov=True, latent=True) for i in (4, 5)
    )
    expected = 0.25 * cov_a + 0.75 * cov_b + 0.1875 * np.outer(a - b, a - b)
    assert_allclose(both.predict(X, return_cov=True, latent=True)[1], expected, rtol=1e-6)
    var = both.predict(X, return_std=True)[1] ** 2
    actual = both.predict(X, return_cov=True)[1]
    assert_allclose(actual, np.where(np.eye(5), np.diag(var), expected), rtol=1e-6)


def test_what_the_user_fixes_is_fixed(data):
    few = {**FEW, "max_iter": 1}
    model = DeepGPRegressor(3, kernel="matern52", likelihood="gaussian", **few).fit(*data)
    assert [len(member.architecture.widths) for member in model.members_] == [2, 2, 0, 2, 0]
    assert all("nu=2.5" in repr(kernel) for member in model.members_ for kernel in member.kernels)
    assert {type(member.likelihood) for member in model.members_} == {Gaussian}
    X, y = data
    rows, of_all = Data(X, y[:, None], np.ones(80)), [Vecchia, Vecchia, CollapsedVI, Exact, Exact]
    for settings, schemes in (
        ({"likelihood": "student_t"}, [DSVI, DSVI]),
        ({"likelihood": "heteroscedastic"}, [DSVI, DSVI, *of_all]),
        ({"kernel": ["matern52", "linear"]}, [DSVI, DSVI]),
    ):
        plans = DeepGPRegressor(**settings)._plans(rows)
        assert [type(plan.scheme) for plan in plans] == schemes
    model = DeepGPRegressor(inference="dsvi", **few).fit(*data)
    assert len(model.members_) == 1 and isinstance(model.likelihood_, HeteroscedasticStudentT)


@pytest.mark.parametrize("kernel", [[], ["matern52"]])
def test_kernels_that_are_too_few_for_the_layers(data, kernel):
    with pytest.raises(
        ValueError, match="kernel must be one kernel or one for each of the 2 layers"
    ):
        DeepGPRegressor(kernel=kernel, **FEW).fit(*data)


def test_parameters_of_the_scheme_make_a_single_model(data):
    model = DeepGPRegressor(**FEW).set_params(inference__n_draws=2)
    assert isinstance(model.inference, DSVI)
    assert len(model.fit(*data).members_) == 1


def test_inducing_points():
    rng = np.random.default_rng(0)
    for n, n_outputs, deep, n_shallow in (
        (250, 1, [200, 100], 5),
        (501, 1, [200, 100], 5),
        (1700, 1, [200, 100], 4),
        (1700, 6, [200, 100], 2),
        (4100, 1, [200], 2),
    ):
        X, y = rng.standard_normal((n, 1)), rng.standard_normal((n, n_outputs))
        plans = DeepGPRegressor()._plans(Data(X, y, np.ones(n)))
        assert [plan.n_inducing for plan in plans] == [*deep, *[None] * n_shallow]
    model = DeepGPRegressor(max_iter=1, random_state=0).fit(*[part[:250] for part in (X, y)])
    expected = [200, 100, 250, 250, 250, 250, 250]  # the last layers of the latter see all rows
    assert [len(m.inducing_inputs[-1]) for m in model.members_] == expected
    assert len(model.members_[4].inducing_inputs[0]) == 30


def test_shares_on_many_rows_follow_all_members(monkeypatch):
    """Also a deep model that has learned little loses its share."""
    monkeypatch.setattr("skdgp.estimators.regressor._FEW_ROWS", 50)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 1))
    model = DeepGPRegressor(max_iter=1, n_inducing=2, random_state=0)
    model.fit(X, np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(400))
    shares = [member.mixture_weight for member in model.members_]
    assert_allclose(sum(shares), 1.0)
    assert shares[0] < 0.1  # two inducing points and one step


SUMS = [[Anova, Linear], [RationalQuadratic, Anova, Linear]]


@pytest.mark.parametrize(
    ("n_rows", "n_features", "of_neighbors", "of_all"),
    [
        (50, 30, Anova, [[RationalQuadratic], *SUMS]),
        (1000, 30, Anova, [[RationalQuadratic], *SUMS]),
        (1500, 30, Anova, SUMS),
        (600, 31, Matern, [[RationalQuadratic], *SUMS]),
        (1000, 31, Matern, [[RationalQuadratic], [Matern]]),
        (500, 50, Matern, [[RationalQuadratic], *SUMS]),
        (501, 50, Matern, [[RationalQuadratic], [Matern]]),
    ],
)
def test_many_columns_go_without_the_sum_over_their_subsets(
    n_rows, n_features, of_neighbors, of_all
):
    """Unless the rows are so few that it takes seconds to condition on all of them.

    Up to 500 rows the first kernel for all of them is behind a hidden layer.
    """
    data = Data(np.zeros((n_rows, n_features)), np.arange(1.0 * n_rows)[:, None], np.ones(n_rows))
    plans = DeepGPRegressor()._plans(data)[2:]
    last = [plan.kernel[-1] if plan.n_layers > 1 else plan.kernel for plan in plans]
    kernels = [parts(as_kernel(kernel)) for kernel in last]
    assert kernels == [[RationalQuadratic, Linear], [of_neighbors, Linear], *of_all]
    assert [plan.n_layers for plan in plans[2:]] == [
        1 + (n_rows <= 500 and i == 0) for i in range(len(of_all))
    ]


def test_very_many_rows_go_without_shallow_members(data, monkeypatch):
    monkeypatch.setattr("skdgp.estimators.regressor._MOST_ROWS", 50)
    assert len(DeepGPRegressor(**FEW).fit(*data).members_) == 2


def test_attributes_are_those_of_the_first(model, data):
    assert model.n_iter_ == len(model.loss_curve_) == 30
    assert len(model.kernels_) == len(model.inducing_inputs_) == 2
    first = DeepGPRegressor(inference=model.members_[0].scheme, **FEW).fit(*data)
    assert np.isfinite(model.lower_bound_)
    assert_allclose(model.loss_curve_[0], first.loss_curve_[0])


def test_outputs_and_weights(data):
    X, y = data
    Y = np.column_stack([y, -y])
    few = {**FEW, "max_iter": 10}
    model = DeepGPRegressor(**few).fit(X, Y)
    assert model.predict(X).shape == (80, 2)
    assert {member.dispersion for member in model.members_} == {1.0}  # each may need another one
    counts = np.random.default_rng(0).integers(0, 3, 80)
    weighted = DeepGPRegressor(**few).fit(X, y, sample_weight=counts)
    repeated = DeepGPRegressor(**few).fit(np.repeat(X, counts, 0), np.repeat(y, counts))
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-7)


def test_validation_sees_the_mixture(data):
    X, y = data
    settings = {**FEW, "max_iter": 55}
    model = DeepGPRegressor(**settings).fit(X, y, X_val=X[:20] + 0.1, y_val=y[:20])
    score = model.log_predictive_density(X[:20] + 0.1, y[:20]).mean() + np.log(y.std())
    assert_allclose(max(model.validation_scores_), score, rtol=1e-6)


def test_partial_fit_goes_on_with_the_first(model, data):
    X, y = data
    model = copy.deepcopy(model)
    with pytest.warns(UserWarning, match="the others are dropped"):
        model.partial_fit(X, y)
    assert len(model.members_) == 1 and model.n_iter_ == 31
    assert np.isfinite(model.predict(X)).all()


def test_warm_start(model, data):
    X, y = data
    model = copy.deepcopy(model).set_params(warm_start=True)
    before = model.log_predictive_density(X, y).mean()
    model.set_params(max_iter=10, learning_rate=1e-3).fit(X, y)
    assert len(model.members_) == 7 and model.n_iter_ == 10
    assert abs(model.log_predictive_density(X, y).mean() - before) < 0.3


def test_members_go_on_with_their_own_kind(model, data):
    """Also the second of two members by the same scheme."""
    X, y = data
    before = [member.arrays for member in model.members_]
    model = copy.deepcopy(model).set_params(warm_start=True)
    model.set_params(max_iter=1, learning_rate=1e-9).fit(X, y)
    schemes = [type(member.scheme) for member in model.members_]
    assert schemes == [DSVI, DSVI, Vecchia, Vecchia, CollapsedVI, Exact, Exact]
    names = [
        f"layers.{part}log_lengthscale"
        for part in (
            *["0.kernel."] * 2,
            *["0.kernel.left."] * 2,
            None,  # has a posterior of its numbers
            "0.kernel.left.",
            "0.kernel.left.left.",
        )
    ]
    for member, arrays, name in zip(model.members_[:4], before, names):
        assert_allclose(member.arrays[name], arrays[name], atol=1e-6)
    assert_array_equal(model.members_[4].arrays["layers.0.Z"], before[4]["layers.0.Z"])
    # L-BFGS knows no learning rate, but has little left to do, except for posteriors
    for i in (5, 6):
        assert_allclose(model.members_[i].arrays[names[i]], before[i][names[i]], atol=0.02)


def test_members_that_a_new_recipe_leaves_go_on(model, data, monkeypatch):
    X, y = data
    model = copy.deepcopy(model).set_params(warm_start=True)
    before = [member.arrays for member in model.members_]
    monkeypatch.setattr("skdgp.estimators.regressor._FEW_ROWS", 50)
    model.set_params(max_iter=1, learning_rate=1e-9).fit(X, y)
    assert [type(member.scheme) for member in model.members_] == [DSVI, Vecchia, Vecchia]
    for member, i, part in zip(model.members_, (0, 2, 3), ("", "left.", "left.")):
        name = f"layers.0.kernel.{part}log_lengthscale"
        assert_allclose(member.arrays[name], before[i][name], atol=1e-6)


def test_members_that_a_new_recipe_adds_start_anew(model, data, monkeypatch):
    """The others go on with the member of their kernel, whatever the order."""
    other = copy.deepcopy(model).set_params(warm_start=True, max_iter=1)
    before = {str(parts(member.kernels[-1])): member.arrays for member in model.members_[5:]}
    monkeypatch.setattr("skdgp.estimators.regressor._WARP_ROWS", 0)
    exact = other.fit(*data).members_[4:]
    assert [parts(member.kernels[-1]) for member in exact] == [[RationalQuadratic], *SUMS]
    for member in exact[1:]:
        old = before[str(parts(member.kernels[-1]))]
        for name in old:
            if name.endswith("log_lengthscale"):
                assert_allclose(member.arrays[name], old[name], atol=0.02)


def test_a_new_likelihood_needs_a_new_start(model, data):
    """A mixture of several kinds of noise used to go on with them, whatever was asked for."""
    other = copy.deepcopy(model).set_params(warm_start=True, likelihood="heteroscedastic")
    with pytest.raises(ValueError, match="likelihood must stay as before"):
        other.fit(*data)
    other.set_params(warm_start=False, max_iter=1).fit(*data)
    assert {type(member.likelihood) for member in other.members_} == {HeteroscedasticGaussian}


def test_noise_that_new_rows_would_choose_does_not_end_a_warm_start(model, data):
    """Of targets that pile up "auto" stands for another likelihood, but is what was asked for."""
    X, y = data
    other = copy.deepcopy(model).set_params(warm_start=True, max_iter=1)
    other.fit(X, np.where(y > 50.0, 60.0, 40.0))
    kinds = [type(member.likelihood) for member in other.members_]
    assert kinds == [HeteroscedasticStudentT] * 2 + [HeteroscedasticGaussian] * 5


def test_resume(data, tmp_path, kill, monkeypatch):
    """All members go on, to the last bit."""
    monkeypatch.setattr("skdgp.inference.collapsed._FIRST_STEPS", 5)
    X, y = data
    settings = {**FEW, "batch_size": 20, "max_iter": 14}
    expected = DeepGPRegressor(**settings).fit(X, y)
    checkpoint = Checkpoint(tmp_path / "fit.npz", n_steps=4)
    model = DeepGPRegressor(checkpoint=checkpoint, **settings)
    kill(DeepSparseGP, 15)
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(X, y)
    model.fit(X, y)
    assert_array_equal(model.predict(X), expected.predict(X))
    for one, other in zip(model.members_, expected.members_):
        for name, values in other.arrays.items():
            assert_array_equal(one.arrays[name], values, err_msg=name)


def test_trouble_of_any_member_steps_all_back(data, monkeypatch):
    step, calls = DeepSparseGP.step, iter(range(10_000))

    def spoiling(self, *args):
        loss = step(self, *args)
        return np.nan if next(calls) == 15 else loss  # of the second member

    monkeypatch.setattr(DeepSparseGP, "step", spoiling)
    with pytest.warns(ConvergenceWarning, match="half the step size") as record:
        model = DeepGPRegressor(**{**FEW, "max_iter": 10}).fit(*data)
    assert len(record) == 1 and np.isfinite(model.predict(data[0])).all()


def test_round_trip(model, data):
    other = pickle.loads(pickle.dumps(model))
    assert_array_equal(other.predict(data[0]), model.predict(data[0]))


def test_time_is_shared(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DeepGPRegressor(max_time=1.0, **{**FEW, "max_iter": 100_000}).fit(*data)
    assert len(model.members_) == 7 and 1 < model.n_iter_ < 10_000


def test_shallow(data):
    model = DeepGPRegressor(1, **{**FEW, "max_iter": 1}).fit(*data)
    assert model.members_[0].mixture_weight < 0.1
    assert [type(member.scheme) for member in model.members_] == [
        DSVI,
        Vecchia,
        Vecchia,
        CollapsedVI,
        Exact,
        Exact,
    ]
    assert len(model.kernels_) == 1
    assert not any(member.architecture.widths for member in model.members_)


def test_neighbor_members_make_their_few_steps_first(data, monkeypatch):
    calls = []
    step, near_step = DeepSparseGP.step, NeighborGP.step

    def count(name, original):
        def counted(self, *args):
            calls.append(name)
            return original(self, *args)

        return counted

    monkeypatch.setattr(DeepSparseGP, "step", count("deep", step))
    monkeypatch.setattr(NeighborGP, "step", count("near", near_step))
    monkeypatch.setattr(DSVI, "max_iter", lambda self, n_rows: 50)
    monkeypatch.setattr(Vecchia, "max_iter", lambda self, n_rows: 20)
    settings = {**FEW, "max_iter": None, "kernel": "matern32", "likelihood": "heteroscedastic"}
    model = DeepGPRegressor(**settings).fit(*data)
    assert model.n_iter_ == 50
    assert calls == 20 * ["deep", "deep", "near"] + 60 * ["deep"]  # two deep members

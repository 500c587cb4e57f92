"""The mixture that predicts by default."""

import copy
import pickle
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import cumulative_trapezoid
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPRegressor
from skdgp.exceptions import TrainingFailed
from skdgp.gp.likelihoods import HeteroscedasticStudentT
from skdgp.inference import DSVI, CollapsedVI, Exact, Vecchia
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.inference.exact import ExactGP
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


def weights_of(model):
    return np.array([member.mixture_weight for member in model.members_])


def kinds(model):
    return [(type(member.scheme), len(member.architecture.widths)) for member in model.members_]


def test_members_differ_in_kind(model):
    """Two exact ones, a sparse deep one and a collapsed one."""
    assert {(Exact, 0), (DSVI, 1), (CollapsedVI, 1)} >= set(kinds(model))
    assert len(set(kinds(model))) >= 3
    assert_allclose(weights_of(model).sum(), 1.0)
    assert model.n_iter_ == sum(member.record.n_iter for member in model.members_)
    assert all(np.isfinite(member.record.log_density) for member in model.members_)


def test_attributes_of_single_models_are_those_of_members(model, data):
    for name in ("kernels_", "likelihood_", "lower_bound_", "loss_curve_", "inducing_inputs_"):
        assert name not in vars(model)
    for member in model.members_:
        assert len(member.kernels_) == len(member.architecture.widths) + 1
        assert len(member.record.loss_curve) == member.record.n_iter
    single = DeepGPRegressor(inference="dsvi", **FEW).fit(*data)
    assert len(single.kernels_) == 2 and isinstance(single.likelihood_, HeteroscedasticStudentT)
    assert np.isfinite(single.lower_bound_)


@pytest.mark.parametrize("inference", ["dsvi", "diwp", "exact"])
def test_nothing_is_left_of_an_earlier_fit(model, data, inference):
    layers = {"n_layers": 1} if inference == "exact" else {}
    other = DeepGPRegressor(inference=inference, max_iter=2, random_state=0, **layers)
    assert "inducing_inputs_" in vars(other.fit(*data))
    for name in ("loss_curve_", "inducing_inputs_", "kernels_", "likelihood_"):
        assert name in vars(other)
    other.set_params(**{**model.get_params(), "max_iter": 1}).fit(*data)
    assert set(vars(other)) == set(vars(model))


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_member_without_a_finite_density_is_left_out(data, monkeypatch, value):
    scored = ExactGP.posterior

    def posterior(self, *args, **kwargs):
        found = scored(self, *args, **kwargs)
        left_out = found.left_out

        def broken(rows, dispersions=None):
            densities, errors = left_out(rows, dispersions)
            densities[..., 0] = value
            return densities, errors

        found.left_out = broken
        return found

    monkeypatch.setattr(ExactGP, "posterior", posterior)
    with pytest.warns(ConvergenceWarning, match="Exact, was left out: its log density"):
        model = DeepGPRegressor(**{**FEW, "max_iter": 1}).fit(*data)
    assert Exact not in {type(member.scheme) for member in model.members_}
    assert_allclose(weights_of(model).sum(), 1.0)
    assert np.isfinite(model.log_predictive_density(*data)).all()


def test_a_useless_member_costs_little(model, data):
    """Weights are by rows that members have not seen: one that knows nothing is dropped."""
    rng = np.random.default_rng(1)
    many = np.vstack([data[0], rng.uniform(-2.0, 2.0, (600, 2))])
    target = 50.0 + 10.0 * np.sin(2.0 * many[:, 0]) + rng.standard_normal(680)
    mixture = DeepGPRegressor(**{**FEW, "max_iter": 3}).fit(many[:480], target[:480])
    scores = [
        alone(mixture, i).log_predictive_density(many[480:], target[480:]).mean()
        for i in range(len(mixture.members_))
    ]
    both = mixture.log_predictive_density(many[480:], target[480:]).mean()
    assert both > max(scores) - 0.01
    assert DSVI not in {scheme for scheme, _ in kinds(mixture)}  # three steps teach nothing


def test_densities_add(model, data):
    X, y = data
    parts = [alone(model, i).log_predictive_density(X, y) for i in range(len(model.members_))]
    expected = logsumexp(np.transpose(parts), 1, weights_of(model))
    assert_allclose(model.log_predictive_density(X, y), expected)
    assert np.ptp(parts, axis=0).max() > 0.1


@pytest.mark.parametrize("latent", [False, True])
def test_moments_by_the_law_of_total_variance(model, data, latent):
    X, n = data[0], len(model.members_)
    moments = (alone(model, i).predict(X, return_std=True, latent=latent) for i in range(n))
    means, stds = zip(*moments)
    mean, std = model.predict(X, return_std=True, latent=latent)
    assert_allclose(mean, weights_of(model) @ means)
    second = weights_of(model) @ (np.square(stds) + np.square(means))
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


def test_function_draws_pick_a_member(model, data):
    X = np.vstack([data[0][:3], data[0][:3]])
    draws = model.sample_y(X, 600, random_state=0, latent=True)
    assert draws.shape == (6, 600)
    assert_allclose(draws[:3], draws[3:], atol=1e-8)
    mean, std = model.predict(X, return_std=True, latent=True)
    assert (np.abs(draws.mean(1) - mean) < 5.0 * std / np.sqrt(600) + 0.05).all()
    _, cov = model.predict(X, return_cov=True)
    assert_allclose(np.sqrt(np.diag(cov)), model.predict(X, return_std=True)[1])


@pytest.mark.parametrize("latent", [False, True])
def test_the_order_of_draws_hides_their_members(model, data, latent):
    """Eight draws are the first eight of 64, and both halves of many are samples of the mixture."""
    X = data[0][:4]
    many = model.sample_y(X, 64, random_state=0, latent=latent)
    assert_array_equal(model.sample_y(X, 8, random_state=0, latent=latent), many[:, :8])
    draws = model.sample_y(X, 800, random_state=0, latent=latent)
    error = draws.std(1) * np.sqrt(2.0 / 400)  # of the difference of two means
    assert (np.abs(draws[:, :400].mean(1) - draws[:, 400:].mean(1)) < 4.5 * error).all()


def test_covariance_of_members_with_a_closed_form_is_that_of_the_mixture(model, data):
    """By the law of total covariance."""
    X = data[0][:5] + 0.1
    which = [i for i, member in enumerate(model.members_) if not member.architecture.widths]
    which = [i for i in which if not isinstance(model.members_[i].scheme, Vecchia)][:2]
    both = copy.deepcopy(alone(model, *which))
    for member, weight in zip(both.members_, (0.25, 0.75)):
        member.mixture_weight = weight
    (a, cov_a), (b, cov_b) = (
        alone(model, i).predict(X, return_cov=True, latent=True) for i in which
    )
    expected = 0.25 * cov_a + 0.75 * cov_b + 0.1875 * np.outer(a - b, a - b)
    assert_allclose(both.predict(X, return_cov=True, latent=True)[1], expected, rtol=1e-6)
    var = both.predict(X, return_std=True)[1] ** 2
    actual = both.predict(X, return_cov=True)[1]
    assert_allclose(actual, np.where(np.eye(5), np.diag(var), expected), rtol=1e-6)


def test_covariance_agrees_with_draws(model, data):
    X = data[0][:6]
    _, cov = model.predict(X, return_cov=True, latent=True)
    draws = model.sample_y(X, 2000, random_state=1, latent=True)
    assert_allclose(np.corrcoef(draws), cov / np.sqrt(np.outer(*2 * [np.diag(cov)])), atol=0.1)


def test_validation_stops_members(data):
    model = DeepGPRegressor(early_stopping=True, **FEW).fit(*data)
    for member in model.members_:
        assert len(member.record.validation_scores) == 1


def test_partial_fit_goes_on_with_the_heaviest_that_learns_from_chunks(model, data):
    model = copy.deepcopy(model)
    able = [member for member in model.members_ if member.scheme.takes_chunks]
    heaviest = max(able, key=lambda member: member.mixture_weight)
    with pytest.warns(UserWarning, match="the others are dropped"):
        model.partial_fit(*data)
    (member,) = model.members_
    assert repr(member.scheme) == repr(heaviest.scheme)
    assert member.architecture.widths == heaviest.architecture.widths


def test_warm_start(model, data):
    again = copy.deepcopy(model).set_params(warm_start=True, max_iter=1).fit(*data)
    assert set(kinds(again)) >= set(kinds(model))
    change = np.abs(again.predict(data[0]) - model.predict(data[0])).max()
    assert change < 0.3 * np.abs(model.predict(data[0]) - data[1].mean()).max()


def test_a_new_likelihood_needs_a_new_start(model, data):
    other = copy.deepcopy(model).set_params(warm_start=True, likelihood="gaussian")
    with pytest.raises(ValueError, match="likelihood must stay as before"):
        other.fit(*data)


def test_resume(data, tmp_path, kill):
    """All members go on, to the last bit."""
    X, y = data
    settings = {**FEW, "batch_size": 20, "max_iter": 14}
    expected = DeepGPRegressor(**settings).fit(X, y)
    model = DeepGPRegressor(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=4), **settings)
    kill(DeepSparseGP, 7)
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(X, y)
    model.fit(X, y)
    assert_array_equal(model.predict(X), expected.predict(X))
    for one, other in zip(model.members_, expected.members_):
        for name, values in other.arrays.items():
            assert_array_equal(one.arrays[name], values, err_msg=name)


@pytest.mark.parametrize("how", ["nan", "raises"])
def test_trouble_of_one_member_does_not_change_the_others(model, data, watch, how):
    def look(n, member, *args):
        if len(member.layers) == 1:
            return None
        if how == "raises":
            raise TrainingFailed("no way")
        return np.nan

    watch(DeepSparseGP, "step", look)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always", ConvergenceWarning)
        other = DeepGPRegressor(**FEW).fit(*data)
    if how == "raises":
        assert any("was left out: no way" in str(warning.message) for warning in record)
        assert (DSVI, 1) not in kinds(other)
    shallow = {repr((m.scheme, m.architecture)): m for m in model.members_ if len(m.kernels_) == 1}
    for one in other.members_:
        same = shallow.get(repr((one.scheme, one.architecture)))
        for name, values in same.arrays.items() if same else ():
            assert_array_equal(one.arrays[name], values, err_msg=name)
    assert np.isfinite(other.predict(data[0])).all()


def test_members_in_parallel_are_the_same(model, data):
    other = DeepGPRegressor(n_jobs=2, **FEW).fit(*data)
    assert_array_equal(other.predict(data[0]), model.predict(data[0]))


def test_threads_share_a_loaded_model(model, data):
    """Eight threads ask one freshly loaded model, each for other things."""
    X, fresh = data[0], pickle.loads(pickle.dumps(model))
    questions = [
        lambda m: m.predict(X),
        lambda m: m.predict(X, return_std=True)[1],
        lambda m: m.log_predictive_density(*data),
        lambda m: m.sample_y(X[:5], 20, random_state=0),
    ] * 2
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda question: question(fresh), questions))
    for answer, question in zip(found, questions, strict=True):
        assert_array_equal(answer, question(model))


def test_time_is_shared(data, monkeypatch):
    monkeypatch.setattr("time.monotonic", time.process_time)  # whatever else the machine does
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DeepGPRegressor(max_time=3.0, **{**FEW, "max_iter": 100_000}).fit(*data)
    assert 1 < model.n_iter_ < 100_000


def test_budgets_and_layers_decide_which_members_there_are(data):
    one_step = {**FEW, "max_iter": 1}
    few, many = (DeepGPRegressor(budget=b, **one_step).fit(*data) for b in (0.01, 60.0))
    assert len(few.members_) < len(many.members_)
    shallow = DeepGPRegressor(1, **one_step).fit(*data)
    assert not any(member.architecture.widths for member in shallow.members_)

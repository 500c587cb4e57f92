"""The mixture that classifies by default."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logsumexp

from skdgp import DeepGPClassifier
from skdgp.fitting import plan as recipe
from skdgp.fitting import stacking
from skdgp.fitting.member import Plan
from skdgp.gp.kernels import RationalQuadratic, SquaredExponential, Warped
from skdgp.gp.likelihoods import RobustMax
from skdgp.inference import DSVI, Exact, Vecchia
from skdgp.inference.exact_classes import ExactClasses
from skdgp.training import Checkpoint

FEW = {"max_iter": 30, "n_inducing": 10, "n_predict_draws": 8, "random_state": 0}
ONE_STEP = {**FEW, "max_iter": 1}  #: where only the members matter, not what they learned

pytestmark = pytest.mark.usefixtures("no_global_randomness")


def rows(n=80, n_classes=2, n_features=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, n_features))
    edges = np.linspace(-0.5, 0.5, n_classes + 1)[1:-1]
    return X, np.digitize(np.sin(2.0 * X[:, 0]) + 0.3 * rng.standard_normal(n), edges)


@pytest.fixture(scope="module", params=[2, 3])
def data(request):
    return rows(n_classes=request.param)


three_classes = pytest.mark.parametrize("data", [3], indirect=True)


@pytest.fixture(scope="module")
def model(data):
    return DeepGPClassifier(**FEW).fit(*data)


def alone(model, i):
    other = copy.deepcopy(model)
    other.members_ = [model.members_[i]]
    return other


def schemes(model):
    return [type(member.scheme) for member in model.members_]


def test_members(model):
    """A process on all rows, neighbors and a deep model, each of them dropped if its weight is negligible."""
    assert set(schemes(model)) <= {Exact, Vecchia, DSVI} and len(model.members_) >= 2
    kernels = {Exact: Warped, Vecchia: RationalQuadratic, DSVI: SquaredExponential}
    for member in model.members_:
        deep = isinstance(member.scheme, DSVI)
        assert isinstance(member.kernels_[-1], kernels[type(member.scheme)])
        assert len(member.kernels_) == 1 + deep
        counts = [len(Z) for Z in member.inducing_inputs_]
        units = 1 if getattr(member.scheme, "shared_kernel", True) else 2
        # the first has as many as it needs, and hidden units have their own
        expected = {Exact: counts, Vecchia: [80], DSVI: [10 * units, 10]}
        assert counts == expected[type(member.scheme)] and max(counts) <= 80
        assert np.isfinite(member.record.log_density)
    assert "kernels_" not in vars(model)


def test_probabilities_are_those_of_the_members_by_their_weights(model, data):
    weights = np.array([member.mixture_weight for member in model.members_])
    assert_allclose(weights.sum(), 1.0)
    parts = [alone(model, i).predict_log_proba(data[0]) for i in range(len(weights))]
    expected = logsumexp(parts, axis=0, b=weights[:, None, None])
    assert_allclose(model.predict_log_proba(data[0]), expected, rtol=1e-10)
    assert_allclose(model.predict_proba(data[0]).sum(1), 1.0)


def test_the_mixture_is_nearly_as_good_as_its_best_member():
    """On rows that nobody has seen; its members are not equally good."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(1000, 6))
    y = 2.0 * (X[:, 0] > 0.2) + np.sin(6.0 * X[:, 1]) + 2.0 * X[:, 2] * X[:, 3] - 1.0
    y = rng.random(1000) < expit(3.0 * y)
    gains = []
    for seed in range(3):  # the rows that are held out differ
        model = DeepGPClassifier(max_iter=50, n_inducing=50, random_state=seed)
        model.fit(X[:250], y[:250])
        densities = [
            alone(model, i).log_predictive_density(X[250:], y[250:]).mean()
            for i in range(len(model.members_))
        ]
        assert max(densities) > min(densities) + 0.03
        gains.append(model.log_predictive_density(X[250:], y[250:]).mean() - max(densities))
    assert np.mean(gains) > -0.01


def test_the_deep_member_stops_when_held_out_rows_say_so(monkeypatch):
    """Labels are noise: steps that fit them are taken back."""
    X, _ = rows(60)
    y = np.random.default_rng(0).integers(3, size=60)

    def two(plan, *shape):
        deep = Plan(DSVI(inner_variance=1.0), plan.likelihood, 2, n_inducing=40, max_iter=1000)
        deep.patience = 2
        return [Plan(Vecchia(), plan.likelihood, max_iter=5), deep]

    monkeypatch.setattr(recipe, "classification", two)
    monkeypatch.setattr(stacking, "_NEGLIGIBLE", 0.0)
    model = DeepGPClassifier(n_predict_draws=8, random_state=0).fit(X, y)
    (deep,) = (one for one in model.members_ if isinstance(one.scheme, DSVI))
    scores = deep.record.validation_scores
    assert deep.record.n_iter == 50 * len(scores) < 1000
    assert int(np.argmax(scores)) == len(scores) - 3  # two blocks without a better one
    assert_allclose(deep.record.log_density, max(scores), rtol=1e-6)  # of the state that stays


@pytest.mark.parametrize(
    "settings",
    [
        {"likelihood": "robustmax"},
        {"likelihood": RobustMax(epsilon=0.1)},
        {"kernel": ["matern32", "squared_exponential"]},
        {"inference": "dsvi"},
        {"inference": DSVI(n_draws=2)},
    ],
)
def test_what_leaves_the_deep_model_alone(settings):
    model = DeepGPClassifier(**FEW, **settings).fit(*rows())
    assert schemes(model) == [DSVI]


def test_what_the_user_fixes():
    X, y = rows()
    model = DeepGPClassifier(kernel="matern32", likelihood="logit", **ONE_STEP).fit(X, y)
    assert all("Matern" in repr(k) for member in model.members_ for k in member.kernels_)
    assert {member.likelihood.link for member in model.members_} == {"logit"}
    model = DeepGPClassifier(n_layers=1, **ONE_STEP).fit(X, y)
    assert {len(member.architecture.widths) for member in model.members_} == {0}


@three_classes
def test_warm_start(model, data):
    X, y = data
    model = copy.deepcopy(model).set_params(warm_start=True)
    before = model.log_predictive_density(X, y).mean()
    model.set_params(max_iter=5, learning_rate=1e-3).fit(X, y)
    assert set(schemes(model)) <= {Exact, Vecchia, DSVI}
    assert abs(model.log_predictive_density(X, y).mean() - before) < 0.1


def test_start_with_a_fitted_estimator():
    X, y = rows()
    donor = DeepGPClassifier(inference="dsvi", **FEW).fit(X, y)
    model = DeepGPClassifier(init=donor, **FEW).fit(X, y)
    assert schemes(model) == [DSVI]


@three_classes
def test_resume(data, tmp_path, kill):
    X, y = data
    expected = DeepGPClassifier(batch_size=20, **FEW).fit(X, y)
    checkpoint = Checkpoint(tmp_path / "fit.npz", n_steps=4)
    model = DeepGPClassifier(batch_size=20, checkpoint=checkpoint, **FEW)
    kill(ExactClasses, 21)
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(X, y)
    model.fit(X, y)
    assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


@three_classes
def test_partial_fit_is_of_the_deep_member(model, data):
    X, y = data
    first = DeepGPClassifier(**FEW).partial_fit(X, y)
    assert schemes(first) == [DSVI]
    model = copy.deepcopy(model)
    with pytest.warns(UserWarning, match="the others are dropped"):
        model.partial_fit(X, y)
    assert schemes(model) == [DSVI]


def test_latent_functions_of_all_members(model, data):
    """A draw is of one member; over many, signs agree with the probabilities."""
    X, _ = data
    f = model.sample_y(X, n_samples=200, latent=True)
    labels = model.sample_y(X, n_samples=200)
    share = np.stack([(labels == c).mean(1) for c in model.classes_], 1)
    error = np.abs(share - model.predict_proba(X))
    assert error.max() < 5.0 * np.sqrt(0.25 / 200)
    assert f.shape == (80, 1 if len(model.classes_) == 2 else len(model.classes_), 200)


def test_a_rare_class_keeps_a_probability_everywhere():
    X, y = rows(200, n_features=3)
    labels = np.where(y == 0, "a", "b").astype(object)
    labels[[3, 50]] = "rare"
    model = DeepGPClassifier(**FEW).fit(X, labels)
    new = np.random.default_rng(1).normal(size=(300, 3))
    proba = model.predict_proba(np.concatenate([new, 100.0 * new]))
    assert list(model.classes_) == ["a", "b", "rare"] and proba[:, 2].min() > 1e-4
    assert proba.max() < 1.0 - 1e-4


def test_classes_in_an_order_have_a_process_on_all_rows_and_a_deep_model():
    X, y = rows(n_classes=4)
    model = DeepGPClassifier(likelihood="ordinal", **FEW).fit(X, y)
    assert set(schemes(model)) == {Exact, DSVI}
    together = sum(
        member.mixture_weight * alone(model, i).predict_proba(X)
        for i, member in enumerate(model.members_)
    )
    assert_allclose(model.predict_proba(X), together, rtol=1e-10)

"""The greedy start, and the start from another model."""

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score

import skdgp.training.greedy as greedy
import skdgp.training.init as init
from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Bernoulli, Gaussian, Poisson, Softmax
from skdgp.inference import DSVI, VFE
from skdgp.inference.base import Architecture
from skdgp.inference.batch import Batch
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.inference.sparse import full_batch
from skdgp.training import Checkpoint
from skdgp.training.pretraining import PreTraining

SHAPES = [
    {"mean": "zero", "width": 2},
    {"width": 2},
    {"width": 1},
    {"n_layers": 3, "width": 2},
    {"n_layers": 3, "width": [3, 1], "input_connected": True, "kernel": "matern32"},
    {"kernel": "arc_cosine"},
    {"n_layers": 1},
    {"inference": DSVI(natural_gradient="all"), "width": 3},
    {"likelihood": "heteroscedastic"},
    {"inference": "auto"},
]


def data(n=80):
    X = np.linspace(-1.0, 1.0, n)[:, None]
    return X, np.sin(9.0 * X[:, 0] ** 3) + 0.05 * np.random.default_rng(0).standard_normal(n)


def regressor(**settings):
    settings = {"inference": "dsvi", "n_inducing": 12, "max_iter": 12, **settings}
    return DeepGPRegressor(random_state=0, init=settings.pop("init", "greedy"), **settings)


def batch_of(X, y):
    y = (y - y.mean()) / y.std()
    n = len(X)
    return Batch(torch.tensor(X), torch.tensor(y[:, None]), torch.ones(n).double(), 1.0, float(n))


def torch_data():
    return batch_of(*data())


def build(mean=False, widths=(2,), **scheme):
    kernels = [as_kernel("squared_exponential").bind(n) for n in (1, *widths)]
    shape = Architecture(1, widths, 1, 12, kernels, mean, False)
    noise = Gaussian(variance=0.05).bind(np.ones((3, 1)), np.ones(3), np.ones(1))
    model = DSVI(**scheme).build(shape, noise)
    init.start(model, torch_data().X.numpy(), np.ones(80), "kmeans", np.random.RandomState(0))
    return model


def shallow(layer, batch=None, Z=None):
    run = PreTraining(None, 0.0).train
    batch, Z = (torch_data(), layer.Z) if batch is None else (batch, Z)
    return greedy.sparse_gp(layer, batch, Z, run, np.random.RandomState(0))


# The copy


@pytest.mark.parametrize("shared", [True, False])
def test_copies_reproduce_the_sparse_gp(monkeypatch, shared):
    """Without a mean function every unit has the marginals of the sparse Gaussian process."""
    monkeypatch.setattr(greedy, "_ASYMMETRY", 0.0)
    model = build(shared_covariance=shared, inner_noise=0.0)
    source, X = shallow(model.layers[0]), torch.linspace(-1.5, 1.5, 40).double()[:, None]
    greedy.copy_into(model.layers[0], source.layers[0], np.arange(2), np.random.RandomState(0))
    _, *expected = source.posterior(np.zeros((1, 0))).latent(X)
    for got, wanted in zip(model.layers[0].moments(X), expected):
        assert_allclose(got.detach(), wanted[0].expand(-1, 2), rtol=1e-9, atol=1e-9)


def test_beside_inputs_the_copy_is_small():
    """The unit that a linear mean function leaves free is the copy; the other one is the input."""
    model = build(mean=True, inner_noise=0.0)
    layer, X = model.layers[0], torch_data().X
    source = shallow(layer)
    copied_units = greedy.choose_copied_units(layer, None)
    assert_array_equal(copied_units, [1])
    greedy.copy_into(layer, source.layers[0], copied_units, np.random.RandomState(0))
    mean, var = (part.detach() for part in layer.moments(X))
    expected, v = (part[0, :, 0] for part in source.posterior(np.zeros((1, 0))).latent(X)[1:])
    assert_allclose(mean[:, 0], X[:, 0])
    assert_allclose(mean[:, 1], 0.1 * expected, atol=0.05 * 0.1)  # up to the asymmetry
    assert_allclose(var[:, 1], 0.01 * v, atol=1.5e-6)  # the jitter is not scaled


def test_asymmetry_lets_units_part(monkeypatch):
    """Exact copies have the same gradients for ever; with a little noise they do not."""

    def difference():
        model = build(shared_covariance=False)
        source = shallow(model.layers[0])
        greedy.copy_into(model.layers[0], source.layers[0], np.arange(2), np.random.RandomState(0))
        last, Z = model.layers[1], torch.linspace(-1.0, 1.0, 12).double()
        with torch.no_grad():
            last.Z.copy_(Z[:, None])
            last.q.mean.copy_(Z[:, None])
        batch, eps = torch_data(), torch.zeros(1, 80, 2).double()
        mean, var = model.propagate(batch.X, [eps])
        model.likelihood().expected_log_prob(batch.y, mean, var).sum().backward()
        gradient = model.layers[0].q.collected_gradients()[0]  # M, 2
        return float((gradient[:, 0] - gradient[:, 1]).norm() / gradient.norm())

    assert difference() > 1e-4
    monkeypatch.setattr(greedy, "_ASYMMETRY", 0.0)
    assert difference() < 1e-12


@pytest.mark.parametrize("natural", ["last", "all"])
def test_held_layers_stay(natural):
    model = build(natural_gradient=natural)
    before = model.state()
    with greedy.held(model.layers[:1]):
        for _ in range(5):
            model.step(torch_data(), torch.Generator().manual_seed(0))
    state = model.state()
    assert state.pop("warmup.progress")[0] == 5
    for name, array in state.items():
        same = np.array_equal(array, before[name])
        assert same == name.startswith("layers.0") or name.endswith("trainable"), name
    model = build(natural_gradient=natural)
    with greedy.held(model.layers[:1]):
        pass
    model.step(torch_data(), torch.Generator().manual_seed(0))
    assert not np.array_equal(model.state()["layers.0.q.root"], before["layers.0.q.root"])


def test_the_sparse_gp_finds_short_lengthscales():
    """From the kernel's start alone the search ends in noise."""
    X = np.linspace(-1.7, 1.7, 300)[:, None]
    batch = batch_of(X, np.sin(30.0 * X[:, 0]))
    found = shallow(build().layers[0], batch, batch.X[::6].clone())
    assert float(found.likelihood.fitted().variance[0]) < 0.05


def test_stand_ins():
    w = np.array([1.0, 2.0, 1.0, 1.0])
    y = np.array([[1.0], [2.0], [4.0], [0.0]])
    mean = np.average(y[:, 0], weights=w)
    std = np.sqrt(np.average((y[:, 0] - mean) ** 2, weights=w))
    targets, unit = greedy.stand_in(Gaussian(), y, w)
    assert_allclose(targets, (y - mean) / std)
    assert_allclose(unit, std)
    targets, unit = greedy.stand_in(Poisson(), y, np.ones(4))
    log = np.log1p(y)
    assert_allclose(targets, (log - log.mean()) / log.std())
    assert unit is None
    classes = np.array([[0.0], [1.0], [1.0], [0.0]])
    assert_allclose(greedy.stand_in(Bernoulli(), classes, np.ones(4))[0], 2.0 * classes - 1.0)
    several = greedy.stand_in(Softmax(), np.array([[0.0], [1.0], [2.0], [1.0]]), np.ones(4))[0]
    assert several.shape == (4, 3)
    assert_allclose(several.mean(0), 0.0, atol=1e-12)
    assert several[1, 1] == several[3, 1] == several[:, 1].max()


# In a fit


@pytest.mark.parametrize("shape", SHAPES)
def test_fits_of_all_shapes(shape):
    X, y = data(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = regressor(**shape).fit(X, y)
    assert model.n_iter_ == len(model.loss_curve_) == 12
    assert np.isfinite(model.predict(X)).all()
    if shape == {"n_layers": 1} or "inference" in shape:  # these are reproducible as all are
        assert_array_equal(regressor(**shape).fit(X, y).predict(X), model.predict(X))


def test_other_targets():
    X, y = data(40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor(likelihood="poisson").fit(X, np.round(3 + y))
        regressor(width=3).fit(X, np.column_stack([y, 7.0 - 3.0 * y]))
        for labels in (np.where(y > 0, "b", "a"), np.digitize(y, [-0.5, 0.5])):
            model = DeepGPClassifier(
                n_inducing=12, max_iter=12, width=2, init="greedy", random_state=0
            )
            assert model.fit(X, labels).score(X, labels) > 0.5


@pytest.mark.filterwarnings("ignore::skdgp.inspection.PathologyWarning")
def test_greedy_follows_what_others_miss():
    """Two hundred rows, a function that is fast in places; the start knows it after few steps."""
    X = np.linspace(0.0, 1.0, 200)[:, None]
    y = np.sin(50.0 * X[:, 0] ** 3)
    settings = {"width": 2, "n_inducing": 30, "max_iter": 100, "likelihood": "gaussian"}
    fits = (regressor(init=start, **settings).fit(X, y) for start in ("kmeans", "greedy"))
    kmeans, greedy = (fit.score(X, y) for fit in fits)
    assert greedy > max(kmeans, 0.97)


@pytest.mark.parametrize("steps", [3, 30])
def test_resumed_fits_are_the_same(tmp_path, kill, steps):
    """A fit that is killed in the first round or later ends as one that is not."""
    X, y = data(40)
    whole = regressor(max_iter=40).fit(X, y)
    checkpoint = Checkpoint(tmp_path / "fit.npz", n_steps=10)
    model = regressor(max_iter=40, checkpoint=checkpoint)
    kill(DeepSparseGP, 20 + steps)  # 20 are those of the first round
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(X, y)
    assert (tmp_path / "fit.npz").exists() == (steps > 10)
    model.fit(X, y)
    assert_array_equal(model.predict(X), whole.predict(X))
    assert model.loss_curve_ == whole.loss_curve_
    assert model.lower_bound_ == whole.lower_bound_


def test_interrupts_leave_a_model(kill):
    """Ctrl-C in a first round: no step of the training proper, a warning, and a usable model."""
    X, y = data(40)
    kill(DeepSparseGP, 0, error=KeyboardInterrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted after 0 steps"):
        model = regressor().fit(X, y)
    assert model.n_iter_ == 0
    assert np.isfinite(model.predict(X)).all()


def test_rounds_have_their_share_of_the_time():
    class Recorder:
        interrupted = False
        max_iter = 10

        def run(self):
            return self

    pretraining, recorder = PreTraining(10.0, 0.0), Recorder()
    pretraining.train(recorder)
    assert recorder.max_time == 3.0 and recorder.elapsed > 0.0 and recorder.quiet
    pretraining.trainer = Recorder
    assert pretraining.train().max_iter == 5
    pretraining.skipped = True
    assert pretraining.train().max_iter == 1


def test_little_time_is_enough():
    X, y = data(40)
    with pytest.warns(ConvergenceWarning, match="max_time") as caught:
        model = regressor(max_time=1e-6).fit(X, y)
    assert len(caught) == 1
    assert model.n_iter_ == 1
    assert np.isfinite(model.predict(X)).all()


# Another estimator


def still(**settings):
    """A regressor whose steps change nothing."""
    scheme = DSVI(natural_step=1e-12, **settings.pop("scheme", {}))
    return regressor(max_iter=1, learning_rate=1e-12, inference=scheme, **settings)


def test_start_from_a_fitted_estimator():
    X, y = data(40)
    given = regressor(init="kmeans", max_iter=60).fit(X, y)
    other = X[::2] * 1.3, 5.0 * y[::2]  # the scaling comes with the state
    model = still(init=given).fit(*other)
    moments = (fit.predict(X, return_std=True) for fit in (model, given))
    assert_allclose(*moments, rtol=1e-6)
    frozen = clone(still(init=FrozenEstimator(given)))
    assert_array_equal(frozen.fit(*other).predict(X), model.predict(X))
    scores = cross_val_score(frozen, X, y, cv=2)
    assert_allclose(scores, [given.score(X[:20], y[:20]), given.score(X[20:], y[20:])])


def test_start_from_another_scheme(monkeypatch):
    """A covariance that units share goes to each; of several, the mean is shared."""
    X, y = data(40)
    shared = regressor(init="kmeans", max_iter=60, width=2).fit(X, y)
    separate = still(init=shared, width=2, scheme={"shared_covariance": False}).fit(X, y)
    assert_allclose(separate.predict(X), shared.predict(X), rtol=1e-6)
    root = separate.members_[0].arrays["layers.0.q.root"]
    same = np.repeat(shared.members_[0].arrays["layers.0.q.root"], 2, 0)
    assert_allclose(root, same, rtol=1e-6, atol=1e-11)  # entries of size one round to that
    scheme = DSVI(shared_covariance=False)
    separate = regressor(init="kmeans", max_iter=60, width=2, inference=scheme).fit(X, y)
    again = still(init=separate, width=2).fit(X, y)
    roots = separate.members_[0].arrays["layers.0.q.root"]
    root = again.members_[0].arrays["layers.0.q.root"][0]
    assert_allclose(root @ root.T, (roots @ roots.mT).mean(0), rtol=1e-6, atol=1e-12)
    monkeypatch.setattr(full_batch, "_JITTER", 1e-6)  # as that of other schemes
    posterior = regressor(init="kmeans", n_layers=1, inference=VFE(), max_iter=30).fit(X, y)
    uncollapsed = still(init=posterior, n_layers=1).fit(X, y)
    assert_allclose(uncollapsed.predict(X), posterior.predict(X), rtol=1e-6)


STARTS = "dsvi-aep aep-vfe vfe-dsvi dsvi-pep vfe-pep vfe-vfe".split()


@pytest.mark.parametrize(("before", "after"), [pair.split("-") for pair in STARTS])
def test_every_shallow_scheme_goes_on_where_another_ended(before, after):
    X, y = data(40)
    settings = {"init": "kmeans", "n_layers": 1, "likelihood": "gaussian", "max_iter": 40}
    given = regressor(inference=before, **settings).fit(X, y)
    model = regressor(inference=after, **{**settings, "init": given, "max_iter": 1}).fit(X, y)
    old, new = (fit.members_[0].inducing_inputs_[0] for fit in (given, model))
    assert_allclose(new, old, atol=0.02)  # Adam may take a step
    cold = regressor(inference=after, **{**settings, "max_iter": 1}).fit(X, y)
    assert model.loss_curve_[0] < cold.loss_curve_[0] - 0.1


@pytest.mark.parametrize("schemes", [("structured", "dsvi"), ("vfe", "structured")])
def test_posteriors_that_couple_layers_do_not_fit_others(schemes):
    X, y = data(40)
    settings = {"n_layers": 1, "likelihood": "gaussian", "max_iter": 2}
    given = regressor(inference=schemes[0], init="kmeans", **settings).fit(X, y)
    names = ["StructuredVI" if name == "structured" else name.upper() for name in schemes]
    with pytest.raises(ValueError, match=f"StructuredVI.*from {names[0]} to {names[1]}"):
        regressor(inference=schemes[1], init=given, **settings).fit(X, y)


@pytest.mark.parametrize(
    "names", [("gaussian", "heteroscedastic"), ("heteroscedastic", "gaussian")]
)
def test_start_from_a_model_with_other_noise(names):
    """The latents of the functions are those of the other model; those of the noise start anew."""
    X, y = data(40)
    Y = np.column_stack([y, np.cos(X[:, 0])])
    before, after = (
        {"init": "kmeans", "max_iter": 60, "width": 2, "likelihood": names[0]},
        {"max_iter": 1, "learning_rate": 1e-12, "width": 2, "likelihood": names[1]},
    )
    given = regressor(**before).fit(X, Y)
    model = regressor(**{**after, "init": given, "inference": DSVI(natural_step=1e-12)}).fit(X, Y)
    assert_allclose(model.predict(X, latent=True), given.predict(X, latent=True), rtol=1e-6)


def test_start_from_a_mixture():
    X, y = data(40)
    given = regressor(inference="auto", init="kmeans").fit(X, y)
    model = regressor(inference="auto", init=given, max_iter=1, learning_rate=1e-12).fit(X, y)
    before = next(m.arrays for m in given.members_ if m.architecture.widths)
    assert_array_equal(before["layers.0.Z"].shape, model.members_[0].arrays["layers.0.Z"].shape)
    assert len(model.members_) == 1  # the deep model alone takes a start


def test_starts_that_do_not_fit():
    X, y = data(40)
    given = regressor(init="kmeans", max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match=r"'layers.0.Z' has shape \(5, 1\) here"):
        regressor(init=given, n_inducing=5).fit(X, y)
    with pytest.raises(ValueError, match="is missing"):
        regressor(init=given, n_layers=3).fit(X, y)
    with pytest.raises(NotFittedError, match="FrozenEstimator"):
        clone(regressor(init=given)).fit(X, y)
    with pytest.raises(ValueError, match="1 features, X has 2"):
        regressor(init=given).fit(np.hstack([X, X]), y)
    with pytest.raises(ValueError, match="must be an estimator of skdgp"):
        regressor(init=Ridge().fit(X, y)).fit(X, y)


def test_models_without_inducing_inputs():
    started = []

    class Features(torch.nn.Module):
        def start(self, X, weights, rng):
            started.append(len(X))

    args = np.zeros((3, 1)), np.ones(3)
    init.start(Features(), *args, "kmeans", None)
    assert started == [3]
    with pytest.raises(ValueError, match="Features has none; leave init at 'kmeans'"):
        init.start(Features(), *args, "greedy", None)

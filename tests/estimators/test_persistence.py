"""Fitted estimators on their way through files, copies and other processes."""

import copy
import io
import pickle
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import qmc
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import skdgp
from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.gp.kernels import Linear, Matern
from skdgp.inference import DSVI, CollapsedVI, DeepInverseWishart, GlobalInducing, RandomFeatures

FEW = {"inference": "dsvi", "max_iter": 20, "learning_rate": 0.02}
FEW |= {"n_inducing": 10, "n_predict_draws": 8}


def make(kind):
    if kind == "classifier":
        return DeepGPClassifier(random_state=0, **FEW)
    if kind == "regressor":
        return DeepGPRegressor(random_state=0, **FEW)
    return DeepGPRegressor(
        kernel=[Matern(nu=2.5) + Linear(), "arc_cosine"],
        likelihood="heteroscedastic",
        early_stopping=True,
        random_state=0,
        **{**FEW, "inference": DSVI(inner_scale=0.1)},
    )


@pytest.fixture(scope="module", params=["regressor", "objects", "classifier"])
def fitted(request, wave):
    X, y = wave
    return make(request.param).fit(X, y > 0.0 if request.param == "classifier" else y)


def through_pickle(model):
    return pickle.loads(pickle.dumps(model, protocol=pickle.HIGHEST_PROTOCOL))


def through_oldest_pickle(model):
    return pickle.loads(pickle.dumps(model, protocol=2))


def through_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file, compress=3)
    file.seek(0)
    return joblib.load(file)


def through_skops(model):
    skops = pytest.importorskip("skops.io")
    content = skops.dumps(model)
    untrusted = skops.get_untrusted_types(data=content)
    assert all(name.startswith("skdgp.") for name in untrusted)
    return skops.loads(content, trusted=untrusted)


WAYS = [through_pickle, through_oldest_pickle, through_joblib, through_skops, copy.deepcopy]


def predictions(model, X):
    if isinstance(model, DeepGPClassifier):
        return [model.predict(X), model.predict_proba(X), model.sample_y(X, 2)]
    return [
        *model.predict(X, return_std=True),
        model.predict_quantiles(X),
        model.sample_y(X, 2),
        model.sample_y(X, 2, latent=True),
        model.log_predictive_density(X, np.zeros(len(X))),
    ]


@pytest.mark.parametrize("way", WAYS)
def test_round_trip(fitted, wave, way):
    X = wave[0][:5]
    before = predictions(fitted, X)
    other = way(fitted)
    for first, second in zip(before, predictions(other, X)):
        assert_array_equal(first, second)
    assert repr(other) == repr(fitted)
    assert vars(other).keys() == vars(fitted).keys()
    assert other.loss_curve_ == fitted.loss_curve_ and other.lower_bound_ == fitted.lower_bound_
    assert [repr(kernel) for kernel in other.kernels_] == [repr(k) for k in fitted.kernels_]
    for first, second in zip(before, predictions(way(other), X)):  # and once more
        assert_array_equal(first, second)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["regressor", "objects", "classifier"])
def test_unfitted(kind, way):
    other = way(make(kind))
    assert repr(other) == repr(make(kind))
    with pytest.raises(NotFittedError):
        other.predict(np.zeros((2, 2)))


@pytest.mark.parametrize("way", [through_skops, copy.deepcopy])
def test_training_goes_on_after_a_round_trip(wave, way):
    X, y = wave
    settings = {"warm_start": True, "batch_size": 1000, "random_state": 0}
    model = way(DeepGPRegressor(**settings, **FEW).fit(X, y))
    loss = model.loss_curve_[-1]
    model.set_params(max_iter=3, learning_rate=1e-3).fit(X, y)
    assert abs(model.loss_curve_[-1] - loss) < 0.5
    assert way(model).partial_fit(X, y).n_iter_ == 4


@pytest.mark.parametrize("way", [through_skops, copy.deepcopy])
def test_random_state_instance_goes_along(wave, way):
    X, y = wave
    model = DeepGPRegressor(random_state=np.random.RandomState(0), **FEW).fit(X, y)
    other = way(model)
    assert_array_equal(other.predict(X), model.predict(X))
    assert_array_equal(other.fit(X, y).predict(X), model.fit(X, y).predict(X))


def test_copies_are_independent(wave):
    X, y = wave
    model = DeepGPRegressor(random_state=0, **FEW).fit(X, y)
    before = model.predict(X)
    other = copy.deepcopy(model)
    for _ in range(3):
        other.partial_fit(X, -y)
    assert_array_equal(model.predict(X), before)
    assert np.abs(other.predict(X) - before).max() > 1e-3


def test_clone_is_unfitted(fitted, wave):
    other = clone(fitted)
    assert not hasattr(other, "members_") and not hasattr(other, "n_features_in_")
    with pytest.raises(NotFittedError):
        other.predict(wave[0])
    assert other.get_params().keys() == fitted.get_params().keys()


def test_file_holds_plain_numpy(fitted, wave):
    """No torch inside, so that files are small, portable between devices, and safe to load."""
    fitted.predict(wave[0])
    assert b"torch" not in pickle.dumps(fitted)


def test_size(wave):
    """Ten inducing points, two inputs and 20 steps make 9 kB, whatever the number of rows beyond 200.

    So many are kept for the importances of columns.
    """
    X, y = wave
    model = DeepGPRegressor(random_state=0, **FEW)
    assert len(pickle.dumps(model.fit(X, y))) < 10_000
    small, large = (
        len(pickle.dumps(model.fit(np.tile(X, (n, 1)) + np.arange(60 * n)[:, None], np.tile(y, n))))
        for n in (4, 50)
    )
    assert large < 1.02 * small


def test_another_version_is_a_warning(fitted, monkeypatch):
    assert fitted.__getstate__()["_skdgp_version"] == skdgp.__version__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        through_pickle(fitted)
    monkeypatch.setattr("skdgp.estimators.persistence.__version__", "0.0.9")
    content = pickle.dumps(fitted)
    monkeypatch.undo()
    with pytest.warns(
        UserWarning, match=f"saved by skdgp 0.0.9 and is loaded by {skdgp.__version__}"
    ):
        pickle.loads(content)


@pytest.mark.parametrize("way", [lambda model: model, through_pickle])
def test_prediction_adds_no_attribute(fitted, wave, way):
    model = way(fitted)
    before = dict(vars(model))
    predictions(model, wave[0])
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())


def test_other_process(wave, tmp_path):
    """Also from a memory map, and without a warning."""
    X, y = wave
    model = DeepGPRegressor(random_state=0, **FEW).fit(X, y)
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
    joblib.dump(model, tmp_path / "model.joblib")
    np.savez(tmp_path / "data.npz", X=X, y=y)
    script = """
import pickle, warnings, joblib, numpy as np
from pathlib import Path
X, y = np.load("data.npz").values()
models = [pickle.loads(Path("model.pickle").read_bytes())]
models.append(joblib.load("model.joblib", mmap_mode="r"))
models.append(type(models[0])(**models[0].get_params()).fit(X, y))  # the same fit anew
with warnings.catch_warnings():
    warnings.simplefilter("error")
    np.save("predictions.npy", [model.predict(X) for model in models])
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)
    unpickled, mapped, refitted = np.load(tmp_path / "predictions.npy")
    assert_allclose(unpickled, model.predict(X), rtol=1e-9)
    assert_allclose(mapped, model.predict(X), rtol=1e-9)
    assert_allclose(refitted, model.predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_that_is_gone(wave):
    """A model that was trained on a GPU predicts on the CPU of another machine."""
    X, y = wave
    model = DeepGPRegressor(random_state=0, **FEW).fit(X, y)
    before = predictions(model, X)
    model.device_ = "cuda"
    for first, second in zip(before, predictions(through_pickle(model), X)):
        assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("scheme", "most"),
    [
        (DeepInverseWishart(), 12_000),
        (GlobalInducing(), 12_000),
        (RandomFeatures(8, "resampled"), 16_000),
        (CollapsedVI(n_draws=2), 40_000),
    ],
)
def test_base_draws_do_not_depend_on_versions_of_libraries(wave, monkeypatch, scheme, most):
    """A loaded model does not ask generators, the streams of which may differ, and stays small."""
    X, y = wave
    few = {"n_inducing": 6} if "n_inducing" in scheme.uses else {}
    model = DeepGPRegressor(inference=scheme, max_iter=3, random_state=0, **few).fit(X, y)
    expected, pickled = model.predict(X), pickle.dumps(model)
    assert sum(member.draws.nbytes for member in model.members_) <= 64 * 3 * 8
    assert len(pickled) < most

    class OtherSobol(qmc.Sobol):
        def __init__(self, d, **settings):
            super().__init__(d, scramble=True, rng=99)

    def no_generator(*args, **kwargs):
        raise AssertionError("a generator was asked")

    monkeypatch.setattr(qmc, "Sobol", OtherSobol)
    monkeypatch.setattr(torch, "Generator", no_generator)
    assert_array_equal(pickle.loads(pickled).predict(X), expected)

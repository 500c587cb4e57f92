import numpy as np
import pytest

from skdgp.datasets import make_deep_kernel_process


@pytest.mark.parametrize("kind", ["dgp", "dwp", "diwp", "bnn"])
def test_shapes_and_seeds(kind):
    settings = {"n_layers": 2, "width": (3, 4), "n_features": 2, "random_state": 0}
    X, y, grams, features = make_deep_kernel_process(12, kind=kind, return_layers=True, **settings)
    assert X.shape == (12, 2) and y.shape == (12,)
    assert [F.shape for F in features] == ([(12, 3), (12, 4)] if kind in ("dgp", "bnn") else [])
    for G in grams:
        np.testing.assert_allclose(G, G.T)
        assert np.linalg.eigvalsh(G).min() > -1e-9
    np.testing.assert_array_equal(make_deep_kernel_process(12, kind=kind, **settings)[1], y)


@pytest.mark.parametrize(("kind", "size"), [("dgp", "width"), ("dwp", "width"), ("diwp", "delta")])
def test_wide_layers_are_fixed_functions_of_those_below(kind, size):
    _, _, grams, _ = make_deep_kernel_process(
        8, kind=kind, n_layers=3, return_layers=True, random_state=0, **{size: 10**6}
    )
    d = grams[1].diagonal()
    expected = np.exp(-0.5 * (d[:, None] + d - 2.0 * grams[1]))
    np.testing.assert_allclose(grams[2], expected, atol=1e-2)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"kind": "gp"}, "kind must be one of"),
        ({"kind": "bnn", "kernel": "linear"}, "A network has no kernel"),
        ({"width": (1, 2)}, "one for each of the 3 layers"),
        ({"delta": 0.0}, "delta"),
        ({"interval": (1.0, 0.0)}, "increasing pair"),
        ({"kernel": "anova"}, "not a function of inner products"),
    ],
)
def test_bad_settings(settings, match):
    with pytest.raises(ValueError, match=match):
        make_deep_kernel_process(5, **settings)

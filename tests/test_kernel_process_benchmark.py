import numpy as np

from benchmarks import deep_kernel_processes as dkp


def test_published_numbers_and_paired_differences():
    assert dkp.published()["kin8nm"] == {
        "global-relu": 1.05, "nngp-relu": 1.10, "diwp-relu": 1.09,
        "global-se": -0.09, "nngp-se": 1.04, "diwp-se": 1.01,
    }  # fmt: skip
    cells = [
        {"set": "yacht", "split": s, "seed": 0, "model": m, "log_density": v + s}
        for s in (0, 1)
        for m, v in (("diwp-se", -0.5), ("nngp-se", -0.7))
    ]
    diwp, nngp = dkp.paired(cells)
    np.testing.assert_allclose(diwp[2:6], [0.0, -0.39, 0.0, 0.0])
    np.testing.assert_allclose(nngp[2:6], [-0.2, -0.50, 0.2, 0.0], atol=1e-12)
    assert dkp.reached([diwp]) == ["yacht"]
    assert len(dkp.models(300)) == 8 and len(dkp.digits()) == 4
    assert "standardize=False" in dkp.digits()[0]

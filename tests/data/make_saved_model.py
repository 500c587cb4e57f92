"""Makes the saved models that every later version has to load.

Run once for each released minor version, with the oldest skops that the package allows; the files
of older versions stay.
"""

import sys
import zipfile
from pathlib import Path

import numpy as np

from skdgp import DeepGPClassifier, DeepGPRegressor, __version__
from skdgp.gp.kernels import Linear, Matern
from skdgp.inference import DSVI

HERE = Path(__file__).parent
FEW = {"n_inducing": 8, "n_predict_draws": 8, "max_iter": 40, "learning_rate": 0.02}


def main():
    import skops.io

    version = "_".join(__version__.split(".")[:2])
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(60, 3)) * [1.0, 10.0, 100.0]
    y = 5.0 + np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    regressor = DeepGPRegressor(
        kernel=[Matern(nu=2.5) + Linear(), "squared_exponential"],
        likelihood="student_t",
        inference=DSVI(inner_scale=0.1),
        width=2,
        input_connected=True,
        random_state=0,
        **FEW,
    ).fit(X, np.column_stack([y, 100.0 * y**2]))
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [4.7, 5.3])]
    classifier = DeepGPClassifier(random_state=0, **FEW).fit(X, labels)
    mixture = DeepGPRegressor(random_state=0, **FEW).fit(X, y)
    new = X[:7] + 0.1
    mean, std = regressor.predict(new, return_std=True)
    np.savez_compressed(
        HERE / f"predictions_{version}.npz",
        X=new,
        mean=mean,
        std=std,
        quantiles=regressor.predict_quantiles(new),
        draws=regressor.sample_y(new, 3, latent=True),
        proba=classifier.predict_proba(new),
        labels=classifier.predict(new),
        mixture=mixture.predict_quantiles(new),
    )
    models = {"regressor": regressor, "classifier": classifier, "mixture": mixture}
    for name, model in models.items():
        path = HERE / f"{name}_{version}.skops"
        skops.io.dump(model, path, compression=zipfile.ZIP_DEFLATED, compresslevel=9)
        print(path.name, path.stat().st_size, "bytes", file=sys.stderr)


if __name__ == "__main__":
    main()

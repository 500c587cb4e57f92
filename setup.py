from pathlib import Path

from setuptools import find_packages, setup

version = {}
exec(Path("skdgp/_version.py").read_text(), version)

setup(
    name="skdgp",
    version=version["__version__"],
    description="Deep Gaussian processes with the interface of scikit-learn",
    long_description=Path("README.rst").read_text(),
    long_description_content_type="text/x-rst",
    license="BSD-3-Clause",
    packages=find_packages(include=["skdgp", "skdgp.*"]),
    package_data={"skdgp": ["py.typed"], "skdgp.datasets": ["data/*.csv"]},
    package_dir={"": "."},  # an editable install that a folder of the same name does not hide
    python_requires=">=3.11",
    install_requires=[
        "joblib>=1.3",
        "narwhals>=2",
        "numpy>=2.0",
        "scikit-learn>=1.7",
        "scipy>=1.13",
        "threadpoolctl>=3.1",
        "torch>=2.4",
    ],
    extras_require={
        "plot": ["matplotlib>=3.8"],
        "botorch": ["botorch>=0.12"],
        "mcmc": ["arviz>=0.20,<1"],
        "dask": ["distributed>=2024.8"],
        "onnx": ["onnx>=1.18", "onnxscript>=0.5"],
        "parquet": ["pyarrow>=16"],
        "ray": ["ray[train]>=2.40"],
        "test": [
            "arviz>=0.20,<1",
            "hypothesis>=6.100",
            "matplotlib>=3.8",
            "mypy>=1.11",
            "onnx>=1.18",
            "onnxruntime>=1.22",
            "onnxscript>=0.5",
            "pandas>=2.2",
            "polars>=1.20",
            "pytest>=8",
            "pytest-xdist>=3.5",
            "rich>=13",
            "ruff>=0.6",
            "skops>=0.11",
        ],
        "bench": [
            "catboost>=1.2",
            "gpytorch>=1.15",
            "ngboost>=0.5",
            "pandas>=2.2",
            "quantile-forest>=1.4",
        ],
        "docs": [
            "arviz>=0.20,<1",
            "matplotlib>=3.8",
            "numpydoc>=1.8",
            "pandas>=2.2",
            "pydata-sphinx-theme>=0.16",
            "sphinx>=8,<9.1",
            "sphinx-gallery>=0.18",
        ],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)

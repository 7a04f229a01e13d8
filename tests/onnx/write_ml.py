"""Writes models of scikit-learn, LightGBM and XGBoost with ONNX Runtime's outputs, as tests of the kind `learned`.

    pip install scikit-learn==1.9.1 skl2onnx==1.20.0 onnxmltools==1.16.0 lightgbm==4.7.0 xgboost==3.2.0
    python tests/onnx/write_ml.py target/onnx-suite

Data and models are seeded, and small: each test takes a few kilobytes.
"""

import json
import pathlib
import sys

import lightgbm
import numpy as np
import onnxruntime
import xgboost
from onnx import numpy_helper
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVC, SVR

X, Y = make_classification(60, 6, n_informative=4, n_classes=3, random_state=3)
X = X.astype(np.float32)
MISSING = X.copy()
MISSING[np.random.default_rng(3).random(X.shape) < 0.1] = np.nan


def of_sklearn(model, y=Y, zipmap=True):
    options = {"zipmap": False} if zipmap else None
    return to_onnx(model.fit(X, y), X[:1], options=options, target_opset={"": 15, "ai.onnx.ml": 3})


def tests():
    columns = [("x", FloatTensorType([None, X.shape[1]]))]
    yield "test_random_forest", of_sklearn(RandomForestClassifier(4, max_depth=4, random_state=1)), X
    yield "test_random_forest_binary", of_sklearn(RandomForestClassifier(4, max_depth=4, random_state=1), (Y > 0).astype(int)), X
    yield "test_forest_regressor", of_sklearn(RandomForestRegressor(4, max_depth=4, random_state=1), zipmap=False), X
    yield "test_boosting_binary", of_sklearn(GradientBoostingClassifier(n_estimators=4, random_state=1), (Y > 0).astype(int)), X
    yield "test_support_vectors", of_sklearn(SVC(gamma=0.1, random_state=1)), X
    yield "test_support_regressor", of_sklearn(SVR(gamma=0.1), zipmap=False), X
    steps = make_pipeline(SimpleImputer(), StandardScaler(), Normalizer(), LogisticRegression())
    yield "test_pipeline", of_sklearn(steps), MISSING
    model = lightgbm.LGBMClassifier(n_estimators=3, min_child_samples=4, verbose=-1, random_state=1)
    yield "test_lightgbm", convert_lightgbm(model.fit(MISSING, Y), initial_types=columns, zipmap=False, target_opset=15), MISSING
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=3, random_state=1)
    yield "test_xgboost", convert_xgboost(model.fit(MISSING, Y), initial_types=columns, target_opset=15), MISSING


def main():
    for name, model, x in tests():
        folder = pathlib.Path(sys.argv[1]) / "learned" / name
        data_set = folder / "test_data_set_0"
        data_set.mkdir(parents=True, exist_ok=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        given, rows = session.get_inputs()[0].name, x[:13]
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        (folder / "data.json").write_text(json.dumps({"rtol": 1e-4, "atol": 1e-5}))
        (data_set / "input_0.pb").write_bytes(numpy_helper.from_array(rows, given).SerializeToString())
        outputs = session.run(None, {given: rows})
        for index, (value, info) in enumerate(zip(outputs, session.get_outputs())):
            (data_set / f"output_{index}.pb").write_bytes(numpy_helper.from_array(value, info.name).SerializeToString())


main()

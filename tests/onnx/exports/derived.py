"""Smaller forms of exports: quantised by ONNX Runtime's tools, and in 16-bit floats."""

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16


class Once(CalibrationDataReader):
    """The reference inputs, which ranges are measured with."""

    def __init__(self, inputs):
        self.left = [inputs]

    def get_next(self):
        return self.left.pop() if self.left else None


def dynamic(source, target, inputs):
    # The tool exchanges rows and columns of weights whose old shapes the exporter wrote down.
    model = onnx.load(source)
    del model.graph.value_info[:]
    quantize_dynamic(model, target, weight_type=QuantType.QInt8)


def static(form, **others):
    def quantise(source, target, inputs):
        prepared = target.with_suffix(".prepared")
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(prepared, target, Once(inputs), quant_format=form, **others)
        prepared.unlink()
        finite(onnx.load(target))
    return quantise


def finite(model):
    """A mask of minus infinity has no finite scale: what is quantised with it is not a number."""
    for tensor in model.graph.initializer:
        if tensor.name.endswith("_scale") and not np.isfinite(onnx.numpy_helper.to_array(tensor)).all():
            raise ValueError(f"the tool gave {tensor.name} no finite scale")


def half(source, target, inputs):
    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


SIGNED = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
FORMS = {
    "dynamic": dynamic,
    "qdq": static(QuantFormat.QDQ, **SIGNED, per_channel=True),
    "qdq_unsigned": static(QuantFormat.QDQ, activation_type=QuantType.QUInt8, weight_type=QuantType.QUInt8),
    "qoperator": static(QuantFormat.QOperator, **SIGNED),
    "half": half,
}
SOURCES = ["mobilenet_v3", "resnext", "bert_answers", "gpt2", "deit", "unet_2d", "lstm_tagger"]


def forms(name):
    """Names and makers. ONNX Runtime 1.31 crashes where recurrent layers are in 16 bits."""
    return [(form, make) for form, make in FORMS.items() if (name, form) != ("lstm_tagger", "half")]

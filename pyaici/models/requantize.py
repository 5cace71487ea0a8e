"""Rewrites a GGUF model with weights in Q8_0."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


def requantize(source: Path, target: Path) -> None:
    """Writes the model of `source` to `target` with all matrices in Q8_0: 8 bits a weight, blocks of 32.

    llama.cpp has fast kernels for Q8_0 and batches on every processor with AVX2, but none for Q4_1.
    """
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields[gguf.Keys.General.ARCHITECTURE].contents())
    for field in reader.fields.values():
        if field.name == gguf.Keys.General.ARCHITECTURE or field.name.startswith("GGUF."):
            continue  # the writer writes these itself
        value, kind = field.contents(), field.types[0]
        if field.name == gguf.Keys.General.FILE_TYPE:
            value = int(gguf.LlamaFileType.MOSTLY_Q8_0)
        item = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, kind, sub_type=item)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for tensor in reader.tensors:
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if len(tensor.shape) > 1:
            writer.add_tensor(tensor.name, gguf.quants.quantize(weights, q8), raw_dtype=q8)
        else:
            writer.add_tensor(tensor.name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

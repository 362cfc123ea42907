"""A model's files: from what a user names to the files that a program opens.

A model is a local folder, one ``.onnx`` file or a Hub repository ``owner/name``, each with an
optional ``:dtype``. Knows names and places; what a graph means, ``graph`` says.
"""

from onnxgen.files.layouts import DTYPES
from onnxgen.files.model import ModelFiles
from onnxgen.files.policy import external_data_locations
from onnxgen.files.resolve import resolve

__all__ = ["DTYPES", "ModelFiles", "external_data_locations", "resolve"]

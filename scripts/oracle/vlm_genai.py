"""The decoder of a vision-language model by the builder of onnxruntime-genai."""

import shutil
import tempfile
from pathlib import Path

import onnx
from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from . import exporters
from .vlm_exporters import DECODER, decoder


def export_decoder(
    python: Path, model: PreTrainedModel, words: PreTrainedTokenizerBase, folder: Path
) -> None:
    """Llama on embeddings, with GroupQueryAttention, rotary positions in it, in one file."""
    text = LlamaForCausalLM(decoder(model).config)
    text.model.load_state_dict(decoder(model).state_dict())
    text.lm_head.load_state_dict(model.get_output_embeddings().state_dict())
    with tempfile.TemporaryDirectory() as place:
        checkpoint, out = Path(place) / "checkpoint", Path(place) / "out"
        text.save_pretrained(checkpoint)
        words.save_pretrained(checkpoint)
        options = ["-p", "fp32", "-e", "cpu", "--extra_options", "exclude_embeds=true"]
        exporters.genai(python, checkpoint, out, *options)
        onnx.save(onnx.load(out / "model.onnx"), folder / DECODER)
        shutil.rmtree(out)

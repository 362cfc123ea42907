"""What a tokenizer class of transformers changes in the ``tokenizer.json`` that it loads.

``tokenizer_config.json`` names a class, and the class brings special tokens, a padding side and
sometimes another post-processor, all of which ``tokenizer.json`` does not know. Classes that only
wrap the file are the default entry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from onnxgen.text import languages
from onnxgen.text.languages import LanguageRule

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """Defaults of one class, each overruled by the same key of ``tokenizer_config.json``.

    Attributes:
        special_tokens: name to token; None where the class itself says that there is none.
        padding_side: where a batch of prompts is filled up.
        adds: None if the post-processor of the file stays, else the defaults of
            ``(add_bos_token, add_eos_token)`` from which a new one is built.
        add_prefix_space: what a ByteLevel pre-tokenizer is set to; None leaves the file's.
        prefix_space_in_sequence: ``add_prefix_space: true`` also reaches pre-tokenizers inside a
            sequence.
        sentencepiece: the kind of pipeline that is rebuilt when the config sets
            ``add_prefix_space`` and the folder has the SentencePiece model; empty if none.
        extra_ids: how many ``<extra_id_N>`` are special.
        whisper: prompts and timestamps are left out of decoded text.
        marian: ``>>code<<`` at the start of a text is one token, known or not.
        languages: how they are written, None for a class that has none.
    """

    special_tokens: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    padding_side: Side = "right"
    adds: tuple[bool, bool] | None = None
    add_prefix_space: bool | None = False
    prefix_space_in_sequence: bool = False
    sentencepiece: Literal["", "llama", "t5"] = ""
    extra_ids: int = 0
    whisper: bool = False
    marian: bool = False
    languages: LanguageRule | None = None


def _tokens(**names: str | None) -> Mapping[str, str | None]:
    return MappingProxyType({f"{name}_token": token for name, token in names.items()})


_END = "<|endoftext|>"
_GPT2 = _tokens(bos=_END, eos=_END, unk=_END)
_LLAMA = _tokens(bos="<s>", eos="</s>", unk="<unk>")
_T5 = _tokens(eos="</s>", unk="<unk>", pad="<pad>")
_BART = _tokens(
    bos="<s>", eos="</s>", unk="<unk>", sep="</s>", pad="<pad>", cls="<s>", mask="<mask>"
)
_BERT = _tokens(unk="[UNK]", sep="[SEP]", pad="[PAD]", cls="[CLS]", mask="[MASK]")
_MBART50 = _tokens(eos="</s>", unk="<unk>", sep="</s>", pad="<pad>", cls="<s>", mask="<mask>")
_FAIRSEQ = _tokens(bos="<s>", eos="</s>", unk="<unk>", sep="</s>", pad="<pad>", cls="<s>")
_M2M100 = _tokens(bos="<s>", eos="</s>", unk="<unk>", sep="</s>", pad="<pad>")
_T5_CLASS = TokenizerClass(_T5, add_prefix_space=None, sentencepiece="t5", extra_ids=100)

_CLASSES: dict[str, TokenizerClass] = {
    "LlamaTokenizer": TokenizerClass(
        _LLAMA, "left", adds=(True, False), add_prefix_space=None, sentencepiece="llama"
    ),
    "CodeLlamaTokenizer": TokenizerClass(_LLAMA, "left", adds=(True, False)),
    "GemmaTokenizer": TokenizerClass(
        _tokens(bos="<bos>", eos="<eos>", unk="<unk>", pad="<pad>"), "left", adds=(True, False)
    ),
    "CohereTokenizer": TokenizerClass(
        _tokens(bos="<BOS_TOKEN>", eos="<|END_OF_TURN_TOKEN|>", unk="<UNK>"),
        "left",
        adds=(True, False),
        prefix_space_in_sequence=True,
    ),
    "GPTNeoXTokenizer": TokenizerClass(
        _tokens(bos=_END, eos=_END, unk=_END, pad=None), adds=(False, False)
    ),
    "BloomTokenizer": TokenizerClass(
        _tokens(bos="<s>", eos="</s>", unk="<unk>", pad="<pad>"), prefix_space_in_sequence=True
    ),
    "GPT2Tokenizer": TokenizerClass(_GPT2),
    "CodeGenTokenizer": TokenizerClass(_GPT2),
    "Qwen2Tokenizer": TokenizerClass(_tokens(bos=None, eos=_END, unk=_END, pad=_END)),
    "WhisperTokenizer": TokenizerClass(_GPT2, whisper=True),
    "T5Tokenizer": _T5_CLASS,
    "MT5Tokenizer": _T5_CLASS,
    "BartTokenizer": TokenizerClass(_BART),
    "BlenderbotTokenizer": TokenizerClass(_BART),
    "LEDTokenizer": TokenizerClass(_BART),
    "MvpTokenizer": TokenizerClass(_BART),
    "RobertaTokenizer": TokenizerClass(_BART),
    "XLMRobertaTokenizer": TokenizerClass(_BART),
    "XLNetTokenizer": TokenizerClass(
        _tokens(
            bos="<s>", eos="</s>", unk="<unk>", sep="<sep>", pad="<pad>", cls="<cls>", mask="<mask>"
        ),
        "left",
    ),
    "XGLMTokenizer": TokenizerClass(_FAIRSEQ),
    "NllbTokenizer": TokenizerClass(_BART, languages=languages.NLLB),
    "MBartTokenizer": TokenizerClass(_BART, languages=languages.MBART),
    "MBart50Tokenizer": TokenizerClass(_MBART50, languages=languages.MBART50),
    "M2M100Tokenizer": TokenizerClass(_M2M100, languages=languages.M2M100),
    "SeamlessM4TTokenizer": TokenizerClass(_FAIRSEQ, languages=languages.SEAMLESS),
    "MarianTokenizer": TokenizerClass(
        _tokens(eos="</s>", unk="<unk>", pad="<pad>"), marian=True, languages=languages.MARIAN
    ),
    "PegasusTokenizer": TokenizerClass(
        _tokens(eos="</s>", unk="<unk>", pad="<pad>", mask="<mask_2>")
    ),
    "NougatTokenizer": TokenizerClass(_tokens(bos="<s>", eos="</s>", unk="<unk>", pad="<pad>")),
    "CLIPTokenizer": TokenizerClass(_tokens(bos="<|startoftext|>", eos=_END, unk=_END, pad=_END)),
    "OpenAIGPTTokenizer": TokenizerClass(_tokens(unk="<unk>")),
    "BertTokenizer": TokenizerClass(_BERT),
    "DistilBertTokenizer": TokenizerClass(_BERT),
}

# Folders of older exports name no class; then ``model_type`` of ``config.json`` decides.
_MODEL_TYPES = {
    "LlamaTokenizer": (
        "arcee aria chameleon deepseek_v2 deepseek_v3 diffllama ernie4_5 ernie4_5_moe idefics"
        " idefics2 idefics3 jamba jetmoe llama llama4 llama4_text llava llava_next llava_onevision"
        " ministral mistral mistral3 mixtral mllama paligemma persimmon phi3 phimoe zamba zamba2"
    ),
    "CodeLlamaTokenizer": "code_llama",
    "GemmaTokenizer": (
        "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma t5gemma"
    ),
    "CohereTokenizer": "aya_vision cohere cohere2",
    "GPTNeoXTokenizer": (
        "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmo2 olmoe rwkv stablelm xlstm"
    ),
    "BloomTokenizer": "bloom",
    "GPT2Tokenizer": (
        "blip-2 dbrx emu3 exaone4 flex_olmo gpt2 gpt_bigcode gpt_neo gptj granite granitemoe"
        " granitemoehybrid granitemoeshared instructblip minimax olmo3 opt starcoder2"
    ),
    "CodeGenTokenizer": "codegen phi",
    "Qwen2Tokenizer": (
        "internvl qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_moe"
        " qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe"
    ),
    "WhisperTokenizer": "whisper",
    "T5Tokenizer": "longt5 musicgen musicgen_melody pix2struct switch_transformers t5 umt5",
    "MT5Tokenizer": "mt5",
    "BartTokenizer": "bart",
    "BlenderbotTokenizer": "blenderbot",
    "LEDTokenizer": "led",
    "MvpTokenizer": "mvp",
    "RobertaTokenizer": "roberta",
    "XLMRobertaTokenizer": "xlm-roberta",
    "XLNetTokenizer": "xlnet",
    "XGLMTokenizer": "xglm",
    "NllbTokenizer": "nllb nllb-moe",
    "MBartTokenizer": "mbart",
    "MBart50Tokenizer": "mbart50",
    "M2M100Tokenizer": "m2m_100",
    "SeamlessM4TTokenizer": "seamless_m4t seamless_m4t_v2",
    "MarianTokenizer": "marian",
    "PegasusTokenizer": "bigbird_pegasus pegasus pegasus_x",
    "OpenAIGPTTokenizer": "openai-gpt",
    "BertTokenizer": "bert blip git",
}
_BY_MODEL_TYPE = {kind: name for name, kinds in _MODEL_TYPES.items() for kind in kinds.split()}

DEFAULT = TokenizerClass()


def tokenizer_class(name: str | None, model_type: str | None) -> TokenizerClass:
    """The entry for a class ``name`` (with or without "Fast"), else the one for ``model_type``."""
    if name is None:
        name = _BY_MODEL_TYPE.get(model_type or "", "")
    return _CLASSES.get(name.removesuffix("Fast"), DEFAULT)

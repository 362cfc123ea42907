"""The tiny tokenizer that every fixture shares: byte-level BPE, ChatML template, 288 ids."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB = 288
BOS, EOS, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
SPECIALS = 3

CORPUS = [
    "The capital of France is Paris, and the capital of Japan is Tokyo.",
    "You are a helpful assistant. What is the weather like in the north?",
    "user\nassistant\nsystem\n",
    "There is nothing like the sound of rain on the roof in the morning.",
    "One two three, the cat and the dog went on another long walk.",
]

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def build() -> PreTrainedTokenizerFast:
    """Trains the tokenizer on CORPUS: ids 0-2 are special, the other 285 are bytes and merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        show_progress=False,
        special_tokens=[AddedToken(token, special=True) for token in (PAD, BOS, EOS)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    assert tokenizer.get_vocab_size() == VOCAB, tokenizer.get_vocab_size()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=128,
    )
    fast.chat_template = CHATML
    return fast


def save(folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json (with the template) into the folder."""
    build().save_pretrained(folder, save_jinja_files=False)
    (folder / "special_tokens_map.json").unlink(missing_ok=True)

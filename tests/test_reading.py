"""Label probabilities and likelihoods from transformers, against the plain computation without cache or batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from promptmetric.errors import BackendError
from promptmetric.questions import LabelRequest, LikelihoodRequest, Message, Request

pytestmark = pytest.mark.engine

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from promptmetric.backends import tries  # noqa: E402
from promptmetric.backends.reading import PrefixReader, _choose, _draws, float32_head  # noqa: E402
from promptmetric.backends.tokens import PromptTokenizer  # noqa: E402
from promptmetric.backends.transformers import TransformersBackend  # noqa: E402

SOURCES = ("The ferry leaves at six. " * 4, "Nobody had seen the key, so they climbed in by the window.")
HYPOTHESES = (
    "Die Fähre fährt um sechs.",
    "Niemand sah den Schlüssel.",
    "Fähre",
    "Sie stiegen durchs Fenster ein. " * 3,
)
NUMBERS = (-10, -1, 0, 1, 8, 10, 85, 100)
LABELS = (*(f"{space}{n}" for n in NUMBERS for space in ("", " ")), "good", " good", "catastrophic")
SHAPES: dict[str, Callable[[int], Any]] = {
    "llama": lambda vocabulary: transformers.LlamaConfig(vocab_size=vocabulary, num_key_value_heads=2, **SMALL),
    "sliding window": lambda vocabulary: transformers.MistralConfig(
        vocab_size=vocabulary, num_key_value_heads=2, sliding_window=24, **SMALL
    ),
    "windows in every other layer": lambda vocabulary: transformers.Gemma2Config(
        vocab_size=vocabulary, num_key_value_heads=2, sliding_window=24, head_dim=8, **SMALL
    ),
    "wide window": lambda vocabulary: transformers.MistralConfig(
        vocab_size=vocabulary, num_key_value_heads=2, sliding_window=224, **SMALL
    ),
    "eager": lambda vocabulary: transformers.LlamaConfig(
        vocab_size=vocabulary, num_key_value_heads=2, attn_implementation="eager", **SMALL
    ),
    "learned positions": lambda vocabulary: transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=32, n_layer=2, n_head=4, n_positions=256
    ),
}
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


@pytest.fixture(scope="module", params=SHAPES)
def backend(request: pytest.FixtureRequest, embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(embedded_folder)
    torch.manual_seed(0)
    config = SHAPES[request.param](len(tokenizer))
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():  # weights as drawn by default make every token almost equally likely
        parameter.data *= 4
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    opened = TransformersBackend(folder, gpus=0, dtype=torch.float32)
    yield opened
    opened.close()


def prompts() -> list[tuple[Message, ...]]:
    return [(Message("user", f"Rate it.\n{s}\n{h}\nScore: "),) for s in SOURCES for h in HYPOTHESES]


def plain(backend: Any, tokens: Sequence[int], last: int = 1) -> Any:
    """Log-probabilities of every token at the last places, by one pass over the whole sequence."""
    with torch.inference_mode():
        logits = backend._model(torch.tensor([list(tokens)]), logits_to_keep=last).logits
        return logits[0].double().log_softmax(-1)


def by_hand(backend: Any, prompt: list[int], labels: Sequence[str]) -> list[float]:
    """Probabilities of labels, each longer one taken from the shorter one that begins it."""
    paths = [backend._tokens.continuation(label) for label in labels]
    prefixes = {path[:end] for path in paths for end in range(1, len(path) + 1)}
    after = {path: plain(backend, [*prompt, *path])[-1] for path in {prefix[:-1] for prefix in prefixes}}

    def probability(path: tuple[int, ...]) -> float:
        return math.exp(sum(float(after[path[:i]][path[i]]) for i in range(len(path))))

    found = []
    for path in paths:
        longer = {other[: len(path) + 1] for other in paths if len(other) > len(path) and other[: len(path)] == path}
        found.append(probability(path) - sum(map(probability, longer)))
    return found


@pytest.mark.parametrize("batch_size", [3, 16])
def test_labels_equal_the_plain_computation(backend: Any, batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "LEAST_SHARE", 1e-30)  # so that every level of the tree is visited
    requests = [LabelRequest(prompt, LABELS) for prompt in prompts()]
    answers = dict(backend.read_labels(requests, batch_size))
    assert len(answers) == 8
    for position in (0, 7):
        expected = by_hand(backend, backend._tokens.encode(requests[position].prompt), LABELS)
        found = [math.exp(value) for value in answers[position].logprobs]
        assert found == pytest.approx(expected, rel=1e-2, abs=1e-200)
        assert answers[position].unread < 1e-9 * sum(expected)


@pytest.mark.parametrize("batch_size", [3, 16])
def test_likelihoods_equal_the_plain_computation(backend: Any, batch_size: int) -> None:
    requests = [LikelihoodRequest((Message("user", source),), hyp) for source in SOURCES for hyp in HYPOTHESES]
    answers = dict(backend.score_texts(requests, batch_size))
    for position, request in enumerate(requests):
        prompt, text = backend._tokens.encode(request.prompt), backend._tokens.continuation(request.text)
        logprobs = plain(backend, [*prompt, *text], len(text) + 1)
        expected = sum(float(logprobs[i, token]) for i, token in enumerate(text))
        assert answers[position].logprob == pytest.approx(expected, abs=1e-3)
        assert (answers[position].tokens, answers[position].prompt_tokens) == (len(text), len(prompt))


@pytest.mark.parametrize("batch_size", [3, 16])
def test_greedy_text_equals_that_of_transformers(backend: Any, batch_size: int) -> None:
    """In float32; a shared beginning, padding and rows that end early change nothing."""
    requests = [Request(prompt, most) for prompt in prompts()[::2] for most in (3, 7)]
    answers = dict(backend.generate(requests, batch_size))
    for position, request in enumerate(requests):
        ids = torch.tensor([backend._tokens.encode(request.prompt)])
        output = backend._model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=request.max_tokens, do_sample=False
        )
        expected = backend._tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
        assert answers[position].text == expected


def test_small_batches_are_written_on_together(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [f"{number}. {source}" * 6 for number, source in enumerate(SOURCES * 2)]
    asked = [(Message("user", f"{source}\n{h}"),) for source in sources for h in HYPOTHESES[:2]]
    groups: list[int] = []
    write = backend._reader.write
    monkeypatch.setattr(backend._reader, "write", lambda begun, *rest: groups.append(len(begun)) or write(begun, *rest))
    together = [answer.text for _, answer in sorted(backend.generate([Request(prompt, 8) for prompt in asked]))]
    apart = [next(iter(backend.generate([Request(prompt, 8)])))[1].text for prompt in asked]
    assert together == apart
    assert groups[0] > 1


def test_what_is_drawn_depends_on_seed_and_prompt_alone(backend: Any) -> None:
    """Drawn text tells more of what the model sees than greedy text, which hangs on the last tokens."""
    requests = [Request(prompt, 6, 1.0, seed) for prompt in prompts() for seed in (1, 2)]
    together = dict(backend.generate(requests, 16))
    for position, request in enumerate(requests):
        tokens = backend._tokens.encode(request.prompt)
        draws, answer = _draws(tokens, request.seed), []
        while len(answer) < request.max_tokens and not set(answer) & set(backend._eos):
            answer.append(int(_choose(plain(backend, [*tokens, *answer]), request.temperature, [draws])))
        assert together[position] == backend._completion(answer, len(tokens), ())
    assert together[0] != together[1]


def test_draws_are_from_all_tokens_by_their_probability() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2] + [0.0] * 97])).expand(4000, -1)
    drawn = _choose(logits, 1.0, [_draws([n], 1) for n in range(4000)])
    assert torch.bincount(drawn, minlength=3).float().div(4000).tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
    flat = _choose(torch.zeros(2000, 1000), 1.0, [_draws([n], 1) for n in range(2000)])
    assert len(set(flat.tolist())) > 700
    assert _choose(logits[:1], 0.0, []).tolist() == [0]


def test_models_that_place_tokens_by_column_are_not_hurried() -> None:
    small = {"vocab_size": 90, "hidden_size": 32, "n_layer": 2, "n_head": 4}
    for config in (
        transformers.BloomConfig(**small),
        transformers.MptConfig(vocab_size=90, d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
    ):
        reader = PrefixReader(transformers.AutoModelForCausalLM.from_config(config))
        assert not reader.can_write(20)
        assert not reader.can_follow(20)


def test_a_head_that_another_library_holds_is_left_alone(embedded_folder: Path) -> None:
    model = TransformersBackend(embedded_folder, gpus=0, dtype=torch.bfloat16)._model
    held = model.lm_head.forward = lambda hidden: hidden
    with float32_head(model):
        assert model.lm_head.forward is held
    assert model.lm_head.forward is held


def test_a_text_for_a_model_without_chat_template_stands_in_a_paragraph_of_its_own(backend: Any) -> None:
    tokenizer = copy.deepcopy(backend._tokenizer)
    tokenizer.chat_template = None
    tokens, start = PromptTokenizer(tokenizer).encode_answered((Message("user", "Translate: tea"),), "Tee")
    assert (tokenizer.decode(tokens[:start]), tokenizer.decode(tokens[start:])) == ("Translate: tea\n\n", "Tee")
    asked = PromptTokenizer(tokenizer).encode((Message("user", "Score: "),))
    assert tokenizer.decode(asked) == "Score: "


def test_an_answer_ends_with_its_stop_text(backend: Any) -> None:
    (whole,) = dict(backend.generate([Request(prompts()[0], 12)])).values()
    stop = whole.text[len(whole.text) // 2 :][:3]
    (cut,) = dict(backend.generate([Request(prompts()[0], 12, stop=(stop,))])).values()
    assert cut.finish == "stop"
    assert cut.text == whole.text[: whole.text.index(stop) + len(stop)]


def test_a_shared_prefix_is_computed_once(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = 0
    forward = type(backend._reader).forward

    def counting(self: Any, rows: Any, prefix: Any, past: int, keep: Any) -> Any:
        nonlocal computed
        computed += len(rows) * max(map(len, rows))
        return forward(self, rows, prefix, past, keep)

    monkeypatch.setattr(type(backend._reader), "forward", counting)
    requests = [LabelRequest((Message("user", f"{SOURCES[0] * 5}\n{h}"),), ("good", "bad")) for h in HYPOTHESES * 4]
    requests = [LabelRequest((*r.prompt, Message("assistant", str(n))), r.labels) for n, r in enumerate(requests)]
    list(backend.read_labels(requests, 16))
    one_by_one = sum(len(backend._tokens.encode(request.prompt)) for request in requests)
    assert computed < 0.5 * one_by_one


def test_what_is_kept_is_freed_again(backend: Any) -> None:
    list(backend.read_labels([LabelRequest(prompt, ("good", "bad")) for prompt in prompts()]))
    assert backend._reader._kept is not None
    backend._reader.forget()
    assert backend._reader._kept is None


def test_a_continuation_is_computed_once(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = tuple(map(str, range(101)))
    paths = [backend._tokens.continuation(label) for label in labels]
    longest = max(map(len, paths))
    inner = [len({path[:depth] for path in paths if len(path) > depth}) for depth in range(longest)]
    plain_follow, widths = backend._reader.follow, []

    def counting(cache: Any, lengths: Any, filled: int, tokens: Any) -> Any:
        widths.append(max(map(len, tokens)))
        return plain_follow(cache, lengths, filled, tokens)

    monkeypatch.setattr(backend._reader, "follow", counting)
    monkeypatch.setattr(tries, "LEAST_SHARE", 1e-30)
    list(backend.read_labels([LabelRequest(prompt, labels) for prompt in prompts()[:3]]))
    assert widths == inner[1:]


@pytest.mark.parametrize("backend", ["windows in every other layer"], indirect=True)
def test_masks_that_a_model_does_not_take_are_not_given(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(Deaf):
        def __call__(self, attention_mask: Any = None, **inputs: Any) -> Any:
            assert not isinstance(attention_mask, dict)
            return self._model(attention_mask=attention_mask, **inputs)

    requests = [LabelRequest(prompt, LABELS) for prompt in [*prompts(), (Message("user", "Rate it."),)]]
    expected = [answer.logprobs for _, answer in sorted(backend.read_labels(requests))]
    written = [Request(prompt, 5) for prompt in prompts()]
    texts = [answer.text for _, answer in sorted(backend.generate(written))]
    reader = PrefixReader(Picky(backend._model))
    monkeypatch.setattr(backend, "_reader", reader)
    assert [reader.can_write(longest) for longest in (24, 25)] == [True, False]
    assert backend._model.config.sliding_window == 24
    for (_, answer), logprobs in zip(sorted(backend.read_labels(requests)), expected, strict=True):
        assert answer.logprobs == pytest.approx(logprobs, abs=1e-2)
    assert [answer.text for _, answer in sorted(backend.generate(written))] == texts


@pytest.mark.parametrize(
    ("config", "beyond"),
    [
        (lambda: transformers.MistralConfig(vocab_size=90, num_key_value_heads=2, sliding_window=24, **SMALL), True),
        (lambda: transformers.LlamaConfig(vocab_size=90, sliding_window=24, **SMALL), False),
    ],
)
def test_a_window_is_masked_only_where_the_layers_have_one(config: Callable[[], Any], beyond: bool) -> None:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config())
    reader = PrefixReader(model)
    assert [reader.can_write(longest) for longest in (24, 25)] == [True, beyond]
    assert [reader.can_follow(longest) for longest in (24, 25)] == [True, beyond]
    assert model.config.sliding_window == 24


def test_continuations_that_cannot_stand_side_by_side_are_read_all_the_same(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "LEAST_SHARE", 1e-30)  # so that every level of the tree is visited
    requests = [LabelRequest(prompt, ("1", "100", "1000", "2000")) for prompt in prompts()[:2]]
    expected = [answer.logprobs for _, answer in sorted(backend.read_labels(requests))]
    allowed = iter([False, True, True, True])
    monkeypatch.setattr(backend._reader, "can_follow", lambda longest: next(allowed))
    found = [answer.logprobs for _, answer in sorted(backend.read_labels(requests))]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-3)


class Deaf:
    """A model that computes all logits whatever is asked for, as some do."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, logits_to_keep: Any = 0, **inputs: Any) -> Any:
        return self._model(**inputs)


def test_models_that_compute_all_logits_are_read_alike(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [LabelRequest(prompt, LABELS) for prompt in prompts()]
    texts = [LikelihoodRequest(prompt, text) for prompt in prompts() for text in ("one", "quite another text")]
    expected = [answer.logprobs for _, answer in sorted(backend.read_labels(labels))]
    likely = [answer.logprob for _, answer in sorted(backend.score_texts(texts))]
    monkeypatch.setattr(backend._reader, "_model", Deaf(backend._model))
    for (_, answer), logprobs in zip(sorted(backend.read_labels(labels)), expected, strict=True):
        assert answer.logprobs == pytest.approx(logprobs, abs=1e-4)
    assert [answer.logprob for _, answer in sorted(backend.score_texts(texts))] == pytest.approx(likely, abs=1e-4)


def test_no_logits_are_computed_before_a_text(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forward, kept = backend._reader.forward, []

    def watching(rows: Any, prefix: Any, past: int, keep: Any) -> Any:
        kept.append(keep)
        return forward(rows, prefix, past, keep)

    monkeypatch.setattr(backend._reader, "forward", watching)
    request = LikelihoodRequest(prompts()[0], "a text")
    list(backend.score_texts([request]))
    assert kept[-1] == len(backend._tokens.continuation(request.text)) + 1


def test_over_long_prompts_are_reported_with_their_overflow(backend: Any) -> None:
    long, short = (Message("user", "word " * 400),), (Message("user", "word"),)
    labels = dict(backend.read_labels([LabelRequest(long, LABELS), LabelRequest(short, LABELS)]))
    assert labels[0].overflow > 100
    assert set(labels[0].logprobs) == {-math.inf}
    assert labels[1].overflow == 0
    texts = dict(backend.score_texts([LikelihoodRequest(short, "word " * 400), LikelihoodRequest(short, "word")]))
    assert (texts[0].overflow > 100, texts[1].overflow) == (True, 0)


def test_nothing_precedes_an_empty_prompt(backend: Any) -> None:
    if backend._tokens.encode(""):
        pytest.skip("this tokenizer begins every prompt with a token")
    with pytest.raises(BackendError, match="without a prompt"):
        list(backend.score_texts([LikelihoodRequest("", "text")]))


def test_bfloat16_reads_as_float32_does(embedded_folder: Path) -> None:
    """The output layer computes in float32, so that only the rounding of the layers below remains."""
    requests = [LabelRequest(prompt, ("good", "bad", "Good", "Bad", "1", "5")) for prompt in prompts()[:4]]
    exact = TransformersBackend(embedded_folder, gpus=0, dtype=torch.float32)
    rounded = TransformersBackend(embedded_folder, gpus=0, dtype=torch.bfloat16)
    pairs = zip(dict(exact.read_labels(requests)).items(), dict(rounded.read_labels(requests)).items(), strict=True)
    gaps = [abs(a - b) for (_, one), (_, other) in pairs for a, b in zip(one.logprobs, other.logprobs, strict=True)]
    assert sum(gaps) / len(gaps) < 0.1
    assert (
        len({round(8 * value, 3) % 1 for _, answer in rounded.read_labels(requests) for value in answer.logprobs}) > 4
    )
    assert rounded._model.lm_head.weight.dtype == torch.bfloat16

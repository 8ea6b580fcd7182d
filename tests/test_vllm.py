"""The vLLM backend: against plain transformers on the embedded model, and its logic against a double of the engine."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from .conftest import need_vllm

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from promptmetric.backends.tokens import PromptTokenizer  # noqa: E402
from promptmetric.errors import BackendError, MissingExtraError, ModelUnavailableError  # noqa: E402
from promptmetric.questions import Completion, LabelLogprobs, LabelRequest, LikelihoodRequest, Message, Request  # noqa: E402

MODULE = "promptmetric.backends.vllm"
WINDOW = 512
TOLERANCE = 1e-3
"""Of log-probabilities, both sides in float32: the order of additions is all that differs."""


def ask(content: str, max_tokens: int = 8, **decoding: Any) -> Request:
    return Request((Message("user", content),), max_tokens, **decoding)


def label_request(content: str, labels: Sequence[str]) -> LabelRequest:
    return LabelRequest((Message("user", content),), tuple(labels))


SEGMENTS = [
    ("Der Zug kommt heute eine halbe Stunde später.", "The train is half an hour late today."),
    ("Der Zug kommt heute eine halbe Stunde später.", "The bus left yesterday."),
    ("Sie hat das Buch in einer Nacht gelesen.", "She read the book in one night."),
    ("Das Wetter bleibt bis Sonntag trocken.", "The weather remains dry until Sunday."),
    ("Wir müssen noch Brot kaufen.", "We need bread still to buy."),
]
TASKS = [
    "Rate the translation from 1 to 5.\nSource: {}\nTranslation: {}\nRating:",
    "Source: {}\nTranslation: {}\nIs the translation good or bad? Answer with one word.",
    "How good is this translation on a scale from 0 to 100? {} => {}",
    "German: {} English: {} Name the errors of the translation.",
]
CONTENTS = [task.format(*segment) for task in TASKS for segment in SEGMENTS]


# The engine itself ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def backend(embedded_folder: Path) -> Iterator[Any]:
    need_vllm()
    from promptmetric.backends.vllm import VllmBackend

    opened = VllmBackend(embedded_folder, dtype="float32", max_model_len=WINDOW)
    yield opened
    opened.close()
    opened.close()
    with pytest.raises(BackendError, match="closed"):
        list(opened.generate([ask("Hello.")]))


@pytest.fixture(scope="module")
def reference(embedded_folder: Path) -> Reference:
    return Reference(embedded_folder)


class Reference:
    """Log-probabilities and greedy texts by plain transformers in float32, one sequence at a time."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokens = PromptTokenizer(self.tokenizer)

    def logprobs(self, tokens: Sequence[int]) -> Any:
        with torch.inference_mode():
            return self.model(torch.tensor([list(tokens)])).logits[0].double().log_softmax(-1)

    def text(self, request: Request) -> str:
        ids = torch.tensor([self.tokens.encode(request.prompt)])
        with torch.inference_mode():
            output = self.model.generate(ids, max_new_tokens=request.max_tokens, do_sample=False)
        return str(self.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True))

    def likelihood(self, request: LikelihoodRequest) -> float:
        prompt, text = self.tokens.encode(request.prompt), self.tokens.continuation(request.text)
        rows = self.logprobs([*prompt, *text])
        return math.fsum(float(rows[len(prompt) - 1 + i, token]) for i, token in enumerate(text))


@pytest.mark.engine
def test_labels_equal_plain_transformers(backend: Any, reference: Reference) -> None:
    labels = ("1", "2", "3", "4", "5")
    requests = [label_request(content, labels) for content in CONTENTS[:8]]
    found = dict(backend.read_labels(requests))
    for position, request in enumerate(requests):
        prompt = reference.tokens.encode(request.prompt)
        row = reference.logprobs(prompt)[-1]
        expected = [float(row[token]) for (token,) in map(reference.tokens.continuation, labels)]
        assert found[position].logprobs == pytest.approx(expected, abs=TOLERANCE)
        assert found[position].prompt_tokens == len(prompt)


@pytest.mark.engine
def test_labels_of_several_tokens_equal_brute_force(backend: Any, reference: Reference) -> None:
    """One pass over each label's tokens; what goes on as a longer label is taken off the shorter one."""
    labels = (*map(str, range(21)), "100")
    request = label_request(CONTENTS[10], labels)
    prompt = reference.tokens.encode(request.prompt)
    whole = {}
    for label in labels:
        tokens = reference.tokens.continuation(label)
        rows = reference.logprobs([*prompt, *tokens])
        whole[label] = math.exp(math.fsum(float(rows[len(prompt) - 1 + i, token]) for i, token in enumerate(tokens)))
    ending = {
        label: whole[label] - math.fsum(whole[f"{label}{d}"] for d in range(10) if f"{label}{d}" in whole)
        for label in labels
    }
    ((_, found),) = backend.read_labels([request])
    read = {label: math.exp(value) for label, value in zip(labels, found.logprobs, strict=True)}
    missed = {label for label in labels if read[label] == 0}
    assert math.fsum(ending[label] for label in missed) == pytest.approx(found.unread, abs=1e-6)
    assert [read[label] for label in labels if label not in missed] == pytest.approx(
        [ending[label] for label in labels if label not in missed], rel=5 * TOLERANCE, abs=1e-7
    )


@pytest.mark.engine
def test_many_labels_of_one_token(backend: Any, reference: Reference) -> None:
    """More ids than the engine tells in one answer."""
    ids = range(1000, 1300)
    labels = [reference.tokenizer.decode([token]) for token in ids]
    labels = [label for label in labels if len(reference.tokens.continuation(label)) == 1]
    assert len(labels) > 2 * 128
    request = label_request(CONTENTS[0], labels)
    row = reference.logprobs(reference.tokens.encode(request.prompt))[-1]
    ((_, found),) = backend.read_labels([request])
    expected = [float(row[reference.tokens.continuation(label)[0]]) for label in labels]
    assert found.logprobs == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.engine
def test_likelihood_equals_plain_transformers(backend: Any, reference: Reference) -> None:
    requests = [LikelihoodRequest((Message("user", f"Translate: {src}"),), hyp) for src, hyp in SEGMENTS]
    requests.append(LikelihoodRequest("Once upon", " a time"))
    for _ in range(2):  # the second time the engine knows the prompts, and must not leave their tokens out
        for position, found in backend.score_texts(requests):
            request = requests[position]
            assert found.logprob == pytest.approx(reference.likelihood(request), abs=10 * TOLERANCE)
            assert found.tokens == len(reference.tokens.continuation(request.text))
            assert found.prompt_tokens == len(reference.tokens.encode(request.prompt))


@pytest.mark.engine
def test_greedy_text_equals_plain_transformers(backend: Any, reference: Reference) -> None:
    requests = [ask(content) for content in CONTENTS[::2]]
    found = dict(backend.generate(requests))
    same = sum(found[position].text == reference.text(request) for position, request in enumerate(requests))
    assert same >= 0.95 * len(requests)


@pytest.mark.engine
def test_stop_texts_stay_in_the_answer(backend: Any) -> None:
    ((_, free),) = backend.generate([ask("2 + 2 =", 12)])
    stop = free.text[4:7]
    ((_, stopped),) = backend.generate([ask("2 + 2 =", 12, stop=("never said", stop))])
    assert stopped.finish == "stop"
    assert stopped.text == free.text[: free.text.index(stop) + len(stop)]


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore:max_rollback_tokens:DeprecationWarning")  # of vLLM about xgrammar
def test_structured_answers_are_one_of_the_choices(backend: Any) -> None:
    choices = ("bad", "neutral", "good", "-100", "0.5")
    held = [ask(content, choices=choices) for content in CONTENTS[:6]]
    drawn = [ask(CONTENTS[0], choices=choices, temperature=1.0, seed=seed) for seed in range(6)]
    (free,) = dict(backend.generate([ask(CONTENTS[0])])).values()
    assert free.text not in choices
    answers = dict(backend.generate([*held, ask(CONTENTS[0]), *drawn]))
    assert answers.pop(len(held)) == free
    assert {answer.text for answer in answers.values()} <= set(choices)
    assert {answer.finish for answer in answers.values()} == {"stop"}


@pytest.mark.engine
def test_how_an_answer_ends(backend: Any) -> None:
    short, long = dict(backend.generate([ask("Say hello.", 1), ask("Repeat: Hello 0.", 60)])).values()
    assert short.finish == "length"
    assert long.finish in ("stop", "length")


@pytest.mark.engine
def test_sampling_is_seeded(backend: Any) -> None:
    requests = [ask("Hello.", 20, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (completion.text for _, completion in sorted(backend.generate(requests), key=lambda x: x[0]))
    assert first == again != other


@pytest.mark.engine
def test_over_long_prompts_are_reported_not_cut(backend: Any) -> None:
    long = "word " * (WINDOW + 100)
    completion = dict(backend.generate([ask(long), ask("short")]))[0]
    assert (completion.text, completion.finish) == ("", "too_long")
    assert completion.overflow == completion.prompt_tokens + 8 - WINDOW
    labels = dict(backend.read_labels([label_request(long, "12"), label_request("short", "12")]))
    assert labels[0].overflow > 0
    assert labels[0].logprobs == (-math.inf, -math.inf)
    assert labels[1].overflow == 0
    ((_, likelihood),) = backend.score_texts([LikelihoodRequest("a", long)])
    assert (likelihood.logprob, likelihood.overflow > 0) == (-math.inf, True)


@pytest.mark.engine
def test_an_abandoned_run_leaves_nothing_behind(backend: Any) -> None:
    ((_, alone),) = backend.generate([ask("Hello.")])
    abandoned = backend.generate([ask(f"Hello {number}.", 30) for number in range(8)])
    next(abandoned)
    abandoned.close()
    assert list(backend.generate([ask("Hello.")])) == [(0, alone)]


@pytest.mark.engine
def test_what_prompts_share_is_computed_once(backend: Any) -> None:
    shared = "A ferry leaves at six and another one at seven. " * 8
    first, second = (backend._tokens.encode(shared + end) for end in ("Which is later?", "Who takes which?"))
    common = next(i for i, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    list(backend.generate([ask("Hello.")]))
    sampling = sys.modules[MODULE]._sampling(max_tokens=1, temperature=0.0)
    cached = [
        output.num_cached_tokens for ids in (first, second) for _, output in backend._run({0: (ids, sampling)}, 16)
    ]
    assert cached[0] < 32
    assert common - 32 < cached[1] <= common


@pytest.mark.engine
def test_fingerprint_tells_version_device_and_precision(backend: Any, embedded_folder: Path) -> None:
    import vllm

    found = backend.fingerprint()
    assert found.model == embedded_folder.name
    assert found.revision.startswith("sha256:")
    assert found.engine.split() == [f"vllm-{vllm.__version__}", found.engine.split()[1], "float32"]


@pytest.mark.engine
def test_what_cannot_be_loaded_is_explained(backend: Any, tmp_path: Path) -> None:
    from promptmetric.backends.vllm import VllmBackend

    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelUnavailableError, match="vLLM cannot load it") as caught:
        VllmBackend(tmp_path)
    assert "safetensors" in str(caught.value)
    with pytest.raises(ModelUnavailableError, match="nobody/nothing"):
        VllmBackend("nobody/nothing", offline=True)


# A double of the engine -----------------------------------------------------------------------------------------------


class LetterTokenizer:
    """One token a character."""

    unk_token_id = None
    chat_template = None
    added_tokens_decoder: dict[int, Any] = {}
    all_special_tokens: list[str] = []

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}


class FakeEngine:
    """Answers three requests a step, the newest first. Every token has log-probability -1."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(
            max_model_len=100,
            dtype="torch.float16",
            quantization="awq",
            hf_config=SimpleNamespace(_commit_hash="c0ffee"),
        )
        self.engine_core = SimpleNamespace(shutdown=lambda: self.events.append("shutdown"))
        self.events: list[str] = []
        self.asked: list[tuple[str, list[int], Any]] = []
        self.running: dict[str, Any] = {}
        self.most_running = 0
        self.failure: Exception | None = None
        self.finish_reason = "length"

    def add_request(self, number: str, prompt: dict[str, list[int]], sampling: Any) -> None:
        self.asked.append((number, prompt["prompt_token_ids"], sampling))
        self.running[number] = (prompt["prompt_token_ids"], sampling)
        self.most_running = max(self.most_running, len(self.running))

    def abort_request(self, numbers: list[str]) -> None:
        self.events.append(f"abort {len(numbers)}")
        for number in numbers:
            del self.running[number]

    def step(self) -> list[Any]:
        if self.failure:
            raise self.failure
        finished = []
        for number in list(self.running)[:-4:-1]:
            tokens, sampling = self.running.pop(number)
            wanted = getattr(sampling, "logprob_token_ids", [0])
            answer = SimpleNamespace(
                text="yes",
                finish_reason=self.finish_reason,
                logprobs=[{token: SimpleNamespace(logprob=-1.0) for token in wanted}],
            )
            prompt_logprobs = [None, *({token: SimpleNamespace(logprob=-1.0)} for token in tokens[1:])]
            finished.append(
                SimpleNamespace(request_id=number, finished=True, outputs=[answer], prompt_logprobs=prompt_logprobs)
            )
        return [*finished, SimpleNamespace(request_id="0", finished=False)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The backend's module with an engine that computes nothing."""
    engine = FakeEngine()
    settings: dict[str, Any] = {}

    def load(source: str, **given: Any) -> Any:
        settings.update(given, model=source)
        return SimpleNamespace(llm_engine=engine, get_tokenizer=LetterTokenizer)

    parts = {
        "vllm": {"LLM": load, "SamplingParams": SimpleNamespace, "__version__": "9.9"},
        "vllm.distributed": {"cleanup_dist_env_and_memory": lambda: engine.events.append("cleanup")},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: False, device_type="cuda")},
        "vllm.sampling_params": {
            "RequestOutputKind": SimpleNamespace(FINAL_ONLY="final"),
            "StructuredOutputsParams": SimpleNamespace,
        },
    }
    for name, content in parts.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    kept = sys.modules.pop(MODULE, None)
    module = importlib.import_module(MODULE)
    yield SimpleNamespace(module=module, engine=engine, settings=settings, open=module.VllmBackend)
    sys.modules.pop(MODULE)
    if kept is not None:
        sys.modules[MODULE] = kept


def test_arguments_reach_the_engine(fake: Any) -> None:
    backend = fake.open("some/model", revision="main", tensor_parallel_size=2, hf_overrides={"rope": 1}, seed=7)
    assert fake.settings["model"] == "some/model"
    assert fake.settings["revision"] == fake.settings["tokenizer_revision"] == "main"
    assert fake.settings["hf_overrides"] == {"head_dtype": "float32", "rope": 1}
    assert (fake.settings["tensor_parallel_size"], fake.settings["seed"]) == (2, 7)
    assert fake.settings["enable_prefix_caching"] is True
    assert "enforce_eager" not in fake.settings
    found = backend.fingerprint()
    assert (found.model, found.revision) == ("some/model", "c0ffee")
    assert found.engine == "vllm-9.9 cuda float16 awq hf_overrides=3f409810 seed=7"


def test_a_quantised_head_stays_as_it_is_when_asked(fake: Any) -> None:
    fake.open("some/model", hf_overrides={"head_dtype": "model"})
    assert fake.settings["hf_overrides"] == {"head_dtype": "model"}


def test_every_request_is_answered_and_few_wait(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake.module, "_WAITING", 5)
    backend = fake.open("some/model")
    found = dict(backend.generate([ask("x" * (1 + i % 7)) for i in range(40)], batch_size=1))
    assert sorted(found) == list(range(40))
    assert all(found[i] == Completion("yes", "length", 3 + i % 7) for i in found)
    assert fake.engine.most_running == 5


def test_choices_reach_the_engine(fake: Any) -> None:
    backend = fake.open("some/model")
    list(backend.generate([ask("x", choices=("yes", "no")), ask("y")]))
    held, free = (sampling.structured_outputs for _, _, sampling in fake.engine.asked)
    assert held.choice == ["yes", "no"]
    assert free is None


def test_at_most_128_ids_a_request(fake: Any) -> None:
    backend = fake.open("some/model")
    letters = [chr(1000 + i) for i in range(300)]
    ((_, found),) = backend.read_labels([label_request("hello", letters)])
    assert [len(sampling.logprob_token_ids) for _, _, sampling in fake.engine.asked] == [128, 128, 44]
    assert {tuple(tokens) for _, tokens, _ in fake.engine.asked} == {tuple(map(ord, "hello\n\n"))}
    assert found == LabelLogprobs((-1.0,) * 300, 0.0, 7)


def test_labels_are_read_level_by_level_for_a_chunk(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two levels of a chunk of three prompts: the first tokens of all, then what follows them."""
    monkeypatch.setattr(fake.module, "_CHUNK_ON_GPU", 3)
    backend = fake.open("some/model")
    found = dict(backend.read_labels([label_request(name, ("ab", "ac", "d")) for name in "PQRST"], batch_size=1))
    asked = ["".join(map(chr, tokens)).replace("\n\n", "") for _, tokens, _ in fake.engine.asked]
    assert asked == ["P", "Q", "R", "Pa", "Qa", "Ra", "S", "T", "Sa", "Ta"]
    assert all(answer == LabelLogprobs((-2.0, -2.0, -1.0), 0.0, 3) for answer in found.values())
    assert sorted(found) == list(range(5))


def test_only_the_text_itself_is_scored(fake: Any) -> None:
    backend = fake.open("some/model")
    requests = [LikelihoodRequest("prompt", "text"), LikelihoodRequest("p", "x" * 99), LikelihoodRequest("p", "x" * 98)]
    found = dict(backend.score_texts(requests))
    assert (found[0].logprob, found[0].tokens, found[0].prompt_tokens) == (-4.0, 4, 6)
    assert (found[1].logprob, found[1].overflow) == (-math.inf, 1)  # one place is for the token that is generated
    assert found[2].logprob == -98.0
    with pytest.raises(BackendError, match="without a prompt"):
        list(backend.score_texts([LikelihoodRequest("", "text")]))


def test_interruption_withdraws_what_is_left(fake: Any) -> None:
    backend = fake.open("some/model")
    run = backend.generate([ask("x")] * 10)
    next(run)
    run.close()
    assert not fake.engine.running
    assert len(dict(backend.generate([ask("x")] * 10))) == 10


def test_failures_of_the_engine_are_ours(fake: Any) -> None:
    backend = fake.open("some/model")
    fake.engine.failure = RuntimeError("EngineCore died\nsee above")
    with pytest.raises(BackendError, match="vLLM failed: EngineCore died see above"):
        list(backend.generate([ask("x")]))
    assert fake.engine.events == ["abort 1"]


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_what_the_engine_gives_up_is_no_answer(fake: Any, reason: str) -> None:
    backend = fake.open("some/model")
    fake.engine.finish_reason = reason
    with pytest.raises(BackendError, match=f"gave a question up \\({reason}\\)"):
        list(backend.generate([ask("x"), ask("y")]))
    assert fake.engine.events == ["abort 1"]


def test_closing_twice_ends_the_engine_once(fake: Any) -> None:
    backend = fake.open("some/model")
    backend.close()
    backend.close()
    assert fake.engine.events == ["shutdown", "cleanup"]


@pytest.mark.parametrize(("gpus", "device", "message"), [(0, "cuda", "on GPUs only"), (1, "", "finds none")])
def test_no_device(fake: Any, monkeypatch: pytest.MonkeyPatch, gpus: int, device: str, message: str) -> None:
    monkeypatch.setattr(fake.module, "current_platform", SimpleNamespace(is_cpu=lambda: False, device_type=device))
    with pytest.raises(BackendError, match=message):
        fake.open("some/model", gpus=gpus)


def test_without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtraError, match=r"promptmetric\[vllm\]"):
        importlib.import_module(MODULE)

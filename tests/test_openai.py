"""The HTTP backend against servers of the test's own, well-behaved and faulty, and against a real vLLM server."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptmetric import Scorer
from promptmetric.backends.openai import OpenAIBackend, http, tokenids
from promptmetric.backends.openai.toplists import read_top
from promptmetric.errors import BackendError, InputError
from promptmetric.questions import Completion, LabelRequest, LikelihoodRequest, Message, Request

from . import servers
from .conftest import need_vllm
from .servers import Connect, Reply, Serve, Server, ask, chat, first_then, says, turns

serve, connect, quick_and_without_keys = servers.serve, servers.connect, servers.quick_and_without_keys


# Asking


def test_every_question_is_asked_once_and_answered_in_its_place(serve: Serve, connect: Connect) -> None:
    server = serve()
    answers = ask(connect(server, concurrency=8), *(turns(f"q{i}") for i in range(100)))
    assert [answer.text for answer in answers] == [f"Q{i}" for i in range(100)]
    assert sorted(body["messages"][0]["content"] for body in server.questions()) == sorted(f"q{i}" for i in range(100))
    assert answers[0] == Completion("Q0", "stop", 7)


def test_no_more_questions_at_once_than_allowed(serve: Serve, connect: Connect) -> None:
    server = serve()
    usual = server.routes["/v1/chat/completions"]

    def slow(body: Any) -> Reply:
        time.sleep(0.01)
        return usual(body)

    server.routes["/v1/chat/completions"] = slow
    ask(connect(server, concurrency=3), *(turns(f"q{i}") for i in range(30)))
    assert server.most_at_once == 3


def test_questions_of_a_long_list_are_handed_out_as_answers_are_taken(serve: Serve, connect: Connect) -> None:
    server = serve()
    answers = connect(server, concurrency=2).generate([Request(turns(f"q{i}"), 5) for i in range(1000)])
    for _ in range(3):
        next(answers)
    time.sleep(0.1)
    answers.close()
    asked = len(server.questions())
    assert asked <= 3 + 2 * 2
    time.sleep(0.1)
    assert len(server.questions()) == asked


def test_what_is_sent(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.routes["/v1/completions"] = lambda body: (200, {"choices": [{"text": "ok", "finish_reason": "length"}]})
    backend = connect(server, concurrency=1)
    assert ask(backend, "plain", max_tokens=9) == [Completion("ok", "length")]
    ask(backend, turns("hot"), temperature=0.7, seed=3)
    greedy, hot = server.questions()
    assert greedy == {"model": "m", "prompt": "plain", "max_tokens": 9, "temperature": 0.0}
    assert hot == {
        "model": "m",
        "messages": [{"role": "user", "content": "hot"}],
        "max_tokens": 5,
        "temperature": 0.7,
        "seed": 3,
    }


def test_a_begun_answer_is_one_to_go_on_with(serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    prompt = (Message("user", "rate"), Message("assistant", "Score:"))
    server = serve()
    ask(connect(server), prompt)
    (body,) = server.questions()
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert "may not go on" in caplog.text
    server.routes["/v1/chat/completions"] = lambda body: (400, {"error": {"message": "unknown: add_generation_prompt"}})
    with pytest.raises(BackendError, match="400 Bad Request: unknown: add_generation_prompt"):
        ask(connect(server), prompt)


def test_a_hypothesis_cannot_end_its_own_turn(serve: Serve, connect: Connect) -> None:
    server = serve()
    ask(connect(server), turns("a <|im_end|> b </s> 1 < 2 <b> [x]"))
    (body,) = server.questions()
    assert body["messages"][0]["content"] == "a <\u200b|im_end|> b <\u200b/s> 1 < 2 <b> [x]"


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop"])
def test_stop_texts_stay_in_the_answer(serve: Serve, connect: Connect, field: str) -> None:
    server = serve("vllm" if field == "stop_reason" else "sglang")
    server.routes["/v1/chat/completions"] = first_then(
        [(200, chat("so: ", **{field: "Score:"})), (200, chat("I do not know", **{field: 2}))], says("never")
    )
    backend = connect(server, concurrency=1)
    assert ask(backend, turns("q"), turns("r"), stop=("Score:",)) == [
        Completion("so: Score:", "stop", 7),
        Completion("I do not know", "stop", 7),
    ]
    assert server.questions()[0]["stop"] == ["Score:"]


def test_servers_that_do_not_name_the_stop_text_get_none(serve: Serve, connect: Connect) -> None:
    server = serve("someone")
    server.routes["/v1/chat/completions"] = lambda body: (200, chat("a\nScore: 3\n", finish_reason="length"))
    assert ask(connect(server), turns("q"), stop=("Score:", "\n")) == [Completion("a\n", "stop", 7)]
    assert ask(connect(server), turns("q"), stop=("Rating",)) == [Completion("a\nScore: 3\n", "length", 7)]
    assert all("stop" not in body for body in server.questions())


# Windows


@pytest.mark.parametrize(
    ("error", "length", "overflow"),
    [
        (
            {"message": "This model's maximum context length is 4097 tokens. However, you requested 5019 tokens "
             "(4019 in the messages, 1000 in the completion).", "code": "context_length_exceeded"},
            4019,
            4019 + 50 - 4097,
        ),
        ({"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."}, 5000, 954),
        ({"message": "too big", "type": "exceed_context_size_error", "n_prompt_tokens": 300, "n_ctx": 256}, 300, 94),
        # Nothing is told beside the window (100, as the server's list of models says): a third of 600 letters.
        ({"message": "Reduce the prompt: the context window is exceeded"}, 200, 150),
    ],
)  # fmt: skip
def test_too_long_prompts(serve: Serve, connect: Connect, error: Any, length: int, overflow: int) -> None:
    server = serve()
    server.routes["/v1/chat/completions"] = lambda body: (400, {"error": error})
    (answer,) = ask(connect(server), turns("x" * 600), max_tokens=50)
    assert answer == Completion("", "too_long", length, overflow if overflow > 0 else math.ceil(length / 4))
    assert len(server.questions()) == 1


def test_an_answer_that_had_to_be_shortened_counts_as_too_long(serve: Serve, connect: Connect) -> None:
    server = serve()  # with a window of 100, where the prompt has 7 tokens
    assert ask(connect(server), turns("q"), max_tokens=93)[0].finish == "stop"
    assert ask(connect(server), turns("q"), max_tokens=94) == [Completion("", "too_long", 7, 1)]


# Runs that end early


def test_answers_under_way_when_one_fails_are_kept(serve: Serve, connect: Connect) -> None:
    server = serve()
    refused = threading.Event()

    def route(body: Any) -> Reply:
        if body["messages"][0]["content"] == "bad":
            refused.set()
            return (400, {"error": "no"})
        refused.wait(5)
        time.sleep(0.1)
        return (200, chat("fine"))

    server.routes["/v1/chat/completions"] = route
    requests = [Request(turns(text), 5) for text in ("a", "bad", "b", *map(str, range(50)))]
    answers: list[int] = []
    with pytest.raises(BackendError, match="400 Bad Request: no"):
        answers.extend(position for position, _ in connect(server, concurrency=3).generate(requests))
    assert sorted(answers)[:2] == [0, 2]
    assert len(server.questions()) == len(answers) + 1 <= 5


def test_closing_ends_pauses(serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE", 60.0)
    server = serve()
    server.routes["/v1/chat/completions"] = first_then([(200, chat("one"))], lambda body: (500, {}))
    answers = connect(server, concurrency=1).generate([Request(turns(f"q{i}"), 5) for i in range(9)])
    next(answers)
    time.sleep(0.1)
    answers.close()
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("promptmetric")]:
        thread.join(2)
        assert not thread.is_alive()


def test_a_closed_backend_says_so(serve: Serve) -> None:
    backend = OpenAIBackend(serve().url)
    backend.close()
    backend.close()
    with pytest.raises(BackendError, match="closed"):
        ask(backend, turns("q"))


# Models


def test_the_only_model_is_taken_and_several_are_listed(serve: Serve, connect: Connect) -> None:
    assert connect(serve(models=["only"])).fingerprint().model == "only"
    with pytest.raises(InputError, match="2 models: one, two"):
        connect(serve(models=["one", "two"]))
    assert connect(serve(models=["one", "two"]), model="two").fingerprint().model == "two"
    server = serve(models=["one", "org/two"])
    server.url += "/v1#org/two"
    backend = connect(server)
    assert backend.fingerprint().model == "org/two"
    assert "#" not in backend.fingerprint().engine
    ask(backend, turns("q"))
    assert server.questions()[0]["model"] == "org/two"


def test_servers_without_a_list_of_models(serve: Serve, connect: Connect) -> None:
    server = serve()
    del server.routes["/v1/models"]
    assert ask(connect(server, model="m"), turns("q"))[0].text == "Q"
    with pytest.raises(BackendError, match="404"):
        connect(server)


def test_the_embedded_model_on_a_server_is_asked_for_text(serve: Serve) -> None:
    server = serve(models=("smollm2-135m",))
    with Scorer(f"{server.url}/v1", langs="en-de") as scorer:
        assert (scorer.prompt.id, scorer.decode) == ("demo-translation", "text")


def test_fingerprint(serve: Serve, connect: Connect) -> None:
    server = serve()
    print_ = connect(server).fingerprint()
    assert (print_.model, print_.revision, print_.engine) == ("m", "unknown", f"openai {server.url}/v1")
    vllm = fake_vllm(serve)
    assert connect(vllm).fingerprint().engine == f"openai {vllm.url}/v1 vllm-9.9"
    server.url += "/v1/"  # the same server, told otherwise
    assert connect(server).fingerprint() == print_


# Probabilities


NEXT = {"1": {"0": 0.5, "5": 0.1}, "0": {"0": 0.25}, "": {"1": 0.6, "5": 0.2, "x": 0.1, "y": 0.1}}
"""A little model of letters: which follows which, and which begins an answer."""


def fake_vllm(serve: Serve, *, names_ids: bool = True) -> Server:
    """vLLM's interface, as far as it is used, over a model whose tokens are letters."""
    server = serve("vllm")

    def probability(before: str, letter: str) -> float:
        return NEXT.get(before if before in NEXT else "", {}).get(letter, 0.0)

    def logprob(before: str, letter: str) -> float:
        value = probability(before, letter)
        return math.log(value) if value else -9999.0

    def tokenize(body: Any) -> Reply:
        text = body["prompt"] if "prompt" in body else turned(body["messages"])
        return 200, {"tokens": [ord(letter) for letter in text], "count": len(text), "max_model_len": 100}

    def turned(messages: Any) -> str:
        begun = messages[-1]["content"] if messages[-1]["role"] == "assistant" else ""
        return "".join(turn["content"] for turn in messages).removesuffix(begun) + ">" + begun

    def complete(body: Any) -> Reply:
        prompt = "".join(map(chr, body["prompt"]))
        choice: dict[str, Any] = {"text": "1", "finish_reason": "length", "prompt_logprobs": None}
        if "prompt_logprobs" in body:
            rows = [
                {str(ord(letter)): {"logprob": logprob(before, letter), "rank": 1, "decoded_token": letter}}
                for before, letter in pairwise(prompt)
            ]
            choice["prompt_logprobs"] = [None, *rows]
        else:
            ids = [ord("1"), *(body["logprob_token_ids"] if names_ids else [])]
            assert len(ids) <= 1 + tokenids.MOST_IDS
            top = {f"token_id:{token}": logprob(prompt[-1], chr(token)) for token in ids}
            choice["logprobs"] = {"tokens": ["1"], "top_logprobs": [top]}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": len(prompt)}}

    server.routes |= {
        "/version": lambda body: (200, {"version": "9.9"}),
        "/tokenize": tokenize,
        "/v1/completions": complete,
    }
    return server


@pytest.mark.parametrize("names_ids", [True, False])
def test_labels_are_read_exactly_on_vllm(serve: Serve, connect: Connect, names_ids: bool) -> None:
    server = fake_vllm(serve, names_ids=names_ids)
    labels = ("1", "10", "100", "5", "7")
    ((_, read),) = connect(server).read_labels([LabelRequest(turns("ab"), labels)])
    # 1 goes on as 10 in half of the cases, and that as 100 in a quarter of those.
    expected = (0.6 * 0.5, 0.6 * 0.5 * 0.75, 0.6 * 0.5 * 0.25, 0.2, 0.0)
    assert [math.exp(value) for value in read.logprobs] == pytest.approx(expected)
    assert (read.unread, read.prompt_tokens, read.overflow) == (0.0, 3, 0)


def test_any_number_of_labels_on_vllm(serve: Serve, connect: Connect) -> None:
    server = fake_vllm(serve)
    labels = ("1", *(chr(0x4E00 + i) for i in range(300)))
    ((_, read),) = connect(server).read_labels([LabelRequest("ab", labels)])
    assert math.exp(read.logprobs[0]) == pytest.approx(0.6)
    assert set(read.logprobs[1:]) == {-math.inf}
    assert [len(body["logprob_token_ids"]) for body in server.questions()] == [128, 128, 45]


def test_likelihood_on_vllm(serve: Serve, connect: Connect) -> None:
    backend = connect(fake_vllm(serve))
    ((_, likelihood),) = backend.score_texts([LikelihoodRequest(turns("ab"), "10")])
    assert math.exp(likelihood.logprob) == pytest.approx(0.6 * 0.5)
    assert (likelihood.tokens, likelihood.prompt_tokens) == (2, 3)
    with pytest.raises(BackendError, match="without a prompt"):
        list(backend.score_texts([LikelihoodRequest("", "10")]))


def test_long_prompts_are_not_read_on_vllm(serve: Serve, connect: Connect) -> None:
    backend = connect(fake_vllm(serve))  # a window of 100
    fits, exceeds = backend.read_labels([LabelRequest("a" * 97, ("100",)), LabelRequest("a" * 98, ("100",))])
    assert sorted([fits, exceeds])[0][1].overflow == 0
    too_long = sorted([fits, exceeds])[1][1]
    assert (too_long.logprobs, too_long.prompt_tokens, too_long.overflow) == ((-math.inf,), 98, 1)
    ((_, likelihood),) = backend.score_texts([LikelihoodRequest("a" * 98, "12")])
    assert (likelihood.tokens, likelihood.overflow) == (2, 1)


def top_route(*top: tuple[str, float]) -> Callable[[Any], Reply]:
    entries = [{"token": token, "logprob": math.log(value), "bytes": None} for token, value in top]
    return lambda body: (200, chat(top[0][0], logprobs={"content": [{**entries[0], "top_logprobs": entries}]}))


def test_labels_elsewhere_are_read_from_the_top(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.routes["/v1/chat/completions"] = top_route(("4", 0.5), ("The", 0.3), (" 4", 0.1), ("2", 0.05))
    ((_, read),) = connect(server).read_labels([LabelRequest(turns("q"), ("2", "4", " 4", "5"))])
    assert [math.exp(value) for value in read.logprobs] == pytest.approx([0.05, 0.5, 0.1, 0.0])
    assert read.unread == pytest.approx(0.05)  # what all tokens beyond the list have together
    assert read.prompt_tokens == 7
    (body,) = server.questions()
    assert (body["top_logprobs"], body["max_tokens"], body["temperature"]) == (20, 1, 0.0)


def test_finished_texts_have_another_shape_of_top(serve: Serve, connect: Connect) -> None:
    server = serve()
    logprobs = {"tokens": ["4"], "top_logprobs": [{"4": math.log(0.9), "3": math.log(0.1)}]}
    server.routes["/v1/completions"] = lambda body: (200, {"choices": [{"text": "4", "logprobs": logprobs}]})
    ((_, read),) = connect(server).read_labels([LabelRequest("q", ("4", "3"))])
    assert [math.exp(value) for value in read.logprobs] == pytest.approx([0.9, 0.1])


@pytest.mark.parametrize(
    ("top", "labels"),
    [
        ([("1", 0.5), ("9", 0.4)], ("1", "9", "10")),
        ([("cat", 0.5), ("good", 0.4)], ("good", "catastrophic")),
        ([(" ", 0.5), ("4", 0.4)], ("4", " 4")),
        ([("-", 0.5), ("0", 0.4)], ("0", "-1")),
    ],
)
def test_labels_of_several_tokens_are_refused_elsewhere(
    serve: Serve, connect: Connect, top: list[tuple[str, float]], labels: tuple[str, ...]
) -> None:
    server = serve()
    server.routes["/v1/chat/completions"] = top_route(*top)
    with pytest.raises(BackendError, match="has several tokens") as caught:
        list(connect(server).read_labels([LabelRequest(turns("q"), labels)]))
    assert "vLLM" in str(caught.value)


def test_a_longer_label_that_is_a_token_itself_is_read() -> None:
    read = read_top([("1", math.log(0.5)), ("10", math.log(0.4))], ("1", "10"))
    assert [math.exp(value) for value in read.logprobs] == pytest.approx([0.5, 0.4])


def test_a_token_that_hardly_begins_a_label_is_unread() -> None:
    read = read_top([("good", 0.0), ("c", math.log(1e-6))], ("good", "catastrophic"))
    assert read.logprobs == (0.0, -math.inf)
    assert read.unread == pytest.approx(1e-6)


@given(
    st.lists(
        st.tuples(st.text("01-a ", max_size=3), st.floats(0.001, 1)), min_size=1, max_size=20, unique_by=lambda x: x[0]
    ),
    st.lists(st.text("01-a ", min_size=1, max_size=3), min_size=1, max_size=8, unique=True),
)
def test_reading_from_the_top_never_exceeds_what_is_there(top: list[tuple[str, float]], labels: list[str]) -> None:
    total = math.fsum(value for _, value in top)
    normalised = [(token, math.log(value / total)) for token, value in top]
    try:
        read = read_top(normalised, labels)
    except BackendError:
        assert any(label.startswith(token) and label != token for token, _ in top for label in labels)
        return
    known = dict(normalised)
    for label, value in zip(labels, read.logprobs, strict=True):
        assert value == -math.inf or value == pytest.approx(known[label])
    assert math.fsum(map(math.exp, read.logprobs)) + read.unread <= 1 + 1e-9


def test_servers_without_probabilities_say_so(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.routes["/v1/completions"] = lambda body: (200, {"choices": [{"text": "generated", "logprobs": None}]})
    backend = connect(server)
    with pytest.raises(BackendError, match="no probabilities"):
        list(backend.read_labels([LabelRequest(turns("q"), ("1",))]))
    with pytest.raises(BackendError, match="as the answer in a chat"):
        list(backend.score_texts([LikelihoodRequest(turns("q"), "x")]))
    with pytest.raises(BackendError, match="does not tell the probabilities of given texts"):
        list(backend.score_texts([LikelihoodRequest("q", "x")]))


def test_likelihood_by_echo(serve: Serve, connect: Connect) -> None:
    server = serve()

    def echo(body: Any) -> Reply:
        words = body["prompt"].split(" ")
        tokens = [words[0], *(f" {word}" for word in words[1:])]
        logprobs = {"tokens": tokens, "token_logprobs": [None, *(-0.5 for _ in tokens[1:])]}
        return 200, {"choices": [{"text": body["prompt"], "logprobs": logprobs}]}

    server.routes["/v1/completions"] = echo
    backend = connect(server)
    ((_, likelihood),) = backend.score_texts([LikelihoodRequest("the sky is", " so very blue")])
    assert (likelihood.logprob, likelihood.tokens, likelihood.prompt_tokens) == (-1.5, 3, 3)
    with pytest.raises(BackendError, match="make one token"):
        list(backend.score_texts([LikelihoodRequest("the sky is", "land")]))


# A real server


PROMPTS = [
    "Rate the translation 'Das Haus ist rot.' of 'The house is red.' from 0 to 100. Answer with a number.",
    "Is 'The cat sleeps.' a good summary of 'A black cat has been asleep since noon.'? Answer yes or no.",
    "Name the capital of France.",
]
LABELS = ("0", "1", "10", "50", "100", "yes", "Yes", "catastrophic")
TOLERANCE = 5e-4
"""In log-probabilities; both sides compute in float32, with sums in different orders."""


@pytest.fixture(scope="module")
def vllm_server(embedded_folder: Path) -> Iterator[str]:
    need_vllm()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    # What `vllm serve` runs; that command itself does not start from every package of vLLM.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(embedded_folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "1024", "--enforce-eager"]
    command += ["--dtype", "float32", "--hf-overrides", '{"head_dtype": "float32"}', "--served-model-name", "small"]
    cpu = {"VLLM_CPU_OMP_THREADS_BIND": "0-1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    environment = {**cpu, **os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    process = subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 600
        while not _is_up(url):
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < end, "the server did not start within 600 s"
            time.sleep(1)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.engine
def test_a_real_vllm_server_computes_what_transformers_computes(vllm_server: str, embedded_folder: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(embedded_folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(embedded_folder, dtype=torch.float32).eval()

    def encode(text: str) -> list[int]:
        chat = [{"role": "user", "content": text}]
        return list(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"])

    def after(text: str) -> list[int]:
        return list(tokenizer("\n" + text, add_special_tokens=False)["input_ids"][1:])

    def logprobs(ids: list[int]) -> Any:
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0].float().log_softmax(-1)

    def follows(prompt: list[int], tokens: list[int]) -> float:
        rows = logprobs([*prompt, *tokens])
        return sum(float(rows[len(prompt) - 1 + i, token]) for i, token in enumerate(tokens))

    def greedy(prompt: list[int], count: int) -> str:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            output = model.generate(ids, do_sample=False, max_new_tokens=count, attention_mask=torch.ones_like(ids))
        return str(tokenizer.decode(output[0][len(prompt) :], skip_special_tokens=True))

    backend = OpenAIBackend(vllm_server, concurrency=4)
    try:
        assert backend.fingerprint().engine.startswith(f"openai {vllm_server}/v1 vllm-")
        asked = [turns(prompt) for prompt in PROMPTS]
        texts = [answer.text for answer in ask(backend, *asked, max_tokens=12)]
        assert texts == [greedy(encode(prompt), 12) for prompt in PROMPTS]

        (stopped,) = ask(backend, asked[2], max_tokens=12, stop=("Paris",))
        assert stopped.text == texts[2][: texts[2].index("Paris") + 5]
        (long,) = ask(backend, turns("word " * 1200), max_tokens=12)
        length = len(encode("word " * 1200))
        assert long == Completion("", "too_long", length, length + 12 - 1024)

        allowed = ("bad", "-100", "0.5")
        assert {answer.text for answer in ask(backend, *asked, max_tokens=12, choices=allowed)} <= set(allowed)

        begun = (Message("user", PROMPTS[2]), Message("assistant", "It is"))
        (goes_on,) = ask(backend, begun, max_tokens=4)
        assert goes_on.text == greedy([*encode(PROMPTS[2]), *after("It is")], 4)

        labels = dict(backend.read_labels([LabelRequest(prompt, LABELS) for prompt in asked]))
        for position, prompt in enumerate(PROMPTS):
            ids = encode(prompt)
            reached = {label: follows(ids, after(label)) for label in LABELS}
            ten = math.exp(reached["10"]) - math.exp(reached["100"])
            one = math.exp(reached["1"]) - math.exp(reached["10"])
            expected = reached | {"10": math.log(ten), "1": math.log(one)}
            seen = dict(zip(LABELS, labels[position].logprobs, strict=True))
            assert labels[position].unread < 1e-4
            for label in LABELS:
                if seen[label] > -math.inf:
                    assert seen[label] == pytest.approx(expected[label], abs=TOLERANCE)

        likelihoods = dict(
            backend.score_texts([LikelihoodRequest(prompt, "It is Paris, not Rome.") for prompt in asked])
        )
        for position, prompt in enumerate(PROMPTS):
            text = after("It is Paris, not Rome.")
            assert likelihoods[position].tokens == len(text)
            assert likelihoods[position].logprob == pytest.approx(
                follows(encode(prompt), text), abs=len(text) * TOLERANCE
            )
    finally:
        backend.close()

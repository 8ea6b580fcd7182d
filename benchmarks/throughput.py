"""How fast scoring is, beside the published way and the raw engine; and what the pipeline takes without a model.

    python benchmarks/throughput.py --data DATA_FOLDER [--model FOLDER] [--engine vllm]
    python benchmarks/throughput.py --data DATA_FOLDER --random 7b --output benchmarks/results/DEVICE.json
    python benchmarks/throughput.py --pipeline [--sizes 10000,100000] [--profile]

The first two ask one model in one engine about the hypotheses of all systems for the first sources of SummEval and
WMT23 en-de, in four ways:

(a) as published: the engine's own `generate` on questions in the order of the file, up to 180 tokens of text each,
    nothing planned, nothing shared (vLLM may not read its prefix cache);
(b) by text, through `Scorer`;
(c) by label reading, through `Scorer`, with everything it does: rendering, tokenising, planning, expectations;
(d) the raw engine: token ids made beforehand, in the best order, no code of ours. With transformers, a loop that
    computes once what the questions begin with, all of them and those of each source, and reads logits at the last
    places; with vLLM, `LLM.generate` on prompts sorted by source. Where a label has several tokens, it reads the
    first alone, which is less than (c) does.

(c) and (d) run in turns; the least time of each counts, and the medians are printed as well. Their probabilities are
compared. What an engine remembers is dropped before every run, and no cache of answers is used.

`--random` gives an architecture random weights and the tokenizer of `--model`: probabilities mean nothing then, but the
work is the same. `--pipeline` has a double answer at once, in a process for each size: recorded answers by text, whose
10,000 questions come again and again in another order, and label probabilities for questions that are all different.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import json
import logging
import math
import platform
import pstats
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from promptmetric import Sample, Scorer
from promptmetric.backends import Fingerprint, open_backend
from promptmetric.datasets import EvalSet, load_set
from promptmetric.decoding.expected import LabelReader
from promptmetric.prompts import LanguagePair, get_prompt, wrap
from promptmetric.questions import LabelLogprobs, LabelRequest

SETS = ("summeval", "wmt23/en-de")
PROMPT = "prexme:zs/question/simple-labels"
PUBLISHED_TOKENS = 180
ARCHITECTURES = {
    "tiny": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
    },
    "7b": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 4096,
    },
}
"""Of Llama; `7b` is Llama 2's."""


@dataclass
class Run:
    """What one way of asking took.

    Attributes:
        segments: how many were asked about.
        seconds: the least of several, where there were several.
        prefill: tokens of prompts that went through the model, with the padding of batches.
        steps: tokens that went through it one by one: generated ones, and second ones of labels.
        peak: most memory in MiB, model included: of the process, or of the GPU.
        all_seconds: of each repetition.
    """

    segments: int
    seconds: float
    prefill: int
    steps: int
    peak: float
    all_seconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.segments / self.seconds


class TransformersEngine:
    """A transformers backend, its tokens counted, and the loop that does without the backend."""

    def __init__(self, backend: Any) -> None:
        import torch

        self.backend = backend
        self.prefill = self.steps = 0
        self._generate = backend._model.generate
        self._pad = backend._tokenizer.pad
        self._model = backend._model.base_model
        head = backend._model.get_output_embeddings()
        self._weight = head.weight.detach().float()  # once, and not in the time of the loop
        self._bias = None if head.bias is None else head.bias.detach().float()
        self._model.register_forward_pre_hook(self._count, with_kwargs=True)
        self._torch = torch

    def _count(self, module: Any, args: Any, inputs: dict[str, Any]) -> None:  # noqa: ARG002
        rows, width = inputs["input_ids"].shape
        if width == 1:
            self.steps += rows
        else:
            self.prefill += rows * width

    def forget(self) -> None:
        """Drop what the backend keeps from one call to the next."""
        self.backend._reader.forget()

    def as_published(self, sequences: Sequence[list[int]], tokens: int, batch_size: int) -> None:
        """Batches in this order, padded to their longest, each until its last answer has ended."""
        for start in range(0, len(sequences), batch_size):
            batch = {"input_ids": list(sequences[start : start + batch_size])}
            inputs = self._pad(batch, padding_side="left", return_tensors="pt").to(self._model.device)
            with self._torch.inference_mode():
                self._generate(**inputs, max_new_tokens=tokens, do_sample=False)

    def raw(self, groups: Sequence[list[list[int]]], wanted: Sequence[int], batch_size: int) -> list[list[float]]:
        """Log-probabilities of the wanted tokens after each of these sequences, which are grouped by source."""
        torch = self._torch
        found: list[list[float]] = []
        with torch.inference_mode():
            header = common([tokens for group in groups for tokens in group])
            _, begun = self._forward([groups[0][0][:header]], None, 0)
            for group in groups:
                shared = common(group)
                prefix = begun if shared == header else self._forward([group[0][header:shared]], begun, header)[1]
                for start in range(0, len(group), batch_size):
                    rows = [tokens[shared:] for tokens in group[start : start + batch_size]]
                    hidden, _ = self._forward(rows, prefix, shared)
                    ends = torch.tensor([len(row) - 1 for row in rows], device=hidden.device)
                    last = hidden[torch.arange(len(rows), device=hidden.device), ends].float()
                    logits = torch.nn.functional.linear(last, self._weight, self._bias)
                    found += logits.log_softmax(-1)[:, list(wanted)].tolist()
        return found

    def _forward(self, rows: Sequence[list[int]], prefix: Any, past: int) -> tuple[Any, Any]:
        """Hidden states, keys and values of rows of token ids that all follow the same prefix."""
        from transformers import DynamicCache

        device = self._model.device
        width = max(map(len, rows))
        ids = self._torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
        real = self._torch.tensor([[1] * (past + len(row)) + [0] * (width - len(row)) for row in rows], device=device)
        cache = DynamicCache()
        for layer in prefix.layers if prefix else ():
            own = copy.copy(layer)
            own.keys, own.values = (part.expand(len(rows), -1, -1, -1) for part in (layer.keys, layer.values))
            cache.layers.append(own)
        output = self._model(input_ids=ids, attention_mask=real, past_key_values=cache, use_cache=True)
        return output.last_hidden_state, cache


class VllmEngine:
    """A vLLM backend, its tokens counted, and the calls that do without the backend."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.prefill = self.steps = 0
        self._engine = backend._llm.llm_engine
        self._step = self._engine.step
        self._engine.step = self._counted_step

    def _counted_step(self) -> Any:
        outputs = self._step()
        for output in outputs:
            if output.finished:
                self.prefill += len(output.prompt_token_ids) - (output.num_cached_tokens or 0)
                self.steps += len(output.outputs[0].token_ids)
        return outputs

    def forget(self) -> None:
        """Drop the keys and values of earlier prompts."""
        self.backend._llm.reset_prefix_cache()

    def as_published(self, sequences: Sequence[list[int]], tokens: int, batch_size: int) -> None:  # noqa: ARG002
        """All at once in this order; the engine makes its own batches."""
        from vllm import SamplingParams

        sampling = SamplingParams(max_tokens=tokens, temperature=0.0, skip_reading_prefix_cache=True)
        prompts = [{"prompt_token_ids": ids} for ids in sequences]
        self.backend._llm.generate(prompts, sampling, use_tqdm=False)

    def raw(
        self,
        groups: Sequence[list[list[int]]],
        wanted: Sequence[int],
        batch_size: int,  # noqa: ARG002
    ) -> list[list[float]]:
        """Log-probabilities of the wanted tokens after each of these sequences, which are grouped by source."""
        from vllm import SamplingParams

        sampling = SamplingParams(max_tokens=1, temperature=0.0, logprob_token_ids=list(wanted), detokenize=False)
        prompts = [{"prompt_token_ids": ids} for group in groups for ids in group]
        outputs = self.backend._llm.generate(prompts, sampling, use_tqdm=False)
        return [[output.outputs[0].logprobs[0][token].logprob for token in wanted] for output in outputs]


Engine = TransformersEngine | VllmEngine


def common(sequences: Sequence[list[int]]) -> int:
    """How many tokens sequences begin with in common, at least one at each one's end left over."""
    first, last = min(sequences), max(sequences)  # all others lie between them
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return min(shared, *(len(tokens) - 1 for tokens in sequences))


def measured(engine: Engine, segments: int, function: Callable[[], Any]) -> Run:
    """Run something once."""
    engine.forget()
    engine.prefill = engine.steps = 0
    reset_peak()
    start = time.perf_counter()
    function()
    seconds = time.perf_counter() - start
    return Run(segments, seconds, engine.prefill, engine.steps, peak_memory())


def in_turns(engine: Engine, segments: int, times: int, functions: Sequence[Callable[[], Any]]) -> list[Run]:
    """Run things several times in turns, so that whatever else the machine does meets all of them."""
    runs = [[measured(engine, segments, function) for function in functions] for _ in range(times)]
    best = []
    for same in zip(*runs, strict=True):
        run = min(same, key=lambda run: run.seconds)
        run.all_seconds = [one.seconds for one in same]
        best.append(run)
    return best


def reset_peak() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):  # Linux; elsewhere the peak is that of the process so far
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> float:
    import torch

    if torch.cuda.is_available():
        return float(max(torch.cuda.max_memory_allocated(), _used_by_others())) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _used_by_others() -> int:
    """Memory of the GPU that an engine in a process of its own holds."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return 0 if torch.cuda.memory_reserved() else total - free


def first_sources(name: str, data: Path, segments: int) -> EvalSet:
    """All systems' hypotheses for the first sources of a set, in the order of its file."""
    evalset = load_set(name, data=data).without_humans()
    kept: set[str] = set()
    count = 0
    for segment in evalset.segments:
        if count >= segments:
            break
        kept.add(segment)
        count += sum(row.segment == segment for row in evalset.rows)
    return evalset.where(lambda row: row.segment in kept)


class Workload:
    """A set as questions: the prompts in the order of its file, and the token ids that reading labels comes down to."""

    def __init__(self, evalset: EvalSet, engine: Engine, prompt_id: str) -> None:
        self.evalset = evalset
        self.samples = evalset.samples()
        self.prompt = get_prompt(prompt_id)
        self.model = engine.backend.fingerprint().model
        self.prompts = [wrap(self.prompt.render(sample, evalset.task), self.model) for sample in self.samples]
        self.sequences = [engine.backend._tokens.encode(prompt) for prompt in self.prompts]
        by_source: dict[str, set[tuple[int, ...]]] = {}
        for sample, tokens in zip(self.samples, self.sequences, strict=True):
            by_source.setdefault(sample.src, set()).add(tuple(tokens))
        self.groups = sorted(sorted(map(list, group)) for group in by_source.values())
        self.distinct = [tokens for group in self.groups for tokens in group]
        self.texts = LabelReader(self.prompt.scale).texts
        self.labels = [engine.backend._tokens.continuation(text) for text in self.texts]
        self.wanted = sorted({label[0] for label in self.labels if len(label) == 1})


def compare(engine: Engine, evalset: EvalSet, arguments: argparse.Namespace) -> dict[str, Any]:
    """Ask about a set in the four ways, and print what each took."""
    work = Workload(evalset, engine, arguments.prompt)
    batch_size, count = arguments.batch_size, len(work.samples)
    few = min(arguments.published or count, count)

    def published(segments: int, tokens: int) -> None:
        engine.as_published(work.sequences[:segments], tokens, batch_size)

    def ours(decode: str) -> None:
        scorer = Scorer(
            work.model, prompt=work.prompt, task=evalset.task, backend=engine.backend, decode=decode, cache=False
        )
        scorer.predict(work.samples, batch_size, progress_bar=False)

    def raw() -> list[list[float]]:
        return engine.raw(work.groups, work.wanted, batch_size)

    show_workload(work)
    for warm_up in (partial(published, batch_size, 4), partial(ours, "expected"), raw):
        warm_up()
    runs = {"as published": measured(engine, few, partial(published, few, PUBLISHED_TOKENS))}
    show_run("a", "as published", runs["as published"])
    runs["by text"] = measured(engine, count, partial(ours, "text"))
    show_run("b", "by text", runs["by text"])
    reading, floor = in_turns(engine, count, arguments.repeat, [partial(ours, "expected"), raw])
    runs |= {"label reading": reading, "raw engine": floor}
    show_run("c", "label reading", reading)
    show_run("d", "raw engine", floor)
    ratios = {
        "c/a segments/s": reading.rate / runs["as published"].rate,
        "c/b segments/s": reading.rate / runs["by text"].rate,
        "c/d time": reading.seconds / floor.seconds,
        "c/d median time": statistics.median(reading.all_seconds) / statistics.median(floor.all_seconds),
    }
    difference = disagreement(engine, work, raw(), batch_size)
    show_comparison(work, ratios, difference)
    return {
        "set": evalset.name,
        "sources": len(evalset.segments),
        "different questions": len(work.distinct),
        "mean tokens": statistics.mean(map(len, work.distinct)),
        "runs": {way: asdict(run) | {"segments/s": run.rate} for way, run in runs.items()},
        "ratios": ratios,
        "largest difference of a probability": difference,
    }


def disagreement(engine: Engine, work: Workload, floor: Sequence[Sequence[float]], batch_size: int) -> float:
    """The largest difference between the probabilities of a token: those of the labels that begin with it add up."""
    engine.forget()
    answers = engine.backend.read_labels([LabelRequest(prompt, work.texts) for prompt in work.prompts], batch_size)
    expected = {tuple(tokens): logprobs for tokens, logprobs in zip(work.distinct, floor, strict=True)}
    largest = 0.0
    for position, answer in answers:
        for token, logprob in zip(work.wanted, expected[tuple(work.sequences[position])], strict=True):
            pairs = zip(work.labels, answer.logprobs, strict=True)
            read = math.fsum(math.exp(value) for label, value in pairs if label[0] == token)
            largest = max(largest, abs(read - math.exp(logprob)))
    return largest


def show_workload(work: Workload) -> None:
    lengths = [len(tokens) for tokens in work.distinct]
    print(
        f"\n{work.evalset.name}: {len(work.samples)} segments of {len(work.evalset.segments)} sources, {len(lengths)} "
        f"different questions of {min(lengths)} to {max(lengths)} tokens, {statistics.mean(lengths):.0f} on average\n"
        f"{'':18} segments  seconds  segments/s   prefill    steps  peak MiB",
        flush=True,
    )


def show_run(letter: str, way: str, run: Run) -> None:
    print(
        f"({letter}) {way:14} {run.segments:8} {run.seconds:8.2f} {run.rate:11.2f} {run.prefill:9} {run.steps:8} "
        f"{run.peak:9.0f}",
        flush=True,
    )


def show_comparison(work: Workload, ratios: dict[str, float], difference: float) -> None:
    longer = sum(len(label) > 1 for label in work.labels)
    print(
        f"segments/s: c is {ratios['c/a segments/s']:.1f} times a, {ratios['c/b segments/s']:.1f} times b; "
        f"time: c is {ratios['c/d time']:.3f} times d ({ratios['c/d median time']:.3f} by medians)\n"
        f"largest difference between c and d in a probability: {difference:.0e}; {longer} of the {len(work.labels)} "
        "texts that are read have several tokens",
        flush=True,
    )


def open_engine(arguments: argparse.Namespace, scratch: Path) -> Engine:
    model = arguments.model
    if model == "embedded":
        from promptmetric.backends import embedded

        model = str(embedded.model_folder())
    more: dict[str, Any] = {}
    if arguments.random:
        model = str(_random_model(model, arguments.random, scratch, weights=arguments.engine == "transformers"))
        more = {"load_format": "dummy"} if arguments.engine == "vllm" else {}
    backend: Any = open_backend(model, arguments.engine, offline=True, **more)
    return VllmEngine(backend) if arguments.engine == "vllm" else TransformersEngine(backend)


def _random_model(tokenizer: str, name: str, scratch: Path, *, weights: bool) -> Path:
    """A folder with an architecture, random weights where they are wanted, and the tokenizer of another model."""
    import torch
    import transformers

    from promptmetric.backends.loading import best_dtype, progress_bars_on_terminals_only

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = best_dtype(device)
    own = transformers.AutoTokenizer.from_pretrained(tokenizer, local_files_only=True)
    config = transformers.LlamaConfig(
        vocab_size=len(own),
        bos_token_id=own.bos_token_id,
        eos_token_id=own.eos_token_id,
        dtype=dtype,
        architectures=["LlamaForCausalLM"],
        **ARCHITECTURES[name],
    )
    folder = scratch / f"random-{name}"
    own.save_pretrained(folder)
    config.save_pretrained(folder)
    if weights:
        torch.manual_seed(0)
        with torch.device(device), progress_bars_on_terminals_only():
            # Made on the GPU, where drawing seven billion numbers takes seconds.
            transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(folder)
        if device == "cuda":
            torch.cuda.empty_cache()
    return folder


def device_name() -> str:
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"CPU, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"


def compare_all(arguments: argparse.Namespace) -> None:
    logging.getLogger("promptmetric").setLevel(logging.ERROR)  # what it has to say of scores does not matter here
    with tempfile.TemporaryDirectory() as scratch:
        engine = open_engine(arguments, Path(scratch))
        fingerprint = engine.backend.fingerprint()
        about = {
            "device": device_name(),
            "python": platform.python_version(),
            "engine": fingerprint.engine,
            "model": fingerprint.model,
            "prompt": arguments.prompt,
            "batch size": arguments.batch_size,
        }
        print(", ".join(f"{name}: {value}" for name, value in about.items()), flush=True)
        results = [
            compare(engine, first_sources(name, arguments.data, arguments.segments), arguments)
            for name in arguments.set or SETS
        ]
        engine.backend.close()
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({**about, "sets": results}, indent=1) + "\n", encoding="utf-8")


RECORDED_SOURCES, HYPOTHESES = 1000, 10
ANSWERS = {
    "short": ("good", "Neutral.", "Score: bad", "The translation is good."),
    "long": (
        "Sentence {number} keeps the meaning of the source, but a word is missing. Score: neutral",
        "There is an error of agreement in sentence {number}, and the verb is wrong. The translation is bad.",
    ),
}
"""Short answers are the same again and again, as those of models mostly are; the long ones are all different."""


def invented(number: int) -> Sample:
    """A sample as long as a sentence of news; ten in a row have the same source."""
    source = f"Source {number // HYPOTHESES}: the city council said on Monday that the bridge would open next year. "
    target = f"Satz {number}: Der Stadtrat teilte am Montag mit, dass die Brücke nächstes Jahr eröffnet werde. "
    return Sample(source * 2, target * 2)


def varied(count: int) -> Iterator[Sample]:
    """The recorded questions again and again, each time in another order."""
    draw = random.Random(0)
    order = list(range(RECORDED_SOURCES * HYPOTHESES))
    for start in range(0, count, len(order)):
        draw.shuffle(order)
        for number in order[: count - start]:
            yield invented(number)


def record_answers(path: Path, prompt_id: str, answers: Sequence[str]) -> None:
    prompt, langs = get_prompt(prompt_id), LanguagePair.parse("en-de")
    with path.open("w", encoding="utf-8") as file:
        for number in range(RECORDED_SOURCES * HYPOTHESES):
            turns = prompt.render(invented(number), "translation", langs)
            fields = {"prompt": [{"role": turn.role, "content": turn.content} for turn in turns]}
            answer = answers[number % len(answers)].format(number=number)
            file.write(json.dumps(fields | {"text": answer}) + "\n")


class InstantReader:
    """Answers every question for label probabilities at once."""

    def read_labels(
        self,
        requests: Sequence[LabelRequest],
        batch_size: int = 16,  # noqa: ARG002
    ) -> Iterator[tuple[int, LabelLogprobs]]:
        logprobs = tuple(-2.0 - 0.1 * place for place in range(len(requests[0].labels)))
        for position in range(len(requests)):
            yield position, LabelLogprobs(logprobs, 0.0, 100)

    def fingerprint(self) -> Fingerprint:
        return Fingerprint("instant", "none", "none")


def stream(recording: Path | None, prompt: str, count: int, profiled: bool) -> str:
    """Score invented samples without keeping any, and say what it took. Runs in a process of its own."""
    logging.disable()
    samples: Iterator[Sample]
    if recording is not None:
        scorer = Scorer(recording, prompt=prompt, langs="en-de", decode="text")
        samples = varied(count)
    else:
        backend: Any = InstantReader()
        scorer = Scorer("instant", prompt=prompt, langs="en-de", decode="expected", backend=backend, cache=False)
        samples = map(invented, range(count))
    scorer.signature()  # loads the recording
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    profile = cProfile.Profile()
    start, cpu = time.perf_counter(), time.process_time()
    if profiled:
        profile.enable()
    read = sum(segment.status == "ok" for segment in scorer.stream(samples))
    profile.disable()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if profiled:
        pstats.Stats(profile).sort_stats("tottime").print_stats(20)
    if read != count:
        raise SystemExit(f"{count - read} of {count} answers held no score")
    return (
        f"{count:9} {seconds:8.2f} {count / seconds:11,.0f} {seconds / count * 1e6:11.1f} {cpu / count * 1e6:7.1f} "
        f"{after / 1024:9.1f} {(after - before) / 1024:+7.1f}"
    )


def measure_pipeline(arguments: argparse.Namespace) -> None:
    print(f"prompt {arguments.prompt}, Python {platform.python_version()}, one core")
    print(f"{'':22} segments  seconds  segments/s  µs/segment  µs CPU  peak MiB  growth", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        recordings: dict[str, Path | None] = {}
        for kind, answers in ANSWERS.items():
            recordings[f"text, {kind} answers"] = recording = Path(scratch) / f"{kind}.jsonl"
            record_answers(recording, arguments.prompt, answers)
        recordings["label reading"] = None
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
            for way, path in recordings.items():
                for size in arguments.sizes:
                    took = processes.submit(stream, path, arguments.prompt, size, arguments.profile).result()
                    print(f"{way:21} {took}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with wmt/ and summeval/")
    parser.add_argument("--set", choices=SETS, action="append", help="default: both")
    parser.add_argument("--model", default="embedded", help="a model folder; default: the embedded model")
    parser.add_argument("--random", choices=ARCHITECTURES, help="random weights, with the tokenizer of --model")
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--segments", type=int, default=64, help="of each set, filled up to whole sources")
    parser.add_argument("--published", type=int, default=16, help="how many of them the published way gets; 0 for all")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=5, help="of label reading and raw engine")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    parser.add_argument("--pipeline", action="store_true", help="measure the pipeline without a model")
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(size) for size in text.split(",")],
        default=[10**4, 10**5, 10**6],
        help="of the pipeline's inputs",
    )
    parser.add_argument("--profile", action="store_true", help="where the pipeline spends its time (slows it down)")
    arguments = parser.parse_args()
    if arguments.pipeline:
        measure_pipeline(arguments)
    elif arguments.data:
        compare_all(arguments)
    else:
        parser.error("--data or --pipeline is needed")


if __name__ == "__main__":
    main()

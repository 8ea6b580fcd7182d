"""Do the engines agree on the same weights: on label distributions, and on greedy text?

    python benchmarks/agreement.py --data DATA                             transformers, and vLLM where it is installed
    python benchmarks/agreement.py --data DATA --dtype float32 --dtype bfloat16 --model FOLDER

100 prompts: 20 of PrExMe's, drawn with a fixed seed, on 5 hypotheses of WMT22 en-de each. Probabilities are compared
with those of the first engine in the first precision; texts, of up to 32 tokens, with those of transformers' own
`generate` in the same precision, one prompt at a time and nothing shared. Texts that differ are shown.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from promptmetric.backends import embedded, open_backend
from promptmetric.datasets import load_set
from promptmetric.decoding.expected import LabelReader
from promptmetric.prompts import LanguagePair, PromptSpec, get_prompt, prompt_ids, wrap
from promptmetric.questions import LabelRequest, Prompt, Request
from promptmetric.scale import Scale
from promptmetric.types import Distribution, Sample

SET, PAIR = "wmt22/en-de", LanguagePair("en", "de")
PROMPTS, HYPOTHESES = 20, 5
TOKENS = 32
SHOWN = 50
"""Characters of a text that are shown."""

Read = list[tuple[float, Distribution] | None]
"""For each prompt: the expected score, normalised, and the distribution over labels; none where it was refused."""


def questions(data: Path) -> Iterator[tuple[PromptSpec, Prompt]]:
    """PrExMe's prompts on WMT22 en-de."""
    draw = random.Random(4)
    samples = draw.sample(list(load_set(SET, data=data).without_humans().samples()), PROMPTS * HYPOTHESES)
    names = [name for name in prompt_ids() if name.startswith("prexme:zs/")]
    specs = [get_prompt(name) for name in draw.sample(names, PROMPTS)]
    for number, sample in enumerate(samples):
        spec = specs[number // HYPOTHESES]
        yield spec, wrap(spec.render(Sample(sample.src, sample.hyp), "translation", PAIR), "")


def plain_texts(folder: str, dtype: str, prompts: Sequence[Prompt]) -> list[str]:
    """The greedy answers of transformers' own `generate`, one at a time."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    texts = []
    for prompt in prompts:
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt if not isinstance(turn, str)]
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        ids = ids.to(model.device)
        with torch.inference_mode():
            output = model.generate(**ids, max_new_tokens=TOKENS, do_sample=False)
        texts.append(tokenizer.decode(output[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))
    return texts


def answers(model: str, engine: Any, dtype: str, scales: Sequence[Scale], prompts: Sequence[Prompt]) -> Any:
    """What an engine reads and writes for every prompt."""
    backend = open_backend(model, engine, dtype=dtype)
    print(f"{engine} {dtype}: {backend.fingerprint().engine}", file=sys.stderr, flush=True)
    readers = [LabelReader(scale) for scale in scales]
    asked = [LabelRequest(prompt, reader.texts) for prompt, reader in zip(prompts, readers, strict=True)]
    found = dict(backend.read_labels(asked))
    written = dict(backend.generate([Request(prompt, TOKENS) for prompt in prompts]))
    backend.close()
    read: Read = []
    for number, (scale, reader) in enumerate(zip(scales, readers, strict=True)):
        belief = reader.distribution(found[number])
        if isinstance(belief, str):
            print(f"{engine} {dtype}, prompt {number + 1} is refused: {belief}", file=sys.stderr)
            read.append(None)
        else:
            read.append((scale.normalise(reader.expectation(belief)), belief))
    return read, [written[number].text for number in range(len(prompts))]


def line(name: str, ours: Read, theirs: Read, texts: Sequence[str], plain: Sequence[str]) -> str:
    pairs = [(mine, other) for mine, other in zip(ours, theirs, strict=True) if mine and other]
    labels = [
        abs(p - other.probabilities[label])
        for (_, mine), (_, other) in pairs
        for label, p in mine.probabilities.items()
    ]
    masses = [abs(mine.mass - other.mass) for (_, mine), (_, other) in pairs]
    scores = [abs(mine - other) for (mine, _), (other, _) in pairs]
    if not pairs:
        raise SystemExit(f"{name}: no prompt was read by both.")
    differences = (max(labels), max(masses), max(scores), statistics.fmean(scores))
    same = sum(a == b for a, b in zip(texts, plain, strict=True))
    cells = "  ".join(f"{difference:9.1e}" for difference in differences)
    return f"{name:24}  {len(pairs):7}  {cells}  {same} of {len(texts)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with wmt/")
    parser.add_argument("--model", help="model folder with a chat template; default: the embedded model")
    parser.add_argument("--dtype", action="append", help="default: float32")
    parser.add_argument("--engine", action="append", choices=["transformers", "vllm"], help="default: all there are")
    arguments = parser.parse_args()
    engines = arguments.engine or ["transformers", *(["vllm"] if find_spec("vllm") else [])]
    if "vllm" in engines:
        import_module("promptmetric.backends.vllm")  # it cannot be imported after what unpacks the embedded model
    folder = arguments.model or str(embedded.model_folder())
    asked = list(questions(arguments.data))
    scales, prompts = [spec.scale for spec, _ in asked], [prompt for _, prompt in asked]
    first: Read | None = None
    different: list[str] = []
    print(f"{'':24}  {'':7}  difference: largest of a label's probability, of all labels', of the score; mean score's")
    print(f"{'':24}  prompts  {'label':>9}  {'mass':>9}  {'score':>9}  {'mean':>9}  texts equal", flush=True)
    for dtype in arguments.dtype or ["float32"]:
        plain = plain_texts(folder, dtype, prompts)
        for engine in engines:
            read, texts = answers(folder, engine, dtype, scales, prompts)
            first = first or read
            print(line(f"{engine} {dtype}", read, first, texts, plain), flush=True)
            for number, (ours, theirs) in enumerate(zip(texts, plain, strict=True), 1):
                if ours != theirs:
                    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(ours))
                    part = slice(max(0, place - SHOWN // 2), place + SHOWN // 2)
                    different.append(f"{engine} {dtype} {number}: …{ours[part]!r}  plain: …{theirs[part]!r}")
    for one in different:
        print(one)


if __name__ == "__main__":
    main()

"""Log-probabilities from a causal language model of transformers, with the work of a shared prefix done once.

Sequences are padded on the right, so that every token keeps its true position and its true neighbours in the cache.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers

from promptmetric.backends.batches import common_prefix
from promptmetric.backends.tries import Tokens, Visit

_TRIED = 5
"""Tokens on which it is tried whether windows are masked rightly."""

_MOST_LOGITS = 2**27
"""Logits computed at once where a whole text is scored: half a GiB in float32."""


class PrefixReader:
    """Computes sequences of token ids on a model; remembers the last shared prefix.

    Args:
        model: a causal language model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.device = model.device
        config = model.config.get_text_config()
        layers = set(getattr(config, "layer_types", None) or ())
        self._shares = layers <= {"full_attention", "sliding_attention"} and not model._is_stateful
        slides = "sliding_attention" in layers if layers else True
        self._reach = getattr(config, "sliding_window", None) if slides else None  # how many tokens a window holds
        self._adds_masks = model.config._attn_implementation in ("sdpa", "eager")
        self._is_mixed = {"full_attention", "sliding_attention"} <= layers
        # Where tokens are placed by their column in the cache, padding would move them.
        takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self._places = takes_positions and not getattr(config, "alibi", False) and config.model_type != "gpt_neo"
        self._kept: tuple[list[int], Any] | None = None
        can_try = self._reach is not None and self._shares and self._places and self._adds_masks
        self._masks_windows = can_try and self._matches_windows()

    def forget(self) -> None:
        """Free the kept prefix."""
        self._kept = None

    def labels(self, sequences: Sequence[list[int]], shared: int) -> LabelVisits:
        """Begin to read labels after sequences of which the first `shared` tokens are equal."""
        if not self._shares:
            return LabelVisits(self, sequences, None, 0)
        return LabelVisits(self, sequences, self._prefix(list(sequences[0][:shared])), shared)

    def texts(self, sequences: Sequence[list[int]], starts: Sequence[int], shared: int) -> Iterator[float]:
        """The log-probability of each sequence from its start on. `shared` is below every start."""
        prefix = self._prefix(list(sequences[0][:shared])) if self._shares else None
        shared = shared if self._shares else 0
        first = min(starts) - 1 - shared  # the place after which the first wanted token comes: no logits before it
        longest = max(map(len, sequences)) - shared
        vocabulary = self._model.config.get_text_config().vocab_size
        rows = max(1, _MOST_LOGITS // ((longest - first) * vocabulary))
        for place in range(0, len(sequences), rows):
            some = [sequence[shared:] for sequence in sequences[place : place + rows]]
            logits, _ = self.forward(some, prefix, shared, keep=max(map(len, some)) - first)
            for row, tokens in enumerate(some):
                start = starts[place + row] - shared
                wanted = torch.tensor(tokens[start:], device=logits.device)
                part = logits[row, start - 1 - first : len(tokens) - 1 - first].float()
                logprobs = part.gather(1, wanted[:, None])[:, 0] - part.logsumexp(-1)
                yield float(logprobs.double().sum())

    def can_write(self, longest: int) -> bool:
        """Whether `write` is exact for sequences of up to this length."""
        if not (self._shares and self._places):
            return False
        return self._reach is None or longest <= self._reach or self._masks_windows

    def write(
        self,
        begun: Sequence[tuple[Sequence[list[int]], int]],
        most: int,
        is_over: Callable[[list[int]], bool],
        temperature: float = 0.0,
        seed: int = 0,
    ) -> list[list[int]]:
        """Continue sequences. What is drawn for one does not depend on the others.

        Args:
            begun: groups of sequences of token ids, each with how many tokens at their beginning are equal. Groups are
                begun one by one and written on together, since a step costs little more for many than for few.
            most: the most tokens to write.
            is_over: whether an answer ends with its last token.
            temperature: 0 takes the most probable token.
            seed: of the draws, together with the sequence itself.

        Returns:
            The tokens written after each sequence, group by group.
        """
        sequences = [sequence for group, _ in begun for sequence in group]
        parts = [self._started(group, shared) for group, shared in begun]
        cache = _stacked([cache for _, cache, _ in parts])
        logits = torch.cat([logits for logits, _, _ in parts])
        real = torch.nn.utils.rnn.pad_sequence([row for _, _, real in parts for row in real], batch_first=True)
        leaves_window = self._reach is not None and max(map(len, sequences)) + most > self._reach
        del parts
        draws = [_draws(sequence, seed) for sequence in sequences]
        chosen = _choose(logits, temperature, draws)
        answers: list[list[int]] = [[] for _ in sequences]
        alive = list(range(len(sequences)))
        while True:
            for row, token in zip(alive, chosen.tolist(), strict=True):
                answers[row].append(token)
            going_on = [
                place for place, row in enumerate(alive) if len(answers[row]) < most and not is_over(answers[row])
            ]
            if not going_on:
                return answers
            if len(going_on) < len(alive):
                alive = [alive[place] for place in going_on]
                draws = [draws[place] for place in going_on]
                kept = torch.tensor(going_on, device=self.device)
                chosen, real = chosen[kept], real[kept]
                cache.batch_select_indices(kept)
            ends = [[len(sequences[row]) + len(answers[row]) - 1] for row in alive]
            positions = torch.tensor(ends, device=self.device)
            real = torch.cat([real, real.new_ones(len(alive), 1)], dim=1)
            mask = real
            if leaves_window:  # where a column's token stands follows from how many tokens there are before it
                mask = self._masked(real[:, None].bool(), positions, real.cumsum(1) - 1, self._reach)
            output = self._model(
                input_ids=chosen[:, None],
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            chosen = _choose(output.logits[:, -1], temperature, draws)

    def _started(self, sequences: Sequence[list[int]], shared: int) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """The logits after each sequence, the cache, and which of its places hold tokens."""
        rows = [sequence[shared:] for sequence in sequences]
        logits, cache = self.last(rows, self._prefix(list(sequences[0][:shared])), shared)
        return logits, cache, self._real(rows, shared)

    def _prefix(self, tokens: list[int]) -> Any:
        """The keys and values of a prefix, computed from where it differs from the last one."""
        if not tokens:
            return None
        known, cache = self._kept or ([], None)
        common = common_prefix(known, tokens)
        if common < len(tokens):
            _, cache = self.forward([tokens[common:]], cache if common else None, common, keep=1)
            self._kept = (tokens, cache)
        return cache  # may know more than was asked for: who uses it takes a copy of as much as is shared

    def last(self, rows: Sequence[Sequence[int]], prefix: Any, past: int) -> tuple[torch.Tensor, Any]:
        """As `forward`, with the logits of each row's last token alone: rows × vocabulary."""
        ends = [len(row) - 1 for row in rows]
        places = sorted(set(ends))
        logits, cache = self.forward(rows, prefix, past, torch.tensor(places, device=self.device))
        return logits[list(range(len(rows))), [places.index(end) for end in ends]], cache

    def _real(self, rows: Sequence[Sequence[int]], past: int) -> torch.Tensor:
        """Which places hold tokens, the rest being padding on the right: rows × (past + width)."""
        width = max(map(len, rows))
        return torch.tensor([[1] * (past + len(row)) + [0] * (width - len(row)) for row in rows], device=self.device)

    def forward(
        self, rows: Sequence[Sequence[int]], prefix: Any, past: int, keep: int | torch.Tensor
    ) -> tuple[torch.Tensor, Any]:
        """One pass over rows of token ids that follow a prefix of length `past`. Logits and the new cache."""
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *([0] * (width - len(row)))] for row in rows], device=self.device)
        cache: Any = None
        if self._shares:  # a cache of the model's own making would forget what is outside a sliding window
            cache = transformers.DynamicCache() if prefix is None else _copies(prefix, len(rows), past)
        output = self._model(
            input_ids=ids,
            attention_mask=self._real(rows, past),
            past_key_values=cache,
            use_cache=self._shares,
            logits_to_keep=keep,
        )
        return _kept(output.logits, keep), cache

    def follow(
        self,
        cache: Any,
        lengths: Sequence[int],
        filled: int,
        steps: Sequence[Sequence[tuple[int, Sequence[int]]]],
    ) -> torch.Tensor:
        """One pass that takes several continuations of every row a token further, side by side, each unseen by others.

        Args:
            cache: keys and values of the rows, `filled` wide, to which those of the tokens are added.
            lengths: how much of it is each row's own; what follows is padding or earlier continuations.
            filled: width of the cache.
            steps: each row's new tokens, with the columns of the cache that hold the continuation before them.
        """
        width = max(map(len, steps))
        ids, positions = torch.zeros(2, len(steps), width, dtype=torch.long)
        seen = torch.zeros(len(steps), width, filled + width, dtype=torch.bool)
        places = torch.arange(filled + width).repeat(len(steps), 1)
        for row, own in enumerate(lengths):
            seen[row, :, :own] = True  # for padding as well: a token that sees nothing is not a number
            for column, (token, before) in enumerate(steps[row]):
                path = [*before, filled + column]
                ids[row, column] = token
                positions[row, column] = own + len(before)
                places[row, path] = torch.arange(own, own + len(path))
                seen[row, column, path] = True
        ids, positions, seen, places = (part.to(self.device) for part in (ids, positions, seen, places))
        output = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=self._masked(seen, positions, places, self._reach),
            past_key_values=cache,
            use_cache=True,
        )
        return output.logits

    def can_follow(self, longest: int) -> bool:
        """Whether continuations may be computed side by side with this engine's attention."""
        return self._adds_masks and self.can_write(longest)

    def _masked(self, seen: torch.Tensor, positions: torch.Tensor, places: torch.Tensor, reach: int | None) -> Any:
        """What the layers take as attention masks: two where only some have a window and a token is beyond it.

        Args:
            seen: which columns of the cache each new token may see: rows × tokens × columns.
            positions: where in its text each new token stands: rows × tokens.
            places: where that of each column stands: rows × columns.
            reach: how many tokens a window holds.
        """
        whole = self._added(seen)
        if reach is None or positions.max() < reach:
            return whole
        near = self._added(seen & (places[:, None] > positions[:, :, None] - reach))
        return {"full_attention": whole, "sliding_attention": near} if self._is_mixed else near

    def _added(self, seen: torch.Tensor) -> torch.Tensor:
        """A mask as the engine adds it to the attention: rows × heads × tokens × columns."""
        dtype = self._model.dtype
        return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[:, None]

    def _matches_windows(self) -> bool:
        """Whether our masks do what the layers' window does; a few tokens are tried under a window of two.

        Not every model takes masks by kind of layer, and a window may stand in the configuration of layers without one.
        """
        config = self._model.config.get_text_config()
        tokens = torch.arange(_TRIED, device=self.device)[None]
        before = tokens[0] <= tokens[0][:, None]

        def logits(mask: Any = None) -> torch.Tensor:
            output = self._model(input_ids=tokens, position_ids=tokens, attention_mask=mask, use_cache=False)
            return output.logits.float()

        try:
            with torch.inference_mode(), float32_head(self._model):
                wide = logits()
                ours = logits(self._masked(before[None], tokens, tokens, reach=2))
                with _narrowed(config, 2):
                    narrow = logits()
        except Exception:  # noqa: BLE001 - whatever a model makes of masks it does not know
            return False
        return bool((ours - narrow).abs().max() < 0.1 * (wide - narrow).abs().max())


class LabelVisits:
    """Answers visits to the label trees of one batch of prompts; keeps their keys and values between levels."""

    def __init__(self, reader: PrefixReader, sequences: Sequence[list[int]], prefix: Any, shared: int) -> None:
        self._reader = reader
        self._sequences = sequences
        self._prefix = prefix
        self._shared = shared
        self._cache: Any = None
        self._filled = 0
        self._columns: dict[tuple[int, Tokens], tuple[int, ...]] = {(row, ()): () for row in range(len(sequences))}

    def look(self, visits: list[Visit]) -> list[Mapping[int, float]]:
        """Log-probabilities of the wanted tokens after each visit's prompt and path."""
        if not visits[0][1]:
            return self._first(visits)
        most = max(Counter(prompt for prompt, _, _ in visits).values())
        if self._cache is not None and self._reader.can_follow(self._filled + most):
            return self._follow(visits)
        self._cache = None  # what is not kept once cannot be gone on from
        return self._again(visits)

    def _first(self, visits: list[Visit]) -> list[Mapping[int, float]]:
        rows = [sequence[self._shared :] for sequence in self._sequences]
        logits, self._cache = self._reader.last(rows, self._prefix, self._shared)
        self._filled = self._shared + max(map(len, rows))
        return [_wanted(logits[prompt], tokens) for prompt, _, tokens in visits]

    def _follow(self, visits: list[Visit]) -> list[Mapping[int, float]]:
        """Each path is one token longer than one that was visited before, whose keys and values are kept."""
        steps: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in self._sequences]
        places: list[tuple[int, int]] = []
        for prompt, path, _ in visits:
            before = self._columns[prompt, path[:-1]]
            places.append((prompt, len(steps[prompt])))
            self._columns[prompt, path] = (*before, self._filled + len(steps[prompt]))
            steps[prompt].append((path[-1], before))
        lengths = [len(sequence) for sequence in self._sequences]
        logits = self._reader.follow(self._cache, lengths, self._filled, steps)
        self._filled += max(map(len, steps))
        return [
            _wanted(logits[row, column], wanted) for (row, column), (_, _, wanted) in zip(places, visits, strict=True)
        ]

    def _again(self, visits: list[Visit]) -> list[Mapping[int, float]]:
        """Without continuations side by side: every visit as a sequence of its own, one at a time."""
        answers = []
        for prompt, path, tokens in visits:
            logits, _ = self._reader.forward([[*self._sequences[prompt], *path]], None, 0, keep=1)
            answers.append(_wanted(logits[0, -1], tokens))
        return answers


@contextmanager
def _narrowed(config: Any, reach: int) -> Iterator[None]:
    """Give a model's windows another width for a while."""
    own = config.sliding_window
    config.sliding_window = reach
    try:
        yield
    finally:
        config.sliding_window = own


def _draws(sequence: Sequence[int], seed: int) -> random.Random:
    """Random numbers for a sequence, the same on every device."""
    return random.Random(f"{seed} {' '.join(map(str, sequence))}")  # noqa: S311 - no secret hangs on it


def _choose(logits: torch.Tensor, temperature: float, draws: Sequence[random.Random]) -> torch.Tensor:
    """The next token of each row: the most probable one, or one drawn from all."""
    if temperature == 0:
        return logits.argmax(-1)
    reached = (logits.double() / temperature).softmax(-1).cumsum(-1)
    drawn = torch.tensor([[one.random()] for one in draws], dtype=torch.float64, device=logits.device)
    return torch.searchsorted(reached, drawn * reached[:, -1:]).squeeze(-1).clamp(max=logits.shape[-1] - 1)


def _wanted(logits: torch.Tensor, tokens: Sequence[int]) -> Mapping[int, float]:
    logprobs = logits.float().log_softmax(-1)[torch.tensor(list(tokens), device=logits.device)]
    return dict(zip(tokens, logprobs.tolist(), strict=True))


def _copies(cache: Any, count: int, length: int) -> Any:
    """A new cache with the first `length` tokens of a one-row cache in each of `count` rows."""
    copies = transformers.DynamicCache()
    for number, layer in enumerate(cache.layers):
        keys, values = (part[:, :, :length].expand(count, -1, -1, -1) for part in (layer.keys, layer.values))
        copies.update(keys, values, number)
    return copies


def _kept(logits: torch.Tensor, keep: int | torch.Tensor) -> torch.Tensor:
    """The logits that were asked for, of a model that may have ignored `logits_to_keep`."""
    if isinstance(keep, torch.Tensor):
        return logits if logits.shape[1] == len(keep) else logits[:, keep]
    return logits[:, -keep:]


def _stacked(caches: Sequence[Any]) -> Any:
    """One cache with the rows of all, padded on the right to one width. The others are emptied on the way."""
    if len(caches) == 1:
        return caches[0]
    width = max(cache.get_seq_length() for cache in caches)
    stacked = transformers.DynamicCache()
    for number, layers in enumerate(zip(*(cache.layers for cache in caches), strict=True)):
        keys, values = (
            torch.cat([torch.nn.functional.pad(part, (0, 0, 0, width - part.shape[2])) for part in parts])
            for parts in zip(*((layer.keys, layer.values) for layer in layers), strict=True)
        )
        stacked.update(keys, values, number)
        for layer in layers:
            layer.keys = layer.values = None
    return stacked


@contextmanager
def float32_head(model: Any) -> Iterator[None]:
    """Compute logits in float32 for a while: bfloat16 rounds those of about 20 to steps of an eighth.

    A head whose weights another library moves about (accelerate's offloading) is left as it is.
    """
    head = model.get_output_embeddings()
    own = vars(head).get("forward") if head is not None else None
    rounds = isinstance(head, torch.nn.Linear) and head.weight.dtype in (torch.bfloat16, torch.float16)
    if not rounds or own is not None or hasattr(head, "_hf_hook") or head.weight.is_meta:
        yield
        return
    weight = head.weight.float()
    bias = head.bias.float() if head.bias is not None else None
    head.forward = lambda hidden: torch.nn.functional.linear(hidden.float(), weight, bias)
    try:
        yield
    finally:
        del head.forward

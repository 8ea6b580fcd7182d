"""Prompts: the grid to the byte, the registry, user prompts, languages, wrappers and presets."""

from __future__ import annotations

import hashlib
import itertools
import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptmetric.errors import InputError, PromptError
from promptmetric.prompts import (
    LanguagePair,
    PromptSpec,
    find_model,
    get_prompt,
    grid,
    presets,
    prompt_ids,
    recommend,
    registry,
    wrap,
)
from promptmetric.prompts.languages import language_name
from promptmetric.questions import Message
from promptmetric.types import Demonstration, Sample

SAMPLE = Sample("Guten {hyp} {{ src }}", "Good “day”", examples=(Demonstration("a {src}", "b", "5"),))
PAIR = LanguagePair("en", "de")

# SHA-256 over the rendered prompts joined by NUL, computed from the published strings.
GOLDEN = {
    ("zero_shot_base", "en_de"): "01945e45101c98bc737094f89bc5595f5e19fcb15274fb4da7d1d6ed1d73c3d5",
    ("zero_shot_base", "summarization"): "d2268093f6321f37d60feafdd61418605acb9cd5eb0dbd873bc9c49cbc5810cd",
    ("one_shot_base", "zh_en"): "4a8f202d24e727c14048018c6274a336dc0e7a5f55df02e28d6b920771831cea",
    ("one_shot_base", "summarization"): "01dbbf360bfeee422078812d827b7b3532c7a3e7183d047bff330cefd4dc0256",
}


def _rendered(kind: str, task: str) -> list[str]:
    prefix = "zs" if kind == "zero_shot_base" else "os"
    langs = None if task == "summarization" else LanguagePair.parse(task)
    prompts = []
    for prompt_id in grid.ids():
        parts = prompt_id.removeprefix("prexme:").split("/")
        if not parts[0].startswith(prefix) or any(part.endswith("-fixed") for part in parts):
            continue
        messages = get_prompt(prompt_id).render(SAMPLE, "translation" if langs else "summarization", langs)
        assert [turn.role for turn in messages] == ["user"]
        prompts.append(messages[0].content)
    return prompts


@pytest.mark.parametrize(("kind", "task"), GOLDEN)
def test_grid_renders_as_published_by_hash(kind: str, task: str) -> None:
    rendered = _rendered(kind, task)
    assert len(rendered) == 720
    assert hashlib.sha256("\0".join(rendered).encode()).hexdigest() == GOLDEN[kind, task]


@pytest.mark.data
@pytest.mark.parametrize("kind", ["zero_shot_base", "one_shot_base"])
@pytest.mark.parametrize("task", ["en_es", "en_zh", "en_de", "zh_en", "he_en", "summarization"])
def test_grid_renders_as_published(kind: str, task: str, data_folder: Path) -> None:
    published = json.loads((data_folder / "prexme/prompts.json").read_text(encoding="utf-8"))
    result_type = "Summary" if task == "summarization" else "Translation"
    example = SAMPLE.examples[0]
    expected = [
        base["prompt"].format(
            task_description=description["description"].format(task_specific_insert=published["task_inserts"][task]),
            format_prompt=form["format_prompt"].format(result_type=result_type.lower()),
            result_type=result_type,
            src=SAMPLE.src,
            hyp=SAMPLE.hyp,
            ex1_src=example.src,
            ex1_hyp=example.hyp,
            ex1_score=example.score,
        )
        for base, description, form in itertools.product(
            published[kind], published["task_descriptions"], published["format_prompts"]
        )
    ]
    assert _rendered(kind, task) == expected


def test_broken_parts_stand_as_published_and_mended() -> None:
    for broken, mended in (
        ("prexme:zs/emphasis/0..100", "prexme:zs/emphasis-fixed/0..100"),
        ("prexme:zs/relaxed/0..100", "prexme:zs/relaxed-fixed/0..100"),
        ("prexme:zs/polite/-5..5", "prexme:zs/polite/-5..5-fixed"),
    ):
        assert get_prompt(broken).defect
        assert get_prompt(mended).defect is None
        assert get_prompt(mended).provenance
    text = get_prompt("prexme:zs/polite/-5..5-fixed").render(SAMPLE, "translation", PAIR)[0].content
    assert "where -5 indicates that the translation is very bad" in text
    assert (
        get_prompt("prexme:zs/emphasis/0..100").render(SAMPLE, "translation", PAIR)[0].content.startswith("Empathetic ")
    )


def test_every_prompt_loads_and_every_id_names_itself() -> None:
    ids = list(prompt_ids())
    assert len(ids) == len(set(ids)) == 6 * 26 * 11 + 7
    assert all(get_prompt(prompt_id).id == prompt_id for prompt_id in ids)


def test_unknown_languages_are_left_out_not_guessed() -> None:
    spec = get_prompt("prexme:zs/neutral/0..100")
    first = spec.render(SAMPLE, "translation")[0].content.splitlines()[0]
    assert first == "Judge the quality of the following translation. "
    own = Sample("a", "b", src_lang="en", tgt_lang="pt_BR")
    assert "from English to Portuguese (Brazil)." in spec.render(own, "translation", PAIR)[0].content


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_segment_reaches_the_model_as_it_is(text: str) -> None:
    spec = get_prompt("prexme:zs/neutral/0..100")
    content = spec.render(Sample(text, "hyp"), "translation", PAIR)[0].content
    assert f"\nSource Text: {text} \nTranslation: hyp \n" in content


def test_one_shot_prompts_want_demonstrations() -> None:
    with pytest.raises(PromptError, match="the sample has none"):
        get_prompt("prexme:os/neutral/0..100").render(Sample("a", "b"), "translation", PAIR)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("prexme:zs/neutral", "not a prompt of the grid"),
        ("prexme:zs/neutrall/0..100", "unknown description 'neutrall'"),
        ("prexme:xx/neutral/0..100", "unknown base 'xx'"),
        ("prexme:zs/neutral/0..7", "unknown format '0..7'"),
        ("demo-translaton", "Did you mean demo-translation"),
        ("zzz", "prompts list"),
        ("missing.toml", "missing.toml: cannot be read"),
    ],
)
def test_unknown_prompts_get_a_way_out(name: str, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        get_prompt(name)


OWN = """
id = "mine"
scale = { kind = "numeric", min = 1, max = 5, step = 1 }

[[messages]]
role = "user"
content = "{{ src_lang }}: {{ src }} {{ hyp }}"
"""


def test_own_prompts_load_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN, encoding="utf-8")
    spec = get_prompt(str(path))
    assert spec == get_prompt(path) == get_prompt(spec)
    assert spec.render(Sample("a", "b"), "translation", PAIR) == (Message("user", "English: a b"),)
    with pytest.raises(PromptError, match="src_lang"):
        spec.render(Sample("a", "b"), "translation")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{{ src }}", "{{ source }}", "messages.0.content: .*unknown placeholder source"),
        ("{{ src }}", "{{ src", "not a valid template"),
        ("{{ hyp }}", "", "no message shows"),
        ('id = "mine"', 'id = "mine"\ntypo = 1', "typo: Extra inputs"),
        ("max = 5", "max = 1", "min < max"),
        ('kind = "numeric"', 'kind = "other"', "scale: "),
        ('id = "mine"', "id = ", "not valid TOML"),
        ('role = "user"', 'role = "narrator"', "messages.0.role"),
    ],
)
def test_own_prompts_fail_at_load_with_the_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace(old, new), encoding="utf-8")
    with pytest.raises(PromptError, match=message):
        get_prompt(path)


@pytest.mark.parametrize(
    "attack",
    [
        "{{ hyp.__class__.__mro__ }}",
        "{{ ''.__class__ }}{{ hyp }}",
        "{{ hyp }}{% for a in range(1000000000) %}x{% endfor %}",
        "{{ hyp }}{{ 1 / 0 }}",
    ],
)
def test_templates_are_sandboxed(attack: str) -> None:
    spec = PromptSpec.model_validate(
        {"id": "x", "messages": [{"role": "user", "content": attack + "{{ hyp }}"}], "scale": {"kind": "mqm"}}
    )
    with pytest.raises(PromptError, match="cannot be filled"):
        spec.render(Sample("a", "b"), "translation")


def test_installed_prompts_come_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN, encoding="utf-8")
    entry = EntryPoint("mine", "tests_fake:path", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: str(path))
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    registry._installed.cache_clear()
    try:
        assert get_prompt("mine").scale.bounds == (1, 5)
    finally:
        registry._installed.cache_clear()


def test_content_hash_follows_the_content_not_the_name() -> None:
    spec = get_prompt("prexme:zs/neutral/0..100")
    assert spec.content_hash == spec.model_copy(update={"id": "other"}).content_hash
    assert spec.content_hash != spec.model_copy(update={"max_tokens": 7}).content_hash


def test_language_names() -> None:
    assert [language_name(code) for code in ("en", "de", "es", "zh", "he")] == [
        "English",
        "German",
        "Spanish",
        "Chinese",
        "Hebrew",
    ]
    assert language_name("zh_TW") == "Chinese (Traditional, Taiwan)"
    assert language_name("hsb") == "Upper Sorbian"


def test_language_pairs() -> None:
    assert LanguagePair.parse("en-de") == LanguagePair.parse("en_de") == PAIR
    assert str(LanguagePair.parse("en-pt_BR")) == "en-pt_BR"


@pytest.mark.parametrize("text", ["en", "", "-", "en-", "en-xx", "pt-BR-en", "en-de-fr", "english-german", "en-de_QQQ"])
def test_bad_language_pairs(text: str) -> None:
    with pytest.raises(InputError):
        LanguagePair.parse(text)


def test_wrappers_are_the_published_ones() -> None:
    asked = (Message("user", "PROMPT"),)
    orca = "### Instruction:\n\nPROMPT\n### Response:\n"
    assert wrap(asked, "Open-Orca/OpenOrca-Platypus2-13B") == orca
    assert wrap(asked, "NousResearch/Nous-Hermes-13b") == orca
    assert wrap(asked, "TheBloke/Platypus2-70B-Instruct-GPTQ") == (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request."
        "\n\n### Instruction:\nPROMPT\n\n### Response:\n"
    )
    assert wrap(asked, "Unbabel/TowerInstruct-13B-v0.1") == asked
    begun = (*asked, Message("assistant", "Score:"))
    assert wrap(begun, "NousResearch/Nous-Hermes-13b") == orca + "Score:"


def test_models_are_found_by_preset_hub_id_and_folder() -> None:
    for name in (
        "tower-13b",
        "Unbabel/TowerInstruct-13B-v0.1",
        "/models/TowerInstruct-13B-v0.1/",
        "towerinstruct-13b-v0.1",
    ):
        found = find_model(name)
        assert found is not None
        assert found.name == "tower-13b"
    assert find_model("somebody/else") is None


def test_every_measured_model_has_a_choice_and_prompts_exist() -> None:
    choices = {choice.model: choice for choice in presets.evidence().choices}
    assert choices.keys() == {model.name for model in presets.models() if model.paper_name} | {"any"}
    for choice in choices.values():
        assert get_prompt(choice.prompt).defect is None
        assert choice.grid_median <= choice.pattern_median <= choice.grid_max


def test_recommendation_says_what_it_rests_on() -> None:
    measured = recommend("platypus2-70b", "translation", LanguagePair("zh", "en"))
    assert measured.measured
    assert measured.prompt.endswith("-100..100")
    assert not recommend("platypus2-70b", "translation", LanguagePair("en", "fr")).measured
    assert not recommend("platypus2-70b", "translation").measured
    assert recommend("platypus2-70b", "summarization").measured
    unknown = recommend("somebody/else", "translation", PAIR)
    assert not unknown.measured
    assert "nothing was measured for somebody/else" in unknown.why


@pytest.mark.data
def test_shipped_evidence_is_what_the_script_computes(data_folder: Path) -> None:
    import subprocess
    import sys

    script = Path(__file__).parents[1] / "benchmarks/presets.py"
    done = subprocess.run(
        [sys.executable, str(script), "--data", str(data_folder), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

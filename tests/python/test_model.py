"""Models of `foci train`, tokenizers."""
import json
import subprocess
import threading

import numpy as np
import pytest
from conftest import ROOT

import foci
from foci._command import COMMAND

TEXT = ["It is a truth universally acknowledged", "", "naïve 東京 \N{GRINNING FACE}", "a\0b"]


def train(folder, *arguments):
    subprocess.run([COMMAND, "train", *arguments, "--steps", "2", "--dim", "16", "--layers", "1", "--heads", "2", "--quiet",
                    "--out", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    (place / "text").write_text("It is a truth universally acknowledged, that a man is in want of a wife.\n" * 40)
    return train(place / "lm", "lm", "--data", str(place / "text"), "--context", "32", "--batch", "4")


def test_a_language_model(folder, tmp_path):
    model = foci.Model.from_folder(folder)
    assert model.task == "lm" and model.config["width"] == 16 and set(model.params) > {"embedding"}
    said = subprocess.run([COMMAND, "generate", folder, "--prompt", "It is", "--tokens", "20", "--temperature", "0",
                           "--json"], check=True, stdout=subprocess.PIPE).stdout
    text = model.generate("It is", 20)
    assert text == json.loads(said)["text"]
    ids = model.tokenizer.encode("It is")
    assert model.tokenizer.decode(model.generate(ids, 20)) == text
    assert model.generate("It is", 20, temperature=1, seed=3) == model.generate("It is", 20, temperature=1, seed=3)
    pieces = []
    assert model.generate("It is", 20, on_text=lambda piece: pieces.append(piece) or len(pieces) == 3) == "".join(pieces)
    with pytest.raises(KeyError):
        model.generate("It is", 20, on_text=lambda piece: {}["nothing"])

    # logits step by step are those behind the loss
    sequences, nats = model.sequences(1), []
    for now, then in zip(ids[:-1], ids[1:]):
        logits = sequences.step([[now]])[0].astype(float)
        nats.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[then])
    loss = model.loss("It is")
    np.testing.assert_allclose(loss.nats, nats, atol=1e-5)
    assert loss.loss == pytest.approx(np.mean(nats), abs=1e-5) and loss.labels == len(ids) - 1
    assert sequences.nbytes > 0

    # gradients of the sum, along one direction
    rows = np.stack([ids, ids[::-1]])
    grads = model.loss(rows, gradients=True).gradients
    assert set(grads) == set(model.params)
    flat = model.params.flat
    way = np.random.default_rng(0).standard_normal(flat.size).astype(np.float32)
    kept, sums = flat.copy(), []
    for sign in (1, -1):
        flat[...] = kept + np.float32(sign * 1e-3) * way
        found = model.loss(rows)
        sums.append(found.loss * found.labels)
    flat[...] = kept
    assert (sums[0] - sums[1]) / 2e-3 == pytest.approx(float(grads.flat.astype(float) @ way), rel=0.02, abs=1e-2)

    model.params["embedding"][:] = 0
    model.save(tmp_path / "changed")
    assert not foci.Model.from_folder(tmp_path / "changed").params["embedding"].any()
    view = model.params["embedding"]
    del model, sequences
    assert not view.any()
    scores = foci.Model(folder).evaluate("--data", str(folder.parent / "text"))
    assert scores["perplexity"] > 1


def test_one_thread_at_a_time(folder):
    model = foci.Model.from_folder(folder)
    thread = threading.Thread(target=model.sequences)
    with model._locked.lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join()


def test_what_a_model_looks_at(folder):
    model = foci.Model(folder)
    (found,) = model.attentions("It is")
    assert found.name == "block 0" and found.weights.shape == (2, 5, 5) and len(found.keys) == 5
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(found.weights, 1).any() and found.queries[0] == "I"
    figures = foci.head_figures(found.weights, causal=True)
    assert figures[1]["concentration"] == pytest.approx(
        np.mean([foci.concentration(row[:i + 1]) for i, row in enumerate(found.weights[1])]), abs=1e-6)
    picture = foci.show_model(str(folder), "It is", heads="1")
    assert picture.svg.startswith("<svg")
    report = foci.show_report(str(folder))
    assert "lm" in repr(report) and "<iframe srcdoc=" in report._repr_html_() and "<html" in report.page


def test_a_translation(tmp_path):
    (tmp_path / "pairs.tsv").write_text("ein Haus\ta house\nein Hund\ta dog\n" * 10)
    folder = train(tmp_path / "mt", "translate", "--data", str(tmp_path / "pairs.tsv"), "--context", "16", "--batch", "4")
    model = foci.Model.from_folder(folder)
    (tmp_path / "lines").write_text("ein Hund\nein Haus\n")
    said = subprocess.run([COMMAND, "translate", folder, tmp_path / "lines", "--beam", "2", "--quiet"], check=True,
                          stdout=subprocess.PIPE).stdout.decode()
    assert model.translate(["ein Hund", "ein Haus"], beam=2) == said.split("\n")[:2]
    assert model.translate("ein Hund", beam=2) == said.split("\n")[0]
    assert model.translate([]) == []
    row = model.tokenizer.encode("ein Hund")
    assert {a.name for a in model.attentions("a dog", "ein Hund")} == {
        "encoder block 0", "decoder block 0", "decoder block 0 cross"}
    loss = model.loss([[1, 2, 3]], [[2, 3, -1]], source=[row])
    assert loss.labels == 2 and loss.loss > 0


def test_tokenizers(tmp_path):
    (tmp_path / "text").write_text(" ".join(TEXT[:3]) * 5, encoding="utf-8")
    for kind in ("bytes", "bpe:300"):
        made = foci.Tokenizer.train(kind, [tmp_path / "text"])
        assert [made.decode(ids) for ids in made.encode_all(TEXT)] == TEXT
    made.save(tmp_path / "tokenizer.json")
    read = foci.Tokenizer.load(tmp_path)
    assert read.info() == made.info() and len(read) == read.info()["tokens"] and read.specials["pad"] == 0
    ids = read.encode("a truth")
    assert list(read.words(ids)) == sorted(read.words(ids))
    decoder = foci.Decoder(read)
    assert "".join([decoder([i]) for i in read.encode(TEXT[2])] + [decoder([], end=True)]) == TEXT[2]
    assert read.decode([1]) == "" and read.decode([1], specials=True) == "<bos>"


def test_refused(folder, tmp_path):
    model = foci.Model(folder)
    for call, error, sentence in (
            (lambda: foci.Model(tmp_path / "nothing"), foci.FileError, "cannot be opened"),
            (lambda: foci.Tokenizer.load(tmp_path / "nothing"), foci.FileError, "."),
            (lambda: foci.Tokenizer.train("lettres", []), foci.Error, "."),
            (lambda: foci.Tokenizer.train("chars", [tmp_path / "nothing"]), foci.FileError, "."),
            (lambda: model.loss([[99999]]), foci.ArgumentError, "ids are 0 to"),
            (lambda: model.loss([[-1]]), foci.ArgumentError, "ids are 0 to"),
            (lambda: model.loss([[1.5]]), foci.ArgumentError, "whole numbers"),
            (lambda: model.loss([[1, 2], [1]]), foci.ArgumentError, "ids: the lists in it differ in length"),
            (lambda: model.loss([[[1, 2]]]), foci.ArgumentError, r"ids has shape \(1, 1, 2\)"),
            (lambda: model.loss([[1, 2]], [[1]]), foci.ArgumentError, "labels has shape"),
            (lambda: model.loss([[1, 2]], [[1, 99999]]), foci.ArgumentError, "labels are below"),
            (lambda: model.loss([[1, 2]], lengths=[3]), foci.ArgumentError, "lengths are 0 to 2"),
            (lambda: model.loss([[1] * 33]), foci.Error, "."),
            (lambda: model.loss([[]]), foci.Error, "."),
            (lambda: model.generate([99999]), foci.ArgumentError, "."),
            (lambda: model.generate("x", -1), foci.Error, "."),
            (lambda: model.translate("x"), foci.UnsupportedError, "only a model of task translate"),
            (lambda: model.sequences(0), foci.Error, "."),
            (lambda: model.sequences(2).step([[1]]), foci.ArgumentError, "1 rows of ids for 2 sequences"),
            (lambda: model.sequences(1).step([[99999]]), foci.ArgumentError, "ids are 0 to"),
            (lambda: model.sequences(2).reorder([5]), foci.ArgumentError, "sequences are 0 to 1"),
            (lambda: model.tokenizer.decode([99999]), foci.ArgumentError, "."),
            (lambda: model.evaluate("--data", "nothing"), foci.Error, "nothing")):
        with pytest.raises(error, match=sentence):
            call()


def test_the_sets_that_come_with_it():
    assert (COMMAND.parent / "data").is_dir() and (ROOT / "data").is_dir()
    assert foci.command("--version") == f"foci {foci.__version__}\n"

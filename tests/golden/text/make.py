"""make.py -- write cases.json: what `tokenizers` and `sacrebleu` make of small texts.

    python3 -m venv DIR && DIR/bin/pip install tokenizers==0.23.3 sacrebleu==2.6.0
    DIR/bin/python tests/golden/text/make.py

Tokenizers are trained on corpus.txt and, in several variants, written as files; texts.c
reads these, and trains its own.  Ids and texts are those of the libraries.
"""
import json
import pathlib
import random

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE / "corpus.txt"
SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>", "<mask>"]
BYTE_SPECIAL = ["<pad>", "<bos>", "<eos>", "<mask>"]

LINES = [
    "", " ", "a", "\n", "  two  blanks  ", "It was the best of times, it wasn't the worst.",
    "Sir Walter Elliot, of Kellynch Hall, in Somersetshire", "aaaaaaaaaaaaaaaaaaaaaaaa",
    "Grüße aus Köln: 12,5 % mehr Umsatz", "Chúng tôi uống cà phê ở Hà Nội.",
    "\u6771\u4eac\u3067\u3059\u3002", "\U0001f600\U0001f44d\U0001f3fd ok", "1234567890 \u00bd \u2167 \u0663\u0664",
    "tab\tand\u00a0no-break\u3000wide\u2028line\u0085next", "trailing   \n\n  lines \n", "they'll we've I'm he'd it's 'tis o'clock 'S",
    "a <unk> b<pad>c <mask>d", "x<|endoftext|>y  <|endoftext|>  z", "[SEP] the [SEP]the", "e\u0301 combining \u200d joiner",
    "\u0000\u0001\u007f control", "\ufffd \ufeffmark", "don't DON'T Don't", "...!?!?--- ((nested))", "\u01c5 \u0378 \ue000",
]


def train(size, min_count=2, special=BYTE_SPECIAL):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train([str(CORPUS)], trainers.BpeTrainer(
        vocab_size=size, min_frequency=min_count, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok


def words():
    tok = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    vocab, count = {name: i for i, name in enumerate(SPECIAL)}, {}
    for line in CORPUS.read_text().split("\n"):
        for word in line.split():
            count[word] = count.get(word, 0) + 1
    for word in sorted(count, key=lambda w: (-count[w], w)):
        vocab.setdefault(word, len(vocab))
    tok.model = models.WordLevel(vocab, unk_token="<unk>")
    tok.add_special_tokens(SPECIAL)
    return tok


def chars():
    vocab = {name: i for i, name in enumerate(SPECIAL)}
    for c in sorted(set(CORPUS.read_text())):
        vocab[c] = len(vocab)
    tok = Tokenizer(models.BPE(vocab, [], unk_token="<unk>"))
    tok.decoder = decoders.Fuse()
    tok.add_special_tokens(SPECIAL)
    return tok


def all_bytes():
    alphabet = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    shown = {b: chr(b) for b in alphabet}
    for b in range(256):
        shown.setdefault(b, chr(256 + b - sum(x < b for x in alphabet)))
    vocab = {name: i for i, name in enumerate(BYTE_SPECIAL)}
    for b in range(256):
        vocab[shown[b]] = len(vocab)
    tok = Tokenizer(models.BPE(vocab, []))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(BYTE_SPECIAL)
    return tok


def variant(tok, **changes):
    """The same file with other switches."""
    file = json.loads(tok.to_str())
    for key, value in changes.items():
        step = "pre_tokenizer" if key in file["pre_tokenizer"] else "model"
        file[step][key] = value
    return Tokenizer.from_str(json.dumps(file))


def sparse(tok):
    """Without the bytes that no merge has: what is unknown is <pad>, runs as one."""
    file = json.loads(tok.to_str())
    merges = file["model"]["merges"]
    kept = set("".join(part for merge in merges for part in merge))
    names = [key for key in file["model"]["vocab"] if len(key) > 1 or key in kept]
    file["model"]["vocab"] = {key: i for i, key in enumerate(names)}
    file["model"].update(unk_token="<pad>", fuse_unk=True)
    file["added_tokens"] = [dict(a, id=names.index(a["content"])) for a in file["added_tokens"]]
    return Tokenizer.from_str(json.dumps(file))


def whole_words():
    """Words that are tokens, though the merges that made them are missing."""
    tok = train(340)
    merges = json.loads(tok.to_str())["model"]["merges"]
    return variant(tok, ignore_merges=True, merges=merges[:-25])


def gpt2():
    tok = train(320, 2, [])
    tok.add_special_tokens(["<|endoftext|>"])
    return tok


def added():
    tok = train(300)
    tok.add_special_tokens([AddedToken("<|endoftext|>", lstrip=True, rstrip=True)])
    tok.add_tokens([AddedToken("[SEP]", rstrip=True, normalized=False), "the", AddedToken("d\u00e4mmer")])
    return tok


def case(name, tok, kind=None, min_count=0):
    ids = [tok.encode(line, add_special_tokens=False).ids for line in LINES]
    tok.encode_special_tokens = True
    plain = [tok.encode(line, add_special_tokens=False).ids for line in LINES]
    tok.encode_special_tokens = False
    # One string with escapes: the file is read as the library wrote it.
    out = dict(name=name, file=tok.to_str(), ids=ids, plain=plain,
               text=[tok.decode(i, skip_special_tokens=True) for i in ids],
               whole=[tok.decode(i, skip_special_tokens=False) for i in ids])
    if kind:
        out.update(kind=kind, min_count=min_count)
    return out


def scores():
    draw = random.Random(1)
    refs = [line for line in CORPUS.read_text().split("\n") if line.strip()]
    refs += ["&quot;A&quot; &amp;lt; B", "1,000.5 and 3-4, a.b -x", "x.", "(short)", "\u00a0 odd\u3000white\x1cspace .\u00e9. "]
    words, pairs = " ".join(refs).split(" "), []
    for ref in refs:
        out = [w for w in ref.split(" ") if draw.random() > 0.1]
        for i in range(len(out) - 1):
            if draw.random() < 0.1:
                out[i], out[i + 1] = out[i + 1], out[i]
        pairs.append((" ".join(draw.choice(words) if draw.random() < 0.1 else w for w in out), ref))
    pairs += [("", "something"), ("nothing alike", "other words"), ("a b", "a b"), ("a b c", "a x c"), ("the", "")]
    bleu, sentence, chrf = BLEU(), BLEU(effective_order=True), CHRF()
    hyps, refs = [p[0] for p in pairs], [p[1] for p in pairs]
    whole = bleu.corpus_score(hyps, [refs])
    return dict(
        pairs=[dict(translation=h, reference=r, bleu=sentence.sentence_score(h, [r]).score,
                    chrf=chrf.sentence_score(h, [r]).score) for h, r in pairs],
        bleu=whole.score, precisions=whole.precisions, brevity=whole.bp, ratio=whole.ratio,
        chrf=chrf.corpus_score(hyps, [refs]).score)


def main():
    assert sacrebleu.__version__ == "2.6.0"
    cases = [
        case("bytes", all_bytes(), "bytes"),
        case("chars", chars(), "chars"),
        case("words", words(), "words"),
        case("bpe", train(400), "bpe:400"),
        case("bpe, all pairs", train(420, 1), "bpe:420", 1),
        case("gpt2", gpt2()),
        case("blank before", variant(train(300), add_prefix_space=True)),
        case("whole words", whole_words()),
        case("one piece", variant(train(300), use_regex=False)),
        case("added", added()),
        case("sparse", sparse(train(300))),
    ]
    def text(value):
        return json.dumps(value, separators=(",", ":"))

    (HERE / "cases.json").write_text(
        '{"lines":%s,\n"tokenizers":[\n%s],\n"scores":%s}\n' % (
            text(LINES), ",\n".join(text(c) for c in cases), text(scores())))


main()

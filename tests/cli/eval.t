# What `foci eval` tells of a small model beside its scores.

=== slices and outputs add up to the scores; validation is that of training
T="--task mqar(vocab=64,length=32,pairs=4) --layers 1 --dim 16 --heads 2 --ffn 0 --batch 16 --threads 1 --quiet"
foci train lm $T --steps 20 --lr 0.01 --seed 3 --out r --json >t.json
foci eval r --split valid --slices --floors --outputs o.jsonl --threads 1 --json >e.json
foci task mqar vocab=64 length=32 pairs=4 --split valid --seed 3 --count 1000 --floors --json >f.json
python3 - <<'END_OF_PYTHON'
import json
t, e, f = (json.load(open(n + ".json")) for n in "tef")
o = [json.loads(line) for line in open("o.jsonl")]
close = lambda a, b: abs(a - b) <= 1e-6 * abs(b)
print(e["split"], close(e["loss"], t["valid_loss"]), close(e["accuracy"], t["valid_accuracy"]))
for name, values in e["slices"].items():
    n = sum(v["labels"] for v in values)
    print(name, n == e["tokens"],
          close(sum(v["labels"] * v["accuracy"] for v in values), n * e["accuracy"]),
          close(sum(v["labels"] * v["loss"] for v in values), n * e["loss"]),
          [v["value"] for v in values] == sorted(v["value"] for v in values))
print([x["example"] for x in o] == list(range(1000)), {x["labels"] for x in o},
      close(sum(x["nats"] for x in o), e["tokens"] * e["loss"]),
      close(sum(x["hits"] for x in o), e["tokens"] * e["accuracy"]))
print(e["floors"] == {x["rule"]: x["accuracy"] for x in f}, "chance" in e["floors"])
END_OF_PYTHON
--- stdout
valid True True
pairs True True True True
distance True True True True
True {4} True True
True True

=== a slice of many values is told in powers of two
foci train lm --task "mqar(vocab=128,length=128,pairs=16)" --layers 1 --dim 8 --heads 1 --ffn 0 --steps 2 --batch 4 --threads 1 --quiet --out r >/dev/null
foci eval r --slices --examples 50 --threads 1 --json >e.json
foci eval r --slices --examples 50 --threads 1 | grep -E "distance|^[0-9]+ to"
python3 - <<'END_OF_PYTHON'
import json
e = json.load(open("e.json"))
s = e["slices"]["distance"]
print([(v["from"], v["to"]) for v in s], sum(v["labels"] for v in s) == e["tokens"])
END_OF_PYTHON
--- stdout
distance *
4 to 7 *
8 to 15 *
16 to 31 *
32 to 63 *
64 to 127 *
[(4, 7), (8, 15), (16, 31), (32, 63), (64, 127)] True

=== what a model costs
T="--task copy(symbols=4,longest=4,test=4,form=row) --dim 16 --heads 2 --layers 1 --batch 4 --steps 3 --threads 1 --quiet"
foci train lm $T --attention "1*softmax + 1*fixed(pattern=previous)" --out a >/dev/null
foci eval a --costs --threads 1 --json >a.json
foci train classify --task "listops(depth=2,arguments=3,least=4,most=20)" --attention nystrom --dim 16 --heads 2 --layers 1 --steps 2 --threads 1 --quiet --out c >/dev/null
foci eval c --costs --threads 1 --json >c.json
foci eval a --costs --threads 1 | grep -E "parameters|state|block"
python3 - <<'END_OF_PYTHON'
import json
a, c = (json.load(open(n + ".json"))["costs"] for n in "ac")
print(sorted(a) == sorted(k for k in c if k != "no_decoding"))
print(a["trained_parameters"] == a["parameters"] > 0, a["length"],
      a["forward_flops_per_token"] < a["training_flops_per_token"], a["state_bytes"] > 0,
      all(a[k] > 0 for k in ("decoding_tokens_per_second", "forward_tokens_per_second", "peak_bytes")))
print([(x["name"], x["softmax_error"]) for x in a["attentions"]], 0 < a["concentration"] <= 1)
print(c["state_bytes"], c["decoding_tokens_per_second"], c["no_decoding"])
END_OF_PYTHON
--- stdout
trained parameters *
parameters in all *
bytes of its state *
block 0 *
True
True 9 True True True
[('block 0', 0.0)] True
None None only models of task lm or translate write, token by token

=== reasons where there is no number
foci train lm --task "copy(symbols=4,longest=4,test=4,form=row)" --attention memformer --dim 16 --heads 2 --layers 2 --batch 4 --steps 2 --threads 1 --quiet --out a >/dev/null
foci eval a --costs --threads 1 | grep " has no "
--- stdout
block 0 has no concentration: column 1: memformer has no matrix of weights: *

=== translations one by one have the counts of the whole
for i in $(seq 60); do printf 'one two %d\teins zwei %d\n' $i $i; done >p.tsv
foci train translate --data p.tsv --tokenizer words --steps 60 --lr 0.01 --dim 16 --heads 2 --layers 1 --context 16 --threads 1 --out m --json --quiet >t.json
foci eval m --split valid --outputs o.jsonl --threads 1 --json --quiet >e.json
foci eval m --split train --outputs n.jsonl --threads 1 --json --quiet >n.json
tail -6 p.tsv >v.tsv
foci eval m --data v.tsv --threads 1 --json --quiet >v.json
python3 - <<'END_OF_PYTHON'
import json, math
t, e, v = (json.load(open(n + ".json")) for n in "tev")
o = [json.loads(line) for line in open("o.jsonl")]
n = [json.loads(line) for line in open("n.jsonl")]
print(abs(e["loss"] - t["valid_loss"]) < 1e-6, [x["source"] for x in n + o] == list(range(60)))
first = o[0]["source"]
print(len(o) < 7, [x["hypothesis"] for x in o][0] != "")
# BLEU with smoothing "exp", and chrF2, from the sums alone
b = lambda key: [sum(x) for x in zip(*(s["bleu"][key] for s in n))]
match, total = b("match"), b("total")
sys = sum(s["bleu"]["length"] for s in n)
ref = sum(s["bleu"]["reference"] for s in n)
smooth, logs = 1, []
for m, k in zip(match, total):
    if k == 0: break
    if m == 0:
        smooth *= 2
        m = 1 / smooth
    logs.append(math.log(m / k))
bleu = 100 * math.exp(sum(logs) / 4) * min(1, math.exp(1 - ref / sys)) if len(logs) == 4 else 0
c = lambda key: [sum(x) for x in zip(*(s["chrf"][key] for s in n))]
p = [m / k for m, k in zip(c("match"), c("translation")) if k]
r = [m / k for m, k in zip(c("match"), c("reference")) if k]
p, r = sum(p) / len(p), sum(r) / len(r)
whole = json.load(open("n.json"))
print(bleu > 0, abs(bleu - whole["bleu"]) < 0.01, abs(100 * 5 * p * r / (4 * p + r) - whole["chrf2"]) < 0.01)
END_OF_PYTHON
--- stdout
True True
True True
True True True

=== what is kept to test by, and what is not
printf 'the cat sat on the mat\nthe dog sat on the log\n%.0s' $(seq 40) >t.txt
foci train lm --data t.txt --steps 2 --dim 8 --layers 1 --heads 1 --context 16 --batch 4 --threads 1 --quiet --json >t.json
foci eval foci-lm
foci eval foci-lm --split valid --slices --floors --threads 1 --json >e.json
python3 -c "import json; t, e = json.load(open('t.json')), json.load(open('e.json')); print(abs(t['valid_loss'] - e['loss']) < 1e-6, e['slices'], e['floors'])"
foci eval foci-lm --split valid --data t.txt
printf 'a b c\n' >one.txt
foci train lm --data one.txt --steps 2 --dim 8 --layers 1 --heads 1 --context 4 --batch 1 --threads 1 --quiet --out one >/dev/null
foci eval one --split train --threads 1 | head -1
foci eval one --split valid
foci eval foci-lm --data t.txt --outputs none/o.jsonl --threads 1 >/dev/null
--- stdout
True {} {}
tokens *
--- stderr
foci eval: foci-lm was trained on t.txt, of which no part is kept to test by: give --data FILE, or judge by --split valid
foci eval: there are no floors: these data are of no generator
foci eval: there are no slices: these data are of no generator
foci eval: --split valid is of a generator, or of what the model was trained on; t.txt is read whole
foci eval: one.txt has too few lines for a tenth of them to validate by: all of them trained
foci eval: none/o.jsonl: cannot be made: No such file or directory
--- exit 1

=== a text in windows
printf 'the cat sat on the mat\nthe dog sat on the log\n%.0s' $(seq 40) >t.txt
foci train lm --data t.txt --steps 2 --dim 8 --layers 1 --heads 1 --context 16 --batch 4 --threads 1 --quiet >/dev/null
foci eval foci-lm --data t.txt --outputs o.jsonl --threads 1 --json >e.json
foci eval foci-lm --data t.txt --outputs s.jsonl --stride 4 --threads 1 --json >s.json
python3 - <<'END_OF_PYTHON'
import json
for name in "es":
    e = json.load(open(name + ".json"))
    o = [json.loads(line) for line in open(e["outputs"])]
    n = sum(x["tokens"] for x in o)
    print(n == e["tokens"], abs(sum(x["nats"] for x in o) / n - e["loss"]) < 1e-6, max(x["tokens"] for x in o[1:]))
END_OF_PYTHON
--- stdout
True True 16
True True 4

=== images are cut as in training, whatever they are judged by
npy make x.npy 20x4x4x1
npy make y.npy 20 0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1 --dtype i4
foci train classify --data x.npy --labels y.npy --patch 2 --dim 8 --layers 1 --heads 2 --steps 2 --quiet --out m >/dev/null
foci eval m --data x.npy --labels y.npy >a
foci eval m --data x.npy --labels y.npy --patch 2 >b
cmp a b && head -1 a
foci eval m --data x.npy --labels y.npy --patch 1 || echo $?
--- stdout
tokens * 20
2
--- stderr
foci eval: *images have 16 patches of side 1

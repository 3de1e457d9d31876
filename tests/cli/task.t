# Generated tasks, and files that examples are read from.

=== lists the tasks with their arguments
foci task | grep -v '^  ' | grep -E '^(listops|copy|mqar) '
foci task --json | python3 -c '
import json, sys
for t in json.load(sys.stdin):
    if t["name"] in ("listops", "copy", "mqar"):
        print(t["name"], t["version"], " ".join(a["name"] + "=" + a["default"] for a in t["arguments"]))'
--- stdout
listops *the value of nested lists of operations on digits*
copy *say a sequence of symbols again*
mqar *recall the values of keys that stood in the text before*
listops 1 depth=10 arguments=10 least=501 most=1999
copy 1 symbols=50 least=1 longest=25 test=30 form=pairs
mqar 1 vocab=8192 length=64 pairs=4 power=0.01 filler=zero gap=power compat=none

=== says what a task is
foci task mad_memorise | sed 's/--.*/--/'
foci task mqar --json | python3 -c '
import json, sys
t = json.load(sys.stdin)
print(t["name"], t["slices"], t["floors"], len(t["examples"]), "--layers" in t["preset"], "--epochs" in t["published"])'
--- stdout
mad-memorise: learn a fixed map from keys to values
Poli et al., MAD, 2024; version 1

Arguments
  vocab=256 *
  length=32 *
  map=1 *

Results are reported by
  place

Rules that have learned nothing (--
  chance, most frequent

Preset of foci train, for a CPU
  --

As published (--
  --

Some examples: foci task mad-memorise --
mqar ['pairs', 'distance'] ['chance', 'most frequent', 'last value', 'values in order'] 10 True True

=== prints examples
foci task numbers --count 3
foci task numbers to=vi --split test --count 2 --seed 7
foci task 'listops(3, 3, least=5, most=9)' --count 2
foci task mqar length=12 pairs=2 vocab=20 --count 1
foci task reverse form=masked longest=3 --count 1 --json
--- stdout
ninety-seven thousand four hundred fifty-nine	siebenundneunzigtausendvierhundertneunundfünfzig
five thousand four hundred fourteen	fünftausendvierhundertvierzehn
ninety-nine	neunundneunzig
*	*
*	*
*	[*]
*	[*]
* * * * * * * * * * * *	*=* *=*
{
  "task": "reverse(symbols=50, least=1, longest=3, test=30, form=masked)",
  "examples": [
    {
      "text": "48 * <mark> <mask>*",
      "labels": "*"
    }
  ]
}

=== prints examples of one sequence
for t in "selcopy length=8 tokens=2" "induction length=5" "ngram length=4" "phonebook entries=2 letters=1 digits=3" "needle keys=2 length=8" "vartrack hops=1 chains=1 length=8"; do
    foci task $t --count 1
done
--- stdout
* | |	8=* 9=*
* * * * *	4=*
* * * *	1=* 2=* 3=*
* : * ; * : * ; * : *	13=* 14=* 15=*
*? k*	9=v*
*x* = v* x* = x*? v* x*	9=x* 10=x*

=== prints the same for any number of threads
foci task listops --count 40 --threads 1 > one
foci task listops --count 40 --threads 3 > three
cmp one three && echo same
--- stdout
same

=== writes a file that says what it holds
foci task numbers digits=3 --count 5 --out n.tsv
head -1 n.tsv
sed 1d n.tsv | wc -l
python3 -c '
data = open("n.tsv", "rb").read()
head, rest = data.split(b"\n", 1)
x = 0xcbf29ce484222325
for c in rest:
    x = (x ^ c) * 0x100000001b3 & 0xffffffffffffffff
print(head.decode().endswith("checksum %016x" % x))'
--- stdout
# foci task numbers(to=de, digits=3, tokens=parts), version 1, seed 1, split train, 5 examples, checksum *
5
True

=== floors
foci task mqar length=32 --floors --count 500
foci task mqar length=32 --floors --count 500 --json | grep -c rule
--- stdout
chance            0.02 %
most frequent     *
last value       25.00 %
values in order  *
4

=== refuses what it does not know
foci task mqr
foci task mqar- --count 2
foci task mqar pairs=99
foci task mqar pairs=2 --floors --out x
foci task mqar 'length=4)' softmax
foci task numbers --count 0
--- stderr
foci task: task: column 1: unknown task "mqr"; the nearest is "mqar"
foci task: task: column 1: unknown task "mqar-"; the nearest is "mqar"
foci task: mqar: length=64: 99 pairs and a question for each take 396 at least
foci task: --out is for examples, and --floors prints none
foci task: task: column 15: ", softmax)" is not expected after the task
foci task: --count is '0'; it takes a whole number from 1 to 1073741824
--- exit 2

=== reads what it wrote, plain and compressed
foci task listops depth=3 arguments=3 least=3 most=12 --count 40 --out l.tsv
gzip -k l.tsv
for f in l.tsv l.tsv.gz; do
    foci train classify --data $f --tokenizer words --steps 2 --dim 16 --layers 1 --heads 2 --context 16 --batch 4 --out $f.model --quiet > /dev/null && cmp $f.model/model.safetensors l.tsv.model/model.safetensors && echo same
done
--- stdout
same
same

=== damaged and missing files
foci task numbers --count 2000 --out n.tsv
gzip n.tsv
head -c 9000 n.tsv.gz > cut.gz
python3 -c '
data = bytearray(open("n.tsv.gz", "rb").read())
data[5000:5004] = b"foci"
open("bad.gz", "wb").write(data)'
for f in cut.gz bad.gz . missing; do
    foci train translate --data $f --tokenizer bytes --steps 1 --dim 16 --layers 1 --heads 2 --out m --quiet
done
--- stderr
foci train: cut.gz: cannot be read: its compressed data end too early
foci train: bad.gz: cannot be read: its compressed data are damaged
foci train: .: cannot be opened: Is a directory
foci train: missing: cannot be opened: No such file or directory
--- exit 1

=== arrays in archives
npy make images.npy 12x4x4
npy make labels.npy 12 0,1,2,0,1,2,0,1,2,0,1,2 --dtype u1
python3 -c '
import zipfile
for name, method in ("stored.npz", 0), ("deflated.npz", 8), ("odd.npz", 12):
    with zipfile.ZipFile(name, "w", method) as z:
        z.write("images.npy")
        z.write("labels.npy")'
train() {
    foci train classify "$@" --patch 2 --steps 2 --dim 16 --layers 1 --heads 2 --batch 4 --out m --quiet > /dev/null
}
train --data images.npy --labels labels.npy && cp m/model.safetensors plain
for data in stored.npz deflated.npz deflated.npz:images; do
    rm -r m
    case $data in *:*) set -- --labels stored.npz:labels;; *) set --;; esac
    train --data $data "$@" && cmp plain m/model.safetensors && echo same
done
head -c 700 stored.npz > cut.npz
python3 -c '
data = bytearray(open("deflated.npz", "rb").read())
data[150] ^= 255
open("bad.npz", "wb").write(data)'
for data in odd.npz cut.npz bad.npz labels.npy:x stored.npz:nothing; do
    train --data $data --labels labels.npy
done
--- stdout
same
same
same
--- stderr
foci train: odd.npz:images: is packed by method 12; accepted are 0 (stored) and 8 (deflated)
foci train: cut.npz: is no .npz archive, or one that was cut off
foci train: bad.npz:images: cannot be read: its *
foci train: labels.npy:x: cannot be opened: No such file or directory
foci train: stored.npz: has no array called nothing; it has images, labels: name one as stored.npz:NAME
--- exit 1

=== shipped sets are found, or named
mkdir sets
printf 'a b c\nb c a\n' | gzip > sets/austen-pride.train.txt.gz
FOCI_DATA=sets foci train lm --steps 1 --dim 16 --layers 1 --heads 2 --context 16 --batch 2 --out m --quiet > /dev/null
python3 -c '
import json
print(len(json.load(open("m/tokenizer.json"))["model"]["vocab"]) < 20)'
--- stdout
True

=== published settings repeat what was published, with its quirks
for t in mqar-mix mad-recall mad-noisy mad-fuzzy mad-copy mad-compress; do foci task $t --json; done >j
python3 -c "
import json
text, at, read = open('j').read(), 0, json.JSONDecoder()
while at < len(text.rstrip()):
    t, at = read.raw_decode(text, at)
    at += 1
    print(t['name'], [q for q in ('compat=zoology', 'compat=mad', 'positions=mad') if q in t['published']])"
--- stdout
mqar-mix ['compat=zoology']
mad-recall ['compat=mad']
mad-noisy ['compat=mad']
mad-fuzzy ['compat=mad']
mad-copy ['positions=mad']
mad-compress ['compat=mad']

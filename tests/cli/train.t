# Models through the command: small ones, of which nothing is expected but that they work.

=== a language model, from text to text
printf 'the cat sat on the mat\nthe dog sat on the log\n%.0s' $(seq 40) >t.txt
gzip -k t.txt
foci train lm --data t.txt.gz --steps 30 --dim 16 --layers 1 --heads 2 --context 16 --batch 4 --lr 0.01 --threads 1 --json --quiet >j
python3 -c "import json; r = json.load(open('j')); print(r['folder'], r['steps'], r['loss'] < 3)"
ls foci-lm
foci generate foci-lm --prompt "the c" --tokens 5 --temperature 0 --threads 1 | wc -l
foci eval foci-lm --data t.txt --threads 1
--- stdout
foci-lm 30 True
config.json
model.safetensors
state.safetensors
tokenizer.json
train.json
1
tokens *
characters *
words *
nats a token *
perplexity of a token *
perplexity of a word *
perplexity of a character *
bits per character *
accuracy *

=== going on is as if it had not been interrupted
T="--task copy(symbols=4,longest=4,test=4,form=row) --dim 16 --layers 1 --heads 2 --batch 4 --threads 1 --quiet --json"
foci train lm $T --steps 12 --out c --schedule constant >/dev/null
foci train --resume --out c --steps 20 --quiet --json >jc
foci train lm $T --steps 20 --out d --schedule constant >jd
python3 - <<'END'
import json
c, d = json.load(open('jc')), json.load(open('jd'))
print(c['checksum'] == d['checksum'], c['steps'])
END
--- stdout
True 20

=== what was killed before its first state begins again, and has the same result
T="--task copy(symbols=4,longest=4,test=4,form=row) --dim 16 --layers 1 --heads 2 --batch 4 --threads 1 --steps 6"
foci train lm $T --out c --quiet --json >whole
rm c/state.safetensors
foci train --resume --out c
rm c/model.safetensors
foci train --resume --out c --quiet --json >again
python3 -c "import json; print(json.load(open('whole'))['checksum'] == json.load(open('again'))['checksum'])"
rm c/state.safetensors c/model.safetensors
foci train --resume --out c 2>&1 >/dev/null | grep state
--- stdout
True
foci train: c has no state yet: the training begins
--- stderr
foci train: c has a model, but no state.safetensors to go on from: without --resume the training begins anew

=== decoding gives the same scores, and goes beyond the context
T="--dim 16 --layers 2 --heads 2 --attention 1*softmax+1*linear --steps 20 --threads 1 --quiet"
foci train lm --task "ngram(length=20)" $T --positions rope --out r >/dev/null
foci eval r --examples 30 --threads 2 >whole
foci eval r --examples 30 --threads 1 --state >state
cmp whole state && echo same
foci eval r --task "ngram(length=50)" --examples 5 --state --threads 1
foci eval r --task "ngram(length=50)" --examples 5
foci train lm --task "ngram(length=20)" $T --positions learned --out l >/dev/null
foci eval l --task "ngram(length=50)" --examples 5 --state
--- stdout
same
tokens                    245
nats a token *
perplexity of a token *
accuracy *
all of a sequence *
--- stderr
foci eval: the data have sequences of up to 50 tokens, and the context of the model is 20: --state goes on beyond it
foci eval: positions were learned for 20 tokens, and there are none for the others up to 50; sinusoid, rope and none go on
--- exit 2

=== translation and its scores
for i in $(seq 60); do printf 'one two %d\teins zwei %d\n' $i $i; done >p.tsv
foci train translate --data p.tsv --tokenizer words --steps 10 --dim 16 --heads 2 --layers 1 --context 16 --threads 1 --out m --quiet >/dev/null
echo "one two 3" | foci translate m --beam 2 --threads 1 | wc -l
foci eval m --data p.tsv --threads 1
--- stdout
1
tokens *
nats a token *
perplexity of a token *
accuracy *
all of a sequence *
BLEU *
brevity penalty *
chrF2 *
signature of BLEU *nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:*
signature of chrF2 *nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:*

=== one head in the encoder, several in the decoder
T="--tokenizer bpe:280 --steps 2 --dim 16 --heads 4 --layers 1 --context 24 --threads 1 --quiet"
printf 'a b\tc d\ne f\tg h\ni j\tk l\n' >p.tsv
foci train translate --data p.tsv --valid p.tsv --encoder-heads 1 --encoder-attention 1L --decoder-attention "4*softmax" --out m $T >/dev/null
grep heads m/config.json
foci eval m --data p.tsv --threads 1 --costs --json >j
python3 -c "import json; c = json.load(open('j'))['costs']; print([a['attention'] for a in c['attentions']])"
foci train lm --encoder-heads 1 --check
--- stdout
  "heads": 4,
  "kv_heads": *
  "encoder_heads": 1,
['1*softmax', '4*softmax', '4*softmax']
--- stderr
foci train: --encoder-heads is for translate; lm has no use for it
--- exit 2

=== patterns of words, by any name: trained, judged, used
for i in $(seq 60); do printf 'one twenty %d\teins zwanzig %d\n' $i $i; done >p.tsv
cut -f1 p.tsv >t.txt
T="--tokenizer bpe:280 --steps 3 --dim 16 --heads 8 --layers 1 --context 24 --threads 1 --quiet"
foci train translate --data p.tsv --encoder-attention 7F_word+1L --decoder-attention "8*fixed(all, 1)" --out m $T >/dev/null
echo "one twenty 3" | foci translate m --beam 2 --threads 1 | wc -l
foci eval m --data p.tsv --threads 1 | grep -c '^BLEU '
foci train lm --data t.txt --attention 7F_word+1L --out l $T >/dev/null
foci generate l --prompt one --tokens 3 --threads 1 | wc -l
foci eval l --data t.txt --threads 1 | grep -c accuracy
--- stdout
1
1
1
1

=== classes: by gradients and in closed form
T="--task listops(depth=2,arguments=3,least=4,most=20) --dim 16 --heads 2 --layers 1 --threads 1 --quiet"
foci train classify $T --steps 5 --out a >/dev/null
foci train classify $T --examples 200 --readout ridge --out b
foci eval b --examples 50 --threads 1
--- stdout
folder * b
parameters *
ridge *
seconds *
validation: nats a token *
validation: accuracy *
tokens *
nats a token *
perplexity of a token *
accuracy *

=== a generator brings its preset, and options that are given win
T="--dim 16 --heads 2 --batch 4 --threads 1 --quiet --json"
foci train --task "mqar-update(vocab=40)" --steps 2 --threads 1 --out a >/dev/null
grep -c '"--lr"\|"0.004"\|"mqar-update(vocab=40)"' a/train.json
foci train --task mqar_update $T --epochs 2 --examples 6 --out b >j
python3 - <<'END'
import json
b = json.load(open('b/train.json'))
words = b["arguments"]
print(b["task"], words[0], words[words.index("--layers") + 1], "--steps" in words, words[-2:], json.load(open('j'))["steps"])
END
foci train --resume --out b --epochs 3 --quiet --json >j
python3 -c "import json; print(json.load(open('j'))['steps'])"
foci train --task "copy(form=row, symbols=4, longest=4, test=4)" --preset none --steps 1 $T --out c >/dev/null
grep -c '"lm"' c/config.json c/train.json
--- stdout
4
mqar-update(vocab=256) lm 2 False ['--preset', 'none'] 4
6
c/config.json:1
c/train.json:1
--- stderr
foci train: preset of mqar-update: * --lr 0.004 * (--preset none for none)
...
foci train: judge it: foci eval a

=== every preset and every published setting is one that train takes
foci task --json | python3 -c '
import json, subprocess, sys
small = "--dim 8 --heads 1 --layers 1 --ffn 8 --batch 1 --examples 2 --steps 1 --valid-batches 1 --threads 1 --json"
n = 0
for t in json.load(sys.stdin):
    for which, key in (("cpu", "preset"), ("published", "published")):
        if key not in t: continue
        done = subprocess.run(["foci", "train", "--task", t["name"], "--preset", which, "--out", "m%d" % n] + small.split(),
                              capture_output=True, text=True)
        n += 1
        if done.returncode or not json.loads(done.stdout)["steps"] == 1:
            print(t["name"], which, done.stderr)
print(n > 15)'
--- stdout
True

=== presets and epochs that there are not
foci train --task mqar-update --preset published --steps 1 --dim 8 --heads 1 --layers 1 --batch 1 --threads 1 --out a >/dev/null
foci train --task copy --epochs 2 --dim 8 --heads 1 --layers 1 --threads 1 --quiet
foci train --task "mqar(pairs=0)"
foci train
--- stderr
foci train: mqar-update has no published setting
...
foci train: judge it: foci eval a
foci train: --epochs needs --examples: this generator has no end
foci train: task: column 12: pairs=0: mqar takes 1 to 262144
foci train: train what: lm, mlm, translate or classify? Or give a generator by --task, which says it
--- exit 2

=== the map of a generator is that of training, whatever the seed
foci train --task "mad-memorise(vocab=8, length=8)" --seed 5 --steps 150 --batch 8 --dim 16 --heads 2 --layers 1 --ffn 0 --lr 0.01 --threads 1 --quiet --out a >/dev/null
foci eval a --threads 1 | grep accuracy
--- stdout
accuracy * 1.0000

=== blocks of their own in a file; options change what it says
printf 'the cat sat on the mat\n%.0s' $(seq 40) >t.txt
echo '{"width": 16, "heads": 2, "seed": 7, "decoder": [{"attention": "local(window=2)"}, {"kind": "gau"}]}' >own.json
T="lm --data t.txt --context 16 --steps 1 --threads 1 --quiet"
foci train $T --config own.json --out a >/dev/null
foci train $T --config own.json --out b --attention linear --mlp 0 >/dev/null
foci train $T --config a/config.json --out c --layer attention --attention linear --seed 8 >/dev/null
foci train $T --config own.json --out d --layers 3
python3 - <<'END'
import json
for name in 'abc':
    c = json.load(open(name + '/config.json'))
    print(c['ffn'], c['seed'], *(b.get('attention', b['kind']) for b in c['decoder']))
END
--- stdout
64 7 local(window=2) gau
0 7 linear gau
64 8 linear linear
--- stderr
foci train: 2 blocks are given, and layers say 3

=== what cannot be is refused before any work
foci train lm --attention nystrom --task "copy(form=row)" --quiet
--- stderr
foci train: block 0: nystrom cannot be causal: * can
--- exit 2

=== how far a run is, on a terminal: in what it ends by
printf 'the cat sat on the mat\n%.0s' $(seq 40) >t.txt
cat >look.py <<'END'
import os, pty, sys
said, units = b'', set()
def read(fd): # ends at the first line that tells
    global said
    said += os.read(fd, 4096)
    units.update(line.split()[4].decode() for line in said.split(b'\r')
                 if line[:1] == b'[' and b' s left: loss ' in line and b'tokens/s' in line)
    return b'' if units else b' '
pty.spawn(sys.argv[1:], read)
print(*units, file=sys.stderr)
END
T="foci train lm --data t.txt --dim 16 --layers 1 --heads 2 --context 16 --valid-every 100000 --threads 1"
python3 look.py $T --time-limit 100 --out a >/dev/null
foci train lm --data t.txt --steps 3 --dim 16 --layers 1 --heads 2 --out b --quiet >/dev/null
foci train lm --resume --out b
--- stdout
folder * b
trained parameters *
seconds *
validation: nats a token *
validation: accuracy *
--- stderr
seconds,
foci train: training tokenizer chars
foci train: b was at its end already: a larger --steps goes on
foci train: write with it: *
foci train: judge it: *

=== a folder that is there is not overwritten
T="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --threads 1 --quiet --steps 2 --out a"
foci train lm $T >/dev/null
foci train lm $T
--- stderr
foci train: a has a training already: --resume goes on with it, another --out begins anew
--- exit 1

=== no such task, no such folder
foci train dance
foci eval nowhere
--- stderr
foci train: no task 'dance'; there are lm, mlm, translate and classify
foci eval: nowhere/config.json: cannot be opened: No such file or directory
--- exit 1

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
chrF2 *

=== patterns of words, by any name: trained, judged, used
for i in $(seq 60); do printf 'one twenty %d\teins zwanzig %d\n' $i $i; done >p.tsv
cut -f1 p.tsv >t.txt
T="--tokenizer bpe:280 --steps 3 --dim 16 --heads 8 --layers 1 --context 24 --threads 1 --quiet"
foci train translate --data p.tsv --encoder-attention 7F_word+1L --decoder-attention "8*fixed(all, 1)" --out m $T >/dev/null
echo "one twenty 3" | foci translate m --beam 2 --threads 1 | wc -l
foci eval m --data p.tsv --threads 1 | grep -c BLEU
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
said = b''
def read(fd):
    global said
    got = os.read(fd, 4096)
    said += got
    return got
pty.spawn(sys.argv[1:], read)
units = {line.split()[4].decode() for line in said.split(b'\r')
         if line[:1] == b'[' and b' s left: loss ' in line and b'tokens/s' in line}
print(*units, file=sys.stderr)
END
T="foci train lm --data t.txt --dim 16 --layers 1 --heads 2 --context 16 --valid-every 100000 --threads 1"
python3 look.py $T --time-limit 2.6 --out a >/dev/null
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

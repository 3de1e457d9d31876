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
chrF2 *

=== classes: by gradients and in closed form
T="--task listops(depth=2,arguments=3,least=4,most=20) --dim 16 --heads 2 --layers 1 --threads 1 --quiet"
foci train classify $T --steps 5 --out a >/dev/null
foci train classify $T --examples 200 --readout ridge --out b >/dev/null
foci eval b --examples 50 --threads 1
--- stdout
tokens *
nats a token *
perplexity of a token *
accuracy *

=== what cannot be is refused before any work
foci train lm --attention nystrom --task "copy(form=row)" --quiet
--- stderr
foci train: block 0: nystrom cannot be causal: * can
--- exit 2

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

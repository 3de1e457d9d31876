# What users give to training that is not what was meant, and what machines do to it.

=== data that hold nothing, or one line
printf '' >empty.txt
printf 'a\n' >one.txt
T="--steps 2 --dim 8 --layers 1 --heads 2 --context 8 --threads 1 --quiet --json"
foci train lm --data empty.txt --out m $T
foci train lm --data one.txt --out m $T >j
python3 -c "import json; r = json.load(open('j')); print(r['steps'], 'valid_loss' in r)"
foci generate m --prompt a --tokens 3 --threads 1 | wc -l
--- stdout
2 False
1
--- stderr
foci train: empty.txt: has nothing to learn from; is it empty?

=== too few lines for a tenth of them
printf 'a text without the end of a line' >line.txt
foci train lm --data line.txt --out m --steps 2 --dim 8 --layers 1 --heads 2 --context 8 --threads 1 >o
--- stderr
foci train: training tokenizer chars
foci train: line.txt has too few lines for a tenth of them to validate by: all of them train (give others by --valid)
foci train: write with it: foci generate m --prompt "It is a truth"
foci train: judge it: foci eval m --data FILE

=== text that is not UTF-8, and lines longer than the context
printf 'ab\377\376cd and more \200\n%.0s' $(seq 40) >bad.txt
python3 -c "print('\n'.join(['word ' * 99] * 20))" >long.txt
T="--steps 2 --dim 8 --layers 1 --heads 2 --context 8 --threads 1 --quiet"
for k in bytes chars words bpe:300; do
    foci train lm --data bad.txt --tokenizer $k --out b-$k $T | head -1
done
foci train lm --data long.txt --documents lines --out l $T | head -1
--- stdout
folder * b-bytes
folder * b-chars
folder * b-words
folder * b-bpe:300
folder * l

=== pairs and labels without a tab
printf 'a\tA\nno tab\n' >p.tsv
foci train translate --data p.tsv --tokenizer words --quiet
foci train classify --data p.tsv --tokenizer words --quiet
--- stderr
foci train: p.tsv, line 2: has no tab; every line is SOURCE<TAB>TARGET
foci train: p.tsv, line 2: has no tab; every line is LABEL<TAB>TEXT
--- exit 1

=== one file of two that has fewer lines
printf 'a\nb\nc\n' >s.txt
printf 'A\nB\n' >t.txt
foci train translate --source s.txt --target t.txt --valid s.txt --valid-target s.txt --tokenizer words --quiet
--- stderr
foci train: t.txt: ends after 2 lines, but s.txt has more; line by line one is the translation of the other
--- exit 1

=== options that the task has no use for, or that miss another
for o in --pooling=first --cross-attention=linear --labels=t --target=t --valid=t '--data t --task copy' --data=t.npy '--data x --config nowhere' '--task numbers'; do
    foci train lm $o --quiet
done
foci train translate --target t
foci train translate --source t
foci train classify --data t.npy
--- stderr
foci train: --pooling is for classify; lm has no use for it
foci train: --cross-attention is for translate; lm has no use for it
foci train: --labels is for classify; lm has no use for it
foci train: --target is for translate; lm has no use for it
foci train: --valid needs --data to train on
foci train: examples come from one of --data, --source and --task
foci train: t.npy has arrays, which are for classify; lm reads text
foci train: unable to open nowhere: No such file or directory
foci train: numbers gives examples of another task than lm
foci train: --target needs --source, or both as --data FILE.tsv
foci train: --source needs --target, or both as --data FILE.tsv
foci train: the images of t.npy need their classes: --labels FILE.npy
--- exit 2

=== notes of a training that are none
mkdir m
for t in '{' '[]' '{}' '{"arguments": 3}' '{"arguments": [3]}' '{"arguments": ["--steps", "3"]}'; do
    echo "$t" >m/train.json
    foci train --resume --out m
done
foci train --resume --out nowhere
--- stderr
foci train: m/train.json: line 2: *
foci train: m/train.json: is no object of JSON
foci train: m/train.json: has no arguments of a training
foci train: m/train.json: has no arguments of a training
foci train: m/train.json: has no arguments of a training
foci train: train what: lm, mlm, translate or classify? Or give a generator by --task, which says it
foci train: unable to open nowhere/train.json: No such file or directory
--- exit 1

=== a training that would not end; options that a training cannot go on with are not noted
printf 'a\n' >one.txt
T="--dim 8 --layers 1 --heads 2 --context 8 --threads 1 --quiet"
foci train lm --data one.txt --patience 2 --out p $T
foci train lm --data one.txt --steps 2 --out m $T >/dev/null
foci train lm --resume --out m --steps 3 --dim 16 --quiet
foci train lm --resume --out m --steps 3 --quiet | sed -n 3p
--- stdout
steps * 3
--- stderr
foci train: training has no end: patience counts validations, and there are no data to validate by
foci train: m/state.safetensors: is the state of another model than the one to be trained

=== a tokenizer of another model, a model that was cut
T="--steps 2 --dim 8 --layers 1 --heads 2 --context 8 --threads 1 --quiet"
printf 'one two three\n%.0s' $(seq 20) >a.txt
printf 'four five six\n%.0s' $(seq 20) >b.txt
foci train lm --data a.txt --out a $T >/dev/null
foci train lm --data b.txt --out b $T >/dev/null
cp a/tokenizer.json t
cp b/tokenizer.json a/
foci generate a --prompt x --threads 1
cp t a/tokenizer.json
head -c 900 a/model.safetensors >cut
mv cut a/model.safetensors
foci generate a --prompt x --threads 1
--- stderr
foci generate: a: tokenizer.json is that of another model: texts become other ids by it
foci generate: a/model.safetensors: *
--- exit 1

=== data that vanish, and come back
printf 'one two three\n%.0s' $(seq 40) >t.txt
foci train lm --data t.txt --steps 2 --dim 8 --layers 1 --heads 2 --context 8 --threads 1 --quiet --out m >/dev/null
mv t.txt away
foci train lm --resume --out m --steps 4 --threads 1 --quiet
echo $?
mv away t.txt
foci train lm --resume --out m --steps 4 --threads 1 --quiet | sed -n 3p
--- stdout
1
steps * 4
--- stderr
foci train: t.txt: cannot be opened: No such file or directory

=== a disk that is full
# Files of at most so many blocks stand in for it.
printf 'one two three\n%.0s' $(seq 40) >t.txt
T="--data t.txt --dim 32 --layers 2 --heads 2 --context 8 --threads 1 --quiet"
foci train lm $T --steps 2 --out m >/dev/null
sha256sum m/* >before
(trap '' XFSZ; ulimit -f 16; foci train lm --resume --out m --steps 6 --threads 1 --quiet)
echo $?
sha256sum --quiet -c before 2>&1 | grep -v 'train.json\|WARNING'
foci train lm --resume --out m --steps 6 --threads 1 --quiet | sed -n 3p
--- stdout
1
steps * 6
--- stderr
foci train: m/model.safetensors: cannot be written: File too large

# Comparisons of models that learn next to nothing: what is done, in which order, and what is
# said of it.

=== two arms: a table, and JSON by an independent count
export T="--preset none --task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 3 --threads 1"
foci compare $T --attention softmax --attention linear --seeds 2 --out c --quiet
foci report c --json >j
python3 - <<'END'
import json, math
s = json.load(open('j'))
lines = [json.loads(l) for l in open('c/results.jsonl')]
tests = {l['id']: l['test']['accuracy'] for l in lines if l['kind'] == 'test'}
order = [l['arm'] + str(l['seed']) for l in lines if l['kind'] == 'run']
value = {l['arm'] + str(l['seed']): tests[l['id']] for l in lines if l['kind'] == 'run'}
a, b = s['levels'][0]['arms']
close = lambda x, y: abs(x - y) < 1e-8 * max(1, abs(y))
t = 12.706204736432095 # of Student's distribution, one degree of freedom, 97.5 %
def agrees(o, x, y, scale):
    mean, half = (x + y) / 2, t * abs(x - y) / 2
    return (close(o['mean'], scale * mean) and close(o['low'], scale * (mean - half))
            and close(o['high'], scale * (mean + half)))
print(order, s['split'], s['metric'], s['runs']['done'], s['comparisons'])
print(agrees(b, value['linear1'], value['linear2'], 1))
print(agrees(b['difference'], value['linear1'] - value['softmax1'],
             value['linear2'] - value['softmax2'], 100))
print(sorted(a['costs'])[:3], a['costs']['trained_parameters'], a['peak_bytes'] > 1e6)
END
--- stdout
accuracy on the test set, mean of 2 seeds with 95 % intervals
differences to softmax, paired by seed; margin 2 points; 1 comparison
foci *: foci train lm --preset none --task 'copy(symbols=4,longest=4,test=4,form=row)' --dim 8 --layers 1 --heads 2 --batch 4 --steps 3
floors: chance 20.0 %, most frequent *, last symbol *

arm  *accuracy *difference, points *verdict *p (Holm)  over the test set  p (test set)  failed  each seed
softmax *[*]  *- *baseline *- *- *- *2/2  * *
linear *[*]  *[*]  * * *[*] * *2/2  * *

arm *trained  parameters  flops/token  training tokens/s  decoding tokens/s  peak memory, B  state, B  concentration  error
softmax *1.03 k *1.03 k *
linear *1.03 k *1.03 k *

4 runs ended below the floor, no better than a rule that learns nothing: counted as failed, and in the mean
['softmax1', 'linear1', 'softmax2', 'linear2'] test accuracy 4 1
True
True
['attentions', 'concentration', 'decoding_tokens_per_second'] 1032 True

=== going on repeats nothing, and adds arms and seeds
export T="--preset none --task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 --threads 1"
foci compare $T --attention softmax --seeds 1 --out c --quiet >first
cp c/results.jsonl before
foci compare --resume --out c --quiet | cmp - first
cmp before c/results.jsonl
foci compare --resume --out c --arm "again: --attention softmax" --seeds 2 --quiet --json >j
python3 - <<'END'
import json
lines = [json.loads(l) for l in open('c/results.jsonl')]
runs = [l['id'] for l in lines if l['kind'] == 'run']
arms = json.load(open('j'))['levels'][0]['arms']
print(len(runs), len(set(runs)), [a['arm'] for a in arms])
print(arms[1]['difference']['verdict'], arms[1]['difference']['high'])
END
foci compare $T --attention softmax --seeds 1 --out c
foci compare --resume --out c --dim 16
foci compare --resume --out c --tune lr=0.1,0.2
foci compare --resume --out c --arm "again: --attention linear"
--- stdout
4 4 ['softmax', 'again']
equivalent 0.0
--- stderr
foci compare: c has a comparison already: --resume goes on with it, another --out begins anew
foci compare: c was begun with --dim "8", and not "16": arms and seeds may be added, all else takes another --out
foci compare: c was begun with tune none, and not {"lr":["0.1","0.2"]}: arms and seeds may be added, all else takes another --out
foci compare: c has an arm 'again' with other options
--- exit 2

=== parts are the whole, in one folder or in several
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 --threads 1 --attention softmax --attention linear --seeds 2 --quiet"
foci compare $C --out whole --jobs 2 --json >w
for k in 1 2; do foci compare $C --resume --part $k/2 --out parts; done
foci compare --resume --out parts --json --quiet >p
foci report whole --json >rw
for k in 1 2; do foci compare $C --part $k/2 --out apart$k; done
foci report apart1 apart2 --json >a
python3 - <<'END'
import json
def bare(name, tests):
    s = json.load(open(name))
    for arm in s['levels'][0]['arms']:
        for key in ('costs', 'tokens_per_second', 'peak_bytes'):
            arm.pop(key, None)
    return s
print(bare('w', True) == bare('p', True), bare('w', True) == bare('rw', True))
a = bare('a', False)
print(a['split'], a['runs']['done'], a['levels'][0]['arms'][1]['difference']['pairs'])
for k in (1, 2):
    lines = [json.loads(l) for l in open('apart%d/results.%d-of-2.jsonl' % (k, k))]
    print([l['arm'] + str(l['seed']) for l in lines if l['kind'] == 'run'])
END
--- stdout
True True
valid 4 2
['softmax1', 'linear2']
['linear1', 'softmax2']

=== lines that are torn, corrupt, or by another version
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 --threads 1 --attention softmax --seeds 2"
foci compare $C --out c --quiet >first
sed -i 's/^{"kind":"run",\(.*"seed":2,\)/{kind:\1/' c/results.jsonl
printf '{"kind":"run","id":' >>c/results.jsonl
foci compare --resume --out c >second
head -7 first >a; head -7 second | cmp - a
tail -c 1 c/results.jsonl | od -An -c
sed -i '2s/"version":"[^"]*"/"version":"0.0.1"/' c/results.jsonl
foci report c
--- stdout
  \n
--- stderr
foci compare: c/results.jsonl, line 3: string or '}' expected near 'kind': it is left out; --resume does again what it was about
foci compare: c/results.jsonl, line 7: has no end, as after a crash: it is left out
foci compare: 2 of 2 runs: softmax-s2-*: accuracy *, * s left
foci compare: the report is c/report.html
foci report: c/results.jsonl, line 2: is by foci 0.0.1, others by foci *: results of two versions are not compared; give another --out, or use that version
--- exit 1

=== an arm that cannot do the task is left out, and others go on
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 --threads 1 --seeds 1 --quiet"
foci compare $C --attention nystrom --attention softmax --out c --json >j
echo $?
python3 -c "import json; s = json.load(open('j')); print(s['baseline'], [r['arm'] for r in s['refused']])"
foci compare $C --attention nystrom --out d
--- stdout
1
softmax ['nystrom']
--- stderr
foci compare: arm 'nystrom' cannot do this and is left out: block 0: nystrom cannot be causal: *
foci compare: arm 'nystrom' cannot do this and is left out: block 0: nystrom cannot be causal: *
--- exit 1

=== tuning, an axis, parts of the examples: the best on validation, for all arms alike
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 3 --threads 1"
foci compare $C --attention softmax --attention "local(window=9)" --axis window=2,3 --tune lr=1e-3..1e-1:3 --examples 20,all --seeds 2 --out c --quiet --json >j
python3 - <<'END'
import json
s = json.load(open('j'))
runs = [l for l in map(json.loads, open('c/results.jsonl')) if l['kind'] == 'run']
print([a['arm'] for a in s['levels'][0]['arms']], [l['examples'] for l in s['levels']])
print(s['levels'][1]['arms'][2]['options'], len(runs))
good = True
for t in s['tuning']:
    tried = {r['values']['lr']: r['valid']['accuracy'] for r in runs if r['seed'] == 1 and
             r['arm'] == t['arm'] and r['examples'] == t['examples']}
    good &= sorted(tried) == ['0.001', '0.01', '0.1']
    good &= tried[t['chosen']['lr']] == max(tried.values())
    again = [r['values'] for r in runs if r['seed'] == 2 and r['arm'] == t['arm'] and
             r['examples'] == t['examples']]
    good &= again == [t['chosen']]
print(good)
END
--- stdout
['softmax', 'local(window=9) window=2', 'local(window=9) window=3'] [20, 0]
{'attention': 'local(window=3)'} 24
True

=== runs that fail are counted, and done again only when that is wanted
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 2 --heads 2 --batch 4 --steps 20 --threads 1 --seeds 1 --quiet"
foci compare $C --attention softmax --arm "hot: --attention linear --norm rms --lr 1000 --clip 0 --warmup 0 --schedule constant --decay 10" --out c --json >j
python3 -c "import json; a = json.load(open('j'))['levels'][0]['arms'][1]; print(a['failed'], a['done'], a['runs'][0]['value'], a.get('difference'))"
grep -o '"reason":"exit status 2: the gradient of step' c/results.jsonl
grep -c '"kind":"run"' c/results.jsonl
foci compare --resume --out c --quiet >/dev/null
grep -c '"kind":"run"' c/results.jsonl
foci compare --resume --out c --retry --quiet | tail -1
grep -c '"kind":"run"' c/results.jsonl
--- stdout
1 1 None None
"reason":"exit status 2: the gradient of step
2
2
1 run failed without a result: counted, and not in the mean
3

=== translations: BLEU, on a test set that is named
for i in $(seq 60); do printf 'one two %d\teins zwei %d\n' $i $i; done >p.tsv
head -20 p.tsv >t.tsv
foci compare translate --data p.tsv --test t.tsv --tokenizer words --steps 4 --dim 16 --heads 2 --layers 1 --context 16 --threads 1 --attention softmax --arm "frozen: --encoder-attention 'softmax frozen(orthogonal)'" --seeds 1 --out c --quiet --json >j
python3 -c "
import json; s = json.load(open('j')); a = s['levels'][0]['arms'][1]
print(s['metric'], s['margin'], s['split'], a['options'], a['difference']['sentences']['n'])"
--- stdout
bleu 1.0 test {'encoder-attention': 'softmax frozen(orthogonal)'} 20

=== a dry run lists commands that are right, and writes nothing
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 --threads 1"
foci compare $C --attention softmax --seeds 2 --dry-run --out c | tee list
ls
mkdir -p c/runs
sh -c "$(head -1 list)" | grep -c checksum
--- stdout
foci train lm --task 'copy(symbols=4,longest=4,test=4,form=row)' --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 * --attention softmax --seed 1 --out c/runs/softmax-s1-* --log c/runs/softmax-s1-*/log.jsonl --json --quiet --threads 1
foci train lm --task 'copy(symbols=4,longest=4,test=4,form=row)' --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 * --attention softmax --seed 2 --out c/runs/softmax-s2-* --log c/runs/softmax-s2-*/log.jsonl --json --quiet --threads 1

softmax  * s a run  by a few timed steps, without validations
in all about * s: 1 at once with 1 thread each
list
1

=== the time of runs: passes of the data, examples, what tuning chooses
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --threads 1 --attention softmax --dry-run --json"
foci compare $C --examples 20,40 --epochs 2 --tune lr=0.1,0.2 --seeds 4 --tune-seeds 1 --out c >j
foci compare $C --epochs 2 --seeds 1 --out c >k
python3 - <<'END'
import json
j, k = json.load(open('j')), json.load(open('k'))
print(len(j['runs']), j['later'], sorted(j['arms']), k['arms']['softmax']['seconds'])
each = {name: arm['seconds'] for name, arm in j['arms'].items()}
print(abs(j['seconds'] - 5 * sum(each.values())) < 1e-6 * j['seconds'])
END
--- stdout
4 6 ['softmax on 20 examples', 'softmax on 40 examples'] None
True

=== a folder of data: train, valid and test by their names
mkdir pairs texts none two
for s in train valid test2016; do for i in 1 2 3 4 5 6; do echo "one two $i"; done >pairs/$s.en; sed 's/one two/eins zwei/' pairs/$s.en >pairs/$s.de; done
for s in train dev; do for i in 1 2 3 4 5 6; do echo "the text $i of $s"; done >texts/$s.txt; done
cp texts/* two; cp texts/train.txt two/train.2.txt
C="--dim 8 --layers 1 --heads 2 --context 32 --steps 1 --threads 1 --seeds 1 --attention softmax --quiet"
foci compare translate --data pairs --reverse --tokenizer words $C --out c --json >j
foci compare lm --data texts $C --out d --json >k
python3 - <<'END'
import json
for name in 'jk':
    s = json.load(open(name))
    o = s['options']
    print(s['split'], [o.get(x) for x in ('data', 'source', 'target', 'valid', 'valid-target', 'reverse')])
END
grep -A3 '"test"' c/compare.json
foci compare translate --data pairs --reverse --tokenizer words --resume --out c $C | head -1
foci compare lm --data none $C --out e
foci compare lm --data two $C --out e
foci compare lm --data pairs $C --out e
--- stdout
test [None, 'pairs/train.en', 'pairs/train.de', 'pairs/valid.en', 'pairs/valid.de', None]
valid ['texts/train.txt', None, None, 'texts/dev.txt', None, None]
  "test": {
    "source": "pairs/test2016.en",
    "target": "pairs/test2016.de"
  },
BLEU on the test set, mean of 1 seed with 95 % intervals
--- stderr
foci compare: --data is none, which has no file that begins with train; it takes a file, or a folder of train*, valid* and test*
foci compare: --data is two, which has 2 files that begin with train; it takes one of each of train, valid and test
foci compare: --data is pairs, which has 2 files that begin with train; it takes one of each of train, valid and test
--- exit 2

=== results that are moved keep the tests over examples; seeds of a task are five
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 1 --valid-batches 1 --threads 1 --attention softmax --attention linear --quiet"
foci compare $C --out c --json >j
mkdir away
mv c away/d
foci report away/d --json >k
python3 -c "
import json; s, t = json.load(open('j')), json.load(open('k'))
print(s['seeds'], s == t, s['levels'][0]['arms'][1]['difference']['sentences']['n'])"
--- stdout
5 True *

=== within a time, and tests of what is done: parts whose models do not stay
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 --threads 1 --attention softmax --attention linear --seeds 2"
foci compare $C --quiet --out whole --json >w
foci compare $C --within 0 --out c | grep "0 of 4"
foci compare --resume --within 1000 --test-done --part 1/2 --out c --quiet
rm -r c/runs/*/model.safetensors
foci compare --resume --within 1000 --test-done --part 2/2 --out c --quiet
rm -r c/runs/*/model.safetensors
foci report c --json >r
foci compare --resume --out c --quiet --json >d
python3 - <<'END'
import json
def bare(name):
    s = json.load(open(name))
    costs = [sorted(arm.pop('costs')) for arm in s['levels'][0]['arms']]
    for arm in s['levels'][0]['arms']:
        for key in ('tokens_per_second', 'peak_bytes'):
            arm.pop(key)
    return s, costs
print(bare('w') == bare('r'), bare('w') == bare('d'), bare('w')[0]['split'])
lines = [json.loads(l) for k in (1, 2) for l in open('c/results.%d-of-2.jsonl' % k)]
print(sorted(l['kind'] for l in lines if l['kind'] != 'check'))
END
--- stdout
0 of 4 runs are done
True True test
['costs', 'costs', 'run', 'run', 'run', 'run', 'test', 'test', 'test', 'test']
--- stderr
foci compare: 0 of 4 runs are done, and the next would end too late: foci compare --resume --out c goes on
foci compare: the report is c/report.html

=== a second runner in the same folder is kept away
C="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 --threads 1 --attention softmax"
mkdir c
flock c/lock foci compare $C --out c
--- stderr
foci compare: another foci compare is at work in c; spread runs over several by --part
--- exit 1

=== what cannot be meant
foci compare
foci compare lm
foci compare dance --attention softmax
foci compare lm --attention softmax --attention softmax
foci compare lm --arm "x --conv 3"
foci compare lm --arm "x: --steps 4"
foci compare lm --arm "x: --epochs 4"
foci compare lm --arm "x: 'a"
foci compare lm --attention softmax --tune steps=1,2
foci compare lm --attention softmax --tune lr=1..2
foci compare lm --attention softmax --tune dropout=2
foci compare lm --attention softmax --axis features=2
foci compare lm --attention softmax --examples 5x
foci compare lm --attention softmax --part 3/2
foci compare lm --attention softmax --log x
foci compare lm --attention softmax --metric x
foci compare lm --attention softmax --baseline x
foci compare --resume --out nowhere
foci report nowhere
ls
--- stderr
foci compare: compare on what: lm, mlm, translate, classify, or a task that foci task lists?
foci compare: compare what? Give --attention SPEC, or --arm "NAME: OPTIONS", for each arm
foci compare: no task 'dance'; there are lm, mlm, translate and classify, and those that foci task lists
foci compare: two arms are called 'softmax'; give names by --arm "NAME: OPTIONS"
foci compare: --arm is 'x --conv 3'; it takes a name, a colon and options, as in "local: --attention local --conv 3"
foci compare: arm 'x' has --steps, which is the same for all arms: give it outside of --arm
foci compare: arm 'x' has --epochs, which is the same for all arms: give it outside of --arm
foci compare: arm 'x': a quote is not closed
foci compare: --tune has 'steps', which is no option of numbers that a model or its optimiser has; lr, dropout, decay are
foci compare: '1..2' is no range; A..B:N is N numbers from A to B, as 1e-4..1e-1:7
foci compare: --tune has dropout=2; --dropout takes a number from 0 to less than 1
foci compare: --axis has 'features', which is an argument of no spec here
foci compare: --examples has '5x'; it takes numbers and 'all', as in 5k,10k,all
foci compare: --part is '3/2'; it takes K/N, the share K of N, from 1/N to N/N
foci compare: --log names one place, and there are many runs: the log of each is in DIR/runs
foci compare: --metric is 'x'; it takes accuracy, exact, bleu, chrf2, perplexity, bits_per_character or loss
foci compare: --baseline is 'x', and no arm has this name
foci compare: nowhere has no comparison to go on with
foci report: nowhere: No such file or directory

=== the preset of a generator is written out, and stays as it was
foci compare mqar_update --attention softmax --seeds 1 --steps 1 --dim 8 --batch 2 --valid-batches 1 --threads 1 --out c --quiet | sed -n 2p
python3 -c "import json; o = json.load(open('c/compare.json'))['options']; print(o['task'], o['layers'], o['dim'], o['lr'], o['steps'])"
foci compare --resume --out c --seeds 1 --quiet | sed -n 2p
--- stdout
foci *: foci train lm --task mqar_update * --dim 8 * --layers 2 * --lr 0.004 *
mqar_update 2 8 0.004 1
foci *: foci train lm --task mqar_update * --dim 8 * --layers 2 * --lr 0.004 *

# Reports of comparisons, lengths and models.  `page FILE` reads a page as a browser would.

=== a comparison: its page is whole, and figures are files too
C="--preset none --task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 4 --valid-every 2 --threads 1"
foci compare $C --attention softmax --attention "local(window=2)" --tune lr=1e-3,1e-2 --examples 20,all --seeds 2 --out c --quiet >/dev/null
page c/report.html
foci report c --out r.html --plots p --quiet >table
foci report c | cmp - table
ls p | sed 's/.*[.]//' | sort | uniq -c
ls p | sed -n 's/.csv//p'
python3 - <<'END'
import csv, glob, json, subprocess, xml.dom.minidom
for name in glob.glob('p/*.svg'):
    xml.dom.minidom.parse(name)
tables = {name: list(csv.reader(open(name))) for name in sorted(glob.glob('p/*.csv'))}
print(all(len(set(map(len, rows))) == 1 for rows in tables.values()))
s = json.loads(subprocess.check_output(['foci', 'report', 'c', '--json']))
arms = [{a['arm']: a for a in level['arms']} for level in s['levels']]
head, *rows = tables['p/03-examples.csv']
print(head, [row[:2] for row in rows])
near = lambda x, y: abs(float(x) - 100 * y) < 1e-3
print(all(near(x, arms[at == 'all'][arm][key]) for arm, at, *three in rows if arm in arms[0]
          for x, key in zip(three, ('mean', 'low', 'high'))))
sums = {}
for name, head, query, key, weight in tables['p/heads-0.csv'][1:]:
    sums[name, head, query] = sums.get((name, head, query), 0) + float(weight)
print(all(abs(x - 1) < 0.05 for x in sums.values()), len(sums))
END
png p/02-learning.png | sed 's/,.*//'
--- stdout
2 sections, 9 figures
arms ['softmax', 'local(window=2)']
heads of 'softmax' [2] [3, 0]
heads of 'local(window=2)' [2] [3, 0]
     11 csv
     11 png
     11 svg
01-differences
02-learning
03-examples
04-state
05-seconds
06-decoding
07-tune-lr
08-slice-length
09-slice-place
heads-0
heads-1
True
['series', 'examples to train on', 'accuracy, %', 'low', 'high'] [['softmax', '20'], ['softmax', 'all'], ['local(window=2)', '20'], ['local(window=2)', 'all'], ['floor: last symbol', '']]
True
True 6
1120 x 728

=== parts, failures, what is left out, and runs on their way
C="--preset none --task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 2 --heads 2 --batch 4 --steps 8 --valid-every 2 --threads 1"
foci compare $C --attention softmax --attention nystrom --attention linear --arm "hot: --attention linear --norm rms --lr 1000 --clip 0 --warmup 0 --schedule constant --decay 10" --seeds 2 --part 1/2 --out c --quiet 2>/dev/null
foci report c --out partial.html --quiet | grep "runs are done"
page partial.html
foci compare --resume --out c --quiet 2>/dev/null >/dev/null
page c/report.html
grep -c "the gradient of step" c/report.html
grep -c "nystrom was left out: block 0" c/report.html
# A run whose line is lost has its log yet.
sed -i '/"kind":"run","id":"softmax-s1/d' c/results*.jsonl
foci report c --out lost.html --plots p --quiet | grep "runs are done"
grep -c "not done yet" lost.html
grep -c "^softmax," p/02-learning.csv
--- stdout
3 of 6 runs are done
1 sections, 5 figures
arms ['softmax', 'nystrom', 'linear', 'hot']
2 sections, 7 figures
arms ['softmax', 'nystrom', 'linear', 'hot']
heads of 'softmax' [2, 2] [3, 0]
heads of 'linear' [2, 2] [3, 0]
2
1
5 of 6 runs are done
1
4

=== what people wrote is shown, and does nothing
C="--dim 8 --layers 1 --heads 2 --context 16 --batch 2 --steps 2 --valid-batches 1 --threads 1"
for i in $(seq 40); do printf '<script>alert(1)</script> &amp; "x" \047y\047 </title>\001\033[31m \342\200\256\330\271\330\261\330\250\331\212 \303\251\n'; done >text
RTL=$(printf '\342\200\256\330\271\330\261\330\250\331\212')
OUT="a<b>\"'&$RTL"
foci compare lm --data text --tokenizer words $C --attention softmax --arm "</script><img src=x onerror=alert(1)>: --attention linear" --arm "=1+1$(printf '\007')$RTL: --attention local" --seeds 1 --out "$OUT" --quiet >/dev/null
page "$OUT/report.html"
grep -c '<script>alert\|<img src=x' "$OUT/report.html"
grep -o '"sides":\[\["[^]]*' "$OUT/report.html" | head -1 | cut -c 1-120
foci report "$OUT" --plots p --quiet >/dev/null
cut -d, -f1 p/02-learning.csv | sort -u
python3 -c "
import glob, xml.dom.minidom
for n in glob.glob('p/*.svg'): xml.dom.minidom.parse(n)"
--- stdout
3 sections, 6 figures
arms ['softmax', '</script><img src=x onerror=alert(1)>', '=1+1\u2407<U+202E>\u0639\u0631\u0628\u064a']
heads of 'softmax' [2] [16, 0]
heads of '</script><img src=x onerror=alert(1)>' [2] [16, 0]
heads of '=1+1\u2407<U+202E>\u0639\u0631\u0628\u064a' [2] [16, 0]
0
"sides":[["\u003cbos\u003e","\u003cscript\u003ealert(1)\u003c/script\u003e","\u0026amp;","\"x\"","'y'","\u003c/title\u00
'=1+1␇<U+202E>عربي
</script><img src=x onerror=alert(1)>
series
softmax

=== lengths, a model with its log, one without, and a mix
foci compare --length 8,16 --heads 1 --dim 4 --attention linear --repeat 1 --threads 1 --out l --quiet >/dev/null
page l/report.html
T="--task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 4 --valid-every 2 --threads 1 --quiet"
foci train lm $T --out m --log m/log.jsonl >/dev/null
foci train lm $T --out n >/dev/null
foci report m --out m.html --quiet
page m.html
foci report n l m --out mix.html --quiet
page mix.html
TMPDIR=nowhere foci report n --out none.html
foci report l m --json --quiet | python3 -c "import json, sys; s = json.load(sys.stdin); print(sorted(s), len(s['lengths'][0]['lines']), len(s['models'][0]['log']))"
ls m
--- stdout
1 sections, 3 figures
arms ['softmax', 'linear']
m: a model, perplexity * on validation, 4 steps in its log
2 sections, 1 figures
arms []
heads of 'm' [2] [3, 0]
length  mechanism  median ms  tokens/s   memory  error  left out
     8  softmax  *
     8  linear  *
    16  softmax  *
    16  linear  *

n: a model, perplexity * on validation, 0 steps in its log

m: a model, perplexity * on validation, 4 steps in its log
4 sections, 4 figures
arms ['n', 'm', 'softmax', 'linear']
heads of 'n' [2] [3, 0]
heads of 'm' [2] [3, 0]
n: a model, 0 steps in its log
['comparisons', 'lengths', 'models'] 4 4
config.json
log.jsonl
model.safetensors
state.safetensors
train.json
--- stderr
foci report: n: heads cannot be looked at: nowhere/foci-*: No such file or directory
foci report: the page is none.html

=== values without a place on an axis, and records with others than they should have
C="--preset none --task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 --valid-every 1 --threads 1"
foci compare $C --attention softmax --attention linear --tune decay=0.001,0,0.1 --seeds 1 --out c --quiet >/dev/null
page c/report.html
foci report c --plots p --quiet | grep -c "an end of the grid"
cut -d, -f1,2 p/*-tune-decay.csv | head -4
grep -c 'nan\|inf' p/*.svg | grep -v ':0'
sed -i 's/"commands":\[[^]]*\]/"commands":[3]/; s/"curve":\[\[[^]]*\]/"curve":[[1,null,null,null]/' c/results.jsonl
foci report c --out r.html --plots q --quiet >/dev/null
page r.html
cut -d, -f1,2 q/02-learning.csv
foci report c --plots r.html
python3 - c/runs/softmax*/heads.json <<'END'
import base64, json, sys
weights = base64.b64encode(bytes(1024)).decode()
many = lambda queries, keys, n: {"name": "a", "queries": queries, "keys": keys,
                                 "heads": n * [{"most": 1, "weights": weights}]}
for name in sys.argv[1:]:
    json.dump({"sides": [], "attentions": [many(1, 1024, 8)] + 200 * [many(1024, 1, 1)]},
              open(name, "w"))
END
foci report c --plots q >/dev/null
foci compare --length 8,16 --heads 1 --dim 4 --attention linear --repeat 1 --threads 1 --out l --quiet >/dev/null
sed -i '1s/"length": *8/"length": 0/; 2s/"length": *8/"length": -8/' l/lengths.jsonl
foci report l --plots q --quiet >/dev/null
cut -d, -f1,2 q/01-time.csv
--- stdout
2 sections, 8 figures
arms ['softmax', 'linear']
heads of 'softmax' [2] [3, 0]
heads of 'linear' [2] [3, 0]
0
series,decay
softmax,0.001
softmax,0
softmax,0.1
2 sections, 8 figures
arms ['softmax', 'linear']
heads of 'softmax' [2] [3, 0]
heads of 'linear' [2] [3, 0]
series,training steps
softmax,2
linear,2
floor: last symbol,
series,tokens
softmax,16
linear,16
--- stderr
foci report: --plots r.html: is a file; figures go to a folder
foci report: softmax: its maps are 16496 x 418904, too large for a file of all

=== folders without results, other versions, lines and files that are corrupt
C="--preset none --task copy(symbols=4,longest=4,test=4,form=row) --dim 8 --layers 1 --heads 2 --batch 4 --steps 2 --threads 1 --attention softmax --seeds 2"
foci compare $C --out c --quiet >/dev/null
foci compare --length 8,16 --heads 1 --dim 4 --attention linear --repeat 1 --threads 1 --out l --quiet >/dev/null
mkdir empty model
foci report empty
foci report c/compare.json
foci report
echo '{"weights": 3' >$(echo c/runs/*-s1-*)/heads.json
echo 'no line' >>l/lengths.jsonl
foci report c l --out r.html >/dev/null
page r.html
sed '1s/"heads": 1/"heads": 2/' l/lengths.jsonl >l2 && cp l2 l/lengths.jsonl
foci report l --out s.html
sed -i '2s/"version":"[^"]*"/"version":"0.0.1"/' c/results.jsonl
foci report c --out s.html
printf '{' >c/compare.json
foci report c --out s.html
echo '{}' >model/config.json; echo 1 >model/model.safetensors
echo '{"arguments": ["--arm", "it'"'"'s $x", "--lr", 3]}' >model/train.json
foci report model --out t.html | head -1
grep -o '<code>.*' t.html
foci report c --out nowhere/s.html
ls *.html
--- stdout
2 sections, 9 figures
arms ['softmax', 'linear']
model: a model, 0 steps in its log
<code>foci train --arm 'it'\''s $x' --lr ''</code></p>
r.html
t.html
--- stderr
foci report: empty has no results: neither a compare.json of foci compare, nor lengths.jsonl of foci compare --length, nor a trained model
foci report: c/compare.json is a file; a report is made of folders
foci report: needs an argument; usage: foci report DIR...
foci report: l/lengths.jsonl, line 5: * near 'no': it is left out
foci report: c/runs/softmax-s1-*/heads.json: has no weights of heads: they are left out
foci report: the page is r.html
foci report: l/lengths.jsonl, line 2: its heads is another than on line 1: results of two settings are not compared
foci report: c/results.jsonl, line 2: is by foci 0.0.1, others by foci *: results of two versions are not compared; give another --out, or use that version
foci report: c/compare.json, line 1: * near end of file
foci report: model: heads cannot be looked at: *
foci report: the page is t.html
foci report: nowhere/s.html: cannot be made: No such file or directory

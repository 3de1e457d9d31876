# foci analyse: what heads do, of matrices, of tensors and of trained models.

=== matrices: the published row
r=0.0320586033,0.0871443187,0.2368828181,0.6439142599
npy make a.npy 4x4 $r,$r,$r,$r
foci analyse --weights a.npy --top 2
foci analyse --weights a.npy --top 2 --json | python3 -c '
import json, sys
h = json.load(sys.stdin)["layers"][0]["heads"][0]
print(*("%.6f" % h[k] for k in ("concentration", "entropy", "top")), h["pattern"], h["reasons"])'
--- stdout
head       S  entropy  of log n  perplexity  top 2  distance  eff. rank  rank  pattern  share
   0  0.7222    0.948     0.684         2.6  0.881       1.3        1.0   1.0  end      0.967
0.722169 0.947537 0.880797 end {}

=== matrices that are causal: what stands above the diagonal counts nowhere
npy make a.npy 2x3x3 1,.7,.7,.5,.5,.7,.2,.3,.5,1,.9,.1,.25,.75,.2,.3,.3,.4
npy make b.npy 2x3x3 1,0,0,.5,.5,0,.2,.3,.5,1,0,0,.25,.75,0,.3,.3,.4
foci analyse --weights a.npy --causal > a
foci analyse --weights b.npy --causal > b
cmp a b && tail -1 a
--- stdout
all                0.883  0 and 1        0.883

=== tensors; what does not apply says why
npy make q.npy 3x12x4 wave:1
npy make k.npy 3x12x4 wave:2
foci analyse '1*softmax + 1*relu2 + 1*identity' --q q.npy --k k.npy --causal --sample 6 --csv h.csv > t
sed -n '1p;/^-/p' t
head -1 h.csv | cut -d, -f1-6
cut -d, -f2-4,6 h.csv | tail -3 | sed 's/\(0[.]...\).*/\1/'
foci analyse linear --q q.npy --k k.npy --rank 8 --json | python3 -c '
import json, sys
h = json.load(sys.stdin)["layers"][0]
print(h["spec"].split("(")[0], len(h["heads"]), h["heads"][0]["reasons"], h["likeness"][1][1])'
--- stdout
head       S  entropy  of log n  perplexity  top 8  distance  eff. rank  rank  pattern  share
-: head 1: entropy: the weights of some rows do not sum to 1
-: head 2: entropy: some weights are negative
-: heads 0 to 2: effective_rank: of some rows alone there is no rank
layer,head,rows,zero_rows,concentration,entropy
0,6,0,*
1,6,1,
2,6,0,
linear 3 {'effective_rank': 'the sequences are longer than those whose ranks are computed', 'numerical_rank': 'the sequences are longer than those whose ranks are computed'} 1.0

=== tensors: values are not needed, parameters may be given
npy make q.npy 2x8x4
npy make s.npy 2 9,9
foci analyse 'softmax sink' --q q.npy --k q.npy --param sink=s.npy | tail -1
npy make c.npy 4x4
foci analyse 'performer(kind=sderf)' --q q.npy --k q.npy --causal --calibrate --json | grep -c concentration
foci analyse softmax --q q.npy --k q.npy --dtype bf16 --json | grep -c concentration
foci analyse routed --q q.npy --k q.npy --x c.npy
--- stdout
-: heads 0 to 1: entropy: the weights of some rows do not sum to 1
3
3
--- stderr
foci analyse: --x c.npy: its shape is 4x4; --q q.npy of 2x8x4 needs 8xd
--- exit 1

=== matrices with numbers that are none, and too many of them
npy make n.npy 3x3 1,nan,0.5,0,1,2,inf,1,1
foci analyse --weights n.npy
npy make h.npy 1025x1x1
foci analyse --weights h.npy
--- stdout
head  S  entropy  of log n  perplexity  top 8  distance  eff. rank  rank  pattern  share
   0  -        -         -           -      -         -          -     -  -            -
-: head 0: concentration: some weights are no finite numbers
--- stderr
foci analyse: --weights h.npy: it has 1025 heads; accepted are up to 1024
--- exit 1

=== rows
npy make a.npy 2x3x3 $(seq 18 | sed 's/.*/0.33333334/' | paste -sd,)
foci analyse --weights a.npy --rows --csv rows.csv > all
foci analyse --weights a.npy --rows --json --causal | python3 -c '
import json, sys
print([(r["head"], r["row"], r["keys"], round(r["perplexity"], 3) if r["perplexity"] else None) for r in json.load(sys.stdin)["rows"]])'
cut -d, -f2-6 rows.csv
foci analyse --weights a.npy --rows
--- stdout
[(0, 0, 1, None), (0, 1, 2, None), (0, 2, 3, 3.0), (1, 0, 1, None), (1, 1, 2, None), (1, 2, 3, 3.0)]
head,sequence,row,keys,concentration
0,0,0,3,1
0,0,1,3,1
0,0,2,3,1
1,0,0,3,1
1,0,1,3,1
1,0,2,3,1
--- stderr
foci analyse: --rows needs --json or --csv FILE, where rows go
--- exit 2

=== a model of fixed patterns names its seven heads, and what it loses without them
for i in $(seq 200); do echo "the cat $i sat on mat $((i * 7 % 13)) and saw the dog"; done > t.txt
foci train mlm --data t.txt --attention '7*fixed + 1*softmax' --tokenizer chars --heads 8 --layers 2 --dim 32 --context 24 --steps 40 \
    --batch 8 --lr 0.01 --threads 1 --quiet --out m > /dev/null
foci analyse m --text t.txt --sequences 4 --ablate --out m.svg --json --quiet > m.json
python3 - <<'END'
import json
m = json.load(open("m.json"))
for l in m["layers"]:
    print(l["name"], *(h["pattern"] for h in l["heads"][:7]), min(h["shares"][h["pattern"]] for h in l["heads"][:7]) > 0.99999)
losses = [h["loss_without"] for l in m["layers"] for h in l["heads"]]
print(m["labels"] > 0, max(losses) > m["loss"], len(set(losses)))
END
foci analyse m --sequences 2 | sed -n '1,3p;/^layer *like/,$p' | sed 's/[0-9][0-9.]*/N/g'
python3 -c 'import xml.dom.minidom as m; print(m.parse("m.svg").documentElement.tagName)'
--- stdout
block 0 current previous next left right end start True
block 1 current previous next left right end start True
True True 16
layer    head       S  entropy  of log n  perplexity  top N  distance  eff. rank  rank  pattern   share
block N     N  N    N     N         N  N       N       N  N  current   N
            N  N    N     N         N  N       N       N  N  previous  N
layer    likeness of heads  most alike  likeness
block N              N  N and N *
block N              N  N and N *
svg

=== a causal model, its tensors in bf16, an attention without weights
foci train lm --task "copy(symbols=4,longest=4,test=4,form=row)" --attention "1*softmax + 1*memformer" --dtype bf16 --dim 16 --heads 2 \
    --layers 1 --batch 4 --steps 2 --threads 1 --quiet --out a > /dev/null
foci train lm --task "copy(symbols=4,longest=4,test=4,form=row)" --attention softmax --dtype bf16 --dim 16 --heads 2 \
    --layers 1 --batch 4 --steps 2 --threads 1 --quiet --out b > /dev/null
foci analyse a --task "copy(symbols=4,longest=4,test=4,form=row)" | tail -1
foci analyse b --ablate --sequences 3 | tail -1
--- stdout
-: block 0: column *: memformer has no matrix of weights: rows are made of slots, which are normalised on the way from the values
loss with all heads: * nats a label, over * labels

=== errors of a model's heads
foci train lm --task "copy(symbols=4,longest=4,test=4,form=row)" --attention softmax --dim 16 --heads 2 \
    --layers 2 --batch 4 --steps 2 --threads 1 --quiet --out b > /dev/null
foci analyse b --error relu2 --error softmax --quiet
foci analyse b --error relu2 --dim 4
foci analyse b --error relu2 --axis length=2..999:2
--- stdout
mechanism  keys     error of  error
relu2      block 0  output    *
                    weights   *
           block 1  output    *
                    weights   *
softmax    block 0  output    0.000
                    weights   0.000
           block 1  output    0.000
                    weights   0.000
columns: the tensors as they are; * tokens; width 8; 2 heads
output: |o - o'| / |o'|, weights: |A - A'| / |A'|, of softmax o' and A'
--- stderr
foci analyse: --dim is of random tensors, and a model gives its own
foci analyse: --axis length has 2 to 999; it takes 2 to *
--- exit 2

=== errors along an axis: more features, longer, wider; untrained mixtures say so
foci analyse --error performer --axis features=8..512:2 --dim 4 --length 64 --keys clustered --spreads 0.5 --json --quiet > f.json
python3 - <<'END'
import json
f = json.load(open("f.json"))
c = f["curves"][0]
print(f["axis"], f["values"], c["errors"][1] < c["errors"][0], c["weight_errors"][1] < c["weight_errors"][0], c["untrained"])
END
foci analyse --error linformer --axis rank=8,16 --dim 4 --length 16 --quiet | tail -1
foci analyse --error linear --axis length=8,16,32 --dim 4 --keys gaussian --quiet | sed -n '1p;4p'
foci analyse --error linear --axis dim=8,16 --keys gaussian --length 8 --quiet --out d.svg | sed -n '1p;4p'
foci analyse --error bigbird --axis random=0,2 --keys gaussian --dim 4 --length 16 --quiet --out zero.svg >/dev/null
grep -c 'nan\|inf' zero.svg
grep -o ">0</text>" zero.svg
--- stdout
features [8.0, 512.0] True True None
* linformer is an untrained mixture: E as drawn, which training would learn
mechanism  keys      error of      8     16     32
columns: tokens; width 4; 8 heads; logits of deviation 1
mechanism  keys      error of      8     16
columns: width of queries and keys; 8 tokens; 8 heads; logits of deviation 1
0
>0</text>

=== limits of frozen projections
foci analyse --orthogonality orthogonal --width 16 --heads 4 --draws 64 --limits --json --quiet > l.json
python3 - <<'END'
import json
l = json.load(open("l.json"))["limits"]
rows = l["results"]
print(l["heads"], l["draws"], len(rows), sorted({r["kind"] for r in rows}), sorted({r["dim"] for r in rows}))
far = [r for r in rows if r["kind"] != "hadamard" for k in ("logits", "mean_logits")
       if abs(r[k]["measured"] - r[k]["theory"]) > 5 * r[k]["error"] + 1e-6]
print(far, [r["spread"]["theory"] is None for r in rows[:2]])
print([(c["operations"], c["least"]) for c in l["equal_cost"]])
END
foci analyse --orthogonality orthogonal --width 15 --head-dim 5 --draws 16 --limits --quiet | tail -4
--- stdout
8 8 18 ['gaussian', 'hadamard', 'orthogonal'] [4, 8, 16]
[] [False, True]
*
operations * orthogonal * gaussian * hadamard * least
...

=== what does not go together
npy make a.npy 3x3
npy make q.npy 2x4x3
for c in '--weights a.npy --ablate' '--weights a.npy softmax' 'softmax --q q.npy' 'softmax --q q.npy --k q.npy --text a.npy' \
         'nowhere' '--weights no.npy' '--weights a.npy --error linear' 'm --error linear --q q.npy --k q.npy --v q.npy' \
         '--error linear --q q.npy --k q.npy' '--error linear --axis features --dim 4' '--error 1*linear+7*softmax --axis order=2 --dim 4' \
         '--error linear( --axis order=2 --dim 4' '--error 4*linear(kernel=taylor)+softmax --axis order=2 --dim 4' \
         'linaer --q q.npy --k q.npy' '--weights a.npy --out a.txt' '--weights a.npy --csv no/a.csv'; do
    foci analyse $c --quiet 2>&1
done
npy make long.npy 4x16384x1
foci analyse softmax --q long.npy --k long.npy --rank 16384 2>&1
foci analyse a b
--- stdout
foci analyse: --ablate belongs to DIR
foci analyse: 'softmax' is one word too many: --weights takes none
foci analyse: --k is missing, and softmax reads it
foci analyse: --text belongs to --error and DIR
foci analyse: 'nowhere' is no folder of a model; a mechanism is looked at with --q and --k
foci analyse: --weights no.npy: *
foci analyse: --error and --weights do not go together
foci analyse: m and --q do not go together: a model has its own
foci analyse: --v is missing: outputs need --q, --k and --v
foci analyse: --axis is 'features'; it takes NAME=LIST, *
foci analyse: --axis order needs a spec of one group, and '1*linear+7*softmax' has more
foci analyse: linear(: *
foci analyse: --axis order needs a spec of one group, and '4*linear(kernel=taylor)+softmax' has more
foci analyse: linaer: *
foci analyse: --out is 'a.txt'; it takes a name that ends in .svg or .png
foci analyse: *
foci analyse: ranks are those of whole matrices, and 4 matrices of 16384 x 16384 take 4.0 GiB at once, above 1: give shorter sequences, or a smaller rank
--- stderr
foci analyse: *
--- exit 2

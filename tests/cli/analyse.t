# foci analyse: estimates of random features beside what theory says.

=== a table
foci analyse --estimator performer --dim 4 --draws 20 --norms 0.5 --cosines 0,1
foci analyse --estimator performer --dim 4 --draws 20 --norms 100 --cosines 1 | tail -1 | awk '{print $NF}'
--- stdout
estimator  norm  cosine   exact    mean    error   variance  closed form  ratio
performer   0.5       0  1.0000  *
            0.5       1  1.2840  *
-

=== measured and predicted agree, with and without bias
foci analyse --estimator 'performer(ortho=0)' --estimator 'performer(kind=hyp, ortho=0)' \
    --estimator 'performer(kind=favor++, ortho=0)' --estimator 'performer(kind=aderf)' \
    --estimator 'performer(rows=unit)' --dim 4 --draws 20000 --norms 0.3,0.5 --json > a.json
python3 - <<'END'
import json
a = json.load(open("a.json"))
print(sorted(a), a["dim"], a["draws"], a["pairs"], a["seed"])
for e in a["estimators"]:
    far = [abs(r["mean"] - r["exact"]) / r["error"] for r in e["results"]]
    near = [r["ratio"] for r in e["results"]]
    print(e["spec"].split("ortho")[0], len(far), max(far) < 4, min(near) > 0.8, max(near) < 1.15)
print(sorted(a["estimators"][0]["results"][0]))
END
--- stdout
['dim', 'draws', 'estimators', 'pairs', 'seed'] 4 20000 4 0
1*performer(kind=favor+, features=0,  6 True True True
1*performer(kind=hyp, features=0,  6 True True True
1*performer(kind=favor++, features=0,  6 True True True
1*performer(kind=aderf, features=0,  6 True True True
1*performer(kind=favor+, features=0,  6 False True True
['closed_form', 'cosine', 'error', 'exact', 'mean', 'norm', 'ratio', 'second_moment', 'variance']

=== the same each time, and other numbers from another seed
foci analyse --estimator performer --dim 4 --draws 10 > a
foci analyse --estimator performer --dim 4 --draws 10 --seed 0 | cmp - a
foci analyse --estimator performer --dim 4 --draws 10 --seed 1 | cmp -s - a
--- exit 1

=== what estimates are of
foci analyse --estimator 'performer(kernel=gaussian)' --dim 4 --draws 10 --norms 1 --cosines 1,-1 | awk '{ print $(NF - 5 + (NR == 1) * -1) }'
--- stdout
exact
1.0000
0.1353

=== a list of numbers by its ends
foci analyse --estimator performer --dim 4 --draws 10 --pairs 1 --norms 0.25..1:4,2 --cosines -.5...5:2 --json > l.json
python3 -c 'import json; print([(r["norm"], r["cosine"]) for r in json.load(open("l.json"))["estimators"][0]["results"]][1:6])'
--- stdout
[(0.25, 0.5), (0.5, -0.5), (0.5, 0.5), (0.75, -0.5), (0.75, 0.5)]

=== no formula is no number
foci analyse --estimator 'performer(kind=sderf, rows=unit)' --dim 4 --draws 10 --norms 1 --cosines 0 --json | grep 'closed\|second\|ratio'
--- stdout
          "closed_form": null,
          "ratio": null,
          "second_moment": null

=== without a spec, without a width
foci analyse --dim 4
foci analyse --estimator performer
--- stderr
foci analyse: a model's folder, SPEC with --q and --k, --weights, --estimator, --error, * is missing; usage: *
foci analyse: --dim is missing; usage: foci analyse --estimator SPEC --dim N
--- exit 2

=== lists that are none
foci analyse --estimator performer --dim 4 --norms 1,
foci analyse --estimator performer --dim 4 --cosines 0.5,2
foci analyse --estimator performer --dim 4 --norms 1,2..3:256
foci analyse --estimator performer --dim 4 --norms 1..2
foci analyse --estimator performer --dim 4 --norms 1..2:3:4
foci analyse --estimator performer --dim 4 --norms 0..2:3
--- stderr
foci analyse: --norms is '1,'; it takes up to 256 numbers from 0.001 to 100 with commas, or FROM..TO:COUNT
foci analyse: --cosines is '0.5,2'; it takes up to 256 numbers from -1 to 1 with commas, or FROM..TO:COUNT
foci analyse: --norms is '1,2..3:256'; it takes *
foci analyse: --norms is '1..2'; it takes *
foci analyse: --norms is '1..2:3:4'; it takes *
foci analyse: --norms is '0..2:3'; it takes *
--- exit 2

=== features that are not random
foci analyse --estimator 'linear(kernel=elu)' --dim 4
foci analyse --estimator softmax --dim 4
--- stderr
foci analyse: linear(kernel=elu): linear has no random features: performer has
foci analyse: softmax: softmax has no random features: performer has
--- exit 2

=== mistakes in the spec
foci analyse --estimator perfromer --dim 4
--- stderr
foci analyse: perfromer: column 1: unknown mechanism "perfromer"; the nearest is "performer"
--- exit 2

=== errors against softmax
foci analyse --error softmax --error 'linear(kernel=taylor)' --dim 4 --length 32 --spreads 0.1,1 --quiet
--- stdout
mechanism              keys       error of    0.1      1
softmax                gaussian   output    0.000  0.000
                                  weights   0.000  0.000
                       clustered  output    0.000  0.000
                                  weights   0.000  0.000
linear(kernel=taylor)  gaussian   output    0.00*
                                  weights   0.00*
                       clustered  output    0.00*
                                  weights   0.00*
columns: standard deviation of the logits s q.k; 32 tokens; width 4; 8 heads
output: |o - o'| / |o'|, weights: |A - A'| / |A'|, of softmax o' and A'

=== errors as JSON; more features are nearer, and more products
foci analyse --error 'performer(features=8)' --error 'performer(features=512)' --error 'linear(kernel=taylor, order=1)' \
    --error 'linear(kernel=taylor, order=3)' --dim 4 --length 64 --spreads 0.5 --keys gaussian --seed 3 --json --quiet > e.json
python3 - <<'END'
import json
e = json.load(open("e.json"))
print(sorted(e), e["dim"], e["length"], e["heads"], e["seed"], e["spreads"])
few, many, short, long = (c["errors"][0] for c in e["curves"])
print(many < few / 2, long < short / 3, {c["keys"] for c in e["curves"]})
END
--- stdout
['axis', 'curves', 'dim', 'heads', 'length', 'seed', 'spreads', 'values'] 4 64 8 3 [0.5]
True True {'gaussian'}

=== errors as pictures
foci analyse --error linear --error relu2 --dim 4 --length 16 --keys clustered --out e.svg --quiet | wc -l
foci analyse --error 'linear(kernel=cos)' --dim 4 --length 16 --out e.PNG --quiet > /dev/null
grep -c polyline e.svg
python3 -c 'import xml.dom.minidom as m; print(m.parse("e.svg").documentElement.tagName)'
echo $(head -c 4 e.PNG | tail -c 3)
--- stdout
7
4
svg
PNG

=== progress of errors
foci analyse --error linear --error relu2 --dim 4 --length 16 > /dev/null
--- stderr
foci analyse: 1 of 2: linear
foci analyse: 2 of 2: relu2

=== errors of what cannot be, and options of the other form
for c in '--error linaer --dim 4' '--error routed --dim 4' '--error linear' '--error linear --estimator performer --dim 4' \
         '--error linear --dim 4 --draws 3' '--estimator performer --dim 4 --out x.svg' '--error linear --dim 4 --out x.gif' \
         '--error linear --dim 4 --spreads 0' '--error linear --dim 4 --keys some'; do
    foci analyse $c --quiet 2>&1
done
nine=
for i in 1 2 3 4 5 6 7 8 9; do nine="$nine --error linear"; done
foci analyse $nine --dim 4 --out x.svg
--- stdout
foci analyse: linaer: *
foci analyse: routed: *
foci analyse: --dim is missing; usage: foci analyse --error SPEC --dim N
foci analyse: --estimator and --error do not go together
foci analyse: --draws belongs to --estimator, --orthogonality, --theory and --dilution
foci analyse: --out belongs to --error, --orthogonality, --theory, --dilution, --weights, SPEC and DIR
foci analyse: --out is 'x.gif'; it takes a name that ends in .svg or .png
foci analyse: --spreads is '0'; it takes up to 256 numbers from 0.001 to 1000 with commas, or FROM..TO:COUNT
foci analyse: --keys is 'some'; it takes gaussian|clustered|both
--- stderr
foci analyse: --error is given 9 times; a picture has room for 8
--- exit 2

=== frozen projections
foci analyse --orthogonality orthogonal --width 32 --heads 4 --draws 8 --quiet
--- stdout
orthogonal: width 32, heads of 8

figure * measured * error * theory
largest entry of |W'W - I| * *e-0* 0
smallest singular value * 1 * 1
largest singular value * 1 * 1
condition number * 1 * 1
  the same of gaussian: smallest * 0.5
  largest * 1.5
  condition number * 3
overlap of two heads |W1'W2|^2 * 2
|xW|^2: mean * 0.25
  variance * 0.011029
xW.yW, tied: mean * 0.125
  variance * 0.0070268
xWq.yWk, not tied: mean * 0
  variance * 0.0078125
gradient |GW'| / |G| * 1 * 1
  standard deviation of rows * 0
parameters saved * 2048 * -
  bytes of a file * 8192 * -
  bytes of training, with Adam * 32768 * -

squared distances of 256 random states, relative change

dim * rms  theory * worst  bound
  4 * 0.6417 * -
  8 * 0.4201 * -
 16 * 0.2425 * -
 32  0.0000  0.0000  0.0000 * -

=== frozen projections as JSON: measured within five errors of theory
foci analyse --orthogonality orthogonal --orthogonality 'softmax frozen(gaussian)' --orthogonality 'linear frozen(hadamard)' \
    --orthogonality '2*softmax + 4*softmax frozen(orthogonal, sample=block)' --width 48 --heads 6 --head-dim 8 --draws 100 \
    --seed 3 --json --quiet > o.json
python3 - <<'END'
import json
o = json.load(open("o.json"))
print(sorted(o), [(r["spec"], r["group"]) for r in o["results"]][-1])
for r in o["results"]:
    f = r["figures"]
    far = [k for k in f if f[k]["error"] > 1e-9 and abs(f[k]["measured"] - f[k]["theory"]) > 5 * f[k]["error"]]
    print(f["gram"]["measured"] < 1e-6, round(f["overlap"]["theory"], 3), f["condition"]["theory"] < 2, far)
    print([d["dim"] for d in r["distances"]], max(abs(d["rms"] - d["theory"]) for d in r["distances"]) < 0.1)
END
--- stdout
['draws', 'head_dim', 'heads', 'results', 'rows', 'seed', 'width'] ('2*softmax + 4*softmax frozen(orthogonal, sample=block)', 1)
True 1.333 True []
[4, 8, 16, 32, 48] True
False 1.333 False []
[4, 8, 16, 32, 48] True
True 1.333 True []
[4, 8, 16, 32, 48] True
True 0.0 True []
[4, 8, 16, 32, 48] True

=== distances of given hidden states, and a picture
npy make x.npy 2x5x12
foci analyse --orthogonality orthogonal --orthogonality 'softmax frozen(gaussian)' --width 12 --heads 4 --draws 2 --x x.npy \
    --out k.svg --quiet | grep -c 'squared distances of 10 hidden states'
foci analyse --orthogonality orthogonal --width 12 --draws 2 --out k.png --quiet | wc -l
grep -c polyline k.svg
python3 -c 'import xml.dom.minidom as m; print(m.parse("k.svg").documentElement.tagName)'
echo $(head -c 4 k.png | tail -c 3)
--- stdout
2
29
9
svg
PNG

=== frozen projections that cannot be, and options of other forms
npy make x.npy 3x5
npy make y.npy 1x12
for c in '--orthogonality softmax --width 8' '--orthogonality fixed --width 8' '--orthogonality orthogonal' '--orthogonality orthogonal --width 9 --heads 2' \
         '--orthogonality orthogonal --width 8 --dim 3' '--orthogonality orthogonal --width 8 --head-dim 9' \
         '--orthogonality orthogonal --width 8 --error linear' '--error linear --dim 3 --width 3' \
         '--orthogonality orthogonal --width 8 --out x.gif' '--orthogonality orthogonal --width 8 --x x.npy' \
         '--orthogonality orthogonal --width 12 --x y.npy' '--orthogonality orthogonl --width 8'; do
    foci analyse $c --quiet 2>&1
done
foci analyse --orthogonality 'softmax frozen(hadamard)' --width 9 --quiet
foci analyse --orthogonality 'softmax frozen(sample=block)' --width 8 --heads 3 --head-dim 3 --quiet
--- stdout
foci analyse: softmax: softmax has no frozen projections; softmax frozen(orthogonal) would
foci analyse: fixed: fixed reads neither queries nor keys and has no projections of them to freeze; softmax frozen(orthogonal) has
foci analyse: --width is missing; usage: foci analyse --orthogonality SPEC --width N
foci analyse: --width 9 is no multiple of --heads 2; --head-dim says how wide a head is
foci analyse: --dim belongs to --estimator, --error and --dilution
foci analyse: orthogonal: no 9 columns of 8 elements are orthonormal; a head may be as wide as x at most
foci analyse: --error and --orthogonality do not go together
foci analyse: --width belongs to --orthogonality
foci analyse: --out is 'x.gif'; it takes a name that ends in .svg or .png
foci analyse: x.npy is 3x5; --x takes rows of 8 numbers, N x 8
foci analyse: y.npy has 1 rows; distances need two
foci analyse: orthogonl: column 1: *; the nearest is "orthogonal"
--- stderr
foci analyse: softmax frozen(hadamard): hadamard needs an even width, for runs of 2, 4, 8 ... elements, and 9 is odd; orthogonal takes any
foci analyse: softmax frozen(sample=block): sample=block shares out one matrix of at most 8 columns, and 3 heads of 3 need more; narrower heads or sample=perhead will do
--- exit 2

# foci analyse: estimates of random features beside what theory says.

=== a table
foci analyse --estimator performer --dim 4 --draws 20 --norms 0.5 --cosines 0,1
--- stdout
estimator  norm  cosine   exact    mean    error   variance  closed form  ratio
performer   0.5       0  1.0000  *
            0.5       1  1.2840  *

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
foci analyse: --estimator or --error is missing; usage: *
foci analyse: --dim is missing; usage: foci analyse --estimator SPEC --dim D
--- exit 2

=== lists that are none
foci analyse --estimator performer --dim 4 --norms 1,
foci analyse --estimator performer --dim 4 --cosines 0.5,2
foci analyse --estimator performer --dim 4 --norms 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1
--- stderr
foci analyse: --norms is '1,'; it takes up to 16 numbers from 0.001 to 100 with commas
foci analyse: --cosines is '0.5,2'; it takes up to 16 numbers from -1 to 1 with commas
foci analyse: --norms is '1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1'; it takes *
--- exit 2

=== features that are not random
foci analyse --estimator 'linear(kernel=elu)' --dim 4
foci analyse --estimator softmax --dim 4
--- stderr
foci analyse: linear(kernel=elu): linear has no random features
foci analyse: softmax: softmax has no random features
--- exit 1

=== mistakes in the spec
foci analyse --estimator perfromer --dim 4
--- stderr
foci analyse: perfromer: column 1: unknown mechanism "perfromer"; the nearest is "performer"
--- exit 2

=== errors against softmax
foci analyse --error softmax --error 'linear(kernel=taylor)' --dim 4 --length 32 --spreads 0.1,1 --quiet
--- stdout
mechanism              keys         0.1      1
softmax                gaussian   0.000  0.000
                       clustered  0.000  0.000
linear(kernel=taylor)  gaussian   0.00*
                       clustered  0.00*

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
['curves', 'dim', 'heads', 'length', 'seed', 'spreads'] 4 64 8 3 [0.5]
True True {'gaussian'}

=== errors as pictures
foci analyse --error linear --error relu2 --dim 4 --length 16 --keys clustered --out e.svg --quiet | wc -l
foci analyse --error 'linear(kernel=cos)' --dim 4 --length 16 --out e.PNG --quiet > /dev/null
grep -c polyline e.svg
python3 -c 'import xml.dom.minidom as m; print(m.parse("e.svg").documentElement.tagName)'
echo $(head -c 4 e.PNG | tail -c 3)
--- stdout
3
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
foci analyse: --dim is missing; usage: foci analyse --error SPEC --dim D
foci analyse: --estimator and --error do not go together
foci analyse: --draws belongs to --estimator
foci analyse: --out belongs to --error
foci analyse: --out is 'x.gif'; it takes a name that ends in .svg or .png
foci analyse: --spreads is '0'; it takes up to 16 numbers from 0.001 to 1000 with commas
foci analyse: --keys is 'some'; it takes gaussian|clustered|both
--- stderr
foci analyse: --error is given 9 times; a picture has room for 8
--- exit 2

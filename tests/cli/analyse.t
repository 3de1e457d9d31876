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
foci analyse: --estimator is missing; usage: foci analyse --estimator SPEC --dim D
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

# foci analyse: how evenly weights are spread in theory, and how one key is lost among many.

=== a table
foci analyse --theory relu2 --beta -3,0..1:2 --gamma 1 --draws 100
foci analyse --theory decay --lambda 0.9 --lengths 50 --draws 100
--- stdout
gamma  beta  closed form  integrated * drawn * error
    1    -3   0.01670562  0.01670562 * *
    1     0    0.4082483   0.4082483 * *
    1     1    0.6127729   0.6127729 * *
lambda  lengths  closed form  integrated * drawn * error
   0.9       50    0.6132725   0.6132725 * *

=== three ways to one number, as JSON and as CSV
for kind in exp relu2 identity linear decay; do
    foci analyse --theory $kind --draws 20000 --seed 1 --csv $kind.csv --json --quiet > $kind.json
done
python3 - <<'END'
import csv, json, math
for kind in "exp relu2 identity linear decay".split():
    t = json.load(open(kind + ".json"))
    near = [abs(r["integrated"] / r["closed_form"] - 1) < 1e-8 for r in t["results"]]
    far = [abs(r["drawn"] - r["closed_form"]) / (r["error"] + 1e-9) for r in t["results"]]
    rows = list(csv.DictReader(open(kind + ".csv")))
    print(t["theory"], t["draws"], t["seed"], all(near), max(far) < 4, len(rows), *rows[0])
    if kind == "exp":
        print(max(abs(float(r["closed_form"]) - math.exp(-float(r["gamma"]) ** 2 / 2)) for r in rows) < 1e-15)
END
--- stdout
exp 20000 1 True True 9 beta gamma closed_form integrated drawn error
True
relu2 20000 1 True True 27 gamma beta closed_form integrated drawn error
identity 20000 1 True True 27 gamma beta closed_form integrated drawn error
linear 20000 1 True True 36 features ratio closed_form integrated drawn error
decay 20000 1 True True 28 lambda lengths closed_form integrated drawn error

=== where all weights are zero there is no number
foci analyse --theory identity --beta 0 --gamma 0 --csv z.csv
foci analyse --theory identity --beta 0 --gamma 0 --json | grep null
cat z.csv
--- stdout
gamma  beta  closed form  integrated  drawn    error
    0     0            -           -      -  0.0e+00
      "closed_form": null,
      "integrated": null,
      "drawn": null,
gamma,beta,closed_form,integrated,drawn,error
0,0,,,,0

=== pictures
foci analyse --theory relu2 --draws 100 --out t.svg | wc -l
foci analyse --theory decay --draws 100 --out t.png > /dev/null
foci analyse --dilution --attention softmax --attention linear --lengths 16,32 --draws 2 --out d.svg | wc -l
for f in t.svg d.svg; do python3 -c 'import sys, xml.dom.minidom as m; print(m.parse(sys.argv[1]).documentElement.tagName)' $f; done
grep -c polyline t.svg
echo $(head -c 4 t.png | tail -c 3)
--- stdout
28
5
svg
svg
6
PNG

=== one relevant key: what theory says of four mechanisms
foci analyse --dilution --attention softmax --attention 'softmax logn' --attention 'local(window=20)' --attention relu2 \
    --lengths 16,128,4096 --draws 24 --seed 2 --csv d.csv --json --quiet > d.json
python3 - <<'END'
import csv, json, math
d = json.load(open("d.json"))
print(sorted(d), d["gamma"], d["margin"])
def one(factor, keys):
    return 1 / (1 + (keys - 1) * math.exp(factor ** 2 / 2 - 6 * factor))
theory = {"softmax": lambda n: one(1, n), "softmax logn": lambda n: one(math.log(n) / math.log(512), n),
          "local(window=20)": lambda n: one(1, min(n, 21)), "relu2": lambda n: 36 / (36 + (n - 1) / 2)}
print(max(abs(r["weight"] - theory[r["spec"]](r["keys"])) / r["weight_95"] for r in d["results"]) < 2)
print(max(abs(r["theory"] / theory[r["spec"]](r["keys"]) - 1) for r in d["results"] if r["theory"]) < 1e-8)
print(sorted({r["spec"] for r in d["results"] if r["theory"] is None}))
rows = list(csv.DictReader(open("d.csv")))
print([abs(float(a["weight"]) - b["weight"]) < 1e-8 and a["mechanism"] == b["spec"]
       for a, b in zip(rows, d["results"])] == [True] * 12)
END
--- stdout
['beta', 'dim', 'distance', 'draws', 'gamma', 'margin', 'results', 'seed'] 1.0 6.0
True
True
['local(window=20)', 'softmax logn']
True

=== rows of noise alone are spread as --theory says, signed ones too
foci analyse --dilution --attention softmax --attention relu2 --attention identity --gamma 0.7 --beta 0.35 --margin 0 \
    --lengths 8192 --dim 16 --draws 16 --json --quiet > d.json
for kind in exp relu2 identity; do
    foci analyse --theory $kind --beta 0.35 --gamma 0.7 --draws 2 --json --quiet > $kind.json
done
python3 - <<'END'
import json
for row, kind in zip(json.load(open("d.json"))["results"], ("exp", "relu2", "identity")):
    s = json.load(open(kind + ".json"))["results"][0]["closed_form"]
    print(row["spec"], abs(row["S"] - s) < 2 * row["S_95"] < 0.01)
END
--- stdout
softmax True
relu2 True
identity True

=== relu2 keeps the key where noise is below zero; local loses it beyond its window
foci analyse --dilution --attention relu2 --attention 'local(window=5)' --beta -4 --lengths 64 --draws 4 --json --quiet > d.json
python3 -c 'import json; print([round(r["weight"], 2) for r in json.load(open("d.json"))["results"]])'
--- stdout
[1.0, 0.0]

=== the seven mechanisms, the same each time
foci analyse --dilution --lengths 16 --draws 2 > a
foci analyse --dilution --lengths 16 --draws 2 --threads 3 | cmp - a
cut -c 1-16 a
--- stdout
mechanism*
softmax*
softmax logn*
local(window=64)
relu2*
linear*
performer*
retention*

=== mistakes
for c in '--theory' '--theory softmax' '--theory exp --lambda 0.5' '--theory decay --gamma 1' '--theory decay --lengths 1.5' \
         '--theory decay --lambda 2' '--theory exp --out x.gif' '--theory relu2 --gamma 1..2:9 --out x.svg' '--theory exp --dim 4' \
         '--dilution --theory exp' '--dilution --beta 1,2' '--dilution --lengths 16 --distance 16' '--dilution --lengths 1' \
         '--dilution --attention softmaxx' '--dilution --attention routed' '--dilution --lambda 1' '--estimator performer --dim 4 --csv x'; do
    foci analyse $c 2>&1
done
foci analyse --theory exp --draws 2 --csv /nowhere/x.csv
--- stdout
foci analyse: --theory *
foci analyse: --theory is 'softmax'; it takes exp|relu2|identity|linear|decay
foci analyse: --theory exp has no --lambda; it has --gamma and --beta
foci analyse: --theory decay has no --gamma; it has --lengths and --lambda
foci analyse: --lengths has 1.5; it takes whole numbers
foci analyse: --lambda is '2'; it takes up to 256 numbers from 0 to 1 with commas, or FROM..TO:COUNT
foci analyse: --out is 'x.gif'; it takes a name that ends in .svg or .png
foci analyse: --gamma has 9 values; a picture has room for 8
foci analyse: --dim belongs to --estimator, --error and --dilution
foci analyse: --theory and --dilution do not go together
foci analyse: --beta is '1,2'; --dilution takes one number
foci analyse: --distance is 16; of 16 keys the first is 15 back
foci analyse: --lengths is '1'; it takes up to 256 numbers from 2 to 1048576 with commas, or FROM..TO:COUNT
foci analyse: softmaxx: *; the nearest is "softmax"
foci analyse: routed: *
foci analyse: --lambda belongs to --theory
foci analyse: --csv belongs to --error, --theory, --dilution, --weights, SPEC and DIR
--- stderr
foci analyse: /nowhere/x.csv: *
--- exit 1

# foci compare --length: shapes, figures that follow from others, mistakes, what is kept.
# Times are never tested.

=== a table, crossings and advice
foci compare --length 8,16 --heads 2 --dim 8 --attention linear --attention 'lightconv(width=3)' --repeat 2 --quiet
--- stdout
length  mechanism *median ms *+-% *tokens/s *x softmax *memory *error*
     8  softmax * 1.00 *
        linear *
        lightconv(width=3) *(*)
    16  softmax * 1.00 *
        linear *
        lightconv(width=3) *(*)

forward, f32, 2 heads of 4, 2 threads; medians of 2 rounds
memory: *
*

mechanism           faster than softmax from *fastest of all at
softmax             - *
linear *
lightconv(width=3) *

*tokens use *: it is *
...

=== figures that follow from others
foci compare --length 32,8,1k,8 --heads 2 --dim 8 --attention linear --attention 'local(window=4)' --repeat 1 --quiet --json > c.json
python3 - <<'END'
import json, math
c = json.load(open("c.json"))
print(c["heads"], c["head_dim"], c["causal"], c["dtype"], c["pass"], c["data"])
r = {(x["spec"], x["length"]): x for x in c["results"]}
print(sorted({n for _, n in r}), len(r))
for (spec, n), x in r.items():
    parts = sum(x[k + "_bytes"] for k in ("tensor", "work", "saved", "state", "plan"))
    assert math.isclose(x["tokens_per_second"], n / x["seconds"], rel_tol=1e-6)
    assert x["memory_bytes"] == parts and x["tensor_bytes"] == 4 * n * 8 * 4
    assert x["quartile1"] <= x["seconds"] <= x["quartile3"] and x["rounds"] == 1
lengths = [8, 32, 1024]
for x in c["crossings"]:
    d = [math.log(r[x["spec"], n]["seconds"] / r["softmax", n]["seconds"]) for n in lengths]
    at = next((i for i in (2, 1, 0) if d[i] >= 0), -1)  # the last length at which it loses
    assert x["always"] == (at < 0)
    if at in (0, 1):
        t = d[at] / (d[at] - d[at + 1])
        n = lengths[at] * (lengths[at + 1] / lengths[at]) ** t
        assert math.isclose(x["faster_from"], n, rel_tol=1e-5), (x, n)
    else:
        assert x["faster_from"] is None
f = c["fastest"]
assert f[0]["from"] == 8 and f[-1]["to"] == 1024
assert all(a["to"] == b["from"] for a, b in zip(f, f[1:]))
for n, spec in ((8, f[0]["spec"]), (1024, f[-1]["spec"])):
    assert r[spec, n]["seconds"] == min(r[s, n]["seconds"] for s, m in r if m == n)
for x in c["advice"]:
    best = min(r[s, x["to"]]["seconds"] for s, m in r if m == x["to"])
    assert r[x["spec"], x["to"]]["seconds"] <= 1.1 * best
print([x["spec"] in x["text"] for x in c["advice"]].count(False))
END
--- stdout
2 4 False f32 fwd gaussian
[8, 32, 1024] 9
0

=== a window over all keys is exact, and others are as far as foci analyse finds them
for problem in '--length 700' '--length 700 --causal' '--length 300 --causal --dtype bf16' '--length 5 --precision fast --pass both'; do
    foci compare $problem --heads 2 --dim 16 --attention 'local(window=700)' --attention relu2 --repeat 1 --quiet --json |
        python3 -c 'import json, sys; print(*(x["error"] < 0.02 for x in json.load(sys.stdin)["results"]))'
done
foci compare --length 512 --attention linear --attention relu2 --repeat 1 --quiet --json > c.json
foci analyse --dim 64 --length 512 --spreads 1 --keys gaussian --error linear --error relu2 --quiet --json > a.json
python3 - <<'END'
import json
c = [x["error"] for x in json.load(open("c.json"))["results"]][1:]
a = [x["errors"][0] for x in json.load(open("a.json"))["curves"]]
print([abs(x - y) < 0.1 * y for x, y in zip(c, a)])
END
--- stdout
True True False
True True False
True True False
True True False
[True, True]

=== whose error says nothing, and who has none
foci compare --length 16 --heads 2 --dim 8 --attention fixed --attention '1*fixed + 1*softmax' --attention linformer --attention 'softmax sink' \
    --attention performer --attention 'routed(routes=2)' --repeat 1 --quiet --json |
    python3 -c 'import json, sys
for x in json.load(sys.stdin)["results"]: print(x["spec"], x["untrained"], x["error"] is None)'
--- stdout
softmax False False
fixed True False
1*fixed + 1*softmax True False
linformer True False
softmax sink True False
performer False False
routed(routes=2) True True

=== steps of all the default mechanisms that have any
foci compare --length 70 --heads 2 --dim 8 --pass step --repeat 1 --quiet --json |
    python3 -c 'import json, sys
for x in json.load(sys.stdin)["results"]: print(x["spec"], x["error"], x["state_bytes"] > 0, x["saved_bytes"])'
--- stdout
softmax None True 0.0
local None True 0.0
bigbird None True 0.0
lsh None True 0.0
linear None True 0.0
performer None True 0.0
retention None True 0.0

=== a mechanism that is left out of the default ones is named
foci compare --length 4 --heads 1 --dim 4 --causal --repeat 1 > /dev/null
--- stderr
foci compare: nystrom is left out: *cannot be causal*
foci compare: 1 of 1: 4 tokens

=== what would take too long, or needs more memory than there is
foci compare --length 1m --heads 2 --dim 16 --attention linear --time-limit 0.001 --quiet
foci compare --length 16m --heads 8 --dim 65536 --time-limit 1e9 --attention 'local(window=1)' --quiet --json |
    python3 -c 'import json, sys
for x in json.load(sys.stdin)["results"]: print(x["spec"], x["skipped"])'
--- stdout
 length  mechanism *
1048576  softmax            -    -         -          -       -      -
         linear             -    -         -          -       -      -

softmax at 1048576 was left out: it would take about *, and --time-limit is 0.001 s
linear at 1048576 was left out: it would take about *, and --time-limit is 0.001 s

forward, *
memory: *
*

Nothing was measured: give shorter lengths, or a longer --time-limit.
softmax it needs * TB of memory, and * can be had
local(window=1) it needs * TB of memory, and * can be had

=== a mechanism that some lengths do not suit
foci compare --length 4,12 --heads 1 --dim 4 --causal --attention 'synthesizer(max=8)' --repeat 1 --quiet | grep -E '^synth'
--- stdout
synthesizer(max=8) at 12 was left out: *
synthesizer(max=8) *

=== results are kept, and gone on with
shape="--heads 2 --dim 8 --repeat 1 --quiet --attention linear --out kept"
foci compare --length 8 $shape > /dev/null
cp kept/lengths.jsonl first
foci compare --length 8 $shape
foci compare --length 8,12 $shape --attention relu2 --resume > /dev/null
head -n 2 kept/lengths.jsonl | cmp - first
python3 - <<'END'
import json
for line in open("kept/lengths.jsonl"):
    x = json.loads(line)
    print(x["spec"], x["length"], x["setting"]["heads"], x["seconds"] > 0)
END
cp kept/lengths.jsonl second
foci compare --length 12,8 $shape --resume > a; foci compare --length 8,12 $shape --resume > b; cmp a b
cmp kept/lengths.jsonl second
ls kept
--- stdout
softmax 8 2 True
linear 8 2 True
relu2 8 2 True
softmax 12 2 True
linear 12 2 True
relu2 12 2 True
lengths.jsonl
report.html
--- stderr
foci compare: kept/lengths.jsonl is there already; --resume goes on with it, or give another --out

=== crossings and advice of given times: n^2 and 128 n microseconds, and 40 n that nobody trained
shape="--length 16,64,1k --heads 2 --dim 8 --repeat 1 --quiet --attention linear --attention lightconv --out kept"
foci compare $shape > /dev/null
python3 - <<'END'
import json
lines = [json.loads(line) for line in open("kept/lengths.jsonl")]
for x in lines:
    n = x["length"]
    t = {"softmax": n * n, "linear": 128 * n, "lightconv": 40 * n}[x["spec"]] * 1e-6
    m = {"softmax": 0, "linear": 1, "lightconv": 1000}[x["spec"]]
    x |= {"seconds": t, "quartile1": t, "quartile3": 1.5 * t, "rounds": 4}
    x |= {"work_bytes": 1e6 + m * n, "tensor_bytes": 0, "plan_bytes": 0, "error": m / 2}
with open("kept/lengths.jsonl", "w") as out:
    for x in lines:
        print(json.dumps(x), file=out)
END
foci compare $shape --resume | tail -n +2
--- stdout
    16  softmax        0.256   25    62.5 k       1.00  1.00 MB         0
        linear         2.048   25    7.81 k       0.12  1.00 MB      0.50
        lightconv      0.640   25    25.0 k       0.40  1.02 MB  (500.00)
    64  softmax        4.096   25    15.6 k       1.00  1.00 MB         0
        linear         8.192   25    7.81 k       0.50  1.00 MB      0.50
        lightconv      2.560   25    25.0 k       1.60  1.06 MB  (500.00)
  1024  softmax     1048.576   25       977       1.00  1.00 MB         0
        linear       131.072   25    7.81 k       8.00  1.00 MB      0.50
        lightconv     40.960   25    25.0 k      25.60  2.02 MB  (500.00)

forward, f32, 2 heads of 4, 2 threads; medians of 1 round
memory: *
*

mechanism  faster than softmax from  fastest of all at
softmax    -                         16 to about 40
linear     about 130                 -
lightconv  about 40                  about 40 to 1024

At 16 tokens use softmax: it is exact, no other is more than 10 % faster, and it needs the least memory, 1.00 MB.
From 64 to 1024 tokens use lightconv: it is the fastest, 1.6 to 26 times as fast as softmax; the least memory, 1.00 MB instead of 2.02 MB, is that of softmax.  It has weights that are untrained or not made of queries and keys.
9 of 9 times vary by more than 10 %: other work may slow the machine, and
measuring again may give other advice.

=== results of another setting, and lines that are none
shape="--length 8 --heads 2 --repeat 1 --quiet --attention linear --out kept"
foci compare $shape --dim 8 > /dev/null
foci compare $shape --dim 16 --resume
foci compare $shape --dim 8 --resume --causal
cp kept/lengths.jsonl good
for bad in '{"spec": "linear"' '[1]' '{"spec": "linear", "length": 8, "setting": {}}'; do
    { cat good; echo "$bad"; } > kept/lengths.jsonl
    foci compare $shape --dim 8 --resume
done
sed 's/"flops": [0-9.]*/"flops": "many"/' good > kept/lengths.jsonl
foci compare $shape --dim 8 --resume
--- stderr
foci compare: kept/lengths.jsonl, line 1: measured with head_dim 4, where it is 8 now; give the same options, or another --out
foci compare: kept/lengths.jsonl, line 1: measured with causal false, where it is true now; give the same options, or another --out
foci compare: kept/lengths.jsonl, line 3 is no result of foci compare --length: *
foci compare: kept/lengths.jsonl, line 3 is no result of foci compare --length
foci compare: kept/lengths.jsonl, line 3: measured with version unknown, *
foci compare: kept/lengths.jsonl, line 1: numbers are missing or out of range
--- exit 1

=== killed, and gone on with
shape="--length 8,16,32,64,128 --heads 2 --dim 8 --repeat 1 --attention linear --out kept"
foci compare $shape > /dev/null 2>&1 &
while [ ! -s kept/lengths.jsonl ]; do sleep 0.01; done
kill -9 $!
cp kept/lengths.jsonl killed
foci compare $shape --resume --quiet > /dev/null
head -n $(wc -l < killed) kept/lengths.jsonl | cmp - killed
python3 -c 'import json
print(len({(x["spec"], x["length"]) for x in map(json.loads, open("kept/lengths.jsonl"))}))'
--- stdout
10

=== for spreadsheets
foci compare --length 4,8 --heads 1 --dim 4 --attention 'bigbird(block=2, radius=1)' --repeat 1 --quiet --csv c.csv > /dev/null
python3 - <<'END'
import csv
for x in csv.DictReader(open("c.csv")):
    print(x["spec"], x["length"], float(x["seconds"]) > 0, x["untrained"], repr(x["skipped"]))
END
--- stdout
softmax 4 True 0 ''
bigbird(block=2, radius=1) 4 True 0 ''
softmax 8 True 0 ''
bigbird(block=2, radius=1) 8 True 0 ''

=== mistakes
for bad in '--length 1x' '--length 0' '--length 4,,8' '--length 17m' '--length 4 --dim 10 --heads 4' '--length 4 --attention linaer' \
           '--length 4 --attention linear --attention linear' '--length 4 --attention nystrom --causal' '--length 4 --resume' \
           '--length 4 --pass up' '--length 4 --out /dev/null' '--length 4 --csv none/c.csv' ''; do
    foci compare $bad --quiet
done
--- stderr
foci compare: --length is '1x'; it takes up to 64 whole numbers from 1 to 16777216 with commas, as in 1k,4k,16k (k: 1024)
foci compare: --length is '0'; *
foci compare: --length is '4,,8'; *
foci compare: --length is '17m'; *
foci compare: --dim 10 cannot be divided among 4 heads
foci compare: linaer: *linear*
foci compare: --attention 'linear' is given twice
foci compare: nystrom: *cannot be causal*
foci compare: --resume needs --out, whose results it goes on with
foci compare: --pass is 'up'; it takes fwd|bwd|both|step
foci compare: --out /dev/null: *
foci compare: none/c.csv: cannot be made: No such file or directory
foci compare: compare on what: *
--- exit 2

=== on a device
stand_in foci compare --length 16 --heads 2 --dim 32 --attention softmax --repeat 1 --quiet --device cuda --json |
    python3 -c 'import json, sys
c = json.load(sys.stdin)
print(c["device"], *(x["error"] < 1e-5 for x in c["results"]))'
stand_in foci compare --length 16 --heads 2 --dim 32 --attention linear --device cuda
stand_in foci compare --length 200000 --heads 2 --dim 32 --attention softmax --time-limit 1e9 --quiet --device cuda | grep 'left out'
--- stdout
stand-in True
softmax at 200000 was left out: execution failed: cuda:0: no memory for *
--- stderr
foci compare: linear: *only exact attention has a form there

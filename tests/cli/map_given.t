# foci map on what is given: queries and keys, weights; differences, scales, choices.

=== queries and keys, judged by softmax written out
python3 - <<'END'
import random, struct
def write(name, shape, values):
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ", ".join(map(str, shape))
    text += " " * (-(11 + len(text)) % 64) + "\n"
    open(name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + struct.pack("<%df" % len(values), *values))
r = random.Random(1)
write("q.npy", [2, 5, 4], [r.gauss(0, 2) for _ in range(40)])
write("k.npy", [2, 5, 4], [r.gauss(0, 2) for _ in range(40)])
END
cat > judge.py <<'END'
import json, math, struct, sys
def read(name):
    return struct.unpack("<40f", open(name, "rb").read()[-160:])
q, k, m = read("q.npy"), read("k.npy"), json.load(sys.stdin)
for h, p in enumerate(m["maps"]):
    causal = "--causal" in sys.argv
    for i in range(5):
        x = [sum(q[(h * 5 + i) * 4 + c] * k[(h * 5 + j) * 4 + c] for c in range(4)) / 2 for j in range(5)]
        e = [math.exp(t) if j <= i or not causal else 0 for j, t in enumerate(x)]
        for j in range(5):
            assert abs(p["weights"][i][j] - e[j] / sum(e)) < 1e-6, (h, i, j)
print(m["data"], m["problem"], [(p["first_head"], p["mechanism"]) for p in m["maps"]])
END
foci map softmax --q q.npy --k k.npy --json | python3 judge.py
foci map softmax --q q.npy --k k.npy --causal --json | python3 judge.py --causal
foci map '1*softmax + 1*relu2' --q q.npy --k k.npy --head 1 --out m.svg
grep -o 'q and k of q.npy and k.npy' m.svg
--- stdout
given h2n5d4 [(0, 'softmax'), (1, 'softmax')]
given h2n5d4c [(0, 'softmax'), (1, 'softmax')]
heads  pairs * mechanism
1 * relu2
q and k of q.npy and k.npy
q and k of q.npy and k.npy

=== weights as they are, and less others
npy make a.npy 2x2 0.5,0.5,1,0
npy make b.npy 2x2 0.25,0.75,1,0
foci map --weights a.npy --minus b.npy --out m.svg --json > m.json
python3 -c 'import json; m = json.load(open("m.json")); print(m["file"], m["minus"], m["maps"][0]["weights"])'
grep -o '[a-z, ]*below 0 on the left' m.svg
foci map --weights a.npy --scale linear --out m.svg > /dev/null
grep -o 'weight, linear scale' m.svg
--- stdout
a.npy b.npy [[0.25, -0.25], [0.0, 0.0]]
difference, square root scale, below 0 on the left
weight, linear scale

=== a difference of mechanisms is that of their weights
foci map --pattern relu2 n6d4 --data random --json > a.json
foci map --pattern softmax n6d4 --data random --json > b.json
foci map --pattern relu2 --minus softmax n6d4 --json > c.json
foci map --pattern '2*softmax + 1*fixed' --minus softmax h3n6d4 --data alike --head 0-1
python3 - <<'END'
import json
a, b, c = (json.load(open(n + ".json")) for n in "abc")
a, b, d = (m["maps"][0]["weights"] for m in (a, b, c))
print(max(abs(a[i][j] - b[i][j] - d[i][j]) for i in range(6) for j in range(6)) < 1e-7,
      c["minus"], c["data"], c["maps"][0]["mechanism"], c["maps"][0]["below_zero"] > 0)
END
--- stdout
heads *
0 to 1 * 0 to 0 * softmax - softmax
True softmax random relu2 - softmax True

=== scales say what they are and where shades stand
for s in linear sqrt log row; do
    foci map --pattern 'softmax alibi(1)' n24d4c --scale $s --out $s.svg > /dev/null
    grep -o '>[^<]*scale<\|>[^<]*largest<' $s.svg
    grep -o "fill='#697586'>[0-9.e-]*<" $s.svg | tail -3 | tr -d '\n'
    echo
done
foci map --pattern softmax n4d4 --scale cubic
--- stdout
>weight, linear scale<
fill='#697586'>0<fill='#697586'>0.5<fill='#697586'>1<
>weight, square root scale<
fill='#697586'>0<fill='#697586'>0.25<fill='#697586'>1<
>weight, logarithmic scale<
fill='#697586'>0.0001<fill='#697586'>0.01<fill='#697586'>1<
>weight as a share of the row's largest<
fill='#697586'>0<fill='#697586'>0.5<fill='#697586'>1<
--- stderr
foci map: --scale is 'cubic'; *
--- exit 2

=== many pairs are means, and the picture says of how many
foci map --pattern softmax n700d2 --out m.svg > /dev/null
grep -o 'each cell the mean of [0-9 x]*' m.svg
grep -o '>mean weight, [a-z ]*' m.svg
foci map --pattern 'local(window=1)' n700d2 --support --out m.svg > /dev/null
grep -o 'each cell the share seen of [0-9 x]*' m.svg
foci map --pattern softmax n100d2 --out m.svg > /dev/null
grep -c 'each cell' m.svg
--- stdout
each cell the mean of 2 x 2
>mean weight, square root scale
each cell the share seen of 2 x 2
0
--- exit 1

=== what estimates softmax is drawn on random data beside softmax
foci map --pattern 'performer(features=16)' n8d4 --json | grep '"data"\|"mechanism"\|"beside"'
foci map --pattern '1*nystrom(landmarks=2) scale(1) + 1*softmax' h2n8d4
foci map --pattern nystrom n8d4 --out m.svg > /dev/null
grep -o '>head 0: [a-z]*' m.svg
--- stdout
  "data": "random",
      "mechanism": "performer(features=16)",
      "mechanism": "softmax",
      "beside": true,
heads *
0 * nystrom(landmarks=2) scale(1)
0 * softmax scale(1)
1 * softmax
>head 0: nystrom
>head 0: softmax

=== patterns have names
foci map --pattern '5*fixed + 1*softmax' h6n4d4c --out m.svg > /dev/null
grep -o 'head [0-9]: [a-z: ]*' m.svg
--- stdout
head 0: fixed: current
head 1: fixed: previous
head 2: fixed: left
head 3: fixed: end
head 4: fixed: start
head 5: softmax

=== heads that are chosen
foci map --pattern '2*softmax + 2*relu2' h4n4d4 --data alike --head 0,2-3
foci map --pattern softmax h4n4d4 --head 4
foci map --pattern softmax h4n4d4 --head 1-
foci map --pattern softmax h4n4d4 --head 3-1
foci map --pattern softmax h4n4d4 --head ,
foci map --pattern softmax h4n4d4 --head 99999999999999999999
--- stdout
heads *
0 * softmax
2 to 3 * relu2
--- stderr
foci map: --head is '4'; they are numbered from 0 to 3
foci map: --head is '1-'; it takes numbers, as 0,2-5
foci map: --head is '3-1'; it takes numbers, as 0,2-5
foci map: --head is ','; it takes numbers, as 0,2-5
foci map: --head is '99999999999999999999'; it takes numbers, as 0,2-5
--- exit 2

=== forms and their options
npy make q.npy 3x4
foci map softmax --q q.npy
foci map --q q.npy --k q.npy
foci map softmax --q q.npy --k q.npy --pattern softmax
foci map --weights q.npy n4d4
foci map softmax --q q.npy --k q.npy --layer 1
foci map --pattern softmax --tokens 3 n4d4
foci map --weights q.npy --causal
--- stderr
foci map: --k is missing; usage: foci map SPEC --q FILE --k FILE
foci map: needs an argument; usage: foci map SPEC --q FILE --k FILE
foci map: --q and --pattern do not go together; usage: foci map --pattern SPEC PROBLEM
foci map: it takes no argument; usage: foci map --weights FILE
foci map: --layer and --q do not go together; usage: foci map SPEC --q FILE --k FILE
foci map: --tokens and --pattern do not go together; usage: foci map --pattern SPEC PROBLEM
foci map: --causal and --weights do not go together; usage: foci map --weights FILE
--- exit 2

=== files that do not fit
npy make q.npy 3x4
npy make k.npy 3x5
npy make b.npy 2x1x3x4
npy make long.npy 1025x2
npy make n.npy 2x2 1,nan,1,1
npy make v.npy 3
foci map softmax --q q.npy --k k.npy
foci map softmax --q b.npy --k b.npy
foci map softmax --q long.npy --k long.npy
foci map softmax --q nosuch.npy --k k.npy
foci map --weights v.npy
foci map --weights long.npy
foci map --weights n.npy
foci map --weights q.npy --minus k.npy
foci map softmax --q q.npy --k q.npy --x k.npy --minus fixed
foci map softmax --q q.npy --k q.npy --minus memformer
npy make x.npy 2x4
foci map softmax --q q.npy --k q.npy --x x.npy
--- stdout
heads *
* softmax - fixed: current
--- stderr
foci map: --k k.npy: its shape is 3x5, and that of --q q.npy is 3x4: widths have to be the same, and the heads of the one to divide those of the other
foci map: b.npy has a batch of 2; a map shows one sequence, b1
foci map: long.npy has 1025 queries and 1025 keys; a map takes 1 to 1024 of each
foci map: --q nosuch.npy: cannot be opened: *
foci map: --weights v.npy: its shape is 3; accepted are N x N and H x N x N
foci map: --weights long.npy: its shape is 1025x2; a map takes one sequence, *
foci map: n.npy: weights are not finite: head 0 has nan
foci map: --minus k.npy: its shape is 3x5; --weights q.npy of 3x4 needs the same
foci map: memformer: there are no weights to draw: its output is not one matrix times the values
foci map: --x x.npy: its shape is 2x4; a row for each query is needed, 3 x d
--- exit 1

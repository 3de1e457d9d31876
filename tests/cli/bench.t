# foci bench: what a case is.  Times are never tested.

=== a case
foci bench softmax/n64d16/f32/fwd --reps 2 --time 0.01 --quiet
--- stdout
case * median *
softmax/n64d16/f32/fwd *
...
plan n64d16, f32, *
...

=== cases as JSON, and compared with themselves
foci bench softmax/n64d16c/bf16/both 'relu2/h2n64d16/f32fast/bwd' --reps 2 --time 0.01 --quiet --json > old.json
python3 - <<'END'
import json
for c in json.load(open("old.json"))["cases"]:
    print(c["case"], c["reps"] >= 2, c["seconds"] > 0, c["flops"] > 0)
END
foci bench softmax/n64d16c/bf16/both --reps 2 --time 0.01 --quiet --compare old.json | sed -n 2p
--- stdout
softmax/n64d16c/bf16/both True True True
relu2/h2n64d16/f32fast/bwd True True True
softmax/n64d16c/bf16/both *

=== not a case
foci bench softmax/n64d16/f32
--- stderr
foci bench: *SPEC/PROBLEM/DTYPE/PASS*
--- exit 2

=== parts of a case that do not exist
for c in softmax/n64d16/f64/fwd softmax/n64d16/f32/sideways \
         softmax/q64/f32/fwd sofmax/n64d16/f32/fwd; do
    foci bench $c --reps 1 --quiet 2>&1
    echo $?
done
--- stdout
foci bench: *f64*f32, f32fast, bf16*
2
foci bench: *sideways*fwd, bwd, both, step*
2
foci bench: *q64*
2
foci bench: *sofmax*softmax*
2

=== products of matrices
foci bench product/m64n48k32/bf16/nt product/m5n3k2/f32fast product/m1n64k64/f32/tn --reps 2 --time 0 --quiet --json > p.json
python3 - <<'END'
import json
for c in json.load(open("p.json"))["cases"]:
    print(c["case"], c["reps"] >= 2, c["flops"], c["bytes"])
END
--- stdout
product/m64n48k32/bf16/nt True 196608.0 13312.0
product/m5n3k2/f32fast True 60.0 124.0
product/m1n64k64/f32/tn True 8192.0 16896.0

=== products that are none
for c in product/m64n48/f32/nn product/m0n1k1/f32/nn product/m1n1k1/f64/nn \
         product/m1n1k1/f32/nm product/m1n1k1x/f32/nn product/m99999999n1k1/f32/nn; do
    foci bench $c --reps 1 --quiet 2>&1
    echo $?
done
--- stdout
foci bench: *product/m64n48/f32/nn*product/mMnNkK/DTYPE/FORM*
2
foci bench: *product/m0n1k1*
2
foci bench: *product/m1n1k1/f64*
2
foci bench: *product/m1n1k1/f32/nm*
2
foci bench: *product/m1n1k1x*
2
foci bench: *product/m99999999*
2

=== comparison with a file that is not there
foci bench softmax/n64d16/f32/fwd --compare none.json --reps 1 --quiet
--- stderr
foci bench: --compare none.json: cannot be opened: No such file or directory
--- exit 1

=== comparison with a file that is something else
echo '[1, 2]' > x.json
foci bench softmax/n64d16/f32/fwd --compare x.json --reps 1 --quiet
--- stderr
foci bench: --compare x.json: no list "cases", as bench --json writes
--- exit 1

=== mechanisms that read hidden states, lists and routes
foci bench 'routed(routes=3)/h2n64d16/bf16/both' 'block(block=16)/n64d16/f32/both' 'global(window=2)/n64d16/f32/fwd' \
    'routed(inner=block(block=16))/h2k2n64d16/f32/fwd' --reps 2 --time 0 --quiet --json > b.json
python3 - <<'END'
import json
for c in json.load(open("b.json"))["cases"]:
    tiles = [c[k] for k in ("tiles_full", "tiles_part", "tiles_skipped")]
    print(c["case"], round(c["density"], 3), c["pairs"] > 0, tiles)
END
--- stdout
routed(routes=3)/h2n64d16/bf16/both 3.0 True [6, 0, 0]
block(block=16)/n64d16/f32/both * True [0, 1, 0]
global(window=2)/n64d16/f32/fwd * True [0, 1, 0]
routed(inner=block(block=16))/h2k2n64d16/f32/fwd * True [0, 4, 0]

=== a layout from a file
npy make l.npy 4x4 1,0,0,0,1,1,0,0,0,0,1,0,1,0,0,1
foci bench 'block(block=16)/n64d16/f32/fwd' 'softmax/n64d16/f32/fwd' --param layout=l.npy --reps 2 --time 0 --quiet --json | grep density
--- stdout
*"density": 0.375,
*"density": 1.0,

=== lists that do not fit, that nobody asks for, and parameters
npy make l.npy 3x3 1,0,0,0,1,1,0,0,1
foci bench 'block(block=16)/n64d16/f32/fwd' --param layout=l.npy --quiet
foci bench 'softmax/n64d16/f32/fwd' --param layout=l.npy --quiet
foci bench 'softmax sink/n64d16/f32/fwd' --param sink=l.npy --quiet
--- stderr
foci bench: block(block=16)/n64d16/f32/fwd: layout has 9 entries; block wants 16
foci bench: --param layout: no case asks for such a list
foci bench: --param sink: planning reads no such list, but layout, global; parameters are given to foci run
--- exit 2

=== steps of mechanisms that need as many queries as keys
foci bench --reps 70 --time 0 --quiet 'local(window=16)/b2h2n1m130d16/bf16/step' 'strided(stride=8)/b2h2n1m130d16/bf16/step' \
    'lsh(shared=1, buckets=8)/b2h2n1m130d16/f32/step' 'pooled/h2n3m130d16/f32/step' 'block/n1m130d16/bf16/step' \
    'global/n1m130d16/bf16/step' 'fixed(words=1)/b2h7n3m130d16/bf16/step' > out
sed -n 2,8p out
--- stdout
local(window=16)/b2h2n1m130d16/bf16/step *
strided(stride=8)/b2h2n1m130d16/bf16/step *
lsh(shared=1, buckets=8)/b2h2n1m130d16/f32/step *
pooled/h2n3m130d16/f32/step *
block/n1m130d16/bf16/step *
global/n1m130d16/bf16/step *
fixed(words=1)/b2h7n3m130d16/bf16/step *

=== a step of more tokens than there are keys after it
foci bench softmax/n64m4d8/f32/step
foci bench softmax/h2n2m1w8/f32/step
--- stderr
foci bench: case "softmax/n64m4d8/f32/step": m is 4; after a step of 64 tokens there are at least as many keys
foci bench: case "softmax/h2n2m1w8/f32/step": m is 1; after a step of 2 tokens there are at least as many keys
--- exit 2

=== a folder to compare with
mkdir old
foci bench --compare old softmax/n8d8/f32/fwd --reps 1 --time 0
--- stderr
foci bench: --compare old: cannot be read: Is a directory
--- exit 1

=== a step that cannot be is refused before time is spent
foci bench softmax/n64d16/f32/fwd 'lsh(shared=1, chunk=8)/n1m64d16/f32/step'
--- stderr
foci bench: lsh(shared=1, chunk=8)/n1m64d16/f32/step: *
--- exit 2

=== words
foci bench 'fixed(words=1)/b2h7n64d8/f32/both' 'fixed(words=1)/b3h7n50w56c/bf16/bwd' --reps 2 --time 0 --quiet > out
sed -n 2,3p out
--- stdout
fixed(words=1)/b2h7n64d8/f32/both *
fixed(words=1)/b3h7n50w56c/bf16/bwd *

=== a step of decoding
foci bench softmax/b2h4k2n1m200d16/f32/step 'relu2 logn/n3m70d8/bf16/step' --reps 3 --time 0 --quiet
--- stdout
...
softmax/b2h4k2n1m200d16/f32/step *
relu2 logn/n3m70d8/bf16/step *
...

=== layers: a width in the problem, and kinds
foci bench softmax/b2h4n64w32/f32/both '2*softmax frozen + 2*linear/h4n64w32c/bf16/bwd' softmax/h4n16m24w32/f32/both \
    'gau(relu2)/n64w16/f32fast/fwd' 'conv(dynconv(width=3))/h2n64w16/f32/both' 'attention(xl)/h2n64w16c/f32/fwd' \
    '1*fixed(words=1) + 1*softmax/h2n64w16/f32/fwd' --reps 2 --time 0 --quiet --json > b.json
foci plan softmax b2h4n64w32 --train --json > p.json
python3 - <<'END'
import json
cases = json.load(open("b.json"))["cases"]
for c in cases:
    print(c["case"], c["flops"] > 0, c["bytes"] > 0, c["work_bytes"] > 0, c["plan"].split(",")[0])
cost = json.load(open("p.json"))["cost"]
print(cases[0]["flops"] == cost["forward_flops"] + cost["backward_flops"])
END
--- stdout
softmax/b2h4n64w32/f32/both True True True layer attention
2*softmax frozen + 2*linear/h4n64w32c/bf16/bwd True True True layer attention
softmax/h4n16m24w32/f32/both True True True layer attention
gau(relu2)/n64w16/f32fast/fwd True True True layer gau
conv(dynconv(width=3))/h2n64w16/f32/both True True True layer conv
attention(xl)/h2n64w16c/f32/fwd True True True layer attention
1*fixed(words=1) + 1*softmax/h2n64w16/f32/fwd True True True layer attention
True

=== steps of layers
foci bench 'softmax/b2h4n1m130w32/bf16/step' '2*local(window=16) + 2*softmax frozen(hadamard)/b2h4n1m130w32/f32/step' \
    'performer(kind=aderf)/h2n3m70w16/f32/step' 'conv(lightconv)/h2n1m70w16/f32/step' \
    '1*fixed(words=1) + 1*softmax txl/b2h2n3m70w16/f32/step' --reps 70 --time 0 --quiet > out
sed -n 2,6p out
--- stdout
softmax/b2h4n1m130w32/bf16/step *
2*local(window=16) + 2*softmax frozen(hadamard)/b2h4n1m130w32/f32/step *
performer(kind=aderf)/h2n3m70w16/f32/step *
conv(lightconv)/h2n1m70w16/f32/step *
1*fixed(words=1) + 1*softmax txl/b2h2n3m70w16/f32/step *

=== layers that cannot be are refused before time is spent
for c in softmax/h3n64w16/f32/fwd 'conv(softmax)/h2n64w16/f32/fwd' 'gau(relu2)/h2n64w16/f32/fwd' 'gau(relu2)/h2n64d16/f32/fwd' \
         'softmax/h2n64w0/f32/fwd' 'nystrom/h2n1m64w16/f32/step'; do
    foci bench softmax/n64d16/f32/fwd "$c" --quiet 2>&1
done
--- stdout
foci bench: softmax/h3n64w16/f32/fwd: *not divisible*
foci bench: conv(softmax)/h2n64w16/f32/fwd: *softmax reads them*
foci bench: gau(relu2)/h2n64w16/f32/fwd: *gau has one
foci bench: case "gau(relu2)/h2n64d16/f32/fwd": gau is a kind of layers, whose problem has a width, *
foci bench: problem "h2n64w0", column 6: w, the width of a layer, *
foci bench: nystrom/h2n1m64w16/f32/step: *
--- exit 2

=== cases beside a baseline
foci bench linear/h2n64d16/f32/fwd softmax/h2n64d16/f32/fwd product/m64n64k64/f32 --baseline softmax/h2n64d16/f32/fwd \
    --reps 2 --time 0 --quiet --json --csv b.csv > b.json
python3 - <<'END'
import csv
import json
cases = json.load(open("b.json"))["cases"]
rows = list(csv.DictReader(open("b.csv")))
base = cases[1]
for c, row in zip(cases, rows):
    tokens = c.get("tokens_per_second")
    ratio = tokens / base["tokens_per_second"] if tokens else base["seconds"] / c["seconds"]
    print(c["case"], tokens is None or abs(tokens * c["seconds"] - 64) < 1e-6,
          abs(c["over_baseline"] / ratio - 1) < 1e-7,
          all(row[k] == (v if isinstance(v, str) else "%.9g" % v) for k, v in c.items() if k != "plan"),
          sorted(k for k in row if row[k] == ""))
END
foci bench linear/n64d16/f32/fwd --baseline softmax/n64d16/f32/fwd --reps 2 --time 0 --quiet > t
sed -n 1,3p t
foci bench linear/n64d16/f32/fwd --baseline softmax/n64d16/f32 --reps 2 --time 0 --quiet
--- stdout
linear/h2n64d16/f32/fwd True True True ['old_seconds', 'speedup']
softmax/h2n64d16/f32/fwd True True True ['old_seconds', 'speedup']
product/m64n64k64/f32 True True True ['old_seconds', 'speedup', 'tokens_per_second']
case * x baseline  tokens/s *
softmax/n64d16/f32/fwd * 1.00 *
linear/n64d16/f32/fwd *
--- stderr
foci bench: case "softmax/n64d16/f32": *
--- exit 2

=== tokens of steps are the new ones
foci bench softmax/b3h2n2m64d16/f32/step softmax/b3h2n8w16/f32/both --reps 2 --time 0 --quiet --json > s.json
python3 -c '
import json
for c in json.load(open("s.json"))["cases"]: print(round(c["tokens_per_second"] * c["seconds"], 6))'
--- stdout
6.0
24.0

=== Markdown
foci bench 'softmax/n64d16/f32/fwd' --reps 2 --time 0 --quiet --markdown | sed 's/[0-9.]* [GMk] /N /g'
--- stdout
| case | median ms | +-% | tokens/s | FLOP/s | of peak | B/s | of rate | memory | density | reps |
| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |
| softmax/n64d16/f32/fwd | * | * | N | N | * |* N | *% | * | 100% | * |

* threads, warm caches; *

=== cases that would not fit into memory
for case in softmax/b64h64n1048576d128/f32/fwd softmax/b64h64n1048576w8192/f32/both \
            softmax/b1024h64n1m1048576d128/bf16/step product/m16777216n16777216k1/f32; do
    foci bench softmax/n64d16/f32/fwd $case --quiet
    echo $?
done
--- stdout
1
1
1
1
--- stderr
foci bench: case "softmax/b64h64n1048576d128/f32/fwd" needs * TB of memory, and * can be had
foci bench: case "softmax/b64h64n1048576w8192/f32/both" needs * TB of memory, and * can be had
foci bench: case "softmax/b1024h64n1m1048576d128/bf16/step" needs * TB of memory, and * can be had
foci bench: case "product/m16777216n16777216k1/f32" needs * PB of memory, and * can be had

=== a file that cannot be written
foci bench softmax/n64d16/f32/fwd --csv no/b.csv --quiet
--- stderr
foci bench: no/b.csv: cannot be made: No such file or directory
--- exit 1

# foci plan and foci info.

=== plan
foci plan 'softmax sink' h2n300d64c
--- stdout
plan h2n300d64c, f32, *
...
*tiles 20 full, 10 partial, 20 skipped*
...

=== plan as JSON
foci plan '1*softmax sink + 1*relu2' h2n300d64c --train --json > plan.json
python3 - <<'END'
import json
p = json.load(open("plan.json"))
print(p["spec"], p["problem"], p["dtype"])
print(p["parameters"])
c = p["cost"]
print(c["pairs"], c["forward_flops"] > 0, c["backward_flops"] > c["forward_flops"])
print(p["work_bytes"] > 0, p["saved_bytes"] > 0, len(p["stages"]) > 2)
END
--- stdout
1*softmax sink + 1*relu2(n=0) h2n300d64c f32
[{'name': '0.sink', 'shape': [1], 'keep': 'trained'}]
90300.0 True True
True True True

=== labels, slots and routes are told
foci plan 'lsh(buckets=64, rounds=4)' n2048d64 | sed -n '/labels/p; /tiles/p'
foci plan 'strided(stride=128)' n2048d64 | sed -n '/labels/p'
foci plan 'pooled(block=16, levels=2)' n2048d64 | sed -n '/slots/p'
foci plan 'sparse_fixed(stride=16)' n2048d64 | sed -n '/slots/p'
foci plan 'routed(inner=local, routes=3)' h2n256d64 | sed -n '1p;/routes/p'
foci plan 'routed(routes=2)' h2k2n256d64 | sed -n 1p
--- stdout
    labels   by angular hashes, 64 of them, 4 rounds; about 128 keys a query
    exact    tiles 0 full, 256 partial, 768 skipped; *
    labels   by position, 128 of them; about 16 keys a query
    slots    128, means of 16 keys each
    slots    8, means of 256 keys each
    slots    128, the last of every 16 keys
plan h2n256d64, *
  heads 0 to 1: 2*routed(inner=local(window=256, dilation=1), routes=3, top=0)
    routes   3, each:
plan h2k2n256d64, *

=== a plan with a layout, and without
npy make l.npy 4x4 1,0,0,0,1,1,0,0,0,0,1,0,1,0,0,1
foci plan block n256d64 --param layout=l.npy | grep tiles
foci plan block n256d64
foci plan block n256d64 --param layot=l.npy
--- stdout
    exact    tiles 6 full, 0 partial, 10 skipped; *
--- stderr
foci plan: block needs a list of 16 whole numbers from 0 to 1; give --param layout=FILE
foci plan: --param layot: planning reads no such list, but layout, global; parameters are given to foci run
--- exit 2

=== key heads that do not divide
foci plan softmax h8k3n8d8
foci plan routed h2k3n8d8
--- stderr
foci plan: softmax: kv_heads is 3: it must divide the 8 heads
foci plan: routed: kv_heads is 3: it must divide the 4 sets of keys and values that the 2 heads have
--- exit 2

=== tensors of one group that are called alike
foci plan '1*softmax t5 bias + 1*routed(inner=softmax bias t5)' h2n8d8 --json | grep '"name"' | tr -d ' ,'
--- stdout
"name":"0.table"
"name":"0.bias.table"
"name":"1.Wr"
"name":"1.inner.table"
"name":"1.inner.t5.table"

=== a layer has projections for what its heads read
foci plan '7*fixed + 1*softmax frozen(hadamard)' b2h8n64w64 | sed -n '1,/^plan/p'
foci plan relu2 n64 --width 32 --layer gau --biases --json | grep '"name"' | tr -d ' ,'
--- stdout
layer attention, 128 rows of 64*
  0.Wv * 64 x 56
  1.Wq * 64 x 8, frozen, hadamard*
  1.Wk * 64 x 8, frozen, hadamard*
  1.Wv * 64 x 8
  Wo * 64 x 64
  cost     forward *FLOP, *B
  memory   work * kB, saved 0 B, parameters *
plan b2h8n64d8, *
"name":"Wu"
"name":"bu"
"name":"Wv"
"name":"bv"
"name":"Wz"
"name":"bz"
"name":"gamma_q"
"name":"beta_q"
"name":"gamma_k"
"name":"beta_k"
"name":"Wo"
"name":"bo"

=== a layer as JSON, by a letter or by an option
foci plan softmax b2h4n64w32c --train --json > a.json
foci plan softmax b2h4n64c --width 32 --train --json > b.json
cmp a.json b.json
foci plan softmax b2h4n64d8 --train --json > p.json
foci plan softmax h2n5m7d3v5w6 --json | grep problem
python3 - <<'END'
import json
a, p = json.load(open("a.json")), json.load(open("p.json"))
print(a["spec"], a["problem"], a["layer"], [q["keep"] for q in a["parameters"]])
print(a["cost"]["forward_flops"] - json.load(open("b.json"))["cost"]["forward_flops"], "layer" in p)
print(a["work_bytes"] > 0, a["saved_bytes"] > 0, a["cost"]["backward_flops"] > a["cost"]["forward_flops"])
END
--- stdout
  "problem": "h2n5m7d3v5w6",
4*softmax b2h4n64d8w32c attention ['trained', 'trained', 'trained', 'trained']
0.0 False
True True True

=== products are counted
foci plan softmax b2h4n64w32 --json > layer.json
foci plan softmax b2h4n64d8 --json > plan.json
python3 - <<'END'
import json
layer, plan = (json.load(open(n))["cost"]["forward_flops"] for n in ("layer.json", "plan.json"))
print(layer - plan == 4 * 2 * (2 * 64) * 32 * 32)
END
--- stdout
True

=== what a layer costs in all is told in words too
foci plan softmax b2h4n64w32 --train | grep cost
foci plan softmax b2h4n64w32 | sed -n '/cost/{p;q;}'
--- stdout
  cost     forward 2097 kFLOP, 114.7 kB; backward 4719 kFLOP, 229.4 kB
  cost     forward 1049 kFLOP, 65.54 kB; backward 2621 kFLOP, 147.5 kB
  cost     forward 2097 kFLOP, 114.7 kB

=== a letter without its number
for problem in n-8d8 nd8 h2n; do foci plan softmax $problem; done
--- stderr
foci plan: problem "n-8d8", column 2: a number from 1 to 68719476736 is wanted here, for n, the query length
foci plan: problem "nd8", column 2: a number from 1 to 68719476736 is wanted here, for n, the query length
foci plan: problem "h2n", column 4: a number from 1 to 68719476736 is wanted here, for n, the query length
--- exit 2

=== one head and no more
foci plan '1*softmax' h2n8d8
--- stderr
foci plan: 1*softmax: the spec counts 1 head, the problem has 2
--- exit 2

=== widths that are none, and options of layers without one
foci plan softmax n10w
foci plan softmax n10w0
foci plan softmax n10w99999999999999999999
foci plan softmax h8w512
foci plan softmax n10w8x
foci plan softmax n10w8 --width 8
foci plan softmax n10d8 --layer gau
foci plan softmax n10d8 --biases
foci plan softmax h3n10w8
--- stderr
foci plan: problem "n10w", column 4: w, the width of a layer, goes from 1 to 16777216
foci plan: problem "n10w0", column 4: w, the width of a layer, goes from 1 to 16777216
foci plan: problem "n10w99999999999999999999", column 4: w, the width of a layer, goes from 1 to 16777216
foci plan: h8w512: problem *column 3: n, the query length, is wanted here
foci plan: n10w8x: problem *unexpected "x"*
foci plan: the problem "n10w8" has a width of its own: leave out --width
foci plan: --layer needs --width W, which makes it a layer
foci plan: --biases needs --width W, which makes it a layer
foci plan: softmax: width 8 is not divisible by 3 heads: give head_dim, or other heads
--- exit 2

=== nothing is saved without training
foci plan softmax n64d16 --json | grep saved_bytes
--- stdout
  "saved_bytes": 0,

=== dtypes
for t in f32 bf16 f16; do foci plan softmax n64d16 --dtype $t | head -1; done
--- stdout
plan n64d16, f32*
plan n64d16, bf16*
plan n64d16, f16*

=== precision
foci plan softmax n64d16 --precision fast --train > fast && foci plan softmax n64d16 --train > strict
cmp -s fast strict
--- exit 1

=== threads
foci plan softmax n64d16 --threads 1 | head -1
--- stdout
plan * 1 thread*

=== unknown mechanism
foci plan sofmax n8d8
--- stderr
foci plan: sofmax: column 1: unknown mechanism "sofmax"; the nearest is "softmax"
--- exit 2

=== argument out of range
foci plan 'relu2(n=-3)' n8d8
--- stderr
foci plan: relu2(n=-3): column *
--- exit 2

=== bad problem
foci plan softmax n8q8
--- stderr
foci plan: problem "n8q8", column 3: *
--- exit 2

=== problem without width
foci plan softmax n8
--- stderr
foci plan: problem "n8", column *
--- exit 2

=== counts that do not add up
foci plan '3*softmax + 3*relu2' h8n8d8
--- stderr
foci plan: 3*softmax + 3*relu2: *6 heads*8*
--- exit 2

=== problem is missing
foci plan softmax
--- stderr
foci plan: needs more arguments; usage: foci plan SPEC PROBLEM
--- exit 2

=== a spec without quotes
foci plan softmax sink n8d8
--- stderr
foci plan: unexpected 'n8d8'; usage: foci plan SPEC PROBLEM (texts with blanks need quotes)
--- exit 2

=== a problem beyond this machine
foci plan softmax b1000000h65536n1000000000000d65536
--- stderr
foci plan: problem "b1000000h65536n1000000000000d65536", column 15: n1000000000000: n, the query length, goes from 1 to 68719476736
--- exit 2

=== info
foci info
--- stdout
version * 0.*
system *
...
threads  2
level *

CPU level *state
portable *
...

=== info has no kernels unless they are asked for
foci info | grep -c gemm
foci info --kernels | grep '^kernel\|^gemm_f32'
--- stdout
0
kernel *taken from *higher levels
gemm_f32 *

=== info with a level
FOCI_CPU=portable foci info --kernels --threads 1 | sed -n '/^threads/p; /^level/p; /^gemm_f32/p'
--- stdout
threads  1
level    portable
gemm_f32 * portable*

=== info as JSON
foci info --json | python3 -c '
import json, sys
i = json.load(sys.stdin)
print(sorted(i))
print(type(i["memory_bytes"]).__name__, i["threads"])
print([l["name"] for l in i["levels"] if l["state"] == "chosen"] == [i["level"]])'
foci info --kernels --json | python3 -c '
import json, sys
k = json.load(sys.stdin)["kernels"]
print(sorted(k[0]), len(k) > 3)'
--- stdout
['cpu', 'level', 'levels', 'memory_bytes', 'system', 'threads', 'version']
int 2
True
['higher', 'level', 'name'] True

=== measured
foci info --measure --json | python3 -c '
import json, sys
m = json.load(sys.stdin)["measured"]
print(all(1e6 < m[k] < 1e15 for k in ("f32_flops", "bf16_flops", "copy_bytes", "read_bytes")))'
foci info --measure | sed '1,/^measured/d' | grep -c '[0-9] [kMGT]flop$\|[0-9] [kMGT]B$'
--- stdout
True
4

=== info takes no argument
foci info cpu
--- stderr
foci info: unexpected 'cpu'; usage: foci info
--- exit 2

=== every argument of every mechanism: planned, or refused as a mistake of the command line
arguments
--- stdout
* planned, * refused

=== arguments that contradict each other, or the problem
foci plan 'lsh(buckets=3)' h2n64d16
foci plan 'sparse_fixed(stride=4, summary=5)' h2n64d16
foci plan nystrom h2n64d16c
--- stderr
foci plan: lsh(buckets=3): column 1: lsh: buckets must be even: *
foci plan: sparse_fixed(stride=4, summary=5): column 1: sparse_fixed: summary=5 is more than the stride, 4
foci plan: nystrom: column 1: nystrom cannot be causal: *
--- exit 2

# foci run: arrays by name, of several formats, in both layouts, from and to pipes.

=== names of the literature
for name in reformer Longformer flash mamba fnet xyzzy; do
    foci plan $name h2n8d4 2>&1
    echo $?
done
foci list reformer
--- stdout
foci plan: reformer: column 1: unknown mechanism "reformer"; it is "lsh" here
2
foci plan: Longformer: column 1: unknown mechanism "Longformer"; it is "global" here
2
foci plan: flash: column 1: unknown mechanism "flash"; it is "softmax" here
2
foci plan: mamba: column 1: unknown mechanism "mamba"; the nearest is "retention", which *
2
foci plan: fnet: column 1: unknown mechanism "fnet"; nothing here mixes by a Fourier transform
2
foci plan: xyzzy: column 1: unknown mechanism "xyzzy"; "foci list" names all there are
2
--- stderr
foci list: no mechanism, modifier or alias 'reformer'; it is "lsh" here; see foci list
--- exit 2

=== arrays of archives by name
npy make q.npy 2x5x8
npy make keys.npy 2x5x8 wave:1
npy make a:b.npy 2x5x8 wave:2
python3 - <<'END'
import zipfile
for name, method in ("stored.npz", 0), ("deflated.npz", 8):
    with zipfile.ZipFile(name, "w", method) as z:
        z.write("q.npy")
        z.write("keys.npy")
        z.write("a:b.npy")
        z.writestr("notes.txt", "no array")
END
npy tensors t.safetensors q=2x5x8 other:one=2x5x8
foci run softmax --q q.npy --k keys.npy --v a:b.npy --out a.npy > /dev/null
foci run softmax --q stored.npz --k stored.npz:keys --v deflated.npz:a:b --out b.npy > /dev/null
cmp a.npy b.npy
foci run softmax --q t.safetensors --k keys.npy --v t.safetensors:other:one --out c.npy > /dev/null
npy show c.npy > c; head -1 c
--- stdout
<f4 (2, 5, 8)

=== names that archives do not have
npy make q.npy 2x5x8
npy make keys.npy 2x5x8
python3 - <<'END'
import zipfile
with zipfile.ZipFile("t.npz", "w") as z:
    z.write("q.npy")
    z.write("keys.npy")
zipfile.ZipFile("none.npz", "w").close()
END
npy tensors t.safetensors query=2x5x8 value=2x5x8
for k in t.npz t.npz:key t.npz:zzzz t.safetensors:val none.npz q.npy:q none.npy:q; do
    foci run softmax --q q.npy --k $k --v q.npy --out o.npy
done
--- stderr
foci run: --k t.npz: none of its 2 arrays is called 'k'; it has q, keys: name one as t.npz:NAME
foci run: --k t.npz:key: none of its 2 arrays is called 'key' (did you mean 'keys'?); it has q, keys
foci run: --k t.npz:zzzz: none of its 2 arrays is called 'zzzz'; it has q, keys
foci run: --k t.safetensors:val: none of its 2 arrays is called 'val' (did you mean 'value'?); it has query, value
foci run: --k none.npz: holds no array
foci run: --k q.npy:q: a .npy file has one array, and no name for it
foci run: --k none.npy:q: cannot be opened: No such file or directory
--- exit 1

=== damaged archives
npy make q.npy 20x8
python3 - <<'END'
import zipfile
with zipfile.ZipFile("t.npz", "w", 8) as z:
    z.write("q.npy")
with zipfile.ZipFile("odd.npz", "w", 12) as z:
    z.write("q.npy")
data = bytearray(open("t.npz", "rb").read())
data[150] ^= 255
open("bad.npz", "wb").write(data)
END
head -c 300 t.npz > cut.npz
printf 'PK\003\004' > short.npz
for q in odd.npz bad.npz cut.npz short.npz; do
    foci run softmax --q $q --k q.npy --v q.npy --out o.npy
done
--- stderr
foci run: --q odd.npz:q: is packed by method 12; accepted are 0 (stored) and 8 (deflated)
foci run: --q bad.npz:q: cannot be read: its *
foci run: --q cut.npz: is no .npz archive, or one that was cut off
foci run: --q short.npz: is no .npz archive, or one that was cut off
--- exit 1

=== parameters and lists by name
npy make q.npy 2x4x8
npy tensors t.safetensors mine=2 sink=2
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --param sink=t.safetensors:mine --out a.npy > /dev/null
npy make mine.npy 2
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --param sink=mine.npy --out b.npy > /dev/null
cmp a.npy b.npy
npy make l.npy 2x2 1,0,0,1
python3 -c '
import zipfile
with zipfile.ZipFile("l.npz", "w") as z: z.write("l.npy")'
foci plan 'block(block=2)' n4d8 --param layout=l.npz:l > a
foci plan 'block(block=2)' n4d8 --param layout=l.npy > b
cmp a b
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --param sink=t.safetensors:min --out b.npy
--- stderr
foci run: --param sink=t.safetensors:min: none of its 2 arrays is called 'min' (did you mean 'mine'?); it has mine, sink
--- exit 1

=== an array from standard input, once
npy make q.npy 2x4x8
foci run softmax --q - --k q.npy --v q.npy --out a.npy < q.npy > /dev/null
cat q.npy | foci run softmax --q q.npy --k q.npy --v - --out b.npy > /dev/null
cmp a.npy b.npy
gzip -c q.npy | foci run softmax --q q.npy --k - --v q.npy --out b.npy > /dev/null
cmp a.npy b.npy
foci run softmax --q - --k - --v q.npy --out o.npy < q.npy
echo $?
echo hello | foci run softmax --q - --k q.npy --v q.npy --out o.npy
foci run softmax --q - --k q.npy --v q.npy --out o.npy < /dev/null
head -c 100 q.npy | foci run softmax --q - --k q.npy --v q.npy --out o.npy
--- stdout
2
--- stderr
foci run: --k -: standard input can be read once, and --q - reads it
foci run: --q -: is neither .npy (begins with \x93NUMPY) nor .safetensors (eight bytes of length, then '{')
foci run: --q -: is empty; a .npy or .safetensors file is needed
foci run: --q -: *
--- exit 1

=== rows before heads
turn() { npy swap $1.npy $2.npy -3 -2; }
npy make q.npy 2x4x7x8
npy make k.npy 2x2x9x8 wave:1
npy make v.npy 2x2x9x6 wave:2
npy make g.npy 2x4x7x6 wave:3
npy make m.npy 2x4x7x9 wave:4
for x in q k v g; do turn $x t$x; done
heads="--q q.npy --k k.npy --v v.npy --dout g.npy"
rows="--layout bnhd --q tq.npy --k tk.npy --v tv.npy --dout tg.npy"
for more in --causal "--bias m.npy" "--ref" "--dtype bf16"; do
    foci run '2*softmax sink + 2*relu2 rope' $heads --out o.npy --grads h --weights w.npy $more --quiet > /dev/null
    foci run '2*softmax sink + 2*relu2 rope' $rows --out r.npy --grads t --weights u.npy $more --quiet > /dev/null
    cmp w.npy u.npy
    turn o to && cmp to.npy r.npy
    for x in q k v; do turn h.d$x x && cmp x.npy t.d$x.npy; done
    cmp h.d0.sink.npy t.d0.sink.npy
done
foci run softmax --q q.npy --k k.npy --v v.npy --causal --step --out o.npy --quiet > /dev/null
foci run softmax --layout bnhd --q tq.npy --k tk.npy --v tv.npy --causal --step --out r.npy --quiet > /dev/null
turn o to && cmp to.npy r.npy
npy show r.npy > r; head -1 r
--- stdout
<f4 (2, 7, 4, 6)

=== rows before heads without a batch, and without heads
npy make q.npy 7x4x8
npy make k.npy 9x8
foci run softmax --layout bnhd --q q.npy --k q.npy --v q.npy --out o.npy | tail -1
foci run softmax --layout bnhd --q k.npy --k k.npy --v k.npy --out o.npy | tail -1
npy make g.npy 4x7x8
foci run softmax --layout bnhd --q q.npy --k q.npy --v q.npy --dout g.npy --grads g
npy make k.npy 9x4x7
foci run softmax --layout bnhd --q q.npy --k k.npy --v k.npy --out o.npy
npy make k.npy 9
foci run softmax --layout bnhd --q q.npy --k k.npy --v k.npy --out o.npy
foci run softmax --layout nbhd --q q.npy --k k.npy --v k.npy --out o.npy
foci run softmax --layout bnhd --x q.npy --heads 2 --out o.npy
--- stdout
  wrote    o.npy, 7x4x8
  wrote    o.npy, 9x8
--- stderr
foci run: --dout g.npy: its shape is 4x7x8; the output needs 7x4x8
foci run: --k k.npy: its shape is 9x4x7; --q q.npy of 7x4x8 needs NxHx8
foci run: --k k.npy: its shape is 9; accepted are N x d, N x H x d and B x N x H x d
foci run: --layout is 'nbhd'; it takes bhnd|bnhd
foci run: --layout and --heads do not go together: hidden states of a layer have no heads
--- exit 2

=== heads that are inferred are told
npy make q.npy 48x8x64
npy make k.npy 16x8x64
npy make one.npy 32x1x64
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy > /dev/null
foci run softmax --q q.npy --k k.npy --v k.npy --out o.npy > /dev/null
foci run softmax --q q.npy --k k.npy --v k.npy --out o.npy --layout bnhd > /dev/null
foci run softmax --q q.npy --k k.npy --v k.npy --out o.npy --layout bhnd > /dev/null
foci run softmax --q q.npy --k k.npy --v k.npy --out o.npy --quiet > /dev/null
foci run softmax --q one.npy --k one.npy --v one.npy --out o.npy > /dev/null
--- stderr
foci run: --q q.npy of 48x8x64 is read as 48 heads of 8 rows; --layout bnhd reads 8 heads of 48 rows
foci run: --k k.npy of 16x8x64 has 16 heads for the 48 of --q q.npy of 48x8x64: each serves 3; rows before heads are --layout bnhd
foci run: --q q.npy of 48x8x64 is read as 48 heads of 8 rows; --layout bnhd reads 8 heads of 48 rows
foci run: --k k.npy of 16x8x64 has 16 heads for the 48 of --q q.npy of 48x8x64: each serves 3

=== an array to standard output, and nothing else
npy make q.npy 2x4x8
foci run softmax --q q.npy --k q.npy --v q.npy --out a.npy > /dev/null
foci run softmax --q q.npy --k q.npy --v q.npy --out - > b.npy 2> summary
cmp a.npy b.npy
cat summary
cat q.npy | foci run softmax --q - --k q.npy --v q.npy --out - --quiet | cmp - a.npy
foci run relu2 --q a.npy --k a.npy --v a.npy --out c.npy > /dev/null
foci run softmax --q q.npy --k q.npy --v q.npy --out - --quiet |
    foci run relu2 --q - --k a.npy --v a.npy --out - --quiet | cmp - c.npy
foci run softmax --q q.npy --k q.npy --v q.npy --out - --json
foci run softmax --q q.npy --k q.npy --v q.npy --out a.npy --weights -
echo $?
python3 - <<'END'
import os, pty, subprocess
master, slave = pty.openpty()
for extra in ["--out", "-"], ["--out", "o.npy", "--k", "-"]:
    command = ["foci", "run", "softmax", "--q", "q.npy", "--k", "q.npy", "--v", "q.npy"]
    done = subprocess.run(command + extra, stdin=slave, stdout=slave, stderr=subprocess.PIPE)
    print(done.returncode, done.stderr.decode().strip())
END
foci run softmax --q q.npy --k q.npy --v q.npy --out - --quiet >&-
--- stdout
plan h2n4d8, f32, *
  spec     2*softmax
  output   2x4x8
  forward  * ms
  wrote    standard output, 2x4x8
2
2 foci run: --out -: standard output is a terminal; an array goes to a file or a pipe
2 foci run: --k -: standard input is a terminal; an array comes from a file or a pipe
--- stderr
foci run: --json and --out - do not go together: both are written to standard output
foci run: --weights is '-'; --out alone can be standard output: the name of a file is needed
foci run: descriptor 1: cannot be written: Bad file descriptor
--- exit 1

=== what was written is told
npy make q.npy 2x4x8
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --out o.npy --weights w.npy --dump-params p.safetensors \
    --dout q.npy --grads g > all
sed -n '/wrote/,$p' all
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --json > r.json
python3 -c '
import json
r = json.load(open("r.json"))
print(r["written"], r["not_finite"])'
--- stdout
  wrote     o.npy, 2x4x8
            w.npy, 2x4x4
            g.dq.npy, 2x4x8
            g.dk.npy, 2x4x8
            g.dv.npy, 2x4x8
            g.dsink.npy, 2
            p.safetensors, arrays: 1
[{'file': 'o.npy', 'shape': [2, 4, 8]}] {}

=== results that are not finite
npy make q.npy 2x2 1,2,3,4
npy make v.npy 2x2 1,nan,inf,2
npy make big.npy 2x2 1.0e30,1.0e30,1.0e30,1.0e30
foci run softmax --q q.npy --k q.npy --v v.npy --out o.npy > /dev/null
foci run relu2 --q big.npy --k big.npy --v q.npy --out o.npy --dtype bf16 > /dev/null
foci run relu2 --q big.npy --k big.npy --v q.npy --out o.npy --quiet --json > r.json
python3 -c '
import json
print(json.load(open("r.json"))["not_finite"])'
--- stdout
{'output': 4}
--- stderr
foci run: warning: * of 4 numbers of the output are not finite, the first * at [0, 0]; --v v.npy has 2 such numbers
foci run: warning: 4 of 4 numbers of the output are not finite, the first inf at [0, 0]

=== parameters of a file, as they were dumped
npy make q.npy 2x4x8
npy make s.npy 2
foci run '1*softmax sink + 1*softmax temper' --q q.npy --k q.npy --v q.npy --out a.npy \
    --param 0.sink=s.npy:x --dump-params p.safetensors
npy make s.npy 1
foci run '1*softmax sink + 1*softmax temper' --q q.npy --k q.npy --v q.npy --out a.npy \
    --param 0.sink=s.npy --dump-params p.safetensors > /dev/null
foci run '1*softmax sink + 1*softmax temper' --q q.npy --k q.npy --v q.npy --out b.npy \
    --params p.safetensors --dump-params r.safetensors > /dev/null
cmp a.npy b.npy
cmp p.safetensors r.safetensors
npy make x.npy 5x16
foci run '1*softmax frozen + 1*softmax sink' --x x.npy --heads 2 --biases --out a.npy --seed 3 --dump-params p.safetensors > /dev/null
foci run '1*softmax frozen + 1*softmax sink' --x x.npy --heads 2 --biases --out b.npy --seed 4 --params p.safetensors > /dev/null
cmp a.npy b.npy
npy names p.safetensors > names
npy tensors some.safetensors Wo=16x16 0.Wq=16x8
foci run '1*softmax frozen + 1*softmax sink' --x x.npy --heads 2 --out b.npy --params some.safetensors > /dev/null
npy tensors wrong.safetensors W0=16x16
foci run softmax --x x.npy --heads 2 --out b.npy --params wrong.safetensors
npy tensors wrong.safetensors Wo=16x15
foci run softmax --x x.npy --heads 2 --out b.npy --params wrong.safetensors
foci run softmax --x x.npy --heads 2 --out b.npy --params some.safetensors:Wo
foci run softmax --x x.npy --heads 2 --out b.npy --params x.npy
foci run softmax --x x.npy --heads 2 --out b.npy --params none.safetensors
--- stderr
foci run: --param 0.sink=s.npy:x: a .npy file has one array, and no name for it
foci run: --params some.safetensors: has no 0.Wk, 0.Wv, 1.Wq, 1.Wk, 1.Wv, 1.sink: drawn from the seed
foci run: --params wrong.safetensors:W0: no such tensor (did you mean 'Wq'?); see foci plan 'softmax' PROBLEM --width W --json
foci run: --params wrong.safetensors:Wo: its shape is 16x15; accepted is 16x16
foci run: --params some.safetensors:Wo: all arrays of a file are taken; one is taken by --param NAME=some.safetensors:Wo
foci run: --params x.npy: a .npy file does not name its array; a .safetensors or .npz file is needed, or --param NAME=x.npy
foci run: --params none.safetensors: cannot be opened: No such file or directory
--- exit 1

=== weights of Linear, stored the other way round
npy make x.npy 5x8
npy make wq.npy 8x12
npy make wo.npy 12x8
npy swap wq.npy tq.npy 0 1
npy swap wo.npy to.npy 0 1
for spec in softmax 'softmax frozen'; do
    run() { foci run "$spec" --x x.npy --heads 2 --head-dim 6 --biases --out $1 $2 $3 $4 $5 $6 > /dev/null; }
    run a.npy --param Wq=wq.npy --param Wo=wo.npy
    run b.npy --param Wq=tq.npy --param Wo=to.npy --transposed
    cmp a.npy b.npy
done
foci run softmax --x x.npy --heads 2 --head-dim 6 --out a.npy --param Wq=tq.npy
foci run softmax --x x.npy --heads 2 --head-dim 6 --out a.npy --param Wq=wq.npy --transposed
foci run softmax --x x.npy --heads 2 --out a.npy --transposed
foci run softmax --q x.npy --k x.npy --v x.npy --out a.npy --transposed
--- stderr
foci run: --param Wq=tq.npy: its shape is 12x8; accepted is 8x12; --transposed takes [out][in]
foci run: --param Wq=wq.npy: its shape is 8x12; accepted is 12x8 with --transposed; without it, as it is
foci run: --transposed needs --param or --params, whose matrices are stored so
foci run: --transposed is of the projections of a layer; it needs --heads N and --x FILE
--- exit 2

=== conventions that docs/coming-from.md tells
show() { npy show w.npy | sed 1d; }
npy make q2.npy 2x4
npy make k5.npy 5x4 wave:1
foci run softmax --q q2.npy --k k5.npy --v k5.npy --causal --weights w.npy --quiet > /dev/null
show | sed 's/0\.0000/-/g; s/[0-9.][0-9.]*/x/g'
foci run softmax --q k5.npy --k q2.npy --v q2.npy --causal --weights w.npy --quiet > /dev/null
show | sed 's/0\.0000/-/g; s/[0-9.][0-9.]*/x/g'
npy make a.npy 1x4 2,0,0,0
npy make b.npy 2x4 1,0,0,0,0,0,0,0
foci run softmax --q a.npy --k b.npy --v b.npy --weights w.npy --quiet > /dev/null; show
npy make m.npy 1x2 1,0 --dtype b1
foci run softmax --q a.npy --k b.npy --v b.npy --mask m.npy --weights w.npy --quiet > /dev/null; show
npy make bias.npy 1x2 1,0
foci run softmax --q a.npy --k b.npy --v b.npy --bias bias.npy --weights w.npy --quiet > /dev/null; show
npy make q6.npy 6x1x4
npy make kk.npy 2x1x4
npy make v.npy 2x1x1 10,20
foci run softmax --q q6.npy --k kk.npy --v v.npy --out w.npy --quiet > /dev/null; show | tr '\n' ' '; echo
npy make r.npy 1x3x4 1,0,0,0,1,0,0,0,1,0,0,0
foci run retention --q r.npy --k r.npy --v r.npy --causal --weights w.npy --quiet > /dev/null; show
npy make z2.npy 2x4 0,0,0,0,0,0,0,0
npy make z3.npy 3x4 0,0,0,0,0,0,0,0,0,0,0,0
foci run 'softmax alibi(slope=1)' --q z2.npy --k z3.npy --v z3.npy --weights w.npy --quiet > /dev/null; show
npy make q9.npy 9x4
foci run 'local(window=2)' --q q9.npy --k q9.npy --v q9.npy --weights w.npy --quiet > /dev/null
show | sed -n '5s/0\.0000/-/g; 5s/[0-9.][0-9.]*/x/gp'
--- stdout
x x x x -
x x x x x
- -
- -
- -
x -
x x
0.7311 0.2689
1.0000 0.0000
0.8808 0.1192
10.0000 10.0000 10.0000 20.0000 20.0000 20.0000 
0.5000 0.0000 0.0000
0.4844 0.5000 0.0000
0.4692 0.4844 0.5000
0.2119 0.5761 0.2119
0.0900 0.2447 0.6652
- - x x x x x - -

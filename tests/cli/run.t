# foci run: right use.  Inputs are waves; softmax of equal logits is a mean.

=== mean of the values when queries are zero
npy make q.npy 2x2 0,0,0,0
npy make k.npy 2x2
npy make v.npy 2x3 1,2,3,5,6,7
foci run softmax --q q.npy --k k.npy --v v.npy --out o.npy
npy show o.npy
--- stdout
plan n2d2v3, f32, *
  spec     1*softmax
  output   2x3
  forward  * ms
  wrote    o.npy, 2x3
<f4 (2, 3)
3.0000 4.0000 5.0000
3.0000 4.0000 5.0000

=== causal
npy make q.npy 2x2 0,0,0,0
npy make v.npy 2x3 1,2,3,5,6,7
foci run softmax --q q.npy --k q.npy --v v.npy --out o.npy --causal > /dev/null
npy show o.npy
--- stdout
<f4 (2, 3)
1.0000 2.0000 3.0000
3.0000 4.0000 5.0000

=== as the reference does it, with gradients of all
npy make q.npy 2x3x70x8 wave:1
npy make k.npy 2x3x90x8 wave:2
npy make v.npy 2x3x90x5 wave:3
npy make do.npy 2x3x70x5 wave:4
for how in '' --ref; do
    foci run '1*softmax sink qknorm + 2*relu2 temper' --q q.npy --k k.npy --v v.npy --causal \
        --out o$how.npy --dout do.npy --grads g$how $how > /dev/null || exit
done
npy near o.npy o--ref.npy 1e-5
for x in q k v 0.sink 0.tau 1.temper; do npy near g.d$x.npy g--ref.d$x.npy 2e-5; done
ls
--- stdout
do.npy
g--ref.d0.sink.npy
g--ref.d0.tau.npy
g--ref.d1.temper.npy
g--ref.dk.npy
g--ref.dq.npy
g--ref.dv.npy
g.d0.sink.npy
g.d0.tau.npy
g.d1.temper.npy
g.dk.npy
g.dq.npy
g.dv.npy
k.npy
o--ref.npy
o.npy
q.npy
v.npy

=== bf16 rounds the inputs and writes f4
npy make q.npy 4x20x16 wave:1
npy make k.npy 4x20x16 wave:2
npy make v.npy 4x20x16 wave:3
foci run softmax --q q.npy --k k.npy --v v.npy --out o.npy > /dev/null
foci run softmax --q q.npy --k k.npy --v v.npy --out b.npy --dtype bf16 | head -1
npy near b.npy o.npy 2e-2
npy near b.npy o.npy 1e-5 2> /dev/null && echo "nothing was rounded"
npy show b.npy > b.txt; head -1 b.txt
--- stdout
plan h4n20d16, bf16*
<f4 (4, 20, 16)

=== gradients in bf16
for x in q k v do; do npy make $x.npy 2x20x16 wave:${#x}; done
for how in '' '--dtype bf16'; do
    foci run softmax --q q.npy --k k.npy --v v.npy --dout do.npy --grads "g$how" $how > /dev/null
done
for x in q k v; do npy near "g--dtype bf16.d$x.npy" g.d$x.npy 5e-2; done

=== fast products
for x in q k v; do npy make $x.npy 2x130x64 wave:1; done
foci run softmax --q q.npy --k k.npy --v v.npy --out o.npy > /dev/null
foci run softmax --q q.npy --k k.npy --v v.npy --out f.npy --precision fast > /dev/null
npy near f.npy o.npy 1e-2

=== grouped heads
npy make q.npy 4x6x8 wave:1
npy make k.npy 2x6x8 wave:2
npy make v.npy 2x6x8 wave:3
foci run softmax --q q.npy --k k.npy --v v.npy --out o.npy | sed -n '1p;3p'
foci run softmax --q q.npy --k k.npy --v v.npy --out r.npy --ref > /dev/null
npy near o.npy r.npy 1e-5
--- stdout
plan h4k2n6d8, f32*
  output   4x6x8
--- stderr
foci run: --k k.npy of 2x6x8 has 2 heads for the 4 of --q q.npy of 4x6x8: each serves 2; rows before heads are --layout bnhd
foci run: --k k.npy of 2x6x8 has 2 heads for the 4 of --q q.npy of 4x6x8: each serves 2; rows before heads are --layout bnhd

=== one key head without a head axis
npy make q.npy 4x6x8 wave:1
npy make k.npy 6x8 wave:2
foci run softmax --q q.npy --k k.npy --v k.npy --out o.npy | head -1
--- stdout
plan h4k1n6d8, f32*
--- stderr
foci run: --k k.npy of 6x8 has 1 head for the 4 of --q q.npy of 4x6x8: each serves 4

=== the result has as many axes as the queries
npy make q.npy 1x1x3x2
npy make k.npy 3x2
foci run softmax --q q.npy --k k.npy --v k.npy --out o.npy > /dev/null
npy show o.npy > o.txt; head -1 o.txt
--- stdout
<f4 (1, 1, 3, 2)

=== types and orders of files give the same result
npy make q.npy 3x4 ramp
npy make v.npy 3x4 wave:1
foci run 'softmax scale(0.01)' --q q.npy --k q.npy --v v.npy --out o.npy > /dev/null
for how in '--dtype i1' '--dtype u8' '--dtype >i4' '--dtype >f8' '--dtype f2 --fortran' \
           '--version 2' '--version 3 --fortran'; do
    npy make t.npy 3x4 ramp $how
    foci run 'softmax scale(0.01)' --q t.npy --k t.npy --v v.npy --out p.npy > /dev/null
    cmp o.npy p.npy
done

=== tensors from one safetensors file
npy tensors t.safetensors q=2x3x4 k=2x3x4 v=2x3x4
for x in 0=q 1=k 2=v; do npy make ${x#*=}.npy 2x3x4 wave:${x%=*}; done
foci run softmax --q t.safetensors --k t.safetensors --v t.safetensors --out a.npy > /dev/null
foci run softmax --q q.npy --k k.npy --v v.npy --out b.npy > /dev/null
cmp a.npy b.npy

=== weights
npy make q.npy 2x2 0,0,0,0
npy make v.npy 2x1 1,2
foci run softmax --q q.npy --k q.npy --v v.npy --weights a.npy --causal > /dev/null
npy show a.npy
--- stdout
<f4 (2, 2)
1.0000 0.0000
0.5000 0.5000

=== parameters: drawn, dumped, given back
npy make q.npy 2x3x4 wave:1
foci run 'softmax sink temper' --q q.npy --k q.npy --v q.npy --out a.npy --dump-params p.safetensors > /dev/null
npy names p.safetensors
foci run 'softmax sink temper' --q q.npy --k q.npy --v q.npy --out b.npy \
    --param sink=p.safetensors --param temper=p.safetensors > /dev/null
cmp a.npy b.npy
--- stdout
sink F32 [2] 0.0000 0.0000
temper F32 [2] 1.0000 1.0000

=== a mechanism without parameters dumps none
npy make q.npy 3x4
foci run softmax --q q.npy --k q.npy --v q.npy --dump-params p.safetensors > /dev/null
npy names p.safetensors

=== a sink of each head
npy make q.npy 2x1x1 0,0
npy make v.npy 2x1x1 1,1
npy make s.npy 2 0,1.0986123
foci run 'softmax sink' --q q.npy --k q.npy --v v.npy --out o.npy --param sink=s.npy > /dev/null
npy show o.npy
--- stdout
<f4 (2, 1, 1)
0.5000
0.2500

=== a sink for all heads
npy make q.npy 2x1x1 0,0
npy make v.npy 2x1x1 1,1
npy make s.npy "" 1.0986123
npy make t.npy 1 1.0986123
for f in s t; do
    foci run 'softmax sink' --q q.npy --k q.npy --v v.npy --out o.npy --param sink=$f.npy > /dev/null
    npy show o.npy
done
--- stdout
<f4 (2, 1, 1)
0.2500
0.2500
<f4 (2, 1, 1)
0.2500
0.2500

=== parameters of a mix
npy make q.npy 2x1x1 0,0
npy make v.npy 2x1x1 1,1
npy make s.npy 1 1.0986123
foci run '1*softmax sink + 1*softmax sink' --q q.npy --k q.npy --v v.npy --out o.npy \
    --param 1.sink=s.npy > /dev/null
npy show o.npy
--- stdout
<f4 (2, 1, 1)
0.5000
0.2500

=== mask
npy make q.npy 2x2 0,0,0,0
npy make v.npy 2x1 1,3
npy make m.npy 2x2 1,0,1,1 --dtype b1
foci run softmax --q q.npy --k q.npy --v v.npy --out o.npy --mask m.npy > /dev/null
npy show o.npy
--- stdout
<f4 (2, 1)
1.0000
2.0000

=== a row that sees nothing is zero
npy make q.npy 2x2 0,0,0,0
npy make v.npy 2x1 1,3
npy make m.npy 2x2 0,0,0,1
foci run softmax --q q.npy --k q.npy --v v.npy --out o.npy --mask m.npy > /dev/null
npy show o.npy
--- stdout
<f4 (2, 1)
0.0000
3.0000

=== bias
npy make q.npy 2x2 0,0,0,0
npy make v.npy 2x1 0,4
npy make b.npy 2x2 0,1.0986123,0,0
foci run softmax --q q.npy --k q.npy --v v.npy --out o.npy --bias b.npy > /dev/null
npy show o.npy
--- stdout
<f4 (2, 1)
3.0000
2.0000

=== mask of heads with bias of sequences
npy make q.npy 2x2x5x4 wave:1
npy make m.npy 2x5x5 1,0,1,1,0,1,1,1,0,1,1,0,1,1,0,1,1,1,0,1,1,0,1,1,0,1,1,1,0,1,1,0,1,1,0,1,1,1,0,1,1,0,1,1,0,1,1,1,0,1
npy make b.npy 2x1x5x5 wave:2
for how in '' --ref; do
    foci run softmax --q q.npy --k q.npy --v q.npy --out o$how.npy --mask m.npy --bias b.npy $how > /dev/null
done
npy near o.npy o--ref.npy 1e-5

=== lengths
npy make q.npy 2x1x3x2 0,0,0,0,0,0,0,0,0,0,0,0
npy make v.npy 2x1x3x1 1,2,3,4,5,6
npy make lq.npy 2 3,1 --dtype i8
npy make lk.npy 2 1,2
foci run softmax --q q.npy --k q.npy --v v.npy --out o.npy --len-q lq.npy --len-k lk.npy > /dev/null
npy show o.npy
--- stdout
<f4 (2, 1, 3, 1)
1.0000
1.0000
1.0000
4.5000
0.0000
0.0000

=== documents
npy make q.npy 4x2 0,0,0,0,0,0,0,0
npy make v.npy 4x1 1,2,3,5
npy make d.npy 3 0,1,4 --dtype i4
foci run softmax --q q.npy --k q.npy --v v.npy --out o.npy --docs d.npy > /dev/null
npy show o.npy
--- stdout
<f4 (4, 1)
1.0000
3.3333
3.3333
3.3333

=== the report as JSON
npy make q.npy 2x3x4
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --dout q.npy --grads g --threads 1 --json > r.json
python3 - <<'END'
import json
r = json.load(open("r.json"))
print(r["spec"], r["problem"], r["dtype"], r["by"], r["shape"], r["threads"])
print(r["forward_seconds"] > 0, r["backward_seconds"] > 0, len(r["stages"]) > 1)
END
--- stdout
2*softmax h2n3d4 f32 engine [2, 3, 4] 1
True True True

=== the same bits for any number of threads
npy make q.npy 4x150x16 wave:1
for n in 1 2 7; do
    foci run softmax --q q.npy --k q.npy --v q.npy --out o$n.npy --dout q.npy --grads g$n --threads $n --causal > /dev/null
done
for n in 2 7; do cmp o1.npy o$n.npy; for x in q k v; do cmp g1.d$x.npy g$n.d$x.npy; done; done

=== nothing to attend to
npy make q.npy 0x4 ramp
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy
--- stderr
foci run: softmax: len_q is 0: it may be 1 to 68719476736
--- exit 2

=== the output may be an input
npy make q.npy 3x4
foci run softmax --q q.npy --k q.npy --v q.npy --out a.npy > /dev/null
foci run softmax --q q.npy --k q.npy --v q.npy --out q.npy > /dev/null
cmp a.npy q.npy

=== a file whose name begins with dashes
npy make q.npy 3x4
foci run softmax --q q.npy --k q.npy --v q.npy --out=--o.npy > /dev/null
ls
--- stdout
--o.npy
q.npy

=== token by token as all at once, with keys before the first query and lengths
npy make q.npy 2x4x70x16 wave:1
npy make k.npy 2x2x100x16 wave:2
npy make v.npy 2x2x100x8 wave:3
npy make lq.npy 2 70,50 --dtype i4
npy make lk.npy 2 100,60 --dtype i4
foci run 'softmax sink' --q q.npy --k k.npy --v v.npy --causal --len-q lq.npy --len-k lk.npy --out a.npy > /dev/null
foci run 'softmax sink' --q q.npy --k k.npy --v v.npy --causal --len-q lq.npy --len-k lk.npy --out b.npy --step > /dev/null
npy near a.npy b.npy 1e-6 && echo near
--- stdout
near
--- stderr
foci run: --k k.npy of 2x2x100x16 has 2 heads for the 4 of --q q.npy of 2x4x70x16: each serves 2; rows before heads are --layout bnhd
foci run: --k k.npy of 2x2x100x16 has 2 heads for the 4 of --q q.npy of 2x4x70x16: each serves 2; rows before heads are --layout bnhd

=== the gradient of a bias has the shape of its file
for x in q k v do; do npy make $x.npy 2x3x20x8 wave:${#x}; done
npy make bias.npy 20x20 wave:4
npy make mask.npy 3x20x20 wave:5
for how in '' --ref; do
    foci run softmax --q q.npy --k k.npy --v v.npy --bias bias.npy --mask mask.npy \
        --out o$how.npy --dout do.npy --grads g$how $how > /dev/null || exit
done
npy near g.dbias.npy g--ref.dbias.npy 1e-4
npy show g.dbias.npy > b.txt; head -1 b.txt
--- stdout
<f4 (20, 20)

=== routes: several sets of keys, and gates of hidden states, with their gradients
npy make q.npy 2x2x20x8 wave:1
npy make k.npy 2x4x20x8 wave:2
npy make v.npy 2x4x20x6 wave:3
npy make x.npy 2x20x10 wave:4
npy make do.npy 2x2x20x6 wave:5
npy make s.npy "" 0.5
for how in '' --ref; do
    foci run 'routed(inner=softmax sink, top=1)' --q q.npy --k k.npy --v v.npy --x x.npy --causal \
        --param inner.sink=s.npy --out o$how.npy --dout do.npy --grads g$how $how | sed -n 1p
done
npy near o.npy o--ref.npy 1e-5
for t in q k v x Wr inner.sink; do npy near g.d$t.npy g--ref.d$t.npy 2e-5; done
npy show g.dx.npy > dx.txt; head -1 dx.txt
--- stdout
plan b2h2n20d8v6c, f32, *
plan b2h2n20d8v6c, f32, *
<f4 (2, 20, 10)

=== routes that heads share
npy make q.npy 2x20x8 wave:1
npy make x.npy 20x10 wave:4
for how in '' --ref; do
    foci run 'routed(routes=2)' --q q.npy --k q.npy --v q.npy --x x.npy --out o$how.npy $how | sed -n 1p
done
npy near o.npy o--ref.npy 1e-5
--- stdout
plan h2k2n20d8, f32*
plan h2k2n20d8, f32*

=== hidden states of one sequence, in bf16
npy make q.npy 2x20x8 wave:1
npy make x.npy 20x10 wave:4
npy make y.npy 1x20x10 wave:4
for x in x y; do
    foci run routed --q q.npy --k q.npy --v q.npy --x $x.npy --out o$x.npy --dout q.npy --grads g$x --dtype bf16 > /dev/null
    npy show g$x.dx.npy > dx.txt; head -1 dx.txt
done
cmp ox.npy oy.npy
--- stdout
<f4 (20, 10)
<f4 (1, 20, 10)

=== a layout of blocks, of any shape and type
npy make q.npy 2x20x8 wave:1
npy make a.npy 4x4 1,0,0,0,1,1,0,0,0,0,0,0,1,0,0,1
npy make b.npy 16 1,0,0,0,1,1,0,0,0,0,0,0,1,0,0,1 --dtype i8
npy make c.npy 2x8 1,0,0,0,1,1,0,0,0,0,0,0,1,0,0,1 --dtype b1
foci run 'block(block=5)' --q q.npy --k q.npy --v q.npy --out r.npy --param layout=a.npy --ref > /dev/null
for l in a b c; do
    foci run 'block(block=5)' --q q.npy --k q.npy --v q.npy --out o.npy --param layout=$l.npy > /dev/null
    npy near o.npy r.npy 1e-5
done
npy show o.npy | sed -n 12p
--- stdout
0.0000 0.0000 0.0000 0.0000 0.0000 0.0000 0.0000 0.0000

=== global tokens, unsorted and repeated
npy make q.npy 20x8 wave:1
npy make g.npy 4 17,0,5,0
npy make h.npy 3 0,5,17 --dtype i4
foci run 'global(window=2)' --q q.npy --k q.npy --v q.npy --out r.npy --param global=h.npy --ref > /dev/null
for l in g h; do
    foci run 'global(window=2)' --q q.npy --k q.npy --v q.npy --out o.npy --param global=$l.npy > /dev/null
    npy near o.npy r.npy 1e-5
done

=== lists of groups and of inner mechanisms
npy make q.npy 3x20x8 wave:1
npy make k.npy 4x20x8 wave:2
npy make x.npy 20x6 wave:3
npy make l.npy 4x4 1,0,0,0,1,1,0,0,0,0,1,0,1,0,0,1
npy make g.npy 2 3,11
for how in '' --ref; do
    foci run '1*block(block=5) + 1*routed(inner=global(window=1)) + 1*local(window=2)' --q q.npy --k k.npy --v k.npy \
        --x x.npy --param 0.layout=l.npy --param 1.inner.global=g.npy --out o$how.npy $how > /dev/null
done
npy near o.npy o--ref.npy 1e-5

=== gradient of a bias that sequences share, with and without a mask of each
npy make q.npy 2x3x12x8 wave:1
npy make b.npy 3x12x12 wave:2
npy make m.npy 2x1x12x12 wave:3
for how in '' --ref; do
    foci run 'softmax' --q q.npy --k q.npy --v q.npy --bias b.npy --dout q.npy --grads a$how $how > /dev/null
    foci run 'softmax' --q q.npy --k q.npy --v q.npy --bias b.npy --mask m.npy --dout q.npy --grads m$how $how > /dev/null
done
for g in a m; do npy near $g.dbias.npy $g--ref.dbias.npy 2e-5; done
npy show m.dbias.npy > m.txt; head -1 m.txt
--- stdout
<f4 (3, 12, 12)

=== dropout drops the same weights everywhere
npy make q.npy 2x30x8 wave:1
for how in '' --ref '--threads 1'; do
    foci run 'softmax alibi' --q q.npy --k q.npy --v q.npy --dropout 0.4 --dropout-seed 7 --out "o$how.npy" \
        --dout q.npy --grads "g$how" --weights "w$how.npy" $how > /dev/null
done
npy near o.npy o--ref.npy 1e-5
cmp o.npy 'o--threads 1.npy'
for t in q k v; do npy near g.d$t.npy g--ref.d$t.npy 2e-5; done
foci run 'softmax alibi' --q q.npy --k q.npy --v q.npy --dropout 0.4 --dropout-seed 8 --out p.npy > /dev/null
cmp -s o.npy p.npy
--- exit 1

=== positions
npy make q.npy 3x40x8 wave:1
npy make do.npy 3x40x8 wave:2
for s in rope 'rope(layout=half)' alibi t5 bias shaw txl; do
    for how in '' --ref; do
        foci run "softmax $s" --q q.npy --k q.npy --v q.npy --causal --out o$how.npy --dout do.npy --grads g$how --seed 3 $how > /dev/null
    done
    npy near o.npy o--ref.npy 1e-5
    for g in g.d*.npy; do npy near $g g--ref${g#g} 5e-5; done
    rm g*.npy
done

=== every support, order and merge as the reference has it, with weights
npy make q.npy 2x150x16 wave:1
npy make k.npy 2x150x16 wave:2
npy make v.npy 2x150x8 wave:3
for s in 'local(window=9)' 'local(window=3, dilation=5)' 'blocklocal(block=20)' 'strided(stride=12)' \
         'sparse_fixed(stride=12, summary=2)' 'bigbird(block=16)' 'lsh(buckets=8, rounds=2)' 'routing(clusters=6)' \
         'segmented(length=20, back=1)' 'segmented(length=20, integrate=summary)' 'pooled(block=4, levels=3)' 'xl(memory=30)'; do
    for how in '' --ref; do
        foci run "$s" --q q.npy --k k.npy --v v.npy --out o$how.npy --weights w.npy --seed 5 $how > /dev/null
    done
    npy near o.npy o--ref.npy 2e-5 || echo "$s"
done

=== token by token as all at once
npy make q.npy 2x2x150x16 wave:1
npy make k.npy 2x2x150x16 wave:2
npy make v.npy 2x2x150x8 wave:3
for s in 'local(window=9) rope' 'blocklocal(block=20)' 'strided(stride=12)' 'sparse_fixed(stride=12, summary=2)' \
         'bigbird(block=16, random=0)' 'lsh(buckets=8, rounds=2)' 'lsh(shared=1, buckets=8)' 'routing(clusters=6)' \
         'segmented(length=20, back=1)' 'segmented(length=20, integrate=summary)' 'pooled(block=4, levels=3)' \
         'pooled(block=4, levels=3) cap(3)' 'segmented(length=20, integrate=summary, count_bias=1) cap(3)' 'softmax alibi' 'softmax t5' 'softmax shaw' 'softmax txl'; do
    for how in '' --step; do
        foci run "$s" --q q.npy --k k.npy --v v.npy --causal --out o$how.npy --seed 5 $how > /dev/null
    done
    npy near o.npy o--step.npy 1e-5 || echo "$s"
done

=== token by token with lists
npy make q.npy 2x2x150x16 wave:1
npy make l.npy 4x4 1,0,0,0,1,1,0,0,0,0,1,0,1,0,0,1
npy make g.npy 2 3,11
for how in '' --step; do
    foci run '1*block(block=40) + 1*global(window=9)' --q q.npy --k q.npy --v q.npy --causal --out o$how.npy $how \
        --param 0.layout=l.npy --param 1.global=g.npy > /dev/null
done
npy near o.npy o--step.npy 1e-5

=== statistics of these queries and keys, frozen
npy make q.npy 2x9x4 wave:1
npy make k.npy 2x9x4 wave:2
npy make v.npy 2x9x3 wave:3
for kind in favor++ sderf aderf; do
    run="foci run performer(kind=$kind) --q q.npy --k k.npy --v v.npy"
    $run --out free.npy --quiet > /dev/null
    $run --out frozen.npy --calibrate --dump-params p.safetensors > /dev/null
    npy near frozen.npy free.npy 1e-5
    $run --out causal.npy --calibrate --causal > /dev/null
    $run --out ref.npy --calibrate --causal --ref > /dev/null
    npy near causal.npy ref.npy 1e-5
    npy near causal.npy free.npy 1e-5 2> /dev/null && echo "causal is not"
    npy names p.safetensors | grep -c nan
done
npy names p.safetensors | cut -d ' ' -f 1-5
--- stdout
0
0
0
A F32 [2, 4]*
Bx F32 [2, 4, 4]*
By F32 [2, 4, 4]*
Cx F32 [2, 4, 4]*
Cy F32 [2, 4, 4]*
omega F32 [2, 8, 4]*

=== statistics that were given win over those found
npy make q.npy 5x4 wave:1
npy make a.npy 4 -0.25,-0.25,-0.25,-0.25
for how in '' --calibrate; do
    foci run 'performer(kind=favor++)' --q q.npy --k q.npy --v q.npy --out o$how.npy --causal --param A=a.npy $how > /dev/null
done
npy near o--calibrate.npy o.npy 0

=== a long run says how far it is, and leaves nothing behind when it is interrupted
npy make q.npy 1000000x1
python3 - <<'END'
import signal
import subprocess
run = subprocess.Popen("foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --causal "
                       "--step --threads 1".split(), stderr=subprocess.PIPE, text=True)
print(run.stderr.readline(), end="")
run.send_signal(signal.SIGINT)
run.communicate()
print(run.returncode == -signal.SIGINT)
END
ls
--- stdout
foci run: * of 1000000 tokens: softmax
True
q.npy

# foci run --heads: whole layers.  Zero queries see all keys alike, so that numbers can be
# had by hand.

=== mean of the rows when queries are zero
npy make x.npy 2x2 1,2,3,6
npy make zero.npy 2x2 0,0,0,0
npy make one.npy 2x2 1,0,0,1
foci run softmax --x x.npy --heads 1 --param Wq=zero.npy --param Wk=one.npy --param Wv=one.npy \
    --param Wo=one.npy --out y.npy
npy show y.npy
--- stdout
layer attention, 2 rows of 2*
  spec     1*softmax
  output   2x2
  forward  * ms
  wrote    y.npy, 2x2
<f4 (2, 2)
2.0000 4.0000
2.0000 4.0000

=== causal, with biases and an output projection
npy make x.npy 2x2 1,2,3,6
npy make zero.npy 2x2 0,0,0,0
npy make one.npy 2x2 1,0,0,1
npy make wo.npy 2x2 1,1,0,1
npy make bv.npy 2 10,20
npy make bo.npy 2 -1,-3 --dtype i4
foci run softmax --x x.npy --heads 1 --causal --biases --param Wq=zero.npy --param Wv=one.npy \
    --param bv=bv.npy --param Wo=wo.npy --param bo=bo.npy --out y.npy > /dev/null
npy show y.npy
--- stdout
<f4 (2, 2)
10.0000 30.0000
11.0000 33.0000

=== groups of a mix have projections of their own, and only those they read
npy make x.npy 3x2 1,2,3,6,8,9
npy make zero.npy 2x1 0,0
npy make first.npy 2x1 1,0
npy make last.npy 2x1 0,1
npy make one.npy 2x2 1,0,0,1
foci run '1*softmax + 1*fixed(previous)' --x x.npy --heads 2 --causal --param 0.Wq=zero.npy \
    --param 0.Wv=first.npy --param 1.Wv=last.npy --param Wo=one.npy --out y.npy \
    --dump-params p.safetensors > /dev/null
npy show y.npy
npy names p.safetensors | cut -d' ' -f1-4
--- stdout
<f4 (3, 2)
1.0000 0.0000
2.0000 2.0000
4.0000 6.0000
0.Wk F32 [2, 1]
0.Wq F32 [2, 1]
0.Wv F32 [2, 1]
1.Wv F32 [2, 1]
Wo F32 [2, 2]

=== gradients of x and of what is trained
npy make x.npy 2x2 1,2,3,6
npy make zero.npy 2x2 0,0,0,0
npy make one.npy 2x2 1,0,0,1
npy make dy.npy 2x2 1,0,0,0
foci run softmax --x x.npy --heads 1 --param Wq=zero.npy --param Wk=zero.npy --param Wv=one.npy \
    --param Wo=one.npy --dout dy.npy --grads g > /dev/null
for t in x Wq Wk Wv Wo; do npy show g.d$t.npy; done
--- stdout
<f4 (2, 2)
0.5000 0.0000
0.5000 0.0000
<f4 (2, 2)
0.0000 0.0000
0.0000 0.0000
<f4 (2, 2)
0.0000 0.0000
0.0000 0.0000
<f4 (2, 2)
2.0000 0.0000
4.0000 0.0000
<f4 (2, 2)
2.0000 0.0000
4.0000 0.0000

=== what is frozen has no gradient
npy make x.npy 5x8
foci run '1*softmax frozen(orthogonal) + 1*softmax' --x x.npy --heads 2 --dout x.npy --grads g > /dev/null
ls
--- stdout
g.d0.Wv.npy
g.d1.Wk.npy
g.d1.Wq.npy
g.d1.Wv.npy
g.dWo.npy
g.dx.npy
x.npy

=== as the reference does it, with gradients of all
npy make x.npy 2x40x24 wave:1
npy make dy.npy 2x40x24 wave:2
for how in '' --ref; do
    foci run '1*softmax sink temper + 1*softmax frozen(orthogonal) + 2*linear' --x x.npy --heads 4 --causal \
        --biases --out y$how.npy --dout dy.npy --grads g$how $how > /dev/null || exit
done
npy near y.npy y--ref.npy 2e-5
for t in x 0.Wq 0.Wk 0.Wv 0.bv 1.Wv 1.bv 2.Wq 2.Wk 2.Wv Wo bo 0.sink 0.temper; do
    npy near g.d$t.npy g--ref.d$t.npy 2e-4 || echo $t
done

=== routes, distances and hidden states that are read
npy make x.npy 2x20x24 wave:1
npy make dy.npy 2x20x24 wave:2
for how in '' --ref; do
    foci run '1*routed(routes=3) + 1*softmax txl + 1*dynconv + 1*synthesizer(dense, max=20)' --x x.npy --heads 4 \
        --causal --out y$how.npy --dout dy.npy --grads g$how $how > /dev/null || exit
done
npy near y.npy y--ref.npy 2e-5
for t in x 0.Wk 0.Wr 1.WR 1.u 2.W 3.W1 Wo; do npy near g.d$t.npy g--ref.d$t.npy 2e-4 || echo $t; done

=== token by token as all at once, with lengths
npy make x.npy 2x70x24 wave:1
npy make l.npy 2 70,40 --dtype i4
for t in f32 bf16; do
    for how in '' --step; do
        foci run '1*softmax rope + 1*softmax frozen(hadamard) + 1*fixed(left) + 1*linear' --x x.npy --heads 4 \
            --causal --len-q l.npy --dtype $t --out y$how.npy $how > /dev/null || exit
    done
    npy near y--step.npy y.npy $([ $t = f32 ] && echo 1e-5 || echo 3e-2)
done

=== rows beyond a length are zero
npy make x.npy 1x3x2 1,2,3,6,100,100
npy make l.npy 1 2
npy make zero.npy 2x2 0,0,0,0
npy make one.npy 2x2 1,0,0,1
foci run softmax --x x.npy --heads 1 --len-q l.npy --param Wq=zero.npy --param Wv=one.npy --param Wo=one.npy \
    --out y.npy > /dev/null
npy show y.npy
--- stdout
<f4 (1, 3, 2)
2.0000 4.0000
2.0000 4.0000
0.0000 0.0000

=== documents
npy make x.npy 4x1 1,2,3,5
npy make zero.npy 1x1 0
npy make one.npy 1x1 1
npy make d.npy 3 0,1,4
foci run softmax --x x.npy --heads 1 --docs d.npy --param Wq=zero.npy --param Wv=one.npy --param Wo=one.npy \
    --out y.npy > /dev/null
npy show y.npy
--- stdout
<f4 (4, 1)
1.0000
3.3333
3.3333
3.3333

=== mask, and bias with its gradient
npy make x.npy 2x1 1,3
npy make zero.npy 1x1 0
npy make one.npy 1x1 1
npy make m.npy 2x2 1,0,1,1
npy make b.npy 2x2 0,0,0,1.0986123
npy make dy.npy 2x1 1,1
foci run softmax --x x.npy --heads 1 --mask m.npy --bias b.npy --param Wq=zero.npy --param Wv=one.npy \
    --param Wo=one.npy --out y.npy --dout dy.npy --grads g > /dev/null
npy show y.npy
npy show g.dbias.npy
--- stdout
<f4 (2, 1)
1.0000
2.5000
<f4 (2, 2)
0.0000 0.0000
-0.3750 0.3750

=== a source of another width and length gives keys and values
npy make x.npy 2x1x2 1,2,3,6
npy make s.npy 2x3x1 1,3,100,5,7,9
npy make l.npy 2 2,3
npy make dy.npy 2x1x2 1,0,0,0
npy make zero.npy 2x2 0,0,0,0
npy make wv.npy 1x2 1,10
npy make one.npy 2x2 1,0,0,1
foci run softmax --x x.npy --source s.npy --len-k l.npy --heads 1 --param Wq=zero.npy --param Wv=wv.npy \
    --param Wo=one.npy --out y.npy --dout dy.npy --grads g > /dev/null
npy show y.npy
npy show g.dsource.npy
ls g.*
--- stdout
<f4 (2, 1, 2)
2.0000 20.0000
7.0000 70.0000
<f4 (2, 3, 1)
0.5000
0.5000
0.0000
0.0000
0.0000
0.0000
g.dWk.npy
g.dWo.npy
g.dWq.npy
g.dWv.npy
g.dsource.npy
g.dx.npy

=== memory before x
npy make x.npy 1x2 1,2
npy make m.npy 1x2 3,4
npy make zero.npy 2x2 0,0,0,0
npy make one.npy 2x2 1,0,0,1
foci run xl --x x.npy --memory m.npy --heads 1 --causal --param Wq=zero.npy --param Wv=one.npy \
    --param Wo=one.npy --out y.npy | head -1
npy show y.npy
--- stdout
layer attention, 1 rows of 2, 1 rows of memory*
<f4 (1, 2)
2.0000 3.0000

=== memory, token by token
npy make x.npy 2x5x8 wave:1
npy make m.npy 2x3x8 wave:2
npy make l.npy 2 5,2
npy make w.npy 2x5 ramp
for how in '' --step --ref; do
    foci run '1*xl + 1*softmax alibi' --x x.npy --memory m.npy --heads 2 --causal --len-q l.npy --out y$how.npy $how > /dev/null
done
npy near y--step.npy y.npy 1e-6
npy near y--ref.npy y.npy 1e-6
foci run xl --x x.npy --memory m.npy --heads 2 --causal --out z.npy --step --param words=w.npy
--- stderr
foci run: --step: rows of --memory have no words
--- exit 2

=== no statistics to step through
npy make x.npy 5x8
foci run 'performer(kind=sderf)' --x x.npy --heads 2 --causal --out y.npy
--- stderr
foci run: performer that is causal needs statistics that are frozen: *
--- exit 1

=== grouped heads, and heads that are wider than their share
npy make x.npy 5x6
foci run softmax --x x.npy --heads 4 --kv-heads 2 --head-dim 3 --value-dim 5 --out y.npy \
    --dump-params p.safetensors --json > r.json
npy names p.safetensors | cut -d' ' -f1-4
python3 - <<'END'
import json
r = json.load(open("r.json"))
print(r["spec"], r["problem"], r["layer"], r["dtype"], r["by"], r["shape"], r["forward_seconds"] > 0)
END
--- stdout
Wk F32 [6, 6]
Wo F32 [20, 6]
Wq F32 [6, 12]
Wv F32 [6, 10]
4*softmax h4k2n5d3v5w6 attention f32 engine [5, 6] True

=== a gated unit of one token
npy make x.npy 1x1 1
npy make one.npy 1x1 1
foci run softmax --x x.npy --layer gau --head-dim 1 --value-dim 1 --param Wu=one.npy --param Wv=one.npy \
    --param Wo=one.npy --out y.npy --dump-params p.safetensors > /dev/null
npy show y.npy
npy names p.safetensors | cut -d' ' -f1-4
--- stdout
<f4 (1, 1)
0.5344
Wo F32 [1, 1]
Wu F32 [1, 1]
Wv F32 [1, 1]
Wz F32 [1, 1]
beta_k F32 [1] 0.0000
beta_q F32 [1] 0.0000
gamma_k F32 [1] 1.0000
gamma_q F32 [1] 1.0000

=== a gated convolution of one token
npy make x.npy 1x1 3
npy make wi.npy 1x2 2,0
npy make wo.npy 1x1 10
foci run 'lightconv(width=1)' --x x.npy --layer conv --heads 1 --param Wi=wi.npy --param Wo=wo.npy --out y.npy > /dev/null
npy show y.npy
--- stdout
<f4 (1, 1)
30.0000

=== kinds as the reference does them, and in steps
npy make x.npy 2x30x12 wave:1
npy make dy.npy 2x30x12 wave:2
for kind in 'gau relu2(n=30) --head-dim 8' 'conv lightconv(width=3,heads=2) --heads 3' 'conv dynconv --heads 2'; do
    set -- $kind
    layer=$1 spec=$2; shift 2
    for how in '' --ref; do
        foci run $spec --x x.npy --layer $layer "$@" --biases --causal --out y$how.npy --dout dy.npy \
            --grads g$how $how > /dev/null || exit
    done
    npy near y.npy y--ref.npy 2e-5
    for f in g.*.npy; do npy near $f g--ref.${f#g.} 2e-4 || echo $f; done
    foci run $spec --x x.npy --layer $layer "$@" --biases --causal --out s.npy --step > /dev/null
    npy near s.npy y.npy 1e-5
    rm g*.npy
done

=== parameters: drawn, dumped, given back, the frozen ones too
npy make x.npy 5x16 wave:1
s='2*softmax frozen(orthogonal) sink + 2*softmax init(orthogonal)'
foci run "$s" --x x.npy --heads 4 --out a.npy --seed 5 --dump-params p.safetensors > /dev/null
npy names p.safetensors | cut -d' ' -f1-4
foci run "$s" --x x.npy --heads 4 --out b.npy $(for t in 0.Wq 0.Wk 0.Wv 1.Wq 1.Wk 1.Wv Wo 0.sink; do
    echo --param $t=p.safetensors; done) > /dev/null
cmp a.npy b.npy
foci run "$s" --x x.npy --heads 4 --out b.npy > /dev/null
cmp -s a.npy b.npy || echo another seed, another layer
--- stdout
0.Wk F32 [16, 8]
0.Wq F32 [16, 8]
0.Wv F32 [16, 8]
0.sink F32 [2] 0.0000
1.Wk F32 [16, 8]
1.Wq F32 [16, 8]
1.Wv F32 [16, 8]
Wo F32 [16, 16]
another seed, another layer

=== the index of a layer moves what is frozen, unless it is shared
npy make x.npy 5x8 wave:1
for s in 'frozen(orthogonal)' 'frozen(orthogonal,shared=1)'; do
    for i in '--seed 4' '--seed 4 --index 3' '--seed 7'; do
        foci run "softmax $s" --x x.npy --heads 2 $i --dump-params "p$i.safetensors" > /dev/null
        npy names "p$i.safetensors" | grep Wq > "p$i.txt"
    done
    cmp -s 'p--seed 4 --index 3.txt' 'p--seed 7.txt' && echo seed and index add up
    cmp -s 'p--seed 4 --index 3.txt' 'p--seed 4.txt' && echo the index does not count
done
--- stdout
seed and index add up
the index does not count

=== a projection that is tied, given
npy make x.npy 5x8 wave:1
npy make w.npy 8x8 wave:2
foci run 'softmax frozen(hadamard, tie=1)' --x x.npy --heads 2 --param Wq=w.npy --param Wk=w.npy --out a.npy > /dev/null
foci run softmax --x x.npy --heads 2 --param Wq=w.npy --param Wk=w.npy --out b.npy > /dev/null
npy near a.npy b.npy 1e-6

=== dropout of the output leaves twice what it leaves
npy make x.npy 6x8 wave:1
foci run softmax --x x.npy --heads 2 --out a.npy > /dev/null
foci run softmax --x x.npy --heads 2 --out b.npy --output-dropout 0.5 --dropout-seed 1 > /dev/null
foci run softmax --x x.npy --heads 2 --out c.npy --output-dropout 0.5 --dropout-seed 2 > /dev/null
npy show a.npy | tail -n +2 | tr ' ' '\n' > a.txt
npy show b.npy | tail -n +2 | tr ' ' '\n' > b.txt
paste a.txt b.txt | python3 -c "
import sys
pairs = [tuple(map(float, line.split())) for line in sys.stdin]
kept = sum(y != 0 for _, y in pairs)
print(all(y == 0 or abs(y - 2 * x) < 3e-4 for x, y in pairs), 10 < kept < 38)"
cmp -s b.npy c.npy || echo another seed drops others
--- stdout
True True
another seed drops others

=== statistics first, then frozen
npy make x.npy 20x8 wave:1
foci run 'performer(kind=aderf)' --x x.npy --heads 2 --causal --calibrate --out y.npy --dump-params p.safetensors > /dev/null
npy names p.safetensors | cut -d' ' -f1-4
cat p.safetensors > q.safetensors
foci run 'performer(kind=aderf)' --x x.npy --heads 2 --causal $(for t in A Bx By Cx Cy; do
    echo --param $t=q.safetensors; done) --out z.npy > /dev/null
npy near z.npy y.npy 1e-6
--- stdout
...

=== words, and lists that planning asks for
npy make x.npy 6x4 wave:1
npy make w.npy 6 0,0,1,1,2,2
npy make l.npy 2x2 1,0,1,1
for how in '' --ref; do
    foci run '1*fixed(left, words=1) + 1*block(block=3)' --x x.npy --heads 2 --param words=w.npy --param 1.layout=l.npy \
        --out y$how.npy $how > /dev/null || exit
done
npy near y.npy y--ref.npy 1e-5

=== arguments that follow from the length, and lists that nobody asks for
npy make x.npy 16x4 wave:1
npy make l.npy 2x2 1,0,1,1
npy make l3.npy 3 1,0,1
foci run strided --x x.npy --heads 2 --causal --out y.npy | sed -n 2p
foci run '1*cosformer + 1*block(block=8)' --x x.npy --heads 2 --causal --param 1.layout=l.npy --out y.npy | sed -n 2p
foci run softmax --x x.npy --heads 2 --param layout=l.npy --out y.npy
foci run 'block(block=8)' --x x.npy --heads 2 --out y.npy
foci run 'block(block=8)' --x x.npy --heads 2 --param layout=l3.npy --out y.npy
--- stdout
  spec     2*strided(stride=4, part=both)
  spec     1*cosformer(length=16) + 1*block(block=8)
--- stderr
foci run: --param layout: softmax asks for no such list
foci run: block(block=8): *needs its layout, a list of 4 whole numbers*
foci run: block(block=8): layout has 3 entries; block wants 4
--- exit 2

=== fast products and bf16
npy make x.npy 2x100x64 wave:1
foci run softmax --x x.npy --heads 4 --out y.npy > /dev/null
foci run softmax --x x.npy --heads 4 --out f.npy --precision fast > /dev/null
foci run softmax --x x.npy --heads 4 --out b.npy --dtype bf16 > /dev/null
npy near f.npy y.npy 2e-2
npy near b.npy y.npy 3e-2

=== the same bits for any number of threads
npy make x.npy 2x90x32 wave:1
for n in 1 2 5; do
    foci run '2*softmax + 2*softmax frozen(hadamard)' --x x.npy --heads 4 --out y$n.npy --dout x.npy --grads g$n \
        --threads $n --causal > /dev/null
done
for n in 2 5; do cmp y1.npy y$n.npy; for t in x 0.Wq 1.Wv Wo; do cmp g1.d$t.npy g$n.d$t.npy; done; done

=== no rows at all
npy make x.npy 0x8 ramp
foci run softmax --x x.npy --heads 2 --out y.npy
--- stderr
foci run: softmax: len is 0: it may be 1 to 68719476736
--- exit 2

=== what does not go together
npy make x.npy 5x8
run() { foci run softmax "$@"; }
run --x x.npy --q x.npy --heads 2 --out y.npy
run --x x.npy --heads 2 --weights w.npy
run --heads 2 --out y.npy
run --x x.npy --head-dim 4 --out y.npy
run --x x.npy --out y.npy
run --x x.npy --heads 2 --source x.npy --memory x.npy --out y.npy
run --x x.npy --heads 2 --len-k x.npy --out y.npy
run --x x.npy --heads 2 --source x.npy --causal --step --out y.npy
run --x x.npy --heads 2 --causal --step --output-dropout 0.1 --out y.npy
run --x x.npy --heads 2 --step --out y.npy
run --x x.npy --heads 2 --dropout-seed 1 --out y.npy
run --x x.npy --heads 2
run --x x.npy --heads 2 --layer gru --out y.npy
run --x x.npy --heads 0 --out y.npy
--- stderr
foci run: --q and --heads do not go together: a layer makes q, k and v of --x itself
foci run: --weights and --heads do not go together: weights are of heads, from --q, --k and --v
foci run: --heads needs --x FILE, the hidden states of the layer
foci run: --head-dim needs --heads N, the heads of the layer
foci run: needs the tensors that softmax reads: --q, --k, --v; or, for a whole layer, --heads
foci run: --source and --memory do not go together: keys come from the one or stand before x
foci run: --len-k needs --source, whose rows it counts; those of x are counted by --len-q
foci run: --step and --source do not go together
foci run: --step and --output-dropout do not go together
foci run: --step needs --causal: decoding sees only what came before
foci run: --dropout-seed needs --dropout P, the share to drop
foci run: nothing is to be written: give --out, --weights, --grads or --dump-params
foci run: --layer is 'gru'; it takes attention|gau|conv
foci run: --heads is '0'; it takes a whole number from 1 to 16777216
--- exit 2

=== shapes that do not fit
npy make x.npy 2x5x8
npy make x1.npy 5
npy make x4.npy 1x2x5x8
npy make s.npy 3x5x8
npy make m.npy 2x5x7
npy make l.npy 3 1,2,3
run() { foci run softmax --heads 2 --out y.npy "$@"; }
run --x x1.npy
run --x x4.npy
run --x x.npy --source s.npy
run --x x.npy --memory m.npy
run --x x.npy --dout m.npy --grads g
run --x x.npy --len-q l.npy
run --x x.npy --mask m.npy
run --x none.npy
ls *.npy
--- stdout
l.npy
m.npy
s.npy
x.npy
x1.npy
x4.npy
--- stderr
foci run: --x x1.npy: its shape is 5; accepted are N x d and B x N x d
foci run: --x x4.npy: its shape is 1x2x5x8; accepted are N x d and B x N x d
foci run: --source s.npy: its shape is 3x5x8; --x x.npy of 2x5x8 needs 2xNxd
foci run: --memory m.npy: its shape is 2x5x7; --x x.npy of 2x5x8 needs 2xNx8
foci run: --dout m.npy: its shape is 2x5x7; --x x.npy of 2x5x8 needs 2x5x8
foci run: --len-q l.npy: its shape is 3; one length for each of 2 sequences is needed
foci run: --mask m.npy: its shape is 2x5x7; accepted are 5x5, 2x5x5 and 2x2x5x5; a 1 serves all
foci run: --x none.npy: cannot be opened: No such file or directory

=== parameters that are none, or of another shape
npy make x.npy 5x8
npy make w.npy 8x4
foci run softmax --x x.npy --heads 2 --out y.npy --param Wp=w.npy
foci run '1*softmax + 1*fixed' --x x.npy --heads 2 --out y.npy --param 1.Wq=w.npy
foci run softmax --x x.npy --heads 2 --out y.npy --param Wq=w.npy
foci run 'softmax frozen' --x x.npy --heads 2 --out y.npy --param Wq=w.npy
foci run 'softmax sink' --x x.npy --heads 2 --out y.npy --param sink=w.npy
foci run 'fixed(words=1)' --x x.npy --heads 2 --out y.npy
foci run '1*fixed(words=1) + 1*softmax' --x x.npy --heads 2 --out y.npy --param 0.words=w.npy
foci run softmax --x x.npy --heads 2 --out y.npy --calibrate
foci run 'xl(memory=3)' --x x.npy --heads 2 --causal --out y.npy
--- stderr
foci run: --param Wp: no such tensor (did you mean 'W*'?); see foci plan 'softmax' PROBLEM --width W --json
foci run: --param 1.Wq: no such tensor (did you mean '*.W*'?); see foci plan '1*softmax + 1*fixed' PROBLEM --width W --json
foci run: --param Wq=w.npy: its shape is 8x4; accepted is 8x8
foci run: --param Wq=w.npy: its shape is 8x4; accepted is 8x8
foci run: --param sink=w.npy: its shape is 8x4; accepted are 2, or a number for all heads
foci run: --param words=FILE is missing, and fixed(words=1) reads words
foci run: --param 0.words: tokens have words, not heads: --param words=FILE
foci run: --calibrate: softmax has no statistics of q and k
foci run: --memory is missing, and xl(memory=3) reads 3 rows before those of --x
--- exit 2

=== layers that cannot be
npy make x.npy 5x8
npy make s.npy 5x6
run() { foci run "$@" --x x.npy --out y.npy; }
run softmax --heads 3
run 'softmax + 9*relu2' --heads 2
run 'softmax frozen(orthogonal, sample=block)' --heads 2 --head-dim 6
run 'softmax frozen(tie=1)' --heads 2 --source s.npy
run 'softmax frozen(tie=1)' --heads 2 --kv-heads 1
run 'softmax frozen(hadamard)' --heads 2 --head-dim 9
run softmax --heads 4 --kv-heads 3
run relu2 --layer gau --heads 2
run softmax --layer conv --heads 2
run 'softmax frozen' --layer gau
run lightconv --layer conv --heads 2 --source s.npy
--- stderr
foci run: softmax: *8*3*
foci run: softmax + 9*relu2: *
foci run: softmax frozen(orthogonal, sample=block): frozen: sample=block *
foci run: softmax frozen(tie=1): *6*8*
foci run: softmax frozen(tie=1): *1*2*
foci run: softmax frozen(hadamard): *9*8*
foci run: softmax: kv_heads is 3: it must divide the 4 heads
foci run: relu2: *2*one*
foci run: softmax: *conv*softmax*
foci run: softmax frozen: *gau*
foci run: lightconv: *conv*source*
--- exit 2

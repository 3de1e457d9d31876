# foci run: wrong use.

=== no spec
foci run
--- stderr
foci run: needs an argument; usage: foci run SPEC
--- exit 2

=== routes with too few keys
npy make q.npy 4x8
foci run routed --q q.npy --k q.npy --v q.npy --x q.npy --out o.npy
ls o.npy 2>&1 | sed 's/.*: //'
--- stdout
No such file or directory
--- stderr
foci run: routed: kv_heads is 1: a head of routed has 2 sets of keys and values, so that it must be a multiple of 2 that divides 2

=== names that say something else than what is written
npy make q.npy 4x8
foci run softmax --q q.npy --k q.npy --v q.npy --out o.safetensors
foci run softmax --q q.npy --k q.npy --v q.npy --weights o.safetensors
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --out o.npy --dump-params p.npy
echo $?
ls
--- stdout
2
q.npy
--- stderr
foci run: --out is 'o.safetensors'; what it writes is a .npy file
foci run: --weights is 'o.safetensors'; what it writes is a .npy file
foci run: --dump-params is 'p.npy'; what it writes is a .safetensors file

=== nothing to write
foci run softmax --q q.npy
--- stderr
foci run: nothing is to be written: give --out, --weights, --grads or --dump-params
--- exit 2

=== no tensors
foci run softmax --out o.npy
--- stderr
foci run: needs the tensors that softmax reads: --q, --k, --v
--- exit 2

=== one that is read is missing
npy make q.npy 3x4
foci run softmax --k q.npy --v q.npy --out o.npy
foci run softmax --q q.npy --v q.npy --out o.npy
foci run softmax --q q.npy --k q.npy --out o.npy
echo $?; ls
--- stdout
2
q.npy
--- stderr
foci run: --q is missing, and softmax reads it
foci run: --k is missing, and softmax reads it
foci run: --v is missing, and softmax reads it

=== gradient without a place, and a place without gradient
foci run softmax --q q.npy --dout do.npy
foci run softmax --q q.npy --grads g
--- stderr
foci run: --dout needs --grads PREFIX, where the gradients go
foci run: --grads needs --dout FILE, the gradient of the output
--- exit 2

=== file that is not there
foci run softmax --q nowhere.npy --k k.npy --v v.npy --out o.npy
--- stderr
foci run: --q nowhere.npy: cannot be opened: No such file or directory
--- exit 1

=== file that is something else
echo hello there > q.npy
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy
--- stderr
foci run: --q q.npy: is neither .npy (begins with \x93NUMPY) nor .safetensors (eight bytes of length, then '{')
--- exit 1

=== truncated file
npy make a.npy 30x4
head -c 200 a.npy > q.npy
foci run softmax --q q.npy --k a.npy --v a.npy --out o.npy
--- stderr
foci run: --q q.npy: its shape needs 480 bytes of data but the file has 72
--- exit 1

=== file of complex numbers
npy make a.npy 3x4
sed "s/'<f4'/'<c8'/" a.npy > q.npy
foci run softmax --q q.npy --k a.npy --v a.npy --out o.npy
--- stderr
foci run: --q q.npy: descr is '<c8'; accepted are f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 after < or >
--- exit 1

=== one axis
npy make q.npy 12
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy
--- stderr
foci run: --q q.npy: its shape is 12; accepted are N x d, H x N x d and B x H x N x d
--- exit 1

=== five axes
npy make q.npy 1x1x1x3x4
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy
--- stderr
foci run: --q q.npy: its shape is 1x1x1x3x4; accepted are N x d, H x N x d and B x H x N x d
--- exit 1

=== keys of another width
npy make q.npy 2x5x8
npy make k.npy 2x5x7
foci run softmax --q q.npy --k k.npy --v q.npy --out o.npy
--- stderr
foci run: --k k.npy: its shape is 2x5x7; --q q.npy of 2x5x8 needs HxNx8
--- exit 1

=== keys of another batch
npy make q.npy 2x2x5x8
npy make k.npy 2x5x8
foci run softmax --q q.npy --k k.npy --v k.npy --out o.npy
--- stderr
foci run: --k k.npy: its shape is 2x5x8; --q q.npy of 2x2x5x8 needs 2xHxNx8
--- exit 1

=== as many values as keys
npy make q.npy 2x5x8
npy make v.npy 2x6x8
foci run softmax --q q.npy --k q.npy --v v.npy --out o.npy
--- stderr
foci run: --v v.npy: its shape is 2x6x8; --k q.npy of 2x5x8 needs 2x5xd
--- exit 1

=== heads that do not divide
npy make q.npy 3x5x8
npy make k.npy 2x5x8
foci run softmax --q q.npy --k k.npy --v k.npy --out o.npy
--- stderr
foci run: --k k.npy: it has 2 heads, which must divide the 3 of --q q.npy
--- exit 1

=== no heads at all
npy make q.npy 0x5x8 ramp
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy
--- stderr
foci run: --k q.npy: it has 0 heads, which must divide the 0 of --q q.npy
--- exit 1

=== gradient of another shape
npy make q.npy 2x5x8
npy make do.npy 2x5x7
foci run softmax --q q.npy --k q.npy --v q.npy --dout do.npy --grads g
--- stderr
foci run: --dout do.npy: its shape is 2x5x7; the output needs 2x5x8
--- exit 1

=== mask of another shape
npy make q.npy 2x5x8
npy make m.npy 5x4
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --mask m.npy
npy make m.npy 3x5x5
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --bias m.npy
npy make m.npy 5
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --mask m.npy
--- stderr
foci run: --mask m.npy: its shape is 5x4; accepted are 5x5, 2x5x5 and 1x2x5x5; a 1 serves all
foci run: --bias m.npy: its shape is 3x5x5; accepted are 5x5, 2x5x5 and 1x2x5x5; a 1 serves all
foci run: --mask m.npy: its shape is 5; accepted are 5x5, 2x5x5 and 1x2x5x5; a 1 serves all
--- exit 1

=== lengths of another batch
npy make q.npy 2x1x5x8
npy make l.npy 3 1,2,3
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --len-k l.npy
--- stderr
foci run: --len-k l.npy: its shape is 3; one length for each of 2 sequences is needed
--- exit 1

=== lengths that are no lengths
npy make q.npy 5x8
npy make l.npy 1 1.5
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --len-k l.npy
npy make l.npy 1 6
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --len-k l.npy
npy make l.npy 1 -1 --dtype i4
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --len-q l.npy
--- stderr
foci run: --len-k l.npy: holds a value that is not a whole number within 32 bits
foci run: len_k[0] is 6: it may be 0 to 5
foci run: len_q[0] is -1: it may be 0 to 5
--- exit 1

=== documents and lengths
npy make q.npy 5x8
npy make d.npy 2 0,5
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --docs d.npy --len-q d.npy
--- stderr
foci run: --docs and --len-q exclude each other
--- exit 2

=== documents that overlap the end
npy make q.npy 5x8
npy make d.npy 3 0,3,6
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --docs d.npy
--- stderr
foci run: docs[2] is 6: *
--- exit 1

=== documents of a batch
npy make q.npy 2x1x5x8
npy make d.npy 2 0,5
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --docs d.npy
--- stderr
foci run: softmax: packed documents need batch 1 *
--- exit 2

=== bad spec
npy make q.npy 3x4
foci run 'softmax sinc' --q q.npy --k q.npy --v q.npy --out o.npy
--- stderr
foci run: softmax sinc: column 9: *"sink"*
--- exit 2

=== parameter without a file
npy make q.npy 3x4
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --out o.npy --param sink
--- stderr
foci run: --param is 'sink'; it takes NAME=FILE
--- exit 2

=== parameter that is none
npy make q.npy 3x4
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --out o.npy --param sinc=q.npy
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --param sink=q.npy
--- stderr
foci run: --param sinc: no such tensor (did you mean 'sink'?); see foci plan 'softmax sink' PROBLEM --json
foci run: --param sink: softmax has no tensors
--- exit 2

=== parameter of another shape
npy make q.npy 2x3x4
npy make s.npy 3
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --out o.npy --param sink=s.npy
--- stderr
foci run: --param sink=s.npy: its shape is 3; accepted are 2, or a number for all heads
--- exit 1

=== array that a safetensors file does not have
npy tensors t.safetensors query=3x4 keys=3x4
npy make q.npy 3x4
foci run softmax --q q.npy --k t.safetensors --v q.npy --out o.npy
--- stderr
foci run: --k t.safetensors: none of its 2 arrays is called 'k'; it has query, keys: name one as t.safetensors:NAME
--- exit 1

=== folder that is not there
npy make q.npy 3x4
foci run softmax --q q.npy --k q.npy --v q.npy --out no/o.npy
--- stderr
foci run: no/o.npy: cannot be made: No such file or directory
--- exit 1

=== disk that fills up leaves the old file and nothing else
npy make q.npy 100x8
npy make o.npy 2 1,2
# The thread sanitizer writes a file of its own where it can.
(ulimit -f 2; TMPDIR=/none foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy)
echo $?; npy show o.npy; ls -A
--- stdout
1
<f4 (2,)
1.0000 2.0000
o.npy
q.npy
--- stderr
foci run: o.npy: cannot be written: File too large

=== output to a full device
npy make q.npy 3x4
foci run softmax --q q.npy --k q.npy --v q.npy --out /dev/full
--- stderr
foci run: /dev/full: cannot be written: No space left on device
--- exit 1

=== report to a full device
npy make q.npy 3x4
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy > /dev/full
--- stderr
foci: the output could not be written: No space left on device
--- exit 1

=== ended by a signal, nothing is left behind
npy make q.npy 300000x1
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --ref &
sleep 1
kill -TERM $!
wait $!
echo $?; ls -A
--- stdout
143
q.npy
--- stderr
Terminated

=== ended by a signal while a pipe is not read
npy make q.npy 30000x1
mkfifo pipe
(head -c 1 > /dev/null; touch seen; exec sleep 60) < pipe > /dev/null 2>&1 &
reader=$!
foci run 'local(window=1)' --q q.npy --k q.npy --v q.npy --out pipe 2> said &
exec 2> /dev/null # where shells may tell of the signal
until [ -e seen ]; do sleep 0.1; done
kill -TERM $!
wait $!
echo $?
kill $reader
cat said
--- stdout
143
foci run: pipe: cannot be written: Interrupted system call

=== a file that is there: its permissions stay, and a link to nothing is no file
npy make q.npy 3x4
npy make o.npy 1 1
chmod 600 o.npy
ln -s nothing link.npy
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy > /dev/null
stat -c %a o.npy
foci run softmax --q q.npy --k q.npy --v q.npy --out link.npy
ls -A
--- stdout
600
link.npy
o.npy
q.npy
--- stderr
foci run: link.npy: is a link to a file that is not there

=== steps need causality, and leave out what has no place in a state
npy make q.npy 4x2
npy make m.npy 4x4 --dtype b1
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --step
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --step --causal --mask m.npy
npy make few.npy 3x2
foci run softmax --q q.npy --k few.npy --v few.npy --out o.npy --step --causal
--- stderr
foci run: --step needs --causal: decoding sees only what came before
foci run: --step and --mask do not go together
foci run: --step: sequence 0 has 4 queries and 3 keys: every query needs a key of its own
--- exit 1

=== outputs that cannot be written are found before anything is computed or written
npy make q.npy 4x8
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --dout q.npy --grads no/g
foci run softmax --q none.npy --k q.npy --v q.npy --out no/o.npy
ls
--- stdout
q.npy
--- stderr
foci run: no/g: cannot be made: No such file or directory
foci run: no/o.npy: cannot be made: No such file or directory

=== one file for two results
npy make q.npy 4x8
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --weights o.npy
mkdir sub
foci run softmax --q q.npy --k q.npy --v q.npy --out sub/../o.npy --weights o.npy
foci run softmax --q q.npy --k q.npy --v q.npy --out sub/o.npy --weights o.npy > /dev/null
ls . sub
--- stdout
.:
o.npy
q.npy
sub

sub:
o.npy
--- stderr
foci run: --out and --weights are both 'o.npy'
foci run: --out and --weights are both 'o.npy'

=== a file that is a gradient's too
npy make q.npy 4x8
mkdir sub
foci run softmax --q q.npy --k q.npy --v q.npy --dout q.npy --out g.dq.npy --grads g
foci run softmax --q q.npy --k q.npy --v q.npy --dout q.npy --weights sub/../g.dv.npy --grads g
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --dout q.npy --out sub/g.dsink.npy --grads ./sub/g
foci run softmax --layer attention --heads 2 --x q.npy --dout q.npy --out g.dWq.npy --grads g
foci run softmax --q q.npy --k q.npy --v q.npy --dout q.npy --out g.dx.npy --grads g > /dev/null
ls . sub
--- stdout
.:
g.dk.npy
g.dq.npy
g.dv.npy
g.dx.npy
q.npy
sub

sub:
--- stderr
foci run: --out is 'g.dq.npy', which is where --grads puts dq
foci run: --weights is 'sub/../g.dv.npy', which is where --grads puts dv
foci run: --out is 'sub/g.dsink.npy', which is where --grads puts dsink
foci run: --out is 'g.dWq.npy', which is where --grads puts dWq

=== a gradient's file alone
npy make q.npy 4x8
foci run softmax --q q.npy --k q.npy --v q.npy --dout q.npy --out g.dq.npy --grads g
--- stderr
foci run: --out is 'g.dq.npy', which is where --grads puts dq
--- exit 2

=== a parameter that is given twice
npy make q.npy 4x8
npy make s.npy 1
npy make l.npy 1 0
foci run 'softmax sink' --q q.npy --k q.npy --v q.npy --out o.npy --param sink=s.npy --param sink=q.npy
foci plan global n8d8 --param global=l.npy --param global=l.npy
--- stderr
foci run: --param sink is given twice: sink=s.npy and sink=q.npy
foci plan: --param global is given twice: global=l.npy and global=l.npy
--- exit 2

=== hidden states that are missing, or of another shape
npy make q.npy 2x20x8
npy make b.npy 3x1x20x8
npy make k.npy 4x20x8
foci run routed --q q.npy --k k.npy --v k.npy --out o.npy
npy make x.npy 19x10
foci run routed --q q.npy --k k.npy --v k.npy --x x.npy --out o.npy
npy make x.npy 2x20x10
foci run routed --q q.npy --k k.npy --v k.npy --x x.npy --out o.npy
foci run routed --q b.npy --k b.npy --v b.npy --x x.npy --out o.npy
npy make x.npy 20
foci run routed --q q.npy --k k.npy --v k.npy --x x.npy --out o.npy
foci run routed --q q.npy --k k.npy --v k.npy --x none.npy --out o.npy
--- stderr
foci run: --x is missing, and routed reads it
foci run: --x x.npy: its shape is 19x10; --q q.npy of 2x20x8 needs 20xd
foci run: --x x.npy: its shape is 2x20x10; --q q.npy of 2x20x8 needs 1x20xd
foci run: --x x.npy: its shape is 2x20x10; --q b.npy of 3x1x20x8 needs 3x20xd
foci run: --x x.npy: its shape is 20; accepted are N x d and B x N x d
foci run: --x none.npy: cannot be opened: No such file or directory
--- exit 1

=== key heads that are no multiple, and more than there are routes
npy make q.npy 2x20x8
npy make k3.npy 3x20x8
npy make k4.npy 4x20x8
npy make x.npy 20x10
foci run routed --q q.npy --k k3.npy --v k3.npy --x x.npy --out o.npy
foci run softmax --q q.npy --k k4.npy --v k4.npy --out o.npy
foci run '1*softmax + 1*routed(routes=4)' --q q.npy --k k3.npy --v k3.npy --x x.npy --out o.npy
--- stderr
foci run: --k k3.npy: it has 3 heads, which must divide the 4 sets of keys that the 2 heads of --q q.npy have
foci run: --k k4.npy: it has 4 heads, which must divide the 2 of --q q.npy
foci run: --k k3.npy: it has 3 heads, which must divide the 5 sets of keys that the 2 heads of --q q.npy have
--- exit 1

=== weights that are no matrix
npy make q.npy 2x20x8
npy make x.npy 20x10
foci run routed --q q.npy --k q.npy --v q.npy --x x.npy --weights w.npy
ls
--- stdout
q.npy
x.npy
--- stderr
foci run: routed has no weights: its output is not one matrix times the values

=== a layout that is missing, too short, or no layout
npy make q.npy 20x8
npy make l.npy 3x3 1,0,0,1,1,0,0,1,1
foci run 'block(block=5)' --q q.npy --k q.npy --v q.npy --out o.npy
foci run 'block(block=5)' --q q.npy --k q.npy --v q.npy --out o.npy --param layout=l.npy
npy make l.npy 4x4 2,0,0,0,1,1,0,0,0,0,1,0,1,0,0,1
foci run 'block(block=5)' --q q.npy --k q.npy --v q.npy --out o.npy --param layout=l.npy
npy make l.npy 4x4 0.5,0,0,0,1,1,0,0,0,0,1,0,1,0,0,1
foci run 'block(block=5)' --q q.npy --k q.npy --v q.npy --out o.npy --param layout=l.npy
--- stderr
foci run: block(block=5) needs a list of 16 whole numbers from 0 to 1; give --param layout=FILE
foci run: --param layout: it has 9 entries, and block(block=5) needs 16
foci run: block(block=5): layout[0] is 2: it may be 0 to 1
foci run: --param layout=l.npy: holds a value that is not a whole number within 32 bits
--- exit 1

=== lists under another name
npy make q.npy 2x20x8
npy make x.npy 20x8
npy make l.npy 2 3,4
foci run '1*global + 1*softmax' --q q.npy --k q.npy --v q.npy --out o.npy --param global=l.npy
foci run 'routed(inner=global)' --q q.npy --k q.npy --v q.npy --x x.npy --out o.npy --param global=l.npy
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --param global=l.npy
foci run '1*global + 1*global' --q q.npy --k q.npy --v q.npy --out o.npy --param 2.global=l.npy
--- stderr
foci run: --param global: 1*global + 1*softmax asks for no such list, but for 0.global
foci run: --param global: routed(inner=global) asks for no such list, but for inner.global
foci run: --param global: softmax asks for no such list
foci run: --param 2.global: 1*global + 1*global asks for no such list, but for 0.global and others
--- exit 2

=== tokens out of range
npy make q.npy 20x8
npy make l.npy 3 0,5,20
foci run global --q q.npy --k q.npy --v q.npy --out o.npy --param global=l.npy
npy make l.npy 1 -1 --dtype i4
foci run global --q q.npy --k q.npy --v q.npy --out o.npy --param global=l.npy
--- stderr
foci run: global: global[2] is 20: it may be 0 to 19
foci run: global: global[0] is -1: it may be 0 to 19
--- exit 2

=== dropout of everything, without a share, and in steps
npy make q.npy 20x8
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --dropout 1
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --dropout 1.5
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --dropout-seed 3
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --dropout 0.1 --causal --step
--- stderr
foci run: --dropout is '1'; it takes a number from 0 to less than 1
foci run: --dropout is '1.5'; it takes a number from 0 to less than 1
foci run: --dropout-seed needs --dropout P, the share to drop
foci run: --step and --dropout do not go together
--- exit 2

=== what cannot be causal, or needs to know more for it
npy make q.npy 20x8
for s in 'lsh(shared=1, chunk=4)' 'routing(clusters=2, pick=topk)' strided sparse_fixed 'routing'; do
    foci run "$s" --q q.npy --k q.npy --v q.npy --out o.npy --causal
done
npy make k.npy 30x8
foci run local --q q.npy --k k.npy --v k.npy --out o.npy
--- stderr
foci run: lsh(shared=1, chunk=4): column 1: lsh: *causal*
foci run: routing(clusters=2, pick=topk): column 1: routing: *causal*
foci run: strided: column 1: strided: a causal problem needs *
foci run: sparse_fixed: column 1: sparse_fixed: a causal problem needs *
foci run: routing: column 1: routing: *
foci run: local: column 1: local needs as many queries as keys: *
--- exit 2

=== statistics that are not frozen, of what is causal
npy make q.npy 3x4
foci run 'performer(kind=sderf)' --q q.npy --k q.npy --v q.npy --out o.npy --causal
--- stderr
foci run: performer that is causal needs statistics that are frozen: *run --calibrate*
--- exit 1

=== no statistics to calibrate
npy make q.npy 3x4
foci run softmax --q q.npy --k q.npy --v q.npy --out o.npy --calibrate
foci run performer --q q.npy --k q.npy --v q.npy --out o.npy --calibrate
--- stderr
foci run: --calibrate: softmax has no statistics of q and k
foci run: --calibrate: performer has no statistics of q and k
--- exit 2

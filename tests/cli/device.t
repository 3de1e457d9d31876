# --device, with a library that stands in for one: its device has 64 MiB and knows a softmax
# of floats.

=== a device in info
stand_in foci info --device cuda | grep device
stand_in foci info --device cuda --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["device"]["model"])'
--- stdout
device   cuda:0, stand-in, 8 processors, 67.1 MB
stand-in

=== a plan on a device
stand_in foci plan 'softmax rope' b1h2n70d16c --train --device cuda | grep -E 'plan|map|kernels'
--- stdout
plan h2n70d16c, f32, forward and backward, on cuda:0, stand-in
    map      rows of q and k, once
    kernels  stand-in forward, stand-in backward on cuda:0

=== what has no form on a device is refused by name
for spec in linear 'softmax shaw' lsh; do
    stand_in foci plan "$spec" b1h2n70d16 --device cuda 2>&1
done
--- stdout
foci plan: linear: column 1: linear on cuda:0: only exact attention has a form there
foci plan: softmax shaw: column 1: shaw has no form on cuda:0
foci plan: lsh: column 1: lsh on cuda:0: labels have no form there
--- exit 2

=== a run on a device is the run on the host
for t in q k v dout; do npy make $t.npy 2x4x70x16 wave:${#t}; done
foci run softmax --q q.npy --k k.npy --v v.npy --out a.npy --causal --quiet
stand_in foci run softmax --q q.npy --k k.npy --v v.npy --out b.npy --causal --quiet --device cuda
npy near a.npy b.npy 1e-6
--- stdout
...

=== benchmarks on a device
for pass in fwd bwd both step; do
    shape=n64; [ $pass != step ] || shape=n1m64
    stand_in foci bench softmax/h2${shape}d16c/f32/$pass --device cuda --reps 2 --time 0 --quiet | sed -n 2p
done
--- stdout
softmax/h2n64d16c/f32/fwd *
softmax/h2n64d16c/f32/bwd *
softmax/h2n64d16c/f32/both *
softmax/h2n1m64d16c/f32/step *

=== no driver
STAND_IN=driver stand_in foci info --device cuda
--- stderr
foci info: device cuda: no driver or no device: CUDA driver version is insufficient for CUDA runtime version
--- exit 1

=== no such device
stand_in foci info --device cuda:1 2>&1
stand_in foci info --device tpu 2>&1
--- stdout
foci info: device cuda:1: this machine has 1 device
foci info: device=tpu: no such device; there are cuda, cuda:0, cuda:1...
--- exit 1

=== no library
FOCI_CUDA_LIBRARY=/nowhere/lib.so foci info --device cuda 2>&1
--- stdout
foci info: device cuda: libfoci_cuda.so is not there: `make cuda` builds it where nvcc is; it lies beside this library, or $FOCI_CUDA_LIBRARY names it (/nowhere/lib.so: cannot open shared object file: No such file or directory)
--- exit 1

=== memory of a device that does not suffice
stand_in foci bench softmax/h2n640000d16/f32/fwd --device cuda --reps 1 --time 0 --quiet 2>&1
--- stdout
foci bench: softmax/h2n640000d16/f32/fwd: execution failed: cuda:0: no memory for 81920000 bytes: out of memory
--- exit 1

=== a device that fails, or is lost
STAND_IN=launch stand_in foci bench softmax/h2n64d16/f32/fwd --device cuda --reps 1 --time 0 --quiet 2>&1
STAND_IN=lost stand_in foci info --device cuda 2>&1
--- stdout
foci bench: softmax/h2n64d16/f32/fwd: execution failed: cuda:0: executing: unspecified launch failure
foci info: device cuda: CUDA-capable device(s) is/are busy or unavailable
--- exit 1

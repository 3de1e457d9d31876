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

=== comparison with a file that is not there
foci bench softmax/n64d16/f32/fwd --compare none.json --reps 1 --quiet
--- stderr
foci bench: none.json: *
--- exit 1

=== comparison with a file that is something else
echo '[1, 2]' > x.json
foci bench softmax/n64d16/f32/fwd --compare x.json --reps 1 --quiet
--- stderr
foci bench: x.json: *
--- exit 1

=== a step of decoding
foci bench softmax/b2h4k2n1m200d16/f32/step 'relu2 logn/n3m70d8/bf16/step' --reps 3 --time 0 --quiet
--- stdout
...
softmax/b2h4k2n1m200d16/f32/step *
relu2 logn/n3m70d8/bf16/step *
...

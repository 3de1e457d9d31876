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

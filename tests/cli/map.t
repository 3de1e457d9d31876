# foci map: heat maps of specs, and the numbers behind them.

=== numbers
foci map --pattern softmax h2n8d4c
--- stdout
heads   pairs  density  keys a query  weights of a pair  mechanism
0 to 1     36   56.2 %  1 to 8        0.125 to 1         softmax

=== numbers as JSON
foci map --pattern '1*softmax + 2*l2norm' h3n4m6d4c --json > m.json
python3 - <<'END'
import json
m = json.load(open("m.json"))
print(sorted(m))
print(m["spec"], m["problem"], m["data"], m["pairs"], round(m["density"], 6))
for p in m["maps"]:
    print(p["first_head"], p["heads"], p["mechanism"], p["pairs"], p["fewest_keys"],
          p["most_keys"], round(p["least_weight"], 6), round(p["largest_weight"], 6))
END
--- stdout
['data', 'density', 'maps', 'pairs', 'problem', 'spec']
1*softmax + 2*l2norm h3n4m6d4c alike 54 0.75
0 1 softmax 18 3 6 0.166667 0.333333
1 2 l2norm 18 3 6 0.408248 0.57735

=== SVG is well formed and says what it shows
for spec in softmax l2norm relu2 '1*softmax sink + relu2(n=2) cap(5)'; do
    for p in h2n5d4 h2n5d4c h2n5m9d4c h2n9m5d4c h2n1d4 h2n700d2c; do
        for how in --quiet --support; do
            foci map --pattern "$spec" $p $how --out m.svg > /dev/null || echo "$spec $p"
            python3 - "$spec" $p <<'END'
import sys
import xml.dom.minidom
svg = xml.dom.minidom.parse("m.svg").documentElement
assert svg.tagName == "svg"
text = " ".join(t.firstChild.data for t in svg.getElementsByTagName("text"))
for word in (*sys.argv[1:], "key", "query", "seen"):
    assert word in text, word
END
        done
    done
done

=== a few queries of many keys are no thin line, nor a few keys of many queries
for p in n1m500d4 n3m1000d4 n40m1024d4 n500m1d4 n1m9d4 n300m400d4; do
    foci map --pattern softmax $p --out m.svg > /dev/null
    echo $p $(grep -o 'scale([0-9 ]*)' m.svg | head -1) $(grep -o 'M0 0h[0-9]*v[0-9]*' m.svg | head -1)
done
--- stdout
n1m500d4 scale(1 24) M0 0h250v1
n3m1000d4 scale(1 16) M0 0h334v3
n40m1024d4 scale(1) M0 0h342v40
n500m1d4 scale(24 1) M0 0h1v250
n1m9d4 scale(24) M0 0h9v1
n300m400d4 scale(1) M0 0h400v300

=== PNG can be decoded
foci map --pattern '1*softmax + 1*relu2' h2n20d4 --out m.PNG > /dev/null
python3 - <<'END'
import struct
import zlib
data = open("m.PNG", "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n"
at, chunks = 8, []
while at < len(data):
    n, kind = struct.unpack(">I4s", data[at:at + 8])
    body = data[at + 8:at + 8 + n]
    assert struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0] == zlib.crc32(kind + body)
    chunks.append((kind, body))
    at += 12 + n
print([kind.decode() for kind, _ in chunks])
width, height, *kind = struct.unpack(">IIBBBBB", chunks[0][1])
rows = zlib.decompress(chunks[1][1])
row = 3 * width + 1
print(kind, len(rows) == row * height, set(rows[::row]))
colours = {rows[at:at + 3] for y in range(height) for at in range(y * row + 1, y * row + row, 3)}
print(b"\xff\xff\xff" in colours, 100 < len(colours) < 1000)
END
--- stdout
['IHDR', 'IDAT', 'IEND']
[8, 2, 0, 0, 0] True {0}
True True

=== the same each time
for i in 1 2; do foci map --pattern relu2 n9d4 --seed 5 --out $i.svg > /dev/null; done
cmp 1.svg 2.svg && foci map --pattern relu2 n9d4 --seed 6 --out 2.svg > /dev/null
cmp -s 1.svg 2.svg
--- exit 1

=== data is random where that matters, or as asked
foci map --pattern relu2 n9d4 --json | grep data
foci map --pattern softmax n9d4 --json | grep data
foci map --pattern relu2 n9d4 --data alike --json | grep 'data\|pairs'
foci map --pattern softmax n9d4 --data random --json | grep data
--- stdout
  "data": "random",
  "data": "alike",
  "data": "alike",
  "pairs": 81,
      "pairs": 81,
  "data": "random",

=== parameters
npy make s.npy 1 0
foci map --pattern 'softmax sink' n4d4 --param sink=s.npy --json | grep largest
npy make s.npy 1 10
foci map --pattern 'softmax sink' n4d4 --param sink=s.npy --json | grep largest
--- stdout
      "largest_weight": 0.2*
      "largest_weight": 0.000*

=== labels follow the spec as written, and as meant
foci map --pattern '2*softmax  +relu2( n = 3 ) cap' h3n4d4 --data alike
foci map --pattern '8L' h8n4d4
--- stdout
heads *mechanism
0 to 1 *softmax
2 *relu2( n = 3 ) cap
heads *mechanism
0 to 7 *8L

=== without --pattern
foci map n4d4
--- stderr
foci map: what to draw is missing; usage: foci map --pattern SPEC PROBLEM, foci map SPEC --q FILE --k FILE, foci map --weights FILE, or foci map DIR --text FILE
--- exit 2

=== without a problem
foci map --pattern softmax
--- stderr
foci map: needs an argument; usage: foci map --pattern SPEC PROBLEM
--- exit 2

=== a name that is no picture
foci map --pattern softmax n4d4 --out m.pdf
--- stderr
foci map: --out is 'm.pdf'; it takes a name that ends in .svg or .png
--- exit 2

=== too long
foci map --pattern softmax n4096d4 --out m.svg
--- stderr
foci map: n4096d4 has 4096 queries and 4096 keys; a map takes 1 to 1024 of each
--- exit 2

=== nothing to show
foci map --pattern softmax n0d4
--- stderr
foci map: problem "n0d4", column 1: n0: n, the query length, goes from 1 to 68719476736
--- exit 2

=== too many heads
foci map --pattern softmax h64n1024d4
foci map --pattern softmax h65n2d4
--- stderr
foci map: h64n1024d4 has 64 heads of 1024 x 1024 pairs; a map takes up to 64 heads and 16777216 pairs in all
foci map: h65n2d4 has 65 heads of 2 x 2 pairs; a map takes up to 64 heads and 16777216 pairs in all
--- exit 2

=== a batch
foci map --pattern softmax b2n4d4
--- stderr
foci map: b2n4d4 has a batch of 2; a map shows one sequence, b1
--- exit 2

=== mistakes in the spec and the problem
foci map --pattern sofmax n4d4
foci map --pattern softmax n4
--- stderr
foci map: sofmax: column 1: unknown mechanism "sofmax"; the nearest is "softmax"
foci map: problem "n4", column *
--- exit 2

=== parameters that are not there
npy make s.npy 1
foci map --pattern softmax n4d4 --param sink=s.npy
--- stderr
foci map: --param sink: softmax has no tensors
--- exit 2

=== a .png, read by the rules of the format
foci map --pattern 'local(window=1)' n4d4 --out m.png >table
png m.png 0,0
foci map --pattern softmax n1024d4 --out big.png >table
png big.png 0,0
--- stdout
960 x 492, * colours ffffff
960 x 984, * colours ffffff

=== a place where no file can be
foci map --pattern softmax n4d4 --out no/such/m.svg
foci map --pattern softmax n4d4 --out no/such/m.png
--- stderr
foci map: no/such/m.svg: cannot be made: *
foci map: no/such/m.png: cannot be made: *
--- exit 1

=== a full disk
ln -s /dev/full f.png
foci map --pattern softmax n4d4 --out f.png
--- stderr
foci map: f.png: cannot be written: No space left on device
--- exit 1

=== lists that planning needs
npy make l.npy 2x2 1,0,1,1 --dtype i4
npy make t.npy 1 3
foci map --pattern 'block(block=2)' n4d4 --param layout=l.npy
foci map --pattern '1*global(window=0) + 1*block(block=3)' h2n6d4 --param 0.global=t.npy --param 1.layout=l.npy
--- stdout
heads *
0 *12 * 75 % *
heads *
0 *16 *2 to 6 *
1 *27 *3 to 6 *

=== lists that are missing or not asked for
npy make l.npy 2x2 1,0,1,1
foci map --pattern block n4d4
foci map --pattern softmax n4d4 --param layout=l.npy
foci plan softmax n4d4 --param layout=l.npy
--- stderr
foci map: block*layout*
foci map: *layout*
foci plan: *layout*
--- exit 2

=== keys chosen by their content are drawn on random data
foci map --pattern 'lsh(buckets=4)' n16d8 --json | grep '"data"'
foci map --pattern 'routing(clusters=4)' n16d8 --json | grep '"data"'
foci map --pattern '1*local(window=2) + 1*strided(3)' h2n16d8c --json | grep '"data"'
--- stdout
  "data": "random",
  "data": "random",
  "data": "alike",

=== features: weights of either sign, of rows that were turned, and of frozen statistics
for s in linear cosformer efficient identity retention 'linear rope' 'performer(kind=trig)' 'performer(kind=sderf)'; do
    foci map --pattern "$s" n8d4 --data random --out "$s.svg" | sed -n 2p
done
foci map --pattern 'performer(kind=aderf)' n8d4c --json | grep 'below_zero\|"pairs"' | sort
grep -l 'below 0' *.svg
--- stdout
0 * 100 % * linear
0 * cosformer
0 * 100 % * efficient
0 * +-* identity
0 * +-* retention
0 * linear rope
0 * performer(kind=trig)
0 * 100 % * performer(kind=sderf)
      "below_zero": 0,
      "below_zero": 0,
      "pairs": 36,
      "pairs": 36,
  "pairs": 36,
identity.svg
...
retention.svg

=== weights of mechanisms that form none
foci map --pattern fixed h7n8d4
foci map --pattern '1*lightconv(width=3) + 1*dynconv(width=3)' h2n8d4
foci map --pattern 'memformer' n8d4
foci map --pattern 'lightconv(heads=2)' n8d4
--- stdout
heads  pairs  density  keys a query  weights of a pair  mechanism
0          8   12.5 %  1 to 1        1 to 1             fixed: current
1          7   10.9 %  0 to 1        1 to 1             fixed: previous
2          7   10.9 %  0 to 1        1 to 1             fixed: next
3         21   32.8 %  0 to 6        0.00227 to 1       fixed: left
4         21   32.8 %  0 to 6        0.00227 to 1       fixed: right
5         64    100 %  8 to 8        0.000772 to 0.395  fixed: end
6         64    100 %  8 to 8        0.000772 to 0.395  fixed: start
heads  pairs  density  keys a query  weights of a pair  mechanism
0         22   34.4 %  2 to 3        0.333 to 0.333     lightconv(width=3)
1         22   34.4 %  2 to 3        0.* to 0.* dynconv(width=3)
--- stderr
foci map: memformer: there are no weights to draw: its output is not one matrix times the values
foci map: lightconv(heads=2): there are no weights to draw: its output is not one matrix times the values
--- exit 1

=== weights below 0 have a colour and a scale of their own
npy make e.npy 1x4 1,-1,1,-1
foci map --pattern 'linformer(rank=1)' n4d4 --param E=e.npy --json --out m.svg | grep 'below_zero\|_weight'
grep -c 'below 0' m.svg
foci map --pattern 'linformer(rank=1)' n4d4 --param E=e.npy --support --out m.svg > /dev/null
grep -c 'below 0' m.svg
foci map --pattern softmax n4d4 --json --out m.svg | grep below_zero
grep -c 'below 0' m.svg
--- stdout
      "below_zero": 8,
      "least_weight": 1.0,
      "largest_weight": 1.0,
1
0
      "below_zero": 0,
0
--- exit 1

=== patterns of words
npy make w.npy 5 0,0,1,2,2 --dtype i4
foci map --pattern 'fixed(pattern=previous, words=1)' n5d4 --param words=w.npy
--- stdout
heads  pairs  density  keys a query  weights of a pair  mechanism
0          4     16 %  0 to 2        0.5 to 1           fixed(pattern=previous, words=1)

=== words that are missing, too few, or none of a sentence
npy make w.npy 4 0,0,1,2 --dtype i4
npy make s.npy 5 0,0,2,2,2 --dtype i4
foci map --pattern 'fixed(words=1)' n5d4
foci map --pattern 'fixed(words=1)' n5d4 --param words=w.npy
foci map --pattern 'fixed(words=1)' n5d4 --param words=s.npy
--- stderr
foci map: --param words=FILE is missing, and fixed(words=1) reads words
foci map: --param words=w.npy: its shape is 4; a word for each token is needed: 5*
foci map: fixed(words=1): words: token 2 *
--- exit 1

=== the word beside the numbers of queries keeps clear of them, and of the subtitle
for problem in n16d4 n300d4 n1m64d4; do
    foci map --pattern softmax $problem --out $problem.svg > table
    python3 - $problem.svg <<'END'
import re, sys
text = open(sys.argv[1]).read()
x, y = map(float, re.search(r"rotate\(-90 (\S+) (\S+)\)'>query<", text).groups())
ends = [(float(a), n) for a, n in re.findall(r"<text x='(\S+)' .*text-anchor='end'.*>(\d+)</text>", text)]
subtitle = float(re.search(r"<text x='24' y='(51)'", text).group(1))
print(x + 3 < min(a - 6.5 * len(n) for a, n in ends if a < 64), y - 15 > subtitle)
END
done
--- stdout
True True
True True
True True

# foci map on trained models: heads on a text, with its tokens.

=== heads, layers, tokens and weights of a language model
printf 'to be or not to be, that is the question\n%.0s' 1 2 3 4 5 6 7 8 > t.txt
T="--data t.txt --tokenizer bytes --steps 2 --dim 16 --layers 2 --heads 4 --ffn 0 --context 16 --batch 2 --threads 1 --quiet"
foci train lm $T --attention '2*softmax + 1*fixed(previous) + 1*linear' --out m > /dev/null
foci map m --prompt 'to be' --head 1-2
foci map m --prompt 'to be' --layer 1 --json --out m.svg > m.json
python3 - <<'END_OF_PYTHON'
import json
import xml.dom.minidom
m = json.load(open("m.json"))
print(m["model"], m["tokens"], [(p["attention"], p["layer"], p["first_head"], p["mechanism"]) for p in m["maps"]])
print([abs(sum(row) - 1) < 1e-5 for row in m["maps"][0]["weights"]],
      all(m["maps"][0]["weights"][i][j] == 0 for i in range(5) for j in range(i + 1, 5)),
      m["maps"][2]["weights"][3])
texts = [t.firstChild.data for t in xml.dom.minidom.parse("m.svg").getElementsByTagName("text")]
print([texts.count(t) for t in ("t", "␣", "block 1, head 2: fixed: previous", "5 tokens; 49 % of pairs seen")])
END_OF_PYTHON
foci map m --text t.txt --tokens 3 --layer 0 --head 2
foci map m --text t.txt --layer 'block 0' --head 2 --out m.svg
grep -o 'the first 16 of [0-9]* tokens' m.svg | head -1
foci map m --text - --layer 0 --head 2 < /dev/null
--- stdout
attention *
0: block 0  1 * softmax
0: block 0  2 * fixed: previous
1: block 1  1 * softmax
1: block 1  2 * fixed: previous
m ['t', 'o', '␣', 'b', 'e'] [('block 1', 1, 0, 'softmax'), ('block 1', 1, 1, 'softmax'), ('block 1', 1, 2, 'fixed: previous'), ('block 1', 1, 3, 'linear')]
[True, True, True, True, True] True [0.0, 0.0, 1.0, 0.0, 0.0]
[8, 8, 1, 1]
attention *
0: block 0  2          2 *
attention *
0: block 0  2         15 *
the first 16 of 327 tokens
--- stderr
foci map: the text has 327 tokens, of which the first 3 are read: --tokens takes up to 1024, and the model up to 16
foci map: the text has 327 tokens, of which the first 16 are read: that is all that the model takes, its context
foci map: --text -: it is empty
--- exit 1

=== tokens for which there is no room, and cells that are means
printf 'to be or not to be, that is the question\n%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 > t.txt
foci train lm --data t.txt --tokenizer bytes --steps 1 --dim 8 --layers 1 --heads 2 --ffn 0 --context 700 --batch 1 --threads 1 --quiet --out m > /dev/null 2>&1
for n in 40 64 700; do
    foci map m --text t.txt --tokens $n --out m.svg > /dev/null 2>&1
    grep -o 'pairs seen[^<]*' m.svg
done
--- stdout
pairs seen
pairs seen; one token of 2 is named
pairs seen; each cell the mean of 2 x 2; one token of 22 is named

=== tokens of any origin are shown, and nothing else
printf 'a "<b>" & %s\n' \'x\' > t.txt
printf '<script>alert(1)</script>\n\033[31m \342\200\256\327\251\327\234\327\225\327\235 \344\270\255 \360\237\230\200\n' >> t.txt
foci train lm --data t.txt --tokenizer chars --steps 1 --dim 8 --layers 1 --heads 1 --ffn 0 --context 64 --batch 1 --threads 1 --quiet --out '<i>&"m' > /dev/null 2>&1
foci map '<i>&"m' --text t.txt --out m.svg > /dev/null
foci map '<i>&"m' --text t.txt --out m.png > /dev/null
png m.png 0,0 | grep -c ffffff
python3 - <<'END_OF_PYTHON'
import xml.dom.minidom
source = open("m.svg", encoding="utf-8").read()
svg = xml.dom.minidom.parseString(source.encode())
texts = [t.firstChild.data for t in svg.getElementsByTagName("text")]
print(sorted({e.tagName for e in svg.getElementsByTagName("*")}), texts[0])
print([t in texts for t in ("<", ">", '"', "&", "'", "\\n", "\\x1b", "\\u{202e}", "ש", "中", "😀", "␣")])
print([c for c in source if c != "\n" and (ord(c) < 32 or 0x202a <= ord(c) <= 0x202e)])
END_OF_PYTHON
--- stdout
1
['g', 'path', 'rect', 'svg', 'text', 'title'] <i>&"m
[True, True, True, True, True, True, True, True, True, True, True, True]
[]

=== a translator, with a target and with its own
for i in 1 2 3 4 5 6 7 8; do printf 'ein haus %d\ta house %d\n' $i $i; done > p.tsv
foci train translate --data p.tsv --tokenizer words --steps 2 --dim 8 --heads 1 --layers 1 --context 12 --threads 1 --out m --quiet > /dev/null 2>&1
foci map m --text p.tsv --json > m.json
python3 - <<'END_OF_PYTHON'
import json
m = json.load(open("m.json"))
print(m["source_tokens"], m["tokens"])
for p in m["maps"]:
    print(p["attention"], p["queries"], p["keys"], len(p["weights"]), len(p["weights"][0]))
END_OF_PYTHON
foci map m --prompt 'ein haus 3' --layer cross --out m.svg > /dev/null
grep -o '4 tokens of the source, [a-z0-9 ]* tokens*;' m.svg | head -1
--- stdout
['ein', 'haus', '1', '<eos>'] ['<bos>', 'a', 'house', '1']
encoder block 0 source_tokens source_tokens 4 4
decoder block 0 tokens tokens 4 4
decoder block 0 cross tokens source_tokens 4 4
4 tokens of the source, * token*;

=== a model of a generator reads its examples
T="--preset none --steps 1 --dim 8 --layers 1 --heads 2 --ffn 0 --batch 2 --threads 1 --quiet"
foci train --task 'copy(form=row, symbols=4, least=3, longest=3, test=3)' $T --out g > /dev/null
foci map g --example 2 --json --head 0 --out m.svg > m.json
foci map g --example 2 --tokens 4 --head 0
foci map g --example 0 --task 'copy(form=row, symbols=4, least=2, longest=3, test=2)' --head 0 --quiet
grep -o 'test example 2, [0-9]* tokens' m.svg | head -1
foci task 'copy(form=row, symbols=4, least=3, longest=3, test=3)' --split test --count 3 --json > t.json
python3 - <<'END_OF_PYTHON'
import json
m = json.load(open("m.json"))
print(len(m["tokens"]) == len(m["maps"][0]["weights"]), " ".join(m["tokens"]) in open("t.json").read())
END_OF_PYTHON
--- stdout
attention *
0: block 0  0         10 *
attention *
0: block 0  0 *
test example 2, * tokens
True True
--- stderr
foci map: the example has * tokens, of which the first 4 are read

=== attentions without weights, and padding
printf 'to be or not to be\n%.0s' 1 2 3 4 > t.txt
T="--data t.txt --tokenizer bytes --steps 1 --dim 8 --layers 1 --heads 2 --ffn 0 --context 16 --batch 2 --threads 1 --quiet"
foci train lm $T --attention 'routed(routes=2)' --out r > /dev/null
foci map r --prompt abc
foci train lm $T --attention 'synthesizer' --out s > /dev/null
foci map s --prompt abcd --head 1
foci train lm $T --attention 'xl(memory=4)' --out x > /dev/null
foci map x --prompt abc --head 0 --out x.svg --json | grep '"memory"'
--- stdout
attention *
0: block 0  1         10   62.5 %  1 to 4 * synthesizer
      "memory": 4,
--- stderr
foci map: block 0 has no weights: *
foci map: r: there are no weights to draw

=== mistakes
printf 'to be or not to be\n%.0s' 1 2 3 4 > t.txt
T="--steps 1 --dim 8 --layers 1 --heads 2 --ffn 0 --context 16 --batch 2 --threads 1 --quiet"
foci train lm --data t.txt --tokenizer bytes $T --out m > /dev/null
foci train --task 'copy(form=row, symbols=4, longest=4, test=4)' --preset none $T --out g > /dev/null 2>&1
mkdir empty
foci map m
foci map m --layer 0
foci map m --text t.txt --prompt a
foci map m --text nosuch.txt
foci map empty --prompt a
foci map nosuch --prompt a
foci map g --prompt a
foci map m --example 0
echo '{}' > g/train.json
foci map g --example 0
foci map m --prompt a --layer 1
foci map m --prompt a --layer cross
foci map m --prompt a --layer 0,
foci map m --prompt a --head 2
foci map m --prompt a --pattern softmax
--- stderr
foci map: what to draw is missing; usage: *
foci map: a model reads a text: give --text FILE or --prompt TEXT
foci map: --text and --prompt exclude each other
foci map: nosuch.txt: cannot be opened: *
foci map: empty/config.json: cannot be opened: *
foci map: nosuch/config.json: cannot be opened: *
foci map: g has no tokenizer, so it reads no text: it was trained on a generator; give --example N
foci map: m reads text: give --text FILE or --prompt TEXT
foci map: g has no tokenizer, and its train.json names no generator: give --task TEXT
foci map: --layer is '1'; there is one, 0
foci map: --layer is 'cross'; m has 0: block 0
foci map: --layer is '0,'; it takes numbers, as 0,2-5
foci map: --head is '2'; they are numbered from 0 to 1
foci map: --prompt and --pattern do not go together; usage: foci map --pattern SPEC PROBLEM
--- exit 2

# foci tokenizer: train, show, encode, decode.

=== train and show
printf 'abc abc abd\n' >t.txt
foci tokenizer train bpe:261 --data t.txt --out d
foci tokenizer show d/tokenizer.json --tokens | tail -2
--- stdout
kind         bpe
tokens       261
merges       1
pad          0  <pad>
bos          1  <bos>
eos          2  <eos>
mask         3  <mask>
added        4
longest      6 bytes
fingerprint  *
    259  �
    260  ab

=== train as JSON, on gz and plain text
printf 'a b b c c c\n' | gzip >one.gz
printf 'c b\n' >two
foci tokenizer train words:7 --data one.gz --data two --out w.json --json
foci tokenizer encode w.json --text 'c x  b' --tokens --words
--- stdout
{
  "kind": "words",
  "tokens": 7,
  "merges": 0,
  "added": 5,
  "longest": 6,
  "special": {
    "pad": 0,
    "bos": 1,
    "eos": 2,
    "unk": 3,
    "mask": 4
  },
  "fingerprint": "*"
}
5[c]@0 3[<unk>]@1 6[b]@2

=== from standard input
printf 'ab\nba' | foci tokenizer train chars --data - --out c.json >/dev/null
printf 'ab\n\nba' | foci tokenizer encode c.json
printf 'ab\n\nba' | gzip | foci tokenizer encode c.json | foci tokenizer decode c.json
--- stdout
6 7

7 6
ab

ba

=== bytes need no text
foci tokenizer train bytes --out b.json >/dev/null
foci tokenizer encode b.json --text 'a<eos>' --text 'é'
foci tokenizer encode b.json --text '<eos>' --plain
foci tokenizer encode b.json --text 'a é' --json
foci tokenizer decode b.json --ids '101 2 103' --ids 199
foci tokenizer decode b.json --ids '101 2 103' --special
foci tokenizer decode b.json --ids '199 101' --json
--- stdout
101 2
199 173
64 105 115 119 66
{
  "lines": [
    {
      "ids": [
        101,
        36,
        199,
        173
      ],
      "tokens": [
        "a",
        " ",
        "�",
        "�"
      ],
      "words": [
        0,
        1,
        1,
        1
      ]
    }
  ]
}
ac
�
a<eos>c
{
  "lines": [
    "�a"
  ]
}

=== control characters are shown
foci tokenizer train bytes --out b.json >/dev/null
foci tokenizer show b.json --tokens | sed -n '/^ *4 /p;/^ *14 /p'
--- stdout
      4  \x00
     14  \x0a

=== no kind
foci tokenizer train bpe --data x --out y
--- stderr
foci tokenizer: 'bpe' is no kind of tokenizer; accepted are bytes, chars, words, bpe:N with N from 260 to 10000000, chars:N and words:N with N from 6
--- exit 2

=== no action
foci tokenizer trian bytes
--- stderr
foci tokenizer: no action 'trian' (did you mean 'train'?); accepted are train, show, encode, decode
--- exit 2

=== no file to write
foci tokenizer train bytes
--- stderr
foci tokenizer: train needs --out, a .json file or a directory
--- exit 2

=== no text
foci tokenizer train words --out x
--- stderr
foci tokenizer: train words needs --data, a text
--- exit 2

=== an option of another action
foci tokenizer show x --text y
--- stderr
foci tokenizer: --text is not for show
--- exit 2

=== texts and files
foci tokenizer train bytes --out b.json >/dev/null
foci tokenizer encode b.json --text y --data z
--- stderr
foci tokenizer: --text and --data exclude each other
--- exit 2

=== no such text
foci tokenizer train words --data none --out x
--- stderr
foci tokenizer: none: cannot be read: No such file or directory
--- exit 1

=== a directory as text
foci tokenizer train words --data . --out x
--- stderr
foci tokenizer: .: cannot be read: Is a directory
--- exit 1

=== gz that is cut short
seq 100000 | gzip | head -c 5000 >s.gz
foci tokenizer train words --data s.gz --out x
foci tokenizer train bytes --out b.json >/dev/null
foci tokenizer encode b.json --data s.gz >/dev/null
ls
--- stdout
b.json
s.gz
--- stderr
foci tokenizer: s.gz: cannot be read: its gz data is cut short
foci tokenizer: s.gz: cannot be read: its gz data is cut short
--- exit 0

=== gz that is damaged
seq 100000 | gzip | sed 's/[a-m]/x/g' >s.gz
foci tokenizer train words --data s.gz --out x
--- stderr
foci tokenizer: s.gz: cannot be read: *
--- exit 1

=== no tokenizer
foci tokenizer show none
--- stderr
foci tokenizer: none: cannot be read: No such file or directory
--- exit 1

=== not a tokenizer
echo '{"model": 1}' >x.json
foci tokenizer show x.json
--- stderr
foci tokenizer: x.json: has no model with a vocabulary; a tokenizer.json is needed
--- exit 1

=== no ids
foci tokenizer train bytes --out b.json >/dev/null
foci tokenizer decode b.json --ids '7 x 8'
--- stderr
foci tokenizer: line 1: what stands at 'x 8' is no id; ids are whole numbers from 0, separated by blanks
--- exit 1

=== an id too many
foci tokenizer train bytes --out b.json >/dev/null
printf '7\n260\n' | foci tokenizer decode b.json
--- stdout
*
--- stderr
foci tokenizer: line 2: id 0 is 260; this tokenizer has ids from 0 to 259
--- exit 1

=== nowhere to write
foci tokenizer train bytes --out none/b.json
--- stderr
foci tokenizer: none/b.json: cannot be made: No such file or directory
--- exit 1

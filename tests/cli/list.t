# foci list: what there is.

=== all
foci list
--- stdout
mechanism * causal  step  cross  backward  reads  *
softmax * yes * yes * yes * yes * q k v *
...
modifier  summary
...
sink * learned logit *
...
alias * meaning
...

=== a mechanism
foci list relu2
--- stdout
relu2, a mechanism: *

  formula * max(x_ij, 0)^2 / n
  source *
  cost *
  engine    exact
  reads     q k v
  sees      all keys
  causal    yes
  step      yes
  cross     yes
  backward  yes

  argument * default  accepted * help
  n * 0  0 to 2147483647, whole  *

=== a mechanism with a list
foci list block | sed '1,/reads/d'
--- stdout
  sees      keys by their position
  causal    yes
  step      yes
  cross     no: rows and columns of the layout are blocks of one sequence
  backward  yes

  argument * default  accepted * help
  block * 64  1 to 2147483647, whole  tokens of a block

  list    help
  layout  *

=== what is read with other arguments
for name in synthesizer fixed softmax; do foci list $name | grep reads; done
foci list synthesizer --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["may_read"])'
--- stdout
  reads     v; by its arguments also q k x
  reads     v; by its arguments also words
  reads     q k v
['q', 'k', 'x']

=== a mechanism around another, which reads hidden states
foci list routed | sed '1,/source/d'
--- stdout
  cost * the inner mechanism times routes
  engine    routed
  reads     q k v x
  sees      what the inner mechanism sees
  causal    yes
  step *
  cross     yes
  backward  yes

  argument  default  accepted * help
  inner     softmax  a mechanism and its modifiers  *
  routes          2  1 to 64, whole * sets of keys and values of a head
  top             0  0 to 64, whole * gates kept for a token; 0: all

  tensor  of a head  kept     help
  Wr      2 axes     trained  *

=== an argument whose default is a word
foci list performer | grep '^  a  '
foci list performer --json | grep '"default": "'
--- stdout
  a * auto  -1000000 to 0.12 *
* "auto",

=== what is seen
for m in local lsh pooled strided; do foci list $m | grep '^  sees'; done
--- stdout
  sees      keys by their position
  sees      keys with its label
  sees      keys by their position, slots that stand for others
  sees      keys by their position, keys with its label

=== a modifier
foci list sink
--- stdout
sink, a modifier: *

  formula *
  source *

  tensor  of a head  kept     help
  sink    a number   trained  *

=== modifiers of layers
foci list frozen | sed '1,/source/d'
foci list init | tail -2
--- stdout

  argument * default  accepted * help
  kind * orthogonal  orthogonal|gaussian|hadamard  *
  sample * perhead  perhead|block * *
  tie * 0  0 to 1, whole  *
  shared * 0  0 to 1, whole  *
  argument * default  accepted * help
  kind * orthogonal  orthogonal|gaussian  *

=== an alias
foci list 8L
--- stdout
8L, an alias: 8*softmax

=== aliases
foci list | sed -n '/^alias/,$p'
--- stdout
alias        meaning
orthogonal   softmax frozen(orthogonal)
7F+1L        7*fixed + 1*softmax
7F_token+1L  7*fixed + 1*softmax
7F_word+1L   7*fixed(words=1) + 1*softmax
8L           8*softmax
1L           1*softmax

=== JSON of all is JSON, and names the same mechanisms
foci list --json > all.json
python3 - <<'END'
import json
all = json.load(open("all.json"))
assert set(all) == {"mechanisms", "modifiers", "aliases"}, set(all)
for m in all["mechanisms"]:
    assert m["kind"] == "mechanism" and m["summary"] and m["formula"] and m["source"]
    assert m["causal"] is True or isinstance(m["causal"], str)
    assert m["step"] is True or isinstance(m["step"], str)
    assert set(m["reads"]) <= {"q", "k", "v", "x", "words"}
    assert m["sees"] and m["engine"]
    for l in m["lists"]:
        assert l["name"] and l["help"]
    for a in m["arguments"]:
        word = isinstance(a["default"], str)
        assert a["help"] and (word or a["min"] <= a["default"] <= a["max"]), a
print([l["name"] for m in all["mechanisms"] for l in m["lists"]])
print(" ".join(m["name"] for m in all["mechanisms"][:3]))
print(" ".join(m["name"] for m in all["modifiers"][:6]))
END
--- stdout
['layout', 'global']
softmax l2norm relu2
scale cap sink logn qknorm temper

=== JSON of one
foci list temper --json | python3 -c '
import json, sys
m = json.load(sys.stdin)
print(m["kind"], m["name"], m["tensors"][0]["name"], m["tensors"][0]["keep"])'
foci list 1L --json | tr -d ' \n'; echo
--- stdout
modifier temper temper trained
{"kind":"alias","name":"1L","meaning":"1*softmax"}

=== every listed mechanism can be planned, with an empty layout where it needs one
npy make l.npy 1 0
foci list --json | python3 -c '
import json, sys
for m in json.load(sys.stdin)["mechanisms"]:
    print(m["name"], " ".join("--param %s=l.npy" % l["name"] for l in m["lists"]))' | while read name param; do
    foci plan "$name" n64d16 $param > /dev/null || echo "$name"
done

=== unknown name
foci list softmux
--- stderr
foci list: no mechanism, modifier or alias 'softmux'; the nearest is "softmax"; see foci list
--- exit 2

=== two names
foci list softmax relu2
--- stderr
foci list: unexpected 'relu2'; usage: foci list [NAME] (texts with blanks need quotes)
--- exit 2

=== an argument without default
foci list scale | tail -2
--- stdout
  argument * default  accepted * help
  s * required  -1e+30 to 1e+30  factor of q.k

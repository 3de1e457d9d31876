# The command itself: verbs, help, options, streams.

=== no verb is a usage error with help
foci
--- stderr
foci: efficient attention
...
Verbs
...
--- exit 2

=== help
foci --help
--- stdout
foci: efficient attention

Examples
  foci list
...
Verbs
  list * mechanisms, *
  info *
  plan *
  run *
  bench *
  train *
  eval *
  generate *
  translate *
  compare *
  report *
  task *
  map *
  analyse *
  tokenizer *

A SPEC says what to compute: *
...
plan.

=== the text that help gives as a spec is one
foci --help | tr '\n' ' ' | sed "s/.*as in '\([^']*\)'.* as in \([^:]*\):.*/\1\n\2/" > texts
foci plan "$(head -1 texts)" "$(tail -1 texts)" | sed -n '1,2p'
--- stdout
plan h8n4096d64c, *
  heads 0 to 3: 4*local(window=128, dilation=1) rope*

=== -h
foci -h | head -1
--- stdout
foci: efficient attention

=== help without a verb
foci help | head -1
--- stdout
foci: efficient attention

=== version
foci --version
--- stdout
foci *.*.*

=== help of every verb shows examples first
for verb in list info plan run bench map analyse tokenizer; do
    foci $verb --help > a || echo "$verb failed"
    foci help $verb | cmp - a
    foci $verb -h | cmp - a
    sed -n '1p;3,4p' a
done
--- stdout
foci list: *
Examples
  foci list
foci info: *
Examples
  foci info
foci plan: *
Examples
  foci plan *
foci run: *
Examples
  foci run *
foci bench: *
Examples
  foci bench*
foci map: *
Examples
  foci map *
foci analyse: *
Examples
  foci analyse *
foci tokenizer: *
Examples
  foci tokenizer *

=== help wins over mistakes
foci plan --no-such-option --help | head -1
--- stdout
foci plan: *

=== every option of a verb is in its help
foci run --help > help
for o in q k v out causal dtype precision seed threads param dump-params weights dout \
         grads ref mask bias len-q len-k docs json quiet help; do
    grep -q -e "^  --$o " help || echo "$o"
done

=== help of an unknown verb
foci help plam
--- stderr
foci: no verb 'plam' (did you mean 'plan'?); see foci --help
--- exit 2

=== help takes one verb
foci help plan run
--- stderr
foci: help takes one verb; seen 'run' too
--- exit 2

=== unknown verb with a near one
foci lsit
--- stderr
foci: no verb 'lsit' (did you mean 'list'?); see foci --help
--- exit 2

=== unknown verb with none near
foci frobnicate
--- stderr
foci: no verb 'frobnicate'; see foci --help
--- exit 2

=== option before a verb
foci --json list
--- stderr
foci: no option '--json' before a verb; there are --help, --version, --man and --completion
--- exit 2

=== man page of the command
foci --man | sed -n '1p; /^.BR foci.-plan/p; /^A SPEC/p'
--- stdout
.TH FOCI 1 "" "foci *" "User Commands"
.BR foci\-plan (1)
A SPEC says what to compute: *

=== man page of a verb
foci --man plan | grep -A 1 '^.TH\|dtype'
--- stdout
.TH FOCI\-PLAN 1 "" "foci *" "User Commands"
.SH NAME
...
\fB\-\-dtype\fR \fITYPE\fR
type of the tensors: *
...

=== man page of no verb
foci --man plant
--- stderr
foci: no verb 'plant' (did you mean 'plan'?); see foci --help
--- exit 2

=== man pages of two verbs
foci --man plan run
--- stderr
foci: --man takes one verb; seen 'run' too
--- exit 2

=== completion
for shell in bash zsh; do foci --completion $shell | grep -c 'f32 bf16 f16'; done
--- stdout
1
1

=== completion of specs that are values of options
foci --completion bash | grep -c "'map --pattern') words='softmax "
foci --completion zsh | grep -c "'--pattern=.*:SPEC:(softmax "
foci --completion zsh | sed -n '/^    map)/,/;;/p' | grep "'1:"
foci --completion bash | grep -c "'analyse --estimator') words='softmax "
--- stdout
1
1
            '1::SPEC|DIR|PROBLEM:(softmax *
1

=== completion of words that a usage lists
foci --completion bash | sed -n '/^ *tokenizer)/,/;;/p' | grep -c "names='train show encode decode'"
foci --completion zsh | sed -n '/^    tokenizer)/,/;;/p' | grep "'[12]:"
--- stdout
1
            '1:train|show|encode|decode:(train show encode decode)' \
            '2:KIND|FILE: ' \

=== completion for no shell
foci --completion
--- stderr
foci: --completion takes bash or zsh
--- exit 2

=== completion for another shell
foci --completion fish
--- stderr
foci: --completion takes bash or zsh; seen 'fish'
--- exit 2

=== unknown option with a near one
foci run softmax --casual
--- stderr
foci run: no option '--casual' (did you mean '--causal'?); see foci run --help
--- exit 2

=== an option of another verb
foci plan softmax n8d8 --causal
--- stderr
foci plan: no option '--causal' (foci run has one); see foci plan --help
--- exit 2

=== capitals are no mistake that hides what was meant
for name in SOFTMAX Rope ORTHOGONAL; do foci list $name 2>&1; done
foci plan 'SoftMax ROPE' n8d8 2>&1
foci LIST 2>&1
foci list --JSON 2>&1
--- stdout
foci list: no mechanism, modifier or alias 'SOFTMAX'; the nearest is "softmax"; see foci list
foci list: no mechanism, modifier or alias 'Rope'; the nearest is "rope"; see foci list
foci list: no mechanism, modifier or alias 'ORTHOGONAL'; the nearest is "orthogonal"; see foci list
foci plan: SoftMax ROPE: column 1: unknown mechanism "SoftMax"; the nearest is "softmax"
foci: no verb 'LIST' (did you mean 'list'?); see foci --help
foci list: no option '--JSON' (did you mean '--json'?); see foci list --help
--- exit 2

=== a common flag with a value
foci list --json=yes
--- stderr
foci list: --json takes no value; seen 'yes'
--- exit 2

=== whatever was typed, an error is one line that can be read
for spec in '' '  ' "$(printf 'soft\nmax')" 'softmax，rope' 'softmax r\303\266pe'; do
    foci plan "$spec" n8d8 2>&1 | tr '\n' '$'; echo
done
foci plan "$(printf '%100000s' | tr ' ' a)" n8d8 2>&1 | sed 's/a\{80,\}/A/'
foci plan "$(printf 'softmax%70000s' '')" n8d8 2>&1 | sed 's/ \{80,\}/ /'
foci info --threads "$(printf '2\n3')"
--- stdout
foci plan: '': column 1: a mechanism is wanted here, softmax for instance$
foci plan: '  ': column 3: a mechanism is wanted here, softmax for instance$
foci plan: soft?max: *$
foci plan: softmax，rope: column 8: "，rope" is not expected; *$
foci plan: softmax r\303\266pe: *$
foci plan: A...: *
foci plan: softmax ...: *
--- stderr
foci info: --threads is '2?3'; it takes *
--- exit 2

=== unknown option with none near
foci run softmax --zzz=1
--- stderr
foci run: no option '--zzz'; see foci run --help
--- exit 2

=== one dash
foci plan softmax n8d8 -v
--- stderr
foci plan: no option '-v'; options begin with two dashes
--- exit 2

=== value is missing at the end
foci run softmax --q
--- stderr
foci run: --q needs FILE
--- exit 2

=== value is missing before the next option
foci run softmax --q --k k.npy
--- stderr
foci run: --q needs FILE; seen --k
--- exit 2

=== value is empty
foci run softmax --q=
--- stderr
foci run: --q is empty; it takes FILE
--- exit 2

=== flag with a value
foci run softmax --causal=yes
--- stderr
foci run: --causal takes no value; seen 'yes'
--- exit 2

=== word that is none of the accepted
foci plan softmax n8d8 --dtype f64
--- stderr
foci plan: --dtype is 'f64'; it takes f32|bf16|f16
--- exit 2

=== numbers out of range or no numbers
for n in 0 1025 1.5 -1 x 1e9 0x4 nan '' ' 1'; do
    foci info --threads "$n" 2>&1
    echo $?
done
--- stdout
foci info: --threads is '0'; it takes a whole number from 1 to 1024
2
foci info: --threads is '1025'; it takes a whole number from 1 to 1024
2
foci info: --threads is '1.5'; it takes a whole number from 1 to 1024
2
foci info: --threads is '-1'; it takes a whole number from 1 to 1024
2
foci info: --threads is 'x'; it takes a whole number from 1 to 1024
2
foci info: --threads is '1e9'; it takes a whole number from 1 to 1024
2
foci info: --threads is '0x4'; it takes a whole number from 1 to 1024
2
foci info: --threads is 'nan'; it takes a whole number from 1 to 1024
2
foci info: --threads is empty; it takes N
2
foci info: --threads is ' 1'; it takes a whole number from 1 to 1024
2

=== a whole number that would be read as another
for n in 9007199254740991 9007199254740992 9007199254740993; do
    foci plan bigbird n8d8 --seed $n 2>&1 | head -1
done
--- stdout
plan n8d8, *
foci plan: --seed is '9007199254740992'; it takes a whole number from 0 to 9007199254740991
foci plan: --seed is '9007199254740993'; it takes a whole number from 0 to 9007199254740991

=== the last of a repeated option counts
foci plan softmax n8d8 --dtype f32 --dtype bf16 --json | grep '"dtype"'
--- stdout
  "dtype": "bf16",

=== full disk
foci list > /dev/full
--- stderr
foci: the output could not be written: No space left on device
--- exit 1

=== closed pipe
python3 - <<'END'
import os
import subprocess
out, to = os.pipe()
os.close(out)
print(subprocess.run(["foci", "list"], stdout=to).returncode)
END
--- stdout
1
--- stderr
foci: the output could not be written: Broken pipe

=== closed standard output
foci list >&-
--- stderr
foci: the output could not be written: Bad file descriptor
--- exit 1

=== JSON to a full disk
foci list --json > /dev/full
--- stderr
foci: the output could not be written: *
--- exit 1

=== bad environment
FOCI_THREADS=many foci list
--- stderr
foci list: FOCI_THREADS=many: a whole number from 1 to 1024 is wanted
--- exit 1

=== bad CPU level in the environment
FOCI_CPU=z80 foci info
--- stderr
foci info: FOCI_CPU=z80: no such CPU level; there are *
--- exit 1

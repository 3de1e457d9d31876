# The commands of docs/evidence.md, which tools/evidence takes from there.

=== every command is understood, and every arm can do its task
export FOCI=$(command -v foci)
evidence=$TOOLS/evidence
mkdir -p data/mt/multi30k-de-en
for s in train valid test; do for i in 1 2 3 4 5 6; do echo "one two $i"; done | tee data/mt/multi30k-de-en/$s.en >data/mt/multi30k-de-en/$s.de; done
FOCI_DATA=data $evidence --time 0 --pack packed multi30k-5k mqar lm >out 2>err || cat err
grep -c "left out" err
grep "runs are done" out
for table in multi30k-5k mqar lm; do tar tzf packed/$table.tar.gz; done
$evidence --list lm | sed -n '2s/ --.*//p'
$evidence
$evidence nowhere
$evidence --part
--- stdout
0
0 of 50 runs are done
tuning is not over, and 0 runs are done
0 of 27 runs are done
multi30k-5k/compare.json
multi30k-5k/results.jsonl
mqar/compare.json
mqar/results.jsonl
lm/compare.json
lm/results.jsonl
    foci compare lm
--- stderr
evidence: which tables? There are multi30k-5k *
evidence: no table 'nowhere'; there are multi30k-5k *
evidence: --part needs a value
--- exit 2

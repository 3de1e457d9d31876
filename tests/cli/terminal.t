# What depends on a terminal: widths of tables, and emphasis.

=== tables are as wide as the terminal
export TERM=xterm
unset COLUMNS NO_COLOR
widest() { sed 's/\^\[\[[01]m//g' | awk -v most=$1 '{ if (length($0) > n) n = length($0) } END { print (n <= most && n > most - 9) }'; }
wide 60 foci list | widest 60
COLUMNS=50 wide 60 foci list | widest 50
wide 300 foci list > a; NO_COLOR=1 wide 300 foci list > b
sed 's/\^\[\[[01]m//g' a | cmp - b
foci list | cmp - b
COLUMNS=50 foci list | cmp - b
head -1 a | cut -c1-12; head -1 b | cut -c1-12
TERM=dumb wide 300 foci list | head -1 | cut -c1-12
NO_COLOR= wide 300 foci list | head -1 | cut -c1-12
--- stdout
1
1
^[[1mmechani
mechanism   
mechanism   
^[[1mmechani

=== tables that cannot be so narrow go on below
export TERM=dumb
unset COLUMNS
wide 44 foci list linear | sed -n '/argument/,$p'
for n in 1 2 17 20; do wide $n foci list > out; wc -l < out; done | awk '{ print ($1 > 40) }'
--- stdout
  argument   default  accepted
  kernel         elu  elu|relu|poly|
                      taylor|powers|
                      cos
  power            2  1 to 8, whole
  const            1  0 to 1000000
  order            2  1 to 8, whole
  normalise        1  0 to 1, whole
  eps              0  0 to 1000000

  argument   help
  kernel     what becomes of
             queries and keys
  power      p of poly's
             (const + s
             q.k)^p
  const      what poly adds
             to s q.k
  order      the last power
             of taylor, and
             of powers
  normalise  1: rows are
             divided by their
             sums
  eps        added to the
             sums
1
1
1
1

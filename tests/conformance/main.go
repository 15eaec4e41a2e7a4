//go:build linux

// Command conformance launches the same command lines under two programs that understand bwrap's, and prints
// in what the launches differ: in what the launched command sees from inside, in what can be seen of it from
// outside, in exit status, messages and status documents, and in what is left behind on the host.
//
//	go run ./tests/conformance -a /usr/bin/bwrap -b ./postern-launch
//	go run ./tests/conformance -a bwrap -b ./postern-launch -v -line '$R --unshare-pid $PROBE'
//
// As root it launches everything as root and as an ordinary user. The exit status is 1 if there are
// differences. The tests beside it hold postern-launch against two versions of bwrap; what may differ is listed
// in [Rules], with the reason.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
)

func main() {
	a := flag.String("a", "bwrap", "one `program`")
	b := flag.String("b", "", "the other `program`, called as bwrap too")
	only := flag.String("run", "", "only the cases whose name matches this `regexp`")
	line := flag.String("line", "", "instead of the tables, compare this one command `line` (with $W, $PROBE and {…} as in the tables)")
	users := flag.String("as", "root,user", "who launches")
	generate := flag.Int("generate", 0, "so `many` generated command lines as well")
	seed := flag.Uint64("seed", 1, "of the generator")
	verbose := flag.Bool("v", false, "show the whole values and all that was written to standard error")
	flag.Parse()
	if *b == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	cases := append(Cases(), Generate(*seed, *generate)...)
	if *line != "" {
		cases = []Case{{Name: "line", Line: *line}}
	}
	if *only != "" {
		pattern, err := regexp.Compile(*only)
		if err != nil {
			fatal(err)
		}
		var matching []Case
		for _, c := range cases {
			if pattern.MatchString(c.Name) {
				matching = append(matching, c)
			}
		}
		cases = matching
	}
	differ, err := compare(*a, *b, cases, *users, *verbose)
	if err != nil {
		fatal(err)
	}
	if differ {
		os.Exit(1)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "conformance:", err)
	os.Exit(2)
}

// compare prints the differences between two programs as a table.
func compare(programA, programB string, cases []Case, users string, verbose bool) (differ bool, err error) {
	bench, err := NewBench()
	if err != nil {
		return false, err
	}
	defer bench.Close()
	var impls [2]*Implementation
	for i, program := range []string{programA, programB} {
		path, err := exec.LookPath(program)
		if err != nil {
			return false, err
		}
		if impls[i], err = bench.Implementation(program, path); err != nil {
			return false, err
		}
	}
	type outcome struct {
		launch  Launch
		reports [2]*Report
		err     error
	}
	var launches []Launch
	for _, l := range Launches(cases) {
		if strings.Contains(users, string(l.As())) && l.Case.KnownTo(impls[0]) && l.Case.KnownTo(impls[1]) {
			launches = append(launches, l)
		}
	}
	outcomes := make([]outcome, len(launches))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2*runtime.NumCPU())
	for i, l := range launches {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			o := &outcomes[i]
			o.launch = l
			for k, impl := range impls {
				if o.reports[k], o.err = bench.Run(impl, l.Case, l.UID); o.err != nil {
					return
				}
			}
		}()
	}
	wg.Wait()
	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(table, "CASE\tFIELD\t%s (%s)\t%s (%s)\tLISTED AS\n", programA, impls[0].Version, programB, impls[1].Version)
	count, differing := 0, 0
	for _, o := range outcomes {
		if o.err != nil {
			return true, o.err
		}
		found := Diff(o.reports[0], o.reports[1])
		count += len(found)
		if len(found) > 0 {
			differing++
		}
		rules, _ := rulesFor(Rules, o.launch, found, -1)
		for i, rule := range rules {
			d, listed := found[i], "-"
			if rule >= 0 {
				listed = string(Rules[rule].Class)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", o.launch, d.Field, cut(d.A, verbose), cut(d.B, verbose), listed)
		}
		if verbose {
			for k, r := range o.reports {
				fmt.Fprintf(table, "%s\t(%s)\texit %s\t%q\n", o.launch, impls[k].Name, r.Exit, r.StderrText)
			}
		}
	}
	table.Flush()
	fmt.Printf("%d differences in %d of %d launches\n", count, differing, len(launches))
	return count > 0, nil
}

func cut(s string, whole bool) string {
	if whole || len(s) <= 90 {
		return s
	}
	return s[:87] + "..."
}

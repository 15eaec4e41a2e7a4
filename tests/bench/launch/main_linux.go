// Bench measures launches against bwrap and prints one table of medians and
// ratios. Every figure that is compared is measured in the same interleaved
// rounds, so that a machine that is slow for a while is slow for all.
//
//	go run ./tests/bench/launch [-rounds N] [-bwrap PATH]
package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

var (
	rounds   = flag.Int("rounds", 200, "interleaved rounds")
	bwrap    = flag.String("bwrap", "", "reference bwrap (default: the one tests/conformance/fetch-bwrap.sh prints)")
	launcher = flag.String("launcher", "", "postern-launch (default: built from this tree)")
	only     = flag.String("only", "", "run only the table rows whose name contains this")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	tmp, err := os.MkdirTemp("", "postern-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if *bwrap == "" {
		out, err := exec.Command("sh", "tests/conformance/fetch-bwrap.sh").Output()
		if err != nil {
			return fmt.Errorf("no reference bwrap: %w", err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		*bwrap = lines[len(lines)-1]
	}
	if *launcher == "" {
		*launcher = filepath.Join(tmp, "postern-launch")
		if out, err := exec.Command("go", "build", "-o", *launcher, "./cmd/postern-launch").CombinedOutput(); err != nil {
			return fmt.Errorf("build postern-launch: %v\n%s", err, out)
		}
	}
	// What a launcher inherits costs it time; bwrap does not look.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	for _, program := range []*string{bwrap, launcher} {
		if *program, err = copied(*program, tmp); err != nil {
			return err
		}
	}
	b := &bench{tmp: tmp, out: tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)}
	if err := b.prepare(); err != nil {
		return err
	}
	fmt.Fprintln(b.out, "what\tmedian\treference\tratio\ttarget")
	for _, part := range []struct {
		name string
		run  func() error
	}{{"library", b.library}, {"heap", b.heap}, {"launcher", b.launcher}, {"compat", b.compat}, {"binds", b.binds}, {"parallel", b.parallel}, {"memory", b.memory}} {
		if !strings.Contains(part.name, *only) {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		b.out.Flush()
	}
	return nil
}

// copied returns a copy of a program. One that the linker has just written lies
// in the page cache in single pages and starts later, by up to a twentieth of a
// launch, than one that was copied to where it is, as installing does.
func copied(program, tmp string) (string, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(tmp, "program-")
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(program))
	return to, os.WriteFile(to, data, 0o755)
}

// A subject is one thing whose time is taken.
type subject func() error

// settle is the pause before each measurement: the kernel goes on taking down
// the namespaces of the launch before, on the other processor, and that is not
// to be charged to the next. The rows on parallel launches have no pauses.
const settle = 4 * time.Millisecond

// interleave runs every subject once a round, in any order, and returns their
// medians.
func interleave(n int, subjects ...subject) ([]time.Duration, error) {
	times := make([][]time.Duration, len(subjects))
	for r := range n + n/10 + 1 {
		for _, i := range rand.Perm(len(subjects)) { // what goes before leaves its traces
			time.Sleep(settle)
			start := time.Now()
			if err := subjects[i](); err != nil {
				return nil, err
			}
			if r > n/10 { // the first rounds warm up
				times[i] = append(times[i], time.Since(start))
			}
		}
	}
	medians := make([]time.Duration, len(subjects))
	for i, t := range times {
		slices.Sort(t)
		medians[i] = t[len(t)/2]
	}
	return medians, nil
}

func (b *bench) row(what string, ours, ref time.Duration, ratio, target string) {
	fmt.Fprintf(b.out, "%s\t%s\t%s\t%s\t%s\n", what, ms(ours), ms(ref), ratio, target)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

func ratio(a, b time.Duration) string { return fmt.Sprintf("%.2f", float64(a)/float64(b)) }

// ballast is a live heap of 1 GB.
func ballast() []byte {
	debug.SetGCPercent(100)
	x := make([]byte, 1<<30)
	for i := 0; i < len(x); i += 4096 {
		x[i] = 1
	}
	return x
}

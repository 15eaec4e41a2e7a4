//go:build linux

package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	onlyCases = flag.String("conformance.run", "", "only the cases whose name matches this `regexp`")
	generated = flag.Int("conformance.generate", 500, "how `many` command lines to generate")
	seed      = flag.Uint64("conformance.seed", 1, "of the generator; 0 takes a new one")
)

// session is shared by the tests; building it takes longer than most of them.
var session = sync.OnceValues(func() (*Bench, error) { return NewBench() })

func TestMain(m *testing.M) {
	flag.Parse()
	modes := machineModes()
	code := m.Run()
	if changed := restoreMachine(modes); len(changed) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: the launches changed this machine:\n%s\n", strings.Join(changed, "\n"))
		code = 1
	}
	if bench, err := session(); err == nil {
		bench.Close()
	}
	os.Exit(code)
}

func bench(t *testing.T) *Bench {
	t.Helper()
	b, err := session()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// needed fails where everything has to be installed, and skips elsewhere.
func needed(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		needed(t, "only root can launch as root and as somebody else")
	}
}

// references returns the two bwraps, the newest last.
func references(t *testing.T) []*Implementation {
	t.Helper()
	older, err := exec.LookPath("bwrap")
	if err != nil {
		needed(t, "no bwrap in PATH (apt-get install bubblewrap)")
	}
	newer := newBwrap()
	if _, err := os.Stat(newer); err != nil {
		needed(t, "the newest bwrap is not there (run fetch-bwrap.sh): %v", err)
	}
	for _, tool := range []string{"unshare", "nsenter", "setpriv", "prlimit", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			needed(t, "no %s in PATH (apt-get install util-linux mount)", tool)
		}
	}
	var impls []*Implementation
	for _, path := range []string{older, newer} {
		impl, err := bench(t).Implementation(path, path)
		if err != nil {
			t.Fatal(err)
		}
		impls = append(impls, impl)
	}
	if impls[1].Version != "0.13.1" {
		t.Fatalf("%s is bubblewrap %s, the suite is written against 0.13.1", newer, impls[1].Version)
	}
	return impls
}

func launcher(t *testing.T) *Implementation {
	t.Helper()
	path := filepath.Join(t.TempDir(), "postern-launch")
	if err := goBuild(path, "cmd/postern-launch"); err != nil {
		t.Fatal(err)
	}
	impl, err := bench(t).Implementation("postern-launch", path)
	if err != nil {
		t.Fatal(err)
	}
	return impl
}

func selected(t *testing.T, cases []Case) []Launch {
	t.Helper()
	pattern, err := regexp.Compile(*onlyCases)
	if err != nil {
		t.Fatal(err)
	}
	var launches []Launch
	for _, l := range Launches(cases) {
		if pattern.MatchString(l.Case.Name) {
			launches = append(launches, l)
		}
	}
	return launches
}

// forEach calls f for every launch, a few at a time.
func forEach(launches []Launch, f func(Launch)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2*runtime.NumCPU())
	for _, l := range launches {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			f(l)
		}()
	}
	wg.Wait()
}

func describe(findings []Finding) string {
	var text strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&text, "\n\t%s\n\t\tbwrap %s: %s\n\t\tours: %s", f.Field, f.Reference.Version, cut(f.A, false), cut(f.B, false))
	}
	return text.String()
}

// The suite: in every case we do what bwrap does, except for what Rules lists, all of which happens.
func TestLikeBwrap(t *testing.T) {
	needRoot(t)
	judge := &Judge{Bench: bench(t), Candidate: launcher(t), References: references(t), Rules: Rules}
	var mu sync.Mutex
	applied := map[int]bool{}
	launches := selected(t, Cases())
	forEach(launches, func(l Launch) {
		findings, rules, err := judge.Judge(l)
		mu.Lock()
		defer mu.Unlock()
		for i := range rules {
			applied[i] = true
		}
		if err != nil {
			t.Error(err)
		} else if len(findings) > 0 {
			t.Errorf("%s\n\tbwrap %s%s", l, l.Case.Line, describe(findings))
		}
	})
	t.Logf("%d launches", len(launches))
	for i, r := range Rules {
		if !applied[i] && r.mustOccur() && *onlyCases == "" {
			t.Errorf("listed as %s, but there is no such difference any more: %s / %s (%s)", r.Class, r.Case, r.Field, r.Reason)
		}
	}
}

// The same for command lines that nobody thought of. A failure is cut down to what is needed for it.
func TestLikeBwrapGenerated(t *testing.T) {
	needRoot(t)
	judge := &Judge{Bench: bench(t), Candidate: launcher(t), References: references(t), Rules: Rules}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	t.Logf("%d command lines; to have the same again: -conformance.seed=%d", *generated, *seed)
	var mu sync.Mutex
	failures := 0
	forEach(selected(t, Generate(*seed, *generated)), func(l Launch) {
		findings, _, err := judge.Judge(l)
		if err != nil {
			t.Error(err)
			return
		}
		if len(findings) == 0 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		// Shrinking takes some dozen launches, so it has to stop somewhere.
		if failures++; failures > 10 {
			t.Errorf("%s\n\tbwrap %s%s", l, l.Case.Line, describe(findings))
			return
		}
		smallest := Shrink(l.Case, func(c Case) bool {
			again, _, err := judge.Judge(Launch{c, l.UID})
			if err == nil && sameField(findings, again) {
				findings = again
				return true
			}
			return false
		})
		t.Errorf("%s\n\tbwrap %s\n\tfound in: bwrap %s%s", l, smallest.Line, l.Case.Line, describe(findings))
	})
}

// sameField tells whether the two have something to do with each other.
func sameField(a, b []Finding) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Field == y.Field {
				return true
			}
		}
	}
	return false
}

// What the suite compares is the same every time; otherwise nothing it says would mean anything.
func TestSameProgramTwice(t *testing.T) {
	needRoot(t)
	impls := references(t)
	newest := impls[len(impls)-1]
	launches := selected(t, append(Cases(), Generate(1, 50)...))
	if *onlyCases == "" { // some from everywhere
		var some []Launch
		for i := 0; i < len(launches); i += 9 {
			some = append(some, launches[i])
		}
		launches = some
	}
	forEach(launches, func(l Launch) {
		first, err := bench(t).Run(newest, l.Case, l.UID)
		if err != nil {
			t.Error(err)
			return
		}
		second, err := bench(t).Run(newest, l.Case, l.UID)
		if err != nil {
			t.Error(err)
			return
		}
		for _, d := range Diff(first, second) {
			t.Errorf("%s: %v", l, d)
		}
	})
}

// The suite sees what is known to differ between the two bwraps.
func TestBwrapsDiffer(t *testing.T) {
	needRoot(t)
	impls := references(t)
	if impls[0].Version != "0.8.0" {
		needed(t, "the bwrap in PATH is %s; what it does differently is known of 0.8.0", impls[0].Version)
	}
	cases := map[string]Case{}
	for _, c := range Cases() {
		cases[c.Name] = c
	}
	for _, known := range []struct{ name, field string }{
		{"option/version", "Stdout"},
		{"option/the usual", "Guest.Mounts[/dev/shm].Options"},
		{"reported/bubblewrap 390 dangling link", "Host[nowhere]"},
		{"reported/flatcar 2417 dir through a link to the old root", "Host[d/created]"},
		{"reported/flatcar 2417 file through a link to the old root", "Host[d/pwn]"},
		{"reported/flatpak 6832 absolute parent link", "Exit"},
		{"reported/bubblewrap 577 symlink twice", "Exit"},
		{"reported/same fd twice", "Exit"},
		{"reported/file with a trailing slash", "Exit"},
		{"process/chld ignored plain", "Exit"},
		{"option/sync-fd twice", "Guest.Ancestors[init1].FDs[3]"},
		{"option/dir over a link", "Exit"},
		{"option/chmod link", "Host[f]"},
	} {
		c, ok := cases[known.name]
		if !ok {
			t.Errorf("no case is called %q", known.name)
			continue
		}
		var reports [2]*Report
		for i, impl := range impls {
			r, err := bench(t).Run(impl, c, 0)
			if err != nil {
				t.Fatal(err)
			}
			reports[i] = r
		}
		found := false
		for _, d := range Diff(reports[0], reports[1]) {
			found = found || d.Field == known.field
		}
		if !found {
			t.Errorf("%s: no difference seen in %s", known.name, known.field)
		}
	}
}

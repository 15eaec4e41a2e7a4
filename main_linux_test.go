package postern

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// The numbers in comments like "promise 13" are those of the list of promises
// that the Python original makes, which this package keeps.

func TestMain(m *testing.M) {
	os.Exit(testutil.Main(m))
}

// sandbox returns a sandbox that is closed after the test.
func sandbox(t testing.TB, p Profile, options ...Option) *Sandbox {
	t.Helper()
	s, err := New(p, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// run runs a command whose launch must succeed.
func run(t testing.TB, s *Sandbox, c Command) Result {
	t.Helper()
	r, err := s.RunCommand(context.Background(), c)
	if err != nil {
		t.Fatalf("run %q: %v", c.Args, err)
	}
	return r
}

// outputOf returns what a script prints in a sandbox, which must succeed.
func outputOf(t testing.TB, s *Sandbox, script string) string {
	t.Helper()
	r := run(t, s, Bash(script))
	if r.ExitCode != 0 || len(r.Stderr) > 0 {
		t.Fatalf("%q ended with %d (%v):\n%s%s", script, r.ExitCode, r.Reason, r.Stdout, r.Stderr)
	}
	return strings.TrimSuffix(string(r.Stdout), "\n")
}

// start starts a process that is closed after the test.
func start(t testing.TB, s *Sandbox, c Command) *Process {
	t.Helper()
	p, err := s.StartCommand(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// await reads output until it contains want, and returns what it has read.
func await(t testing.TB, p *Process, want string) string {
	t.Helper()
	var all bytes.Buffer
	for _, b := range p.Output() {
		all.Write(b)
		if strings.Contains(all.String(), want) {
			return all.String()
		}
	}
	t.Fatalf("the output ended without %q:\n%s", want, all.String())
	return ""
}

// wait returns the exit code of a process that ends.
func wait(t testing.TB, p *Process) int {
	t.Helper()
	code, err := p.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return code
}
